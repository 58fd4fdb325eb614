"""What the tests of the Ascend vendor share: models from ONNX text with seeded weights, runs, comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.passes.context import PassRecord
from tests.shipped import EXAMPLES

ort = pytest.importorskip("onnxruntime")

VENDOR = Path(__file__).parents[3] / "vendors" / "ascend"
Sizes = Mapping[str, int]


class Ascend:
    """Runs passes of the Ascend vendor, alone, on small models.

    Args:
        root: a directory of vendors that holds this one only.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._host = Host(HostOptions(vendors=[root], plugins=False, cleanup=False))

    def model(self, text: str, *, opset: int = 17, ir: int = 8, **weights: Any) -> onnx.ModelProto:
        """A model from ONNX text without its header; each weight is an array, or a shape to be filled with seeded numbers."""
        parsed = onnx.parser.parse_model(
            f'<ir_version: {ir}, opset_import: ["" : {opset}, "ge" : 1]>\n{text}'
        )
        rng = np.random.default_rng(7)
        for name, weight in weights.items():
            array = (
                weight
                if isinstance(weight, np.ndarray | np.generic)
                else rng.standard_normal(weight).astype(np.float32)
            )
            parsed.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
            if ir < 4 and name not in [info.name for info in parsed.graph.input]:
                kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype)
                parsed.graph.input.append(
                    onnx.helper.make_tensor_value_info(name, kind, np.asarray(array).shape)
                )
        return parsed

    def run(
        self, model: onnx.ModelProto, *passes: str, **options: Any
    ) -> tuple[onnx.ModelProto, list[PassRecord]]:
        """Compile with these passes (none named: all) and without clean-up; returns the model and the passes' records."""
        entry = self._host.passes.names()
        assert set(passes) <= set(entry)
        settings: dict[str, Any] = {
            "enable": [name for name in EXAMPLES if not passes or name in passes],
            "disable": [name for name in entry if name not in passes] if passes else [],
            **options,
        }
        result, report = self._host.with_options(**settings).run(model)
        assert not report.problems
        return result, [record for record in report.passes if record.name in passes or not passes]

    def assert_rewrites(
        self, model: onnx.ModelProto, name: str, count: int, ops: Mapping[str, int], *sizes: Sizes
    ) -> onnx.ModelProto:
        """Prove that a pass fires ``count`` times and leaves these operators, that numbers are equal, and that it is done.

        Args:
            ops: node counts of the main graph of the result.
            sizes: for each feed, what the symbols in the inputs' shapes are.
        """
        before = model.SerializeToString(deterministic=True)
        result, (record,) = self.run(model, name)
        assert model.SerializeToString(deterministic=True) == before, "the input model was changed"
        assert (record.replaced, dict(record.rejected)) == (count, {})
        assert self.ops(result) == dict(ops)
        self.assert_equal(model, result, *sizes)
        again, (record,) = self.run(result, name)
        assert record.replaced == 0
        assert again.SerializeToString(deterministic=True) == result.SerializeToString(
            deterministic=True
        )
        return result

    def assert_refuses(self, model: onnx.ModelProto, name: str, **rejected: int) -> None:
        """Prove that a pass leaves the model as it is and refuses for exactly these reasons (none: nothing matches)."""
        result, (record,) = self.run(model, name)
        assert (record.replaced, dict(record.rejected)) == (0, rejected)
        assert result.SerializeToString(deterministic=True) == model.SerializeToString(
            deterministic=True
        )

    def assert_equal(self, model: onnx.ModelProto, other: onnx.ModelProto, *sizes: Sizes) -> None:
        """Prove that two models give equal outputs in ONNX Runtime on seeded inputs; one feed without symbols by default."""
        for seed, size in enumerate(sizes or ({},)):
            feeds = self.feeds(model, size, seed)
            for info, output, actual in zip(
                model.graph.output,
                self.outputs(model, feeds),
                self.outputs(other, feeds),
                strict=True,
            ):
                assert (output.dtype, output.shape) == (actual.dtype, actual.shape), info.name
                half = output.dtype == np.float16
                np.testing.assert_allclose(
                    actual,
                    output,
                    rtol=1e-2 if half else 1e-4,
                    atol=1e-2 if half else 1e-5,
                    err_msg=info.name,
                )

    def feeds(
        self, model: onnx.ModelProto, sizes: Sizes, seed: int = 0
    ) -> dict[str, np.ndarray[Any, Any]]:
        rng = np.random.default_rng(100 + seed)
        weights = {tensor.name for tensor in model.graph.initializer}
        feeds: dict[str, np.ndarray[Any, Any]] = {}
        for info in model.graph.input:
            if info.name not in weights:
                tensor = info.type.tensor_type
                shape = [
                    sizes[dim.dim_param] if dim.dim_param else dim.dim_value
                    for dim in tensor.shape.dim
                ]
                dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                feeds[info.name] = np.asarray(rng.standard_normal(shape) * 2).astype(dtype)
        return feeds

    def outputs(
        self, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray[Any, Any]]
    ) -> list[np.ndarray[Any, Any]]:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, dict(feeds))

    @staticmethod
    def ops(model: onnx.ModelProto) -> dict[str, int]:
        """Node counts of the main graph by operator."""
        return dict(
            Counter(
                f"{node.domain}::{node.op_type}" if node.domain else node.op_type
                for node in model.graph.node
            )
        )


@pytest.fixture(scope="session")
def ascend(tmp_path_factory: pytest.TempPathFactory) -> Ascend:
    root = tmp_path_factory.mktemp("vendors")
    (root / VENDOR.name).symlink_to(VENDOR)
    return Ascend(root)
