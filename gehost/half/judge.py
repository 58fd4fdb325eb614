"""Judge a conversion to float16 by runs of both models.

Half weights are other numbers, so the conversion is compared with the float32 model that has the
rounded weights: both compute in float32, and the rule of ``gehost.verify`` decides. A second run
rounds behind each node, as a device does: it may have no new NaN or infinity, and be no further
from the float32 model than roundings explain.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from gehost.half.convert import HalfConversion
from gehost.half.names import first_of
from gehost.half.reasons import FLOAT
from gehost.half.weights import bounded, default_opset, dense, rounded_array
from gehost.ir.bodies import bodies_in, graphs_of, lists_of, unique_names
from gehost.ir.tensors import from_numpy, to_numpy
from gehost.verify.compare import Verification, compare
from gehost.verify.retype import WIDER, replace_noop_casts, retyped, retyped_bytes
from gehost.verify.rounded import rounded
from gehost.verify.run import Runner

_FLOAT16 = onnx.TensorProto.FLOAT16
_LARGEST = 1 << 30
"""Bytes of weights in float32 beyond which nothing is judged."""

_FORM = re.compile(r" \(float(16|32)\)( \d+)?$")
_FAR = 0.02
"""Distance of float16 from float32 that roundings alone seldom have."""

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class HalfVerification(Verification):
    """The result of a comparison with a conversion."""

    off: Rounding | None = None
    """What half's roundings do; None where the functions differ, or are not compared."""

    @property
    def is_far(self) -> bool:
        """Whether half is not finite or further off than roundings explain."""
        return self.off is not None and bool(self.off.error)


@dataclasses.dataclass(frozen=True)
class Rounding:
    """How far the roundings of half are off."""

    lost: str
    """What is not finite with them alone, or ""."""
    distance: float = 0.0
    """The largest of the outputs that are, relative, root mean square; of zeros absolute."""
    others: tuple[str, ...] = ()
    """Outputs whose integers or sizes are others: roundings decide what is selected or counted."""

    @property
    def note(self) -> str:
        """The result as text."""
        names = first_of([f'"{name}"' for name in self.others])
        others = f"; other integers or sizes in {names}" if names else ""
        return self.error or f"{self._off}{others}"

    @property
    def error(self) -> str:
        """Why more than roundings is behind it, or ""."""
        far = f"{self._off}, more than roundings explain" if self.distance > _FAR else ""
        return self.lost or far

    @property
    def _off(self) -> str:
        return f"float16 is off by {self.distance:.2g} (relative, root mean square)"

    def __lt__(self, other: Rounding) -> bool:
        return (bool(self.lost), self.distance) < (bool(other.lost), other.distance)


def judge(
    model: onnx.ModelProto,
    conversion: HalfConversion,
    feeds: Sequence[Mapping[str, Array]],
    base_dir: str | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
) -> HalfVerification:
    """Compare a model with its conversion.

    Args:
        model: of float32.
        conversion: of it.
        feeds: inputs of the model.
        base_dir: of its external data.
        libraries: of custom operators.

    Raises:
        ModelError: the model does not run.
        UsageError: the feeds do not fit.
    """
    why = too_large(conversion.model)
    if why:
        return HalfVerification(equal=True, feeds=0, outputs=(), seed=0, unjudged=why)

    def runner(form: onnx.ModelProto) -> Runner:
        return Runner(form, base_dir=base_dir, libraries=libraries)

    reference = runner(with_rounded_weights(model, conversion, base_dir))
    # not widened: the reference does not round what it computes of constants
    wide = replace_noop_casts(retyped(conversion.model, WIDER, base_dir))
    result = compare(reference, runner(wide), list(feeds))
    fields: dict[str, Any] = {
        item.name: getattr(result, item.name) for item in dataclasses.fields(result)
    }
    if not result.equal:
        return HalfVerification(**fields)
    original = runner(model)
    runs = [(feed, original.run(feed)) for feed in feeds]
    off = rounding(runs, runner(rounded(conversion.model, base_dir)))
    fields["off"] = off
    if off.error:
        fields |= {"equal": False, "error": off.error}
    else:
        fields["note"] = off.note
    return HalfVerification(**fields)


def too_large(converted: onnx.ModelProto) -> str:
    """Return why a model in float16 is not compared with float32, or ""."""
    size = sum(retyped_bytes(converted, WIDER))
    return f"its weights are {size / 2**30:.1f} GiB in float32" if size > _LARGEST else ""


