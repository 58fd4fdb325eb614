"""The distribution gehost-native: docstrings reach machine code, other versions are refused."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gehost

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
    pytest.importorskip("hatchling")
    from tools.native.compile import add_docstrings

    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text(SOURCE, encoding="utf-8")
    file = Path("m.c")
    file.write_text(C, encoding="utf-8")
    add_docstrings(["m.py"], [file])
    assert file.read_text(encoding="utf-8") == DOCUMENTED


def test_attributes_take_the_place_of_blank_lines() -> None:
    pytest.importorskip("hatchling")
    from tools.native.compile import with_attributes

    source = "from __future__ import annotations\n\nimport os\n\n\n@deco\nclass A:\n    pass\n"
    text = with_attributes(source, "serializable=True", ["A"])
    assert text == (
        "from __future__ import annotations\nfrom mypy_extensions import mypyc_attr\n"
        "import os\n\n@mypyc_attr(serializable=True)\n@deco\nclass A:\n    pass\n"
    )
    with pytest.raises(ValueError, match=r"no classes \['B'\]"):
        with_attributes(source, "serializable=True", ["B"])
    with pytest.raises(ValueError, match="line 1 is not blank"):
        with_attributes("import os\nclass A:\n    pass\n", "serializable=True", ["A"])


@pytest.mark.sources
def test_classes_with_attributes_are_in_the_sources() -> None:
    pytest.importorskip("hatchling")
    from tools.native.compile import ROOT, hook, with_attributes

    for attributes, classes in hook()["attributes"].items():
        for file, names in classes.items():
            with_attributes((ROOT / file).read_text(encoding="utf-8"), attributes, names)


@pytest.mark.sources
def test_interpreted_classes_derive_only_from_classes_that_allow_it() -> None:
    """Machine code raises a TypeError at the first instance of any other."""
    pytest.importorskip("hatchling")
    from tools.native.compile import ROOT, hook, hot_modules

    hot = hot_modules()
    compiled = {cls.name for file in hot for cls, _ in _classes(ROOT / file)}
    allowed = {
        name
        for attributes, classes in hook()["attributes"].items()
        if "allow_interpreted_subclasses=True" in attributes
        for names in classes.values()
        for name in names
    }
    hot_files = {ROOT / file for file in hot}
    others = [
        file
        for folder in ("gehost", "plugins", "vendors")
        for file in (ROOT / folder).rglob("*.py")
        if file not in hot_files and "tests" not in file.parts
    ]
    derived = {
        base: f"{file.relative_to(ROOT)}: {cls.name}"
        for file in others
        for cls, bases in _classes(file)
        for base in bases & compiled
    }
    assert derived.pop("GNodeAccessors").endswith("ge_utils.py: ReplacementNode")
    assert {base: place for base, place in derived.items() if base not in allowed} == {}


def _classes(file: Path) -> Iterator[tuple[ast.ClassDef, set[str]]]:
    """Yield the classes of a file with the names that they derive from as the file imports them."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = [ast.unparse(base).partition("[")[0] for base in node.bases]
            yield (
                node,
                {imported.get(n, n.rpartition(".")[2]) for n in names if n in imported or "." in n},
            )


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (gehost.__version__, ""),
        ("9.9", "gehost-native 9.9 is for gehost 9.9, this is " + gehost.__version__),
    ],
)
def test_machine_code_of_another_version_is_refused(
    tmp_path: Path, version: str, expected: str
) -> None:
    package = Path(gehost.__file__).parent
    (tmp_path / "gehost").mkdir()
    shutil.copy(package / "__init__.py", tmp_path / "gehost")
    (tmp_path / "gehost" / "machine_code.py").write_text(f'VERSION = "{version}"\n')
    process = subprocess.run(
        [sys.executable, "-c", "import gehost"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.returncode == bool(expected)
    assert expected in process.stderr
