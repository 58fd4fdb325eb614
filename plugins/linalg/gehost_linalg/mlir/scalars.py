"""Assembly of scalar operations, in payloads and outside of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from gehost_linalg.mlir.types import TypeReader
from gehost_linalg.operations import OPERATIONS, PREDICATES, ROUNDINGS, Operation, casts, takes
from gehost_mlir.source import OPERATION

T = TypeVar("T")

_ELEMENT = re.compile(r"(tensor<(?:\*x|(?:(?:[0-9]+|\?)x)*))(.*)>")
_COMPARED = {
    "arith.cmpf": (
        "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord",
        "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
    ),
    "arith.cmpi": ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"),
}  # fmt: skip
"""Predicates by their numbers in the generic form."""
_FLAG = re.compile(r"(?:none|fast|reassoc|nnan|ninf|nsz|arcp|contract|afn|nsw|nuw)\b")
_BEFORE = {"rounding": "|".join(ROUNDINGS), "exact": "exact", "nneg": "nneg"}


class Scalar(NamedTuple, Generic[T]):
    """A scalar operation as it is written.

    Attributes:
        operands: what ``use`` returned for them.
        results: the texts of their types.
        attribute: the predicate of a comparison.
        flags: in MLIR's order, with one blank between them.
    """

    operands: list[T]
    results: list[str]
    attribute: str | None
    flags: str


def read_scalar(
    reader: TypeReader, name: str, at: int, use: Callable[[], tuple[T, str]]
) -> Scalar[T]:
    """Read what stands behind the name of an operation of the table.

    ``use`` reads an operand, and returns it with the text of its type.
    """
    operation = OPERATIONS[name]
    predicate = _predicate(reader, name) if operation.form == "compare" else None
    operands = [use()]
    if operation.form == "clamp":
        reader.expect("to")
        operands += reader.listed("[", "]", use)
    for _ in range(operation.operands - len(operands)):
        reader.expect(",")
        operands.append(use())
    flags = _flags(reader, operation)
    if reader.peek("{"):
        reader.dictionary()
    reader.expect(":")
    operand_types, results = _types(reader, operation)
    _check(reader, name, at, [item for _, item in operands], operand_types, results)
    return Scalar([item for item, _ in operands], results, predicate, flags)


def scalar_of_parts(
    reader: TypeReader,
    name: str,
    at: int,
    operands: Sequence[tuple[T, str]],
    attributes: Mapping[str, str],
    results: list[str],
) -> Scalar[T]:
    """The operation of a generic form."""
    operation = OPERATIONS[name]
    predicate = None
    if operation.form == "compare":
        number = attributes.get("predicate", "-1").partition(" ")[0]
        entry = _COMPARED[name]
        if not number.isdecimal() or int(number) >= len(entry):
            raise reader.error(f"{name} has no predicate {number}", at)
        predicate = entry[int(number)]
    if len(operands) != operation.operands or len(results) != operation.results:
        raise reader.error(
            f"{name} has {operation.operands} operands and {operation.results} results", at
        )
    arguments = [item for _, item in operands]
    expected = [arguments[0]] * len(arguments)
    if operation.form == "select":
        expected = [arguments[0], arguments[1], arguments[1]]
    elif operation.form in {"power", "scale"}:
        expected = arguments
    _check(reader, name, at, arguments, expected, results)
    return Scalar([item for item, _ in operands], results, predicate, flags_of(attributes))


def scalar_text(
    name: str,
    operands: Sequence[str],
    types: Sequence[str],
    results: Sequence[str],
    attribute: object,
    flags: str,
) -> str:
    """An operation of the table, without its results."""
    form = OPERATIONS[name].form
    listing = ", ".join(operands)
    kind = types[0]
    if form == "compare":
        listing = f"{attribute}, {listing}"
    elif form == "clamp":
        listing = f"{operands[0]} to [{', '.join(operands[1:])}]"
    elif form == "select":
        kind = results[0] if types[0] == "i1" else f"{types[0]}, {results[0]}"
    elif form == "cast":
        kind = f"{types[0]} to {results[0]}"
    elif form == "scale":
        kind = f"{types[0]}, {types[1]} to {results[0]}"
    elif form == "power":
        kind = f"{types[0]}, {types[1]}"
    elif form == "overflow":
        kind = f"{types[0]}, {results[1]}"
    return f"{name} {listing}{f' {flags}' if flags else ''} : {kind}"


def element_of(type_text: str) -> str:
    """The element type of a tensor's type, or the scalar type itself."""
    match = _ELEMENT.fullmatch(type_text)
    return match[2] if match else type_text


