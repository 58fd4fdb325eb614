"""``python -m tools.fuzz.half``: random models with bodies through ``--half``; exit code 1 where a check does not hold.

Each model is compiled and optimized to float16. A valid model must convert to a valid file that loads in ONNX Runtime.
The oracle shares no code with the comparison: original and result run with all floats made float64; what constants rounded by half may change is measured by rounding the original's at random. The
verdict of ``--verify`` must be that of the oracle, also for a result with a planted fault, and for what ``optimize`` leaves out as differing. Each model is then compiled in float16 and bfloat16 itself, compared widened.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from gehost import GehostError, Host, HostOptions
from gehost.errors import NumbersDifferError
from gehost.half import HalfConversion, judge
from gehost.half.convert import stays
from gehost.host.in_half import inlined
from gehost.optimizing.build import Candidate
from gehost.optimizing.check import Checker
from gehost.optimizing.run import optimize
from gehost.verify import Verification, compare
from gehost.verify.judge import NOT_LESS_PRECISE
from gehost.verify.rounded import rounded
from tools.fuzz.half_graphs import Maker
from tools.fuzz.workers import Outcome, outcomes

TENSOR = onnx.TensorProto
FLOATS = (TENSOR.FLOAT, TENSOR.FLOAT16, TENSOR.BFLOAT16)
VENDORS = Path(__file__).parents[2] / "vendors"
HALF_STEP = 2.0**-11
KINDS = {np.float16: HALF_STEP, ml_dtypes.bfloat16: 2.0**-8}
"""Types of half, and half a step of each."""
DRAWS = 6
"""Random roundings of a model's constants."""
MORE = 32
"""How much further than their worst a right result may be off."""
STEADY = 1e-3
"""Change of an output by such roundings from where on a model shows nothing."""

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Change = Callable[[Array], Array]


class Failure(Exception):
    """A check that does not hold."""


# -- oracle ---------------------------------------------------------------------------------------


def messages(item: Any) -> Iterator[Any]:
    """Yield a protobuf message and all in it."""
    yield item
    for descriptor, value in item.ListFields():
        if descriptor.message_type is not None:
            for part in value if descriptor.is_repeated else [value]:
                yield from messages(part)


