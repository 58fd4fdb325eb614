"""How often the rules of ``gehost.verify`` refuse a right compile, and accept a planted fault.

``python -m tools.verify.planted [--right] [MODEL…]`` prints one table, with ``--right`` of right compiles
alone, which keep the types of the models. It takes about five minutes for all of ``tests/models``. Right: each
model against its compiles, by default and with all passes of ONNX Runtime's vendor. Planted: each
model against itself with one of 25 kinds of faults at its first place. Models of float32 are also
measured as half, their originals and compiles cast; files in half and quantized ones as they are.

| models | right: refused | planted: accepted |
|---|---|---|
| ``tests/models``: 9 in float32, 8 cast to float16, 5 to bfloat16 | 0 of 40 | 0 of 398 |
| files in half, mixed, int4, int8 and QDQ: 37 | 0 of 69 | 0 of 691 |
| 130 exports in half and float32, 16 other files | 0 of 146 | |

Measured with ONNX Runtime 1.31.1. Models that their runtime does not load in a type are left out.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from gehost import GehostError, Host, HostOptions
from gehost.verify import Baseline, Runner, make_feeds
from gehost.verify.retype import HALF, element_types, holds, retyped
from gehost.verify.widen import widened

TENSOR = onnx.TensorProto
ROOT = Path(__file__).parents[2]
FAMILIES = ("bert", "convnet", "gpt2", "llama", "vit")
MODELS = sorted(p for p in (ROOT / "tests/models").glob("*.onnx") if p.name.startswith(FAMILIES))
AS_WRITTEN = "as written"
TYPES = {"float32": None, "float16": TENSOR.FLOAT16, "bfloat16": TENSOR.BFLOAT16, AS_WRITTEN: None}
FLOATING = (TENSOR.FLOAT, TENSOR.FLOAT16, TENSOR.BFLOAT16)
QUANTIZED = ("DequantizeLinear", "DynamicQuantizeLinear", "MatMulNBits")
LARGEST = 65504.0

Fault = Callable[[onnx.GraphProto], bool]


def host(*enabled: str, disabled: Sequence[str] = ()) -> Host:
    return Host(
        HostOptions(vendors=[ROOT / "vendors"], enable=list(enabled), disable=list(disabled))
    )


def ort_passes() -> tuple[str, ...]:
    return tuple(spec.name for spec in host().passes if spec.vendor == "onnxruntime")


FOLDING = ("FoldIntoConvPass", "FoldIntoMatMulPass")
"""Of a cast compile no pass could note that it folded weights in half."""


def feeds_of(model: onnx.ModelProto) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Return feeds without padding, with right and with left padding."""
    results = []
    for number, part in enumerate((slice(0, 0), slice(-2, None), slice(0, 2))):
        feeds = make_feeds(model, seed=number, variant=0)
        for name, array in feeds.items():
            if "mask" in name and array.ndim > 1:
                array[...] = 1
                array[-1, part] = 0
        results.append(feeds)
    return results


def in_type(model: onnx.ModelProto, kind: int | None) -> onnx.ModelProto:
    return model if kind is None else retyped(model, {TENSOR.FLOAT: kind})


def kinds_of(model: onnx.ModelProto) -> Sequence[str]:
    """Return the types to measure a model in."""
    if holds(model, HALF) or nodes_of(model.graph, *QUANTIZED):
        return (AS_WRITTEN,)
    return ("float32", "float16", "bfloat16")


def rounded(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """Return a copy in float32 whose constants are numbers of a type, as the cast keeps them."""
    result = copy.deepcopy(model)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    for tensor in constants(result.graph).values():
        if tensor.data_type == TENSOR.FLOAT:
            array = onnx.numpy_helper.to_array(tensor).clip(-LARGEST, LARGEST)
            set_array(tensor, array.astype(dtype))
    return result


# -- faults --------------------------------------------------------------------------------------


def constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    results = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            results[node.output[0]] = node.attribute[0].t
    return results


def set_array(tensor: onnx.TensorProto, array: np.ndarray[Any, Any]) -> None:
    kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(kind), tensor.name))


def constant(graph: onnx.GraphProto, name: str, value: float, like: str) -> str:
    """Add a constant of the type of another tensor; return its name."""
    kinds = {item.name: item.type.tensor_type.elem_type for item in graph.value_info}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kinds.get(like, TENSOR.FLOAT))
    graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
    return name


