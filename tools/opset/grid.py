"""Raise one-node models and compare the results with what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort

from gehost.errors import GehostError
from gehost.ir.model import Model
from gehost.ir.schemas import RANDOM
from gehost.opset import raise_opset

ort.set_default_logger_severity(4)
Arrays = list[np.ndarray[Any, Any]]


def newest_of_runtime() -> int:
    """The newest opset that the installed ONNX Runtime loads."""
    for opset in range(onnx.defs.onnx_opset_version(), 0, -1):
        text = f'<ir_version: 10, opset_import: ["": {opset}]> g (float[1] x) => (float[1] y) {{ y = Relu(x) }}'
        if session(onnx.parser.parse_model(text)) is not None:
            return opset
    raise AssertionError("ONNX Runtime loads no opset")


def session(model: onnx.ModelProto) -> ort.InferenceSession | None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.strict_shape_type_inference", "1")
    options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(model.SerializeToString(), options)
    except Exception:  # noqa: BLE001 - ONNX Runtime raises several types
        return None


def is_valid(model: onnx.ModelProto, *, deprecated: bool = False) -> bool:
    """Whether the full check accepts a model, or with ``deprecated`` only minds an old operator."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # noqa: BLE001 - the checker and inference raise several types
        return deprecated and "deprecated" in str(error)
    return True


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    results: dict[str, np.ndarray[Any, Any]] = {}
    for entry in model.graph.input:
        if entry.name in weights:
            continue
        tensor = entry.type.tensor_type
        shape = [dim.dim_value or {"C": 4}.get(dim.dim_param, 2) for dim in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        numbers = (
            draw.uniform(0.1, 2.0, shape) if entry.name in ("v", "s") else draw.normal(size=shape)
        )
        if dtype.kind in "iu":
            numbers = draw.integers(1, 9, shape)
        results[entry.name] = np.asarray(numbers).astype(dtype)
    return results


def numbers(model: onnx.ModelProto) -> tuple[str, Arrays | None]:
    """The engine that ran a model, "" for none, and its numbers.

    The runtime; where it lacks the element type, the runtime in float; or else the reference.
    """
    for engine, item in (("runtime", model), ("runtime in float", in_float(model))):
        runner = session(item)
        if runner is not None:
            try:
                return engine, [np.asarray(result) for result in runner.run(None, feeds(item))]
            except Exception:  # noqa: BLE001
                return "", None
    node = model.graph.node[0].op_type
    if model.opset_import[0].version < WRONG_IN_REFERENCE.get(node, 0):
        return "", None
    try:
        match = onnx.reference.ReferenceEvaluator(model).run(None, feeds(model))
    except Exception:  # noqa: BLE001 - the reference fails in every way
        return "", None
    return "reference", [np.asarray(item) for item in match]


WRONG_IN_REFERENCE = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "Selu": 6, "AveragePool": 7}
"""Operators for which ``onnx.reference`` computes the newest form at opsets below these."""


def in_float(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in (*copy.graph.input, *copy.graph.output):
        tensor = entry.type.tensor_type
        if tensor.elem_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE):
            tensor.elem_type = onnx.TensorProto.FLOAT
    return copy


def are_equal(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any], tolerance: float) -> bool:
    if one.dtype.kind not in "biufc" or two.dtype.kind not in "biufc":  # texts, absent values
        return one.shape == two.shape and one.tolist() == two.tolist()
    return one.shape == two.shape and np.allclose(one, two, tolerance, tolerance, equal_nan=True)


def outcome(before: onnx.ModelProto, target: int) -> str:
    """ "equal", "refused: …", "valid" (runs nowhere before), "unusable" before, or what is wrong."""
    if not is_valid(before, deprecated=True):
        return "unusable"
    after = onnx.ModelProto()
    after.CopyFrom(before)
    try:
        raise_opset(Model(after), target)
    except GehostError as error:
        return f"refused: {error}"
    if not is_valid(after, deprecated=True):
        return "WRONG: invalid"
    engine, old = numbers(before)
    if old is None:
        return "valid"
    other, new = numbers(after)
    if engine == "runtime" != other and target <= NEWEST:
        return "WRONG: does not run in ONNX Runtime"
    if new is None:
        return "valid"
    half = any(item.dtype == np.float16 for item in (*old, *new))
    tolerance = 3e-3 if half else 1e-5
    if before.graph.node[0].op_type in RANDOM:
        return "valid"
    same = all(are_equal(one, two, tolerance) for one, two in zip(old, new, strict=True))
    return f"equal ({engine}, {other})" if same else f"WRONG: other numbers ({engine}, {other})"


NEWEST = newest_of_runtime()
TARGETS = [
    opset
    for opset in (7, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25)
    if opset < NEWEST
]
TARGETS.append(NEWEST)
