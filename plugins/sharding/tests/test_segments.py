"""Segments: levels by the largest number of collectives on a path."""

from __future__ import annotations

import numpy as np
import pytest

from gehost import ModelError
from gehost.testing import parse
from gehost_sharding.segments import SegmentedModel, cut

RANK = """<ir_version: 10, opset_import: ["" : 20, "gehost.collective" : 1]>
rank (float[2,4] x) => (float[4,4] z, float[2,4] y) {
    a = Neg (x)
    b = gehost.collective.AllGather <axis = 0, groups = [0, 1], group_size = 2> (a)
    late = Abs (x)
    c = Exp (b)
    d = gehost.collective.AllReduce <reduction = "sum", groups = [0, 1], group_size = 2> (c)
    z = Add (d, b)
    y = Add (late, a)
}"""


def test_a_node_runs_at_the_level_of_its_operands() -> None:
    segments = cut(parse_rank(), 2)
    assert [[node.op_type for node in segment.nodes] for segment in segments] == [
        ["Neg", "Abs", "Add"],
        ["Exp"],
        ["Add"],
    ]
    assert [len(segment.collectives) for segment in segments] == [1, 1, 0]
    assert [segment.inputs for segment in segments] == [["x"], ["b"], ["b", "d"]]
    assert [segment.outputs for segment in segments] == [["a", "y"], ["c"], ["z"]]


def parse_rank():
    import onnx.parser

    return onnx.parser.parse_model(RANK)


def test_it_runs_with_any_exchange() -> None:
    kinds: list[str] = []

    def alone(collective, value):
        kinds.append(collective.kind)
        return np.concatenate([value, value]) if collective.kind == "all_gather" else 2 * value

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    results = SegmentedModel(parse_rank(), 2).run({"x": x}, alone)
    gathered = np.concatenate([-x, -x])
    np.testing.assert_allclose(results["z"], 2 * np.exp(gathered) + gathered, rtol=1e-6)
    np.testing.assert_array_equal(results["y"], np.abs(x) - x)
    assert kinds == ["all_gather", "all_reduce"]


def test_a_segment_that_onnx_runtime_refuses_is_named() -> None:
    model = parse_rank()
    model.graph.node[3].op_type = "Exponential"
    with pytest.raises(ModelError, match="refuses segment 1: .*Exponential"):
        SegmentedModel(model, 2)


def test_a_model_without_collectives_is_one_segment() -> None:
    text = RANK.split("(float")[0] + "(float[2] x) => (float[2] z) { z = Neg (x) }"
    model = parse(text.replace(', "gehost.collective" : 1', ""))
    assert [len(segment.nodes) for segment in cut(model, 1)] == [1]


def test_a_segment_whose_results_nothing_reads_is_not_run() -> None:
    text = RANK.replace("z = Add (d, b)", "z = Identity (b)\n    unread = Sqrt (d)")
    model = SegmentedModel(parse(text), 2)
    assert [segment.session is not None for segment in model.segments] == [True, True, False]
    x = np.ones((2, 4), np.float32)
    results = model.run({"x": x}, lambda collective, value: np.concatenate([value] * 2))
    np.testing.assert_array_equal(results["z"], -np.ones((4, 4), np.float32))
