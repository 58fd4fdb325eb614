"""Vendor files that do not load, or do more than they should: one line, exit code 4, and the others' passes still run."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }"""


@pytest.fixture
def model(tmp_path: Path, vendors: Any) -> Path:
    """A model, and vendors of which one file is good: it turns ``Neg`` into ``Sigmoid``."""
    path = tmp_path / "m.onnx"
    onnx.save(parse(MODEL), path)
    vendors.write("acme/good.py", vendors.swap("Good", "Neg", "Sigmoid"))
    return path


@pytest.fixture
def contained(
    model: Path, vendors: Any, refused: Any, gehost_run: Any, tmp_path: Path
) -> Callable[[Path, str], None]:
    """``contained(file, told)``: a compile ends with 4 and names the file; with ``--keep-going`` it is as if it were not there."""

    def contained(file: Path, message: str) -> None:
        line = refused(4, model, "--vendors", vendors.root)
        assert message in line
        assert str(file) in line
        output, report = tmp_path / "kept.onnx", tmp_path / "report.json"
        code, _, err = gehost_run(
            "compile",
            model,
            "-o",
            output,
            "--vendors",
            vendors.root,
            "--keep-going",
            "--report",
            report,
        )
        (problem,) = json.loads(report.read_text())["problems"]
        assert str(file) in problem
        line = err.splitlines()[-1]
        assert (code, f"gehost: {output} is written; kept going after: " in line) == (4, True)
        shutil.rmtree(file.parent) if file.parent.name == "pack" else file.unlink()
        assert (
            gehost_run("compile", model, "-o", tmp_path / "wanted.onnx", "--vendors", vendors.root)[
                0
            ]
            == 0
        )
        assert output.read_bytes() == (tmp_path / "wanted.onnx").read_bytes()
        assert [node.op_type for node in onnx.load(output).graph.node] == ["Relu", "Sigmoid"]

    return contained


# -- files that do not load -----------------------------------------------------------------------------------------

ODD_CLASS = "class Odd:\n    @property\n    def __class__(self):\n        raise ValueError('no class')\nodd = Odd()\n"
ODD_TYPE = "class Meta(type):\n    def __getattribute__(cls, name):\n        raise ValueError(name)\nclass P(metaclass=Meta): pass\n"

UNLOADABLE = [
    ("def f(:\n", ":2: SyntaxError: "),
    ("if True:\nx = 1\n", ":3: IndentationError: "),
    ("x = " + "(" * 1000 + "\n", ":2: SyntaxError: too many nested parentheses"),
    (
        "import no_such_dependency_at_all\n",
        ":2: ModuleNotFoundError: No module named 'no_such_dependency_at_all'",
    ),
    ("from numpy import no_such_name\n", ":2: ImportError: cannot import name 'no_such_name'"),
    (
        "from ._nowhere import x\n",
        ":2: ModuleNotFoundError: No module named 'gehost_vendors.acme._nowhere'",
    ),
    ("1 / 0\n", ":2: ZeroDivisionError: division by zero"),
    ("def f():\n    return f()\nf()\n", ":3: RecursionError: maximum recursion depth exceeded"),
    ("raise StopIteration\n", ":2: StopIteration"),
    ("class Own(BaseException): pass\nraise Own('of its own')\n", ":3: Own: of its own"),
    ("raise GeneratorExit\n", ":2: GeneratorExit"),
    ("import asyncio\nraise asyncio.CancelledError\n", ":3: CancelledError"),
    (
        "raise BaseExceptionGroup('all', [SystemExit(0), ValueError()])\n",
        ":2: BaseExceptionGroup: all (2 sub-exceptions)",
    ),
    ("import sys\nsys.exit(0)\n", ":3: SystemExit: 0"),
    ("import sys\nsys.exit()\n", ":3: SystemExit"),
    ("raise SystemExit('as a text')\n", ":2: SystemExit: as a text"),
    (
        "class Mute(Exception):\n    def __str__(self): return 1 / 0\nraise Mute\n",
        ":4: Mute: (its message cannot be read: ",
    ),
    (
        "raise ValueError('a\\nb\\x1b[31m\\u202e\\ud800')\n",
        r":2: ValueError: a b\x1b[31m\u202e\ud800",
    ),
    ("raise ValueError('long ' * 200_000)\n", "… (1000000 characters)"),
    ("raise ValueError(3, b'x', None)\n", ":2: ValueError: (3, b'x', None)"),
    ("raise 3\n", ":2: TypeError: exceptions must derive from BaseException"),
    (
        "import warnings\nwarnings.simplefilter('error')\nwarnings.warn('no', stacklevel=2)\n",
        "UserWarning: no",
    ),
    ("import sys\nsys.modules = {}\nimport json\nraise ValueError('lost')\n", "lost"),
    (
        "import inspect, sys\nsys.setrecursionlimit(len(inspect.stack()) + 60)\ndef f(n): return n and f(n - 1)\nf(99)\n",
        ":4: Recursion",
    ),
    (
        "@REG_FUSION_PASS\ndef f(): pass\n",
        ":2: cannot register f; it must derive from PatternFusionPass",
    ),
    (
        "@REG_FUSION_PASS\nclass Bare: pass\n",
        ":2: cannot register Bare; it must derive from",
    ),
    ("REG_FUSION_PASS(3)\n", ":2: cannot register 3; it must derive from"),
    (
        "REG_DECOMPOSE_PASS(FusionBasePass, ['Conv'])\n",
        "; it must derive from DecomposePass",
    ),
    (
        "@REG_FUSION_PASS\nclass P(PatternFusionPass): pass\n",
        ":2: P does not define Patterns and Replacement",
    ),
    (
        "@REG_FUSION_PASS(stage='kAfterInferShape')\nclass P(FusionBasePass): pass\n",
        ":2: P: fusion passes cannot run at",
    ),
    (
        "__gehost_passes__ = 3\n",
        "AttributeError: 'int' object has no attribute 'append'",
    ),
    ("__gehost_ops__ = 3\n", "AttributeError: 'int' object has no attribute 'values'"),
    ("def __getattr__(name): raise OSError(name)\n", "OSError: "),
    ("def __dir__(): raise OSError('no names')\n", "OSError: no names"),
    (ODD_CLASS, "ValueError: no class"),
    (ODD_TYPE, "ValueError: "),
    ("import sys\nsys.modules[__name__] = 3\nraise ValueError('gone')\n", ":4: ValueError: gone"),
    ("@hookimpl\ndef gehost_no_such_hook(graph): pass\n", "unknown hook 'gehost_no_such_hook'"),
    (
        "ops.register('acme::Op')\n\nops.register('acme::Op')\n",
        ':4: operator "acme::Op" is registered already at',
    ),
]


