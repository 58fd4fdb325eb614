"""Convert a model to float16: weights, declared types and what nodes compute in.

Each graph is walked once. A value is half where its producer computes in half; a reader that needs
the other type gets a Cast. Nodes that keep float32 are those of ``reasons.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.half.check import check_types
from gehost.half.exact import Exact
from gehost.half.names import (
    NAMED,
    body_nodes,
    first_of,
    handed_out,
    has_body,
    name_as_before,
    read_names,
    rename,
    rename_captured,
    states_of,
)
from gehost.half.operators import (
    crashing,
    gives_half,
    has_kernel,
    is_kernel,
    key_of,
    opsets_of,
    reason_of,
    retype,
    schema_of,
    takes_half,
)
from gehost.half.ranges import ranges
from gehost.half.reasons import (
    ASKED,
    BODY,
    CLOSE,
    CRASH,
    FLOAT,
    LARGEST,
    RANGE,
    SQUARE,
    UNKNOWN,
    WHOLE,
    Origins,
    constant_of,
    is_fill,
    reasons,
    too_wide,
)
from gehost.half.weights import (
    bounded,
    cast_weights,
    default_opset,
    dense,
    rounded_array,
    weight_notes,
    with_default_inputs,
    without_default_inputs,
)
from gehost.ir.bodies import bodies_of, captures, declare_as, lists_of, node_lists, unique_names
from gehost.ir.node import op_name
from gehost.ir.tensors import from_numpy, to_numpy
from gehost.ir.types import DataType
from gehost.kernels import NO_TARGET, Target, float32_inputs
from gehost.verify.retype import HALF, element_types, holds

_FLOAT16 = onnx.TensorProto.FLOAT16
_CASTS = 9
"""The opset of casts in a model that has no operators of ONNX."""
_BODIES = ("If", "Loop", "Scan")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class HalfConversion:
    """A model in float16, and what a reader of it should know."""

    model: onnx.ModelProto
    notes: tuple[str, ...]
    """What computes in float32 and why, numbers out of range with their node; one line each."""
    clipped: frozenset[str] = frozenset()
    """Values of the original whose finite fills became the lowest number of float16."""
    kept: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Nodes that compute in float32, by reason."""
    is_converted: bool = True
    """False for a model that held half already: ``model`` is a copy."""


def to_float16(
    model: onnx.ModelProto,
    *,
    keep_io: bool = False,
    feeds: Sequence[Mapping[str, Array]] = (),
    keep_float32: Collection[str] = (),
    base_dir: str | None = None,
    target: Target = NO_TARGET,
    cautious: bool = False,
) -> HalfConversion:
    """Convert a model of float32 to float16.

    Args:
        model: it stays as it is.
        keep_io: whether inputs and outputs stay float32.
        feeds: inputs to run the model with; where a number leaves half's range, the nodes around it
            compute in float32.
        keep_float32: further nodes that do, by name or operator.
        base_dir: of the model's external data.
        target: whose kernels decide.
        cautious: keep float32 in all functions and bodies of operators, and around numbers that
            only come close to the end of half's range.

    Raises:
        ModelError: its weights cannot be read, or it does not run on the feeds.
    """
    if why := stays(model):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return HalfConversion(copy, (why,), is_converted=False)
    version = model.ir_version
    model = unique_names(without_default_inputs(dense(model, base_dir)))
    limit = CLOSE if cautious else LARGEST
    outside, notes = ranges(model, feeds, base_dir, limit, exact_outputs=keep_io)
    functions, wide = set[str](), dict[str, Sequence[int]]()
    while True:
        conversion = _Conversion(
            model,
            base_dir,
            keep_float32,
            target,
            frozenset(outside),
            functions,
            wide,
            keep_io=keep_io,
            cautious=cautious,
        )
        converted = conversion.run(keep_io=keep_io)
        if functions.issuperset(conversion.called) and wide == conversion.wide:
            break
        functions |= conversion.called  # what keeps float32 whole calls them in it
        wide = conversion.wide
    check_types(model, converted)
    with_default_inputs(converted, version)
    return HalfConversion(
        converted,
        (*notes, *conversion.notes()),
        frozenset(conversion.clipped),
        conversion.kept,
    )


