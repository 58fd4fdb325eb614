"""Which values of a model must not be rounded to float16, by what they become.

Each is followed up, also into bodies and functions and out of them:

- *Angles and numbers that become integers* (Sin, a cast to integers, boxes, grids, scales, the end
  of a Loop): through all operators of floats, up to learned layers: norms, and products with
  weights. A Softmax and a product with few weights end the walk, and are float32 themselves.
- *Logarithms*: through what is linear, which includes the filters of a spectrum and its transform,
  to the first other operator, as Sigmoid, which is float32 itself.
- *Means whose square is taken from a mean of squares*: through what adds up and scales.

The state of a Loop or Scan that becomes one is float32 between steps; the rest of its body is half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx

from gehost.half.names import has_body
from gehost.half.operators import key_of
from gehost.half.places import NORMS, Place, Places
from gehost.half.reasons import (
    ANGLE,
    ANGLES,
    FLOATS,
    LOG,
    MOVES,
    POSITION,
    PRODUCTS,
    SQUARE,
    TABLES,
)
from gehost.ir.bodies import bodies_of
from gehost.ir.types import DataType

_SCALED = (
    TABLES.union(MOVES)
    .union(("AveragePool", "Cast", "Div", "GlobalAveragePool", "Mul", "Neg", "ReduceMean"))
    .union(("ReduceSum", "Where"))
)
"""Operators that add up and scale."""
_LINEAR = _SCALED.union(
    ("Abs", "Add", "CastLike", "Clip", "Max", "Mean", "Min", "Pad", "Pow", "Reciprocal")
).union(("ReduceL2", "ReduceMax", "ReduceMin", "ReduceSumSquare", "Sqrt", "Sub", "Sum"))
_MOST_FILTERS = 1 << 18
"""Elements of the matrix that makes bands of a spectrum, or of that of a short transform."""

_MOST_AXES = 16
"""Axes of a place, as a matrix turns it; layers read more."""
_MOST_OF_FILTER = 64
"""Elements of a kernel that smooths one channel, or makes one of a few."""

_PLACES = {
    "NonMaxSuppression": (0,),
    "RoiAlign": (1,),
    "MaxRoiPool": (1,),
    "GridSample": (1,),
    "OneHot": (0,),
    "Range": (0, 1, 2),
    "Resize": (1, 2),
    "Upsample": (1,),
}
"""Inputs of operators: places in a plane, and counts."""
_SELECTIONS = frozenset(
    ("ArgMax", "ArgMin", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod")
).union(("Sub", "TopK", "Unique"))
"""Operators whose result may hang on the last bits of what is entered, or scale it."""
_LOGS = frozenset(("Acos", "Acosh", "Asin", "Atanh", "Log"))
"""Operators that are steep somewhere."""
_SUMS = frozenset(("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"))
_STEPS = 12
"""Nodes between a sum of squares and what it is added to, in which it is looked for."""
_READ_BOTH = ("MaxRoiPool", "OneHot")
"""Those that have one type for places and features."""

_INTEGERS = frozenset(
    int(kind) for kind in DataType if "INT" in kind.name or kind == DataType.STRING
)
"""Types that show each rounding; a text is made of digits."""


class Exact:
    """The values of a model that must not be rounded."""

    def __init__(
        self,
        model: onnx.ModelProto,
        functions: Mapping[str, onnx.FunctionProto],
        types: Mapping[str, int],
        *,
        keep_io: bool,
    ) -> None:
        self.results: Mapping[str, dict[str, str]] = defaultdict(dict)
        """Why nodes that make them keep float32: by function, "" for the graph, and result."""
        self.slots: Mapping[str, set[int]] = defaultdict(set)
        """The inputs of each function that must not be rounded."""
        self.functions: set[str] = set()
        """Those that make such values, which stay float32 whole."""
        self.carried: Mapping[str, set[str]] = defaultdict(set)
        """What Loops and Scans take, hold and give in float32, by function."""
        self._functions = functions
        self._types = types
        self._places = Places(model, functions, types)
        self._keep_io = keep_io
        """Whether inputs are entered in float32."""
        self._waiting: list[tuple[Place, str]] = []
        for scope, node in self._places.nodes():
            if node.domain in ("", "ai.onnx"):
                self._start(scope, node)
        self.epsilons: dict[Place, np.ndarray[Any, Any]] = {}
        """Inputs of functions that are one number, which half lacks."""
        for key, function in functions.items():
            for slot, name in enumerate(function.input):
                array = self._places.epsilon((key, name))
                if array is not None:
                    self.epsilons[key, name] = array
                    self.slots[key].add(slot)
        visited: dict[str, set[Place]] = defaultdict(set)
        while self._waiting:
            place, why = self._waiting.pop()
            seen = visited[POSITION if why == ANGLE else why]  # both are followed alike
            if not place[1] or place in seen or place in visited[POSITION]:
                continue
            seen.add(place)
            if self._places.is_float(place):
                self._waiting += [(source, why) for source in self._follow(place, why)]
        self._add_differences(visited[POSITION])

    def is_number(self, function: str, name: str) -> bool:
        """Whether a function's value is made of integers and small constants in each call."""
        return self._places.is_number((function, name))

    def _start(self, scope: str, node: onnx.NodeProto) -> None:
        """Add what one of ONNX's operators must read in float32."""
        op, operands = node.op_type, [(scope, name) for name in node.input]
        for slot in _PLACES.get(op, ()):
            if slot < len(operands) and self._places.is_float(operands[slot]):
                self._waiting.append((operands[slot], POSITION))
                if op in _READ_BOTH:
                    self._mark(scope, node, POSITION)
        if op in ANGLES or op in _LOGS or self._to_integer(scope, node):
            why = ANGLE if op in ANGLES else LOG if op in _LOGS else POSITION
            self._mark(scope, node, why)
            self._waiting.append((operands[0], why))
        elif op in NORMS and self._is_entered(operands[:1]):
            self._mark(scope, node, POSITION)
            self._waiting.append((operands[0], POSITION))
        elif (op in _SELECTIONS or self._is_area(op, operands)) and self._is_entered(operands):
            self._mark(scope, node, POSITION)
            self._waiting += [(operand, POSITION) for operand in operands]
        elif op in ("Add", "Sub"):
            self._add_to_squares(operands)
        elif op == "Div":
            self._add_mean(scope, node)
        elif op == "Loop":
            for body in bodies_of(node):
                self._add_end((scope, body.output[0].name))

    def _is_area(self, op: str, operands: list[Place]) -> bool:
        """Whether numbers are multiplied or added up that are no constants and no masks."""
        return op in ("Add", "Mul") and not any(map(self._places.is_number, operands))

    def _is_entered(self, operands: list[Place]) -> bool:
        if not self._keep_io or any(scope for scope, _ in operands):
            return False  # a function may be a kernel, which has one type
        floats = [operand for operand in operands if self._places.is_float(operand)]
        return all(self._places.is_entered(operand) for operand in floats)

    def _mark(self, scope: str, node: onnx.NodeProto, why: str) -> None:
        self.results[scope].update(dict.fromkeys(node.output, why))

    def _to_integer(self, scope: str, node: onnx.NodeProto) -> bool:
        if node.op_type == "CastLike":  # the types inside of functions are not known yet
            return bool(scope) or self._types.get(node.input[1]) not in FLOATS
        return node.op_type == "Cast" and any(
            entry.name == "to" and (entry.i in _INTEGERS or bool(entry.ref_attr_name))
            for entry in node.attribute
        )

    def _add_to_squares(self, terms: list[Place]) -> None:
        """Add what is summed up with sums of squares: most of both may cancel out."""
        for place in terms:
            if any(self._is_sum_of_squares(other) for other in terms if other != place):
                square = self._squared(place)
                self._waiting.append((square or place, SQUARE))

    def _is_sum_of_squares(self, place: Place) -> bool:
        waiting, is_sum = [place], False
        for _ in range(_STEPS):
            if not waiting:
                break
            place = waiting.pop()
            if is_sum and self._squared(place):
                return True
            for node in self._places.makers(place):
                is_filter = self._smooths(place[0], node)
                is_sum |= is_filter or node.op_type in _SUMS
                if node.op_type == "ReduceSumSquare":
                    return True
                if is_filter or node.op_type in _SUMS.union(("Add", "Mul")).union(MOVES):
                    waiting += self._places.floats(place, node)
        return False

    def _smooths(self, scope: str, node: onnx.NodeProto) -> bool:
        """Whether a convolution filters each channel by itself."""
        kernel = self._places.shape((scope, node.input[1])) if node.op_type == "Conv" else None
        return kernel is not None and kernel[1] == 1

    def _squared(self, place: Place) -> Place | None:
        """Return what a value is the square of."""
        for node in self._places.makers(place):
            same = node.op_type == "Mul" and node.input[0] == node.input[1]
            if node.domain in ("", "ai.onnx") and (same or node.op_type == "Pow"):
                return place[0], node.input[0]
        return None

    def _add_mean(self, scope: str, node: onnx.NodeProto) -> None:
        """Add a mean that is written as a sum and a count: half may hold neither."""
        sums = [
            maker
            for maker in self._places.makers((scope, node.input[0]))
            if maker.op_type == "ReduceSum"
        ]
        count = (scope, node.input[1])
        if sums and (self._places.is_number(count) or self._is_entered([count])):
            for item in (node, *sums):
                self._mark(scope, item, POSITION)

    def _add_end(self, condition: Place) -> None:
        """Add the floats that a Loop's condition is made of: they decide how often it runs."""
        waiting, seen = [condition], {condition}
        while waiting:
            place = waiting.pop()
            if self._is_known_float(place):
                self._waiting.append((place, POSITION))
                continue
            sources = self._places.outside(place)
            for node in self._places.makers(place):
                inner = self._places.inside(place, node)
                if inner is None:
                    self.results[place[0]].setdefault(place[1], POSITION)
                    inner = [(place[0], name) for name in node.input if name]
                    if place[0]:  # in a function: any of them may be of floats
                        self._waiting += [(source, POSITION) for source in inner]
                sources += inner
            waiting += [source for source in sources if source not in seen]
            seen.update(sources)

    def _is_known_float(self, place: Place) -> bool:
        return not place[0] and self._types.get(place[1]) in FLOATS

    def _follow(self, place: Place, why: str) -> list[Place]:
        """Note the nodes that make a value; return what they make it of."""
        scope, name = place
        slot = self._places.slot(place)
        if slot is not None:
            self.slots[scope].add(slot)
        if self._places.owner(place):
            self.carried[scope].add(name)
        following = self._places.outside(place)
        for node in self._places.makers(place):
            inner = self._places.inside(place, node)
            sources = self._operands(place, node, why) if inner is None else self._made(inner, why)
            if sources is not None:
                self.results[scope][name] = why
                following += sources
                self.functions.update({key_of(node)}.intersection(self._functions))
        return following

    def _made(self, inner: list[Place], why: str) -> list[Place] | None:
        """Return what a function or body hands out, None where its makers may be half."""
        makers = [(place, node) for place in inner for node in self._places.makers(place)]
        for place, node in makers:
            if has_body(node) or key_of(node) in self._functions:
                return inner
            if self._operands(place, node, why) is not None:
                return inner
        return None

    def _operands(self, place: Place, node: onnx.NodeProto, why: str) -> list[Place] | None:
        """Return what a node makes a value of, None where it may be half."""
        sources = self._places.floats(place, node)
        if not sources:
            return None
        op = node.op_type
        if why == SQUARE:
            is_sum = op in _SCALED or self._smooths(place[0], node)
            return sources if is_sum else [] if op in PRODUCTS else None
        if op in PRODUCTS:
            is_small = any(self._places.is_number(operand) for operand in sources[:2])
            is_filter = self._is_filter(sources, op, why)
            if why == LOG and self._smooths(place[0], node):  # the transform of a signal
                is_filter = True
            return sources if is_filter else [] if is_small else None
        if op == "Softmax" or (why == LOG and op not in _LINEAR):
            return []
        return sources

    def _is_filter(self, operands: list[Place], op: str, why: str) -> bool:
        """Whether a product is of numbers, or moves places, and not of learned weights."""
        if why == LOG:
            shapes = [self._places.shape(operand) for operand in operands[:2]]
            return any(shape is not None and prod(shape) <= _MOST_FILTERS for shape in shapes)
        if op in ("Conv", "ConvTranspose"):
            kernel = self._places.shape(operands[1]) or ()
            return min(kernel[:2], default=0) == 1 and prod(kernel) <= _MOST_OF_FILTER
        return any(self._is_factor(operand) for operand in operands[:2])

    def _is_factor(self, operand: Place) -> bool:
        """Whether a factor moves or turns places; a layer has two long axes."""
        entered = self._places.entered_shape(operand)
        if entered is not None:
            return len(entered) > 1 and min(entered[-2:]) > 0 and max(entered[-2:]) <= _MOST_AXES
        shape = self._places.shape(operand) or ()
        is_layer = len(shape) > 1 and min(shape[-2:]) > _MOST_AXES
        return not is_layer and self._places.is_number(operand)

    def _add_differences(self, exact: set[Place]) -> None:
        """Add what is selected by numbers that are float32, or left of them."""
        for scope, node in self._places.nodes():
            if node.domain not in ("", "ai.onnx") or node.op_type not in _SELECTIONS:
                continue
            operands = [(scope, name) for name in node.input]
            floats = [operand for operand in operands if self._places.is_float(operand)]
            if not exact.isdisjoint(floats) and all(
                operand in exact or self._places.is_number(operand) for operand in floats
            ):
                for name in node.output:
                    self.results[scope].setdefault(name, POSITION)
