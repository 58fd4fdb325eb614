"""Which values of a model must not be rounded to float16: angles, and numbers that become integers.

They are followed up from each Sin, Cos, Tan, cast to integers, box, grid, scale, limit and end of a
Loop through what moves, computes, adds up and selects them, also into bodies and functions and out
of them, up to large weights and other operators. The state of a Loop or Scan that becomes one is
float32 between steps; the rest of its body is half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod
from typing import TypeAlias

import onnx

from gehost.half.names import handed_out, has_body, states_of
from gehost.half.reasons import (
    ANGLE,
    ANGLES,
    FLOATS,
    MOST_SCALES,
    MOVES,
    POSITION,
    PRODUCTS,
    TABLES,
    constant_of,
)
from gehost.ir.bodies import bodies_in, bodies_of, lists_of
from gehost.ir.node import op_name
from gehost.ir.types import DataType

_OF_ALL = frozenset(
    ("Add", "Concat", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow", "Sub", "Sum", "Where")
).union(PRODUCTS - {"Conv", "ConvTranspose"})
_OF_FIRST = (
    TABLES.union(MOVES - {"Concat"})
    .union(("Abs", "Cast", "CastLike", "Ceil", "Clip", "Compress", "CumSum", "DepthToSpace"))
    .union(("Exp", "Floor", "Log", "Neg", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax"))
    .union(("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu"))
    .union(("ReverseSequence", "Round", "SpaceToDepth", "Sqrt", "TopK", "Trilu", "Unique"))
)
_OF_FIRST_AND_THIRD = frozenset(("Pad", "ScatterElements", "ScatterND"))

_LOGIC = frozenset(("And", "Identity", "Not", "Or"))
_COMPARISONS = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))

_PLACES = {
    "NonMaxSuppression": (0,),
    "RoiAlign": (1,),
    "GridSample": (1,),
    "Range": (0, 1, 2),
    "Resize": (1, 2),
    "Upsample": (1,),
}
"""Inputs of operators that keep float32, or read these in it: places in a plane, and counts."""

_INTEGERS = frozenset(
    int(kind) for kind in DataType if "INT" in kind.name or kind == DataType.STRING
)
"""Types that show each rounding; a text is made of digits."""

_Place: TypeAlias = tuple[str, str]
"""A value: the function that has it, "" for the graph, and its name."""


class Exact:
    """The values of a model that must not be rounded."""

    def __init__(
        self,
        model: onnx.ModelProto,
        functions: Mapping[str, onnx.FunctionProto],
        types: Mapping[str, int],
    ) -> None:
        self.results: Mapping[str, dict[str, str]] = defaultdict(dict)
        """Why nodes that make them keep float32: by function, "" for the graph, and result."""
        self.slots: Mapping[str, set[int]] = defaultdict(set)
        """The inputs of each function that must not be rounded."""
        self.functions: set[str] = set()
        """Those that make such values, which stay float32 whole."""
        self.carried: Mapping[str, set[str]] = defaultdict(set)
        """What Loops and Scans take, hold and give in float32, by function."""
        self._owners: dict[_Place, tuple[onnx.NodeProto, int]] = {}
        """The Loop or Scan with the body that has an input, and its place."""
        self._functions = functions
        self._types = types
        self._producers: dict[_Place, list[onnx.NodeProto]] = defaultdict(list)
        self._calls: dict[str, list[tuple[str, onnx.NodeProto]]] = defaultdict(list)
        self._sizes: dict[_Place, int] = {}
        self._waiting: list[tuple[_Place, str]] = []
        for scope, nodes in {"": model.graph, **functions}.items():
            self._read(scope, nodes)
        for tensor in model.graph.initializer:
            self._sizes["", tensor.name] = prod(tensor.dims)
        for scope, nodes in {"": model.graph, **functions}.items():
            self._add_ends(scope, nodes)
        visited: set[_Place] = set()
        while self._waiting:
            place, why = self._waiting.pop()
            if place[1] and place not in visited:
                visited.add(place)
                self._waiting += [(source, why) for source in self._follow(*place, why)]
        self._add_differences(visited)

    def _add_differences(self, exact: set[_Place]) -> None:
        """Add what is left of numbers that are large: of one, and of two that are close."""
        for (scope, name), nodes in self._producers.items():
            for node in nodes:
                count = {"Mod": 1, "Sub": 2}.get(node.op_type, 0)
                terms = {(scope, term) for term in node.input[:count]}
                if terms and node.domain in ("", "ai.onnx") and exact.issuperset(terms):
                    self.results[scope].setdefault(name, POSITION)

    def _add_ends(self, scope: str, graph: onnx.GraphProto | onnx.FunctionProto) -> None:
        """Add what Loops compare: it decides how often they run."""
        loops = [node for nodes in lists_of(graph.node) for node in nodes if node.op_type == "Loop"]
        waiting = [body.output[0].name for node in loops for body in bodies_of(node)]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            for node in self._producers[scope, name] if name not in seen else ():
                if node.op_type in _LOGIC:
                    waiting += node.input
                elif node.op_type in _COMPARISONS:
                    self.results[scope][name] = POSITION
                    self._waiting += [((scope, item), POSITION) for item in node.input]
            seen.add(name)

    def _read(self, scope: str, graph: onnx.GraphProto | onnx.FunctionProto) -> None:
        for body in bodies_in(graph.node):
            for tensor in body.initializer:
                self._sizes[scope, tensor.name] = prod(tensor.dims)
        for nodes in lists_of(graph.node):
            for node in nodes:
                array = constant_of(node)
                for name in node.output:
                    self._producers[scope, name].append(node)
                    if array is not None:
                        self._sizes[scope, name] = array.size
                for body in bodies_of(node):
                    before = max(0, len(node.input) - len(body.input))  # of a Scan of opset 8
                    for slot, info in enumerate(body.input, before):
                        self._owners[scope, info.name] = node, slot
                key = op_name(node.domain, node.op_type, node.overload)
                if key in self._functions:
                    self._calls[key].append((scope, node))
                elif node.domain in ("", "ai.onnx"):
                    self._start(scope, node)

    def _start(self, scope: str, node: onnx.NodeProto) -> None:
        slots = _PLACES.get(node.op_type, ())
        self._waiting += [((scope, node.input[i]), POSITION) for i in slots if i < len(node.input)]
        why = ANGLE if node.op_type in ANGLES else POSITION if self._to_integer(scope, node) else ""
        if why:
            self.results[scope].update(dict.fromkeys(node.output, why))
            self._waiting.append(((scope, node.input[0]), why))

    def _to_integer(self, scope: str, node: onnx.NodeProto) -> bool:
        if node.op_type == "CastLike":  # the types inside of functions are not known yet
            return bool(scope) or self._types.get(node.input[1]) not in FLOATS
        return node.op_type == "Cast" and any(
            entry.name == "to" and (entry.i in _INTEGERS or bool(entry.ref_attr_name))
            for entry in node.attribute
        )

    def _follow(self, scope: str, name: str, why: str) -> list[_Place]:
        """Note the nodes that make a value; return what they make it of."""
        following: list[_Place] = []
        function = self._functions.get(scope)
        if function is not None and name in function.input:
            slot = [*function.input].index(name)
            self.slots[scope].add(slot)
            for caller, call in self._calls[scope]:
                following += [(caller, item) for item in call.input[slot : slot + 1]]
        if (scope, name) in self._owners:
            node, slot = self._owners[scope, name]
            self.carried[scope].add(name)
            following += [(scope, item) for item in node.input[slot : slot + 1]]
            following += [(scope, held.made) for held in states_of(node) if held.inner == name]
        for node in self._producers[scope, name]:
            sources = self._sources(scope, name, node)
            if sources:
                self.results[scope][name] = why
                following += sources
                key = op_name(node.domain, node.op_type, node.overload)
                self.functions.update({key}.intersection(self._functions))
        return following

    def _sources(self, scope: str, name: str, node: onnx.NodeProto) -> list[_Place]:
        """Return what a node makes a value of; nothing where it is followed no further."""
        place = [*node.output].index(name)
        key = op_name(node.domain, node.op_type, node.overload)
        function = self._functions.get(key)
        if function is not None:
            inner = [(key, item) for item in function.output[place : place + 1]]
        elif has_body(node):
            inner = [
                (scope, name)
                for result, names in handed_out(node)
                for name in names
                if result == node.output[place]
            ]
        else:
            return self._operands(scope, node)
        makers = [(own, item) for own, name in inner for item in self._producers[own, name]]
        return inner if any(has_body(b) or self._operands(a, b) for a, b in makers) else []

    def _operands(self, scope: str, node: onnx.NodeProto) -> list[_Place]:
        if node.domain not in ("", "ai.onnx"):
            return []
        if node.op_type in PRODUCTS and not any(
            self._is_small(scope, name) for name in node.input[:2]
        ):
            return []
        if node.op_type in _OF_ALL:
            return [(scope, name) for name in node.input]
        if node.op_type in _OF_FIRST_AND_THIRD:
            return [(scope, name) for name in node.input[:3:2]]
        return [(scope, node.input[0])] if node.op_type in _OF_FIRST else []

    def _is_small(self, scope: str, name: str) -> bool:
        """Whether a value is a constant, but no large weight."""
        seen: set[str] = set()
        while name not in seen:
            seen.add(name)
            if (scope, name) in self._sizes:
                return self._sizes[scope, name] <= MOST_SCALES
            for node in self._producers[scope, name][:1]:
                name = node.input[0] if node.op_type in MOVES and node.input else name
        function = self._functions.get(scope)
        slots = [] if function is None else [i for i, x in enumerate(function.input) if x == name]
        return any(
            self._is_small(caller, item)
            for slot in slots
            for caller, call in self._calls[scope]
            for item in call.input[slot : slot + 1]
        )
