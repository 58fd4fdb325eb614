"""Capture one rewrite as two small models, with its input values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnx.helper

from gehost.diagnose.bisect.submodel import submodel
from gehost.errors import GehostError, ModelError, UsageError
from gehost.host.hookspecs import hookimpl
from gehost.ir.graph import Node, Value
from gehost.ir.types import OtherType
from gehost.passes.context import Rewrite
from gehost.verify import Baseline, Runner, Verification, make_feeds

Feeds = Mapping[str, np.ndarray[Any, Any]]

_PROBED = " (probed)"
"""Suffix of a probe's output name."""


@dataclass(frozen=True)
class Captured:
    """A rewrite; its matched nodes and their replacements are pairs ``(label, operator)``."""

    number: int
    pass_name: str
    vendor: str
    stage: str
    origin: str
    inside: str
    """The node in whose body the match is; "" in the main graph."""
    nodes: tuple[tuple[str, str], ...]
    made: tuple[tuple[str, str], ...]
    before: onnx.ModelProto
    after: onnx.ModelProto
    probe: onnx.ModelProto | None
    """Computes the values at the inputs of both models; None if the match is in a body, which may
    run any number of times.
    """
    base_dir: str | None
    """Directory of the models' external data."""
    libraries: tuple[str, ...] = ()
    """Shared libraries of custom operators that ONNX Runtime needs for the models."""
    feeds: Feeds = field(default_factory=dict[str, Any])
    made_up: str = ""
    """Why the feeds are not those of the failing run; "" if they are."""
    alone: Verification | str = ""
    """The comparison of the match alone, or why it could not be compared."""

    @property
    def probes(self) -> int:
        """Number of model runs that the values took."""
        return int(self.probe is not None and bool(self.probe.graph.output))

    @property
    def right_alone(self) -> bool:
        return isinstance(self.alone, Verification) and self.alone.equal

    def compared(self, rtol: float | None = None, atol: float | None = None) -> Captured:
        """Return a copy with the result of ``compare``."""
        try:
            return replace(self, alone=self.compare(rtol, atol))
        except (ModelError, UsageError) as error:
            return replace(self, alone=str(error))

    def with_values(self, feeds: Feeds) -> Captured:
        """Return a copy with the match's input values from the model's ``feeds``.

        If they cannot be computed, generated values take their place.
        """
        inputs: Feeds = {}
        unknown = "the match is in the body of a node" if self.probe is None else ""
        if self.probe is not None:
            try:
                needed = {entry.name for entry in self.probe.graph.input}
                read = {name: array for name, array in feeds.items() if name in needed}
                values = self._runner(self.probe).run(read) if self.probe.graph.output else {}
                inputs = {name.removesuffix(_PROBED): array for name, array in values.items()}
            except GehostError as error:
                unknown = str(error)
        if unknown:
            with suppress(UsageError):  # an input of unknown rank; then there are no feeds
                inputs = make_feeds(self.before)
        before, after = onnx.ModelProto(), onnx.ModelProto()
        for copy, proto in ((before, self.before), (after, self.after)):
            copy.CopyFrom(proto)
            for entry in copy.graph.input:
                array = inputs.get(entry.name)
                if array is not None:
                    entry.CopyFrom(
                        onnx.helper.make_tensor_value_info(entry.name, _element(array), array.shape)
                    )
        _declare_outputs(before, after, inputs, self._runner)
        return replace(self, before=before, after=after, feeds=inputs, made_up=unknown)

    def compare(self, rtol: float | None = None, atol: float | None = None) -> Verification:
        """Compare the numbers of the match alone, before and after.

        Raises:
            ModelError: the match alone does not run.
        """
        runner = self._runner(self.before)
        baseline = Baseline.of(runner, [self.feeds], rtol=rtol, atol=atol)
        return baseline.against(self.after, base_dir=self.base_dir)

    def _runner(self, model: onnx.ModelProto) -> Runner:
        return Runner(model, base_dir=self.base_dir, libraries=self.libraries, widens=True)


