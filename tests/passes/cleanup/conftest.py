"""Clean a model up and prove, for each one, what must hold for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import CleanUpResult, clean_up
from gehost.passes.cleanup.fold import EAGER_LIMIT

HEAD = '<ir_version: 10, opset_import: ["": {opset}, "local": 1, "acme": 1]>\n'
SIZES = {"N": 3, "M": 2}


@dataclass
class Cleaned:
    """A model after its clean-up."""

    model: Model
    result: CleanUpResult
    original: onnx.ModelProto

    @property
    def ops(self) -> list[str]:
        return [node.op for node in self.model.graph.nodes]

    @property
    def initializers(self) -> set[str]:
        return {
            name for name, value in self.model.graph.values.items() if value.initializer is not None
        }

    @property
    def counts(self) -> dict[str, int]:
        """The counts that are not 0."""
        names = ("dead_nodes", "dead_initializers", "identities", "folded", "merged")
        return {name: count for name in names if (count := getattr(self.result, name))}

    def array(self, name: str) -> np.ndarray[Any, Any]:
        return self.model.graph.values[name].numpy()


def parse(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        text if text.lstrip().startswith("<") else HEAD.format(opset=opset) + text
    )


def random_feeds(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Seeded values for the inputs that have none, dimensions by ``SIZES``."""
    rng = np.random.default_rng(seed)
    value = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for info in model.graph.input:
        if info.name in value:
            continue
        tensor = info.type.tensor_type
        shape = [
            SIZES[dim.dim_param] if dim.dim_param else dim.dim_value for dim in tensor.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == np.bool_:
            feeds[info.name] = np.array(rng.integers(0, 2, shape), dtype)
        elif dtype.kind in "iu":
            feeds[info.name] = np.array(rng.integers(1, 4, shape), dtype)
        elif dtype.kind == "O":
            feeds[info.name] = np.full(shape, f"text{seed}", object)
        else:
            feeds[info.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]]) -> list[Any]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


@pytest.fixture
def clean() -> Callable[..., Cleaned]:
    """``clean(text)``: the model after its clean-up.

    Proven on the way: undo gives back the bytes, a second run changes nothing, the index and the file are valid, inputs
    and outputs are as they were, and (unless ``runs=False``) ONNX Runtime computes the same numbers, bit by bit.
    """

    def cleaned(
        source: str | onnx.ModelProto,
        *,
        opset: int = 21,
        registry: OpRegistry | None = None,
        runs: bool = True,
        infer: bool = True,
        feeds: Mapping[str, np.ndarray[Any, Any]] | None = None,
        edit: Callable[[onnx.ModelProto], Any] | None = None,
        check: bool = True,
    ) -> Cleaned:
        original = parse(source, opset) if isinstance(source, str) else source
        if edit is not None:
            edit(original)
        registry = registry or OpRegistry()
        model = Model(_copy(original))
        if infer:
            problem = infer_model(model)
            assert problem is None, problem
        mark = model.mark()
        result = clean_up(model, registry, Inferrer(model, registry))
        model.check()
        model.undo(mark)
        model.check()
        assert _written(model) == original.SerializeToString(), "undo left something behind"

        assert clean_up(model, registry, Inferrer(model, registry)) == result, (
            "after an undo the result is another one"
        )
        model.check()
        again = clean_up(model, registry, Inferrer(model, registry))
        assert not again.total, f"a second run changes {again}"
        output = onnx.ModelProto.FromString(_written(model))
        assert output.ByteSize() <= original.ByteSize() + EAGER_LIMIT * result.total
        assert (output.SerializeToString() != original.SerializeToString()) == bool(result.total)
        if check:
            onnx.checker.check_model(output)
        assert [*output.graph.input, *output.graph.output] == [
            *original.graph.input,
            *original.graph.output,
        ]
        if runs:
            for seed in (0, 1):
                values = feeds if feeds is not None else random_feeds(original, seed)
                for before, after in zip(run(original, values), run(output, values), strict=True):
                    np.testing.assert_array_equal(before, after, strict=True)
        return Cleaned(model, result, original)

    return cleaned


def _copy(proto: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return copy


def _written(model: Model) -> bytes:
    return model.flush().SerializeToString()