def in_type(model: onnx.ModelProto, dtype: Any, change: Change) -> onnx.ModelProto:
    """Return a model with all floats of one type, constants changed on the way."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for item in messages(copy):
        if isinstance(item, TENSOR) and item.data_type in FLOATS:
            array = numpy_helper.to_array(item).astype(np.float64)
            item.CopyFrom(numpy_helper.from_array(change(array).astype(dtype), item.name))
        elif isinstance(item, onnx.TypeProto.Tensor) and item.elem_type in FLOATS:
            item.elem_type = kind
        elif isinstance(item, onnx.NodeProto):
            for entry in item.attribute:
                if entry.name in ("to", "dtype") and entry.i in FLOATS:
                    entry.i = kind
            if item.op_type == "ConstantOfShape" and not item.attribute:
                zero = numpy_helper.from_array(np.zeros(1, dtype))
                item.attribute.append(onnx.helper.make_attribute("value", zero))
    return copy


def run_wide(model: onnx.ModelProto, feeds: Feeds, change: Change = lambda a: a) -> list[Array]:
    """Run a model in float64; in float32 where the runtime has a kernel for that alone.

    Optimized where it does not run as it is: it then has Casts that change no type, at which
    ONNX Runtime 1.31 loses values that a body reads ("Missing Input").
    """

    def way(dtype: Any, *, optimized: bool) -> list[Array]:
        return run(session(in_type(model, dtype, change), optimized=optimized), feeds)

    for dtype in (np.float64, np.float32):
        with suppress(Exception):  # of ONNX Runtime, which has no base class
            return way(dtype, optimized=False)
    return way(np.float64, optimized=True)


def rounding_at(draw: np.random.Generator) -> Change:
    """Return a change that moves each number by half a step of float16, up or down or not."""

    def change(array: Array) -> Array:
        with np.errstate(over="ignore"):
            exact = array.astype(np.float16) == array
        moved = array * (1 + HALF_STEP * draw.integers(-1, 2, array.shape))
        return np.where(exact, array, moved)

    return change


def folding_in(step: float, draw: np.random.Generator) -> Change:
    """Return a change by half a step of all but whole numbers: of what a compile may fold."""

    def change(array: Array) -> Array:
        moved = array * (1 + step * draw.integers(-1, 2, array.shape))
        return np.where(array == np.round(array), array, moved)

    return change


def distance(a: Sequence[Array], b: Sequence[Array]) -> float:
    """Return the largest distance of outputs, relative to the root mean square of each."""
    results = [0.0]
    for one, other in zip(a, b, strict=True):
        one, other = one.astype(np.float64), other.astype(np.float64)
        if not np.isfinite(other).all():
            return np.inf
        size = float(np.sqrt(np.mean(one**2))) or 1.0
        results.append(float(np.abs(one - other).max()) / size)
    return max(results)


class Oracle:
    """What a model computes in float64, and how far off its conversion may be."""

    def __init__(
        self, model: onnx.ModelProto, feeds: Sequence[Feeds], seed: int, step: float = 0.0
    ) -> None:
        draw = np.random.default_rng(seed)
        change = folding_in(step, draw) if step else rounding_at(draw)
        self.feeds = feeds
        self.expected = [run_wide(model, feed) for feed in feeds]
        self.allowed = [
            max(distance(expected, run_wide(model, feed, change)) for _ in range(DRAWS))
            for feed, expected in zip(feeds, self.expected, strict=True)
        ]

    def off(self, model: onnx.ModelProto) -> float:
        """Return how many times its bound a conversion is off."""
        return max(
            distance(expected, run_wide(model, feed)) / (MORE * allowed + 1e-6)
            for feed, expected, allowed in zip(self.feeds, self.expected, self.allowed, strict=True)
        )


# -- checks ---------------------------------------------------------------------------------------


def session(model: onnx.ModelProto, *, optimized: bool) -> onnxruntime.InferenceSession:
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    )
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run(loaded: onnxruntime.InferenceSession, feeds: Feeds) -> list[Array]:
    kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
    kinds["tensor(double)"] = np.float64
    entry = {
        item.name: feeds[item.name].astype(kinds.get(item.type, feeds[item.name].dtype))
        for item in loaded.get_inputs()
    }
    return [np.asarray(array) for array in loaded.run(None, entry)]


def check_file(model: onnx.ModelProto, oracle: Oracle, what: str, *, runs: bool = True) -> None:
    """Check, load and run a result."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        raise Failure(f"{what}: invalid: {error}") from error
    for optimized in (False, True):
        try:
            loaded = session(model, optimized=optimized)
            results = [run(loaded, feed) for feed in oracle.feeds]
        except Exception as error:
            raise Failure(f"{what}: does not run ({optimized=}): {error}") from error
        for actual, expected, allowed in zip(results, oracle.expected, oracle.allowed, strict=True):
            off = distance(expected, actual)
            if runs and off > 0.02 + 2 * MORE * allowed:
                raise Failure(f"{what}: {off:.3g} off in half ({optimized=}, {allowed:.3g})")


def check_distance(model: onnx.ModelProto, oracle: Oracle, what: str, tally: Counter[str]) -> None:
    """What is said to be more than roundings must not be a wrong form.

    On other inputs than those of the oracle a comparison may fall the other way.
    """
    loaded = session(rounded(model), optimized=False)
    for feed, expected, allowed in zip(oracle.feeds, oracle.expected, oracle.allowed, strict=True):
        off = distance(expected, run(loaded, feed))
        if off > 0.02 + 2 * MORE * allowed:
            raise Failure(f"{what}: {off:.3g} off rounded")
    tally["refused, far on other inputs"] += 1


@cache
def host(**options: Any) -> Host:
    """Return a host with all passes for ONNX Runtime."""
    every = Host(HostOptions(vendors=[VENDORS], plugins=False)).passes
    names = [spec.name for spec in every if spec.vendor == "onnxruntime"]
    return Host(HostOptions(vendors=[VENDORS], enable=names, **options))


