"""The largest number of each float32 value on feeds, measured while the model runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.half.reasons import (
    FLOAT,
    LARGEST,
    PRODUCTS,
    SMALLEST_NORMAL,
    constant_of,
    is_fill,
)
from gehost.half.weights import default_opset
from gehost.ir.bodies import captures, graphs_of
from gehost.ir.files.external import element_count
from gehost.ir.tensors import from_numpy, to_numpy
from gehost.verify.retype import element_types
from gehost.verify.run import Runner

_LARGEST_OF = "gehost largest of "
_LIMIT = 1e30
"""Numbers from here on are fills, whatever constants the model has."""
_WHERE = 9
"""The first opset with Where; values of older models are fetched, and measured here."""
_NAMED = 6
"""Values that lines name."""
_MOST = 1 << 16
"""Elements of a constant that may be a fill."""

Feed = Mapping[str, np.ndarray[Any, Any]]


def ranges(
    model: onnx.ModelProto,
    feeds: Sequence[Feed],
    base_dir: str | None = None,
    limit: float = LARGEST,
    *,
    exact_outputs: bool = False,
) -> tuple[set[str], list[str]]:
    """Return the values that leave half's range on feeds, and a line for each.

    Fills of masks, which stand for infinity, do not count. Bodies and functions are not looked
    into.

    Args:
        model: of float32.
        feeds: what to run it with.
        base_dir: of its external data.
        limit: the largest number that half is used for.
        exact_outputs: count fills that are in an output, and what hands them there.

    Raises:
        ModelError: it does not run.
    """
    if not feeds:
        return set(), []
    types = element_types(model)
    producer = {name: node for node in model.graph.node for name in node.output}
    names = [name for name in producer if name and types.get(name) == FLOAT]
    names += [info.name for info in model.graph.input if types.get(info.name) == FLOAT]
    if not names:
        return set(), []
    products = {name for name in producer if producer[name].op_type in PRODUCTS}
    fills = _fills(model, base_dir)
    largest, beyond = _largest_numbers(model, feeds, names, products, fills, base_dir)
    outside: set[str] = set()
    lines: list[str] = []
    for name, number in largest.items():
        is_normal = number <= limit and not 0 < number < SMALLEST_NORMAL
        if is_normal or (name in producer and constant_of(producer[name]) is not None):
            continue  # constants have rules of their own
        outside.add(name)
        node = producer.get(name)
        place = f'{node.op_type} "{node.name or name}"' if node is not None else f'input "{name}"'
        side = "below float16's normal numbers"
        if number > limit:
            side = "above 65504" if number > LARGEST else "close to 65504"
        lines.append(f"half: {place} reaches {number:.3g}, {side}: kept in float32")
    if len(lines) > _NAMED:
        lines[_NAMED:] = [f"half: {len(lines) - _NAMED} more leave float16's range likewise"]
    waiting = list(beyond - outside) if exact_outputs else []
    if waiting:
        whole, _ = _largest_numbers(model, feeds, names, names, (), base_dir)
        while waiting:
            name = waiting.pop()
            if name not in outside and whole.get(name, 0) > LARGEST:
                outside.add(name)
                if name in producer:
                    waiting += (*producer[name].input, *captures(producer[name]))
    return outside, lines


def _largest_numbers(
    model: onnx.ModelProto,
    feeds: Sequence[Feed],
    names: Sequence[str],
    products: Collection[str],
    fills: Sequence[float],
    base_dir: str | None,
) -> tuple[dict[str, float], set[str]]:
    """Return the largest number of each value, but for fills, and outputs beyond half's range.

    A product is no fill, however large.
    """
    measured = onnx.ModelProto()
    measured.CopyFrom(model)
    # ONNX Runtime refuses constants that are no inputs and unread before IR version 4
    measured.ir_version = max(4, model.ir_version)
    is_old = default_opset(model) < _WHERE
    if is_old:
        _fetch(measured.graph, names)
    else:
        _measure(measured.graph, names, fills, products)
    runner = Runner(measured, base_dir=base_dir)
    largest, beyond = dict.fromkeys(names, 0.0), set[str]()
    for feed in feeds:
        results = runner.run(feed)
        for name in names:
            if is_old:
                limit = np.inf if name in products else _LIMIT
                number = _largest(results[name], limit=limit, fills=fills)
            else:
                number = float(results[f"{_LARGEST_OF}{name}"])
            largest[name] = max(largest[name], number if np.isfinite(number) else 0.0)
        for info in model.graph.output:
            if info.name in largest and _largest(results[info.name]) > LARGEST:
                beyond.add(info.name)
    return largest, beyond


def _fills(model: onnx.ModelProto, base_dir: str | None) -> list[float]:
    """Return the sizes of the constants that stand for infinity."""
    results: set[float] = set()
    for graph in graphs_of(model):
        arrays = [constant_of(node) for node in graph.node]
        arrays += [
            to_numpy(tensor, base_dir)
            for tensor in graph.initializer
            if tensor.data_type == FLOAT and element_count(tensor) <= _MOST
        ]
        for array in arrays:
            if array is not None and is_fill(array):
                results.add(float(np.nan_to_num(np.abs(array), posinf=0.0).max()))
    return sorted(results)


def _fetch(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Make outputs of values."""
    outputs = {info.name for info in graph.output}
    graph.output.extend(
        onnx.helper.make_tensor_value_info(name, FLOAT, None)
        for name in names
        if name not in outputs
    )


