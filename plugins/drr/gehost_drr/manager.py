"""The pass manager: a facade over a host of its own.

The host runs, checks and undoes passes as always.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TextIO

import onnx

from gehost import (
    CustomPassStage,
    Graph,
    Host,
    HostOptions,
    Node,
    PassRecord,
    PassSpec,
    Report,
    UsageError,
    hookimpl,
)
from gehost_drr.greedy import Context, Driven
from gehost_drr.passes import Pass, PatternRewritePass, RunningPass
from gehost_drr.printing import print_graph
from gehost_drr.rule import DrrRule

_Wanted = Callable[[str], bool]
_RULE = f"===-{'-' * 73}-==="


@dataclass(frozen=True)
class PassResult:
    """Result of one pass."""

    name: str
    status: str
    """As in a report; ``skipped`` where it was not run."""
    reason: str = ""
    """Why it was skipped, which rules did not apply, that it did not converge."""
    rewrites: Mapping[str, int] = field(default_factory=dict[str, int])
    """By rule."""
    refused: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The nodes at which a match was refused, each once, by reason: ``key: text``."""
    count: int = 0
    converged: bool = True
    seconds: float = 0.0


@dataclass(frozen=True)
class ManagerResult:
    """A model after all passes.

    It has the result of each pass, in order.
    """

    model: onnx.ModelProto
    passes: tuple[PassResult, ...]
    report: Report

    def Statistics(self) -> str:
        """The result of each pass, one a line."""
        return "\n".join(map(_line, self.passes))

    def Timing(self) -> str:
        """Seconds and share of the whole, the longest first."""
        total = sum(pass_.seconds for pass_ in self.passes) or 1.0
        ran = sorted(
            (pass_ for pass_ in self.passes if pass_.status != "skipped"),
            key=lambda pass_: -pass_.seconds,
        )
        return "\n".join(
            f"{pass_.seconds:9.4f} s {100 * pass_.seconds / total:5.1f} %  {pass_.name}"
            for pass_ in ran
        )


def _line(item: PassResult) -> str:
    rules = ", ".join(f"{name} {count}" for name, count in item.rewrites.items() if count)
    count = f"{item.count} {'rewrite' if item.count == 1 else 'rewrites'}"
    how = (
        item.status
        if item.status in ("skipped", "failed")
        else f"{count}{f' ({rules})' if rules else ''}"
    )
    end = f", {'converged' if item.converged else 'not converged'}" if item.rewrites else ""
    refused = Counter[str]()
    for reason, nodes in item.refused.items():
        refused[reason.partition(":")[0]] += len(nodes)
    if refused:
        end += f"; refused {refused.total()}"
        end += f" ({', '.join(f'{key} {count}' for key, count in refused.items())})"
    return f"{item.name}: {how}{end}{f'; {item.reason}' if item.reason else ''}"