@pytest.mark.parametrize(
    ("code", "message"), UNLOADABLE, ids=[code.splitlines()[-1][:40] for code, _ in UNLOADABLE]
)
def test_a_file_that_does_not_load_is_named_and_skipped(
    vendors: Any, contained: Any, code: str, message: str
) -> None:
    # None of what it registered before remains either.
    code = (
        code + vendors.swap("Half", "Relu", "Abs")
        if "raise" not in code and "/ 0" not in code
        else code
    )
    contained(vendors.write("acme/bad.py", code), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x = 1\n\0\n", "null bytes"),
        (b"\xff\xfe\n", ":1: SyntaxError: "),
        (b"# -*- coding: no-such-codec -*-\n", "unknown encoding: no-such-codec"),
        ("x = 'ä'".encode("utf-16"), "SyntaxError: "),
        (b"\x80\x02 a pickle", "SyntaxError: "),
    ],
)
def test_bytes_that_are_no_text_are_a_syntax_error_of_that_file(
    vendors: Any, contained: Any, content: bytes, message: str
) -> None:
    file = vendors.write("acme/bad.py", "")
    file.write_bytes(content)
    contained(file, message)


def test_a_package_that_does_not_load_is_named_by_the_module_at_fault(
    vendors: Any, contained: Any
) -> None:
    vendors.write(
        "acme/pack/__init__.py", vendors.swap("Half", "Relu", "Abs"), "from . import inner\n"
    )
    contained(vendors.write("acme/pack/inner.py", "1 / 0\n"), ":2: ZeroDivisionError")


@pytest.mark.parametrize("vendor", ["acme", "zeta"])
def test_two_passes_of_one_name_are_an_error_that_names_both_places(
    vendors: Any, contained: Any, vendor: str
) -> None:
    file = vendors.write(f"{vendor}/second.py", vendors.swap("Good", "Relu", "Abs"))
    contained(
        file,
        f"a pass called Good is registered already at {vendors.root}/acme/custom_fusion_passes/good.py:3; rename one",
    )


def test_two_passes_of_one_name_in_one_file_are_an_error(vendors: Any, contained: Any) -> None:
    twice = "REG_FUSION_PASS(name='Twice')(type('B', (A,), {}))\nC = REG_FUSION_PASS(name='Twice')(type('C', (A,), {}))\n"
    code = vendors.swap("A", "Relu", "Abs") + "B = " + twice
    contained(
        vendors.write("acme/twice.py", code),
        "twice.py:16: a pass called Twice is registered already at",
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "a link to nowhere, which does not exist"),
        ("loop.py", "a link to loop.py, which does not exist"),
        ("/dev/zero", "not a regular file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    vendors: Any, contained: Any, path: str, message: str
) -> None:
    file = vendors.root / "acme/custom_fusion_passes/loop.py"
    file.symlink_to(path)
    contained(file, message)


