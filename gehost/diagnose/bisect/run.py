"""``gehost bisect``: find the rewrite after which numbers leave the tolerance.

A compile that stops after k rewrites does the same first k rewrites on every run, so the search is
over the limit. Both ends of the remaining range are always known from a run: the lower one is
right, the upper one is wrong. So for the answer k, the model with k - 1 rewrites is right and the
model with k is wrong, even if several errors overlap or cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from gehost.diagnose.bisect.capture import Capture, Captured
from gehost.errors import UsageError
from gehost.host.context import CompileContext
from gehost.host.hookspecs import hookimpl
from gehost.host.host import Host
from gehost.host.pipeline import CLEAN_UP, stages_before
from gehost.host.registry import PassSpec
from gehost.host.report import Report
from gehost.ir.graph import Graph
from gehost.ir.model import Model
from gehost.options import HostOptions
from gehost.passes.context import PassRecord, Rewrite
from gehost.verify import Baseline, Verification


@dataclass(frozen=True)
class Trial:
    """One compiled model, run on all inputs and compared with the original."""

    limit: int | None
    """The limit of rewrites; None for the whole compile."""
    found: Verification
    cleanup: bool = True
    hooks: tuple[str, ...] = ()
    """Stage hooks that changed the graph, with their plugins."""


@dataclass(frozen=True)
class Bisection:
    """Result of a search.

    ``wrong`` is None if the numbers of the whole compile are right.
    """

    rewrites: int
    """Number of rewrites of the whole compile."""
    trials: tuple[Trial, ...]
    wrong: Trial | None = None
    captured: Captured | None = None
    """The rewrite that ``wrong`` has and the last right model does not have."""
    uncleaned: Trial | None = None
    """``wrong`` without the clean-up, if the rewrite alone is right and the budget of runs allowed
    one more.
    """
    by_hand: tuple[str, ...] = ()
    """Passes that also edited the graph in this step, without ``Replace``."""
    before_rewrites: str = ""
    """The cause, if the numbers differ without any rewrite."""
    probes: int = 0
    """Number of runs for the values at the inputs of the match."""

    def as_dict(self) -> dict[str, Any]:
        """Return each run and the rewrite that changes numbers, as JSON data."""
        at = self.captured
        return {
            "rewrites": self.rewrites,
            "model_runs": self.model_runs,
            "equal": self.wrong is None,
            "trials": [
                {
                    "rewrites": trial.limit,
                    "cleanup": trial.cleanup,
                    "equal": trial.found.equal,
                    "summary": trial.found.summary(),
                }
                for trial in self.trials
            ],
            "wrong_rewrite": None
            if at is None
            else {
                "number": at.number,
                "pass": at.pass_name,
                "origin": at.origin,
                "nodes": [{"name": name, "op": op} for name, op in at.nodes],
                "made": [{"name": name, "op": op} for name, op in at.made],
                "right_alone": at.right_alone,
            },
            "before_rewrites": self.before_rewrites,
            "suspects": list(self.suspects),
        }

    @property
    def model_runs(self) -> int:
        """Number of runs.

        Both runs of compiled models and of the part of a model before the match count.
        """
        return len(self.trials) + self.probes

    @property
    def suspects(self) -> tuple[str, ...]:
        """Other possible causes in this step."""
        hand = [
            f"{name}, which edited the graph directly in the same step" for name in self.by_hand
        ]
        hooks = () if self.wrong is None else self.wrong.hooks
        unsettled = self.clean_up_follows and self.uncleaned is None
        return (
            *hand,
            *hooks,
            *(["the clean-up, for which no run was left: try --no-cleanup"] if unsettled else []),
        )

    @property
    def clean_up_follows(self) -> bool:
        """True if the clean-up runs after the rewrite's stage."""
        cleaned = self.wrong is not None and self.wrong.cleanup
        earlier = [stage.name for stage in stages_before(CLEAN_UP)]
        return cleaned and self.captured is not None and self.captured.stage in earlier


OnTrial: TypeAlias = Callable[[Trial, int, int], None]


@dataclass
class _Watch:
    """Counts rewrites and records passes and hooks with other edits."""

    done: int = 0
    by_hand: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    """Name and source line of each such pass; number of rewrites before it and after it."""
    hooks: tuple[str, ...] = ()
    """Stage hooks that changed the graph, with their plugins."""
    _before: tuple[int, int] = (0, 0)
    _rewriting: int = 0
    _mark: int = 0

    @hookimpl
    def gehost_before_pass(self, graph: Graph) -> None:
        self._before, self._rewriting = (graph.model.mark(), self.done), 0

    @hookimpl
    def gehost_before_rewrite(self, rewrite: Rewrite) -> None:
        self._mark = rewrite.region.graph.model.mark()

    @hookimpl
    def gehost_after_rewrite(self, rewrite: Rewrite) -> None:
        self.done = rewrite.number
        self._rewriting += rewrite.region.graph.model.mark() - self._mark

    @hookimpl
    def gehost_after_pass(self, spec: PassSpec, graph: Graph, record: PassRecord) -> None:
        mark, count = self._before
        if record.status == "done" and graph.model.mark() - mark > self._rewriting:
            self.by_hand.append((f"{spec.name} ({spec.origin})", count, self.done))

    @hookimpl
    def gehost_compile_finished(self, context: CompileContext) -> None:
        self.hooks = tuple(
            f"{hook} of plugin {plugin}" for hook, plugin in dict.fromkeys(context.hook_edits)
        )

    def step(self, number: int) -> tuple[str, ...]:
        """Return passes that may have edited before rewrite ``number``, after its predecessor."""
        return tuple(
            name
            for name, before, after in self.by_hand
            if before < number <= max(after, before + 1)
        )


