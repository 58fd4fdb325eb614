"""``gehost optimize``: from a model to the best file for a runtime.

``optimize`` goes through the steps in order: read, prepare, clean, fold and fuse (all in
``build.py``), check the numbers, measure and leave out what does not pay, write, load once.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import onnx

from gehost.errors import GehostError, ModelError, UsageError, one_line
from gehost.ir.files.save import output_file, save_model
from gehost.optimizing.build import Builder, Candidate, weight_files
from gehost.optimizing.check import Checker, right_candidate
from gehost.optimizing.facts import facts_of, foreign_operators
from gehost.optimizing.kernels import kernel_writer
from gehost.optimizing.report import OptimizeReport, duration, fused, refusals
from gehost.optimizing.search import MOST_NOISE, Gain, GroupTrial, leave_out
from gehost.optimizing.target import Switch, Target, find_target, name_model, other_model, reason_of
from gehost.options import HostOptions
from gehost.spelling import counted
from gehost.tune.inputs import Inputs, describe_sizes, realistic_inputs
from gehost.tune.measure import FEWEST_PAIRS, Comparison, dead_zone_of, measure_pairs, verdict_of
from gehost.verify import Baseline, load_feeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]

_LONG = 1 / 5
"""A run longer than this share of the budget is compared once, and nothing is searched."""
_NOISE = 1.005
"""Gains below it are noise, also where the model was not measured against itself."""
_TIGHT = 0.01
"""Width of an interval that more pairs would not make more useful."""
_PAIRS, _RUNS = 9, 15
"""Pairs of sessions of a comparison, and runs of each, where the time allows."""
_FINAL = 3
"""Shares of the time of a comparison that the last one takes."""
_LAST_SHARE, _LAST_MOST = 1 / 4, 3.0
"""Least time of a comparison with the original, where the budget is over: a share, seconds."""
_MOST_OVER = 15.0
"""Seconds that its sessions may take to load where the budget is over."""


@dataclass(frozen=True)
class Optimized:
    """The result of ``optimize``.

    Attributes:
        model: of the kind that was given; for a path, the path of the file that was written.
        report: what was done; ``report.lines()`` is what the command prints.
        session_options: for the runtime's session; None where a plain session is the best.
    """

    model: Any
    report: OptimizeReport
    session_options: Any = None


@dataclass(frozen=True)
class OptimizeOptions:
    """What a caller of ``optimize`` may choose, besides the model."""

    target: str = ""
    output: str = ""
    """Path of the result; "": ``NAME.opt.onnx`` beside the input."""
    measured: bool = True
    budget: float = 60.0
    """Seconds for all, measuring included."""
    threads: int = 1
    measure: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """Sizes to measure with, by symbol or ``INPUT:AXIS``; they change nothing in the file."""
    feeds: str | os.PathLike[str] | Mapping[str, Any] | None = None
    keep_metadata: bool = False
    half: bool = False
    """Convert to float16; inputs and outputs keep their types."""
    kernels: bool = False
    """Write a library of generated kernels beside the result, where it pays."""
    libraries: Sequence[str | os.PathLike[str]] = ()
    progress: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] | None = None
    """Of a run, in place of the target's."""


