"""What the tests of ``vendors/onnx`` share: one check that a model fuses, one that it does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from gehost import PassRecord
from gehost.testing import assert_equal_numbers, run_pass

OWN = Path(__file__).parents[3] / "vendors" / "onnx"

Fuses = Callable[..., onnx.ModelProto]
Refuses = Callable[..., None]


def _ops(graph: onnx.GraphProto) -> Counter[str]:
    counts = Counter(
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in graph.node
    )
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                counts += _ops(attribute.g)
    return counts


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of vendors that holds this one only: what others do is no concern here, and it loads faster."""
    root = tmp_path_factory.mktemp("vendors")
    (root / OWN.name).symlink_to(OWN)
    return root


@pytest.fixture
def fuses(alone: Path) -> Fuses:
    def check(
        model: onnx.ModelProto,
        name: str,
        became: str,
        count: int = 1,
        *,
        left: int | None = None,
        numbers: bool = True,
    ) -> onnx.ModelProto:
        """The pass rewrites ``count`` times, to ``became``; numbers are equal, and a second run changes nothing.

        Args:
            left: how many nodes besides Constant the result has; the fused ones alone where not said.
            numbers: compare them here, with the tolerance of their dtype.
        """
        result, record = run_pass(model, name, vendors=alone)
        assert (record.replaced, record.matched) == (count, count), f"{record}"
        onnx.checker.check_model(result)
        counts = _ops(result.graph)
        assert counts[became] == count
        assert counts.total() - counts["Constant"] == (count if left is None else left), counts
        for before, after in (
            (model.graph.input, result.graph.input),
            (model.graph.output, result.graph.output),
        ):
            assert [entry.SerializeToString() for entry in before] == [
                entry.SerializeToString() for entry in after
            ]
        if numbers:
            assert_equal_numbers(model, result)
        again, second = run_pass(result, name, vendors=alone)
        assert second.matched == 0
        assert again.SerializeToString(deterministic=True) == result.SerializeToString(
            deterministic=True
        )
        return result

    return check


@pytest.fixture
def refuses(alone: Path) -> Refuses:
    def check(model: onnx.ModelProto, name: str, reason: str | None) -> None:
        """The pass leaves the model as it is, for ``reason`` (None: nothing is like it)."""
        result, record = run_pass(model, name, vendors=alone)
        assert record.replaced == 0
        assert set(record.rejected) == ({reason} - {None}), f"{record}"
        assert result.SerializeToString(deterministic=True) == model.SerializeToString(
            deterministic=True
        )

    return check


@pytest.fixture
def run(alone: Path) -> Callable[[onnx.ModelProto, str], tuple[onnx.ModelProto, PassRecord]]:
    return lambda model, name: run_pass(model, name, vendors=alone)


@pytest.fixture
def untyped() -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    def put_before(model: onnx.ModelProto) -> onnx.ModelProto:
        """Put an operator that nobody knows between x and its readers."""
        model.opset_import.add(domain="acme", version=1)
        for node in model.graph.node:
            node.input[:] = ["x_unknown" if name == "x" else name for name in node.input]
        model.graph.node.insert(
            0, onnx.helper.make_node("Unknown", ["x"], ["x_unknown"], domain="acme")
        )
        return model

    return put_before