class Capture:
    """A plugin that copies the ``number``-th rewrite of a compile."""

    def __init__(self, number: int, libraries: tuple[str, ...] = ()) -> None:
        self._number = number
        self._libraries = libraries
        self._inputs: list[Value] = []
        self._readers: list[tuple[Node, int] | None] = []
        self._nodes: tuple[tuple[str, str], ...] = ()
        self._before = onnx.ModelProto()
        self._captured: Captured | None = None

    def captured(self) -> Captured:
        """Return the captured rewrite.

        Raises:
            GehostError: the compile did fewer rewrites.
        """
        if self._captured is None:
            raise GehostError(
                f"this compile did not reach rewrite {self._number}; two compiles of one "
                "model differ"
            )
        return self._captured

    @hookimpl
    def gehost_before_rewrite(self, rewrite: Rewrite) -> None:
        if rewrite.number != self._number:
            return
        region = rewrite.region
        self._inputs = [
            value
            for value in dict.fromkeys(region.inputs)
            if value is not None and not value.is_constant and not isinstance(value.type, OtherType)
        ]
        # an outside user of an output shows its replacement; a graph output keeps its name
        self._readers = [
            None
            if value.is_graph_output
            else next(
                (
                    (user, slot)
                    for user, slot in value.consumers()
                    if not region.holds(region.graph.level_of(user))
                ),
                None,
            )
            for value in region.outputs
        ]
        self._nodes = _labels(region.nodes)
        outputs = [(value.name, value) for value in region.outputs]
        self._before = submodel(region.graph.model, outputs, self._inputs, name="before")

    @hookimpl
    def gehost_after_rewrite(self, rewrite: Rewrite) -> None:
        if rewrite.number != self._number:
            return
        region = rewrite.region
        outputs: list[tuple[str, Value]] = []
        for value, reader in zip(region.outputs, self._readers, strict=True):
            replaced = value
            if reader is not None:
                node, slot = reader
                replaced = node.input(slot)
                if replaced is None:
                    raise GehostError(f"{node!r} lost its input {slot}")
            outputs.append((value.name, replaced))
        model, owner = region.graph.model, region.graph.owner
        before, after = self._before, submodel(model, outputs, self._inputs, name="after")
        _share_inputs(before, after)
        pairs = [(entry.name, region.graph.find(entry.name)) for entry in before.graph.input]
        probed = [(f"{name}{_PROBED}", value) for name, value in pairs if value is not None]
        record = rewrite.record
        self._captured = Captured(
            number=rewrite.number,
            pass_name=record.name,
            vendor=record.vendor,
            stage=record.stage,
            origin=record.origin,
            inside="" if owner is None else owner.label,
            nodes=self._nodes,
            made=_labels(rewrite.made),
            before=before,
            after=after,
            probe=submodel(model, probed, name="probe") if owner is None else None,
            base_dir=model.base_dir,
            libraries=self._libraries,
        )


def _labels(nodes: Iterable[Node]) -> tuple[tuple[str, str], ...]:
    return tuple((node.label, node.op) for node in nodes)


def _share_inputs(a: onnx.ModelProto, b: onnx.ModelProto) -> None:
    """Give two models the same inputs, so that feeds fit both."""
    constants = {tensor.name for proto in (a, b) for tensor in proto.graph.initializer}
    entries = {
        entry.name: entry
        for proto in (a, b)
        for entry in proto.graph.input
        if entry.name not in constants
    }
    for proto in (a, b):
        own = {entry.name for entry in proto.graph.input}
        proto.graph.input.extend(entry for name, entry in entries.items() if name not in own)


def _declare_outputs(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Feeds,
    runner: Callable[[onnx.ModelProto], Runner],
) -> None:
    """Declare outputs by element type and rank; a rewrite may change sizes."""
    types = {entry.name: entry.type for entry in before.graph.output}
    for name, type_ in types.items():
        if type_.WhichOneof("value") not in (None, "tensor_type"):
            continue
        tensor = type_.tensor_type
        if tensor.HasField("shape"):
            element, rank = tensor.elem_type, len(tensor.shape.dim)
        else:
            try:
                array = runner(before).run(feeds)[name]
            except GehostError:
                continue
            element, rank = _element(array), array.ndim
        type_.CopyFrom(onnx.helper.make_tensor_type_proto(element, [None] * rank))
    for entry in after.graph.output:
        entry.type.CopyFrom(types[entry.name])


def _element(array: np.ndarray[Any, Any]) -> int:
    return (
        onnx.TensorProto.STRING
        if array.dtype.kind in "OUS"
        else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    )
