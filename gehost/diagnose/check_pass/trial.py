"""Run one pass alone on one model and compare the numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx

from gehost.diagnose.check_pass.engines import Engine, Loaded, load
from gehost.errors import ModelError, UnsupportedModelError, UsageError
from gehost.host.hookspecs import hookimpl
from gehost.host.host import Host
from gehost.host.registry import PassSpec
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.options import HostOptions
from gehost.passes.cleanup.purity import Purity, Trust
from gehost.verify import Baseline, compare_outputs
from gehost.verify.feeds import FeedMaker
from gehost.verify.judge import SMALL_MODELS, Rule
from gehost.verify.reference import reference_faults
from gehost.verify.retype import HALF, holds
from gehost.verify.room import NoRoomError
from gehost.verify.sizes import tie_plans

Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
_MOST_TIES = 40
"""Largest number of equalities between sizes that are tried until a model runs."""
_PRECISION_OF_SINGLE = 1e-4
"""The relative difference that float32 shows, too."""
_SMALL = 1e-3
"""A factor for inputs that makes an epsilon added to them matter."""


class Refusals:
    """A plugin that collects the reasons of refused matches."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    @hookimpl
    def gehost_match_refused(self, reason: str) -> None:
        self.reasons.append(reason)


@dataclass(frozen=True)
class Outcome:
    """The result of the pass on one model.

    Attributes:
        model: the result.
        replaced: number of rewrites; 1 if a ``Run`` changed the graph by itself alone.
        refusals: reasons of refused matches.
        message: why the pass did not run.
    """

    model: onnx.ModelProto
    replaced: int
    refusals: tuple[str, ...]
    message: str


class Comparing(NamedTuple):
    """How numbers are compared."""

    rtol: float | None = None
    atol: float | None = None
    provider: str = "cpu"


BY_RULE = Comparing()


class Trial:
    """One pass, in a host that runs no other pass."""

    def __init__(self, host: Host, spec: PassSpec, comparing: Comparing = BY_RULE) -> None:
        """Take a host, which stays as it is, and one of its passes."""
        self.spec, self.comparing = spec, comparing
        self._refusals = Refusals()
        self.host = host.watched(spec, "check-pass", self._refusals, cleanup=False)

    @classmethod
    def of(cls, name: str, options: HostOptions) -> Trial:
        """Return a trial of the pass ``name``, loaded with ``options``."""
        host = Host(options)
        spec = host.passes.get(name)
        assert spec is not None
        return cls(host, spec)

    def run(self, model: onnx.ModelProto) -> Outcome:
        """Compile a model with the pass.

        Raises:
            ModelError: the model is not valid.
            GehostError: the pass or a vendor's operator failed.
        """
        self._refusals.reasons.clear()
        # numpy's warnings are silenced: wrong results are found by the comparison
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result, report = self.host.run(model)
        record = next(record for record in report.passes if record.name == self.spec.name)
        changed = self.spec.kind == "fusion" and result.graph.node != model.graph.node
        replaced = record.replaced or int(changed)
        return Outcome(result, replaced, tuple(self._refusals.reasons), record.message)


# numbers


@dataclass(frozen=True)
class Numbers:
    """The worst difference between two models' numbers ("" if equal), and inputs.

    The inputs are those that give the difference.
    """

    difference: str = ""
    feeds: Feeds | None = None
    relative: float = math.inf
    """The difference over the largest number of the output."""
    elsewhere: tuple[str, ...] = ()
    """Operators that another provider than the chosen one ran."""


class UnsteadyError(ModelError):
    """The model runs, but its numbers cannot be compared.

    They are random, or no engine computes them that is known to be right.
    """


@dataclass(frozen=True)
class _Runs:
    """Inputs that a model accepts in one engine, with its outputs, and what judges others."""

    loaded: Loaded
    pairs: list[tuple[Feeds, Feeds]]
    comparing: Comparing

    @cached_property
    def baseline(self) -> Baseline:
        rtol, atol, provider = self.comparing
        feeds = [feeds for feeds, _ in self.pairs]
        rule = _rule_for(self.loaded.model)
        return Baseline.of(
            self.loaded.runner, feeds, rtol=rtol, atol=atol, provider=provider, rule=rule
        )


