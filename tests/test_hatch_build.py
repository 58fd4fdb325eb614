"""Docstrings reach machine code: help() shows the same texts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[1]
SOURCE = '''
class Plain:
    """A class."""

    @property
    def size(self):
        """A "size"."""

    def work(self):
        """Work on it."""

class Bare:
    pass

def function():
    """A function."""
'''
C = r"""
{"work", (PyCFunction)CPyPy_m___Plain___work, METH_FASTCALL, PyDoc_STR("work($self)\n--\n\n") /* docstring */},
{"function", (PyCFunction)CPyPy_m___function, METH_FASTCALL, PyDoc_STR(NULL) /* docstring */},
{"size", (getter)m___Plain_get_size, NULL, NULL, NULL},
PyTypeObject CPyType_m___Plain_template_ = { .tp_name = "Plain", .tp_doc = PyDoc_STR(NULL), };
PyTypeObject CPyType_m___Bare_template_ = { .tp_name = "Bare", .tp_doc = PyDoc_STR("Bare()\n--\n\n"), };
"""
DOCUMENTED = r"""
{"work", (PyCFunction)CPyPy_m___Plain___work, METH_FASTCALL, PyDoc_STR("work($self)\n--\n\nWork on it\056") /* docstring */},
{"function", (PyCFunction)CPyPy_m___function, METH_FASTCALL, PyDoc_STR("A function\056") /* docstring */},
{"size", (getter)m___Plain_get_size, NULL, "A \042size\042\056", NULL},
PyTypeObject CPyType_m___Plain_template_ = { .tp_name = "Plain", .tp_doc = PyDoc_STR("A class\056"), };
PyTypeObject CPyType_m___Bare_template_ = { .tp_name = "Bare", .tp_doc = PyDoc_STR("Bare()\n--\n\n"), };
"""


def test_docstrings_are_written_into_the_c_of_mypyc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.chdir(tmp_path)
    import hatch_build

    Path("m.py").write_text(SOURCE, encoding="utf-8")
    file = Path("m.c")
    file.write_text(C, encoding="utf-8")
    hatch_build.add_docstrings(["m.py"], [file])
    assert file.read_text(encoding="utf-8") == DOCUMENTED
    sys.modules.pop("hatch_build")
