"""Each spelling with layout operators inserted at random that undo each other: none is wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, shape_inference

from gehost import REG_FUSION_PASS, CustomPassStage, es
from gehost.ir.model import Model
from gehost.testing import run_pass
from gehost_semantic import ActivationFusionPass, NormFusionPass, RotaryFusionPass
from plugins.semantic.tests import test_activations, test_norms, test_rotary
from plugins.semantic.tests.test_passes import run
from tools.semantic.check import random_feed


def _pass(base: type[Any], **settings: Any) -> type[Any]:
    name = f"Scrambled{base.__name__}{settings.get('kind', '').title().replace(' ', '')}"
    result = type(name, (base,), settings)
    return REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)(result)


def _turn(_: Any, rotary: Any) -> Any:
    operands = (rotary.x, rotary.cos, rotary.sin)
    return es.op("npu::Rotary")(*operands, interleaved=int(rotary.interleaved))


def _norm(_: Any, norm: Any) -> Any:
    numbers = {"groups": norm.groups} if norm.kind == "group" else {}
    operands = (norm.x, norm.residual, norm.scale, norm.bias)
    result = es.op("npu::Norm")(*operands, epsilon=norm.epsilon, **numbers)
    return result[0], result[1]


def _act(_: Any, activation: Any) -> Any:
    numbers = {"alpha": activation.alpha} if activation.kind == "quick gelu" else {}
    return es.op("npu::Act")(activation.x, activation.bias, activation.gate, **numbers)


ROTARY = _pass(RotaryFusionPass, Replacement=_turn, takes={"interleaved", "partial"})
NORMS = {
    kind: _pass(NormFusionPass, Replacement=_norm, kind=kind, takes={"bias", "residual"})
    for kind in ("layer", "rms", "group")
}
ACTIVATIONS = {
    kind: _pass(ActivationFusionPass, Replacement=_act, kind=kind, takes={"bias", "gate"})
    for kind in test_activations.KINDS
}


def spellings() -> dict[str, tuple[onnx.ModelProto, type[Any]]]:
    """Return a model and a pass for each spelling of the other tests."""
    results: dict[str, tuple[onnx.ModelProto, type[Any]]] = {}
    for name, (body, inputs, *_) in test_rotary.FORMS.items():
        results[f"rotary: {name}"] = test_rotary.model(body, inputs), ROTARY
    for name, (kind, body, inputs, _) in test_norms.FORMS.items():
        results[f"norm: {name}"] = test_norms.model(body, inputs), NORMS[kind]
    for name, (kind, body, inputs) in test_activations.FORMS.items():
        results[f"activation: {name}"] = test_activations.model(body, inputs), ACTIVATIONS[kind]
    return results


class _Scrambler:
    """Inserts operators that undo each other before inputs of nodes."""

    def __init__(self, proto: onnx.ModelProto, generator: np.random.Generator) -> None:
        self.proto = onnx.ModelProto.FromString(proto.SerializeToString())
        self._generator = generator
        self._count = 0

    def insert(self) -> None:
        graph = shape_inference.infer_shapes(self.proto).graph
        types = {v.name: v.type.tensor_type for v in [*graph.input, *graph.value_info]}
        places = [
            (node, slot)
            for node in self.proto.graph.node
            for slot, name in enumerate(node.input)
            if name in types
            and types[name].elem_type in (1, 10)
            and types[name].HasField("shape")
            and len(types[name].shape.dim) > 0
        ]
        node, slot = places[self._generator.integers(len(places))]
        dims = types[node.input[slot]].shape.dim
        index = list(self.proto.graph.node).index(node)
        result, last = self._pair(node.input[slot], [dim.dim_value or None for dim in dims])
        node.input[slot] = last
        for item in reversed(result):
            self.proto.graph.node.insert(index, item)

    def _pair(self, name: str, sizes: list[int | None]) -> tuple[list[onnx.NodeProto], str]:
        rank = len(sizes)
        self._count += 1
        a, b = f"{name}_in{self._count}", f"{name}_out{self._count}"
        match self._generator.integers(4):
            case 0:
                perm = [int(n) for n in self._generator.permutation(rank)]
                back = [perm.index(n) for n in range(rank)]
                pair = [("Transpose", {"perm": perm}), ("Transpose", {"perm": back})]
                nodes = [
                    helper.make_node(op, [source], [result], **attrs)
                    for (op, attrs), source, result in zip(pair, (name, a), (a, b), strict=True)
                ]
                return nodes, b
            case 1:
                axes = self._constant([int(self._generator.integers(rank + 1))])
                wide = helper.make_node("Unsqueeze", [name, axes], [a])
                return [wide, helper.make_node("Squeeze", [a, axes], [b])], b
            case 2 if isinstance(sizes[-1], int) and sizes[-1] % 2 == 0:
                apart = self._constant([*[0] * (rank - 1), 2, sizes[-1] // 2])
                whole = self._constant([*[0] * (rank - 1), sizes[-1]])
                first = helper.make_node("Reshape", [name, apart], [a])
                return [first, helper.make_node("Reshape", [a, whole], [b])], b
            case _:
                return [helper.make_node("Identity", [name], [b])], b

    def _constant(self, numbers: list[int]) -> str:
        name = f"constant{len(self.proto.graph.initializer)}_{self._count}"
        array = numpy_helper.from_array(np.array(numbers, np.int64), name)
        self.proto.graph.initializer.append(array)
        return name


def campaign(seeds: range) -> Counter[str]:
    """Compile scrambled spellings; return how many are replaced, and which are not."""
    results: Counter[str] = Counter()
    for seed in seeds:
        for name, (proto, kernel) in spellings().items():
            generator = np.random.default_rng([seed, len(name)])
            scrambler = _Scrambler(proto, generator)
            for _ in range(generator.integers(1, 4)):
                scrambler.insert()
            before = scrambler.proto
            after, record = run_pass(before, kernel, cleanup=bool(generator.integers(2)))
            results["replaced" if record.replaced == 1 else name] += 1
            graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
            feed = random_feed(graph, {"b": 2, "s": 3}, generator)
            tolerance = 4e-3 if "half" in name or "island" in name else 1e-5
            for one, other in zip(run(before, feed), run(after, feed), strict=True):
                np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance, err_msg=name)
    return results


def test_scrambled_spellings_are_found_with_equal_numbers() -> None:
    result = campaign(range(1))
    assert result["replaced"] >= 0.9 * result.total()


@pytest.mark.nightly
def test_many_scrambled_spellings() -> None:
    result = campaign(range(1, 21))
    assert result["replaced"] >= 0.95 * result.total(), result
