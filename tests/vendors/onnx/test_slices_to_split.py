"""Slices that cut a tensor into its parts become one Split; others stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from gehost import Host, HostOptions
from gehost.testing import assert_equal_numbers, parse

NUMBERS = """int64[1] m9 = {-9}, int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] m2 = {-2},
    int64[1] four = {4}, int64[1] six = {6}, int64[1] large = {9223372036854775807}"""


@pytest.fixture(scope="module")
def host(alone: Path) -> Host:
    options = HostOptions(vendors=[alone], plugins=False, enable=["SlicesToSplitPass"])
    return Host(options)


def ops(host: Host, lines: str, outputs: str, opset: int = 17) -> list[str]:
    model = parse(
        f"""<ir_version: 10, opset_import: ["": {opset}]>
        g (float[N, 6] x, float[N, M] open) => ({outputs}) <{NUMBERS}> {{ {lines} }}"""
    )
    result, _ = host.run(model)
    assert_equal_numbers(model, result)
    return [node.op_type for node in result.graph.node]


@pytest.mark.parametrize(
    "lines",
    [
        "y = Slice (x, zero, four, one) z = Slice (x, four, six, one)",
        "z = Slice (x, four, large, one, one) y = Slice (x, m9, four, one)",
        "z = Slice (x, m2, large, one) y = Slice (x, zero, m2, one)",
    ],
)
def test_parts_are_split(host: Host, lines: str) -> None:
    assert ops(host, lines, "float[N, 4] y, float[N, 2] z") == ["Split"]


def test_three_parts_that_something_reads(host: Host) -> None:
    lines = """a = Slice (x, two, four, one) b = Slice (x, zero, two, one)
        c = Slice (x, four, six, one) ab = Sub (a, b) y = Sub (ab, c)"""
    assert ops(host, lines, "float[N, 2] y") == ["Split", "Sub", "Sub"]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ("y = Slice (x, zero, two, one) z = Slice (x, four, six, one)", "float[N, 2] y, float[N, 2] z"),
        ("y = Slice (x, zero, four, one) z = Slice (x, two, six, one)", "float[N, 4] y, float[N, 4] z"),
        ("y = Slice (x, zero, six, one, two) z = Slice (x, one, six, one, two)", "float[N, 3] y, float[N, 3] z"),
        ("y = Slice (open, zero, four, one) z = Slice (open, four, six, one)", "float[N, A] y, float[N, B] z"),
        ("y = Slice (x, zero, one, zero) z = Slice (x, one, large, zero)", "float[A, 6] y, float[B, 6] z"),
    ],
)  # fmt: skip
def test_other_slices_stay(host: Host, lines: str, outputs: str) -> None:
    assert ops(host, lines, outputs) == ["Slice", "Slice"]


def test_below_opset_13_they_stay(host: Host) -> None:
    lines = "y = Slice (x, zero, four, one) z = Slice (x, four, six, one)"
    assert ops(host, lines, "float[N, 4] y, float[N, 2] z", opset=11) == ["Slice", "Slice"]