def planted(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto | None:
    """Return a copy with a fault: another operator, a constant that is 1.5 times as large."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    places: list[Callable[[], None]] = []
    others = {"Add": "Sub", "Sub": "Add", "Tanh": "Sigmoid", "Max": "Min", "Relu": "Identity"}
    for item in messages(copy):
        if isinstance(item, onnx.NodeProto) and item.op_type in others and not item.domain:
            places.append(lambda item=item: setattr(item, "op_type", others[item.op_type]))
        if isinstance(item, TENSOR) and item.data_type in FLOATS:
            whole = numpy_helper.to_array(item)
            larger = whole.astype(np.float64) * 1.5
            if (np.abs(larger) < 9).all():
                array = larger.astype(whole.dtype)
                places.append(
                    lambda item=item, array=array: item.CopyFrom(
                        numpy_helper.from_array(array, item.name)
                    )
                )
    if not places:
        return None
    rng.choice(places)()
    return copy


def run_case(seed: int) -> Counter[str]:
    """Convert the model of a seed in all ways."""
    rng, tally = random.Random(~seed), Counter[str]()
    model, feeds = Maker(seed).make(rng.randint(3, 12))
    try:
        onnx.checker.check_model(model, full_check=True)
        loaded = [session(model, optimized=optimized) for optimized in (False, True)]
        results = [[run(item, feed) for feed in feeds] for item in loaded]
    except Exception:  # noqa: BLE001 - equal names in bodies of bodies, shapes that a Scan lacks
        return Counter({"not valid": 1})
    try:
        oracle = Oracle(model, feeds, seed)
    except Exception as error:  # noqa: BLE001 - of ONNX Runtime, which has no base class
        return Counter({f"not by the oracle: {str(error)[-60:]}": 1})
    own = max(
        distance(*pair) for item in results for pair in zip(oracle.expected, item, strict=True)
    )
    if own > 1e-4 or max(oracle.allowed) > STEADY * 8:
        return Counter({"not steady": 1})
    tally["models"] += 1
    keep_io = rng.random() < 0.5
    options: dict[str, Any] = {"keep_io_types": keep_io}
    if rng.random() < 0.3:
        ops = sorted({item.op_type for item in messages(model) if isinstance(item, onnx.NodeProto)})
        options["keep_float32"] = (rng.choice(ops),)
    for verify in (False, True):
        what = f"compile --half{' --verify' if verify else ''} {options}"
        try:
            result, _ = host(verify=verify, half=True, **options).run(model)
        except NumbersDifferError as error:
            if "more than roundings" in str(error):
                check_distance(error.model, oracle, f"{what}: {error}", tally)
                continue
            off = oracle.off(error.model)
            raise Failure(
                f"{what}: said to differ, but {off:.3g} times the bound: {error}"
            ) from error
        except GehostError as error:
            raise Failure(f"{what}: refused: {error}") from error
        tally[what.partition(" {")[0]] += 1
        check_file(result, oracle, what, runs=verify)
        off = oracle.off(result)
        if off > 1:
            raise Failure(f"{what}: {off:.3g} times the bound")
    if stays(result):
        check_planted(model, result, oracle, rng, tally)
    for target in ("cpu", "any"):
        what = f"optimize --half --for {target}"
        try:
            with refused_candidates() as refused:
                done = optimize(model, target, half=True, measured=False)
        except GehostError as error:
            raise Failure(f"{what}: refused: {error}") from error
        check_refused(refused, oracle, what, tally)
        tally[what] += 1
        tally[f"{what}: in half"] += bool(stays(done.model))
        check_file(done.model, oracle, what)
        if oracle.off(done.model) > 1:
            raise Failure(f"{what}: {oracle.off(done.model):.3g} times the bound")
        for reason in done.report.dropped.values():
            tally[f"{what}: dropped as {'larger' if 'larger' in reason else 'differing'}"] += 1
        if len(done.model.SerializeToString()) > len(model.SerializeToString()):
            raise Failure(f"{what}: the file is larger than the input")
    for kind, step in KINDS.items():
        check_kind(model, feeds, kind, step, seed, tally)
    return tally


@contextmanager
def refused_candidates() -> Iterator[list[tuple[onnx.ModelProto, Verification]]]:
    """Collect the files that ``optimize`` makes and finds to differ."""
    refused: list[tuple[onnx.ModelProto, Verification]] = []
    compared = Checker._compared

    def collect(checker: Checker, candidate: Candidate) -> Verification:
        files = [path for path in (candidate.wide, candidate.path) if path]
        models = [onnx.load_model_from_string(Path(path).read_bytes()) for path in files]
        verdict = compared(checker, candidate)
        if not verdict.equal:
            # the one that was compared last: both have a verdict where the first is equal
            before = checker.wide.get(candidate.path)
            refused.append((models[0 if before is not None and not before.equal else -1], verdict))
        return verdict

    with patch.object(Checker, "_compared", collect):
        yield refused


def check_refused(
    refused: Sequence[tuple[onnx.ModelProto, Verification]],
    oracle: Oracle,
    what: str,
    tally: Counter[str],
) -> None:
    """What differs as a function must be wrong by the oracle, too."""
    for model, verdict in refused:
        different = [output for output in verdict.outputs if not output.equal]
        constant = {
            info.name
            for info, *arrays in zip(model.graph.output, *oracle.expected, strict=True)
            if all((array == arrays[0]).all() for array in arrays)
        }
        # a constant output is exact in float32, and rounded once it is folded
        if all(o.rule == NOT_LESS_PRECISE.name or o.output in constant for o in different):
            tally[f"{what}: left out as less precise"] += 1
            continue
        off = oracle.off(model)
        if off < 1:
            raise Failure(f"{what}: left out, but {off:.3g} times the bound: {verdict.summary()}")
        tally[f"{what}: left out as wrong"] += 1


def check_kind(
    source: onnx.ModelProto, feeds: Sequence[Feeds], kind: Any, step: float, seed: int,
    tally: Counter[str],
) -> None:  # fmt: skip
    """Compile the model in half itself; a planted fault must be seen there, too."""
    largest, what = float(ml_dtypes.finfo(kind).max), f"compile of {np.dtype(kind).name}"
    model = in_type(source, kind, lambda array: np.clip(array, -largest, largest))
    try:
        onnx.checker.check_model(model, full_check=True)
        oracle = Oracle(model, feeds, seed, step)
    except Exception:  # noqa: BLE001 - operators of old opsets have no bfloat16
        return
    if max(oracle.allowed) > STEADY * 8 * step / HALF_STEP:
        return
    tally[what] += 1
    try:
        result, report = host(verify=True).run(model)
    except NumbersDifferError as error:
        off = oracle.off(error.model)
        raise Failure(f"{what}: said to differ, but {off:.3g} times the bound: {error}") from error
    except GehostError as error:
        raise Failure(f"{what}: refused: {error}") from error
    if (off := oracle.off(result)) > 1:
        raise Failure(f"{what}: {off:.3g} times the bound, yet {report.notes}")
    wrong, off = seen_fault(result, oracle, random.Random(seed))
    if wrong is None:
        return
    tally[f"{what}: planted"] += 1
    inputs = [{name: array_of(array, kind) for name, array in feed.items()} for feed in feeds]
    verdict = compare(model, wrong, inputs)
    if verdict.equal:
        raise Failure(f"{what}: planted: {off:.3g} times the bound, yet {verdict.summary()}")


def array_of(array: Array, kind: Any) -> Array:
    """Return a feed in a type of half, where it is of float32."""
    return array.astype(kind) if array.dtype == np.float32 else array


def seen_fault(
    result: onnx.ModelProto, oracle: Oracle, rng: random.Random
) -> tuple[onnx.ModelProto | None, float]:
    """Plant a fault; None where it cannot be, does not run, or is too small for the oracle."""
    wrong = planted(result, rng)
    if wrong is None:
        return None, 0.0
    try:
        off = oracle.off(wrong)
    except Exception:  # noqa: BLE001 - it does not run
        return None, 0.0
    return (wrong, off) if off >= 30 else (None, off)


def check_planted(
    model: onnx.ModelProto,
    result: onnx.ModelProto,
    oracle: Oracle,
    rng: random.Random,
    tally: Counter[str],
) -> None:
    """Plant a fault that the oracle sees; the comparison must see it, too."""
    wrong, off = seen_fault(result, oracle, rng)
    if wrong is None:
        return
    tally["planted"] += 1
    compiled, _ = Host(HostOptions(vendors=[VENDORS], plugins=False)).run(model)
    verdict = judge(inlined(compiled), HalfConversion(wrong, ()), oracle.feeds)
    if verdict.equal:
        raise Failure(f"planted: {off:.3g} times the bound, yet {verdict.summary()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz-half"))
    options = parser.parse_args()
    tally, failed = Counter[str](), list[Outcome]()
    seeds = iter(range(options.seed, options.seed + options.graphs))
    for outcome in outcomes(run_case, seeds, options.processes, 120.0):
        if outcome.failure:
            failed.append(outcome)
            options.out.mkdir(parents=True, exist_ok=True)
            path = options.out / f"{outcome.number}.txt"
            path.write_text(outcome.failure, encoding="utf-8")
            line = next(
                (item for item in outcome.failure.splitlines()[::-1] if "Failure: " in item),
                outcome.failure.strip().splitlines()[-1],
            )
            print(f"seed {outcome.number}: {line[:300]}", flush=True)
        else:
            tally += outcome.result
    for what, count in tally.most_common():
        print(f"{count:6} {what}")
    print(f"{len(failed)} failures")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
