"""Compare two models number by number.

Both run on the same inputs; every element counts.

Two elements agree if both are NaN, both are the same infinity, or their distance is within
``gehost.verify.tolerance``. Names, order, dtypes and shapes of the outputs must be equal.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gehost.errors import ModelError, UnsupportedModelError, UsageError
from gehost.verify.draws import unseeded
from gehost.verify.feeds import (
    FeedMaker,
    InputTooLargeError,
    is_float,
    with_declared_types,
    with_special_values,
)
from gehost.verify.run import Runner
from gehost.verify.sizes import UNITS, Dims, Ties, tie_plans
from gehost.verify.tolerance import scales_of, tolerance

if TYPE_CHECKING:
    import os

    import onnx
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Feeds = Mapping[str, Array]
    Outputs = dict[str, Array]

_MAX_TRIES = 250
_MOST_ELEMENTS = 1 << 22
"""Largest number of elements of all inputs together when sizes beyond the small ones are tried."""


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """The comparison of one output on one feed.

    ``index``, ``a``, ``b``, ``atol`` and ``max_abs`` belong to the element with the largest
    ``|a - b|`` among those outside the tolerance, or among all if all are inside. Distances to or
    between NaN and infinity, and between two strings, count as infinite. ``max_rel`` is the largest
    ``|a - b| / |a|`` of the same elements, where ``a`` is not 0. ``telling`` is false if ``a`` has
    no finite element, or several elements of one value: almost any model would agree. ``reason`` is
    not empty if the values could not be compared: another name, dtype or shape.
    """

    output: str
    feed: int
    equal: bool
    rtol: float = 0.0
    atol: float = 0.0
    max_abs: float = 0.0
    max_rel: float = 0.0
    index: tuple[int, ...] | None = None
    a: Any = None
    b: Any = None
    telling: bool = False
    reason: str = ""

    @property
    def place(self) -> str:
        """The name and index of the worst element: ``logits[0,3,17]``."""
        return f"{self.output}[{','.join(map(str, self.index))}]" if self.index else self.output

    @property
    def allowed(self) -> str:
        """The tolerances of the worst element as text."""
        return f"(rtol {self.rtol:g}, atol {self.atol:.3g})"


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of a comparison.

    It has an ``OutputDifference`` for each output of each feed.

    ``error`` is set if ``b`` failed; ``failed_feed`` is the feed it failed on, None if it did not
    load. ``rtol`` and ``atol`` are the caller's, None for the defaults of the dtype. ``engine`` is
    the engine of both models, or both names if they differ.
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
        if worst is not None and not worst.equal:
            values = f"a {_shown(worst.a)}, b {_shown(worst.b)}, |a-b| {worst.max_abs:.2g}"
            what = worst.reason or f"{values} {worst.allowed}"
            wrong, compared = sum(not output.equal for output in self.outputs), len(self.outputs)
            return (
                f"differ: {worst.place} of feed {worst.feed}: {what}; {wrong} of {compared} "
                "comparisons differ"
            )
        names = {output.output for output in self.outputs}
        dull = sorted(names - {output.output for output in self.outputs if output.telling})
        return (
            f"equal: {_count(self.feeds, 'feed')}, {_count(len(names), 'output')}, "
            + (
                f"worst |a-b| {worst.max_abs:.2g} at {worst.place} {worst.allowed}"
                if worst and worst.max_abs
                else "no difference"
            )
            + (
                f"; proves little: {', '.join(dull)} (no finite value, or one throughout)"
                if dull
                else ""
            )
        )


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
) -> Verification:
    """Run two models on the same inputs and compare their outputs.

    Args:
        a: The reference: a path, a model in memory, or a ``Runner`` that holds it.
        b: The model to check. If it does not load or run, that is a difference, unless the
            runtime lacks something for it.
        feeds: Inputs by name, any number of times; default: made by ``find_feeds``.
        rtol: Replaces the default of each floating-point dtype.
        atol: Replaces the default of each floating-point dtype.
        seed: Of the generated inputs.
        special_values: Also compare on the first inputs with NaN, infinities, denormals and others
            among the floats; see ``with_special_values``.
        libraries: Of custom operators; see ``Runner``. A given ``Runner`` keeps its own.
        engine: Of both models; see ``Runner``. A given ``Runner`` keeps its own.

    Raises:
        ModelError: ``a`` does not load or run.
        UnsupportedModelError: The installed runtime cannot load one of them.
        UsageError: The feeds do not fit ``a``, inputs cannot be generated for it, or it draws
            random numbers without a seed; a library cannot be loaded; no input can hold special
            values; the engine does not exist.
    """
    runner = a if isinstance(a, Runner) else Runner(a, libraries=libraries, engine=engine)
    baseline = Baseline.of(
        runner,
        feeds,
        seed=seed,
        rtol=rtol,
        atol=atol,
        special_values=special_values,
        engine=engine,
    )
    return baseline.against(b)


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The outputs of the reference model.

    Any number of models can be compared with them.
    """

    runner: Runner
    runs: Sequence[tuple[Feeds, Outputs]]
    """Pairs of inputs and outputs."""
    seed: int = 0
    rtol: float | None = None
    atol: float | None = None
    engine: str | None = None
    """The engine of the compared models; see ``Runner``."""

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
    ) -> Baseline:
        """Run the reference model; arguments and errors are those of ``compare``."""
        runner = model if isinstance(model, Runner) else Runner(model, engine=engine)
        proto = runner.proto()
        random = unseeded(proto)
        if random is not None:
            raise UsageError(
                f"{random}; a rewrite elsewhere changes the numbers drawn, so they cannot be "
                "compared: give it a seed attribute",
                where=runner.name,
            )
        if feeds is None:
            runs = find_feeds(runner, seed)
        elif feeds:
            runs = [
                (given, runner.run(given))
                for given in (with_declared_types(given, proto) for given in feeds)
            ]
        else:
            raise UsageError("no feeds to compare on: give at least one, or None to generate them")
        if special_values:
            runs += _special_runs(runner, runs[0][0], seed)
        return cls(runner, runs, seed, rtol, atol, engine)

    def against(
        self,
        model: Runner | onnx.ModelProto | str | os.PathLike[str],
        *,
        base_dir: str | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Verification:
        """Run another model on the same inputs, where failing is a difference.

        ``progress`` is called with the number of runs that are done.

        Raises:
            UnsupportedModelError: The installed runtime cannot load the model.
        """
        outputs: list[OutputDifference] = []
        engine, error, number = self.runner.engine, None, None
        try:
            second = (
                model
                if isinstance(model, Runner)
                else Runner(
                    model,
                    base_dir=base_dir,
                    libraries=self.runner.libraries,
                    engine=self.engine,
                )
            )
            # two engines round differently, so a small difference may be theirs
            if second.engine != engine:
                engine = f"{engine}, {second.engine}"
            for number, (given, expected) in enumerate(self.runs):
                progress(number)
                outputs += compare_outputs(
                    expected, second.run(given), feed=number, rtol=self.rtol, atol=self.atol
                )
        except UnsupportedModelError:
            raise
        except (ModelError, UsageError) as failure:
            error = str(failure)
        equal = error is None and all(output.equal for output in outputs)
        failed = None if error is None else number
        return Verification(
            equal,
            len(self.runs),
            tuple(outputs),
            self.seed,
            self.rtol,
            self.atol,
            engine,
            error,
            failed,
        )


def compare_outputs(
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    *,
    feed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[OutputDifference]:
    """Compare the outputs of two runs, in order; ``feed`` is only recorded.

    Raises:
        UsageError: the memory does not suffice to compare an output.
    """
    found: list[OutputDifference] = []
    for number, (name, other) in enumerate(itertools.zip_longest(expected, actual)):
        if name != other:
            reason = f"output {number} is {other!r}, wanted {name!r}"
            found.append(OutputDifference(name or other or "", feed, equal=False, reason=reason))
            continue
        wanted, blank = expected[name], OutputDifference(name, feed, equal=False)
        try:
            found.append(_compare_arrays(wanted, actual[name], blank, rtol, atol))
        except MemoryError as error:
            raise UsageError(
                f"output {name!r}, {wanted.dtype}{list(wanted.shape)}, is too large to be compared"
                " in this process's memory",
                hint="give smaller inputs by --feeds",
            ) from error
    return found


def find_feeds(model: Runner, seed: int = 0) -> list[tuple[Feeds, Outputs]]:
    """Generate up to three inputs of different sizes, with the model's outputs.

    A signature may hide that two dimensions must be equal, or how large one must be. So up to 250
    combinations of sizes and equalities are tried, until the model runs with a finite result.

    Raises:
        ModelError: The model runs on none of them.
        UsageError: Inputs cannot be generated for the model.
    """
    maker = FeedMaker(model.proto())
    blank: tuple[Ties, int, Feeds, Outputs] | None = None
    first_error = None
    for ties, variant in itertools.islice(_attempts(maker.shapes), _MAX_TRIES):
        if variant >= 3 and maker.elements(variant, ties) > _MOST_ELEMENTS:
            continue
        feeds = maker.make(seed, variant, ties)
        try:
            outputs = model.run(feeds)
        except ModelError as error:
            first_error = first_error or error
            continue
        found = ties, variant, feeds, outputs
        if not outputs or any(_finite(array).any() for array in outputs.values()):
            break
        blank = blank or found
    else:
        if blank is None:
            raise ModelError(
                f"{first_error} (on the inputs that were generated for it; give --feeds)"
            ) from first_error
        found = blank
    ties, variant, feeds, outputs = found
    runs = {variant: (feeds, outputs)}
    start = variant - variant % 3
    for other in range(start, start + 3 if maker.shapes else start):
        if other == variant or (other >= 3 and maker.elements(other, ties) > _MOST_ELEMENTS):
            continue
        try:
            feeds = maker.make(seed, other, ties)
            runs[other] = feeds, model.run(feeds)
        # too small or large, or a value that the model refuses: use the others
        except (ModelError, InputTooLargeError):
            continue
    return [runs[number] for number in sorted(runs)]


def _special_runs(model: Runner, feeds: Feeds, seed: int) -> list[tuple[Feeds, Outputs]]:
    """Run the model on inputs with special values.

    Those on which it fails are left out.

    Raises:
        UsageError: No input is a float.
        ModelError: The model runs on none of them.
    """
    if not any(is_float(array) for array in feeds.values()):
        raise UsageError(
            "special values need a floating-point input; it has none", where=model.name
        )
    runs: list[tuple[Feeds, Outputs]] = []
    failure = None
    for special in with_special_values(feeds, seed):
        try:
            runs.append((special, model.run(special)))
        except ModelError as error:
            failure = error
    if not runs and failure is not None:
        raise ModelError(f"{failure} (on inputs with special values)") from failure
    return runs


def _attempts(shapes: Sequence[Dims]) -> Iterator[tuple[Ties, int]]:
    """Combine ties with sizes, the likely first.

    Without symbolic dimensions only values vary.
    """
    likely = list(tie_plans(shapes, changes=1))
    yield from ((ties, 3 * scale) for scale in range(len(UNITS)) for ties in likely)
    yield from (({}, variant) for variant in (1, 2))
    yield from ((ties, 0) for ties in tie_plans(shapes, changes=2) if ties not in likely)


def _compare_arrays(
    a: Array, b: Array, blank: OutputDifference, rtol: float | None, atol: float | None
) -> OutputDifference:
    """Return ``blank`` with the comparison of two arrays filled in."""
    if a.dtype != b.dtype:
        return dataclasses.replace(blank, reason=f"dtype {b.dtype}, wanted {a.dtype}")
    if a.shape != b.shape:
        return dataclasses.replace(blank, reason=f"shape {list(b.shape)}, wanted {list(a.shape)}")
    if a.size == 0:
        return dataclasses.replace(blank, equal=True)
    wide_a, wide_b = _widened(a), _widened(b)
    finite = _finite(a) & _finite(b)
    same, distance, magnitude = _distances(wide_a, wide_b)
    bounds, scales = scales_of(magnitude)
    allowed = [tolerance(a.dtype, rtol, atol, scale=scale) for scale in scales]
    rtol = allowed[0][0]
    atols = np.array([absolute for _, absolute in allowed])[
        np.searchsorted(bounds, magnitude, side="right")
    ]
    with np.errstate(invalid="ignore"):  # infinity times an rtol of 0
        agrees = same | (finite & (distance <= atols + rtol * magnitude))
    equal = bool(agrees.all())
    considered = agrees if equal else ~agrees
    worst = np.unravel_index(int(np.argmax(np.where(considered, distance, -1.0))), a.shape)
    divisible = considered & finite & (magnitude > 0)
    values = a[_finite(a)]
    varies = values.size == a.size == 1 or (values.size and np.any(values != values[0]))
    return dataclasses.replace(
        blank,
        equal=equal,
        rtol=rtol,
        atol=float(atols[worst]),
        max_abs=float(distance[worst]),
        max_rel=float(np.max(distance[divisible] / magnitude[divisible], initial=0.0)),
        index=tuple(int(i) for i in worst),
        a=wide_a[worst] if wide_a.dtype.kind == "O" else wide_a[worst].item(),
        b=wide_b[worst] if wide_b.dtype.kind == "O" else wide_b[worst].item(),
        telling=bool(varies),
    )


def _widened(array: Array) -> Array:
    """Convert to the widest type of its kind.

    Distances are exact or nearly so in it.
    """
    if array.dtype.kind in "OUS":
        return array.astype(object)
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    if "float" in array.dtype.name:
        return array.astype(np.float64)
    return array.astype(np.uint64 if array.dtype == np.uint64 else np.int64)


def _finite(array: Array) -> NDArray[np.bool_]:
    wide = _widened(array)
    return np.isfinite(wide) if wide.dtype.kind in "fc" else np.ones(wide.shape, np.bool_)


def _distances(
    a: Array, b: Array
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
    """Return, element by element, how far two widened arrays differ.

    The parts are: whether equal or both NaN; ``|a - b|``; ``|a|``.
    """
    same = np.asarray(a == b, np.bool_)
    if a.dtype.kind == "O":
        return same, np.where(same, 0.0, np.inf), np.zeros(a.shape)
    # subtracts modulo 2**64, which is right here; numpy warns about it for arrays of rank 0
    if a.dtype.kind in "iu":
        with np.errstate(over="ignore"):
            gap = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
        return same, gap.astype(np.float64), np.abs(a.astype(np.float64))
    same |= np.isnan(a) & np.isnan(b)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(a - b)
    gap = np.where(np.isnan(gap), np.inf, gap)
    return same, np.where(same, 0.0, gap), np.abs(a)


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
