"""Run the passes and hooks of a stage.

Each one that fails is undone and reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from gehost.errors import GehostError, PassError, VendorError, described
from gehost.host.containment import (
    contained,
    process_state_restored,
    process_state_restored_lazily,
)
from gehost.host.context import CompileContext
from gehost.host.pipeline import StageRow
from gehost.host.plugins import Hook, Plugins
from gehost.host.registry import PassRegistry, PassSpec
from gehost.infer.again import infer_edited
from gehost.ir.constants import added_bytes
from gehost.ir.edits import undo_add_node
from gehost.ir.graph import Graph, Node
from gehost.ir.model import Model
from gehost.kernels import Target
from gehost.passes.author_errors import author_errors
from gehost.passes.base import FusionBasePass, PatternFusionPass
from gehost.passes.context import (
    CustomPassContext,
    LimitReached,
    PassRecord,
    Rewrite,
    RewriteLimit,
    running,
)
from gehost.pattern.source import SourcePattern
from gehost.refusal import Refusal
from gehost.rewrite.provenance import PASS, Author
from gehost.settings import option_values
from gehost.status import FAILED, NOT_CHANGED, SUCCESS

_REWRITE_HOOKS = (
    "gehost_before_rule",
    "gehost_before_rewrite",
    "gehost_after_rewrite",
    "gehost_match_refused",
)


class Executor:
    """Runs one compile's passes."""

    def __init__(
        self,
        context: CompileContext,
        plugins: Plugins,
        passes: PassRegistry,
        disabled: Iterable[str],
        reusable: dict[str, PatternFusionPass],
    ) -> None:
        self._context = context
        target = Target.of(context.options.target)
        becomes_half = context.report.half
        self._target = target.in_half(context.options.keep_float32) if becomes_half else target
        self._model = context.model
        self._plugins = plugins
        self._passes = passes
        self._disabled = frozenset(disabled)
        self._reusable = reusable
        """Pass objects of earlier compiles, by name, that this one may use."""
        self._limit = RewriteLimit(context.options.rewrite_limit)
        self._observer = _Observer.of(plugins, context.model)
        self.seconds_notifying = 0.0
        """Time spent in read-only hooks, such as dumps; not counted as time of passes."""

    def run_stage(self, row: StageRow) -> None:
        """Run a stage's passes in load order, then its hook.

        Raises:
            PassError: a pass or stage hook failed, and ``keep_going`` is off.
            VendorError: another hook failed, and ``keep_going`` is off.
        """
        self._context.stage = row.stage
        for spec in self._passes.at(row.stage):
            self._run_pass(spec)
        for hook in self._plugins.each(row.hook):
            self._run_stage_hook(hook)
        self.notify("gehost_stage_finished", context=self._context)
        self._context.stage = None

    def notify(self, name: str, **arguments: Any) -> None:
        """Call a hook that may only read the graph.

        Raises:
            PluginError: the hook failed or changed the graph, and ``keep_going`` is off.
        """
        for hook in self._plugins.each(name):
            mark, start = self._model.mark(), time.perf_counter()
            try:
                with contained(hook):
                    hook(graph=self._model.graph, **arguments)
                if self._model.mark() > mark:
                    raise hook.edited()
            except VendorError as error:
                self._undo(mark, error)
                self._go_on_or_raise(error)
            finally:
                self.seconds_notifying += time.perf_counter() - start

    # -- passes

    def _run_pass(self, spec: PassSpec) -> None:
        if spec.name in self._disabled and not spec.default and spec.from_plugin:
            return  # a plugin's pass that is off by default is not part of the compile
        record = PassRecord(spec.name, spec.stage.name, spec.origin, spec.kind, spec.vendor)
        self._context.report.passes.append(record)
        record.status, record.message = self._skip_reason(spec)
        if record.status != "done":
            return
        self.notify("gehost_before_pass", spec=spec)
        start = time.perf_counter()
        mark, rewrites = self._model.mark(), self._limit.done
        try:
            with process_state_restored_lazily() as before_author_code:
                self._call(spec, record, before_author_code)
            changed = self._model.mark() > mark
            if changed and not spec.trusted:
                self._check("it left an invalid graph", spec.origin, spec.name)
                infer_edited(self._model, self._context.inferrer, mark)
                self._record_provenance(mark, Author(spec.name, spec.vendor))
            if record.status == "done" and not changed:
                record.status = "not changed"
        except GehostError as error:
            self._undo(mark, error)
            self._limit.done = rewrites
            record.status, record.message, record.replaced = "failed", str(error), 0
            self.notify("gehost_pass_failed", spec=spec, error=error)
            self._go_on_or_raise(error)
        finally:
            record.seconds = time.perf_counter() - start
        self._context.added += added_bytes(self._model, mark)
        self._model.commit()
        self.notify("gehost_after_pass", spec=spec, record=record)

    def _skip_reason(self, spec: PassSpec) -> tuple[str, str]:
        """Return a skipped pass's status and reason; "done" if it will run."""
        opset = self._model.opset() or 0
        if spec.name in self._disabled:
            by_default = "" if spec.default else f"off by default; --enable {spec.name} runs it"
            return "disabled", by_default
        if spec.min_opset is not None and opset < spec.min_opset:
            return "not applicable", f"needs opset {spec.min_opset} or newer, the model has {opset}"
        if spec.max_opset is not None and opset > spec.max_opset:
            return "not applicable", f"is for opsets up to {spec.max_opset}, the model has {opset}"
        if self._limit.reached:
            return "not changed", "the compile has reached its limit of rewrites"
        return "done", ""

    def _call(
        self, spec: PassSpec, record: PassRecord, before_author_code: Callable[[], None]
    ) -> None:
        context = CustomPassContext(
            self._model,
            self._context.ops,
            self._context.inferrer,
            spec.stage,
            record,
            limit=self._limit,
            node_support=self._node_support,
            observer=self._observer,
            before_author_code=before_author_code,
            options=option_values(
                spec.name,
                spec.options,
                self._context.options.settings,
                self._context.options.assume,
                any_name=spec.any_option,
            ),
            settings=self._context.options.settings,
            method_names=spec.method_names,
            target=self._target,
        )
        context.author = spec.author
        with running(context):
            with author_errors(context, "__init__"):
                instance: Any = self._reusable.pop(spec.name, None)
                if instance is None or not spec.trusted:
                    before_author_code()
                instance = instance or spec.factory()
                context.author = spec.author or type(instance)
                context.shape_proven = bool(getattr(instance, "shape_proven", False))
                if spec.options and isinstance(instance, FusionBasePass):
                    instance.options = context.options
            for graph in list(self._model.graphs):
                if graph.owner is not None and not graph.owner.in_graph:
                    continue
                inside = (
                    ""
                    if graph.owner is None
                    else f' in graph "{graph.name}" of node "{graph.owner.label}"'
                )
                with author_errors(context, f"Run{inside}"), suppress(LimitReached):
                    result: Any = instance.Run(graph, context)
                    if result is FAILED or result is False:
                        raise PassError(context.GetErrorMessage() or "it returned FAILED")
                    if result not in (None, True, SUCCESS, NOT_CHANGED):
                        raise PassError(
                            f"it returned {result!r}",
                            hint="wanted None, SUCCESS, NOT_CHANGED or FAILED",
                        )
        if isinstance(instance, PatternFusionPass) and instance.end_compile():
            self._reusable[spec.name] = instance

    def _check(self, problem: str, where: object | None, subject: str) -> None:
        """Raise ``PassError`` with ``problem`` and its details if the graph is invalid."""
        try:
            self._model.check()
        except Exception as error:  # a corrupted index may raise anything
            failure = PassError(f"{problem}: {described(error)}", where=where, subject=subject)
            failure.named = True
            raise failure from error

    def _record_provenance(self, mark: int, author: Author) -> None:
        """Write the author into each node that a pass added.

        Nodes of rewrites have it already.

        The nodes it was made from are not known.
        """
        for undo, arguments in self._model.journal.since(mark):
            if (
                undo is undo_add_node
                and arguments[0].in_graph
                and PASS not in arguments[0].metadata
            ):
                node: Node = arguments[0]
                for key, text in author.signature().items():
                    node.graph.set_metadata(node, key, text)

    def _node_support(self, node: Any) -> tuple[bool, str]:
        for answer in self._plugins.call("gehost_check_node_support", node=node):
            if answer is False or isinstance(answer, str):
                return False, answer or "a plugin reports that the target cannot run it"
        return True, "no plugin objects"

    # -- stage hooks

    def _run_stage_hook(self, hook: Hook) -> None:
        mark = self._model.mark()
        try:
            with process_state_restored():
                hook(graph=self._model.graph, context=self._context)
            if self._model.mark() > mark:
                self._check(f"{hook.name} left an invalid graph", hook.origin, hook.subject)
                infer_edited(self._model, self._context.inferrer, mark)
                self._context.hook_edits.append((hook.name, hook.plugin))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it becomes a PassError that names the plugin
            if isinstance(error, PassError) and error.named:
                failure = _pass_error(error)
            else:
                failure = _pass_error(hook.failure(error))
            failure.__cause__ = error
            self._undo(mark, failure)
            self.notify("gehost_pass_failed", spec=None, error=failure)
            self._go_on_or_raise(failure)
        self._model.commit()

    def _undo(self, mark: int, failure: GehostError) -> None:
        try:
            self._model.undo(mark)
            self._model.check()
        except Exception as error:  # noqa: BLE001 - the code called Model.flush, save or commit, or bypassed the Graph's methods
            stopped = _pass_error(failure)
            reason = f"its edits cannot be undone, so the compile stops: {described(error)}"
            stopped.hint = f"{failure.hint}; {reason}" if failure.hint else reason
            raise stopped from failure

    def _go_on_or_raise(self, error: GehostError) -> None:
        if not self._context.options.keep_going:
            raise error
        self._context.report.keep_going(str(error), error.exit_code)


