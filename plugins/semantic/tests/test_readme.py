"""The passes of the README, as a new user copies them, together on exports."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.ir.model import Model
from plugins.semantic.tests.test_passes import run
from tests.conftest import Vendors, no_default_vendors, vendors  # noqa: F401 - fixtures
from tools.semantic.check import random_feed

REPOSITORY = Path(__file__).parents[3]
README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCK = re.compile(
    r'```python title="vendors/npu/custom_fusion_passes/(\w+\.py)"\n(.*?)```', re.DOTALL
)
EXPORTS = {
    "tests/models/llama.ts17.onnx": {
        "FlashAttention": 2, "AddRmsNorm": 5, "Linear": 9, "Rotary": 4, "SwiGLU": 2,
    },
    "plugins/semantic/tests/models/gemma3_past.dyn.eager.onnx": {
        "FlashAttention": 2, "AddRmsNorm": 13, "Linear": 8, "Rotary": 4,
    },
    "tests/models/bert.ts17.onnx": {"FlashAttention": 2, "Linear": 9},
}  # fmt: skip


def test_each_base_class_has_an_example() -> None:
    assert len(BLOCK.findall(README)) == 5


@pytest.mark.parametrize("path", EXPORTS)
def test_the_passes_fire_together_with_equal_numbers(path: str, vendors: Vendors) -> None:  # noqa: F811
    for name, code in BLOCK.findall(README):
        vendors.write(f"npu/{name}", code)
    before = onnx.load(REPOSITORY / path)
    after, _ = Host(HostOptions(vendors=[vendors.root])).run(
        onnx.ModelProto.FromString(before.SerializeToString())
    )
    # a call without an optional input has a body, and so a name, of its own
    names = [node.op_type.partition("__")[0] for node in after.graph.node if node.domain == "npu"]
    calls = Counter(names)
    assert calls == EXPORTS[path]
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    feed = random_feed(graph, {"batch": 2, "seq": 7, "past": 3}, np.random.default_rng(0))
    for one, other in zip(run(before, feed), run(after, feed), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)