def nodes_of(graph: onnx.GraphProto, *ops: str) -> list[onnx.NodeProto]:
    return [node for node in graph.node if node.op_type in ops]


def producer(graph: onnx.GraphProto, name: str) -> onnx.NodeProto | None:
    return next((node for node in graph.node if name in node.output), None)


def behind(graph: onnx.GraphProto, name: str, *steps: onnx.NodeProto) -> None:
    """Let ``steps``, which read ``name`` and make ``name (changed)``, come between it and its readers."""
    for node in graph.node:
        node.input[:] = [f"{name} (changed)" if item == name else item for item in node.input]
    place = next(i for i, node in enumerate(graph.node) if name in node.output)
    for number, step in enumerate(steps, 1):
        graph.node.insert(place + number, step)


def changed(graph: onnx.GraphProto, name: str, op: str, *values: float) -> None:
    arguments = [
        constant(graph, f"{name} ({op} {number})", value, like=name)
        for number, value in enumerate(values)
    ]
    behind(graph, name, onnx.helper.make_node(op, [name, *arguments], [f"{name} (changed)"]))


def epsilon(value: float) -> Fault:
    def plant(graph: onnx.GraphProto) -> bool:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.name == "epsilon":
                    attribute.f = value
                    return True
        entry = constants(graph)
        for root in nodes_of(graph, "Sqrt"):
            add = producer(graph, root.input[0])
            for name in add.input if add is not None and add.op_type == "Add" else ():
                if name in entry:
                    set_array(entry[name], np.full(list(entry[name].dims), value))
                    return True
        return False

    return plant


def scale(factor: float) -> Fault:
    def plant(graph: onnx.GraphProto) -> bool:
        for node in nodes_of(graph, "Softmax")[:1]:
            changed(graph, node.input[0], "Mul", factor)
            return True
        return False

    return plant


def no_mask(graph: onnx.GraphProto) -> bool:
    for softmax in nodes_of(graph, "Softmax"):
        add = producer(graph, softmax.input[0])
        if add is not None and add.op_type == "Add":
            for slot, name in enumerate(add.input):
                scores = producer(graph, name)
                if scores is not None and scores.op_type in ("MatMul", "Div", "Mul"):
                    softmax.input[0] = add.input[slot]
                    return True
    return False


def heads_reversed(graph: onnx.GraphProto) -> bool:
    for node in nodes_of(graph, "Softmax")[:1]:
        name, places = node.output[0], ("start", "end", "axis", "step")
        for place, value in zip(places, (-1, -(2**40), 1, -1), strict=True):
            graph.initializer.append(onnx.numpy_helper.from_array(np.array([value]), place))
        slices = onnx.helper.make_node("Slice", [name, *places], [f"{name} (changed)"])
        behind(graph, name, slices)
        return True
    return False


def other_gelu(graph: onnx.GraphProto) -> bool:
    for node in nodes_of(graph, "Gelu"):
        was = next((a.s for a in node.attribute if a.name == "approximate"), b"none")
        del node.attribute[:]
        other = "none" if was == b"tanh" else "tanh"
        node.attribute.append(onnx.helper.make_attribute("approximate", other))
        return True
    for node in nodes_of(graph, "Erf"):
        x, y = node.input[0], node.output[0]
        constant(graph, "slope of erf", 2 / np.pi**0.5, like=x)
        node.op_type, node.input[0] = "Tanh", f"{y} (scaled)"
        scaled = onnx.helper.make_node("Mul", [x, "slope of erf"], [f"{y} (scaled)"])
        graph.node.insert(list(graph.node).index(node), scaled)
        return True
    return False


def replaced(old: str, new: str) -> Fault:
    def plant(graph: onnx.GraphProto) -> bool:
        for node in nodes_of(graph, old)[:1]:
            node.op_type = new
            if new in ("Relu", "Identity"):
                del node.attribute[:]
            return True
        return False

    return plant


def relu_for_gelu(graph: onnx.GraphProto) -> bool:
    if nodes_of(graph, "Gelu"):
        return replaced("Gelu", "Relu")(graph)
    return replaced("Erf", "Relu")(graph) or replaced("Sigmoid", "Relu")(graph)