class Reference:
    """A model before a rewrite, with inputs that it accepts and outputs.

    Attributes:
        engine: the engine of the outputs, then that of the last comparison.
    """

    def __init__(self, model: onnx.ModelProto, seed: int, comparing: Comparing = BY_RULE) -> None:
        """Run the model; raises ``ModelError`` if it runs on no generated input.

        Raises ``UnsteadyError`` if its numbers are random, or no engine is known to be right.
        """
        self._model, self._seed = model, seed
        self._comparing = comparing
        self._by_engine: dict[Engine, _Runs | None] = {}
        engine = next(
            (candidate for candidate in Engine if self._runs(candidate) is not None), None
        )
        if engine is None:
            raise UnsteadyError(_no_engine(model))
        self.engine = engine
        # comparing two runs is not enough: random numbers may be equal by chance
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        indexed = Model(copy)
        purity = Purity(indexed, OpRegistry())  # without declared traits, the bodies decide
        random = sorted(
            {node.op for node in indexed.graph.nodes if purity.of(node) is Trust.RANDOM}
        )
        # a seed does not help: the second run of a session continues the sequence of the first
        if random:
            raise UnsteadyError(
                f"it draws random numbers ({', '.join(random)}), and another graph may draw others"
            )
        runs = self._runs(engine)
        assert runs is not None
        feeds, outputs = runs.pairs[0]
        if not all(
            difference.equal
            for difference in compare_outputs(outputs, runs.loaded.runner.run(feeds))
        ):
            raise UnsteadyError("it gives other numbers each time")

    def compare(self, other: onnx.ModelProto) -> Numbers:
        """Compare the model after the rewrite, in the first engine that runs both.

        Raises:
            UnsteadyError: no engine runs both that is known to be right, the runtime lacks
                something, or the reference evaluator sees a difference and ONNX Runtime none.
        """
        for engine in Engine:
            runs = self._runs_if_any(engine)
            if runs is None:
                continue
            try:
                loaded = load(other, engine)
            except ModelError as error:
                if engine is Engine.REFERENCE or isinstance(error, UnsupportedModelError):
                    raise UnsteadyError(f"after the rewrite {error}") from error
                self.engine = engine
                return Numbers(f"after the rewrite {error}", runs.pairs[0][0])
            if loaded is None:
                continue
            self.engine = engine
            numbers = _difference(runs, loaded)
            if (
                numbers.difference
                and engine is Engine.REFERENCE
                and numbers.relative > _PRECISION_OF_SINGLE
                and self._runtime_disagrees(other)
            ):
                raise UnsteadyError("only the reference evaluator sees a difference")
            return numbers
        raise UnsteadyError(_no_engine(self._model, other))

    def _runs(self, engine: Engine) -> _Runs | None:
        """Return the model's runs in an engine; None if that cannot run it."""
        if engine not in self._by_engine:
            self._by_engine[engine] = None
            loaded = load(self._model, engine)
            if loaded is not None:
                self._by_engine[engine] = self._run(loaded, engine)
        return self._by_engine[engine]

    def _runs_if_any(self, engine: Engine) -> _Runs | None:
        """Return the model's runs in an engine, None also if it fails there."""
        try:
            return self._runs(engine)
        except ModelError:
            return None

    def _run(self, loaded: Loaded, engine: Engine) -> _Runs:
        pairs = list(_first_runs(loaded, self._seed))
        # the reference is a hundred times slower; it only runs models without a kernel
        special = _special_feeds(pairs[-1][0], np.random.default_rng(self._seed))
        for feeds in special if engine is not Engine.REFERENCE else ():
            try:
                outputs = loaded.runner.run(feeds)
            except ModelError:  # the model refuses a value
                continue
            if all(
                array.dtype.kind == "O" or np.all(np.isfinite(array.astype(np.complex128)))
                for array in outputs.values()
            ):
                pairs.append((feeds, outputs))
        return _Runs(loaded, pairs, self._comparing)

    def _runtime_disagrees(self, other: onnx.ModelProto) -> bool:
        """Whether ONNX Runtime, with float32 for floats, sees no difference.

        Then the reference evaluator may be wrong. It is believed where the runtime cannot run the
        models for lack of a kernel, not where it refuses the model before the rewrite.
        """
        try:
            runs = self._runs(Engine.SINGLE)
        except ModelError:
            return True
        try:
            loaded = None if runs is None else load(other, Engine.SINGLE)
            if runs is None or loaded is None:
                return False
            return not _difference(runs, loaded).difference
        except ModelError:
            return False


