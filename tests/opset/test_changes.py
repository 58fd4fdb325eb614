"""The table of changes: complete by ONNX's schemas, and right on one-node models."""

from __future__ import annotations

import itertools
import random
import re
import zlib
from collections.abc import Iterator

import pytest

from gehost.ir.schemas import history, operator_names
from gehost.opset.changes import CHANGES
from tools.opset.cases import CHANGED
from tools.opset.grid import NEWEST, outcome

AS_BEFORE = """
    ArgMax 12 select_last_index, ArgMin 12 select_last_index, Attention 25 left_window_size, Attention 25 right_window_size,
    AveragePool 7 count_include_pad, AveragePool 10 ceil_mode, BatchNormalization 14 training_mode, Cast 19 saturate,
    Cast 24 round_mode, CastLike 19 saturate, CastLike 24 round_mode, DepthToSpace 11 mode, DequantizeLinear 13 axis,
    DequantizeLinear 21 block_size, DequantizeLinear 23 output_dtype, GRU 3 linear_before_reset, GRU 14 layout, GatherND 12 batch_dims,
    GroupNormalization 21 stash_type, LSTM 14 layout, LpPool 18 ceil_mode, MaxPool 8 storage_order, MaxPool 10 ceil_mode,
    QuantizeLinear 13 axis, QuantizeLinear 19 saturate, QuantizeLinear 21 block_size, QuantizeLinear 21 output_dtype,
    QuantizeLinear 23 precision, RNN 14 layout, Range 27 stash_type, ReduceL1 18 noop_with_empty_axes, ReduceL2 18 noop_with_empty_axes,
    ReduceLogSum 18 noop_with_empty_axes, ReduceLogSumExp 18 noop_with_empty_axes, ReduceMax 18 noop_with_empty_axes,
    ReduceMean 18 noop_with_empty_axes, ReduceMin 18 noop_with_empty_axes, ReduceProd 18 noop_with_empty_axes,
    ReduceSum 13 noop_with_empty_axes, ReduceSumSquare 18 noop_with_empty_axes, Reshape 14 allowzero, Resize 11 cubic_coeff_a,
    Resize 11 exclude_outside, Resize 11 extrapolation_value, Resize 18 antialias, Resize 18 keep_aspect_ratio_policy,
    ScatterElements 16 reduction, ScatterND 16 reduction, Shape 15 start, SpaceToDepth 28 mode, TopK 11 largest, TopK 11 sorted
"""
"""New attributes whose defaults are what the operator did before."""


def differences() -> Iterator[tuple[str, int, str]]:
    """What a node of one opset could mean otherwise at a newer one: operator, opset, attribute or input."""
    for op in sorted(operator_names()):
        versions = history("", op)
        for old, new in itertools.pairwise(versions):
            for name in old.attributes.keys() | new.attributes.keys():
                one, other = (
                    None
                    if name not in value.attributes
                    else value.attributes[name].default_value.SerializeToString()
                    for value in (old, new)
                )
                if (
                    other is None
                    or (one != other and other)
                    or new.attributes[name].required
                    > (name in old.attributes and old.attributes[name].required)
                ):
                    yield op, new.since_version, name
            kinds = [[value.option for value in schema.inputs] for schema in (old, new)]
            if new.min_input != old.min_input or kinds[0] != kinds[1][: len(kinds[0])]:
                yield op, new.since_version, "inputs"
            if new.max_output < old.max_output:
                yield op, new.since_version, "outputs"
            if new.deprecated:
                yield op, new.since_version, "deprecated"


def test_every_difference_of_the_schemas_has_an_entry() -> None:
    as_before = {tuple(entry.split()) for entry in AS_BEFORE.split(",")}
    missing = {
        (op, str(opset), what)
        for op, opset, what in differences()
        if (op, opset) not in CHANGES and (op, str(opset), what) not in as_before
    }
    optional = {
        (op, str(opset), "inputs")
        for op, opset in (("Gemm", 11), ("Loop", 11), ("OptionalHasElement", 18))
    }
    assert missing - optional == set()


def test_entries_are_of_opsets_at_which_their_operators_changed() -> None:
    assert [
        (op, opset)
        for op, opset in CHANGES
        if all(schema.since_version != opset for schema in history("", op))
    ] == []


OPERATORS = sorted(
    {case.body.partition("= ")[2].partition("(")[0].partition("<")[0] for case in CHANGED}
)


@pytest.mark.parametrize("op", OPERATORS)
def test_a_share_of_the_grid(op: str) -> None:
    """All of it: ``python -m tools.opset``."""
    draw = random.Random(zlib.crc32(op.encode()))
    cases = [case for case in CHANGED if re.search(rf"\b{op}\b", case.body)]
    for case in draw.sample(cases, min(3, len(cases))):
        name, opset, model = draw.choice([item for item in case.models() if item[1] < NEWEST])
        targets = [item for item in (13, 18, 20, 21, 23) if item > opset]
        for target in (*targets[:1], NEWEST):
            actual = outcome(model, target)
            assert not actual.startswith("WRONG"), (name, opset, target, actual)
