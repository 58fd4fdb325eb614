"""Which nodes of a graph keep float32 in a conversion to float16, and why.

Half holds numbers up to 65504, whole ones up to 2048, with eleven bits. What is larger, smaller or
exact stays in float32: positions and masks, squares and what is made of them, epsilons, angles,
and the chains that ONNX Runtime turns into integer kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data

from gehost.half.names import handed_out, has_body, states_of
from gehost.ir.attributes import attribute_value
from gehost.ir.bodies import bodies_of

FLOAT = onnx.TensorProto.FLOAT
LARGEST = 65504.0
CLOSE = LARGEST / 2
"""Where another order of sums or the rounding of factors may lead beyond half's range."""
SMALLEST_NORMAL = 2.0**-14
FILL = 1e9
"""Constants from here on stand for infinity, as masks use them."""

MOVES = frozenset(
    ("Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Slice")
).union(("Split", "Expand", "Tile"))
TABLES = frozenset(("Gather", "GatherElements", "GatherND"))
_SIZES = frozenset(("Shape", "Size"))
PRODUCTS = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"))
_INTEGER = frozenset(
    ("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QuantizeLinear", "DequantizeLinear")
)
_SQUARES = frozenset(("CumSum", "Exp", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"))
"""Operators whose results are large, or are subtracted from each other."""
ANGLES = frozenset(("Cos", "Sin", "Tan"))
_STILL_WIDE = MOVES.union(
    ("Abs", "Add", "Clip", "Div", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal", "ReduceMax")
).union(("ReduceMean", "ReduceSum", "Sqrt", "Sub", "Sum"))
"""Operators whose result is as large or as small as the wide numbers that they read."""
MOST_SCALES = 1 << 16
"""Elements of a constant that may be an epsilon or a fill; larger ones are weights."""

_NOTHING = np.zeros(0, np.float32)

POSITION = "positions and masks"
SQUARE = "squares and exponentials"
QUANTIZED = "chains of integer kernels"
EPSILON = "constants too small for float16"
LARGE = "constants too large for float16"
ANGLE = "angles"
LOG = "logarithms and arcs"
ASKED = "asked for"
WHOLE = "functions, of which one call needs it"
BODY = "bodies, which leave float16's range or lose too much in it"
RANGE = "numbers outside of float16's range"
CRASH = "transposes at which ONNX Runtime's optimizer ends the process"
UNKNOWN = "operators without float16, or of unknown types"


@dataclass
class Origins:
    """What the values of a model are made of; a body sees those of the graphs around it."""

    constants: dict[str, np.ndarray[Any, Any]] = field(
        default_factory=dict[str, "np.ndarray[Any, Any]"]
    )
    """Constants of float32, by name."""
    narrow: dict[str, str] = field(default_factory=dict[str, str])
    """Why half lacks the numbers of what only moves constants."""
    moved: set[str] = field(default_factory=set[str])
    """Constants, and what only moves them."""
    positions: set[str] = field(default_factory=set[str])
    """Made of integers, booleans and constants."""
    fills: set[str] = field(default_factory=set[str])
    """Values that may hold a finite fill beyond half's range."""
    infinite: set[str] = field(default_factory=set[str])
    """Values that may hold an infinity."""
    wide: set[str] = field(default_factory=set[str])
    """Values that need float32's range; their readers compute in it."""
    outside: set[str] = field(default_factory=set[str])
    """Values whose numbers leave half's range."""
    carried: set[str] = field(default_factory=set[str])
    """What bodies take and give in float32, though the rest of them is half; of all copies."""

    def copy(self) -> Origins:
        """Return the same, to be added to apart."""
        return Origins(
            dict(self.constants),
            dict(self.narrow),
            set(self.moved),
            set(self.positions),
            set(self.fills),
            set(self.infinite),
            set(self.wide),
            set(self.outside),
            self.carried,
        )


def is_fill(array: np.ndarray[Any, Any]) -> bool:
    """Whether all numbers beyond half's range stand for infinity."""
    beyond = np.abs(array[np.isfinite(array) & (np.abs(array) > LARGEST)])
    return bool(beyond.size) and float(beyond.min()) >= FILL


def reasons(
    nodes: Sequence[onnx.NodeProto],
    types: Mapping[str, int],
    origins: Origins,
    keeps: Callable[[onnx.NodeProto, Origins], str],
    outside: frozenset[str],
    exact: Mapping[str, str],
) -> list[str]:
    """Return for each node why it computes in float32, "" where it computes in half.

    Args:
        nodes: of one graph.
        types: element types of values; others are not tensors, or unknown.
        origins: of the constants and of values outside; filled in.
        keeps: the reason of an operator by itself or by what it reads, or "".
        outside: values whose numbers leave half's range.
        exact: reasons of values that must not be rounded.
    """
    origins.outside.update(outside)
    results: list[str] = []
    for node in nodes:
        why = keeps(node, origins) or _by_types(node, types)
        is_wide = why == UNKNOWN or not origins.wide.isdisjoint(node.input)
        if why and (node.op_type in _SQUARES or (is_wide and node.op_type in _STILL_WIDE)):
            origins.wide.update(node.output)
        beyond = not origins.outside.isdisjoint((*node.input, *node.output))
        if not why and (beyond or node.domain in ("", "ai.onnx")):
            why = _by_numbers(node, types, origins)
        elif not why and not origins.positions.isdisjoint(node.input):
            reads, writes = _floats(node.input, types), _floats(node.output, types)
            if writes and _is_position(node, reads, types, origins):  # a call
                origins.positions.update(writes)
                why = POSITION
        results.append(why or next((exact[name] for name in node.output if name in exact), ""))
        if not results[-1] and has_body(node):
            _look_into_bodies(node, types, origins, keeps)
    _add_neighbours(nodes, types, results)
    return results


def _look_into_bodies(
    node: onnx.NodeProto,
    types: Mapping[str, int],
    origins: Origins,
    keeps: Callable[[onnx.NodeProto, Origins], str],
) -> None:
    """Note what the bodies of a node make of integers and constants alone, and what is wide.

    A state is made so where its first value is, and what the body makes of that.
    """
    constant = origins.moved | origins.positions
    states = [held for held in states_of(node) if held.first in constant]
    for held in states_of(node):
        _inherit([held.first], [held.inner], origins)
    made, wide, fills, infinite = set[str](), set[str](), set[str](), set[str]()
    while True:
        for body in bodies_of(node):
            inner = origins.copy()
            inner.positions.update(held.inner for held in states)
            _add_constants(body, inner)
            reasons(body.node, types, inner, keeps, frozenset(), {})
            made.update(name for name in inner.positions if name not in constant)
            wide |= inner.wide
            fills |= inner.fills
            infinite |= inner.infinite
        remaining = [held for held in states if held.made in made]
        if len(remaining) == len(states):
            break
        states, made = remaining, set[str]()
    origins.positions.update(_handed_out(node, made, types), (held.inner for held in states))
    origins.wide.update(_handed_out(node, wide, types))
    origins.fills.update(_handed_out(node, fills, types))
    origins.infinite.update(_handed_out(node, infinite, types))
    origins.carried.update(_handed_out(node, made | wide, types))


def _handed_out(node: onnx.NodeProto, names: set[str], types: Mapping[str, int]) -> list[str]:
    """Return the results of floats that bodies make as one of some values."""
    return _floats([item for item, made in handed_out(node) if not names.isdisjoint(made)], types)


def _add_constants(graph: onnx.GraphProto, origins: Origins) -> None:
    for node in graph.node:
        array = constant_of(node)
        if array is not None:
            origins.constants[node.output[0]] = array
            origins.moved.add(node.output[0])
    for tensor in graph.initializer:
        if tensor.data_type == FLOAT and not uses_external_data(tensor):
            origins.constants[tensor.name] = onnx.numpy_helper.to_array(tensor)
            origins.moved.add(tensor.name)


def _floats(names: Sequence[str], types: Mapping[str, int]) -> list[str]:
    return [name for name in names if types.get(name) == FLOAT]


def _by_types(node: onnx.NodeProto, types: Mapping[str, int]) -> str:
    bodies = any(a.HasField("g") or a.graphs for a in node.attribute)
    unknown = any(name and name not in types for name in (*node.input, *node.output))
    return UNKNOWN if unknown and not bodies else ""


def _by_numbers(node: onnx.NodeProto, types: Mapping[str, int], origins: Origins) -> str:
    reads, writes = _floats(node.input, types), _floats(node.output, types)
    if not writes and not reads:
        return ""
    if node.op_type == "ConstantOfShape" and (why := _by_constants([_fill_of(node)])):
        origins.moved.update(writes)
        origins.narrow.update(dict.fromkeys(writes, why))
        return why
    if node.op_type == "Constant":
        if constant_of(node) is not None:
            return ""
        origins.moved.update(writes)  # an attribute of a function
        return POSITION
    if node.op_type in MOVES and reads and origins.moved.issuperset(reads):
        origins.moved.update(writes)
        _inherit(reads, writes, origins)
        narrow = [origins.narrow[name] for name in reads if name in origins.narrow]
        narrow += [
            why for name in reads if (why := too_wide(origins.constants.get(name, _NOTHING)))
        ]
        origins.narrow.update((name, narrow[0]) for name in writes if narrow)
        return RANGE if not origins.outside.isdisjoint(writes) else narrow[0] if narrow else ""
    # what a body reads around it is none of its inputs
    if writes and not has_body(node) and _is_position(node, reads, types, origins):
        origins.positions.update(writes)
        _inherit(reads, writes, origins)
        return POSITION
    counts = origins.moved.issuperset(reads) or not origins.positions.isdisjoint(reads)
    if counts and not writes and node.op_type not in _SIZES and not has_body(node):
        return POSITION  # an index, or a comparison of positions
    beyond = not origins.outside.isdisjoint((*reads, *writes))
    why = _by_width(node, reads, writes, origins, beyond=beyond)
    return RANGE if beyond else why


def _by_width(
    node: onnx.NodeProto,
    reads: Sequence[str],
    writes: Sequence[str],
    origins: Origins,
    *,
    beyond: bool,
) -> str:
    """Return whether a node needs float32's range; note whether its results do."""
    if not origins.wide.isdisjoint(reads) and (beyond or node.op_type not in PRODUCTS):
        constant = origins.moved | origins.positions
        if node.op_type in _STILL_WIDE and (origins.wide | constant).issuperset(reads):
            both = all(name in origins.wide for name in reads) and len(reads) > 1
            if node.op_type != "Div" or not both:
                origins.wide.update(writes)
        return SQUARE
    if _is_square(node, origins):
        origins.wide.update(writes)
        return SQUARE
    why = _by_constants([*_bounds(node), *(origins.constants.get(name) for name in reads)])
    why = why or next((origins.narrow[name] for name in reads if name in origins.narrow), "")
    if why:
        origins.wide.update(writes)
    return why


def _fill_of(node: onnx.NodeProto) -> np.ndarray[Any, Any] | None:
    """Return the number of a ConstantOfShape."""
    arrays = [
        onnx.numpy_helper.to_array(entry.t) for entry in node.attribute if entry.name == "value"
    ]
    return arrays[0] if arrays else None


def _inherit(reads: Sequence[str], writes: Sequence[str], origins: Origins) -> None:
    for name in reads:
        array = origins.constants.get(name, _NOTHING)
        if array.size > MOST_SCALES:
            array = _NOTHING
        if name in origins.fills or is_fill(array):
            origins.fills.update(writes)
        if name in origins.infinite or bool(np.isinf(array).any()):
            origins.infinite.update(writes)


def _is_position(
    node: onnx.NodeProto, reads: Sequence[str], types: Mapping[str, int], origins: Origins
) -> bool:
    """Whether a node makes floats of integers, booleans and constants alone."""
    if node.op_type in TABLES or node.op_type in _INTEGER:
        return bool(reads) and origins.positions.issuperset(reads)
    entry = origins.moved | origins.positions
    if not entry.issuperset(reads):
        return False
    if node.op_type in PRODUCTS:
        matrices = (origins.constants.get(name) for name in reads)
        return not any(
            array is not None and sum(size > 1 for size in array.shape) > 1 for array in matrices
        )
    if node.op_type == "Cast":
        return bool(node.input) and types.get(node.input[0]) not in FLOATS
    return bool(reads) or node.op_type == "Range"


FLOATS = (FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


def _is_square(node: onnx.NodeProto, origins: Origins) -> bool:
    if node.op_type in _SQUARES:
        return True
    if node.op_type == "Mul":
        return node.input[0] == node.input[1]
    if node.op_type == "Pow":
        exponent = origins.constants.get(node.input[1])
        return exponent is None or bool((np.abs(exponent) > 1).any())
    return False


def _by_constants(arrays: Sequence[np.ndarray[Any, Any] | None]) -> str:
    for array in arrays:
        if array is not None and (why := too_wide(array)):
            return why
    return ""


def too_wide(array: np.ndarray[Any, Any]) -> str:
    """Return why the numbers of a constant are none of half, or ""."""
    size = float(np.nan_to_num(np.abs(array), posinf=0.0).max(initial=0.0))
    if size > LARGEST and not is_fill(array):
        return LARGE
    return EPSILON if 0 < size < SMALLEST_NORMAL and array.size <= MOST_SCALES else ""


def _bounds(node: onnx.NodeProto) -> list[np.ndarray[Any, Any]]:
    """Return the numbers that a Clip or Pad of an old opset has as attributes."""
    if node.op_type not in ("Clip", "Pad"):
        return []
    return [
        np.array([a.f], np.float32) for a in node.attribute if a.name in ("min", "max", "value")
    ]


def _add_neighbours(
    nodes: Sequence[onnx.NodeProto], types: Mapping[str, int], results: list[str]
) -> None:
    """Add angles and the nodes around integer kernels."""
    integer = any(node.op_type in _INTEGER for node in nodes)
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    quantized: dict[str, bool] = {}
    """Floats that come from integer kernels; True: of a product, whose scale and bias follow."""
    for index, node in enumerate(nodes):
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type in ANGLES and not results[index]:
            results[index] = ANGLE
        if not integer:
            continue
        sources = [quantized[name] for name in node.input if name in quantized]
        if node.op_type == "Cast" and _makes(
            nodes, producer, node, ("MatMulInteger", "ConvInteger")
        ):
            sources.append(True)
        if node.op_type in ("DequantizeLinear", "DynamicQuantizeLinear"):
            quantized.update(dict.fromkeys(_floats(node.output, types), False))
        # scale and bias of the product end here
        if any(sources) and node.op_type not in MOVES.union(("Add", "Cast", "Mul")):
            continue
        if sources and not results[index]:
            results[index] = QUANTIZED
        scaled = any(sources) and node.op_type in ("Cast", "Mul")
        if scaled or (sources and node.op_type in MOVES):
            quantized.update(dict.fromkeys(_floats(node.output, types), any(sources)))
    if integer:
        _add_before_quantize(nodes, producer, results)


def _makes(
    nodes: Sequence[onnx.NodeProto],
    producer: Mapping[str, int],
    node: onnx.NodeProto,
    ops: Collection[str],
) -> bool:
    return any(name in producer and nodes[producer[name]].op_type in ops for name in node.input)


def _add_before_quantize(
    nodes: Sequence[onnx.NodeProto], producer: Mapping[str, int], results: list[str]
) -> None:
    waiting = [node.input[0] for node in nodes if node.op_type == "QuantizeLinear"]
    while waiting:
        index = producer.get(waiting.pop())
        if index is None:
            continue
        node = nodes[index]
        if node.domain not in ("", "ai.onnx"):
            continue
        results[index] = results[index] or QUANTIZED
        if node.op_type in MOVES:
            waiting.append(node.input[0])


def constant_of(node: onnx.NodeProto) -> np.ndarray[Any, Any] | None:
    """Return the float32 array of a Constant, None of other nodes and types."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    for entry in node.attribute:
        if entry.ref_attr_name:
            return None
        if entry.name == "value" and entry.t.data_type == FLOAT:
            return onnx.numpy_helper.to_array(entry.t)
        if entry.name in ("value_float", "value_floats"):
            return np.asarray(attribute_value(entry), np.float32)
    return None