def test_a_file_that_may_not_be_read_is_named(
    vendors: Any, contained: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = vendors.write("acme/secret.py", "")
    real = SourceFileLoader.get_data

    def get_data(self: Any, path: str) -> bytes:
        if path == str(file):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(self, path)

    monkeypatch.setattr(SourceFileLoader, "get_data", get_data)
    contained(file, f"secret.py:1: PermissionError: [Errno 13] Permission denied: '{file}'")


# -- directories ----------------------------------------------------------------------------------------------------


def test_loops_of_links_and_files_in_the_place_of_directories_are_passed_over(
    vendors: Any, model: Path, gehost_run: Any, tmp_path: Path
) -> None:
    passes = vendors.root / "acme/custom_fusion_passes"
    (passes / "here").symlink_to(passes)
    (vendors.root / "up").symlink_to(vendors.root)
    (vendors.root / "loop").symlink_to("loop")
    vendors.write_raw("a file", "raise SystemError")
    vendors.write_raw("zeta/custom_fusion_passes", "raise SystemError")
    code, out, err = gehost_run(
        "compile", model, "-o", tmp_path / "o.onnx", "--vendors", vendors.root, "-v"
    )
    assert code == 0
    assert "Good" in out
    *skipped, summary = err.splitlines()
    assert summary == "gehost: 1 pass of 1 vendor; 4 files skipped (-v lists them)"
    assert [line.removeprefix(f"skipped: {vendors.root}/") for line in skipped] == [
        "loop: a link to loop, which does not exist",
        "up: no directory custom_fusion_passes in it",
        "zeta: no directory custom_fusion_passes in it",
        "acme/custom_fusion_passes/here: a directory without __init__.py",
        f"gehost: {vendors.root}/loop: a link to loop, which does not exist",
    ]


@pytest.mark.parametrize("root", ["m.onnx", "nowhere", "loop", "vendors/acme"])
def test_what_is_no_directory_of_vendors_is_wrong_usage(
    model: Path, refused: Any, tmp_path: Path, root: str
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert str(tmp_path / root) in refused(2, model, "--vendors", tmp_path / root)


@pytest.mark.parametrize("function", ["listdir", "stat"])
def test_a_directory_that_may_not_be_read_is_wrong_usage(
    vendors: Any, model: Path, refused: Any, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    real = getattr(os, function)

    def closed(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if str(path).startswith(str(vendors.root / "acme")):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, function, closed)
    assert "Permission denied" in refused(2, model, "--vendors", vendors.root)


def test_files_named_as_modules_of_python_are_not_taken_for_them(
    vendors: Any, model: Path, gehost_run: Any, tmp_path: Path
) -> None:
    for name, old, new in (
        ("json", "Relu", "Tanh"),
        ("numpy", "Tanh", "Exp"),
        ("typing", "Exp", "Abs"),
    ):
        check = f"import json, typing, numpy\nassert json.loads('[1]') and typing.Any and numpy.float32\nassert __name__ != '{name}'\n"
        vendors.write(f"acme/{name}.py", check, vendors.swap(f"P{name}", old, new))
    code, _, err = gehost_run(
        "compile", model, "-o", tmp_path / "o.onnx", "--vendors", vendors.root
    )
    assert (code, err) == (0, "")
    assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == [
        "Abs",
        "Sigmoid",
    ]


def test_files_and_helpers_of_one_name_are_each_vendors_own(
    vendors: Any, model: Path, gehost_run: Any, tmp_path: Path
) -> None:
    for vendor, old, new in (("beta", "Relu", "Tanh"), ("zeta", "Tanh", "Exp")):
        vendors.write(f"{vendor}/_tables.py", f"NEW = '{new}'\n")
        code = vendors.swap(f"Of{vendor}", old, "NEW").replace("es.NEW", "es.op(NEW)")
        vendors.write(f"{vendor}/same.py", "from ._tables import NEW\n", code)
    assert (
        gehost_run("compile", model, "-o", tmp_path / "o.onnx", "--vendors", vendors.root)[0] == 0
    )
    assert [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node] == [
        "Exp",
        "Sigmoid",
    ]


# -- operators of their own -----------------------------------------------------------------------------------------

CUSTOM = """<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>
main (float[2] x) => (float[2] y, float[2] z) { a = acme.Op(x) y = Abs(a) z = Neg(x) }"""


@pytest.mark.parametrize("error", ["1 / 0", "exit()", "[][0]", "(lambda f: f(f))(lambda f: f(f))"])
def test_a_shape_function_that_fails_is_named_and_its_types_stay_unknown(
    vendors: Any, model: Path, refused: Any, gehost_run: Any, tmp_path: Path, error: str
) -> None:
    onnx.save(parse(CUSTOM), model)
    file = vendors.write(
        "acme/op.py",
        f"ops.register('acme::Op', inputs=['x'], shape=lambda types, attributes: {error})\n",
    )
    message = f"{file}:2: the shape function of acme::Op failed: "
    assert message in refused(4, model, "--vendors", vendors.root)
    out, report = tmp_path / "o.onnx", tmp_path / "report.json"
    code, _, err = gehost_run(
        "compile", model, "-o", out, "--vendors", vendors.root, "--keep-going", "--report", report
    )
    problems = json.loads(report.read_text())["problems"]
    assert problems
    assert (code, err) == (4, f"gehost: {out} is written; kept going after: {problems[0]}\n")
    assert all(message in problem for problem in problems)
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Op", "Abs", "Sigmoid"]
