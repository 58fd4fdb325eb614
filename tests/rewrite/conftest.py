"""What tests of rewriting share: one pattern, one replacement, every match, and the proof that nothing broke."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.es.graph import EsGraph, EsGraphBuilder, EsTensor
from gehost.infer import infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.refusal import Refused
from gehost.rewrite.provenance import Author
from gehost.rewrite.replace import replace_region
from gehost.rewrite.session import RewriteSession

ort = pytest.importorskip("onnxruntime")

Make = Callable[..., Any]


class Rewriting:
    """A model under rewriting.

    Attributes:
        made: the names of the new nodes, rewrite by rewrite.
        refused: why the others were not done.
    """

    def __init__(
        self,
        describe: Callable[..., Any],
        text: str | onnx.ModelProto,
        opset: int = 17,
        ir: int = 10,
        **weights: Any,
    ) -> None:
        self._describe = describe
        header = f'<ir_version: {ir}, opset_import: ["": {opset}, "ge": 1]> '
        proto = onnx.parser.parse_model(header + text) if isinstance(text, str) else text
        generator = np.random.default_rng(0)
        for name, value in weights.items():
            array = (
                np.asarray(value)
                if isinstance(value, np.ndarray | np.generic)
                else generator.standard_normal(value).astype(np.float32)
            )
            proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        self.before = onnx.ModelProto()
        self.before.CopyFrom(proto)
        self.model = Model(proto)
        self.registry = OpRegistry()
        self.made: list[list[str]] = []
        self.refused: list[str] = []
        infer_model(self.model)

    def replace(
        self,
        find: Make,
        put: Make,
        inputs: int = 1,
        *,
        new_inputs: int | None = None,
        name: str = "P",
        vendor: str = "",
        proven: bool = False,
        registry: OpRegistry | None = None,
        graph: int = 0,
        **config: bool,
    ) -> Rewriting:
        """Replace every match; after each one, done or refused, the index is proven, and after a refusal nothing has changed."""
        builder = EsGraphBuilder("pattern")
        pattern = Pattern(builder.BuildAndReset(find(*builder.CreateInputs(inputs))))
        registry = registry or self.registry
        session = RewriteSession(self.model, registry, Author(name, vendor))
        searched = list(self.model.graphs)[graph]
        for match in PatternMatcher(pattern, searched, PatternMatcherConfig(**config), registry):
            index, mark = self._describe(self.model), self.model.mark()
            try:
                replacement = graph_of(put, inputs if new_inputs is None else new_inputs)
                region = match.region()
                result = replace_region(session, region, replacement, shape_proven=proven).nodes
            except Refused as refusal:
                self.refused.append(str(refusal))
                assert self._describe(self.model) == index
                assert self.model.mark() == mark
            else:
                self.made.append([node.label for node in result])
            self.model.check()
        return self

    @property
    def ops(self) -> list[str]:
        """The operators of the main graph, in order."""
        return [node.op for node in self.model.graph.nodes]

    def finish(self) -> onnx.ModelProto:
        """Write the model; its index is that of a fresh load, ONNX's checker is content, and the interface is as it was."""
        result = self.model.flush()
        assert self._describe(self.model, types=False) == self._describe.fresh(
            self.model, types=False
        )
        onnx.checker.check_model(result)
        for side in ("input", "output"):
            assert getattr(result.graph, side) == getattr(self.before.graph, side)
        return result

    def assert_equal(self, **sizes: int) -> onnx.ModelProto:
        """Before and after give the same numbers in ONNX Runtime, on seeded inputs."""
        result = self.finish()
        feeds = feeds_of(self.before, sizes)
        for one, other in zip(run(self.before, feeds), run(result, feeds), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        return result


def graph_of(put: Make, inputs: int) -> EsGraph:
    builder = EsGraphBuilder("replacement")
    placeholders: Sequence[EsTensor] = builder.CreateInputs(inputs)
    return builder.BuildAndReset(put(*placeholders))


def feeds_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    constants = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, np.ndarray] = {}
    for info in model.graph.input:
        if info.name in constants:
            continue
        kind = info.type.tensor_type
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype == np.bool_:
            feeds[info.name] = np.ones(shape, np.bool_)
        else:
            feeds[info.name] = np.asarray(generator.standard_normal(shape) * 3).astype(dtype)
    return feeds


def run(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run(None, dict(feeds))


@pytest.fixture
def rewriting(describe: Callable[..., Any]) -> Callable[..., Rewriting]:
    return lambda *arguments, **options: Rewriting(describe, *arguments, **options)