def optimize(
    model: Any,
    target: str = "",
    *,
    output: str | os.PathLike[str] | None = None,
    vendors: Sequence[str | os.PathLike[str]] = (),
    enable: Sequence[str] = (),
    disable: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    opset: int | None = None,
    assume: Sequence[str] = (),
    measured: bool = True,
    measure: Mapping[str, Sequence[int]] | None = None,
    feeds: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    budget: float = 60.0,
    threads: int = 1,
    keep_metadata: bool = False,
    half: bool = False,
    kernels: bool = False,
    libraries: Sequence[str | os.PathLike[str]] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Optimized:
    """Write the best file of a model for a runtime: cleaned, fused, checked and measured.

    Args:
        model: a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; the result is of its kind.
        target: cpu, cuda, openvino, any, or one that a package names; "": what is installed.
        output: the file to write for a path; default: ``NAME.opt.onnx`` beside it.
        vendors: directories or names of further vendors, whose passes run, too.
        enable: passes that are off by default.
        disable: passes not to use.
        dims: sizes that are fixed in the file, by symbol or ``INPUT:AXIS``.
        opset: raise the model's opset first.
        assume: properties of the model that passes cannot prove, as for ``HostOptions``.
        measured: whether to measure; without, all fusions of the target stay on.
        measure: sizes to measure with, by symbol or ``INPUT:AXIS``.
        feeds: inputs to check and measure with: an ``.npz`` file, or arrays by name.
        budget: seconds for all.
        threads: of an operator while measuring.
        keep_metadata: keep the notes of exporters on nodes.
        half: convert to float16 after the fusions; inputs and outputs keep their types.
        kernels: write a library of generated C kernels beside the result, where it pays; only
            for a path.
        libraries: shared libraries of custom operators.
        progress: called with a line for each step.

    Raises:
        UsageError: the target is not installed, or an option does not fit the model.
        ModelError: the model cannot be read, or does not load in the target.
        OutputError: the output cannot be written.
    """
    host_options = HostOptions(
        vendors=list(vendors), enable=list(enable), disable=list(disable), dims=dims or {},
        opset=opset, assume=list(assume),
    )  # fmt: skip
    options = OptimizeOptions(
        target=target, measured=measured, budget=budget, threads=threads, measure=measure or {},
        feeds=feeds, keep_metadata=keep_metadata, half=half, kernels=kernels, libraries=libraries,
        progress=progress,
    )  # fmt: skip
    if isinstance(model, str | os.PathLike):
        path = os.fspath(cast("str | os.PathLike[str]", model))
        text = os.fspath(output) if output is not None else default_output(path)
        report, switch = optimize_file(path, replace(options, output=text), host_options)
        return Optimized(text, report, None if switch is None else switch.options())
    if kernels or output is not None:
        what = "kernels are written beside a file" if kernels else "output is for a path"
        raise UsageError(f"{what}: give optimize a path")
    with tempfile.TemporaryDirectory(prefix="gehost-optimize-") as folder:
        path, text = os.path.join(folder, "model.onnx"), os.path.join(folder, "result.onnx")
        onnx_ir = sys.modules.get("onnx_ir")  # it is there where a caller has one of its models
        is_ir = onnx_ir is not None and isinstance(model, onnx_ir.Model)
        if not is_ir and not isinstance(model, onnx.ModelProto):
            raise UsageError(
                "optimize wants a path, an onnx.ModelProto or an onnx_ir.Model, got "
                f"{type(model).__name__}"
            )
        proto = onnx_ir.to_proto(model) if onnx_ir is not None and is_ir else model
        save_model(proto, path, None)
        try:
            report, switch = optimize_file(path, replace(options, output=text), host_options)
        except GehostError as error:
            name_model(error, os.path.join(folder, ""), "")  # the caller has no such file
            raise
        result: Any = onnx.ModelProto.FromString(Path(text).read_bytes())
        if onnx_ir is not None and is_ir:
            result = onnx_ir.from_proto(result)
        report = replace(report, model="", written="")
        if report.compile is not None:
            report.compile.model = ""
    return Optimized(result, report, None if switch is None else switch.options())


def default_output(path: str) -> str:
    """Return the path of the result: ``bert.opt.onnx`` of ``bert.onnx``."""
    return f"{os.path.splitext(path)[0]}.opt.onnx"


def optimize_file(
    path: str, options: OptimizeOptions, host_options: HostOptions
) -> tuple[OptimizeReport, Switch | None]:
    """Optimize a file; return the report, and a setting of sessions that pays.

    Raises:
        GehostError: as ``optimize`` does.
    """
    started = time.perf_counter()
    target = find_target(options.target)
    if options.kernels and target.with_library("") is None:
        raise UsageError(f"--kernels: {target.title()} takes none of them (--for {target.name})")
    vendors = [*target.vendors, *(v for v in host_options.vendors if v not in target.vendors)]
    host_options = replace(host_options, vendors=vendors, target=target.kernels)
    with _place_for(path) as place:
        try:
            return _Run(path, place, target, options, host_options, started).steps()
        except GehostError as error:
            name_model(error, place, path)
            raise


@contextmanager
def _place_for(path: str) -> Generator[str]:
    """Yield what the paths of candidates begin with; beside a model with weights elsewhere."""
    beside = os.path.dirname(os.path.abspath(path))
    if os.access(beside, os.W_OK) and weight_files(path):
        prefix = f".gehost-optimize-{os.urandom(4).hex()}-"
        try:
            yield os.path.join(beside, prefix)
        finally:
            for name in os.listdir(beside):
                if name.startswith(prefix):
                    os.unlink(os.path.join(beside, name))
        return
    with tempfile.TemporaryDirectory(prefix="gehost-optimize-") as folder:
        yield os.path.join(folder, "")


class _Run:
    """One model on its way through the steps."""

    def __init__(
        self,
        path: str,
        place: str,
        target: Target,
        options: OptimizeOptions,
        host_options: HostOptions,
        started: float,
    ) -> None:
        self._path, self._target, self._options = path, target, options
        self._libraries = tuple(os.path.abspath(library) for library in options.libraries)
        self._ends = started + options.budget
        self._seconds: dict[str, float] = {}
        self._step_began = started
        self._shares = 1
        """Comparisons that share the time that is left."""
        self._dead_zone = _NOISE
        self._writer = kernel_writer() if options.kernels else None
        self._place = place
        self._started = started
        self._load_takes = 0.0
        """Seconds of a new session of the original."""
        self._pair_takes = 0.0
        """Seconds of two new sessions with enough runs of each."""
        self._show("read")
        self._builder = Builder(
            path,
            place,
            target,
            host_options,
            keep_metadata=options.keep_metadata,
            half=options.half,
        )

    def steps(self) -> tuple[OptimizeReport, Switch | None]:
        """Go through all steps."""
        builder, target = self._builder, self._target
        builder.host.importers.check_output(self._options.output)
        output_file(self._options.output)  # before the time for measuring is spent
        original = builder.original
        report = OptimizeReport(
            self._path, target.name, target.title(), self._options.threads, original.facts,
            original.facts,
        )  # fmt: skip
        self._load_original()
        inputs = self._inputs()
        report.notes += inputs.notes
        report.notes += map(str, builder.host.unregistered)
        self._done("read")

        best, checker = self._best(report, inputs)
        if why := self._unfit(checker, best):
            builder.keep_float32(f"half: not converted: {why}")
            report.trials, report.gain = [], None
            best, checker = self._best(report, inputs)

        switch = None
        self._show("write and load")
        builder.write(best, self._options.output)
        if best.library:
            library = str(Path(self._options.output).with_suffix(".so"))
            shutil.copyfile(best.library, library)
            switch = target.with_library(os.path.abspath(library))
            report.switch = f"{os.path.basename(library)} has kernels for {report.kernels}"
        self._load(best)
        report.libraries = self._needed_libraries()
        self._fill(report, best, checker, switch)
        self._done("write and load")
        report.seconds = self._seconds
        return report, switch

    def _best(self, report: OptimizeReport, inputs: Inputs) -> tuple[Candidate, Checker]:
        """Return the file to write, and what compared it with the original."""
        builder, checker = self._builder, self._checker(inputs)
        best, report.dropped = right_candidate(builder, builder.passes, checker.problem, self._show)
        best = self._not_larger(report, checker, best)
        self._done("fuse and check")
        if self._options.measured:
            report.sizes = describe_sizes(inputs.largest)
            best = self._measure(report, inputs, checker, best)
        else:
            report.unmeasured = "--no-measure"
            best = self._with_kernels(report, checker, best) or best
        self._done("measure")
        return best, checker

    # -- read

    def _load_original(self) -> None:
        began = time.perf_counter()
        try:
            self._target.load(self._builder.original.path, self._libraries)
            self._load_takes = time.perf_counter() - began
        except GehostError:
            raise
        except Exception as error:
            problem = ModelError(
                f"it does not load in {self._target.title()}: {reason_of(error)}",
                where=self._path,
                hint=other_model(self._builder.original.path, self._target),
            )
            try:
                self._builder.infer_original()
            except ModelError as clash:
                problem = ModelError(clash.message, where=self._path, hint=clash.hint)
            raise problem from error

    def _inputs(self) -> Inputs:
        argument = self._options.feeds
        if argument is not None:
            feeds = dict(argument) if isinstance(argument, Mapping) else load_feeds(argument)
            return Inputs((feeds,))
        runner = self._builder.host.original(self._builder.original.path, self._libraries)
        return realistic_inputs(runner, self._options.measure)

    # -- check

    def _checker(self, inputs: Inputs) -> Checker:
        self._show("run the original")
        original = self._builder.original
        baseline = Baseline.of(
            self._builder.host.original(original.path, self._libraries),
            [inputs.smallest],
            provider=self._target.provider,
            generated=True,  # several sequences, some of them padded: kernels differ there
        )
        checker = Checker(baseline, self._target, original)
        builder = self._builder
        if builder.half and builder.inlines and not baseline.against(builder.prepared).equal:
            why = "the runtime computes other numbers than bodies of the model's functions"
            builder.keep_float32(f"half: not converted: {why}")
        if builder.half:
            builder.feeds = [feed for feed, _ in baseline.runs]
            reference = self._reference(checker)
            if reference is not None:
                model = builder.host.original(reference.path, self._libraries)
                checker.half = Baseline.of(model, provider=self._target.provider, source=baseline)
                checker.original = reference
        return checker

    def _reference(self, checker: Checker) -> Candidate | None:
        """Return the original in float16; a cautious conversion where numbers are far off.

        Without a right one, nothing is converted.
        """
        builder = self._builder
        first = self._in_half(checker)
        off = checker.rounding(first)
        if off is None or not off.error:
            return first
        builder.cautious = True
        second = self._in_half(checker)
        again = checker.rounding(second)
        if again is not None and again < off:
            first, off = second, again
        else:
            builder.cautious = False
        if not off.error:
            return first
        builder.keep_float32(f"half: not converted: {off.error}")
        return None

    def _in_half(self, checker: Checker) -> Candidate:
        """Return the original in float16, cleaned where that keeps its numbers.

        What the clean-up takes away, as an angle that nothing reads, would keep float32 in the
        original alone.
        """
        cleaned = self._builder.build(())
        same = checker.before_half(cleaned).equal
        return cleaned if same else self._builder.reference()

    def _cleaned(self, report: OptimizeReport, checker: Checker) -> Candidate:
        """Return the file without fusions: what is written where none pays."""
        builder = self._builder
        cleaned = builder.lightest(builder.build(()))
        if checker.problem(cleaned) or self._has_more_nodes(cleaned):
            return builder.shrunk()
        if self._excess(cleaned) > 0:
            report.dropped["the clean-up"] = _too_large(self._excess(cleaned))
            return builder.shrunk()
        return cleaned

    def _not_larger(self, report: OptimizeReport, checker: Checker, best: Candidate) -> Candidate:
        """Leave out the passes that cost most bytes until the file is no larger than the input."""
        builder = self._builder
        while best.effective and self._excess(best) > 0:
            self._show("leave out a pass: the file is larger than the input")
            smaller: list[tuple[int, int, str, Candidate]] = []
            for name in best.effective if self._left() > 0 else ():
                fewer = builder.build(best.passes - {name})
                if self._excess(fewer) < self._excess(best):
                    excess = max(self._excess(fewer), 0)
                    smaller.append((excess, fewer.facts.nodes, name, fewer))
            *_, dropped, smallest = min(
                smaller, key=lambda item: item[:3], default=("all fusions", builder.build(()))
            )
            report.dropped[dropped] = _too_large(self._excess(best))
            best = smallest
        result = builder.lightest(best)
        if self._excess(best) > 0 or checker.problem(best) or checker.problem(result):
            return self._cleaned(report, checker)
        return builder.shrunk() if self._has_more_nodes(result) else result

    def _has_more_nodes(self, candidate: Candidate) -> bool:
        """Whether functions were inlined, and no fusion made up for it, where they may stay."""
        if not self._builder.inlines or self._target.standard or candidate.half is not None:
            return False  # half adds casts
        return candidate.facts.nodes > self._builder.original.facts.nodes

    def _unfit(self, checker: Checker, best: Candidate) -> str:
        """Return why a file in float16 is not written, or ""."""
        if best.half is None:
            return ""
        excess = best.facts.size - self._builder.original.facts.size
        if excess > 0:  # by casts, or weights in both types
            return _too_large(excess)
        off = checker.rounding(best)
        return off.error if off is not None else ""

    def _excess(self, candidate: Candidate) -> int:
        """Return how many bytes a file is larger than the input, at least."""
        return self._builder.lightest(candidate).facts.size - self._builder.original.facts.size

    # -- measure

    def _measure(
        self,
        report: OptimizeReport,
        inputs: Inputs,
        checker: Checker,
        best: Candidate,
    ) -> Candidate:
        """Leave out what does not pay; compare the rest with the original."""
        original = self._builder.original
        sessions = 2 * FEWEST_PAIRS * self._load_takes
        if sessions > max(self._left(), self._options.budget / 2, _MOST_OVER):
            seconds = _whole(time.perf_counter() - self._started + 4 * sessions)
            report.unmeasured = (
                f"to load {2 * FEWEST_PAIRS} sessions takes {duration(sessions)}: "
                f"--budget {seconds}s measures"
            )
            return best
        failure = self._failure(original, inputs)
        if failure:
            report.unmeasured = f"the original {failure}"
            return best

        def problem(candidate: Candidate) -> str:
            return checker.problem(candidate) or self._failure(candidate, inputs)

        best, dropped = right_candidate(self._builder, best.passes, problem, self._show)
        report.dropped |= dropped
        best = self._not_larger(report, checker, best)
        run = self._run_once(original, inputs)
        if run > self._options.budget * _LONG or self._left() < 4 * run:
            seconds = _whole(max(run * 60, self._options.budget * 2))
            report.unmeasured = (
                f"each fusion alone; a run takes {duration(run)}: --budget {seconds}s searches"
            )
            report.gain = self._compare_whole(inputs, best, "the whole")
            return self._not_slower(report, inputs, checker, best)
        groups = self._builder.groups(best)
        self._shares = len(groups) + _FINAL + 1
        same = self._compare(inputs, original, original, "the model against itself", pairs=True)
        self._dead_zone = dead_zone_of(same.large)

        def rebuild(passes: frozenset[str]) -> Candidate | None:
            candidate = self._builder.build(passes)
            if problem(candidate) or self._excess(candidate) > 0:
                return None
            return self._builder.lightest(candidate)

        compare = partial(self._compare, inputs)
        best, report.trials = leave_out(
            best, groups, rebuild, compare, lambda: self._left() < run * 20, self._dead_zone
        )
        best = self._kernels_that_pay(report, inputs, checker, best)
        self._shares = _FINAL
        report.gain = self._compare_whole(inputs, best, "the whole", shares=_FINAL)
        return self._not_slower(report, inputs, checker, best)

    def _not_slower(
        self, report: OptimizeReport, inputs: Inputs, checker: Checker, best: Candidate
    ) -> Candidate:
        """Return the first file that is not slower than the original by measure."""
        whole = report.gain
        assert whole is not None
        if best.effective:
            if whole.is_even(self._dead_zone) and not whole.is_below:
                return best
            cleaned = self._cleaned(report, checker)
            if not cleaned.same_file(best):
                report.trials = [
                    GroupTrial("all fusions", tuple(best.effective), "slower", whole),
                ]
                whole = report.gain = self._compare_whole(inputs, cleaned, "the clean-up")
            best = cleaned
        is_slower = whole.verdict(self._dead_zone) == "slower" or not whole.is_even(MOST_NOISE)
        return self._builder.shrunk() if is_slower or whole.is_below else best

    def _compare_whole(
        self, inputs: Inputs, candidate: Candidate, what: str, shares: int = 1
    ) -> Gain:
        """Compare a file with the original, also where the time for measuring is over.

        What is written depends on it, and three short runs on a busy machine say nothing. One of
        forty intervals lies below 1 by chance: one that is close is measured again.
        """
        least = min(self._options.budget * _LAST_SHARE, _LAST_MOST)
        original = self._builder.original
        gain = self._compare(inputs, original, candidate, what, shares=shares, least=least)
        if gain.is_below and gain.is_even(MOST_NOISE):
            gain = self._compare(inputs, original, candidate, f"{what} again", least=least)
        return gain

    def _compare(
        self,
        inputs: Inputs,
        first: Candidate,
        second: Candidate,
        what: str,
        *,
        shares: int = 1,
        pairs: bool = False,
        least: float = 0.0,
    ) -> Gain:
        """Measure how much faster the second is, at the largest and the smallest size."""
        self._show(f"measure {what}")
        seconds = max(max(self._left(), 0.0) * shares / max(self._shares, shares), least)
        self._shares = max(self._shares - shares, 1)
        sizes = [inputs.largest] if pairs else list(dict.fromkeys(map(id, inputs.feeds)))
        feeds = [inputs.largest] if pairs or len(sizes) == 1 else [inputs.largest, inputs.smallest]
        results = [
            self._pairs(self._runner(first, feed), self._runner(second, feed), seconds / len(feeds))
            for feed in feeds
        ]
        return Gain(*results)

    def _pairs(
        self,
        first: Callable[[], Callable[[], object]],
        second: Callable[[], Callable[[], object]],
        seconds: float,
    ) -> Comparison:
        def decided(comparison: Comparison) -> bool:
            low, high = comparison.interval
            return verdict_of(comparison, _NOISE) != "noise" or high - low < _TIGHT

        return measure_pairs(
            first,
            second,
            seconds=seconds,
            pairs=max(FEWEST_PAIRS, min(_PAIRS, int(seconds / max(self._pair_takes, 1e-3)))),
            decided=decided,
            threads=self._options.threads,
            clock=self._options.clock or self._target.clock(self._options.threads),
        )

    def _runner(self, candidate: Candidate, feeds: Feeds) -> Callable[[], Callable[[], object]]:
        return self._target.runner(
            candidate.path,
            feeds,
            threads=self._options.threads,
            libraries=self._libraries_of(candidate),
        )

    def _libraries_of(self, candidate: Candidate) -> tuple[str, ...]:
        return (*self._libraries, candidate.library) if candidate.library else self._libraries

    def _failure(self, candidate: Candidate, inputs: Inputs) -> str:
        """Return what the target raises at a size to measure with, or ""."""
        try:
            for feeds in inputs.feeds:
                self._runner(candidate, feeds)()()
        except Exception as error:  # noqa: BLE001 - runtimes raise exceptions of many types
            return f"does not run in {self._target.title()}: {reason_of(error)}"
        return ""

    def _run_once(self, candidate: Candidate, inputs: Inputs) -> float:
        """Return the seconds of a run."""
        began = time.perf_counter()
        run = self._runner(candidate, inputs.largest)()
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        self._pair_takes = 2 * (started - began + _RUNS * seconds)
        return seconds

    # -- kernels

    def _kernels_that_pay(
        self, report: OptimizeReport, inputs: Inputs, checker: Checker, best: Candidate
    ) -> Candidate:
        """Return a file with generated kernels where it is faster, else the best before."""
        result = self._with_kernels(report, checker, best)
        if result is None or self._failure(result, inputs):
            return best
        gain = self._compare(inputs, best, result, "generated kernels")
        pays = gain.verdict(self._dead_zone) == "pays"
        report.trials.append(
            GroupTrial("generated kernels", (), "pays" if pays else "slower", gain)
        )
        return result if pays else best

    def _with_kernels(
        self, report: OptimizeReport, checker: Checker, best: Candidate
    ) -> Candidate | None:
        """Return the file with its groups and their library; None, with a note, for none."""
        if self._writer is None:
            return None
        self._show("write kernels")
        library = f"{self._place}kernels.so"
        grouped = self._builder.build(best.passes.union(self._writer.passes))
        try:
            count = self._writer.write(grouped.path, library)
        except GehostError as error:
            report.notes.append(f"no kernels: {one_line(str(error.message))}")
            return None
        if grouped.facts.size > self._builder.original.facts.size:
            report.notes.append("no kernels: with their groups the file is larger")
            return None
        result = replace(grouped, library=library)
        reason = checker.problem(result)
        if reason:
            report.dropped["generated kernels"] = reason
            return None
        report.kernels = counted(count, "node")
        return result

    # -- write and load

    def _load(self, best: Candidate) -> None:
        try:
            self._target.load(self._options.output, self._libraries_of(best))
        except Exception as error:
            raise ModelError(
                f"the result does not load: {reason_of(error)}; gehost compile "
                f"{best.path} finds out why",
                where=self._options.output,
            ) from error

    def _needed_libraries(self) -> tuple[str, ...]:
        """Return the names of the user's libraries, where the file does not load without them."""
        if self._libraries:
            try:
                self._target.load(self._options.output)
            except Exception:  # noqa: BLE001 - runtimes raise exceptions of many types
                return tuple(map(os.path.basename, self._libraries))
        return ()

    def _fill(
        self, report: OptimizeReport, best: Candidate, checker: Checker, switch: Switch | None
    ) -> None:
        report.after, report.compile = best.facts, best.report
        if weight_files(self._options.output):  # in another folder their names take other bytes
            report.after = replace(best.facts, size=facts_of(self._options.output).size)
        report.result = (
            "original" if best.report is None else "optimized" if best.effective else "cleaned"
        )
        report.numbers, report.verify = checker.numbers(best), checker.data(best)
        if checker.uncompared():
            report.numbers += f", in ONNX Runtime alone: {checker.uncompared()}"
        report.unconverted = self._builder.stays
        report.notes += [report.unconverted] if report.unconverted else []
        if best.half is not None:
            report.notes += best.half.notes
            report.kept_float32 = best.half.kept_float32
        report.fused = fused(report.before, report.after)
        report.passes = {
            name: sorted(op for op, makers in best.makers.items() if name in makers)
            for name in best.effective
        }
        report.omitted = best.omitted
        report.foreign = foreign_operators(best.path) if self._target.name == "any" else []
        report.refused = dict(refusals(best.report, self._builder.reasons.texts))
        report.dropped |= {name: one_line(why) for name, why in self._builder.failed.items()}
        report.dropped |= dict.fromkeys(
            sorted(self._builder.foreign), "writes operators that are not ONNX's at this opset"
        )
        report.written, report.next = self._options.output, self._target.next
        if switch is not None:
            report.python = switch.python.format(path=repr(self._options.output))

    # -- time

    def _left(self) -> float:
        return self._ends - time.perf_counter()

    def _show(self, what: str) -> None:
        self._options.progress(what)

    def _done(self, step: str) -> None:
        now = time.perf_counter()
        self._seconds[step] = self._seconds.get(step, 0.0) + now - self._step_began
        self._step_began = now


def _too_large(excess: int) -> str:
    return f"with it the file is {excess} bytes larger than the input"


def _whole(seconds: float) -> int:
    return -(-int(seconds + 1) // 10) * 10
