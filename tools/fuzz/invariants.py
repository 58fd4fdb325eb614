"""``python -m tools.fuzz.invariants``: what every compile keeps, on random models.

A model whose inner types are declared (as exporters do, from a run or from inference) is compiled
with the clean-up alone, with the shipped vendors, with all their passes, and with a random half of
those. No strict reader (``tests.validity``) refuses a result where it takes the model, and a second
compile gives the same bytes unless a pass matches again. Exit code 1 when one does not hold.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gehost import Host, HostOptions
from gehost.verify import compare
from tests.validity import new_refusals, refusals
from tools.fuzz.cases import VENDORS, model_of
from tools.fuzz.checks import RunErrors, outputs_of
from tools.fuzz.fusable import fusable
from tools.fuzz.workers import outcomes

FLOAT = onnx.TensorProto.FLOAT


def run_case(seed: int) -> Counter[str]:
    """Compile the model of a seed in every way.

    Raises:
        AssertionError: an invariant does not hold.
    """
    counts: Counter[str] = Counter()
    rng = random.Random(seed ^ 0x5EED)
    model = SOURCES[seed % len(SOURCES)](seed)
    decided = decide_branches(model, rng) if seed % len(SOURCES) == 0 else 0
    model = declared(model, rng)
    with tempfile.TemporaryDirectory() as directory:
        source, once, twice = (f"{directory}/{name}.onnx" for name in ("source", "once", "twice"))
        onnx.save(model, source)
        if "full check" in (match := refusals(source)):
            return Counter({f"not valid before: {match['full check'][:60]}": 1})
        if decided and not _runs(model, model_of(seed).feeds):
            decided, counts["models that do not run with their branches decided"] = 0, 1
        for name, host in hosts(rng).items():
            report = host.compile(source, once)
            assert not (new := new_refusals(source, once)), f"{name}: {new}"
            again = host.compile(once, twice)
            matched = [record.name for record in again.passes if record.replaced]
            same = Path(once).read_bytes() == Path(twice).read_bytes()
            assert same or matched, f"{name}: the second compile changed {again.cleanup}"
            assert not (new := new_refusals(source, twice)), f"{name}, second compile: {new}"
            if decided:
                result = compare(source, once, model_of(seed).feeds)
                assert result.equal, f"{name}: {result.summary()}"
                counts["compiles with branches decided"] += 1
            counts["compiles"] += 1
            counts["rewrites"] += sum(record.replaced for record in report.passes)
            counts["matched by a second compile"] += bool(matched)
    return counts


def _runs(model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]]) -> bool:
    try:
        outputs_of(model, feeds)
    except RunErrors:
        return False
    return True


def hosts(rng: random.Random) -> dict[str, Host]:
    """Return hosts by what they run."""
    shipped = _shipped()
    off = [spec.name for spec in shipped.passes if not spec.default]
    some = sorted(rng.sample(off, len(off) // 2))
    return {
        "clean-up": _alone(),
        "vendors": shipped,
        "all passes": shipped.with_options(enable=off),
        f"passes {', '.join(some)}": shipped.with_options(enable=some),
    }


@cache
def _alone() -> Host:
    return Host(HostOptions(plugins=False))


@cache
def _shipped() -> Host:
    return Host(HostOptions(vendors=[VENDORS]))


# -- models


def decide_branches(model: onnx.ModelProto, rng: random.Random) -> int:
    """Make the conditions of most Ifs constant; return their number."""
    result = 0
    waiting = list(model.graph.node)
    while waiting:
        node = waiting.pop()
        if node.op_type == "If" and model.ir_version >= 4 and rng.random() < 0.7:
            name = f"decided{result}"
            array = np.array(rng.random() < 0.5)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
            node.input[0], result = name, result + 1
        for attribute in node.attribute:
            waiting.extend(attribute.g.node)
    return result


def declared(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """Return the model with types of inner tensors: of a run, of inference, or as it is."""
    how = rng.choice(["run", "run", "inference", "data", "none"])
    if how == "none":
        return model
    if how == "run" and not _has_open_size(model):
        return _as_run(model)
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=how == "data")
    except onnx.shape_inference.InferenceError:
        return model


def _has_open_size(model: onnx.ModelProto) -> bool:
    return any(
        not dim.HasField("dim_value")
        for info in model.graph.input
        for dim in info.type.tensor_type.shape.dim
    )


def _as_run(model: onnx.ModelProto) -> onnx.ModelProto:
    """Declare the types that the root's tensors have in a run."""
    constants = {tensor.name for tensor in model.graph.initializer}
    rng = np.random.default_rng(0)
    feeds = {
        info.name: rng.integers(
            0, 2, [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        ).astype(helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        for info in model.graph.input
        if info.name not in constants
    }
    shown = {info.name for info in model.graph.output}
    created = [name for node in model.graph.node for name in node.output if name]
    every = onnx.ModelProto()
    every.CopyFrom(model)
    every.graph.output.extend(
        helper.make_empty_tensor_value_info(name) for name in created if name not in shown
    )
    try:
        (results,) = outputs_of(every, [feeds])
    except RunErrors:
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    entry = {info.name for info in result.graph.value_info} | shown
    names = [info.name for info in every.graph.output]
    for name, array in zip(names, results, strict=True):
        if name not in entry and isinstance(array, np.ndarray) and array.dtype != object:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            result.graph.value_info.append(helper.make_tensor_value_info(name, kind, array.shape))
    return result


def layouts(seed: int) -> onnx.ModelProto:
    """Return a chain of Reshapes and Transposes, as exporters write around attentions."""
    rng = random.Random(seed)
    shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([3, 4, 4, 5]))]
    start = list(shape)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    current = "x"

    def emit(op: str, inputs: list[str], **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def constant(numbers: list[int]) -> str:
        constants.append(numpy_helper.from_array(np.array(numbers, np.int64), f"c{len(constants)}"))
        return constants[-1].name

    def reshape(source: str, sizes: list[int], read: str) -> str:
        """Reshape to sizes that are constant, one -1, or read from a tensor of that shape."""
        if rng.random() < 0.3 and read:
            return emit("Reshape", [source, emit("Shape", [read])])
        target = list(sizes)
        if rng.random() < 0.4:
            target[rng.randrange(len(target))] = -1
        if rng.random() < 0.3 and len(target) > 1:
            cut = rng.randrange(1, len(target))
            joined = emit("Concat", [constant(target[:cut]), constant(target[cut:])], axis=0)
            return emit("Reshape", [source, joined])
        return emit("Reshape", [source, constant(target)])

    for _ in range(rng.randint(2, 7)):
        kind = rng.choice(["keys", "keys", "transpose", "reshape", "unary", "squeeze", "pair"])
        rank = len(shape)
        if kind == "keys" and rank >= 3:
            lead = shape[: rank - 2]
            merged = [int(np.prod(lead)), *shape[-2:]]
            current = reshape(current, merged, "")
            current = emit("Transpose", [current], perm=[0, 2, 1])
            shape = [*lead, shape[-1], shape[-2]]
            current = reshape(current, shape, "")
        elif kind == "transpose":
            order = rng.sample(range(rank), rank)
            current = emit("Transpose", [current], perm=order)
            shape = [shape[axis] for axis in order]
        elif kind == "reshape" and rank > 1:
            axis = rng.randrange(rank - 1)
            shape = [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]]
            current = reshape(current, shape, "")
        elif kind == "squeeze":
            axis = rng.randrange(rank + 1)
            wide = emit("Unsqueeze", [current, constant([axis])])
            current = emit(rng.choice(["Relu", "Identity"]), [wide])
            if rng.random() < 0.6:
                current = emit("Squeeze", [current, constant([axis])])
            else:
                shape.insert(axis, 1)
        elif kind == "pair":
            before = current
            current = emit("Flatten", [current], axis=1)
            current = reshape(current, shape, before)
        else:
            current = emit(rng.choice(["Relu", "Softmax", "Neg", "Identity"]), [current])
    result = emit("Abs", [current])
    open_batch = start[:1] if rng.random() < 0.6 else ["batch"]
    declared = rng.random() < 0.5 and open_batch == start[:1]
    outer = shape if declared else [None] * len(shape)
    graph = helper.make_graph(
        nodes,
        "layouts",
        [helper.make_tensor_value_info("x", FLOAT, [*open_batch, *start[1:]])],
        [helper.make_tensor_value_info(result, FLOAT, outer)],
        constants,
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


SOURCES = (lambda seed: model_of(seed).proto, fusable, layouts)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.invariants", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first; default: %(default)s")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    argument = parser.parse_args()
    counts, failed = Counter[str](), 0
    seeds = itertools.islice(itertools.count(argument.seed), argument.graphs)
    for outcome in outcomes(run_case, seeds, argument.processes, 120.0):
        if outcome.failure:
            failed += 1
            print(f"seed {outcome.number}: {outcome.failure.strip().splitlines()[-1][:600]}")
        else:
            counts += outcome.result
    for name, count in counts.most_common():
        print(f"{count:8} {name}")
    print(f"{failed:8} of {argument.graphs} graphs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