def _pass_error(error: GehostError) -> PassError:
    """Return the ``PassError`` with the parts of another error, which names its author."""
    failure = PassError(error.message, where=error.where, subject=error.subject, hint=error.hint)
    failure.named = True
    return failure


class _Observer:
    """Calls the hooks of plugins for each rule, rewrite and refusal.

    A hook that fails makes the pass fail, with an error that names the hook's plugin.
    """

    def __init__(self, plugins: Plugins, model: Model) -> None:
        self._hooks = {name: list(plugins.each(name)) for name in _REWRITE_HOOKS}
        self._model = model

    @classmethod
    def of(cls, plugins: Plugins, model: Model) -> _Observer | None:
        """Return None without such hooks: rewrites then cost nothing for them."""
        observer = cls(plugins, model)
        return observer if any(observer._hooks.values()) else None

    @property
    def watches_rules(self) -> bool:
        return bool(self._hooks["gehost_before_rule"])

    def before_rule(self, record: PassRecord, source: SourcePattern, graph: Graph) -> None:
        self._call_hooks("gehost_before_rule", record=record, source=source, graph=graph)

    def before_rewrite(self, rewrite: Rewrite) -> None:
        self._call_hooks("gehost_before_rewrite", rewrite=rewrite)

    def after_rewrite(self, rewrite: Rewrite) -> None:
        self._call_hooks("gehost_after_rewrite", rewrite=rewrite)

    def match_refused(self, record: PassRecord, node: Node, refusal: Refusal) -> None:
        self._call_hooks(
            "gehost_match_refused", record=record, node=node, reason=str(refusal), refusal=refusal
        )

    def _call_hooks(self, name: str, **arguments: Any) -> None:
        for hook in self._hooks[name]:
            mark = self._model.mark()
            try:
                with contained(hook):
                    hook(**arguments)
                if self._model.mark() != mark:
                    raise hook.edited()
            except VendorError as error:
                raise _pass_error(error) from error