def stays(model: onnx.ModelProto) -> str:
    """Return a line where a model holds half, and is not converted; "" for others."""
    kinds = [str(DataType(kind)) for kind in sorted(HALF) if holds(model, frozenset((kind,)))]
    named = " and ".join(kinds)
    return f"half: the model has tensors of {named} already, and stays as it is" if kinds else ""


@dataclass
class _Scope:
    """The values of a graph while it is converted, and of the graphs around it."""

    types: Mapping[str, int]
    origins: Origins
    exact: Mapping[str, str]
    """Why values that must not be rounded keep float32."""
    half: set[str] = field(default_factory=set[str])
    """Values of float32 that are half now."""
    forms: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Casts of a value, by type."""
    parent: _Scope | None = None
    results: dict[str, str] = field(default_factory=dict[str, str])
    """Names of float32 of constants that are outputs in half."""

    def form(self, name: str, kind: int) -> str | None:
        cached = self.forms.get((name, kind))
        return cached or (self.parent.form(name, kind) if self.parent else None)

    def inner(self) -> _Scope:
        """Return the scope of a body; bodies beside each other may use the same names."""
        return _Scope(self.types, self.origins.copy(), self.exact, set(self.half), {}, self)

    @property
    def carried(self) -> set[str]:
        """What bodies take and give in float32."""
        return self.origins.carried


class _Conversion:
    def __init__(
        self,
        model: onnx.ModelProto,
        base_dir: str | None,
        keep: Collection[str],
        target: Target,
        outside: frozenset[str],
        functions: Collection[str],
        wide: Mapping[str, Sequence[int]],
        *,
        keep_io: bool,
        cautious: bool,
    ) -> None:
        self._model = model
        self._base_dir = base_dir
        self._opset = default_opset(model)
        self._keep = frozenset(keep)
        self._target = target
        self._outside, self._cautious = outside, cautious
        self._functions = {
            op_name(function.domain, function.name, function.overload): function
            for function in model.functions
        }
        self.kept: dict[str, list[str]] = {}
        """Nodes that compute in float32, by reason."""
        self._slow: list[str] = []
        """Those that the target has a kernel for in half alone."""
        self._has_scan = any(
            node.op_type == "Scan" for nodes in node_lists(model) for node in nodes
        )
        """It needs declared sizes, also of values that it reads in bodies around it."""
        self._names = {
            name
            for nodes in node_lists(model)
            for node in nodes
            for name in (node.name, *node.input, *node.output)
        }
        self._names.update(tensor.name for tensor in model.graph.initializer)
        self._crashing = {
            name
            for nodes in (() if target.provider == "cuda" else node_lists(model))
            for name in crashing(nodes)
        }
        self._weights: dict[str, _Scope] = {}
        self._constants: dict[str, str] = {}
        self.clipped: set[str] = set()
        """Values that are bounded by half's range before they are cast."""
        self._types = element_types(model)
        self._exact = Exact(model, self._functions, self._types, keep_io=keep_io)
        self._float_functions = self._exact.functions.union(functions)
        self.wide: dict[str, Sequence[int]] = dict(wide)
        """The results of functions that need float32's range."""
        self.called: set[str] = set()
        """Functions that are called where a whole body or function keeps float32."""
        self._signatures: dict[str, tuple[int | None, ...]] = {}
        self._both: list[tuple[str, bool]] = []
        """Weights that are read in both types, and whether they are cast."""

    def notes(self) -> list[str]:
        """Return a line for each reason to keep float32."""
        lines: list[str] = []
        for why, labels in self.kept.items():
            nodes = "1 node keeps" if len(labels) == 1 else f"{len(labels)} nodes keep"
            lines.append(f"half: {nodes} float32 ({why}): {first_of(labels)}")
        lines += [
            f"half: {label} has no kernel of float32 on {self._target}: --disable its pass"
            for label in self._slow[:NAMED]
        ]
        return lines + weight_notes(self._both)

    def run(self, *, keep_io: bool) -> onnx.ModelProto:
        """Return the converted model."""
        copy = onnx.ModelProto()
        for descriptor, value in self._model.ListFields():
            if descriptor.name not in ("graph", "functions"):
                _set(copy, descriptor, value)
        if all(entry.domain not in ("", "ai.onnx") for entry in copy.opset_import):
            copy.opset_import.add(version=_CASTS)
        self._look_at_functions(self._types)
        scope = self._scope(self._types, "")
        self._graph(self._model.graph, copy.graph, scope, keep_io=keep_io, outermost=True)
        for key, function in self._functions.items():
            copy.functions.append(self._function(key, function))
        return copy

    def _scope(self, types: Mapping[str, int], key: str) -> _Scope:
        """Return the outermost scope of the graph or a function."""
        carried = set(self._exact.carried[key])
        return _Scope(types, Origins(carried=carried), self._exact.results[key])

    # ------------------------------------------------------------------ functions

    def _look_at_functions(self, types: Mapping[str, int]) -> None:
        """Find the types that functions are called with; those with several keep float32."""
        waiting = [(nodes, types) for nodes in lists_of(self._model.graph.node)]
        while waiting:
            nodes, entry = waiting.pop()
            for node in nodes:
                key = key_of(node)
                if key not in self._functions:
                    continue
                argument = tuple(entry.get(name) if name else None for name in node.input)
                first = self._signatures.get(key)
                if first is not None and not _fits(first, argument):
                    self._float_functions.add(key)
                merged = argument if first is None else _merged(first, argument)
                if merged != first:
                    self._signatures[key] = merged
                    function = self._functions[key]
                    inner = self._types_inside(function, merged)
                    waiting += [(item, inner) for item in lists_of(function.node)]
                beyond = not self._outside.isdisjoint((*node.input, *node.output))
                cautious = self._cautious and not self._has_kernel(node)
                asked = self._asked_for(node) or cautious
                if asked or _unknown(node, entry) or (beyond and entry is types):
                    self._float_functions.add(key)

    def _types_inside(
        self, function: onnx.FunctionProto, arguments: Sequence[int | None]
    ) -> dict[str, int]:
        """Return the element types of a function's values in a call."""
        single = onnx.ModelProto(ir_version=self._model.ir_version)
        single.opset_import.extend(function.opset_import)
        single.functions.extend(self._model.functions)
        single.graph.name = function.name
        for name, kind in zip_longest(function.input, arguments[: len(function.input)]):
            info = onnx.ValueInfoProto(name=name)  # of an input that no call gives
            if kind is not None:
                info = onnx.helper.make_tensor_value_info(name, kind, None)
            single.graph.input.append(info)
        single.graph.node.extend(function.node)
        single.graph.output.extend(onnx.ValueInfoProto(name=name) for name in function.output)
        return element_types(single)

    def _function(self, key: str, function: onnx.FunctionProto) -> onnx.FunctionProto:
        copy = onnx.FunctionProto()
        copy.CopyFrom(function)
        argument = self._signatures.get(key)
        if argument is None or key in self._float_functions:
            self._call(node for nodes in lists_of(function.node) for node in nodes)
            return copy
        fixed = self._exact.slots[key].union(float32_inputs(f"{function.domain}::{function.name}"))
        types = self._types_inside(function, argument)
        self._weights = {}
        scope = self._scope(types, key)
        scope.half.update(
            name
            for slot, name in enumerate(function.input)
            if types.get(name) == FLOAT and slot not in fixed
        )
        scope.origins.moved.update(
            name for name in function.input if self._exact.is_number(key, name)
        )
        scope.origins.constants.update(
            (name, self._exact.epsilons[key, name])
            for name in function.input
            if (key, name) in self._exact.epsilons
        )
        nodes = self._nodes(function.node, scope, opsets_of(function.opset_import), counted=False)
        if wide := [i for i, name in enumerate(function.output) if name in scope.origins.wide]:
            self.wide[key] = wide
        nodes += self._outputs(function.output, nodes, scope)
        del copy.node[:]
        copy.node.extend(nodes)
        self._store_once(copy)
        retained = [info for info in copy.value_info if types.get(info.name) != FLOAT]
        del copy.value_info[:]
        copy.value_info.extend(retained)
        return copy

    # ------------------------------------------------------------------ graphs

    def _graph(
        self,
        graph: onnx.GraphProto,
        copy: onnx.GraphProto,
        scope: _Scope,
        *,
        keep_io: bool,
        outermost: bool = False,
    ) -> None:
        for descriptor, value in graph.ListFields():
            if descriptor.name not in ("node", "initializer"):
                _set(copy, descriptor, value)
        arguments = {info.name for info in graph.input}
        exact = self._add_weights(graph, scope, arguments)
        for info in copy.input:
            if info.name in scope.carried:
                continue
            if _declares_float(info) and not keep_io and info.name not in exact:
                info.type.tensor_type.elem_type = _FLOAT16
                scope.half.add(info.name)
            elif not info.HasField("type") and scope.types.get(info.name) == FLOAT:
                scope.half.add(info.name)  # of a body, without a type
        nodes = self._nodes(graph.node, scope, opsets_of(self._model.opset_import))
        outputs = [info for info in copy.output if _declares_float(info)]
        names = [info.name for info in copy.output]
        held = set[str]() if outermost else scope.carried
        wide = names if keep_io else [name for name in names if name in held]
        casts = self._outputs_of_float(wide, nodes, scope)
        for node in casts if self._has_scan else ():
            declare_as(copy, node.input[0], node.output[0], _FLOAT16)
        narrow = self._outputs([name for name in names if name not in wide], nodes, scope)
        for node in narrow if self._has_scan else ():
            for inner in node.input:
                declare_as(copy, inner, node.output[0], FLOAT)
        casts += narrow
        for info in outputs:
            if info.name not in wide:
                info.type.tensor_type.elem_type = _FLOAT16
        copy.node.extend([*nodes, *casts])
        self._initializers(graph, copy, scope, arguments)
        if outermost:
            self._store_once(copy)
        for info in copy.value_info:
            if _declares_float(info) and info.name in scope.half:
                info.type.tensor_type.elem_type = _FLOAT16

    def _add_weights(
        self, graph: onnx.GraphProto, scope: _Scope, arguments: Collection[str]
    ) -> set[str]:
        """Note the weights of a graph; return those that are inputs, and whose numbers half lacks.

        A default of an input is no constant, as another value may be fed.
        """
        exact: set[str] = set()
        for tensor in graph.initializer:
            if tensor.data_type != FLOAT:
                continue
            array = self._array(tensor)
            if tensor.name not in arguments:
                scope.origins.moved.add(tensor.name)
                self._weights[tensor.name] = scope
            elif is_fill(array):
                scope.origins.fills.add(tensor.name)
                continue
            elif too_wide(array):
                exact.add(tensor.name)
            else:
                continue
            scope.origins.constants[tensor.name] = array
        return exact.difference(info.name for info in graph.output)

    def _initializers(
        self,
        graph: onnx.GraphProto,
        copy: onnx.GraphProto,
        scope: _Scope,
        arguments: Collection[str],
    ) -> None:
        """Add the weights, in the types in which they are read."""
        read = read_names(copy)
        for tensor in graph.initializer:
            name = tensor.name
            if tensor.data_type != FLOAT:
                copy.initializer.append(tensor)
                continue
            if name in arguments and name not in scope.half:  # an output, too
                copy.initializer.append(tensor)
                continue
            exact = scope.results.get(name, name)
            half = scope.forms.get((name, _FLOAT16))
            if name in arguments or exact != name:
                half = name
            if half is not None:
                copy.initializer.append(from_numpy(rounded_array(self._array(tensor)), half))
            if half is None or (half != exact and read[exact]):
                copy.initializer.append(tensor)
                copy.initializer[-1].name = exact

    def _store_once(self, copy: onnx.GraphProto | onnx.FunctionProto) -> None:
        """Store weights in the type in which they are read; in float32 where that is both."""
        name_as_before(copy, self._constants)
        self._both += cast_weights(copy, self._constants)
        self._constants = {}  # functions may use the same names

    def _array(self, tensor: onnx.TensorProto) -> Array:
        return to_numpy(tensor, self._base_dir)

    def _nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        scope: _Scope,
        opsets: Mapping[str, int],
        *,
        counted: bool = True,
    ) -> list[onnx.NodeProto]:
        """Return the converted nodes of a graph, with the casts between them."""
        for node in nodes:
            array = constant_of(node)
            if array is not None:
                scope.origins.constants[node.output[0]] = array
                scope.origins.moved.add(node.output[0])
                self._weights[node.output[0]] = scope
        outside = self._outside if counted else frozenset[str]()
        why = reasons(
            nodes,
            scope.types,
            scope.origins,
            lambda node, origins: self._keeps(node, opsets, origins),
            outside,
            scope.exact,
        )
        converted: list[onnx.NodeProto] = []
        for node, reason in zip(nodes, why, strict=True):
            if reason:
                self._call([node])
            if counted and reason and (set(map(scope.types.get, node.output)) & {FLOAT}):
                label = f'{node.op_type} "{node.name or node.output[0]}"'
                self.kept.setdefault(reason, []).append(label)
                if self._has_kernel(node) and not self._has_kernel(node, DataType.FLOAT):
                    self._slow.append(label)
            converted += self._node(node, scope, opsets, half=not reason)
        return [item for node in converted for item in self._forms(node, scope)]

    def _forms(self, node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
        """Return a node, and the half form of the constant that it is."""
        form = scope.forms.get((node.output[0], _FLOAT16)) if node.output else None
        array = constant_of(node)
        if form is None or array is None:
            return [node]
        tensor = from_numpy(rounded_array(array), form)
        return [node, onnx.helper.make_node("Constant", [], [form], value=tensor)]

    def _node(
        self,
        node: onnx.NodeProto,
        scope: _Scope,
        opsets: Mapping[str, int],
        *,
        half: bool,
    ) -> list[onnx.NodeProto]:
        """Return a node in its type, behind the casts that it needs."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        array = constant_of(node)
        if array is not None:  # each reader takes the form that it needs
            return [copy]
        before: list[onnx.NodeProto] = []
        if half:
            self._carry(node, scope.carried)
            for entry, original in zip(copy.attribute, node.attribute, strict=True):
                if entry.HasField("g"):
                    entry.g.Clear()
                    self._graph(original.g, entry.g, scope.inner(), keep_io=False)
        else:
            self._give_float32(copy, scope, before)
        for slot, name in enumerate(node.input):
            if scope.types.get(name) == FLOAT:
                copy.input[slot] = self._read(
                    name, scope, before, half=half and self._takes_half(node, slot, opsets, scope)
                )
        for slot, name in enumerate(node.output):
            is_carried = has_body(node) and name in scope.carried
            is_float = scope.types.get(name) == FLOAT and not is_carried
            if half and is_float and self._gives_half(node, slot, opsets):
                scope.half.add(name)
        if any(name in scope.half for name in node.output):
            retype(copy)
        return [*before, copy]

    def _carry(self, node: onnx.NodeProto, carried: set[str]) -> None:
        """Add what has the type of a value that a body takes or gives in float32."""
        groups = [{result, *names} for result, names in handed_out(node)]
        groups += [set(held[1:]) for held in states_of(node)]
        size = -1
        while size != len(carried):
            size = len(carried)
            carried.update(*(group for group in groups if not carried.isdisjoint(group)))

    def _give_float32(
        self, node: onnx.NodeProto, scope: _Scope, before: list[onnx.NodeProto]
    ) -> None:
        """Give the bodies of a node, which stay as they are, what they read around them."""
        for name in captures(node):
            if scope.types.get(name) == FLOAT:
                form = self._read(name, scope, before, half=False)
                if form != name:
                    rename_captured(node, name, form)
        self._call(body_nodes(node))

    def _call(self, nodes: Iterable[onnx.NodeProto]) -> None:
        keys = set(map(key_of, nodes))
        self.called.update(keys.intersection(self._functions))

    def _read(self, name: str, scope: _Scope, before: list[onnx.NodeProto], *, half: bool) -> str:
        """Return a value's name in a type, with a Cast before its first reader."""
        if half == (name in scope.half):
            return name
        kind = _FLOAT16 if half else FLOAT
        form = scope.form(name, kind)
        if form is not None:
            return form
        form = self._fresh(f"{name} ({'float16' if half else 'float32'})")
        owner = self._weights.get(name)
        array = scope.origins.constants.get(name) if owner is not None else None
        if array is None:
            clipped = name
            if half and name in scope.origins.fills and name not in scope.origins.infinite:
                clipped = self._fresh(f"{name} (clipped)")
                before += bounded(name, clipped, self._fresh, self._opset)
                self.clipped.add(name)
            before.append(onnx.helper.make_node("Cast", [clipped], [form], form, to=kind))
        (owner or scope).forms[name, kind] = form
        if array is not None:
            self._constants[form] = name
        return form

    def _outputs(
        self, names: Sequence[str], nodes: list[onnx.NodeProto], scope: _Scope
    ) -> list[onnx.NodeProto]:
        """Return casts that make outputs half; their producers write another name."""
        casts: list[onnx.NodeProto] = []
        for name in dict.fromkeys(names):
            if scope.types.get(name) != FLOAT or name in scope.half:
                continue
            inner = self._fresh(f"{name} (float32)")
            rename(nodes, name, inner)
            if name in scope.origins.constants:
                casts += self._constant_output(name, inner, nodes, scope)
            else:
                casts.append(onnx.helper.make_node("Cast", [inner], [name], inner, to=_FLOAT16))
            scope.half.add(name)
        return casts

    def _constant_output(
        self, name: str, inner: str, nodes: list[onnx.NodeProto], scope: _Scope
    ) -> list[onnx.NodeProto]:
        """Make a constant half, and its form of float32 another value where nodes read that."""
        if form := scope.forms.pop((name, _FLOAT16), ""):
            rename(nodes, form, name)
            del self._constants[form]
        if any(inner in node.input for item in lists_of(nodes) for node in item):
            self._constants[name] = inner
        producer = next((node for node in nodes if inner in node.output), None)
        if producer is None:  # an initializer
            scope.results[name] = inner
            return []
        if name not in self._constants:
            nodes.remove(producer)
        if form:
            return []
        tensor = from_numpy(rounded_array(scope.origins.constants[name]), name)
        return [onnx.helper.make_node("Constant", [], [name], value=tensor)]

    def _outputs_of_float(
        self, names: Sequence[str], nodes: list[onnx.NodeProto], scope: _Scope
    ) -> list[onnx.NodeProto]:
        """Return casts that make outputs float32; their producers write another name."""
        casts: list[onnx.NodeProto] = []
        for name in dict.fromkeys(names):
            if name in scope.half:
                inner = self._fresh(f"{name} (float16)")
                rename(nodes, name, inner)
                casts.append(onnx.helper.make_node("Cast", [inner], [name], inner, to=FLOAT))
                scope.half.remove(name)
        return casts

    # ------------------------------------------------------------------ operators

    def _asked_for(self, node: onnx.NodeProto) -> bool:
        return bool(
            self._keep.intersection((node.name, node.op_type, f"{node.domain}::{node.op_type}"))
        )

    def _keeps(self, node: onnx.NodeProto, opsets: Mapping[str, int], origins: Origins) -> str:
        """Return why an operator keeps float32 by itself or by what it reads, or ""."""
        if self._asked_for(node):
            return ASKED
        if has_body(node):
            if node.op_type not in _BODIES:
                return UNKNOWN
            if self._cautious:
                return BODY
            return "" if self._outside.isdisjoint(captures(node)) else RANGE
        if why := reason_of(node):
            return why
        if not self._crashing.isdisjoint(node.output):
            return CRASH
        key = key_of(node)
        if key in self._functions:
            is_float = key in self._float_functions
            if is_float and not self._outside.isdisjoint((*node.input, *node.output)):
                return RANGE
            if not is_kernel(node) and self._is_wide(node, origins):
                return SQUARE
            if not is_float:
                return ""
            return BODY if self._cautious else WHOLE
        if schema_of(node, opsets) is not None:
            return ""
        return "" if self._has_kernel(node) else UNKNOWN

    def _is_wide(self, node: onnx.NodeProto, origins: Origins) -> bool:
        """Whether a call takes or gives numbers that need float32's range; note what it gives."""
        slots = self.wide.get(key_of(node), ())
        wide = [node.output[slot] for slot in slots if slot < len(node.output)]
        origins.wide.update(wide)
        return bool(wide) or not origins.wide.isdisjoint(node.input)

    def _has_kernel(self, node: onnx.NodeProto, kind: DataType = DataType.FLOAT16) -> bool:
        return has_kernel(node, self._target, kind)

    def _takes_half(
        self, node: onnx.NodeProto, slot: int, opsets: Mapping[str, int], scope: _Scope
    ) -> bool:
        """Whether a node that computes in half has it in an input."""
        for body in bodies_of(node):
            before = max(0, len(node.input) - len(body.input))  # of a Scan of opset 8
            if slot >= before and body.input and body.input[slot - before].name in scope.carried:
                return False
        schema = schema_of(node, opsets)
        if schema is None or node.op_type in _BODIES:
            if slot in self._exact.slots[key_of(node)]:
                return False
            return slot not in float32_inputs(f"{node.domain}::{node.op_type}")
        return takes_half(schema, slot)

    def _gives_half(self, node: onnx.NodeProto, slot: int, opsets: Mapping[str, int]) -> bool:
        """Whether a node that computes in half has it in an output."""
        schema = schema_of(node, opsets)
        if schema is None or node.op_type in _BODIES:
            return True
        return gives_half(schema, slot)

    def _fresh(self, stem: str) -> str:
        name, number = stem, 1
        while name in self._names:
            number += 1
            name = f"{stem} {number}"
        self._names.add(name)
        return name


def _set(copy: Any, descriptor: Any, value: Any) -> None:
    if descriptor.is_repeated:
        getattr(copy, descriptor.name).extend(value)
    elif descriptor.message_type is None:
        setattr(copy, descriptor.name, value)
    else:
        getattr(copy, descriptor.name).CopyFrom(value)


def _unknown(node: onnx.NodeProto, types: Mapping[str, int]) -> bool:
    return any(name and name not in types for name in (*node.input, *node.output))


def _fits(first: Sequence[int | None], arguments: Sequence[int | None]) -> bool:
    return all(a == b or a is None or b is None for a, b in zip(first, arguments, strict=False))


def _declares_float(info: onnx.ValueInfoProto) -> bool:
    return info.type.HasField("tensor_type") and info.type.tensor_type.elem_type == FLOAT


def _merged(first: Sequence[int | None], arguments: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the types of two calls' inputs, each of which may leave some out."""
    return tuple(b if a is None else a for a, b in zip_longest(first, arguments))
