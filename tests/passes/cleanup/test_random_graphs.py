"""Random graphs with everything in them: whatever the clean-up does, the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.helper
import pytest
from onnx.reference import ReferenceEvaluator

UNARY = ("Identity", "Neg", "Abs", "Relu", "Sqrt", "Floor", "Sin")
BINARY = ("Add", "Sub", "Mul", "Max")


class Maker:
    """Builds graphs of [2, 3] floats; few choices each, so that much is equal, constant, dead or an identity."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def graph(
        self, name: str, outer: list[str], size: int, depth: int, outputs: int, inputs: Any = ()
    ) -> onnx.GraphProto:
        nodes: list[onnx.NodeProto] = []
        tensors: list[onnx.TensorProto] = []
        own: list[str] = []
        for _ in range(int(self.rng.integers(1, 4))):
            own.append(self.name())
            content = self.rng.integers(0, 2, (2, 3)).astype(np.float32)
            tensors.append(onnx.numpy_helper.from_array(content, own[-1]))
        for _ in range(size):
            own.append(self.node(nodes, outer + own, depth))
        results = []
        for choice in self.rng.choice(own, outputs, replace=False):
            # A body's outputs, and those of the root, must be made in it by a node.
            result = choice if any(choice in node.output for node in nodes) else self.name()
            if result != choice:
                nodes.append(onnx.helper.make_node("Identity", [choice], [result]))
            results.append(onnx.helper.make_tensor_value_info(result, 1, [2, 3]))
        return onnx.helper.make_graph(nodes, name, list(inputs), results, tensors)

    def node(self, nodes: list[onnx.NodeProto], values: list[str], depth: int) -> str:
        rng, result = self.rng, self.name()
        a, b = rng.choice(values, 2)
        kind = int(rng.integers(0, 14))
        if kind < 4:
            nodes.append(onnx.helper.make_node(str(rng.choice(UNARY)), [a], [result]))
        elif kind < 8:
            nodes.append(onnx.helper.make_node(str(rng.choice(BINARY)), [a, b], [result]))
        elif kind == 8:
            nodes.append(onnx.helper.make_node("Transpose", [a], [f"{result}_t"], perm=[1, 0]))
            nodes.append(onnx.helper.make_node("Transpose", [f"{result}_t"], [result], perm=[1, 0]))
        elif kind == 9:
            nodes.append(onnx.helper.make_node("Shape", [a], [f"{result}_s"]))
            nodes.append(onnx.helper.make_node("Reshape", [b, f"{result}_s"], [result]))
        elif kind == 10:
            nodes.append(
                onnx.helper.make_node("Cast", [a], [f"{result}_c"], to=int(rng.choice([1, 11])))
            )
            nodes.append(onnx.helper.make_node("Cast", [f"{result}_c"], [result], to=1))
        elif kind == 11:
            nodes.append(
                onnx.helper.make_node(
                    "Split", [a], [f"{result}_u", f"{result}_v"], axis=0, num_outputs=2
                )
            )
            nodes.append(
                onnx.helper.make_node(
                    "Concat",
                    [f"{result}_v", str(rng.choice([f"{result}_u", f"{result}_v"]))],
                    [result],
                    axis=0,
                )
            )
        elif kind == 12 or depth == 0:
            nodes.append(
                onnx.helper.make_node(
                    "Dropout", [a], [result, f"{result}_m"][: int(rng.integers(1, 3))]
                )
            )
        elif kind == 13 and rng.integers(0, 2):
            branches = [
                self.graph(self.name(), values, int(rng.integers(1, 5)), depth - 1, 1)
                for _ in range(2)
            ]
            nodes.append(
                onnx.helper.make_node(
                    "If", ["flag"], [result], then_branch=branches[0], else_branch=branches[1]
                )
            )
        else:
            self.loop(nodes, values, result, depth)
        return result

    def loop(self, nodes: list[onnx.NodeProto], values: list[str], result: str, depth: int) -> None:
        step, state, go = self.name(), self.name(), self.name()
        body = self.graph(
            self.name(),
            [*values, state],
            int(self.rng.integers(1, 5)),
            depth - 1,
            1,
            [
                onnx.helper.make_tensor_value_info(step, 7, []),
                onnx.helper.make_tensor_value_info(go, 9, []),
                onnx.helper.make_tensor_value_info(state, 1, [2, 3]),
            ],
        )
        again = self.name()
        body.node.append(onnx.helper.make_node("Identity", [go], [again]))
        body.output.insert(0, onnx.helper.make_tensor_value_info(again, 9, []))
        nodes.append(
            onnx.helper.make_node(
                "Loop",
                ["trips", "", values[int(self.rng.integers(len(values)))]],
                [result],
                body=body,
            )
        )


def model(seed: int, size: int = 40) -> onnx.ModelProto:
    maker = Maker(seed)
    inputs = [
        onnx.helper.make_tensor_value_info("x", 1, ["N", "M"] if seed % 3 == 0 else [2, 3]),
        onnx.helper.make_tensor_value_info("flag", 9, []),
        onnx.helper.make_tensor_value_info("trips", 7, []),
    ]
    graph = maker.graph("g", ["x"], size, 2, size // 3, inputs)
    return onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 21)]
    )


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("seed", range(60))
def test_numbers_stay(clean: Any, seed: int) -> None:
    """By the reference evaluator: ONNX Runtime does not run all of these, whether cleaned up or not."""
    cleaned = clean(model(seed), runs=False)
    assert cleaned.result.total
    before, after = ReferenceEvaluator(cleaned.original), ReferenceEvaluator(cleaned.model.flush())
    x = np.random.default_rng(seed).standard_normal((2, 3)).astype(np.float32)
    for flag, trips in ((True, 2), (False, 0)):
        feeds = {"x": x, "flag": np.array(flag), "trips": np.array(trips)}
        for old, new in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
            np.testing.assert_allclose(old, new, rtol=1e-6)
