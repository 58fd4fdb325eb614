"""Operators over all versions, and at one."""

from __future__ import annotations

import onnx
import pytest

from gehost.es import schemas
from gehost.ir.types import DataType

WANDERERS = [
    "Clip", "DFT", "Dropout", "Pad", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", "Reshape", "Slice", "Split", "Squeeze", "TopK", "Unsqueeze", "Upsample",
]  # fmt: skip


def test_the_operators_whose_parameters_wander_between_attribute_and_input():
    actual = {
        name
        for name in schemas.operator_names()
        if (declared := schemas.operator("", name)) is not None and declared.migrating
    }
    assert sorted(actual) == WANDERERS


def test_the_union_of_all_versions():
    pad = schemas.operator("", "Pad")
    assert pad is not None
    assert pad.inputs == ("data", "pads", "constant_value", "axes")
    assert pad.attributes == {"mode", "pads", "constant_value"}
    assert (pad.migrating, pad.vectors) == ({"pads", "constant_value"}, {"pads"})
    top = schemas.operator("", "TopK")
    assert top is not None
    assert (top.migrating, top.vectors, top.outputs, top.default_outputs) == (
        {"K"},
        {"K"},
        ("Values", "Indices"),
        2,
    )
    split = schemas.operator("", "Split")
    assert split is not None
    assert (split.variadic_outputs, split.max_outputs > 1000) == (True, True)
    assert schemas.operator("", "GEMM") is None
    assert schemas.operator("ge", "Relu") is None


def test_an_operator_at_one_opset():
    old, new = schemas.signature("", "ReduceMean", 13), schemas.signature("", "ReduceMean", 18)
    assert old is not None
    assert new is not None
    assert (old.inputs, old.migrating, old.attribute_of("axes"), old.attributes["keepdims"]) == (
        ("data",),
        frozenset(),
        "axes",
        1,
    )
    assert (new.inputs, new.migrating, new.attribute_of("axes"), new.required) == (
        ("data", "axes"),
        {"axes"},
        None,
        1,
    )
    assert new.parameters["axes"].dtypes == {DataType.INT64}
    pad = schemas.signature("", "Pad", 10)
    assert pad is not None
    assert (pad.attribute_of("constant_value"), pad.attribute_of("pads"), pad.needed) == (
        "value",
        "pads",
        {"pads"},
    )
    top = schemas.signature("", "TopK", 9)
    assert top is not None
    assert top.attribute_of("K") == "k"
    assert schemas.signature("", "Gelu", 19) is None
    assert schemas.signature("ge", "Gelu", 1) is None


def test_a_variadic_operator_takes_its_last_input_again():
    concat = schemas.signature("", "Concat", 13)
    assert concat is not None
    assert concat.parameter_at(0) is concat.parameter_at(7) is not None
    relu = schemas.signature("", "Relu", 13)
    assert relu is not None
    assert relu.parameter_at(1) is None
    split = schemas.signature("", "Split", 13)
    assert split is not None
    assert (split.variadic, split.variadic_outputs) == (False, True)


def test_kinds_and_defaults():
    gemm = schemas.signature("", "Gemm", 13)
    assert gemm is not None
    assert gemm.attributes == {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    assert gemm.kinds["alpha"] == onnx.AttributeProto.FLOAT
    pad = schemas.signature("", "Pad", 13)
    assert pad is not None
    assert pad.attributes == {"mode": "constant"}
    assert schemas.newest_default("", "Dropout", "ratio") == 0.5
    assert schemas.newest_default("", "Pad", "constant_value") == 0.0
    assert schemas.newest_default("", "ReduceMean", "axes") is None
    assert schemas.newest_default("ge", "GEMM", "alpha") is None


@pytest.mark.parametrize(("opset", "flattens"), [(12, True), (13, False)])
def test_softmax_flattens_below_13(opset, flattens):
    for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        actual = schemas.signature("", op_type, opset)
        assert actual is not None
        assert actual.flattens is flattens
    relu = schemas.signature("", "Relu", opset)
    assert relu is not None
    assert not relu.flattens


def test_the_operators_that_broadcast_from_an_opset_on():
    """Their newest schema describes broadcasting, an older one does not, or as an attribute."""
    actual: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        newest = schemas.schema_at("", schema.name, onnx.defs.onnx_opset_version())
        if schema.domain or newest is None or not broadcasts(newest):
            continue
        if not broadcasts(schema):
            later = actual.get(schema.name, 0)
            actual[schema.name] = max(later, schema.since_version)
    assert actual.pop("Tile") == 1  # compared with broadcasting in its text, does not broadcast
    assert actual.keys() == schemas.BROADCASTS_SINCE.keys()
    for name, last in actual.items():
        first = schemas.BROADCASTS_SINCE[name]
        (until, since) = (schemas.signature("", name, opset) for opset in (first - 1, first))
        assert last < first
        assert until is not None
        assert until.broadcasts_since == first
        assert since is not None
        assert since.broadcasts_since == 0
        schema = schemas.schema_at("", name, first)
        assert schema is not None
        assert schema.since_version == first


def broadcasts(schema: onnx.defs.OpSchema) -> bool:
    return "broadcast" in (schema.doc or "").lower() and "broadcast" not in schema.attributes


def test_negative_axes_count_from_the_rank_of_the_result():
    assert schemas.axes_rank("ReduceMean", 3, [-1, -2]) == 3
    assert schemas.axes_rank("Unsqueeze", 3, [-1, -2]) == 5
    assert schemas.axes_rank("Unsqueeze", 3, -1) == 4
    assert schemas.axes_rank("OneHot", 3, -1) == 4
