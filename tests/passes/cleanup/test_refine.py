"""What becomes known on the way is used on the way."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.helper
import onnx.parser
import pytest

from gehost.infer import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import clean_up
from gehost.refusal import Refused

# Inference does not see through floats: the size of e is known once they are folded.
EXPAND = (
    "g (float[2, 1] x) => (float[P, Q] y) <int64[2] wanted = {-1, 4}> "
    "{ s = Shape(x)  z = Shape(s)  o = ConstantOfShape <value = float[1] {1}> (z)  f = Cast <to = 1> (wanted)  c = Less(f, o)  "
    "t = Where(c, s, wanted)  e = Expand(x, t)  n = Shape(e)  k = Cast <to = 1> (n)  "
    "q = ReduceMax <keepdims = 0> (k)  y = Mul(e, q) }"
)


def test_a_folded_shape_is_inferred_from(clean: Any) -> None:
    cleaned = clean(EXPAND)
    assert [node.op for node in cleaned.model.graph.nodes] == ["Expand", "Mul"]
    assert cleaned.model.graph.values["e"].shape == (2, 4)
    assert cleaned.array("q").tolist() == 4


@pytest.mark.usefixtures("interpreted")
def test_without_it_the_clean_up_stops_half_way(
    clean: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gehost.passes.cleanup.cleaner.refine", lambda state, node: None)
    assert "Shape" in clean(EXPAND).ops


def test_symbols_are_kept_where_inference_knows_less(clean: Any) -> None:
    cleaned = clean(
        "g (float[N, 4] x) => (float[N, 2, 2] y) <int64[1] a = {2}> "
        "{ s = Shape <end = 1> (x)  t = Concat <axis = 0> (a, a)  u = Concat <axis = 0> (s, t)  r = Reshape(x, u)  y = Relu(r) }",
    )
    assert cleaned.model.graph.values["r"].shape == ("N", 2, 2)


def test_what_the_file_says_is_not_overruled(clean: Any) -> None:
    def contradict(model: onnx.ModelProto) -> None:
        model.graph.value_info.add(name="e").type.CopyFrom(
            onnx.helper.make_tensor_type_proto(1, [7, None])
        )

    cleaned = clean(EXPAND, edit=contradict, infer=False, runs=False)
    assert cleaned.model.graph.values["e"].shape == (7, None)
    assert "Shape" in cleaned.ops


def test_what_inference_refuses_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise Refused("types")

    monkeypatch.setattr(Inferrer, "node", refuse)
    model = Model(onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>' + EXPAND))
    assert clean_up(model, OpRegistry(), Inferrer(model, OpRegistry())).total
    model.check()
