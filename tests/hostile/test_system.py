"""Disks that are full, files in the way, and signals: one line, the documented exit code, no half-written file."""

from __future__ import annotations

import errno
import io
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.cli import run
from gehost.cli.crash import run_in_child
from gehost.testing import parse
from tests.hostile.conftest import DEFAULT_VENDORS

COMPILE = ("compile", "m.onnx", "-o", "out.onnx")
OLD = b"what was there before"
pytestmark = pytest.mark.usefixtures("here")


def listed() -> list[str]:
    return sorted({*os.listdir()} - {"vendors"})


def started(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gehost", *arguments]
    return subprocess.Popen(
        command,
        **{
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "errors": "replace",
            **options,
        },
    )


def process(*arguments: Any, **options: Any) -> tuple[int, str, str]:
    with started(*arguments, **options) as child:
        out, err = child.communicate(timeout=120)
    return child.returncode, out, (err or "").replace(DEFAULT_VENDORS, "")


# -- disks ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def old() -> bytes:
    """An output of an earlier compile."""
    Path("out.onnx").write_bytes(OLD)
    return OLD


@pytest.mark.parametrize("options", [[], ["--dump", "dumps"], ["--report", "report.json"]])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize(
    ("module", "name"), [(os, "write"), (os, "fsync"), (os, "replace"), (io, "FileIO")]
)
def test_a_disk_that_fails(
    gehost_run: Any,
    monkeypatch: pytest.MonkeyPatch,
    old: bytes,
    module: Any,
    name: str,
    number: int,
    options: list[str],
) -> None:
    """Each file in its turn: dumps, the output, the report."""
    error, real = OSError(number, os.strerror(number)), getattr(module, name)
    rest = [{"--dump": 3, "--report": 1}[options[0]] if options else 0]

    def fail(*arguments: Any) -> Any:
        rest[0] -= 1
        if rest[0] < 0:
            raise error
        return real(*arguments)

    monkeypatch.setattr(module, name, fail)
    code, out, err = gehost_run(*COMPILE, *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("gehost: cannot write '")
    assert f"': {os.strerror(number)}; an existing file is unchanged" in err
    assert not [name for name in listed() if name.startswith(".")]
    if "--report" not in options:
        assert Path("out.onnx").read_bytes() == old


def test_a_file_that_may_not_grow(old: bytes) -> None:
    """A real limit of the system's, in the middle of the weights."""
    weights = {"w": np.arange(100_000, dtype=np.float32)}
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> main (float[1] x, float[100000] w) => (float[100000] y) { y = Add(x, w) }',
        weights,
    )
    onnx.save(model, "m.onnx")
    code, out, err = process(
        *COMPILE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # it would be truncated
    )
    assert (code, out, err) == (
        2,
        "",
        "gehost: cannot write 'out.onnx': File too large; an existing file is unchanged\n",
    )
    assert (listed(), Path("out.onnx").read_bytes()) == (["m.onnx", "out.onnx"], old)


# -- outputs that are none ------------------------------------------------------------------------------------------


def bound_socket() -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")


PLACES: dict[str, tuple[Callable[[], Any], str]] = {
    "directory": (lambda: os.mkdir("directory"), "it names a directory; name a file in it"),
    "new/": (lambda: None, "it names a directory; name a file in it"),
    "missing/out.onnx": (lambda: None, "there is no directory"),
    "m.onnx/out.onnx": (lambda: None, "Not a directory"),
    "fifo": (lambda: os.mkfifo("fifo"), "it is a device, a pipe or a socket; name a regular file"),
    "socket": (bound_socket, "it is a device, a pipe or a socket"),
    "/dev/null": (lambda: None, "it is a device, a pipe or a socket; name a regular file"),
    "/dev/full": (lambda: None, "it is a device, a pipe or a socket; name a regular file"),
    "/proc/self/out.onnx": (lambda: None, "No such file or directory"),
    "loop": (lambda: os.symlink("loop", "loop"), "Too many levels of symbolic links"),
    "dangling": (lambda: os.symlink("missing/out.onnx", "dangling"), "there is no directory"),
    "x" * 300: (lambda: None, "File name too long"),
    "x" * 254 + "/out.onnx": (lambda: None, "there is no directory"),
    "/".join(["d"] * 3000): (lambda: None, "File name too long"),
    "": (lambda: None, "it names a directory; name a file in it"),
    ".": (lambda: None, "it names a directory; name a file in it"),
}


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[:20])
def test_an_output_that_cannot_be_one(gehost_run: Any, place: str) -> None:
    make, message = PLACES[place]
    make()
    before = listed()
    code, out, err = gehost_run("compile", "m.onnx", "-o", place)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("gehost: cannot write '")
    assert (err.count("\n"), listed()) == (1, before)


