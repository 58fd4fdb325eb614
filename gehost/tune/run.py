"""``gehost tune``: keep each kind of fusion that measurably pays.

The switches of the runtime are tried first, then kind after kind, each on top of all kept so far;
at the end the whole is compared with the original model. A kind that does not change the file is
not measured. One that fails, or changes the outputs, is excluded with the reason.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import onnx

from gehost.errors import GehostError, PassError, UsageError, one_line
from gehost.host.host import Host
from gehost.host.switches import disabled_passes, machine
from gehost.ir.node import PROVIDED_BY
from gehost.options import HostOptions
from gehost.spelling import counted
from gehost.tune.inputs import realistic_inputs
from gehost.tune.measure import (
    FEWEST_PAIRS,
    FEWEST_RUNS,
    Comparison,
    dead_zone_of,
    measure_pairs,
    verdict_of,
)
from gehost.tune.sessions import Runtime, onnxruntime, optimized_bytes, outputs_of
from gehost.verify import Baseline, compare_outputs, load_feeds
from gehost.verify.device import CPU, check_provider, run_on_device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_Switch: TypeAlias = tuple[str, Callable[[Runtime], Runtime]]
_SWITCHES: tuple[_Switch, ...] = (
    ("without SkipLayerNormFusion", lambda now: now.without("SkipLayerNormFusion")),
    ("level extended", lambda now: replace(now, level="extended")),
)
"""Switches of the runtime: its optimizers that may cost more than they gain."""
_CUDA_GRAPH: _Switch = ("CUDA graph", lambda now: replace(now, cuda_graph=True))
_CAPTURED_AFTER = 3
"""Runs after which a CUDA graph is captured, or has failed."""
_RTOL, _ATOL = 1e-3, 1e-4
"""Of a run that the runtime optimizes, beside the rules for the file."""
_PACKAGES = ("gehost", "onnx", "onnxruntime")


@dataclass(frozen=True)
class Trial:
    """The result for one kind, or for the whole."""

    name: str
    verdict: str
    """keep, drop, noise; same: the file did not change; failed, unmeasured: see ``reason``."""
    passes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return its entry in the switch file."""
        results: dict[str, Any] = {"verdict": self.verdict}
        if self.passes and self.passes != (self.name,):
            results["passes"] = list(self.passes)
        if self.reason:
            results["reason"] = self.reason
        if self.comparison is not None:
            low, high = self.comparison.interval
            results |= {
                "gain": round(self.comparison.median, 4),
                "interval": [round(low, 4), round(high, 4)],
                "pairs": [round(ratio, 4) for ratio in self.comparison.ratios],
                "seconds": [self.comparison.first, self.comparison.second],
            }
        return results


@dataclass
class Tuning:
    """The result of ``tune``; ``as_dict`` is the switch file."""

    model: str
    threads: int
    sizes: dict[str, list[int]]
    dead_zone: float = 1.0
    trials: list[Trial] = field(default_factory=list[Trial])
    same: Comparison | None = None
    """The model against itself."""
    whole: Trial | None = None
    """All that was kept, against the original model."""
    passes: dict[str, bool] = field(default_factory=dict[str, bool])
    runtime: Runtime = field(default_factory=Runtime)
    requires: tuple[str, ...] = ()
    """Runtimes, with versions, for which the kept passes are exact."""
    short: str = ""
    """What to do if the budget was too short for all comparisons; "" if it was not."""
    original_differs: str = ""
    """How the runtime's optimizations change the original's numbers; "" if they do not."""
    placement: str = ""
    """Where the nodes of the chosen file ran, on another provider than the CPU."""

    @property
    def pays(self) -> bool:
        """Whether anything is kept."""
        return self.whole is not None and self.whole.verdict == "keep"

    def as_dict(self) -> dict[str, Any]:
        """Return the switch file as JSON data."""
        here = machine(_PACKAGES)
        cpu = here.pop("cpu")
        evidence: dict[str, Any] = {
            "model": os.path.basename(self.model),
            "versions": here,
            "cpu": cpu,
            "threads": self.threads,
            "clock": "CPU time of the thread"
            if self.threads == 1 and self.runtime.provider == CPU
            else "wall time",
            "sizes": self.sizes,
            "dead_zone": round(self.dead_zone, 4),
            "kinds": {trial.name: trial.as_dict() for trial in self.trials},
        }
        if self.same is not None:
            evidence["same"] = [round(ratio, 4) for ratio in self.same.ratios]
        if self.whole is not None:
            evidence["whole"] = self.whole.as_dict()
        if self.requires:
            evidence["requires"] = list(self.requires)
        switches = {name: "on" if on else "off" for name, on in self.passes.items()}
        return {
            "Switch": {"GraphFusion": switches, "Runtime": self.runtime.as_dict()},
            "Evidence": evidence,
        }

    def to_json(self) -> str:
        """Return the text of the switch file."""
        return json.dumps(self.as_dict(), indent=2) + "\n"


