"""Batch normalization into convolutions; near misses with their reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import compare

CONV = "c = Conv <kernel_shape = [3], pads = [1, 1], group = 2> (x, w, b)"
NORM = "y = BatchNormalization <epsilon = 0.001> (c, s, beta, m, v)"
WEIGHTS = {
    "w": np.arange(24, dtype=np.float32).reshape(4, 2, 3) / 10 - 1,
    "b": np.array([1, -2, 3, -4], np.float32),
    "s": np.array([1, 2, -3, 4], np.float32),
    "beta": np.array([0.5, -0.5, 1, 2], np.float32),
    "m": np.array([0.1, -0.2, 3, 4], np.float32),
    "v": np.array([0.5, 1, 2, 1e-3], np.float32),
}


def model(
    conv: str = CONV, norm: str = NORM, outputs: str = "float[N, 4, L] y", **weights: Any
) -> Any:
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[N, 4, L] x) => ({outputs}) {{ {conv} {norm} }}"""
    used = {
        name: array for name, array in {**WEIGHTS, **weights}.items() if f" {name}" in conv + norm
    }
    return parse(text, used)


@pytest.mark.parametrize("conv", [CONV, CONV.replace(", b)", ")")], ids=["bias", "no bias"])
def test_fold(host: Host, conv: str) -> None:
    given = model(conv)
    compiled, _ = host.run(given)
    (node,) = compiled.graph.node
    assert node.op_type == "Conv"
    assert len(node.input) == 3
    result = compare(given, compiled)
    assert result.equal, result.summary()


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "read by others": (
        "shared",
        {"norm": NORM + " z = Relu (c)", "outputs": "float[N, 4, L] y, float[N, 4, L] z"},
    ),
    "an output": ("shared", {"outputs": "float[N, 4, L] y, float[N, 4, L] c"}),
    "a weight that is not finite": ("overflow", {"v": np.array([1, 1, 1, -1], np.float32)}),
    "computed weights": (
        "weights",
        {
            "norm": "vx = ReduceMean <axes = [0, 2], keepdims = 0> (x) "
            + NORM.replace(" v)", " vx)")
        },
    ),
    "training": (
        "training",
        {
            "norm": NORM.replace("epsilon = 0.001", "training_mode = 1").replace(
                "y =", "y, m2, v2 ="
            )
        },
    ),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, key: str, changes: Any) -> None:
    compiled, report = host.run(model(**changes))
    assert any(node.op_type == "BatchNormalization" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtConvBatchNormPass"]
    assert list(record.rejected) == [key]
