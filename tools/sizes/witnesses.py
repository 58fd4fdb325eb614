"""What a case is inferred to have, and what it has: ONNX Runtime's sizes, and the reference's."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.reference
import onnx.shape_inference
import onnxruntime

from gehost.infer import Inferrer, infer_model
from gehost.infer.doubtful_sizes import DOUBTS
from gehost.infer.doubts import Doubt
from gehost.ir.model import Model
from gehost.ir.types import Dim, TensorType, decode_type, is_invented
from gehost.ops import OpRegistry
from gehost.sizes import Scope
from tools.sizes.cases import Case

Shapes: TypeAlias = list[tuple[Dim, ...] | None]
"""By output; None for what is no tensor, or of unknown rank."""

PACKAGE_OF = {"onnxruntime": "onnxruntime", "reference": "onnx.reference"}
"""The module that is a witness."""

AGREE, DISAGREE, OPEN, ALONE = "agree", "disagree", "no size inferred", "no witness"


@dataclass
class Verdict:
    """What became of a case.

    Attributes:
        verdict: one of the four above.
        inferred: by onnx.
        actual: by witness; those that do not run the case are absent.
        refused: why a witness does not run it, by witness.
    """

    verdict: str
    inferred: Shapes
    actual: dict[str, Shapes]
    refused: dict[str, str]


def judge(case: Case, inferred: Shapes, actual: dict[str, Shapes]) -> str:
    """Compare each inferred size with that of each witness."""
    if not any(
        shape is not None and any(dim is not None for dim in shape) for shape in inferred
    ) and not any(shape == () for shape in inferred):
        return OPEN
    if not actual:
        return ALONE
    sizes = case.sizes
    return AGREE if all(_fits(inferred, shapes, sizes) for shapes in actual.values()) else DISAGREE


def who_differs(inferred: Shapes, actual: dict[str, Shapes], sizes: dict[str, int]) -> set[str]:
    """The witnesses with other sizes than the inferred ones."""
    return {
        PACKAGE_OF[name] for name, shapes in actual.items() if not _fits(inferred, shapes, sizes)
    }


def _fits(inferred: Shapes, actual: Shapes, sizes: dict[str, int]) -> bool:
    for declared, shape in zip(inferred, actual, strict=True):
        if declared is None or shape is None:
            continue
        if len(declared) != len(shape):
            return False
        for dim, size in zip(declared, shape, strict=True):
            number = _number(dim, sizes) if isinstance(dim, str) else dim
            if number is not None and number != size:
                return False
    return True


def _number(text: str, sizes: dict[str, int]) -> int | None:
    """A named or computed size of a case; None if it has other names."""
    scope = Scope()
    scope.declare(sizes)
    try:
        return scope.value(scope.parse(text), sizes)
    except KeyError:
        return None


_NO_WITNESS = {
    "Loop": "the reference joins what iterations make; ONNX defines, and ONNX Runtime does, a stack",
}
"""Operators that the reference runs against their definition, so that it is not asked."""


def _not_asked(case: Case) -> str:
    """Why the reference is not asked about a case; "" where it is."""
    if case.op == "Scan" and len(_scan_lengths(case)) > 1:
        return (
            "the scan inputs differ in length, which ONNX does not allow; the reference stops early"
        )
    return _NO_WITNESS.get(case.op, "")


def _scan_lengths(case: Case) -> set[int]:
    """The lengths of the scan inputs."""
    arguments = {
        entry.name: onnx.helper.get_attribute_value(entry) for entry in case.node.attribute
    }
    count = arguments["num_scan_inputs"]
    axes = arguments.get("scan_input_axes", [0] * count)
    return {
        np.shape(array)[axis]
        for array, axis in zip(case.arrays[-count:], axes, strict=False)
        if -np.ndim(array) <= axis < np.ndim(array)
    }


def actual_shapes(case: Case, model: onnx.ModelProto) -> tuple[dict[str, Shapes], dict[str, str]]:
    """The sizes that ONNX Runtime and the reference give, and why one of them gives none."""
    actual: dict[str, Shapes] = {}
    refused: dict[str, str] = {}
    for name, engine in (("onnxruntime", _in_runtime), ("reference", _in_reference)):
        reason = _not_asked(case) if name == "reference" else ""
        if reason:
            refused[name] = reason
            continue
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                outputs = engine(model, case.feeds())
        except Exception as error:  # noqa: BLE001 - the engines raise whatever they like
            refused[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        by_name = dict(zip((entry.name for entry in model.graph.output), outputs, strict=False))
        actual[name] = [_shape(by_name.get(entry)) for entry in case.node.output]
    return actual, refused


def _shape(value: Any) -> tuple[Dim, ...] | None:
    if value is None or isinstance(value, (list, dict, str)):
        return None
    return tuple(np.shape(value))


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A session in which the runtime changes nothing by itself, on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _in_runtime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    return session(model).run(None, feeds)


def _in_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    return onnx.reference.ReferenceEvaluator(model).run(None, feeds)


def onnx_shapes(case: Case, model: onnx.ModelProto) -> Shapes:
    """The sizes that onnx infers for the whole model."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    types = {entry.name: entry.type for entry in inferred.graph.output}
    results = [decode_type(types[name]) if name in types else None for name in case.node.output]
    return [result.shape if isinstance(result, TensorType) else None for result in results]


def gehost_shapes(
    case: Case, model: onnx.ModelProto, doubts: Mapping[str, Sequence[Doubt]] = DOUBTS
) -> Shapes:
    """The sizes that gehost infers; without doubts they are mostly those of onnx."""
    loaded = Model(model)
    infer_model(loaded, Inferrer(loaded, OpRegistry(), doubts))
    values = [loaded.graph.values.get(name) for name in case.node.output]
    return [
        None
        if value is None or value.shape is None
        else tuple(None if is_invented(dim) else dim for dim in value.shape)
        for value in values
    ]