class _Candidate:
    """A choice of switches: the compiled file, and the runtime's own switches."""

    def __init__(self, path: str, runtime: Runtime, passes: frozenset[str]) -> None:
        self.path = path
        self.runtime = runtime
        self.passes = passes


def tune(
    model: str | os.PathLike[str],
    options: HostOptions | None = None,
    *,
    feeds: str | os.PathLike[str] | None = None,
    libraries: Sequence[str | os.PathLike[str]] = (),
    threads: int = 1,
    provider: str = CPU,
    rtol: float | None = None,
    atol: float | None = None,
    budget: float = 60.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Tuning:
    """Measure and choose the kinds of fusion that pay on a model.

    Args:
        model: the file.
        options: vendors, switches and settings as in ``Host``. Measured are the passes that they
            leave on, and those of kinds unless disabled. ``dims`` are sizes of the inputs to
            measure with; the compiled models keep their open dimensions.
        feeds: an ``.npz`` file of inputs to measure with, instead of seeded ones.
        libraries: shared libraries of custom operators.
        threads: of an operator.
        provider: execution provider of ONNX Runtime that is measured: cpu, cuda, …
        rtol: relative tolerance of the outputs, in place of the rules of ``gehost.verify``.
        atol: absolute tolerance, likewise.
        budget: seconds for loading, compiling and all comparisons. Kinds for which no time is left
            are unmeasured and off; ``Tuning.short`` states the budget that measures all.
        progress: called with a line before each comparison.

    Raises:
        UsageError: ONNX Runtime is not installed, the feeds do not fit the model, or the budget is
            too short for any kind.
        ModelError: the model cannot be read or does not run.
        VendorError: a vendor file cannot be loaded.
    """
    onnxruntime()
    options = options or HostOptions()
    path = os.fspath(model)
    with tempfile.TemporaryDirectory(prefix="gehost-tune-") as directory:
        if provider != CPU:
            check_provider(provider)
        paths = tuple(os.path.abspath(library) for library in libraries)
        runtime = Runtime(libraries=paths, provider=provider)
        tuner = _Tuner(path, options, feeds, runtime, threads, directory, progress, (rtol, atol))
        return tuner.run(budget)


class _Tuner:
    def __init__(
        self,
        model: str,
        options: HostOptions,
        feeds: str | os.PathLike[str] | None,
        runtime: Runtime,
        threads: int,
        directory: str,
        progress: Callable[[str], None],
        tolerances: tuple[float | None, float | None],
    ) -> None:
        self._started = time.perf_counter()
        self._switches = (*_SWITCHES, *([_CUDA_GRAPH] if runtime.provider == "cuda" else []))
        self._model, self._options, self._threads = model, options, threads
        self._directory, self._progress = directory, progress
        host = Host(replace(options, dims={}))
        for item in host.unregistered:
            progress(str(item))
        off = disabled_passes(options, {spec.name: spec.default for spec in host.passes})
        self._passes = [spec.name for spec in host.passes]
        kinds = host.tune_kinds()
        off -= kinds.grouped.difference(options.disable)
        self._kinds = [
            (name, tuple(one for one in passes if one not in off))
            for name, passes in kinds
            if not off.issuperset(passes)
        ]
        host.importers.load(model, options.settings).close()  # a ModelError before all else
        original = host.importers.original(model, options.settings)
        if not isinstance(original, str):
            path = Path(directory, "imported.onnx")
            path.write_bytes(original.SerializeToString())
            original = os.fspath(path)
        self._original = _Candidate(original, runtime, frozenset())
        if feeds is not None:
            self._feeds = load_feeds(feeds)
        else:
            sizes = {name: (size,) for name, size in options.dims.items()}
            runner = host.original(model, runtime.libraries)
            self._feeds = realistic_inputs(runner, sizes).largest
        rtol, atol = tolerances
        self._baseline = Baseline.of(
            host.original(model, runtime.libraries),
            [self._feeds],
            rtol=rtol,
            atol=atol,
            provider=runtime.provider,
            generated=True,  # several sequences, some of them padded: kernels differ there
        )
        self._feeds, self._expected = self._baseline.runs[0]
        self._files = 0

    def run(self, budget: float) -> Tuning:
        sizes = {name: list(array.shape) for name, array in self._feeds.items()}
        result = Tuning(self._model, self._threads, sizes)
        self._count = len(self._kinds) + len(self._switches) + 2
        self._ends, self._left = self._started + budget, self._count
        self._needed = (
            0.0  # seconds of a comparison of the fewest runs that is longer than its share
        )
        result.original_differs = self._problem(self._original)
        self._step("the model against itself")
        result.same = self._measure(self._original, self._original, lambda _: False)
        result.dead_zone = dead_zone_of(result.same)
        state = self._tune_runtime(result)
        compiled = self._compile(frozenset(), state.runtime)
        for name, passes in self._kinds:
            self._step(name)
            if self._is_late(1):
                result.trials.append(_unmeasured(name, passes))
                continue
            trial, compiled = self._try_kind(name, passes, compiled, result.dead_zone)
            result.trials.append(trial)
        self._note_shortage(result, budget)
        self._step("the whole")
        self._finish(result, compiled)
        return result

    def _is_late(self, others: int) -> bool:
        """Whether the time left is too short for these comparisons."""
        return self._ends - time.perf_counter() < (1 + others) * self._needed

    def _note_shortage(self, result: Tuning, budget: float) -> None:
        """State which budget measures all kinds, if this one did not.

        Raises:
            UsageError: nothing was measured but the model against itself.
        """
        missed = [trial for trial in result.trials if trial.verdict == "unmeasured"]
        if not missed:
            return
        expected = math.ceil(self._needed * (self._count + 1) / 10) * 10
        result.short = (
            f"budget of {budget:g} s: no time for {len(missed)} of "
            f"{counted(self._count, 'comparison')}; "
            f"all take about {expected} s: --budget {expected}s"
        )
        if len(missed) == len(result.trials):
            raise UsageError(result.short)

    def _step(self, name: str) -> None:
        """Report the next measurement, and divide the remaining time."""
        rest = max(self._ends - time.perf_counter(), 0.0)
        self._share = rest / max(self._left, 1)
        self._began = time.perf_counter()
        self._progress(f"{name}: {counted(self._left, 'comparison')} left, at most {rest:.1f} s")
        self._left -= 1

    def _tune_runtime(self, result: Tuning) -> _Candidate:
        """Try the runtime's own switches on the original model."""
        state = self._original
        graph = optimized_bytes(state.path, state.runtime, self._threads, self._directory)
        for name, change in self._switches:
            self._step(name)
            if self._is_late(len(self._kinds) + 1):
                result.trials.append(_unmeasured(name, ()))
                continue
            runtime, changed = change(state.runtime), graph
            if not runtime.cuda_graph:  # which changes the runs, not the nodes
                changed = optimized_bytes(state.path, runtime, self._threads, self._directory)
                if changed == graph:
                    result.trials.append(Trial(name, "same"))
                    continue
            candidate = _Candidate(state.path, runtime, state.passes)
            trial = self._judge(name, (), state, candidate, result.dead_zone)
            result.trials.append(trial)
            if trial.verdict == "keep":
                state, graph = candidate, changed
        return state

    def _try_kind(
        self, name: str, passes: tuple[str, ...], state: _Candidate, dead_zone: float
    ) -> tuple[Trial, _Candidate]:
        """Try a kind beside those kept; return result and new state."""
        try:
            candidate = self._compile(state.passes.union(passes), state.runtime)
        except PassError as error:
            return Trial(name, "failed", passes, reason=one_line(str(error))), state
        if Path(candidate.path).read_bytes() == Path(state.path).read_bytes():
            return Trial(name, "same", passes), state
        trial = self._judge(name, passes, state, candidate, dead_zone)
        return trial, candidate if trial.verdict == "keep" else state

    def _compile(self, passes: frozenset[str], runtime: Runtime) -> _Candidate:
        """Compile with exactly these passes."""
        self._files += 1
        target = os.path.join(self._directory, f"{self._files}.onnx")
        switched = replace(
            self._options,
            dims={},
            fusion_switch_file=None,
            enable=sorted(passes),
            disable=[name for name in self._passes if name not in passes],
        )
        Host(switched).compile(self._model, target)
        return _Candidate(target, runtime, passes)

    def _judge(
        self,
        name: str,
        passes: tuple[str, ...],
        before: _Candidate,
        after: _Candidate,
        dead_zone: float,
    ) -> Trial:
        """Compare the numbers, then the times."""
        problem = self._problem(after)
        if problem:
            return Trial(name, "failed", passes, reason=problem)

        def decided(comparison: Comparison) -> bool:
            return verdict_of(comparison, dead_zone) != "noise"

        comparison = self._measure(before, after, decided)
        return Trial(name, verdict_of(comparison, dead_zone), passes, comparison)

    def _problem(self, candidate: _Candidate) -> str:
        """Return why a candidate fails or its outputs differ, or ""."""
        if candidate.path != self._original.path:
            result = self._baseline.against(candidate.path)
            if not result.equal:
                return f"numbers {result.summary()}"
        runtime = candidate.runtime
        try:
            if runtime.provider != CPU:
                run = runtime.runner(candidate.path, self._feeds, self._threads)()
                for _ in range(_CAPTURED_AFTER):
                    run()
                return ""  # these numbers round otherwise; the files were compared
            session = runtime.session(candidate.path, self._threads)
            outputs = outputs_of(session, self._feeds)
        except GehostError:
            raise
        except Exception as error:  # noqa: BLE001 - the runtime raises exceptions of many types
            return one_line(str(error))
        if self._baseline.widen:
            return ""  # as above
        rtol, atol = self._baseline.rtol, self._baseline.atol
        rtol, atol = _RTOL if rtol is None else rtol, _ATOL if atol is None else atol
        for one in compare_outputs(self._expected, outputs, rtol=rtol, atol=atol):
            if not one.equal:
                return f"numbers differ: {one.place}: {one.reason or f'{one.a} and {one.b}'}"
        return ""

    def _measure(
        self, first: _Candidate, second: _Candidate, decided: Callable[[Comparison], bool]
    ) -> Comparison:
        result = measure_pairs(
            first.runtime.runner(first.path, self._feeds, self._threads),
            second.runtime.runner(second.path, self._feeds, self._threads),
            seconds=self._share,
            pairs=FEWEST_PAIRS,
            decided=decided,
            threads=self._threads,
            clock=time.perf_counter if first.runtime.provider != CPU else None,
        )
        took = time.perf_counter() - self._began
        if result.runs <= FEWEST_PAIRS * FEWEST_RUNS and took > self._share:
            self._needed = max(self._needed, took)
        return result

    def _finish(self, result: Tuning, retained: _Candidate) -> None:
        """Compare the whole with the original model.

        Turns everything off if it does not pay.
        """
        original = self._original
        # the clean-up alone may change the file
        if (
            retained.runtime != original.runtime
            or Path(retained.path).read_bytes() != Path(original.path).read_bytes()
        ):
            passes = tuple(sorted(retained.passes))
            result.whole = self._judge("whole", passes, original, retained, result.dead_zone)
        else:
            result.whole = Trial("whole", "same")
        if not result.pays:
            retained = original
        result.runtime = retained.runtime
        result.passes = {name: name in retained.passes for name in self._passes}
        result.requires = _requires(retained.path) if retained.passes else ()
        provider = retained.runtime.provider
        if provider != CPU:
            libraries = [os.fspath(library) for library in retained.runtime.libraries]
            _, placed = run_on_device(Path(retained.path), None, provider, [self._feeds], libraries)
            result.placement = f"on {provider}: {placed}"


def _unmeasured(name: str, passes: tuple[str, ...]) -> Trial:
    return Trial(name, "unmeasured", passes, reason="the budget has no time left")


def _requires(path: str) -> tuple[str, ...]:
    """Return the runtimes required by the new nodes of a compiled model."""
    proto = onnx.ModelProto.FromString(Path(path).read_bytes())
    return tuple(
        sorted(
            {
                entry.value
                for node in proto.graph.node
                for entry in node.metadata_props
                if entry.key == PROVIDED_BY
            }
        )
    )


_WIDTH = 41


def picture(tuning: Tuning) -> list[str]:
    """Draw the measured intervals, a line for each kind.

    ``:`` marks the ends of the dead zone.
    """
    trials = [*tuning.trials, *([] if tuning.whole is None else [tuning.whole])]
    measured = [trial.comparison for trial in trials if trial.comparison is not None]
    ends = [abs(math.log(end)) for one in measured for end in (*one.interval, *one.ratios)]
    reach = max([math.log(tuning.dead_zone) * 2, *ends])
    wide = max([len(one_line(trial.name)) for trial in trials], default=0)
    lines: list[str] = []
    for trial in trials:
        line = f"{one_line(trial.name):{wide}}  {trial.verdict:6}"
        if trial.comparison is not None:
            low, high = trial.comparison.interval
            drawing = _draw_interval(trial.comparison, math.log(tuning.dead_zone), reach)
            line += f"  {trial.comparison.median:.3f}  [{low:.3f}, {high:.3f}]  {drawing}"
        lines.append(f"{line}  {trial.reason}".rstrip())
    return lines


def _draw_interval(comparison: Comparison, dead: float, reach: float) -> str:
    def column(log: float) -> int:
        return round((max(-reach, min(reach, log)) / reach + 1) / 2 * (_WIDTH - 1))

    row = [" "] * _WIDTH
    for place in (column(-dead), column(dead)):
        row[place] = ":"
    row[_WIDTH // 2] = "|"
    low, high = (column(math.log(end)) for end in comparison.interval)
    row[low : high + 1] = "─" * (high - low + 1)
    row[column(math.log(comparison.median))] = "●"
    return "".join(row)


def seconds_of(text: str) -> float:
    """Read a time: ``60``, ``60s``, ``2m``.

    Raises:
        UsageError: the text is not a time.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|)", text.strip())
    if not match:
        raise UsageError(f"budget {text}: wanted seconds or minutes, as in 60s or 2m")
    return float(match[1]) * (60 if match[2] == "m" else 1)
