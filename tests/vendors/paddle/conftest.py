"""What the tests of ``vendors/paddle`` share: a model fuses with equal numbers, or is refused for a reason."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

import gehost_drr
import gehost_register_pass
from gehost import PassRecord
from gehost.testing import assert_equal_numbers, parse, random_weights, run_pass

OWN = Path(__file__).parents[3] / "vendors" / "paddle"
PLUGINS = [("drr", gehost_drr)]


class Paddle:
    """Runs passes of this vendor, each alone.

    Args:
        root: a directory of vendors that holds this one only.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def model(text: str, opset: int = 17, **weights: tuple[int, ...]) -> onnx.ModelProto:
        """A model of ONNX text without its header; weights of these shapes are seeded and distinct."""
        header = f'<ir_version: 8, opset_import: ["" : {opset}, "acme" : 1]>\nmain '
        return parse(
            header + text, {name: array * 0.1 for name, array in random_weights(weights).items()}
        )

    def run(self, model: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, PassRecord]:
        return run_pass(model, name, vendors=self.root, plugins=PLUGINS)

    def fuses(
        self, model: onnx.ModelProto, name: str, ops: Mapping[str, int], count: int = 1
    ) -> onnx.ModelProto:
        """``count`` rewrites leave these operators besides Constant; numbers are equal; a second run changes nothing."""
        result, record = self.run(model, name)
        counts = Counter(node.op_type for node in result.graph.node)
        counts.pop("Constant", None)
        assert (record.replaced, dict(counts)) == (count, dict(ops)), f"{record.rejected}"
        assert [*model.graph.input, *model.graph.output] == [
            *result.graph.input,
            *result.graph.output,
        ]
        assert_equal_numbers(model, result)
        again, second = self.run(result, name)
        assert second.replaced == 0
        assert again == result
        return result

    def refuses(self, model: onnx.ModelProto, name: str, *reasons: str) -> None:
        """Nothing is rewritten, for these reasons alone (none: nothing matches)."""
        result, record = self.run(model, name)
        assert result == model
        assert set(record.rejected) == set(reasons), f"{record}"
        assert (record.matched > 0) == bool(reasons)


@pytest.fixture(scope="session")
def paddle(tmp_path_factory: pytest.TempPathFactory) -> Paddle:
    root = tmp_path_factory.mktemp("vendors")
    (root / OWN.name).symlink_to(OWN)
    return Paddle(root)


@pytest.fixture(scope="module")
def alone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Arguments for a directory of vendors that holds one file alone, that of the test module's ``PASS``, which is traced."""
    root = tmp_path_factory.mktemp("vendors")
    passes = root / OWN.name / "custom_fusion_passes"
    passes.mkdir(parents=True)
    file = f"{request.module.PASS}.py"
    (passes / file).symlink_to(OWN / "custom_fusion_passes" / file)
    return {"vendors": root, "plugins": [("register_pass", gehost_register_pass)]}


@pytest.fixture(scope="session")
def module() -> Callable[[str], Any]:
    """A file of this vendor as a module, to look at what is in it."""

    def load(stem: str) -> Any:
        spec = importlib.util.spec_from_file_location(
            f"paddle_{stem}", OWN / "custom_fusion_passes" / f"{stem}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        result = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(result)
        return result

    return load
