"""Exit codes, and how errors are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost import errors
from gehost.errors import GehostError, deepest_line, described, one_line

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
        "VendorError": 4,
        "PatternError": 4,
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
    assert deepest_line(error, HERE) == f"{HERE}:{line}"
    assert deepest_line(error, str(Path(HERE).parent)) == f"{HERE}:{line}"
    assert deepest_line(error, str(Path(HERE).parent)[:-1]) == "", (
        "the name of a directory is no prefix"
    )
    assert deepest_line(error, "/elsewhere") == ""


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