def causal_offset(graph: onnx.GraphProto) -> bool:
    entry = constants(graph)
    for node in nodes_of(graph, "Trilu"):
        if len(node.input) > 1 and node.input[1] in entry:
            tensor = entry[node.input[1]]
            set_array(tensor, onnx.numpy_helper.to_array(tensor) + 1)
            return True
    return replaced("LessOrEqual", "Less")(graph) or replaced("GreaterOrEqual", "Greater")(graph)


def residual(factor: float) -> Fault:
    """The sum of two computed tensors that several nodes read."""

    def plant(graph: onnx.GraphProto) -> bool:
        entry = constants(graph)
        for node in nodes_of(graph, "Add"):
            readers = sum(node.output[0] in item.input for item in graph.node)
            makers = [producer(graph, name) for name in node.input]
            if readers > 1 and any(m is not None and m.op_type in FLOATS for m in makers):
                if any(name in entry for name in node.input):
                    continue
                name = f"{node.output[0]} (scaled)"
                by = constant(graph, f"{name} by", factor, like=node.input[1])
                scaled = onnx.helper.make_node("Mul", [node.input[1], by], [name])
                graph.node.insert(list(graph.node).index(node), scaled)
                node.input[1] = name
                return True
        return False

    return plant


def initializer(
    ops: tuple[str, ...], rank: int, change: Callable[[np.ndarray[Any, Any]], Any], least: int = 2
) -> Fault:
    """Change the first initializer of a rank that such an operator reads."""

    def plant(graph: onnx.GraphProto) -> bool:
        entries = {tensor.name: tensor for tensor in graph.initializer}
        for node in nodes_of(graph, *ops):
            for name in node.input:
                tensor = entries.get(name)
                if tensor is None or len(tensor.dims) != rank or tensor.data_type not in FLOATING:
                    continue
                before = onnx.numpy_helper.to_array(tensor)
                after = np.asarray(change(before.astype(np.float32))).astype(before.dtype)
                if before.size >= least and not np.array_equal(before, after):
                    set_array(tensor, after)
                    return True
        return False

    return plant


def scale_of_weights(graph: onnx.GraphProto) -> bool:
    """The scale of quantized weights, which are integers."""
    entries = {tensor.name: tensor for tensor in graph.initializer}
    for node in nodes_of(graph, "MatMulNBits", "DequantizeLinear", "MatMulInteger"):
        weight = entries.get(node.input[int(node.op_type != "DequantizeLinear")])
        if weight is None or not weight.dims:
            continue
        match node.op_type:
            case "DequantizeLinear":
                scale = node.input[1]
            case "MatMulNBits":
                scale = node.input[2]
            case _:  # as onnxruntime.quantization names it
                scale = weight.name.replace("_quantized", "_scale")
        if scale in entries:
            array = onnx.numpy_helper.to_array(entries[scale]).astype(np.float32)
            set_array(entries[scale], array * 1.01)
            return True
    return False


def columns_swapped(weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    weight[..., [0, 1]] = weight[..., [1, 0]]
    return weight


def clipped(graph: onnx.GraphProto) -> bool:
    for node in nodes_of(graph, "LayerNormalization", "MatMul", "Conv", "MatMulNBits"):
        if producer(graph, node.output[0]) is not None:
            changed(graph, node.output[0], "Clip", -1, 1)
            return True
    return False


def shifted(graph: onnx.GraphProto) -> bool:
    for node in nodes_of(graph, *PRODUCTS, "MatMulNBits"):  # a normalization would undo it
        changed(graph, node.output[0], "Add", 1e-3)
        return True
    return False


FLOATS = ("MatMul", "Gemm", "Conv", "LayerNormalization", "MatMulNBits")
NORMS = ("LayerNormalization", "BatchNormalization", "Mul")
PRODUCTS = ("MatMul", "Gemm")
FAULTS: dict[str, Fault] = {
    "epsilon 1e-4": epsilon(1e-4),
    "epsilon 1e-3": epsilon(1e-3),
    **{f"scale {factor:g}": scale(factor) for factor in (1.02, 1.1, 1.5, 2)},
    "no mask": no_mask,
    "heads reversed": heads_reversed,
    "other Gelu": other_gelu,
    "Relu for Gelu": relu_for_gelu,
    "rotary sign": replaced("Neg", "Identity"),
    "rotary sine": replaced("Sin", "Cos"),
    "causal offset": causal_offset,
    "residual dropped": residual(0),
    "residual doubled": residual(2),
    "bias dropped": initializer(("Add", "Gemm", "Conv"), 1, lambda b: b * 0),
    "bias 1.01": initializer(("Add", "Gemm", "Conv"), 1, lambda b: b * 1.01),
    "gamma 1.01": initializer(NORMS, 1, lambda g: g * 1.01),
    "gamma dropped": initializer(NORMS, 1, np.ones_like),
    "weight 1.002": initializer(PRODUCTS, 2, lambda w: w * 1.002),
    "scale of weights 1.01": scale_of_weights,
    "columns swapped": initializer(PRODUCTS, 2, columns_swapped),
    "weight in bfloat16": initializer(PRODUCTS, 2, lambda w: w.astype(ml_dtypes.bfloat16)),
    "clipped": clipped,
    "shifted": shifted,
}
"""Each changes the first place that it knows, and tells whether there is one."""


def planted(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    model = copy.deepcopy(model)
    declared = {item.name for item in model.graph.value_info}
    for name, kind in element_types(model).items():
        if name not in declared:
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, None))
    for name, plant in FAULTS.items():
        other = copy.deepcopy(model)
        if plant(other.graph):
            yield name, other


