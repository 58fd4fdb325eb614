"""The largest number of each float32 value on feeds, measured while the model runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.half.reasons import FILL, FLOAT, LARGEST, SMALLEST_NORMAL
from gehost.ir.tensors import from_numpy
from gehost.verify.retype import element_types
from gehost.verify.run import Runner

_LARGEST_OF = "gehost largest of "


def ranges(
    model: onnx.ModelProto,
    feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]],
    base_dir: str | None = None,
) -> tuple[set[str], list[str]]:
    """Return the values that leave half's range on feeds, and a line for each.

    Fills of masks, which stand for infinity, do not count. Bodies and functions are not looked
    into.

    Args:
        model: of float32.
        feeds: what to run it with.
        base_dir: of its external data.

    Raises:
        ModelError: it does not run.
    """
    if not feeds:
        return set(), []
    types = element_types(model)
    measured = onnx.ModelProto()
    measured.CopyFrom(model)
    producer = {name: node for node in model.graph.node for name in node.output}
    names = [name for name in producer if name and types.get(name) == FLOAT]
    names += [info.name for info in model.graph.input if types.get(info.name) == FLOAT]
    _measure(measured.graph, names)
    runner = Runner(measured, base_dir=base_dir)
    largest = dict.fromkeys(names, 0.0)
    for feed in feeds:
        results = runner.run(feed)
        for name in names:
            number = float(results[f"{_LARGEST_OF}{name}"])
            largest[name] = max(largest[name], number if np.isfinite(number) else 0.0)
    outside: set[str] = set()
    lines: list[str] = []
    for name, number in largest.items():
        if number <= LARGEST and not 0 < number < SMALLEST_NORMAL:
            continue
        outside.add(name)
        node = producer.get(name)
        place = f'{node.op_type} "{node.name or name}"' if node is not None else f'input "{name}"'
        side = "above 65504" if number > LARGEST else "below float16's normal numbers"
        lines.append(f"half: {place} reaches {number:.3g}, {side}: kept in float32")
    return outside, lines


def _measure(graph: onnx.GraphProto, names: Sequence[str]) -> None:
    """Replace the outputs of a graph by the largest number of each value."""
    del graph.output[:]
    zero, limit = f"{_LARGEST_OF}(zero)", f"{_LARGEST_OF}(limit)"
    for name, number in ((zero, 0.0), (limit, FILL)):
        graph.initializer.append(from_numpy(np.array(number, np.float32), name))
    for name in names:
        size, fits, kept, result = (f"{_LARGEST_OF}{part}{name}" for part in ("|", "<", "=", ""))
        flat = f"{_LARGEST_OF}~{name}"
        graph.node.extend(
            (
                onnx.helper.make_node("Abs", [name], [size]),
                onnx.helper.make_node("Less", [size, limit], [fits]),
                onnx.helper.make_node("Where", [fits, size, zero], [kept]),
                onnx.helper.make_node("ReduceMax", [kept], [flat], keepdims=0),
                onnx.helper.make_node("Identity", [flat], [result]),
            )
        )
        graph.output.append(onnx.helper.make_tensor_value_info(result, FLOAT, []))