class _Compiles:
    """Compiles one model with various limits, each time with a new host.

    Therefore no state of a vendor is carried over.
    """

    def __init__(self, model: str, options: HostOptions, on_trial: OnTrial) -> None:
        self._model = model
        self._options = options.rewrites_only()
        self._on_trial = on_trial
        self.trials: list[Trial] = []
        self._most = 1
        """Model runs of the whole search, at most; known after the first."""

    def baseline(
        self, libraries: Sequence[str], on_note: Callable[[str], None], **choices: Any
    ) -> Baseline:
        host = Host(self._options)
        for class_ in host.unregistered:
            on_note(str(class_))
        return Baseline.of(host.original(self._model, libraries), **choices)

    @contextmanager
    def compiled(
        self, plugin: object, limit: int | None, *, cleanup: bool = True
    ) -> Generator[Model]:
        options = replace(
            self._options, rewrite_limit=limit, cleanup=self._options.cleanup and cleanup
        )
        with Host(options, plugins=[("bisect", plugin)]).compiled(
            self._model, Report(model=self._model)
        ) as model:
            yield model

    def trial(
        self,
        baseline: Baseline,
        limit: int | None,
        watch: _Watch | None = None,
        *,
        cleanup: bool = True,
    ) -> Trial:
        """Compile, run and compare once."""
        watch = watch or _Watch()
        with self.compiled(watch, limit, cleanup=cleanup) as model:
            verification = baseline.against(model.flush(), base_dir=model.base_dir)
        trial = Trial(limit, verification, self._options.cleanup and cleanup, watch.hooks)
        self.trials.append(trial)
        if limit is None and not verification.equal:
            self._most += math.ceil(math.log2(watch.done + 2))
        self._on_trial(trial, len(self.trials), max(self._most, len(self.trials)))
        return trial


def bisect(
    model: str,
    options: HostOptions,
    *,
    feeds: Any = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    special_values: bool = False,
    libraries: Sequence[str] = (),
    provider: str = "cpu",
    on_trial: OnTrial = lambda _trial, _number, _most: None,
    on_note: Callable[[str], None] = lambda _line: None,
) -> Bisection:
    """Find the rewrite after which the numbers of a compile differ.

    Args:
        model: the file.
        options: of the compile; its limit of rewrites and its dumps are ignored.
        feeds: inputs by name, any number of times; default: generated from the signature.
        rtol: relative tolerance, in place of the rules of ``gehost.verify``.
        atol: absolute tolerance, likewise.
        seed: of the generated inputs.
        special_values: also compare on inputs with NaN, infinities, denormals and others.
        libraries: of custom operators that ONNX Runtime needs.
        provider: of ONNX Runtime that runs the models.
        on_trial: called after each model run, with its number and how many there are at most.
        on_note: called with a line for each pass class that is not registered.

    Raises:
        UsageError: ``keep_going`` is on, or the feeds do not fit.
        GehostError: the compile or the original model fails.
    """
    if options.keep_going:
        raise UsageError(
            "a bisection needs the same rewrites on every run, which keep_going does not "
            "guarantee; leave it out"
        )
    compiles = _Compiles(model, options, on_trial)
    baseline = compiles.baseline(
        libraries,
        on_note,
        feeds=feeds,
        rtol=rtol,
        atol=atol,
        seed=seed,
        special_values=special_values,
        provider=provider,
    )
    watch = _Watch()
    whole = compiles.trial(baseline, None, watch)
    if whole.found.equal:
        return Bisection(watch.done, tuple(compiles.trials))
    # A pass that edits directly after the last rewrite is one more step, which only the whole
    # compile contains.
    last = watch.done + bool(watch.step(watch.done + 1))
    right, wrong, limit = -1, whole, last
    while limit - right > 1:
        middle = (right + limit) // 2
        trial = compiles.trial(baseline, middle)
        if trial.found.equal:
            right = middle
        else:
            limit, wrong = middle, trial
    if limit == 0:
        cause = _without_rewrites(compiles, baseline, wrong)
        return Bisection(watch.done, tuple(compiles.trials), wrong, before_rewrites=cause)
    by_hand = watch.step(limit)
    if limit > watch.done:
        return Bisection(watch.done, tuple(compiles.trials), wrong, by_hand=by_hand)
    capture = Capture(limit, baseline.runner.libraries)
    with compiles.compiled(capture, limit):
        pass
    captured = (
        capture.captured()
        .with_values(baseline.runs[_worst_feed(wrong.found)][0])
        .compared(rtol, atol)
    )
    bisection = Bisection(
        watch.done, tuple(compiles.trials), wrong, captured, by_hand=by_hand, probes=captured.probes
    )
    if (
        captured.right_alone
        and bisection.clean_up_follows
        and bisection.model_runs + 1 <= math.log2(watch.done) + 3
    ):
        uncleaned = compiles.trial(baseline, limit, cleanup=False)
        return replace(bisection, trials=tuple(compiles.trials), uncleaned=uncleaned)
    return bisection


def _without_rewrites(compiles: _Compiles, baseline: Baseline, wrong: Trial) -> str:
    """Return the cause if no rewrite is the cause."""
    if wrong.cleanup and compiles.trial(baseline, 0, cleanup=False).found.equal:
        return "the built-in clean-up"
    return ", or ".join([*wrong.hooks, "the load itself"])


def _worst_feed(verification: Verification) -> int:
    """Return the feed on which the model failed, else the worst output's.

    It is 0 if the model did not load.
    """
    if verification.error is not None:
        return verification.failed_feed or 0
    return max(verification.outputs, key=lambda o: (not o.equal, bool(o.reason), o.max_abs)).feed