# -- the table -----------------------------------------------------------------------------------


def measure(
    path: Path,
    kind: str,
    counts: Counter[str],
    tell: Callable[[str], None],
    *,
    right_only: bool = False,
) -> None:
    """Count right pairs refused and planted faults accepted of one model in one type."""
    model = onnx.load(path)
    dtype = TYPES[kind]
    if dtype is not None:
        model = rounded(model, dtype)
    try:
        baseline = baseline_of(model, kind)
    except Exception as error:  # noqa: BLE001 - a model that has no such form is left out
        tell(f"{path.stem} {kind}: left out: {str(error)[:120]}")
        return
    for enabled in ((), ort_passes()):
        result, report = host(*enabled, disabled=() if dtype is None else FOLDING).run(
            copy.deepcopy(model)
        )
        if not any(record.replaced for record in report.passes):
            continue
        match = baseline.against(in_type(result, dtype))
        counts[f"{kind} right"] += 1
        if not match.equal:
            counts[f"{kind} refused"] += 1
            tell(f"{path.stem} {kind} {'all' if enabled else 'default'}: {match.summary()}")
    for name, other in () if right_only else planted(model):
        try:
            if same_outputs(model, other, baseline):
                continue
        except GehostError as error:
            tell(f"{path.stem} {kind} {name}: left out: {str(error)[:200]}")
            continue
        match = baseline.against(in_type(other, dtype))
        counts[f"{kind} planted"] += 1
        if match.equal:
            counts[f"{kind} accepted"] += 1
            tell(f"{path.stem} {kind} {name}: {match.summary()}")


def baseline_of(model: onnx.ModelProto, kind: str) -> Baseline:
    dtype = TYPES[kind]
    feeds = feeds_of(model)
    if dtype is not None:
        half = onnx.helper.tensor_dtype_to_np_dtype(dtype)
        feeds = [
            {n: a.astype(half) if a.dtype == np.float32 else a for n, a in feed.items()}
            for feed in feeds
        ]
    return Baseline.of(in_type(model, dtype), feeds)


def same_outputs(model: onnx.ModelProto, other: onnx.ModelProto, baseline: Baseline) -> bool:
    """Whether a fault shows nowhere in float32, as where a mask is all ones."""
    first, second = Runner(widened(model)), Runner(widened(other))
    for feeds, _ in baseline.runs:
        wide = {n: a.astype(np.float32) if "float" in a.dtype.name else a for n, a in feeds.items()}
        a, b = first.run(wide), second.run(wide)
        if not all(np.array_equal(a[name], b[name], equal_nan=True) for name in a):
            return False
    return True


def main(arguments: list[str]) -> None:
    right_only = "--right" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--right"] or MODELS
    counts: Counter[str] = Counter()
    for path in paths:
        kinds = (AS_WRITTEN,) if right_only else kinds_of(onnx.load(path))
        for kind in kinds:
            measure(path, kind, counts, lambda line: print(line, flush=True), right_only=right_only)
    print("| type | right: refused | planted: accepted |\n|---|---|---|")
    for kind in TYPES:
        right, false = (
            f"{counts[f'{kind} {a}']} of {counts[f'{kind} {b}']}"
            for a, b in (("refused", "right"), ("accepted", "planted"))
        )
        print(f"| {kind} | {right} | {false} |")


if __name__ == "__main__":
    main(sys.argv[1:])
