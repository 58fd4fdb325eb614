"""What vendor code changes of the process is put back, after a file was loaded and after each pass and hook."""

from __future__ import annotations

import json
import locale
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.testing import parse

MODEL = """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(MODEL), "m.onnx")
    return tmp_path


# What is changed, by which code, and how it is looked at.
CHANGES: dict[str, tuple[str, Callable[[], Any]]] = {
    "working directory": ("import os, tempfile; os.chdir(tempfile.gettempdir())", os.getcwd),
    "sys.path": ("import sys; sys.path.insert(0, '/nowhere')", lambda: list(sys.path)),
    "another sys.path": ("import sys; sys.path = []", lambda: (id(sys.path), list(sys.path))),
    "a module replaced": ("import sys; sys.modules['json'] = None", lambda: sys.modules["json"]),
    "a module removed": ("import sys; del sys.modules['json']", lambda: sys.modules["json"]),
    "other modules": ("import sys; sys.modules = {}", lambda: id(sys.modules)),
    "junk among the modules": ("import sys; sys.modules[3] = 4", lambda: 3 in sys.modules),
    "warning filters": (
        "import warnings; warnings.simplefilter('ignore')",
        lambda: list(warnings.filters),
    ),
    "numpy errors": ("import numpy; numpy.seterr(all='raise')", np.geterr),
    "random": ("import random; random.seed(1)", random.getstate),
    "numpy's random": (
        "import numpy; numpy.random.seed(1)",
        lambda: np.random.get_state()[1].tolist(),
    ),
    "recursion limit": ("import sys; sys.setrecursionlimit(5000)", sys.getrecursionlimit),
    "sys.stdout": ("import sys; sys.stdout = None", lambda: sys.stdout),
    "sys.stderr": ("import sys, io; sys.stderr = io.StringIO()", lambda: sys.stderr),
    "locale": (
        "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
        lambda: locale.setlocale(locale.LC_ALL),
    ),
    "interrupts": (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)",
        lambda: signal.getsignal(signal.SIGINT),
    ),
    "standard output": ("import os; os.close(1)", lambda: os.fstat(1).st_ino),
    "standard error": ("import os; os.close(2)", lambda: os.fstat(2).st_ino),
}

PLACES = {
    "at import": "{change}\n",
    "at import, and fails": "{change}\n1 / 0\n",
    "in Patterns": "class P(P):\n    def Patterns(self):\n        {change}\n        return super().Patterns()\nREG_FUSION_PASS(P)\n",
    "in MeetRequirements": "class P(P):\n    def MeetRequirements(self, match):\n        {change}\n        return True\nREG_FUSION_PASS(P)\n",
    "in Replacement, and fails": "class P(P):\n    def Replacement(self, match):\n        {change}\n        1 / 0\nREG_FUSION_PASS(P)\n",
    "in Run": "@REG_FUSION_PASS\nclass R(FusionBasePass):\n    def Run(self, graph, context):\n        {change}\n",
    "in a stage hook": "@hookimpl\ndef gehost_before_infershape():\n    {change}\n",
    "in a looking hook": "@hookimpl\ndef gehost_compile_started():\n    {change}\n",
    "in a registering hook": "@hookimpl\ndef gehost_register_ops():\n    {change}\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES)
def test_what_vendor_code_changes_is_put_back(
    vendors: Any, gehost_run: Any, change: str, place: str
) -> None:
    code, look = CHANGES[change]
    vendors.write(
        "acme/bad.py",
        vendors.swap("P", "Relu", "Abs", registration=""),
        PLACES[place].format(change=code),
    )
    vendors.write("zeta/good.py", vendors.swap("Good", "Neg", "Sigmoid"))
    before = look()
    actual, out, err = gehost_run(
        "compile", "m.onnx", "-o", "out.onnx", "--keep-going", "--dump", "dumps"
    )
    went_on = "problem:" in out
    assert actual in ((4, 5) if went_on else (0,))
    assert err.count("out.onnx is written; kept going after: ") == went_on
    assert "out.onnx: 2 nodes before" in out
    assert look() == before
    assert len(os.listdir("dumps")) == 6, (
        "a relative name means the same directory from first to last"
    )
    assert onnx.load("out.onnx").graph.node[-1].op_type == "Sigmoid", "passes after it run as ever"


def test_one_pass_does_not_see_what_another_one_changed(vendors: Any, gehost_run: Any) -> None:
    line = "import os, random; print(os.path.basename(os.getcwd()), random.random()); os.chdir('/'); random.seed(0)"
    for name in "ab":
        code = f"@REG_FUSION_PASS\nclass {name.upper()}(FusionBasePass):\n    def Run(self, graph, context):\n        {line}\n"
        vendors.write(f"acme/{name}.py", code)
    _, _, err = gehost_run("compile", "m.onnx", "-o", "out.onnx")
    first, second = err.splitlines()
    assert first == second


# -- what is printed ------------------------------------------------------------------------------------------------

PRINTS = {
    "print": "print('printed')",
    "stderr": "import sys; print('printed', file=sys.stderr)",
    "the stream of the process": "import sys; print('printed', file=sys.__stdout__)",
    "the descriptor": "import os; os.write(1, b'printed\\n')",
    "a child": "import subprocess; subprocess.run(['echo', 'printed'], check=True)",
    "the descriptor, opened anew": "open('/dev/stdout', 'w').write('printed\\n')",
}


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gehost", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_what_vendor_code_prints_goes_to_stderr_however_it_prints(vendors: Any) -> None:
    change = "; ".join(code.replace("printed", how) for how, code in PRINTS.items())
    in_a_pass = f"@REG_FUSION_PASS\nclass R(FusionBasePass):\n    def Run(self, graph, context):\n        {change}\n"
    vendors.write("acme/a.py", f"{change}\n", in_a_pass)
    result = process("passes", "--json")
    entries = [entry for entry in json.loads(result.stdout) if entry["vendor"] != "linalg"]
    assert [entry["name"] for entry in entries] == ["R"]
    assert sorted(result.stderr.splitlines()) == sorted(PRINTS)
    result = process("compile", "m.onnx", "-o", "out.onnx")
    assert (result.returncode, [how for how in PRINTS if f"{how}\n" in result.stdout]) == (0, [])
    assert sorted(result.stderr.splitlines()) == sorted([*PRINTS, *PRINTS])


@pytest.mark.parametrize(
    "change",
    [
        "import sys; sys.stdout.close()",
        "import sys; sys.stderr.close()",
        "import os; os.close(1); os.close(2)",
        "exit()",
    ],
)
def test_streams_that_vendor_code_closed_still_tell_what_went_wrong(
    vendors: Any, change: str
) -> None:
    file = vendors.write("acme/a.py", f"{change}\n", "1 / 0\n")
    result = process("compile", "m.onnx", "-o", "out.onnx")
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (4, "", 1)
    assert result.stderr.startswith(f"gehost: {file}:")
    result = process("compile", "m.onnx", "-o", "out.onnx", "--keep-going")
    assert (result.returncode, result.stderr.count("kept going after: ")) == (4, 1)
    assert "problem:" in result.stdout


def test_a_thread_and_an_exit_handler_that_fail_do_not_change_the_outcome(vendors: Any) -> None:
    code = "import atexit, threading\natexit.register(lambda: 1 / 0)\nthreading.Thread(target=lambda: 1 / 0).start()\n"
    vendors.write("acme/a.py", code, vendors.swap("P", "Relu", "Abs"))
    result = process("compile", "m.onnx", "-o", "out.onnx")
    assert result.returncode == 0
    assert [node.op_type for node in onnx.load("out.onnx").graph.node] == ["Abs", "Neg"]
