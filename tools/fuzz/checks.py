"""What must hold of every rewrite, whatever was replaced by what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from gehost import FusionBasePass, Host, HostOptions
from gehost.host.hookspecs import hookimpl
from gehost.host.registry import PassSpec
from gehost.ir.graph import Graph
from gehost.ir.model import Model
from gehost.passes.context import CustomPassContext, PassRecord
from gehost.stages import CustomPassStage
from tests.conftest import Described
from tools.fuzz.rewrites import operators

Feeds = Mapping[str, np.ndarray]
RunErrors = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
)
"""What ONNX Runtime raises of a model or feed that it does not take."""


class Failure(Exception):
    """A check that did not hold; ``check`` says which."""

    def __init__(self, check: str, detail: str, models: Sequence[onnx.ModelProto] = ()) -> None:
        super().__init__(f"{check}: {detail}")
        self.check = check
        self.models = tuple(models)


@dataclass
class Tally:
    """What was done so far."""

    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.refused.update(other.refused)
        self.checks.update(other.checks)

    def note(self, record: PassRecord) -> None:
        self.counts["passes"] += 1
        self.counts["matches"] += record.matched
        self.counts["rewrites"] += record.replaced
        self.counts["passes that rewrote"] += record.replaced > 0
        self.refused.update(record.rejected)


# -- running a pass -------------------------------------------------------------------------------------------------


def run_pass(model: onnx.ModelProto, spec: PassSpec) -> tuple[onnx.ModelProto, PassRecord]:
    """Compile with one pass; the index is compared with a fresh one right behind it."""
    host = Host(
        HostOptions(vendors=[], plugins=False, cleanup=False), plugins=[("index", _IndexCheck())]
    )
    for operator in operators():
        host.ops.add(operator)
    host.passes.add(spec)
    result, report = host.run(model)
    return result, report.passes[-1]


class _IndexCheck:
    """Proves the index, and that it is what a load of the written model gives."""

    @hookimpl
    def gehost_after_pass(self, spec: PassSpec, graph: Graph, record: PassRecord) -> None:
        del spec, record
        model, describe = graph.model, Described()
        model.check()
        if describe(model, types=False) != describe.fresh(model, types=False):
            raise Failure("index", "it differs from that of a fresh load", [model.flush()])


class _Undone(FusionBasePass):
    """Runs a pass and takes everything back."""

    def __init__(self, spec: PassSpec) -> None:
        self._pass = spec.factory()

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        model, describe = graph.model, Described()
        mark, before = model.mark(), describe(model)
        self._pass.Run(graph, context)
        model.undo(mark)
        if describe(model) != before:
            raise Failure("undo", "the index is not as it was")


# -- checks ---------------------------------------------------------------------------------------------------------


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    """The model in ONNX Runtime as it stands, without optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry(
        "session.disable_prepacking", "1"
    )  # packed weights are multiplied in another order
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check_valid(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """``onnx.checker`` is content, and what callers see is as it was."""
    try:
        onnx.checker.check_model(after, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise Failure("checker", str(error), [before, after]) from error
    for side in ("input", "output"):
        if list(getattr(before.graph, side)) != list(getattr(after.graph, side)):
            raise Failure("interface", f"the graph's {side}s changed", [before, after])


def check_numbers(
    model: onnx.ModelProto,
    feeds: Sequence[Feeds],
    target: Sequence[Sequence[np.ndarray]],
    *,
    ops: Collection[str] | None = None,
) -> None:
    """ONNX Runtime gives what it gave before, exactly, or after a compile of a graph of ``ops``.

    Its Where makes 0.0 of the -0.0 that a condition chose, which a Where that is removed does not:
    infinities of other signs behind it are no difference. A double may come from a float by a Cast.
    """
    running = session(model)
    for number, (feed, expected) in enumerate(zip(feeds, target, strict=True)):
        for place, (one, other) in enumerate(
            zip(expected, running.run(None, dict(feed)), strict=True)
        ):
            where = f"output {model.graph.output[place].name} on feed {number}"
            if one.dtype != other.dtype or one.shape != other.shape:
                raise Failure(
                    "numbers", f"{where}: {one.dtype}{one.shape} became {other.dtype}{other.shape}"
                )
            if not _equal(one, other, ops):
                raise Failure("numbers", f"{where}: {one.tolist()} became {other.tolist()}")


def _equal(one: np.ndarray, other: np.ndarray, ops: Collection[str] | None) -> bool:
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    if ops is None:
        return np.array_equal(one, other, equal_nan=True)
    if "Where" in ops:
        one, other = (np.where(np.isinf(side), np.inf, side) for side in (one, other))
    size = min(one.dtype.itemsize, 4 if "Cast" in ops else 8)
    rtol, atol = {2: (1e-2, 1e-3), 4: (1e-4, 1e-5), 8: (1e-7, 1e-9)}[size]
    return np.allclose(one, other, rtol=rtol, atol=atol, equal_nan=True)


def check_no_orphans(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Nothing was added that nobody reads, unless it took the place of something that nobody read."""
    entries = {name for graph in _graphs(before.graph) for name in _defined(graph)}
    read = {name for graph in _graphs(after.graph) for node in graph.node for name in node.input}
    read.update(info.name for graph in _graphs(after.graph) for info in graph.output)
    for graph in _graphs(after.graph):
        for node in graph.node:
            if not any(name in read or name in entries for name in node.output):
                raise Failure("orphan", f"nobody reads the new node {node.name}", [before, after])
        for tensor in graph.initializer:
            if (
                tensor.name not in read
                and tensor.name not in entries
                and not _has_heir(tensor, graph, read)
            ):
                raise Failure(
                    "orphan", f"nobody reads the new initializer {tensor.name}", [before, after]
                )
    old = {node.name for graph in _graphs(before.graph) for node in graph.node}
    new = [
        node.name for graph in _graphs(after.graph) for node in graph.node if node.name not in old
    ]
    if len(new) != len(set(new)):
        raise Failure("names", "two new nodes have one name", [before, after])


def _has_heir(tensor: onnx.TensorProto, graph: onnx.GraphProto, read: Collection[str]) -> bool:
    """Whether an equal initializer is read.

    A constant that a match forwards is part of the next match; what that leaves unread is the clean-up's.
    """
    return any(
        other.name in read and other.raw_data == tensor.raw_data for other in graph.initializer
    )


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    results = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                results.extend(_graphs(attribute.g))
    return results


def _defined(graph: onnx.GraphProto) -> list[str]:
    return [
        *(name for node in graph.node for name in node.output),
        *(tensor.name for tensor in graph.initializer),
    ]


def check_pass(
    model: onnx.ModelProto, spec: PassSpec, tally: Tally, *, thorough: bool
) -> onnx.ModelProto:
    """Run a pass and check everything but the numbers; ``thorough`` adds what costs another run."""
    result, record = run_pass(model, spec)
    tally.note(record)
    original = model.SerializeToString(deterministic=True)
    output = result.SerializeToString(deterministic=True)
    if not record.replaced:
        _hold(
            output == original,
            tally,
            "untouched",
            "the pass did nothing, but the model changed",
            model,
            result,
        )
        return result
    check_valid(model, result)
    check_no_orphans(model, result)
    tally.checks.update(["checker", "interface", "index", "orphan"])
    if thorough:
        same, _ = run_pass(model, spec)
        _hold(
            same.SerializeToString(deterministic=True) == output,
            tally,
            "determinism",
            "two runs differ",
            model,
            result,
            same,
        )
        again, second = run_pass(result, spec)
        if second.replaced and spec.stage is CustomPassStage.kBeforeInferShape:
            # What rewrites made known of types is not in the file, so that another run may prove more, or less.
            tally.counts["second runs before inference that found more"] += 1
        else:
            _hold(
                not second.replaced,
                tally,
                "second run",
                f"it found {second.replaced} more",
                result,
                again,
            )
            unchanged = again.SerializeToString(deterministic=True) == output
            _hold(unchanged, tally, "second run", "it changed something", result, again)
        undone, _ = run_pass(model, replace(spec, factory=lambda: _Undone(spec), trusted=False))
        _hold(
            undone.SerializeToString(deterministic=True) == original,
            tally,
            "undo",
            "the bytes are not as they were",
            model,
            undone,
        )
    return result


def _hold(holds: bool, tally: Tally, check: str, detail: str, *models: onnx.ModelProto) -> None:
    tally.checks[check] += 1
    if not holds:
        raise Failure(check, detail, models)


def fresh_model(model: onnx.ModelProto) -> Model:
    """A model of one's own to look at."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return Model(copy)


def outputs_of(model: onnx.ModelProto, feeds: Sequence[Feeds]) -> list[list[Any]]:
    """What ONNX Runtime gives, feed by feed."""
    running = session(model)
    return [running.run(None, dict(feed)) for feed in feeds]
