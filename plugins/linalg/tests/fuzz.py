"""Compare fusion with MLIR's on random DAGs: ``python -m plugins.linalg.tests.fuzz --dags 20000``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx

from gehost import DataType, GehostError, Host, HostOptions
from gehost_linalg.driver import MLIR_COMPANIONS, fuse_block
from gehost_linalg.generic import Generic, verify
from gehost_linalg.groups.body import Body, Signature
from gehost_linalg.groups.derive import derive
from gehost_linalg.interpret import interpret
from gehost_linalg.mlir import Function, parse, print_function
from gehost_linalg.passes import NAME

from .dags import function_with_reshapes, random_function
from .mixed import mixed_function
from .models import run_runtime
from .onnx_graphs import random_graph
from .oracle import Iree, signatures

DIFFERENCES = {
    "reduction-dim-uncovered": "preserved outs cover a reduction",
    "bounds-lost": "an operand behind one that loses bounds is fused",
    "out-updated-again": "an out is not updated again",
}
"""What gehost does better than MLIR, by a refusal of either."""


def ours(function: Function, coverage: str = "preserved") -> tuple[Function, set[str]]:
    """The fused function, and the keys of its refusals."""
    block = fuse_block(
        function.ops, outputs=function.outputs, coverage=coverage, companions=MLIR_COMPANIONS
    )
    for op in block.ops:
        if isinstance(op, Generic):
            verify(op)
    keys = {refusal.key for result in block.refusals.values() for _, refusal in result}
    return Function(function.name, function.arguments, block.ops, block.outputs), keys


def compare_with_mlir(
    seeds: range, iree: Iree, show: int, make: Callable[[int], Function] = random_function
) -> Counter[str]:
    """Count DAGs by outcome; differences are shown."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        text = print_function(make(seed))
        function = parse(text)[0]
        theirs = iree.fused_functions(text)[0]
        expected = signatures(theirs)
        counts["dags"] += 1
        counts["generics"] += len(function.ops)
        fused, keys = ours(function, "upstream")
        counts["fusions"] += len(function.ops) - len(fused.ops)
        iree.verify(print_function(fused))
        if signatures(fused) == expected:
            better, more_keys = ours(parse(text)[0])
            if signatures(better) != expected:
                reasons = [DIFFERENCES[key] for key in DIFFERENCES if key in keys | more_keys]
                counts[f"better: {' or '.join(reasons)}"] += 1
            continue
        counts["different"] += 1
        if counts["different"] <= show:
            _show(seed, text, fused, theirs)
    return counts


SETTINGS = (
    {}, {"control": "always", "multi_use": "duplicate"}, {"control": "always", "multi_use": "share"}, {"rows": "false"},
    {"control": "cost", "multi_use": "duplicate", "rows": "false"}, {"leave_alone": "false"},
    {"companions": "reshape"}, {"companions": "reshape", "rows": "false"},
)  # fmt: skip


def compare_with_runtime(seeds: range) -> Counter[str]:
    """Random ONNX graphs: compiled against original in ONNX Runtime, and each kernel's loops against its body."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        model, feeds = random_graph(seed)
        settings = {
            f"{NAME}.{name}": value for name, value in SETTINGS[seed % len(SETTINGS)].items()
        }
        expected = run_runtime(model, feeds)
        with tempfile.TemporaryDirectory() as folder:
            options = HostOptions(
                vendors=(folder,), enable=(NAME,), settings=settings, cleanup=seed % 5 != 0
            )
            try:
                output, _ = Host(options).run(model)
            except GehostError as error:
                counts["errors, which differ"] += 1
                print(f"seed {seed}: {error.__cause__!r:.200}")
                continue
        onnx.checker.check_model(output)
        counts["graphs"] += 1
        kernels = [node for node in output.graph.node if node.domain == "gehost.linalg"]
        counts["groups"] += len(kernels)
        for result, other in zip(run_runtime(output, feeds), expected, strict=True):
            if not np.allclose(result, other, rtol=1e-4, atol=1e-5, equal_nan=True):
                counts["bodies differ"] += 1
                print(f"seed {seed}: bodies differ")
        values = _values(output, feeds)
        functions = {function.name: function for function in output.functions}
        for node in kernels:
            function = functions[node.op_type]
            signature = [_signature(output, name, values) for name in node.input]
            group = derive(Body.of_function(function), signature)
            if group.name != node.op_type:
                counts["names that types of the file do not give"] += 1
                print(f"seed {seed}: {node.op_type} is {group.name} by {signature}")
            inputs = {
                value: values[name] for value, name in zip(group.inputs, node.input, strict=True)
            }
            for ops in (group.unfused, group.ops):
                try:
                    results = interpret(ops, inputs, group.outputs, group.rules)
                except ValueError as error:
                    counts["loops differ"] += 1
                    print(f"seed {seed}: {node.op_type}: {error}")
                    continue
                for result, name in zip(results, node.output, strict=True):
                    counts["values"] += 1
                    if not np.allclose(result, values[name], rtol=1e-3, atol=1e-5, equal_nan=True):
                        counts["loops differ"] += 1
                        print(f"seed {seed}: {node.op_type}: loops differ")
    return counts


def _values(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of the graph."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    names = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    entries = {value.name for value in model.graph.output}
    watched.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in entries
    )
    result = run_runtime(watched, feeds)
    constants = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    return {
        **constants,
        **feeds,
        **dict(zip([value.name for value in watched.graph.output], result, strict=True)),
    }


def _signature(model: onnx.ModelProto, name: str, values: dict[str, np.ndarray]) -> Signature:
    """As ``compile`` saw it: the axes that the model states to be 1."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    entries = [*inferred.graph.input, *inferred.graph.value_info]
    declared = next(
        (value.type.tensor_type.shape.dim for value in entries if value.name == name), None
    )
    shape = values[name].shape
    ones = tuple(
        axis
        for axis, size in enumerate(shape)
        if size == 1 and (declared is None or declared[axis].dim_value == 1)
    )
    return Signature(DataType.FLOAT, len(shape), ones)


def _show(seed: int, text: str, fused: Function, theirs: Function) -> None:
    print(f"seed {seed}:\n{text}")
    mine, expected = signatures(fused), signatures(theirs)
    for item in mine - expected:
        print("ours:  ", item)
    for item in expected - mine:
        print("MLIR's:", item)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dags", type=int, default=20_000)
    parser.add_argument("--graphs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--show", type=int, default=3)
    options = parser.parse_args()
    failed = False
    for name, run in (
        (
            "DAGs against MLIR",
            lambda: compare_with_mlir(_seeds(options.first, options.dags), Iree(), options.show),
        ),
        (
            "DAGs with reshapes against MLIR",
            lambda: compare_with_mlir(
                _seeds(options.first, options.dags), Iree(), options.show, function_with_reshapes
            ),
        ),
        (
            "modules with named operations and regions against MLIR",
            lambda: compare_with_mlir(
                _seeds(options.first, options.dags), Iree(), options.show, mixed_function
            ),
        ),
        (
            "graphs against ONNX Runtime",
            lambda: compare_with_runtime(_seeds(options.first, options.graphs)),
        ),
    ):
        begin = time.perf_counter()
        counts = run() if (options.dags if "MLIR" in name else options.graphs) else Counter()
        print(
            f"{name}: {', '.join(f'{key} {count}' for key, count in counts.items())} ({time.perf_counter() - begin:.0f} s)"
        )
        failed |= any(counts[key] for key in counts if "differ" in key)
    return 1 if failed else 0


def _seeds(first: int, count: int) -> range:
    return range(first, first + count)


if __name__ == "__main__":
    sys.exit(main())
