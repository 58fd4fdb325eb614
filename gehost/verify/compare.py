"""Compare two models number by number, on the same inputs.

One comparison, step by step:

1. Models in half run widened to float32 (``widen.py``), others as written. The original's session
   is closed before the second model is loaded.
2. Outputs must have equal names, types and shapes; integers, texts and booleans equal elements.
3. Floats that differ are judged row by row by the original's own error (``judge.py``), which is its
   distance to a run in float64 (``precise.py``), with ONNX Runtime's optimizations off and on.
4. Models in half also run rounded behind each node (``rounded.py``): the second may not be less
   precise.

Tolerances of the caller replace 3 and 4; those by dtype (``tolerance.py``) serve for models of
float64 or float8 alone. Where the run in float64 fails, errors are measured from the original's own
run; also where a kernel of the runtime replaces a function of the model and computes other numbers.
Only where a form does not fit into memory, which is estimated before it is made, nothing is
judged.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import onnx
import onnx.helper

from gehost.errors import ModelError, UnsupportedModelError, UsageError
from gehost.rewrite.rounding import constants_of, folded_of
from gehost.verify.constants import exact_numbers
from gehost.verify.device import CPU, Placement, check_provider, run_on_device
from gehost.verify.difference import OutputDifference, compare_outputs
from gehost.verify.draws import unseeded
from gehost.verify.feeds import nudged, with_declared_types
from gehost.verify.forms import Forms
from gehost.verify.judge import (
    NOT_LESS_PRECISE,
    SAME_FUNCTION,
    SMALL_MODELS,
    Rule,
    Yardstick,
    judge_outputs,
)
from gehost.verify.quantized import quantization_steps
from gehost.verify.reference import reference_faults
from gehost.verify.room import NoRoomError
from gehost.verify.run import Runner, engine_name
from gehost.verify.search import find_feeds, special_runs
from gehost.verify.widen import widened

if TYPE_CHECKING:
    import os
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from gehost.verify.forms import Run

    Array = NDArray[Any]
    Feeds = Mapping[str, Array]
    Outputs = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of a comparison.

    It has an ``OutputDifference`` for each output of each feed.

    ``error`` is set if ``b`` failed; ``failed_feed`` is the feed it failed on, None if it did not
    load. ``rtol`` and ``atol`` are the caller's, None for the defaults of the dtype. ``engine`` is
    the engine of both models, or both names if they differ. ``rule`` is what decided. ``unjudged``
    says why an output that differs is no difference: its rule could not be applied, or memory does
    not suffice for it; "" if all were judged.
    ``rounding`` names constants and weights that ``b`` rounds otherwise; "" if none. ``elsewhere``
    are the operators of both models that another provider than the chosen one ran.
    """

    equal: bool
    feeds: int
    outputs: tuple[OutputDifference, ...]
    seed: int
    rtol: float | None = None
    atol: float | None = None
    engine: str = ""
    error: str | None = None
    failed_feed: int | None = None
    rule: str = ""
    unjudged: str = ""
    rounding: str = ""
    note: str = ""
    elsewhere: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the summary as JSON data.

        NaN and infinity become text.
        """
        return {**_plain(dataclasses.asdict(self)), "summary": self.summary()}

    def summary(self) -> str:
        """Return the result in one line."""
        if self.error is not None:
            return f"differ: {self.error}"
        worst = max(
            self.outputs, key=lambda o: (not o.equal, bool(o.reason), o.max_abs), default=None
        )
        if worst is not None and not worst.equal and not self.unjudged:
            values = f"a {_shown(worst.a)}, b {_shown(worst.b)}, |a-b| {worst.max_abs:.2g}"
            what = worst.reason or f"{values} {worst.allowed}"
            wrong, compared = sum(not output.equal for output in self.outputs), len(self.outputs)
            parts = [
                f"{worst.place} of feed {worst.feed}: {what}",
                f"{wrong} of {compared} comparisons differ",
                *([self.note] if self.note else []),
            ]
            return f"differ: {'; '.join(parts)}"
        names = {output.output for output in self.outputs}
        dull = sorted(names - {output.output for output in self.outputs if output.telling})
        result = (
            f"worst |a-b| {worst.max_abs:.2g} at {worst.place} {worst.allowed}"
            if worst and worst.max_abs
            else "no difference"
        )
        parts = [
            f"{_count(self.feeds, 'feed')}, {_count(len(names), 'output')}, {result}",
            *([f"decided by {self.rule}"] if self.rule else []),
            *([f"computed by {engine_name(self.engine)}"] if self.engine else []),
            *([self.rounding] if self.rounding else []),
            *([self.note] if self.note else []),
        ]
        if dull:
            parts.append(f"proves little: {', '.join(dull)} (no finite value, or one throughout)")
        if self.unjudged:
            return f"not judged: {self.unjudged}; {'; '.join(parts)}"
        return f"equal{' within rounding' if self.rounding else ''}: {'; '.join(parts)}"


def compare(
    a: Runner | onnx.ModelProto | str | os.PathLike[str],
    b: Runner | onnx.ModelProto | str | os.PathLike[str],
    feeds: Sequence[Feeds] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    special_values: bool = False,
    libraries: Sequence[str | os.PathLike[str]] = (),
    engine: str | None = None,
    provider: str = CPU,
) -> Verification:
    """Run two models on the same inputs and compare their outputs.

    Args:
        a: The reference: a path, a model in memory, or a ``Runner`` that holds it.
        b: The model to check. If it does not load or run, that is a difference, unless the
            runtime lacks something for it.
        feeds: Inputs by name, any number of times; default: made by ``find_feeds``.
        rtol: Relative tolerance of floats; with one of both, no rule applies.
        atol: Absolute tolerance of floats.
        seed: Of the generated inputs.
        special_values: Also compare on the first inputs with NaN, infinities, denormals and others
            among the floats; see ``with_special_values``.
        libraries: Of custom operators; see ``Runner``. A given ``Runner`` keeps its own.
        engine: Of both models; see ``Runner``. A given ``Runner`` keeps its own.
        provider: Where both also run as they would be served: ``cuda``, …

    Raises:
        ModelError: ``a`` does not load or run.
        UnsupportedModelError: The installed runtime cannot load one of them.
        UsageError: The feeds do not fit ``a``, inputs cannot be generated for it, or it draws
            random numbers without a seed; a library cannot be loaded; the engine does not exist;
            there is not enough memory.
    """
    runner = (
        a if isinstance(a, Runner) else Runner(a, libraries=libraries, engine=engine, widens=True)
    )
    baseline = Baseline.of(
        runner,
        feeds,
        seed=seed,
        rtol=rtol,
        atol=atol,
        special_values=special_values,
        engine=engine,
        provider=provider,
    )
    return baseline.against(b)


def _unchanged(feeds: Feeds) -> Feeds:
    return feeds


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The outputs of the reference model.

    Any number of models can be compared with them.
    """

    runner: Runner
    runs: Sequence[tuple[Feeds, Outputs]]
    """Pairs of inputs and outputs; of a model in half, the outputs of its widened form."""
    seed: int = 0
    rtol: float | None = None
    atol: float | None = None
    engine: str | None = None
    """The engine of the compared models; see ``Runner``."""
    widen: bool = False
    """Whether the models run widened."""
    note: str = ""
    exact: Mapping[float, float] = dataclasses.field(default_factory=dict[float, float])
    """Exact numbers in place of rounded constants; see ``exact_numbers``."""
    ran_in: str = ""
    """The engine of the runs."""
    provider: str = CPU
    """Where both models also run as they would be served."""
    rule: Rule = SAME_FUNCTION
    source: Baseline | None = None
    """Of the model that this one was converted from: its precise run measures the errors."""

    @classmethod
    def of(
        cls,
        model: Runner | onnx.ModelProto | str | os.PathLike[str],
        feeds: Sequence[Feeds] | None = None,
        *,
        seed: int = 0,
        rtol: float | None = None,
        atol: float | None = None,
        special_values: bool = False,
        engine: str | None = None,
        provider: str = CPU,
        rule: Rule = SAME_FUNCTION,
        generated: bool = False,
        source: Baseline | None = None,
    ) -> Baseline:
        """Run the reference model; arguments and errors are those of ``compare``.

        ``rule`` judges floats of runs that do not round to half. With ``generated`` it also runs on
        generated feeds, where these can be made. With ``source`` it runs on the feeds of that one,
        and its own error is that of its conversion.
        """
        if provider != CPU:
            check_provider(provider)
        runner = model if isinstance(model, Runner) else Runner(model, engine=engine, widens=True)
        proto = runner.proto()
        random = unseeded(proto)
        if random is not None:
            raise UsageError(
                f"{random}; a rewrite elsewhere changes the numbers drawn, so they cannot be "
                "compared: give it a seed attribute, or use gehost compile without --verify",
                where=runner.name,
            )
        if feeds is not None and not feeds:
            raise UsageError("no feeds to compare on: give at least one, or None to generate them")
        if source is not None:
            feeds = [run[0] for run in source.runs]
        argument = None if feeds is None else [with_declared_types(feed, proto) for feed in feeds]
        forms = Forms(runner)
        blank = cls(
            runner, (), seed, rtol, atol, engine, provider=provider, rule=rule, source=source
        )
        run = partial(
            blank._run, forms, argument, special_values=special_values, generated=generated
        )
        if forms.half:
            with suppress(ModelError, NoRoomError):  # a kernel may exist for half alone
                wide = run(widen=True)
                if wide.replaced:  # it has a kernel of float32, and may have none of half
                    with suppress(ModelError):
                        return run(widen=False)
                return wide
        return run(widen=False)

    def _run(
        self,
        forms: Forms,
        feeds: Sequence[Feeds] | None,
        *,
        widen: bool,
        special_values: bool,
        generated: bool,
    ) -> Baseline:
        """Return a copy with the runs of the plain form."""
        note = ""
        with forms.plain(widen=widen) as run:
            model = _Plain(forms.runner, run)
            runs = find_feeds(model, self.seed) if feeds is None else [(f, run(f)) for f in feeds]
            if generated and feeds is not None:
                with suppress(ModelError, UsageError):  # the model runs on those of its user alone
                    runs += find_feeds(model, self.seed)
            if special_values:
                special = special_runs(model, runs[0][0], self.seed)
                note = "" if special else "no special values, as no input is a float"
                runs += special
        return dataclasses.replace(self, runs=runs, widen=widen, note=note, ran_in=forms.engine)

    def against(
        self,
        model: Runner | onnx.ModelProto | str | os.PathLike[str],
        *,
        base_dir: str | None = None,
        progress: Callable[[int], None] = lambda _: None,
        of_widened: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None,
    ) -> Verification:
        """Run another model on the same inputs, where failing is a difference.

        Args:
            model: As for ``compare``.
            base_dir: Of the external data of a model in memory.
            progress: Called with the number of runs that are done.
            of_widened: Makes from the widened original what ``model`` was made from the original;
                asked where weights were folded in half.

        Raises:
            UnsupportedModelError: The installed runtime cannot load the model.
        """
        verification = Verification(
            equal=True,
            feeds=len(self.runs),
            outputs=(),
            seed=self.seed,
            rtol=self.rtol,
            atol=self.atol,
            engine=self.ran_in,
        )
        if self.provider != CPU:
            self._on_device  # noqa: B018 - where the original fails there, nothing can be compared
        outcome: list[int] = []
        try:
            second = self._forms_of(model, base_dir)
            if self.widen:
                self._check_as_written(second)
            outputs: list[Outputs] = []
            with second.plain(widen=self.widen) as run:
                for number, (feeds, _) in enumerate(self.runs):
                    outcome.append(number)
                    progress(number)
                    outputs.append(run(feeds))
            # two engines round differently, so a small difference may be theirs
            if second.engine != self.ran_in:
                verification = dataclasses.replace(
                    verification, engine=f"{self.ran_in}, {second.engine}"
                )
            judged = self._judged(verification, second, outputs, of_widened)
            wrong = self._known_wrong(second)
            return dataclasses.replace(judged, equal=True, unjudged=wrong) if wrong else judged
        except (UnsupportedModelError, NoRoomError):
            raise
        except (ModelError, UsageError) as failure:
            failed = outcome[-1] if outcome else None
            return dataclasses.replace(
                verification, equal=False, error=str(failure), failed_feed=failed
            )

    def _forms_of(
        self, model: Runner | onnx.ModelProto | str | os.PathLike[str], base_dir: str | None
    ) -> Forms:
        if isinstance(model, Runner):
            return Forms(model)
        return Forms(
            Runner(
                model,
                base_dir=base_dir,
                libraries=self.runner.libraries,
                engine=self.engine,
                role="result",
                widens=True,
            )
        )

    def _check_as_written(self, second: Forms) -> None:
        """Check what widening hides: that the file runs where the original does, in its types.

        Raises:
            ModelError: it does not run, or an output has another type.
        """
        for ours, theirs in zip(
            self.runner.proto().graph.output, second.runner.proto().graph.output, strict=False
        ):
            kinds = [value.type.tensor_type.elem_type for value in (ours, theirs)]
            if ours.name == theirs.name and kinds[0] != kinds[1]:
                names = [_type_name(kind) for kind in kinds]
                raise ModelError(f"output {ours.name!r} is {names[1]}, wanted {names[0]}")
        if self.runner.engine == second.runner.engine == "onnxruntime":
            feeds = self.runs[0][0]
            try:
                self.runner.run(feeds)
            except ModelError:
                return
            finally:
                self.runner.close()
            second.runner.run(feeds)
            second.runner.close()

    def _known_wrong(self, second: Forms) -> str:
        """Return why the numbers prove nothing: an operator that the reference computes wrongly."""
        models = [
            runner.proto()
            for runner, engine in ((self.runner, self.ran_in), (second.runner, second.engine))
            if engine == "reference"
        ]
        faults = dict.fromkeys(fault for model in models for fault in reference_faults(model))
        return f"onnx.reference is wrong for {', '.join(faults)}" if faults else ""

    def _judged(
        self,
        result: Verification,
        second: Forms,
        outputs: Sequence[Outputs],
        of_widened: Callable[[onnx.ModelProto], onnx.ModelProto] | None,
    ) -> Verification:
        """Return ``result`` with the verdict on the outputs of all feeds."""
        result = dataclasses.replace(result, note=self.note)
        tolerant = self._by_tolerances(outputs)
        if self.rtol is not None or self.atol is not None:
            return self._also_on_device(_with(result, tolerant, "the given tolerances"), second)
        if not self._forms.judged or any(item.reason for item in tolerant):
            rule = "" if _same(tolerant) else "tolerances by type"
            return self._also_on_device(_with(result, tolerant, rule), second)
        try:
            judged, rule, rounding = tolerant, "", ""
            if not _same(tolerant):
                judged, rounding = self._same_function(second, outputs, of_widened)
                rule = f"rows, error at most {SAME_FUNCTION.k} times the original's"
                result = _noted(result, self._precise[1])
            result = dataclasses.replace(_with(result, judged, rule), rounding=rounding)
            if self.provider != CPU:
                return self._also_on_device(result, second)
            return self._also_rounded(result, second) if self.widen and result.equal else result
        except NoRoomError as error:
            where = "" if self.provider == CPU else f" on {self.provider}"
            if _same(tolerant):  # only the rounding of equal runs is not judged
                return _noted(_with(result, tolerant, ""), f"not judged{where}: {error}")
            result = _with(result, tolerant, "tolerances by type")
            return dataclasses.replace(result, equal=True, unjudged=str(error))

    def _also_rounded(self, result: Verification, second: Forms) -> Verification:
        """Return the verdict with that on the rounded forms."""
        try:
            rounded = self._by_rounding(second)
        except ModelError as error:
            if not result.outputs:  # nothing else has decided
                raise
            return _noted(result, f"not compared rounded to half: {error}")
        return result if rounded is None else _with(result, rounded, "rows, also rounded to half")

    def _same_function(
        self,
        second: Forms,
        outputs: Sequence[Outputs],
        of_widened: Callable[[onnx.ModelProto], onnx.ModelProto] | None,
    ) -> tuple[list[OutputDifference], str]:
        """Judge the widened runs; also return what the model has rounded otherwise, or ""."""
        metadata = {prop.key: prop.value for prop in second.runner.proto().metadata_props}
        entries = {prop.key: prop.value for prop in self.runner.proto().metadata_props}
        weights = [name for name in folded_of(metadata) if name not in folded_of(entries)]
        if self.widen and weights:
            rounding = f"weights folded in half: {_some(weights)}"
            if of_widened is None:
                rounding += " (judged as rounded only; compile --verify judges the function, too)"
                return [], rounding
            wide = widened(self.runner.proto(), self.runner.base_dir)
            compiled = Forms(self.runner.like(of_widened(wide), None))
            outputs = self._all(compiled.plain(widen=True))
            return self._by_rule(self._for_function, self.runs, outputs, self._yardsticks), rounding
        constants = constants_of(metadata)
        if self.widen and constants:
            numbers = exact_numbers(self.runner.proto(), constants)
            exact = dataclasses.replace(self, exact=numbers)
            runs = exact._all(exact._forms.plain(widen=True))  # noqa: SLF001 - of this class
            pairs = [(feeds, run) for (feeds, _), run in zip(self.runs, runs, strict=True)]
            outputs = self._all(Forms(second.runner, numbers).plain(widen=True))
            yardsticks = exact._yardsticks  # noqa: SLF001
            judged = self._by_rule(self._for_function, pairs, outputs, yardsticks)
            return judged, f"constants as exact numbers: {_some(list(constants))}"
        return self._by_rule(self._for_function, self.runs, outputs, self._yardsticks), ""

    def _by_tolerances(self, outputs: Sequence[Outputs]) -> list[OutputDifference]:
        return [
            difference
            for number, ((_, expected), actual) in enumerate(zip(self.runs, outputs, strict=True))
            for difference in compare_outputs(
                expected, actual, feed=number, rtol=self.rtol, atol=self.atol
            )
        ]

    def _by_rule(
        self,
        rule: Rule,
        runs: Sequence[tuple[Feeds, Outputs]],
        outputs: Sequence[Outputs],
        yardsticks: Sequence[Yardstick],
    ) -> list[OutputDifference]:
        steps = quantization_steps(self.runner.proto())
        return [
            difference
            for number, ((_, expected), actual, yardstick) in enumerate(
                zip(runs, outputs, yardsticks, strict=True)
            )
            for difference in judge_outputs(
                expected, actual, yardstick, rule, feed=number, steps=steps
            )
        ]

    def _by_rounding(self, second: Forms) -> list[OutputDifference] | None:
        """Compare the rounded forms; None if they are equal to the bit."""
        ours, theirs = self._rounded, self._all(second.rounded())
        same = [
            difference
            for number, (a, b) in enumerate(zip(ours, theirs, strict=True))
            for difference in compare_outputs(a, b, feed=number)
        ]
        if _same(same):
            return None
        runs = [(feeds, a) for (feeds, _), a in zip(self.runs, ours, strict=True)]
        yardsticks = [Yardstick(yardstick.precise, ()) for yardstick in self._yardsticks]
        return self._by_rule(self._for_rounded, runs, theirs, yardsticks)

    def _also_on_device(self, result: Verification, second: Forms) -> Verification:
        """Return the verdict with that on the models as the device computes them."""
        if self.provider == CPU:
            return result
        if not result.equal:
            return _noted(result, f"not compared on {self.provider}, as they differ on the CPU")
        ours, placed = self._on_device
        try:
            theirs, other = self._run_on_device(second.runner)
        except ModelError as error:
            first = next(iter(self.runs[0][1]), "")
            failed = OutputDifference(first, 0, equal=False, reason=str(error))
            return _with(result, [failed], f"the run on {self.provider}")
        judged = [
            difference
            for number, (a, b) in enumerate(zip(ours, theirs, strict=True))
            for difference in compare_outputs(a, b, feed=number, rtol=self.rtol, atol=self.atol)
        ]
        by_rows = self._forms.judged and self.rtol is None and self.atol is None
        if by_rows and not any(difference.reason for difference in judged):
            runs = [(feeds, a) for (feeds, _), a in zip(self.runs, ours, strict=True)]
            yardsticks = [Yardstick(yardstick.precise, ()) for yardstick in self._yardsticks]
            judged = self._by_rule(self._for_rounded, runs, theirs, yardsticks)
        rule = "rows" if by_rows else result.rule or "tolerances by type"
        result = _with(result, judged, f"{rule}, also on {self.provider}")
        where = f"on {self.provider}: {placed}, and {other}"
        operators = sorted({op for item in (placed, other) for op, _ in item.elsewhere})
        return dataclasses.replace(_noted(result, where), elsewhere=tuple(operators))

    @cached_property
    def _on_device(self) -> tuple[list[Outputs], Placement]:
        return self._run_on_device(self.runner)

    def _run_on_device(self, runner: Runner) -> tuple[list[Outputs], Placement]:
        feeds = [feeds for feeds, _ in self.runs]
        try:
            return run_on_device(
                runner.source, runner.base_dir, self.provider, feeds, runner.libraries
            )
        except ModelError as error:
            raise ModelError(f"{runner.name} {error}") from error

    @property
    def _for_rounded(self) -> Rule:
        return NOT_LESS_PRECISE._replace(floor=max(NOT_LESS_PRECISE.floor, self.rule.floor))

    @cached_property
    def _forms(self) -> Forms:
        return Forms(self.runner, self.exact)

    @property
    def _for_function(self) -> Rule:
        """Return the rule of widened runs; the original's own run seems to have no error."""
        floor = SMALL_MODELS.floor if self._precise[1] else 0.0
        return self.rule._replace(floor=max(self.rule.floor, floor))

    @cached_property
    def _rounded(self) -> list[Outputs]:
        return self._all(self._forms.rounded())

    @cached_property
    def _yardsticks(self) -> list[Yardstick]:
        """Run the original optimized, nudged and in float64; only once outputs differ.

        Nudged: each float input is a unit in the last place off. Without it a model whose numbers
        are exact by luck, or whose float64 form computes a step in float32, seems to have no error.
        A run whose numbers leave the tolerances measures nothing: an optimization changed them, or
        a step such as Floor jumped; neither does one that fails.
        """
        runs: list[list[Outputs]] = []
        for form, change in (
            (self._forms.optimized(widen=self.widen), _unchanged),
            (self._forms.plain(widen=self.widen), nudged),
        ):
            if change is nudged and self._forms.half and not self.widen:
                continue  # as written it takes no float32
            with suppress(ModelError):
                runs.append(self._all(form, change))
        precise, _ = self._precise
        return [
            Yardstick(
                precise[number],
                [
                    run[number]
                    for run in runs
                    if all(output.equal for output in compare_outputs(expected, run[number]))
                ],
            )
            for number, (_, expected) in enumerate(self.runs)
        ]

    @cached_property
    def _precise(self) -> tuple[list[Outputs], str]:
        """Return the outputs in float64, or in their place the runs and why."""
        if self.source is not None:
            return self.source._precise  # noqa: SLF001 - of this class
        try:
            precise, why = self._all(self._forms.precise()), ""
        except ModelError as error:
            precise, why = [], f"that in float64 fails: {error}"
        if self.replaced:
            why = (
                f"a kernel of the runtime computes {_some(self.replaced)}, "
                "and not the function in the model, whose numbers are others"
            )
        if not why:
            return precise, ""
        runs = [dict(expected) for _, expected in self.runs]
        return runs, f"errors measured from the original's own run, as {why}"

    @cached_property
    def replaced(self) -> list[str]:
        """Functions of the model that do not run: kernels of their names give other numbers.

        ONNX leaves it to the runtime which of the two runs. Forms in which functions are inlined,
        or types have other kernels, then compute something else.
        """

        def differs(op: tuple[str, str] | None = None) -> bool:
            with suppress(ModelError):
                outputs = self._all(self._forms.inlined(widen=self.widen, op=op))
                return any(
                    not output.equal
                    for (_, expected), actual in zip(self.runs, outputs, strict=True)
                    for output in compare_outputs(expected, actual)
                )
            return False

        functions = self.runner.proto().functions
        if not functions or not differs():
            return []
        ops = {f"{f.domain or 'ai.onnx'}::{f.name}": (f.domain, f.name) for f in functions}
        return [name for name, op in ops.items() if differs(op)] or list(ops)

    def _all(
        self,
        form: AbstractContextManager[Run],
        change: Callable[[Feeds], Feeds] = _unchanged,
    ) -> list[Outputs]:
        with form as run:
            return [run(change(feeds)) for feeds, _ in self.runs]