def rounding(
    runs: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    half: Runner,
) -> Rounding:
    """Return what is not finite with half's roundings alone, or how far off the rest is.

    Args:
        runs: inputs and outputs of the model in float32.
        half: of the model in float16, rounded behind each node.

    Raises:
        ModelError: it does not run.
    """
    largest = 0.0
    others: dict[str, None] = {}
    for number, (feed, expected) in enumerate(runs):
        actual = half.run(feed)
        for name, array in expected.items():
            result = actual.get(name)
            if result is None or result.shape != array.shape:
                others[name] = None
            elif array.dtype not in (np.float32, np.float64):
                if not np.array_equal(array, result):
                    others[name] = None
            elif bool((np.isfinite(array) & ~np.isfinite(result)).any()):
                return Rounding(f'output "{name}" of feed {number} is not finite in float16')
            else:
                largest = max(largest, _distance(array, result))
    return Rounding("", largest, tuple(others))


def _distance(expected: Array, actual: Array) -> float:
    finite = np.isfinite(expected)
    wide = expected[finite].astype(np.float64)
    if not wide.size:
        return 0.0
    off = actual[finite].astype(np.float64) - wide
    return float(np.sqrt(np.mean(off**2) / (np.mean(wide**2) or 1)))


def with_rounded_weights(
    model: onnx.ModelProto, conversion: HalfConversion, base_dir: str | None = None
) -> onnx.ModelProto:
    """Return the float32 model with the constants and the bounded fills of its conversion."""
    copy = onnx.ModelProto()
    copy.CopyFrom(unique_names(dense(model, base_dir)))
    halves = dict(_constants(conversion.model.graph, _FLOAT16))
    for graph, other in zip(graphs_of(copy), graphs_of(conversion.model), strict=True):
        _round(graph, other, halves, base_dir)
        _bound(graph, conversion.clipped, default_opset(model))
    for function, other in zip(copy.functions, conversion.model.functions, strict=True):
        halves = dict(_constants(other, _FLOAT16))
        _round(function, other, halves, base_dir)
        for body, converted in zip(bodies_in(function.node), bodies_in(other.node), strict=True):
            _round(body, converted, halves, base_dir)
    return copy


def _round(graph: Any, other: Any, halves: Mapping[str, Any], base_dir: str | None) -> None:
    """Round the constants of a graph that are half in the other one."""
    fills = {node.output[0] for node in graph.node if node.op_type == "ConstantOfShape"}
    exact = {name for name, _ in _constants(other, FLOAT)}
    for name, tensor in list(_constants(graph, FLOAT, bodies=False)):
        array = to_numpy(tensor, base_dir)
        wide = rounded_array(array).astype(np.float32)
        if name in halves or (name in fills and f"{name} (float16)" in halves):
            tensor.CopyFrom(from_numpy(wide, tensor.name))
            if f"{name} (float32)" in exact:  # an output, which nodes read in float32
                _add_form(graph, other, f"{name} (float32)", array)
            continue
        for form in [form for form in halves if form.startswith(f"{name} (float16)")]:
            _add_form(graph, other, form, wide)


def _add_form(graph: Any, other: Any, form: str, array: Array) -> None:
    """Add a constant of the other graph, for the nodes that read it there."""
    readers = {
        _FORM.sub("", node.output[0]): node  # an output that is cast behind it
        for nodes in lists_of(other.node)
        for node in nodes
        if form in node.input
    }
    constant = onnx.helper.make_node("Constant", [], [form], value=from_numpy(array, form))
    graph.node.insert(0, constant)
    for node in (node for nodes in lists_of(graph.node) for node in nodes):
        reader = readers.get(_FORM.sub("", node.output[0]))
        if reader is not None and form in reader.input:
            node.input[list(reader.input).index(form)] = form


def _bound(graph: onnx.GraphProto, clipped: frozenset[str], opset: int) -> None:
    """Bound values by half's range, behind their producers."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        nodes.append(copy)
        for slot, name in enumerate(node.output):
            if name in clipped:
                copy.output[slot] = f"{name} (unbounded)"
                nodes += bounded(copy.output[slot], name, str, opset)
    del graph.node[:]
    graph.node.extend(nodes)


def _constants(graph: Any, kind: int, *, bodies: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the constants of a type in a graph or function by name."""
    for tensor in getattr(graph, "initializer", ()):
        if tensor.data_type == kind:
            yield tensor.name, tensor
    for node in graph.node:
        for entry in node.attribute:
            if entry.HasField("t") and entry.t.data_type == kind:
                yield node.output[0], entry.t
            elif bodies and entry.HasField("g"):
                yield from _constants(entry.g, kind)