def _difference(runs: _Runs, other: Loaded) -> Numbers:
    try:
        verification = runs.baseline.against(other.runner)
    except (UnsupportedModelError, NoRoomError) as error:
        raise UnsteadyError(f"after the rewrite {error}") from error
    if verification.error is not None:
        return Numbers(
            f"after the rewrite {verification.error}", runs.pairs[verification.failed_feed or 0][0]
        )
    wrong = [output for output in verification.outputs if not output.equal]
    if verification.equal or not wrong:
        return Numbers(elsewhere=verification.elsewhere)
    worst = max(wrong, key=lambda output: output.max_abs)
    difference = (
        f"{worst.output}: {worst.reason}"
        if worst.reason
        else f"{worst.place} is {worst.b!s:.12}, was {worst.a!s:.12} (|a-b| {worst.max_abs:.2g})"
    )
    largest = float(np.max(np.abs(runs.pairs[worst.feed][1].get(worst.output, 0)), initial=0))
    comparable = not worst.reason and largest and math.isfinite(largest)
    relative = float(worst.max_abs) / largest if comparable else math.inf
    return Numbers(difference, runs.pairs[worst.feed][0], relative)


def _no_engine(*models: onnx.ModelProto) -> str:
    """Return why no engine is known to compute models rightly."""
    faults = dict.fromkeys(fault for model in models for fault in reference_faults(model))
    reasons = f" ({'; '.join(faults)})" if faults else ""
    return f"ONNX Runtime has no kernels for it, and onnx.reference is wrong{reasons}"


def _first_runs(loaded: Loaded, seed: int) -> Iterator[tuple[Feeds, Feeds]]:
    """Yield inputs of three small sizes with the model's outputs.

    Sizes that the model refuses are left out.

    Raises:
        ModelError: it runs on none of them.
    """
    try:
        maker = FeedMaker(loaded.model)
    except UsageError as error:  # an input that cannot be generated
        raise ModelError(str(error)) from error
    refusal: ModelError | None = None
    for ties in islice(tie_plans(maker.shapes, changes=1), _MOST_TIES):
        try:
            feeds = maker.make(seed, 0, ties)
            yield feeds, loaded.runner.run(feeds)
        except ModelError as error:
            refusal = refusal or error
            continue
        for variant in (1, 2):
            try:
                feeds = maker.make(seed, variant, ties)
                yield feeds, loaded.runner.run(feeds)
            except ModelError:  # too small, or a value that the model refuses: use the others
                continue
        return
    assert refusal is not None
    raise refusal


def _rule_for(model: onnx.ModelProto) -> Rule:
    """Return the rule for numbers; in half a fold may round the weights anew, by some units."""
    if holds(model, frozenset((onnx.TensorProto.BFLOAT16,))):
        return SMALL_MODELS._replace(floor=2.0**-6)
    return SMALL_MODELS._replace(floor=2.0**-9) if holds(model, HALF) else SMALL_MODELS


def _special_feeds(feeds: Feeds, rng: np.random.Generator) -> Iterator[Feeds]:
    """Yield zeros, small and large numbers, and signed integers for float inputs."""
    for factor in (0.0, _SMALL, 8.0):
        yield {
            name: (array * factor).astype(array.dtype) if _is_float(array) else array
            for name, array in feeds.items()
        }
    whole = {
        name: np.asarray(rng.integers(-2, 3, list(array.shape))) for name, array in feeds.items()
    }
    yield {
        name: whole[name].astype(array.dtype) if _is_float(array) else array
        for name, array in feeds.items()
    }


def _is_float(array: np.ndarray[Any, Any]) -> bool:
    return "float" in array.dtype.name
