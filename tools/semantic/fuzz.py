"""Random attentions: each description recomputed, each rewrite's numbers compared.

    python -m tools.semantic.fuzz [--count 10000] [--seed 0]

Exit status 1 if a number is wrong, or an attention without a near miss is not described.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from gehost import REG_FUSION_PASS, CustomPassStage, EsTensor, Refused, Value, es, infer_model
from gehost.ir.model import Model
from gehost.kernels import release
from gehost.testing import run_pass
from gehost_semantic import (
    Attention,
    AttentionCall,
    AttentionFinder,
    AttentionFusionPass,
    Views,
)
from tools.semantic.check import differences, random_feed
from tools.semantic.graphs import attention

RUNS = [{"b": 3, "s": 6, "t": 7}, {"b": 1, "s": 1, "t": 5}]
EMPTY = [{"b": 0, "s": 6, "t": 7}, {"b": 2, "s": 0, "t": 7}, {"b": 2, "s": 6, "t": 0}]
if release(ort.__version__) < release("1.29.0"):  # its own kernels end the process there
    EMPTY = []
LARGEST = 1e-4


@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class InventedKernel(AttentionFusionPass):
    """An attention ==> npu::FlashAttention, with the description's formula as its body."""

    takes = ("mask", "softcap")

    def Replacement(self, attention: AttentionCall) -> EsTensor:
        kernel = es.op("npu::FlashAttention")
        operands = (attention.q, attention.k, attention.v, attention.mask)
        return kernel(*operands, scale=attention.scale, softcap=attention.softcap)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    problems = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome, reason = trial(seed)
        counts[outcome] += 1
        reasons[reason] += bool(reason)
        if outcome.startswith(("wrong", "missed")):
            problems += 1
            print(f"seed {seed}: {outcome} {reason}", flush=True)
    print(dict(counts))
    for reason, count in reasons.most_common(12):
        print(count, reason)
    return int(problems > 0)


def trial(seed: int) -> tuple[str, str]:
    """Describe and replace one random attention; return the outcome, and why it was refused."""
    proto, near_miss = attention(seed)
    model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(model)
    views = Views(model.graph)
    try:
        (softmax,) = model.graph.nodes_of("Softmax")
        result = AttentionFinder(views).find(softmax)
    except Refused as refusal:
        return ("refused" if near_miss else "missed"), f"{near_miss}: {refusal}"
    wrong = _wrong_description(proto, views, result, seed)
    if wrong:
        return "wrong description", wrong
    compiled, record = run_pass(proto, InventedKernel)
    if not record.replaced:
        return f"described {near_miss}".strip(), f"not replaced: {next(iter(record.rejected), '')}"
    for number, sizes in enumerate(RUNS):
        feed = random_feed(model.graph, sizes, np.random.default_rng(seed + number))
        before, after = (_run(item, feed) for item in (proto, compiled))
        if before.shape != after.shape or not np.allclose(
            before, after, 1e-4, 1e-5, equal_nan=True
        ):
            return "wrong rewrite", near_miss
    reshaped = [
        value for node in model.graph.nodes_of("Reshape") for value in node.outputs if value
    ]
    for sizes in EMPTY:
        feed = random_feed(model.graph, sizes, np.random.default_rng(seed))
        results = _run_apart(proto, feed, [value.name for value in reshaped])
        if results is None:  # a Reshape cannot copy a size of an empty tensor, or the process ends
            continue
        before = results[0]
        computed = zip([model.graph.outputs[0], *reshaped], results, strict=True)
        if not all(_fits(value, part.shape, sizes) for value, part in computed):
            continue  # a 0 copied another size, or a MatMul did not broadcast
        after = (_run_apart(compiled, feed) or [None])[0]
        if after is None:
            return "wrong: no empty run", near_miss
        # without elements, a Reshape of the graph may have copied another size for 0
        is_same = before.size == after.size == 0 or before.shape == after.shape
        if not is_same or not np.allclose(before.ravel(), after.ravel(), 1e-4, 1e-5, True):
            return "wrong empty run", near_miss
    return f"replaced {near_miss}".strip(), ""


def _wrong_description(proto: onnx.ModelProto, views: Views, result: Attention, seed: int) -> str:
    for sizes in RUNS:
        feed = random_feed(views.graph, sizes, np.random.default_rng(seed))
        (difference,) = differences(proto, views, [result], feed)
        if not difference <= LARGEST:
            return f"{difference} at {sizes}: {result.summary()}"
    return ""


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _fits(value: Value, shape: Sequence[int], sizes: Mapping[str, int]) -> bool:
    """Whether a tensor of a run has its inferred sizes, none of them copied in place of a 0."""
    scope = value.graph.model.sizes
    for dim, own in zip(value.shape or shape, shape, strict=True):
        size = scope.parse(dim) if isinstance(dim, str) else dim
        try:
            if size is not None and scope.value(scope.filled(size), sizes) != own:
                return False
        except (KeyError, ZeroDivisionError):  # a size without name
            continue
    return True


def _run_apart(
    proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str] = ()
) -> list[Any] | None:
    """Run a model in another process, which the runtime may end; None where it fails.

    Without optimizations: a fused MatMul over no elements leaves its result as the memory was.
    """
    try:
        return _process().submit(_results, proto, feed, names).result()
    except BrokenProcessPool:
        _process.cache_clear()
    except Exception:  # noqa: BLE001 - runtimes fail in many ways
        pass
    return None


def _run(proto: onnx.ModelProto, feed: Mapping[str, Any]) -> Any:
    return _session(proto, ort.GraphOptimizationLevel.ORT_ENABLE_ALL).run(None, dict(feed))[0]


def _results(
    proto: onnx.ModelProto, feed: Mapping[str, Any], names: Sequence[str]
) -> Sequence[Any]:
    """Return the result of a model, and tensors by name."""
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = _session(proto, ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return session.run([proto.graph.output[0].name, *names], dict(feed))


def _session(proto: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    return ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


if __name__ == "__main__":
    sys.exit(main())