def _with_element(type_text: str, element: str) -> str:
    match = _ELEMENT.fullmatch(type_text)
    return f"{match[1]}{element}>" if match else element


def _predicate(reader: TypeReader, name: str) -> str:
    start = reader.skip()
    predicate = reader.take(OPERATION, "a predicate")
    if predicate not in PREDICATES[name]:
        entry = ", ".join(sorted(PREDICATES[name]))
        raise reader.error(f"{name} has the predicates {entry}", start)
    reader.expect(",")
    return predicate


def _flags(reader: TypeReader, operation: Operation) -> str:
    results: list[str] = []
    for flag in operation.flags:
        if flag in _BEFORE:
            word = next(filter(reader.accept, _BEFORE[flag].split("|")), None)
            results += [word] if word else []
        elif reader.accept(flag):
            reader.expect("<")
            words = [reader.take(_FLAG, "a flag")]
            while reader.accept(","):
                words.append(reader.take(_FLAG, "a flag"))
            reader.expect(">")
            results += [] if words == ["none"] else [_flag(flag, words)]
    return " ".join(results)


def _flag(name: str, words: Sequence[str]) -> str:
    return f"{name}<{(',' if name == 'fastmath' else ', ').join(words)}>"


def flags_of(attributes: Mapping[str, str]) -> str:
    """The flags of a generic form, as the other form writes them."""
    results: list[str] = []
    if "roundingmode" in attributes:
        results.append(ROUNDINGS[int(attributes["roundingmode"].partition(" ")[0])])
    for attribute, flag in (("fastmath", "fastmath"), ("overflowFlags", "overflow")):
        words = _FLAG.findall(attributes.get(attribute, "").partition("<")[2])
        if words not in ([], ["none"]):
            results.append(_flag(flag, words))
    results += [
        word for name, word in (("isExact", "exact"), ("nonNeg", "nneg")) if name in attributes
    ]
    return " ".join(results)


def _types(reader: TypeReader, operation: Operation) -> tuple[list[str], list[str]]:
    """The types of operands and of results."""

    def read() -> str:
        return reader.type("").type_text

    first = read()
    operand_types = [first] * operation.operands
    if operation.form in {"compare", "test"}:
        return operand_types, [_with_element(first, "i1")]
    if operation.form == "select":
        condition, kind = (first, read()) if reader.accept(",") else ("i1", first)
        return [condition, kind, kind], [kind]
    if operation.form in {"scale", "power", "overflow"}:
        reader.expect(",")
        second = read()
        if operation.form == "overflow":
            return operand_types, [first, second]
        operand_types = [first, second]
    if operation.form in {"cast", "scale"}:
        reader.expect("to")
        return operand_types, [read()]
    return operand_types, [first] * operation.results


def _check(
    reader: TypeReader,
    name: str,
    at: int,
    arguments: Sequence[str],
    expected: Sequence[str],
    results: Sequence[str],
) -> None:
    if list(arguments) != list(expected):
        raise reader.error(f"{name} of {', '.join(arguments)}, its type is {expected[-1]}", at)
    source, target = element_of(arguments[0]), element_of(results[0])
    form = OPERATIONS[name].form
    if form in {"cast", "scale"}:
        if not casts(name, source, target):
            raise reader.error(f"{name} does not take {source} to {target}", at)
    elif form != "select" and not takes(name, source):
        raise reader.error(f"{name} does not compute with {source}", at)