@pytest.mark.parametrize(
    "other", ["m.onnx", "./m.onnx", "vendors/../m.onnx", "link.onnx", "hard.onnx"]
)
def test_the_output_may_be_the_input(gehost_run: Any, vendors: Any, other: str) -> None:
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs"))
    os.symlink("m.onnx", "link.onnx")
    os.link("m.onnx", "hard.onnx")
    assert gehost_run("compile", "m.onnx", "-o", other, "--vendors", vendors.root)[0] == 0
    assert [node.op_type for node in onnx.load(other).graph.node] == ["Abs", "Neg"]
    assert os.path.islink("link.onnx")
    assert listed() == ["hard.onnx", "link.onnx", "m.onnx"]
    assert [node.op_type for node in onnx.load("hard.onnx").graph.node] == [
        "Abs" if other == "hard.onnx" else "Relu",
        "Neg",
    ]


def test_a_compile_onto_its_input_that_fails_leaves_it(gehost_run: Any, vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs", meet="return 1 / 0"))
    before = Path("m.onnx").read_bytes()
    assert gehost_run("compile", "m.onnx", "-o", "m.onnx", "--vendors", vendors.root)[0] == 5
    assert (Path("m.onnx").read_bytes(), listed()) == (before, ["m.onnx"])


@pytest.mark.parametrize(
    ("dump", "message"),
    [
        ("m.onnx", "cannot make the directory for dumps: File exists"),
        ("m.onnx/dumps", "cannot make the directory for dumps: Not a directory"),
        ("/proc/dumps", "cannot make the directory for dumps: No such file or directory"),
        ("/proc/self", "cannot write '/proc/self/ge_onnx_00000000_graph_0_PreRunBegin.pbtxt'"),
        ("taken", "cannot remove the dump of an earlier compile: Is a directory"),
    ],
)
def test_dumps_that_cannot_be_written(gehost_run: Any, old: bytes, dump: str, message: str) -> None:
    os.makedirs("taken/ge_onnx_00000003_graph_0_RunCustomPassAfterBuiltinFusionPass.pbtxt")
    code, out, err = gehost_run(*COMPILE, "--dump", dump, "--keep-going")
    assert (code, out) == (2, "")
    assert message in err
    assert (err.count("\n"), Path("out.onnx").read_bytes()) == (1, old)
    assert listed() == ["m.onnx", "out.onnx", "taken"]


def test_dumps_go_where_dumps_are(gehost_run: Any) -> None:
    for _ in range(2):
        assert gehost_run(*COMPILE, "--dump", "new/dumps")[0] == 0
    assert len(os.listdir("new/dumps")) == 6


@pytest.mark.parametrize("level", ["7", "yes", "-1", "1.0", " 2"])
def test_a_level_of_dumps_that_there_is_not(
    gehost_run: Any, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("DUMP_GE_GRAPH", level)
    expected = f"gehost: DUMP_GE_GRAPH={level.strip()}: wanted 1 (with weights), 2 (without), 3 (structure only) or 0 (no dumps)\n"
    code, out, err = gehost_run(*COMPILE)
    assert (code, out, err.replace("= ", "=")) == (2, "", expected)
    assert listed() == ["m.onnx"]


# -- signals --------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from gehost.cli import run

def kill(real, left=[{at}]):
    def call(*arguments):
        left[0] -= 1
        try:
            if left[0] >= 0 or {after}:
                return real(*arguments)
        finally:
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    return call

os.{name} = kill(os.{name})
run(["compile", "{model}", "-o", "out.onnx"])
"""


def weighty(folder: str, value: float) -> Path:
    """A model that says which weights are its own."""
    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[1] x, float[2000] w) => (float[2000] y) { y = Add(x, w) }'
    proto = parse(text, {"w": np.full(2000, value, np.float32)})
    proto.doc_string = str(value)
    Path(folder).mkdir()
    path = Path(folder, "m.onnx").absolute()
    onnx.save(proto, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path


def whose_weights() -> float:
    """The weights of ``out.onnx``, which must be its own."""
    model = onnx.load("out.onnx")
    value = float(onnx.numpy_helper.to_array(model.graph.initializer[0])[0])
    assert model.doc_string == str(value)
    return value


# every call to the system that changes a file, and those around it
CALLS = [
    *((name, 0) for name in ("write", "fsync", "listdir", "unlink", "urandom", "copy_file_range")),
    ("fsync", 1), ("replace", 0), ("replace", 1), ("unlink", 1), ("listdir", 1), ("stat", 0),
]  # fmt: skip


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("name", "at"), CALLS)
def test_a_process_that_is_killed_while_it_saves_leaves_a_model_with_its_weights(
    tmp_path: Path, name: str, at: int, moment: str
) -> None:
    old, new = weighty("old", 1.0), weighty("new", 2.0)
    assert run(["compile", str(old), "-o", "out.onnx"]) == 0
    code = KILLED.format(name=name, at=at, model=new, after=moment == "after")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert whose_weights() in (1.0, 2.0)
    assert run(["compile", str(new), "-o", "out.onnx"]) == 0
    assert whose_weights() == 2.0
    data = [file for file in listed() if file.startswith("out.onnx.")]
    assert len(data) == 1
    assert not [file for file in listed() if file.endswith(".tmp")]


WAITS = """
import os, sys
from gehost.cli import run

def waiting(real):
    def call(old, new):
        if str(new).endswith("{at}"):
            print("here", file=sys.stderr, flush=True)
            sys.stdin.readline()
        return real(old, new)
    return call

os.replace = waiting(os.replace)
sys.exit(run(["compile", "{model}", "-o", "out.onnx"]))
"""


@pytest.mark.parametrize("at", [".data", "out.onnx"])
def test_two_processes_that_save_to_one_output_mix_nothing(tmp_path: Path, at: str) -> None:
    models = [weighty(str(value), value) for value in (1.0, 2.0)]
    assert run(["compile", str(models[0]), "-o", "out.onnx"]) == 0
    code = WAITS.format(at=at, model=models[1])
    slow = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert slow.stderr is not None
    assert slow.stdin is not None
    assert "here\n" in slow.stderr  # read up to there
    assert whose_weights() == 1.0
    other = subprocess.Popen(
        [sys.executable, "-m", "gehost", "compile", models[0], "-o", "out.onnx"],
        stdout=subprocess.DEVNULL,
    )
    slow.stdin.write("\n")
    slow.communicate()
    other.wait()
    assert (slow.returncode, other.returncode) == (0, 0)
    assert whose_weights() in (1.0, 2.0)
    assert len([file for file in listed() if file.startswith("out.onnx.")]) == 1


@contextmanager
def heard(number: signal.Signals) -> Generator[None]:
    """Let children that start meanwhile not ignore a signal, as those of a job in the background do."""
    old = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, old)


@contextmanager
def ended(child: subprocess.Popen[str]) -> Generator[None]:
    """See to it that a child ends, whatever becomes of the test."""
    try:
        yield
    finally:
        child.kill()


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
    ids=["INT", "TERM"],
)
@pytest.mark.parametrize("options", [[], ["--keep-going"]])
@pytest.mark.parametrize("place", ["at import", "in a pass", "in a hook"])
def test_a_signal_ends_the_compile_with_one_line(
    vendors: Any,
    old: bytes,
    number: signal.Signals,
    code: int,
    message: str,
    options: list[str],
    place: str,
) -> None:
    os.mkfifo("started")
    os.mkfifo("never")
    wait = "(print('here', file=open('started', 'w'), flush=True), open('never').read())"
    vendors.write(
        "acme/a.py",
        f"{wait}\n" if place == "at import" else "",
        f"@hookimpl\ndef gehost_stage_finished(): {wait}\n" if place == "in a hook" else "",
        vendors.swap("Slow", "Relu", "Abs", meet=f"return bool({wait})"),
    )
    reading = os.open("started", os.O_RDWR)  # so that opening it waits for nobody
    with (
        heard(signal.SIGINT),
        started(*COMPILE, "--vendors", vendors.root, *options) as child,
        ended(child),
    ):
        ready, _, _ = select.select(
            [reading, child.stderr], [], [], 60
        )  # a child that ends closes its stderr
        child.send_signal(number if reading in ready else signal.SIGKILL)
        out, err = child.communicate(timeout=60)
    os.close(reading)
    assert (child.returncode, out, err.strip()) == (code, "", f"gehost: {message}")
    assert (listed(), Path("out.onnx").read_bytes()) == (
        ["m.onnx", "never", "out.onnx", "started"],
        old,
    )


@pytest.mark.parametrize("options", [[], ["--keep-going"]])
@pytest.mark.parametrize(
    "code",
    [
        "raise KeyboardInterrupt\n",
        "@hookimpl\ndef gehost_register_ops(): raise KeyboardInterrupt\n",
        "@hookimpl\ndef gehost_compile_started(): raise KeyboardInterrupt\n",
        "@hookimpl\ndef gehost_before_infershape(): raise KeyboardInterrupt\n",
        "@REG_FUSION_PASS\nclass P(FusionBasePass):\n    def Run(self, graph, context): raise KeyboardInterrupt\n",
        "@REG_FUSION_PASS\nclass P(PatternFusionPass):\n    def Patterns(self): raise KeyboardInterrupt\n    def Replacement(self, match): pass\n",
    ],
)
def test_an_interrupt_that_vendor_code_raises_is_taken_for_ctrl_c(
    gehost_run: Any, vendors: Any, old: bytes, code: str, options: list[str]
) -> None:
    vendors.write("acme/a.py", code)
    actual, out, err = gehost_run(*COMPILE, "--vendors", vendors.root, *options)
    assert (actual, out, err.strip()) == (130, "", "gehost: interrupted")
    assert (listed(), Path("out.onnx").read_bytes()) == (["m.onnx", "out.onnx"], old)


def test_two_hosts_may_share_a_directory_of_dumps_and_an_output() -> None:
    arguments = (*COMPILE, "--dump", "dumps", "--dump-format", "onnx", "--dump-passes")
    with started(*arguments) as first, started(*arguments) as second:
        ends = [(child.communicate(timeout=120)[1], child.returncode) for child in (first, second)]
    assert ends == [(DEFAULT_VENDORS, 0), (DEFAULT_VENDORS, 0)]
    assert len(os.listdir("dumps")) == 6
    for path in (*Path("dumps").iterdir(), Path("out.onnx")):
        onnx.checker.check_model(onnx.load(path))


# -- what the machine lacks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [("show", "m.onnx"), ("verify", "m.onnx", "m.onnx")])
@pytest.mark.parametrize("megabytes", [40, 56])
def test_libraries_that_do_not_fit_into_memory(arguments: tuple[str, ...], megabytes: int) -> None:
    code, out, err = process(
        *arguments,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20,) * 2),
    )
    assert (code, out) == (2, ""), err
    assert err.startswith("gehost: not enough memory: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("number", [5, 6])
def test_a_limit_of_file_descriptors(number: int) -> None:
    code, _, err = process(
        *COMPILE,
        "--verify",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number)),
    )
    assert code in (0, 2), err
    assert code == 0 or "Too many open files" in err
    assert "internal error" not in err


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EAGAIN])
def test_without_a_process_for_it_the_command_runs_here(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fork", fork)
    assert run_in_child(lambda: 7) == 7


def test_a_file_that_memory_is_too_small_to_parse(
    gehost_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser has one error for both."""
    Path("bad.onnx").write_bytes(b"no model")
    assert gehost_run("show", "bad.onnx")[0] == 3
    monkeypatch.setattr("gehost.ir.model._PARSED", 1 << 50)
    code, _, err = gehost_run("show", "bad.onnx")
    assert (code, err) == (2, "gehost: not enough memory: MemoryError\n")
