"""Attributes of StableHLO's operations: numbers, words, fields of structures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gehost_mlir.attributes import integers as numbers_of
from gehost_mlir.operations import Operation
from gehost_mlir.source import balanced

_ENUM = re.compile(r"#\w+<\s*\w+\s+(\w+)\s*>")
_DENSE = re.compile(r"dense<(.*)>\s*:\s*tensor<([0-9x]*)x\w+>", re.DOTALL)


def attribute(o: Operation, *names: str, default: str | None = None) -> str:
    """The text of the first of these attributes that is there.

    Raises:
        ValueError: none is, and there is no default.
    """
    for name in names:
        if name in o.attributes:
            return o.attributes[name]
    if default is None:
        raise ValueError(f"{names[-1]} is missing")
    return default


def integers(text: str) -> list[int]:
    """The numbers of ``array<i64: 1, 2>``, ``[1, 2]``, ``dense<[1, 2]> : …`` or ``2 : i64``."""
    match = _DENSE.fullmatch(text.strip())
    if match is None:
        return numbers_of(text)
    numbers = [int(item) for item in re.findall("-?[0-9]+", match[1])]
    count = 1
    for size in match[2].split("x"):
        count *= int(size)
    return numbers * count if len(numbers) == 1 else numbers


def pairs(text: str, count: int) -> list[tuple[int, int]]:
    """``[[1, 1], [0, 2]]`` or its dense form; one number stands for all."""
    numbers = integers(text)
    if len(numbers) == 1:
        numbers *= 2 * count
    return list(zip(numbers[::2], numbers[1::2], strict=False))


def word(text: str) -> str:
    """The word of ``#stablehlo<comparison_direction EQ>``, or the text."""
    match = _ENUM.fullmatch(text.strip())
    return text.strip() if match is None else match[1]


def field(structure: str, name: str) -> str:
    """The text of ``name = …`` in a structure; "" without it."""
    match = re.search(rf"(?<![\w.]){re.escape(name)}\s*=\s*", structure)
    if match is None:
        return ""
    inside = structure.rstrip()
    inside = inside[:-1] if inside.endswith((">", "}")) else inside
    return inside[match.end() : balanced(inside, match.end(), ",")].strip()


def braces(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def window_text(
    sizes: Sequence[int],
    *,
    strides: str = "",
    padding: str = "",
    base: str = "",
    dilation: str = "",
    reversal: str = "",
) -> str:
    """``{size=3x3 stride=2x2 pad=1_1x0_1 …}``."""
    rank = len(sizes)
    fields = {"size": "x".join(map(str, sizes))}
    for name, text in (("stride", strides), ("lhs_dilate", base), ("rhs_dilate", dilation)):
        if text:
            numbers = integers(text)
            fields[name] = "x".join(map(str, numbers * rank if len(numbers) == 1 else numbers))
    if padding:
        fields["pad"] = "x".join(f"{low}_{high}" for low, high in pairs(padding, rank))
    if "true" in reversal:
        flags = re.findall("true|false", reversal)
        fields["rhs_reversal"] = "x".join(str(int(flag == "true")) for flag in flags)
    return f"{{{' '.join(f'{name}={text}' for name, text in fields.items())}}}" if rank else ""


def groups(rows: Sequence[Sequence[int]]) -> str:
    """``{{0,1},{2,3}}``."""
    return f"{{{','.join(braces(row) for row in rows)}}}"
