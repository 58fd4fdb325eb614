"""CPU time of the pass per node of the clean graph: ``python -m plugins.linalg.tools.bench [--nodes 20000]``."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import onnx

from gehost import Graph, Host, HostOptions
from gehost_linalg import passes

LAYER = (
    ("MatMul", "{x} w", "m"), ("Add", "m b", "a"), ("Div", "a c", "d"), ("Erf", "d", "e"), ("Add", "e one", "f"), ("Mul", "a f", "g"),
    ("Mul", "g half", "h"), ("MatMul", "h w", "n"), ("Add", "n {x}", "r"), ("LayerNormalization", "r s b", "y"),
)  # fmt: skip


def model(nodes: int) -> onnx.ModelProto:
    """Layers of a matrix product, bias, gelu, residual and normalization."""
    items, x = [], "x"
    for number in range(nodes // len(LAYER)):
        shared = {"w", "b", "c", "one", "half", "s"}
        for op, inputs, output in LAYER:
            names = [
                x if name == "{x}" else name if name in shared else f"{name}{number}"
                for name in inputs.split()
            ]
            items.append(onnx.helper.make_node(op, names, [f"{output}{number}"]))
        x = f"y{number}"
    random = np.random.default_rng(0)
    arrays = {"w": (8, 8), "b": (8,), "s": (8,), "c": (), "one": (), "half": ()}
    tensors = [
        onnx.numpy_helper.from_array(np.asarray(random.normal(size=shape), np.float32), name)
        for name, shape in arrays.items()
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        items, "layers", [value("x", 1, ["n", "t", 8])], [value(x, 1, ["n", "t", 8])], tensors
    )
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10
    )


def measured(nodes: int) -> tuple[int, float, int]:
    """Nodes of the clean graph, CPU seconds of the pass, groups."""
    results: list[tuple[int, float]] = []
    run = passes.FuseElementwisePass.Run

    def timed(self: Any, graph: Graph, context: Any) -> Any:
        count, begin = len(graph), time.process_time()
        try:
            return run(self, graph, context)
        finally:
            results.append((count, time.process_time() - begin))

    passes.FuseElementwisePass.Run = timed
    try:
        result, _ = Host(HostOptions(vendors=(), enable=(passes.NAME,))).run(model(nodes))
    finally:
        passes.FuseElementwisePass.Run = run
    groups = sum(node.domain == "gehost.linalg" for node in result.graph.node)
    return *results[0], groups


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 5000, 20_000])
    parser.add_argument("--runs", type=int, default=3, help="of which the least is shown")
    options = parser.parse_args()
    for nodes in options.nodes:
        count, seconds, groups = min(
            (measured(nodes) for _ in range(options.runs)), key=lambda run: run[1]
        )
        print(
            f"{count} nodes, {groups} groups: {seconds:.2f} s, {1e6 * seconds / count:.0f} us per node",
            flush=True,
        )


if __name__ == "__main__":
    main()
