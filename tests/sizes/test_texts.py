"""Texts of sizes: printed ones read back, PyTorch's are read, others are one name."""

from __future__ import annotations

import random

import pytest

from gehost.sizes import Scope, Size

from .questions import built, expression, scope_of_names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("past + seq", "past + seq"),
        ("seq+past", "past + seq"),
        ("2*(seq + 1)", "2*seq + 2"),
        ("Max(0, seq - 4)", "max(0, seq - 4)"),
        ("Min(past, Mod(seq, 8))", "min(-8*(seq // 8) + seq, past)"),
        ("floor(seq/2 + 1/2)", "ceildiv(seq, 2)"),
        ("floor((seq - 1)/2) + 1", "ceildiv(seq, 2)"),
        ("((seq - 3)//4)", "(seq - 3) // 4"),
        ("ceildiv(seq, past)*past", "ceildiv(seq, past)*past"),
        ("2*(seq/2)", "seq"),
        ("seq**2", "seq*seq"),
        ("broadcast(past, seq)", "broadcast(past, seq)"),
        ("either(past, seq)", "either(past, seq)"),
        ('"batch-size"*2 + 1', '2*"batch-size" + 1'),
        ("7", "7"),
    ],
)
def test_expressions_of_known_names(text: str, expected: str) -> None:
    scope = Scope()
    for name in ("past", "seq", "batch-size"):
        scope.symbol(name)
    assert str(scope.parse(text)) == expected
    assert text.isdecimal() or len(scope.symbols()) == 3


@pytest.mark.parametrize(
    "text",
    [
        "batch-size", "past + other", "seq / 2", "seq //", "(seq", "seq)", "f(seq)", "seq // 0",
        "seq seq", "", " ", "2seq", "min()", "seq**9", "-(" * 99 + "seq" + ")" * 99, "seq + " * 999,
        "'seq'", "seq.", "\\", "seq;", "floor(seq, 2)", "-",
    ],
)  # fmt: skip
def test_other_texts_are_one_name(text: str) -> None:
    scope = Scope()
    scope.symbol("past")
    scope.symbol("seq")
    size = scope.parse(text)
    assert size is scope.symbol(text)
    assert str(size) == text


def test_a_printed_text_reads_as_the_same_object() -> None:
    r, scope = random.Random(5), scope_of_names()
    for _ in range(300):
        size = built(scope, expression(r, 2))
        assert size is scope.parse(str(size)) or isinstance(size, int)


def test_another_scope_reads_equal_texts_mostly_as_equal_sizes() -> None:
    r, same, all_of = random.Random(6), 0, 0
    for _ in range(300):
        scope, other = scope_of_names(), scope_of_names()
        for name in "bstwn":
            other.symbol(name)
        e = expression(r, 2)
        size, expected = built(scope, e), built(other, e)
        if isinstance(size, Size) and "?" not in str(size):
            all_of += 1
            same += other.parse(str(size)) is expected
    assert same >= 0.95 * all_of > 100


def test_one_text_is_not_two_sizes() -> None:
    scope = Scope()
    odd = scope.parse("s // 2")
    size = scope.symbol("s") // 2
    assert str(odd) == "s // 2"
    assert str(size).startswith("?")
    assert scope.parse(str(size)) is size


def test_names_of_the_model_and_invented_ones_differ() -> None:
    scope = Scope()
    of_model = scope.symbol("?1")
    assert str(scope.keyed("a")) != str(of_model)
    assert scope.parse(f"{scope.keyed('a')} + 1") is scope.keyed("a") + 1


@pytest.mark.parametrize(
    "text",
    [
        "min(" * 20 + "v0" + "".join(f", v{i % 8}*v{(i + 3) % 8} - v{i % 7})" for i in range(20)),
        "v0" + "".join(f" // v{i % 8} + v{(i + 5) % 8}" for i in range(60)),
        " + ".join(f"min(v{i % 8}, v{(i + 1) % 8}*{i + 1})" for i in range(40)),
        "*".join(f"min(v{i % 8}, v{(i + 1) % 8}*{i + 1})" for i in range(20)),
        f"({' + '.join(f'min(v{i}, v{(i + 1) % 8}*{i + 2})' for i in range(8))}) // (v0 + 1)",
        f"min({', '.join(f'max(v{i}, v{(i + 1) % 8}*{i + 2}, 7)' for i in range(8))}) // 3",
    ],
    ids=["nested minima", "quotients", "a sum", "a product", "a quotient of minima", "maxima"],
)
def test_a_construction_takes_a_counted_number_of_steps(text: str) -> None:
    scope = Scope()
    scope.declare([f"v{i}" for i in range(8)])
    size = scope.parse(text)
    assert scope.parse(str(size)) is size
    assert scope.steps <= 4096


def test_a_long_text_is_an_invented_name() -> None:
    scope = Scope()
    size = scope.symbol("a" * 300) + 1
    assert str(size) == "?1"
    assert scope.parse("?1") is size


@pytest.mark.parametrize("text", ["3", "2*3", "max(2, 3)", "-1"])
def test_a_name_of_digits_is_no_number(text: str) -> None:
    size = Scope().parse(text)
    assert isinstance(size, Size)
    assert str(size) == text
