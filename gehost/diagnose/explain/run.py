"""Compile up to a pass and explain each candidate's nearest miss.

The rules run as always. Before a rule runs on a graph, the reference matcher matches its candidates
on the same graph; the hooks around rewrites then give the outcome of each match.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import onnx

from gehost.diagnose.explain.account import Account
from gehost.diagnose.explain.findings import Explanation, Finding, Outcome
from gehost.diagnose.explain.unproven import advice
from gehost.diagnose.nodes import Whereabouts, check_name, near_names, nodes_named
from gehost.errors import GehostError, UsageError
from gehost.host.context import CompileContext
from gehost.host.hookspecs import hookimpl
from gehost.host.host import Host
from gehost.host.registry import PassSpec
from gehost.host.switches import check_names
from gehost.ir.gc_policy import gc_disabled
from gehost.ir.graph import Graph, Node
from gehost.ir.model import Model
from gehost.ir.node import op_name
from gehost.options import HostOptions
from gehost.passes.base import DecomposePass, FusionBasePass
from gehost.passes.context import PassRecord, Rewrite
from gehost.passes.registration import mark_of
from gehost.pattern.explain.messages import named
from gehost.pattern.source import SourcePattern
from gehost.refusal import Refusal


def explain(
    model: str | os.PathLike[str] | onnx.ModelProto,
    pass_name: str,
    options: HostOptions,
    node: str | None = None,
) -> Explanation:
    """Compile a model up to a pass and explain its result.

    Nothing is written.

    Args:
        model: a file, or a model in memory.
        pass_name: the pass.
        options: of the compile; dumps and verification are left out.
        node: explain only this node: its name, or that of a tensor it produces.

    Raises:
        UsageError: the pass or node does not exist, or the node's name is empty.
        ModelError: the model cannot be read or is not valid.
        VendorError: a vendor file cannot be loaded.
        PassError: a pass up to this one failed.
    """
    if node is not None:
        check_name(node)
    watch = _Watch(pass_name, node)
    options = options.rewrites_only()
    host = Host(options, plugins=[("explain", watch)])
    check_names([pass_name], host.passes.names(), "explain", host.unregistered)
    for class_ in host.unregistered:
        watch.note(str(class_))
    spec = host.passes.get(pass_name)
    assert spec is not None
    named = {*options.enable, *options.disable, *options.only}
    if not spec.default and not {pass_name, "ALL"} & named:
        enabled = replace(options, enable=[*options.enable, pass_name])
        host = Host(enabled, plugins=[("explain", watch)])
        watch.note(f"off by default; --enable {pass_name} runs it; explained as if it ran")
    watch.account = Account(spec.origin)
    with gc_disabled(), suppress(_Enough):  # the findings stay alive until the end
        if isinstance(model, onnx.ModelProto):
            host.run(model)
        else:
            host.compile(model, os.devnull)  # ends before the output is written
    shown = model.graph.name if isinstance(model, onnx.ModelProto) else os.fspath(model)
    explanation = Explanation(
        shown, spec.name, spec.vendor, spec.stage.name, spec.kind, spec.origin, node
    )
    watch.fill(explanation)
    return explanation


class _Enough(GehostError):  # noqa: N818 - ends a compile, and is not an error
    """Ends the compile after the pass to explain."""


class _Watch:
    """The plugin that records candidates and outcomes while the pass runs."""

    account: Account

    def __init__(self, pass_name: str, node: str | None) -> None:
        self._name = pass_name
        self._node = node
        self._whereabouts = Whereabouts(())
        self._was_there = False
        self._targets: list[Node] | None = None if node is None else []
        """The requested nodes, in the graph as the pass meets it; None for all."""
        self._near = ""
        self._asked = "MeetRequirements"
        """The author's name of the method that judges a match."""
        self._has_own_run = False
        """Whether the pass defines ``Run``, which may refuse for reasons of its own."""
        self._pending: tuple[Rewrite, Node | None] | None = None
        """A rewrite that has begun, and the producer of its output 0."""
        self._record: PassRecord | None = None
        self._model: Model | None = None
        self._functions: Mapping[str, onnx.FunctionProto] = {}
        self._gone: list[Finding] = []
        self._notes: list[str] = []

    def note(self, text: str) -> None:
        self._notes.append(text)

    def fill(self, explanation: Explanation) -> None:
        """Fill in the explanation.

        Raises:
            UsageError: the requested node has never been in the graph.
        """
        record = self._record
        assert record is not None
        if self._targets == [] and not self._was_there:
            raise UsageError(
                f'the model has no node "{self._node}" when {self._name} runs; {self._near}'
            )
        explanation.status, explanation.message = record.status, record.message
        explanation.findings = [*self._gone, *self.account.findings()]
        explanation.variants = self.account.variants
        explanation.notes = [*self._notes, *_state_of(record)]

    # the compile up to the pass

    @hookimpl
    def gehost_compile_started(self, graph: Graph) -> None:
        if self._node is not None:
            nodes = nodes_named(graph.model, self._node)
            self._was_there = bool(nodes)
            self._whereabouts = Whereabouts(nodes)

    @hookimpl
    def gehost_stage_finished(self, context: CompileContext) -> None:
        self._whereabouts.check(
            f"a hook of stage {context.stage.name}" if context.stage is not None else "a hook"
        )

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec, graph: Graph) -> None:
        self._whereabouts.check("the clean-up")
        if spec.name == self._name:
            self._has_own_run = not spec.trusted
            self._asked = spec.method_names.get("MeetRequirements", "MeetRequirements")
            self._model, self._functions = graph.model, graph.model.functions
            self._arrive(graph.model)

    @hookimpl
    def gehost_after_pass(self, spec: PassSpec, record: PassRecord) -> None:
        if spec.name != self._name:
            self._whereabouts.check(f"pass {spec.name}")
            return
        self._record = record
        self.account.record_outcomes(self._targets)
        if not self.account.saw_rules and record.status in ("done", "not changed"):
            self._without_rules(spec, record)
        self._notes.extend(_in_functions(self._functions, self.account.missing))
        raise _Enough

    @hookimpl
    def gehost_compile_finished(self, graph: Graph, context: CompileContext) -> None:
        """Handle a pass that did not run."""
        self._whereabouts.check("the clean-up")
        self._arrive(graph.model)
        records = [record for record in context.report.passes if record.name == self._name]
        if not records:  # of a plugin's pass that is off by default there is no record
            reason = f"off by default; --enable {self._name} runs it"
            records = [PassRecord(self._name, "", "", "", status="disabled", message=reason)]
        self._record = records[0]
        raise _Enough

    def _arrive(self, model: Model) -> None:
        """Find the requested node in the graph as the pass meets it."""
        if self._node is None:
            return
        self._targets = nodes_named(model, self._node)
        self._notes.extend(
            f"{named(node)} was made by {by}"
            for node in self._targets
            if (by := node.metadata.get("gehost.pass"))
        )
        if self._targets:
            return
        self._near = near_names(model, self._node)
        if self._was_there:
            fate = self._whereabouts.fate or "is not in the graph any more"
            self._gone.append(Finding(Outcome.GONE, f'"{self._node}" {fate}', self._node))

    # the pass

    @hookimpl
    def gehost_before_rule(self, record: PassRecord, source: SourcePattern, graph: Graph) -> None:
        if record.name == self._name:
            self.account.record_outcomes(self._targets)
            self.account.start(source, graph, self._targets)

    @hookimpl
    def gehost_before_rewrite(self, rewrite: Rewrite) -> None:
        self._pending = rewrite, rewrite.region.outputs[0].producer

    @hookimpl
    def gehost_after_rewrite(self, rewrite: Rewrite) -> None:
        pending, self._pending = self._pending, None
        self._whereabouts.rewritten(rewrite)
        if rewrite.record.name == self._name and pending is not None and pending[1] is not None:
            self.account.rewritten(pending[1], rewrite)

    @hookimpl
    def gehost_match_refused(self, record: PassRecord, node: Node, refusal: Refusal) -> None:
        pending, self._pending = self._pending, None
        if record.name != self._name:
            return
        advised: tuple[str, ...] = ()
        reason = str(refusal)
        if pending is not None:
            advised = advice(reason, pending[0].region, self._asked)
            reason = f"at commit: {reason}"
        elif self._has_own_run and not self.account.saw_rules:
            pass
        elif reason == self._asked:
            reason = f"{self._asked}: it returned False"
        elif not reason.startswith(self._asked):
            reason = f"{self._asked}: {reason}"
        self.account.refused(node, refusal.key, reason, advised)

    def _without_rules(self, spec: PassSpec, record: PassRecord) -> None:
        """Explain a pass without patterns."""
        instance = spec.factory()
        if not isinstance(instance, DecomposePass) or not spec.trusted:
            if not (isinstance(instance, FusionBasePass) and instance.names_refusals):
                self._notes.append(
                    "it walks the graph itself: its rewrites and refusals are listed, nodes that "
                    "it skipped without a reason are not"
                )
            if self._targets and not self.account.findings():
                self._notes.append("no rewrite and no refusal of the pass is about this node")
            elif isinstance(instance, FusionBasePass) and not self.account.findings():
                assert self._model is not None
                self._notes += filter(None, [instance.absence(self._model)])
            return
        mark = mark_of(type(instance))
        op_types = instance.op_types or (mark.op_types if mark is not None else ())
        ops = [op_types] if isinstance(op_types, str) else list(op_types)
        for node in self._targets or ():
            if node.op_type not in {op.rpartition("::")[2] for op in ops}:
                self.account.add(
                    node, Outcome.MISSED, f"wanted {' or '.join(ops)}, got {named(node)}"
                )
        if self._targets is None and not record.matched:
            self._notes.append(f"the model has no {' or '.join(ops)}")
            self._notes.extend(_in_functions(self._functions, ops))


def _in_functions(functions: Mapping[str, onnx.FunctionProto], ops: Iterable[str]) -> Iterator[str]:
    """Note which functions of the model hold operators that the graph lacks."""
    for op in ops:
        holders = [
            name
            for name, function in functions.items()
            if any(op_name(n.domain, n.op_type, n.overload) == op for n in function.node)
        ]
        if holders:
            more = f" and {len(holders) - 3} more" if len(holders) > 3 else ""
            yield (
                f"functions of the model have {op} ({', '.join(holders[:3])}{more}): "
                "--inline-functions makes them part of the graph"
            )


def _state_of(record: PassRecord) -> list[str]:
    """Return notes on a pass that did not run to its end."""
    if record.status == "disabled":
        by_switch = "by a switch (--disable, or the fusion-switch file); --enable turns it on"
        return [f"disabled: {record.message}" if record.message else f"disabled {by_switch}"]
    if record.status == "not applicable":
        return [f"not applicable: {record.message}"]
    if record.status == "failed":
        return [f"it failed and was undone: {record.message}"]
    return [record.message] if record.message else []
