"""Exit codes, and how errors are told."""

from __future__ import annotations

import errno
import pickle
import sys
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError, EncodeError

from gehost import errors
from gehost.errors import (
    GehostError,
    ModelError,
    NumbersDifferError,
    PassError,
    PluginError,
    VendorError,
    deepest_line,
    described,
    one_line,
    outcome,
)
from gehost.location import SourceLocation

HERE = __file__


def fail() -> None:
    Path("/nowhere/at/all").read_text()


def caught() -> BaseException:
    try:
        fail()
    except OSError as error:
        return error
    raise AssertionError


def test_every_error_has_the_exit_code_that_the_tree_draws() -> None:
    actual = {
        name: error.exit_code
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, GehostError)
    }
    assert actual == {
        "GehostError": 1,
        "UsageError": 2,
        "OutputError": 2,
        "ModelError": 3,
        "UnsupportedModelError": 3,
        "VendorError": 4,
        "PatternError": 4,
        "PluginError": 4,
        "PassError": 5,
        "NumbersDifferError": 6,
    }
    for name, code in actual.items():
        assert any(
            name in line.split() and str(code) in line.split()
            for line in (errors.__doc__ or "").splitlines()
        )


def test_the_deepest_line_is_that_in_a_file_or_below_a_directory() -> None:
    error, line = caught(), fail.__code__.co_firstlineno + 1
    assert deepest_line(error, HERE) == SourceLocation(HERE, line)
    assert deepest_line(error, str(Path(HERE).parent)) == SourceLocation(HERE, line)
    assert deepest_line(error, str(Path(HERE).parent)[:-1]) is None, (
        "the name of a directory is no prefix"
    )
    assert deepest_line(error, "/elsewhere") is None


def test_an_error_is_put_together_from_its_parts() -> None:
    at = SourceLocation("v/p.py", 7)
    error = VendorError("wanted 2, got 3", where=at, subject="input 0", hint="give 2")
    assert str(error) == "v/p.py:7: input 0: wanted 2, got 3; give 2"
    assert error.rendered(at) == "input 0: wanted 2, got 3; give 2"
    assert (error.message, error.where, error.subject, error.hint) == (
        "wanted 2, got 3",
        at,
        "input 0",
        "give 2",
    )
    assert str(VendorError("all of it")) == "all of it"
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.where) == (str(error), at)


def test_the_error_of_a_pass_or_plugin_begins_with_its_name() -> None:
    at = SourceLocation("v/p.py", 7)
    assert str(PluginError("no", where=at, subject="plugin p")) == "plugin p (v/p.py:7): no"
    assert str(PassError("Run: no", where=at, subject="P")) == "P (v/p.py:7): Run: no"
    assert described(PassError("no", where=at), context="v/p.py:7") == "no"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GehostError("as it is"), "as it is"),
        (ValueError("x"), "ValueError: x"),
        (ValueError(), "ValueError"),
        (SystemExit(0), "SystemExit: 0"),
        (
            TypeError("gehost.ir.node.Value or None object expected; got str"),
            "TypeError: wanted Value or None, got str",
        ),
    ],
)
def test_errors_of_others_are_told_with_their_type(error: BaseException, message: str) -> None:
    assert described(error) == message


def test_one_line_keeps_letters_and_spells_out_controls() -> None:
    assert one_line(" a\n b\t\x1b[31mé\udcff\u202e ") == "a b \\x1b[31mé\\udcff\\u202e"


NO_FILES = OSError(errno.EMFILE, "Too many open files", "f")
LOADER = ImportError("libx.so: failed to map segment from shared object")
RUNTIME = RuntimeError(
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Load model from m failed:std::bad_alloc"
)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "not enough memory: MemoryError"),
        (LOADER, "not enough memory: ImportError: libx.so: failed to map segment from shared object"),
        (NO_FILES, "not enough file descriptors: OSError: [Errno 24] Too many open files: 'f'"),
        (OSError(errno.ENFILE, "Too many open files in system"), "not enough file descriptors: "),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory: OSError"),
        (OSError(errno.ENOSPC, "No space left on device"), "not enough space on disk: OSError"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily"), "not enough processes: Block"),
        (RuntimeError("can't start new thread"), "not enough threads: RuntimeError"),
        (DecodeError("Error parsing message with type 'onnx.ModelProto': Arena alloc failed"), "not enough memory: "),
        (ImportError("libpython3.so: cannot open shared object file: Error 24"), "not enough file d"),
    ],
    ids=lambda case: type(case).__name__ if isinstance(case, Exception) else "",
)  # fmt: skip
def test_what_the_machine_lacks_is_no_internal_error(error: Exception, line: str) -> None:
    code, text = outcome(error)
    assert (code, text.startswith(line)) == (2, True), text


@pytest.mark.parametrize("room", [False, True])
def test_what_protobuf_cannot_write_is_too_large_or_there_is_no_memory(
    room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_LARGEST_MESSAGE", 100 if room else sys.maxsize)
    error = EncodeError("Failed to serialize proto")
    failed = ModelError("it is too large")
    failed.__cause__ = error
    actual = [outcome(error)[0], outcome(failed)]
    assert actual == (
        [1, (3, "it is too large")] if room else [2, (2, "not enough memory: it is too large")]
    )


@pytest.mark.parametrize("cause", [MemoryError(), LOADER, RUNTIME, NO_FILES], ids=repr)
@pytest.mark.parametrize("error", [ModelError, PluginError, VendorError, NumbersDifferError])
def test_nobody_is_blamed_for_what_the_machine_lacks(
    error: type[GehostError], cause: Exception
) -> None:
    failed = error("it failed", where="m.onnx")
    failed.__cause__ = cause
    code, text = outcome(failed)
    assert code == 2
    assert text.startswith("not enough ")
    assert text.endswith(": m.onnx: it failed")


@pytest.mark.parametrize(
    "error", [KeyError("x"), OSError(errno.EIO, "Input/output error"), ValueError("bad_alloc of x")]
)  # fmt: skip
def test_other_errors_stay_internal(error: Exception) -> None:
    assert outcome(error) == (1, f"internal error: {described(error)}")
    failed = ModelError("it failed")
    failed.__cause__ = error
    assert outcome(failed) == (3, "it failed")
