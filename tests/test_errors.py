"""Exit codes, and how errors are told."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from gehost import errors
from gehost.errors import (
    GehostError,
    PassError,
    PluginError,
    VendorError,
    deepest_line,
    described,
    one_line,
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
    found = {
        name: error.exit_code
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, GehostError)
    }
    assert found == {
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
    for name, code in found.items():
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
    assert described(PassError("no", where=at), known="v/p.py:7") == "no"


@pytest.mark.parametrize(
    ("error", "told"),
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
def test_errors_of_others_are_told_with_their_type(error: BaseException, told: str) -> None:
    assert described(error) == told


def test_one_line_keeps_letters_and_spells_out_controls() -> None:
    assert one_line(" a\n b\t\x1b[31mé\udcff\u202e ") == "a b \\x1b[31mé\\udcff\\u202e"
