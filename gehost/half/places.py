"""The values of a model and of its functions: what makes each, across bodies and calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx.external_data_helper import uses_external_data

from gehost.half.names import handed_out, has_body, states_of
from gehost.half.operators import holds_float, is_kernel, key_of, makes_float, opsets_of, schema_of
from gehost.half.reasons import FLOATS, MOST_SCALES, PRODUCTS, TABLES, constant_of, too_wide
from gehost.ir.bodies import bodies_in, bodies_of, lists_of

Place: TypeAlias = tuple[str, str]
"""A value: the function that has it, "" for the graph, and its name."""

_SHAPED = frozenset(("Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"))
"""Operators that read the sizes of a value."""
NORMS = frozenset(
    ("GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization")
).union(("LRN", "MeanVarianceNormalization", "RMSNormalization"))
_LEARNED = NORMS.union(("Attention", "GRU", "LSTM", "LogSoftmax", "RNN", "RotaryEmbedding"))
"""Operators that make features, whatever they read."""
_OF_NO_FLOATS = ("Cast", "Constant", "ConstantOfShape", "Range")


class Places:
    """Where the values of a model come from."""

    def __init__(
        self,
        model: onnx.ModelProto,
        functions: Mapping[str, onnx.FunctionProto],
        types: Mapping[str, int],
    ) -> None:
        self._makers: dict[Place, list[onnx.NodeProto]] = defaultdict(list)
        self.calls: Mapping[str, list[tuple[str, onnx.NodeProto]]] = defaultdict(list)
        """The calls of each function, with the function that each is in."""
        self._functions = functions
        self._types = types
        self._owners: dict[Place, tuple[onnx.NodeProto, int]] = {}
        """The Loop or Scan with the body that has an input, and its place."""
        self._shapes: dict[Place, Sequence[int]] = {
            ("", tensor.name): tensor.dims for tensor in model.graph.initializer
        }
        self._opsets = {
            scope: opsets_of(source.opset_import)
            for scope, source in {"": model, **functions}.items()
        }
        self._scalars: dict[Place, np.ndarray[Any, Any]] = {
            ("", tensor.name): onnx.numpy_helper.to_array(tensor)
            for tensor in model.graph.initializer
            if tensor.data_type == FLOATS[0]
            and prod(tensor.dims) == 1
            and not uses_external_data(tensor)
        }
        self._numbers: dict[Place, bool] = {}
        self._entered: dict[Place, bool] = {}
        self._inputs: dict[Place, list[int]] = {
            ("", info.name): [entry.dim_value for entry in info.type.tensor_type.shape.dim]
            for info in model.graph.input
        }
        for scope, graph in {"": model.graph, **functions}.items():
            self._read(scope, graph)

    def _read(self, scope: str, graph: onnx.GraphProto | onnx.FunctionProto) -> None:
        for body in bodies_in(graph.node):
            for tensor in body.initializer:
                self._shapes[scope, tensor.name] = tensor.dims
        for nodes in lists_of(graph.node):
            for node in nodes:
                array = constant_of(node)
                for name in node.output:
                    self._makers[scope, name].append(node)
                    if array is not None:
                        self._shapes[scope, name] = array.shape
                        if array.size == 1:
                            self._scalars[scope, name] = array
                for body in bodies_of(node):
                    before = max(0, len(node.input) - len(body.input))  # of a Scan of opset 8
                    for slot, info in enumerate(body.input, before):
                        self._owners[scope, info.name] = node, slot
                key = key_of(node)
                if key in self._functions:
                    self.calls[key].append((scope, node))

    def nodes(self) -> Iterator[tuple[str, onnx.NodeProto]]:
        """Yield each node, with the function that it is in."""
        for (scope, _), nodes in self._makers.items():
            for node in nodes:
                yield scope, node

    def makers(self, place: Place) -> Sequence[onnx.NodeProto]:
        """Return the node that makes a value; more where bodies beside each other use a name."""
        return self._makers.get(place, ())

    def is_float(self, place: Place) -> bool:
        """Whether a value may be of floats; the types inside of functions are not known."""
        scope, name = place
        return bool(scope) or self._types.get(name, FLOATS[0]) in FLOATS

    def slot(self, place: Place) -> int | None:
        """Return which input of its function a value is."""
        function = self._functions.get(place[0])
        inputs = [] if function is None else [*function.input]
        return inputs.index(place[1]) if place[1] in inputs else None

    def owner(self, place: Place) -> onnx.NodeProto | None:
        """Return the Loop or Scan whose body has a value as input."""
        return self._owners.get(place, (None, 0))[0]

    def outside(self, place: Place) -> list[Place]:
        """Return what an input of a function or a body is in its calls and steps."""
        scope, name = place
        slot = self.slot(place)
        results = [
            (caller, item)
            for caller, call in (() if slot is None else self.calls[scope])
            for item in call.input[slot : slot + 1 if slot is not None else 0]
        ]
        if place in self._owners:
            node, slot = self._owners[place]
            results += [(scope, item) for item in node.input[slot : slot + 1]]
            results += [(scope, held.made) for held in states_of(node) if held.inner == name]
        return results

    def inside(self, place: Place, node: onnx.NodeProto) -> list[Place] | None:
        """Return what a function or bodies make a node's result of; None of other nodes."""
        scope, name = place
        function = self._functions.get(key_of(node))
        if function is not None:
            if node.op_type in _LEARNED or is_kernel(node):
                return None
            at = [*node.output].index(name)
            return [(key_of(node), item) for item in function.output[at : at + 1]]
        if not has_body(node):
            return None
        return [
            (scope, item) for result, names in handed_out(node) for item in names if result == name
        ]

    def floats(self, place: Place, node: onnx.NodeProto) -> list[Place]:
        """Return the operands of floats that one of ONNX's operators makes a value of."""
        scope, name = place
        schema = schema_of(node, self._opsets[scope])
        if schema is None or node.op_type in _SHAPED or node.op_type in _LEARNED:
            return []
        if not makes_float(schema, [*node.output].index(name)):
            return []
        count = 1 if node.op_type == "CastLike" else len(node.input)
        return [
            (scope, item)
            for slot, item in enumerate(node.input[:count])
            if item and holds_float(schema, slot) and self.is_float((scope, item))
        ]

    def _looks_up(self, scope: str, node: onnx.NodeProto) -> bool:
        """Whether a node takes rows of a constant, as embeddings are."""
        return node.op_type in TABLES and self.shape((scope, node.input[0])) is not None

    def epsilon(self, place: Place) -> np.ndarray[Any, Any] | None:
        """Return the constant that a value is in a call, if it is one number that half lacks."""
        waiting, seen = [place], {place}
        while waiting:
            place = waiting.pop()
            array = self._scalars.get(place)
            if array is not None and too_wide(array):
                return array
            waiting += [source for source in self.outside(place) if source not in seen]
            seen.update(waiting)
        return None

    def shape(self, place: Place) -> Sequence[int] | None:
        """Return the sizes of a constant."""
        return self._shapes.get(place)

    def entered_shape(self, place: Place) -> Sequence[int] | None:
        """Return the sizes of an input of the model, 0 for open ones."""
        return None if place in self._shapes else self._inputs.get(place)

    def is_number(self, place: Place) -> bool:
        """Whether a value is made of integers and of constants that are no large weights."""
        return self._is_made_of(place, self._numbers, ())

    def is_entered(self, place: Place) -> bool:
        """Whether a value is made of the model's inputs, integers and small constants."""
        return self._is_made_of(place, self._entered, self._inputs)

    def _is_made_of(
        self, start: Place, answers: dict[Place, bool], inputs: Collection[Place]
    ) -> bool:
        """Answer, and note it for this value, and for all that it is made of where that is true."""
        if start not in answers:
            seen = self._sources(start, answers, inputs)
            answers.update(dict.fromkeys(seen or (), True))
            answers[start] = seen is not None
        return answers[start]

    def _sources(
        self, start: Place, answers: Mapping[Place, bool], inputs: Collection[Place]
    ) -> set[Place] | None:
        """Return what a value is made of; None where that is more than numbers and inputs."""
        waiting, seen = [start], {start}
        while waiting:
            place = waiting.pop()
            if answers.get(place) or place in inputs:
                continue
            shape = self.shape(place)
            if shape is not None:
                if prod(shape) >= MOST_SCALES:
                    return None
                continue
            sources = self.outside(place)
            makers = self.makers(place)
            if not (sources or makers) or place in answers:
                return None  # an input of the model
            for node in makers:
                inner = self.inside(place, node)
                operands = self.floats(place, node) if inner is None else inner
                if inputs and (node.op_type in PRODUCTS or self._looks_up(place[0], node)):
                    return None
                if not operands and node.op_type not in _OF_NO_FLOATS:
                    return None
                if node.op_type == "Cast" and place[0]:
                    operands = []  # in a function: of what is no float, most likely
                sources += operands
            waiting += [source for source in sources if source not in seen]
            seen.update(sources)
        return seen