class _Plain:
    """A form under the name and signature of its model."""

    def __init__(self, runner: Runner, run: Run) -> None:
        self.name, self.proto, self._run = runner.name, runner.proto, run

    def run(self, feeds: Feeds) -> Outputs:
        return self._run(feeds)


def _with(
    verification: Verification, outputs: Sequence[OutputDifference], rule: str
) -> Verification:
    equal = all(output.equal for output in outputs)
    return dataclasses.replace(verification, equal=equal, outputs=tuple(outputs), rule=rule)


def _noted(verification: Verification, note: str) -> Verification:
    """Return a copy with a further note in front."""
    return dataclasses.replace(
        verification, note="; ".join(filter(None, (note, verification.note)))
    )


def _same(outputs: Sequence[OutputDifference]) -> bool:
    """Whether all outputs are equal to the bit."""
    return all(output.equal and not output.max_abs for output in outputs)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(element) for key, element in cast("dict[str, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_plain(element) for element in cast("list[Any]", value)]
    if (
        value is None
        or isinstance(value, bool | int | str)
        or (isinstance(value, float) and math.isfinite(value))
    ):
        return value
    return str(value)


def _shown(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else repr(value)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _type_name(kind: int) -> str:
    return onnx.helper.tensor_dtype_to_string(kind).removeprefix("TensorProto.").lower()
