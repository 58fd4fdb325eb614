"""Time each fused function's kernel against its body on given feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

from gehost import GehostError, Model, ModelError, UsageError, one_line, tune, verify
from gehost_linalg.groups.body import DOMAIN

Feeds = Mapping[str, NDArray[Any]]
Maker = Callable[[], Callable[[], object]]
"""Creates a session; returns a function that runs it once."""

SECONDS = 1.0
"""Of wall time for each kernel."""
ORIGINAL_SECONDS = 10.0
"""Of wall time for the comparison with the original."""
_RTOL, _ATOL = 1e-3, 1e-4


class Gain(NamedTuple):
    """How a kernel compares with its body.

    Attributes:
        ratio: the time of the body by that of the kernel.
        verdict: keep where the gain is larger than that of the body over itself, drop where the
            loss is, else noise.
        comparison: the pairs.
        dead_zone: the gain between equal sessions; smaller gains are noise.
    """

    ratio: float
    verdict: str
    comparison: tune.Comparison | None = None
    dead_zone: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        """Return its entry in a switch file, as for a kind of ``gehost tune``."""
        results: dict[str, Any] = {"verdict": self.verdict, "gain": round(self.ratio, 4)}
        if self.comparison is not None:
            results["interval"] = [round(end, 4) for end in self.comparison.interval]
            results["pairs"] = [round(ratio, 4) for ratio in self.comparison.ratios]
        return results


def gains(
    path: str, library: Path, names: list[str], feeds: Feeds, seconds: float = SECONDS
) -> dict[str, Gain]:
    """Measure the first node of each kernel alone, with one thread.

    Raises:
        UsageError: ONNX Runtime is not installed, or the feeds do not fit the model.
    """
    model = _load(path)
    expected = {node.op_type: node for node in reversed(model.graph.node) if node.domain == DOMAIN}
    values = _values(
        model, [name for item in names if item in expected for name in expected[item].input], feeds
    )
    results: dict[str, Gain] = {}
    for name in names:
        if name not in expected:  # in the body of an If or Loop
            continue
        alone, argument = _alone(model, expected[name], values)
        results[name] = _gain(
            _maker(alone, argument, None), _maker(alone, argument, library), seconds
        )
    return results


def whole(path: str, library: Path, feeds: Feeds, seconds: float = SECONDS) -> Gain:
    """Measure the model with a library against that with bodies."""
    model = _load(path)
    arguments = {
        value.name: feeds[value.name] for value in model.graph.input if value.name in feeds
    }
    return _gain(_maker(model, arguments, None), _maker(model, arguments, library), seconds)


def check_original(original: str, path: str, feeds: Feeds) -> None:
    """Compare a model's outputs with those of its compiled file.

    Both run without ONNX Runtime's optimizations, which may change numbers.

    Raises:
        ModelError: one of them is no model.
        UsageError: one of them does not run on the feeds, or their outputs differ.
    """
    results: list[dict[str, NDArray[Any]]] = []
    for file in (original, path):
        try:
            Model.load(file)
            session = _session(file, None, optimized=False)
            names = [operand.name for operand in session.get_inputs()]
            if missing := [name for name in names if name not in feeds]:
                raise UsageError(f'the feeds have no input "{missing[0]}"', where=file)
            results.append(tune.outputs_of(session, {name: feeds[name] for name in names}))
        except GehostError:
            raise
        except Exception as error:  # of ONNX Runtime, of any type
            raise UsageError(
                f"does not run on the feeds: {one_line(str(error))}", where=file
            ) from error
    for one in verify.compare_outputs(*results, rtol=_RTOL, atol=_ATOL):
        if not one.equal:
            raise UsageError(
                f"{path} was not compiled from it: "
                f"{one.place}: {one.reason or f'{one.a} and {one.b}'}",
                where=original,
            )


def over_original(
    original: str, path: str, library: Path, feeds: Feeds, seconds: float = ORIGINAL_SECONDS
) -> Gain:
    """Measure a fused model with a library against its original."""
    model = _load(path)
    arguments = {
        value.name: feeds[value.name] for value in model.graph.input if value.name in feeds
    }
    return _gain(
        _maker(original, arguments, None), _maker(model, arguments, library), seconds, pairs=5
    )


def _load(path: str) -> onnx.ModelProto:
    """Read a model with its external data."""
    loader: Any = onnx  # its types are not complete
    try:
        return loader.load(path)
    except Exception as error:  # of onnx, of any type
        raise ModelError(f"cannot be read: {one_line(str(error))}", where=path) from error


def _gain(body: Maker, kernel: Maker, seconds: float, pairs: int = tune.FEWEST_PAIRS) -> Gain:
    try:
        same = tune.dead_zone_of(tune.measure_pairs(body, body, seconds=seconds / 3))
        compared = tune.measure_pairs(body, kernel, seconds=seconds, pairs=pairs)
    except GehostError:
        raise
    except Exception as error:  # of ONNX Runtime, of any type
        raise UsageError(
            f"the model does not run on the feeds: {one_line(str(error))}", subject="--measure"
        ) from error
    return Gain(compared.median, tune.verdict_of(compared, same), compared, same)


def _values(model: onnx.ModelProto, names: list[str], feeds: Feeds) -> dict[str, NDArray[Any]]:
    """Return the inputs of nodes: feeds, weights and computed values."""
    entries = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    entries |= feeds
    computed = [name for name in dict.fromkeys(names) if name and name not in entries]
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    declared = {value.name for value in model.graph.output}
    watched.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in computed if name not in declared
    )
    try:
        results: list[NDArray[Any]] = (
            _session(watched, None).run(computed, dict(feeds)) if computed else []
        )
    except Exception as error:  # of ONNX Runtime, of any type
        raise UsageError(
            f"the model does not run on the feeds: {str(error).splitlines()[0]}",
            subject="--measure",
        ) from error
    return {**entries, **dict(zip(computed, results, strict=True))}


def _alone(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Feeds
) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """A model of one node, and its feeds."""
    alone = onnx.ModelProto(ir_version=model.ir_version)
    alone.opset_import.extend(model.opset_import)
    alone.functions.extend(
        function
        for function in model.functions
        if function.domain == DOMAIN and function.name == node.op_type
    )
    alone.graph.name = "alone"
    alone.graph.node.append(node)
    arguments = {name: np.asarray(values[name]) for name in node.input}
    for name, array in arguments.items():
        element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        alone.graph.input.append(onnx.helper.make_tensor_value_info(name, element, array.shape))
    alone.graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output)
    return alone, arguments


def _maker(model: onnx.ModelProto | str, feeds: Feeds, library: Path | None) -> Maker:
    def make() -> Callable[[], object]:
        session = _session(model, library)
        return lambda: session.run(None, feeds)

    return make


def _session(model: onnx.ModelProto | str, library: Path | None, *, optimized: bool = True) -> Any:
    try:
        runtime: Any = verify.onnx_runtime()
    except ImportError as error:
        raise UsageError(f"--measure needs onnxruntime: {verify.INSTALL}") from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimized:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if library is not None:
        options.register_custom_ops_library(str(library))
    content = model if isinstance(model, str) else model.SerializeToString()
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