def _largest(
    array: np.ndarray[Any, Any], *, limit: float = np.inf, fills: Sequence[float] = ()
) -> float:
    """Return what ``_measure`` computes in the model."""
    sizes = np.abs(array).ravel()
    sizes = sizes[sizes < limit]
    for fill in fills:
        if fill < _LIMIT:
            sizes = sizes[np.abs(sizes - fill) >= fill * 1e-3]
    return float(sizes.max(initial=0))


def _measure(
    graph: onnx.GraphProto, names: Sequence[str], fills: Sequence[float], products: Collection[str]
) -> None:
    """Add the largest number of each value, but for fills, to the outputs of a graph.

    A product is none, however large. The graph's own outputs stay: a Scan needs their declared
    sizes, and ONNX Runtime 1.31 loses some values that a body reads and that are no output.
    """
    numbers = {"zero": 0.0, "limit": _LIMIT, "infinity": np.inf}
    for place, fill in enumerate(operand for operand in fills if operand < _LIMIT):
        numbers |= {f"fill {place}": fill, f"near {place}": fill * 1e-3}
    for name, number in numbers.items():
        array = np.array(number, np.float32)
        graph.initializer.append(from_numpy(array, f"{_LARGEST_OF}({name})"))

    def add(op: str, inputs: Sequence[str], result: str, **attributes: Any) -> str:
        names = [
            operand if operand in results else f"{_LARGEST_OF}({operand})" for operand in inputs
        ]
        graph.node.append(onnx.helper.make_node(op, names, [result], **attributes))
        results.add(result)
        return result

    for name in names:
        results = {name}
        size = add("Abs", [name], f"{_LARGEST_OF}|{name}")
        limit = "infinity" if name in products else "limit"
        fits = add("Less", [size, limit], f"{_LARGEST_OF}<{name}")
        retained = add("Where", [fits, size, "zero"], f"{_LARGEST_OF}={name}")
        for place in range((len(numbers) - 3) // 2):
            stem = f"{_LARGEST_OF}{place} {name}"
            off = add("Sub", [retained, f"fill {place}"], f"{stem}-")
            distance = add("Abs", [off], f"{stem}|")
            near = add("Less", [distance, f"near {place}"], f"{stem}<")
            retained = add("Where", [near, "zero", retained], f"{stem}=")
        result = add("ReduceMax", [retained], f"{_LARGEST_OF}{name}", keepdims=0)
        graph.output.append(onnx.helper.make_tensor_value_info(result, FLOAT, []))
