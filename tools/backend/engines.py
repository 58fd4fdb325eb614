"""The two engines that run the cases, as they are written and without optimizations, and how results are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from gehost.verify import compare_outputs
from tools.backend.cases import Values
from tools.backend.variants import made_in

Array: TypeAlias = np.ndarray[Any, Any]
Engine: TypeAlias = Callable[[onnx.ModelProto, Values], dict[str, Any]]
"""Runs a model and gives every tensor that it computes outside of bodies, not only its outputs."""

_BFLOAT16_RTOL = 2**-6
"""Two units in the last place, which onnx's own runner of the cases allows too."""


def ort(model: onnx.ModelProto, feeds: Values) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4
    open_model = onnx.ModelProto()
    open_model.CopyFrom(model)
    outputs = {entry.name for entry in model.graph.output}
    names = computed(model)
    open_model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in outputs
    )
    session = onnxruntime.InferenceSession(
        open_model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    # Copies, as BatchNormalization in training mode writes to its inputs.
    copies = {
        name: value.copy() if isinstance(value, np.ndarray) else value
        for name, value in feeds.items()
    }
    return dict(zip(names, session.run(names, copies, quiet), strict=True))


def reference(model: onnx.ModelProto, feeds: Values) -> dict[str, Any]:
    names = computed(model)
    with np.errstate(all="ignore"):
        return dict(zip(names, ReferenceEvaluator(model).run(names, dict(feeds)), strict=True))


def computed(model: onnx.ModelProto) -> list[str]:
    """The names of all outputs, and of what else the nodes of the root graph make."""
    return list(
        dict.fromkeys([*(entry.name for entry in model.graph.output), *made_in(model.graph)])
    )


ENGINES: Mapping[str, Engine] = MappingProxyType({"onnxruntime": ort, "reference": reference})


def differences(
    expected: Values, actual: Values, rtol: float, atol: float, *, ulps: int = 0
) -> list[str]:
    """How ``actual`` is not what was expected; nothing where all is close enough, NaN beside NaN.

    ``ulps``: of the largest number, in addition to the tolerances.
    """
    target, argument = _tensors(expected), _tensors(actual)
    atol = max(atol, *(ulps * _ulp(array) for array in target.values()), 0.0)
    wide = (
        max(rtol, _BFLOAT16_RTOL)
        if any(array.dtype.name == "bfloat16" for array in target.values())
        else rtol
    )
    result = compare_outputs(target, argument, rtol=wide, atol=atol)
    return [f"{d.place}: {d.reason or f'{d.b} in place of {d.a}'}" for d in result if not d.equal]


def _ulp(array: Array) -> float:
    """The unit in the last place of the largest finite number; 0 for types of other kinds."""
    if array.dtype not in (np.float16, np.float32, np.float64):
        return 0.0
    numbers = np.abs(array[np.isfinite(array)])
    return float(np.finfo(array.dtype).eps) * float(numbers.max(initial=0))


def is_exact(engine: str, values: Values) -> bool:
    """Whether an engine rounds at the same places whatever nodes stand beside.

    ONNX Runtime has no float16 kernels for most operators. It computes them in float32 and leaves out roundings between
    two of them, but not beside an output.
    """
    return engine != "onnxruntime" or all(
        array.dtype != np.float16 for array in _tensors(values).values()
    )


def bits_equal(expected: Values, actual: Values) -> bool:
    target, argument = _tensors(expected), _tensors(actual)
    return list(target) == list(argument) and all(
        _content(target[name]) == _content(argument[name]) for name in target
    )


def _content(array: Array) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.tolist() if array.dtype == object else array.tobytes()


def _tensors(values: Values) -> dict[str, Array]:
    """All tensors, those of sequences by their places; an optional value that is absent has none."""
    return dict(item for name, value in values.items() for item in _flat(name, value))


def _flat(name: str, value: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(value, list):
        yield f"{name}.length", np.array(len(value))
        for place, element in enumerate(value):
            yield from _flat(f"{name}[{place}]", element)
    elif value is not None:
        array = np.asarray(value)
        yield name, array.astype(object) if array.dtype.kind in "USO" else array