class PassManager:
    """Runs passes in the order in which they were added.

    Their stages in vendor files do not count.

    Args:
        context: published code passes its context, which is not needed; a number is ``opt_level``.
        opt_level: passes of a higher level are skipped.
        options: of the host that runs them; without plugins and clean-up unless given.
    """

    def __init__(
        self,
        context: Context | int | None = None,
        opt_level: int = 2,
        options: HostOptions | None = None,
    ) -> None:
        """Raises ``UsageError`` where the context is something else."""
        if isinstance(context, int):
            opt_level = context
        elif context is not None and not isinstance(context, Context):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"PassManager wants a context or an opt_level, got {context!r}")
        self.opt_level = opt_level
        self._options = options or HostOptions(plugins=False, cleanup=False)
        self._passes: list[Pass] = []
        self._printer: _Printer | None = None

    def AddPass(self, pass_: Pass) -> PassManager:
        """Add a pass; returns the manager.

        Raises:
            UsageError: it is none, or one of its name was added.
        """
        if not isinstance(pass_, Pass):  # pyright: ignore[reportUnnecessaryIsInstance] - a class is given easily
            raise UsageError(
                f"AddPass wants an object of a subclass of gehost_drr.Pass, got {pass_!r}"
            )
        if pass_.pass_name() in self.passes():
            raise UsageError(
                f"a pass called {pass_.pass_name()} was added already; a second one takes a "
                f'name: {type(pass_).__name__}("…")',
                subject="AddPass",
            )
        self._passes.append(pass_)
        return self

    def passes(self) -> list[str]:
        return [pass_.pass_name() for pass_ in self._passes]

    def EnableIRPrinting(
        self,
        before: _Wanted | None = None,
        after: _Wanted | None = None,
        *,
        only_on_change: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        """Write the graph before and after passes.

        Args:
            before: for which passes, by name; None for all.
            after: the same.
            only_on_change: after a pass only if it changed something.
            stream: where to; standard error unless given.
        """
        self._printer = _Printer(before, after, only_on_change, stream)

    def Run(self, model: onnx.ModelProto) -> ManagerResult:
        """Run the passes on a copy of a model.

        Raises:
            ModelError: the model is not valid.
            PassError: a pass failed.
        """
        driven: dict[str, Driven] = {}
        refusals = _Refusals()
        plugins: list[tuple[str, Any]] = [("drr_refusals", refusals)]
        if self._printer is not None:
            plugins.append(("ir_printer", self._printer))
        host = Host(self._options, plugins=plugins)
        skipped: dict[str, str] = {}
        for pass_ in self._passes:
            name = pass_.pass_name()
            if pass_.opt_level > self.opt_level:
                skipped[name] = (
                    f"opt level {pass_.opt_level} is above the manager's {self.opt_level}"
                )
                continue
            # One stage for all: the order is that of AddPass.
            host.passes.add(
                PassSpec(
                    name,
                    CustomPassStage.kAfterInferShape,
                    str(pass_.origin),
                    "drr",
                    _factory(pass_, driven),
                )
            )
        for module in dict.fromkeys(name for pass_ in self._passes for name in _modules(pass_)):
            _add_operators(host, sys.modules.get(module))
        result, report = host.run(model)
        records = {record.name: record for record in report.passes}
        return ManagerResult(
            result,
            tuple(
                PassResult(name, "skipped", skipped[name])
                if name in skipped
                else _result(records[name], driven.get(name), refusals.of(name))
                for name in self.passes()
            ),
            report,
        )


def _factory(item: Pass, driven: dict[str, Driven]) -> Callable[[], RunningPass]:
    return lambda: RunningPass(item, driven)


def _modules(pass_: Pass) -> Iterator[str]:
    """Yield the modules of a pass and its rules.

    Their operators may stand in the result.
    """
    yield type(pass_).__module__
    if isinstance(pass_, PatternRewritePass):
        for rule in pass_.patterns:
            yield rule.module if isinstance(rule, DrrRule) else rule.__module__


def _add_operators(host: Host, module: ModuleType | None) -> None:
    if module is not None:
        host.ops.add_marked(vars(module))


def _result(
    record: PassRecord, driven: Driven | None, refused: Mapping[str, Sequence[str]]
) -> PassResult:
    outcome = PassResult(
        record.name,
        record.status,
        record.message,
        refused=refused,
        count=record.replaced,
        seconds=record.seconds,
    )
    if driven is None or record.status == "failed":
        return outcome
    return replace(outcome, rewrites=dict(driven.rewrites), converged=driven.converged)


class _Refusals:
    """A hook that lists refused matches; a report counts them in each round of the driver."""

    def __init__(self) -> None:
        self._by_pass: dict[str, dict[str, dict[str, None]]] = {}

    def of(self, name: str) -> dict[str, tuple[str, ...]]:
        return {reason: tuple(nodes) for reason, nodes in self._by_pass.get(name, {}).items()}

    @hookimpl
    def gehost_match_refused(self, record: PassRecord, node: Node, reason: str) -> None:
        nodes = self._by_pass.setdefault(record.name, {}).setdefault(reason, {})
        nodes[node.label] = None


class _Printer:
    """Hooks that write the graph around passes."""

    def __init__(
        self,
        before: _Wanted | None,
        after: _Wanted | None,
        only_on_change: bool,
        stream: TextIO | None,
    ) -> None:
        self._before = before
        self._after = after
        self._only_on_change = only_on_change
        self._stream = stream

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec, graph: Graph) -> None:
        if self._before is None or self._before(spec.name):
            self._write(f"IRPrinting on builtin.module before {spec.name} pass", graph)

    @hookimpl
    def gehost_after_pass(self, spec: PassSpec, graph: Graph, record: PassRecord) -> None:
        changed = record.status == "done" or not self._only_on_change
        if changed and (self._after is None or self._after(spec.name)):
            self._write(f"IRPrinting on builtin.module after {spec.name} pass", graph)

    def _write(self, title: str, graph: Graph) -> None:
        stream: Any = self._stream or sys.stderr
        stream.write(f"{_RULE}\n{title:^{len(_RULE)}}\n{_RULE}\n{print_graph(graph)}\n")
