"""Targets of Reshapes are written so that they show which axis is split."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost_linalg.passes import NAME

from .models import graph, run_runtime
from .models import parse as parse_onnx


def compiled(target: str, *, rank: int = 4, perm: str = "0,2,1,3") -> tuple[onnx.ModelProto, str]:
    text = graph(
        f"k = Constant<value = int64[{rank}] {{{target}}}>()\na = Add(x, b)\nr = Reshape(a, k)\n"
        f"t = Transpose<perm=[{perm}]>(r)\ny = MatMul(t, w)",
        "float[n,16,8] x, float[8] b, float[k,k] w",
        f"float[{','.join('opqrst'[:rank])}] y",
    )
    result, _ = Host(HostOptions(vendors=(), enable=(NAME,))).run(parse_onnx(text))
    onnx.checker.check_model(result)
    return result, text


@pytest.mark.parametrize("target", ["-1, 16, 4, 2", "0, 16, 4, 2", "0, 0, -1, 2", "0, 0, 4, 2"])
@pytest.mark.parametrize(("perm", "last"), [("0,2,1,3", 2), ("0,2,3,1", 16)])
def test_a_size_that_is_copied_is_written_as_0(target: str, perm: str, last: int) -> None:
    result, text = compiled(target, perm=perm)
    assert len(result.functions) == 1
    random = np.random.default_rng(2)
    for batch in (0, 2):
        feeds = {
            name: random.normal(size=size).astype(np.float32)
            for name, size in (("x", (batch, 16, 8)), ("b", (8,)), ("w", (last, last)))
        }
        if batch or target != "0, 0, -1, 2":  # ONNX Runtime has no rest beside an empty axis
            (inputs,), (expected,) = (
                run_runtime(result, feeds),
                run_runtime(parse_onnx(text), feeds),
            )
            np.testing.assert_array_equal(inputs, expected)


@pytest.mark.parametrize(
    ("target", "rank", "perm"),
    [
        ("-1, 32, 2, 2", 4, "0,2,1,3"),  # splits two axes
        ("-1, 16, 4, 2", 4, "0,1,2,3"),  # nothing is moved behind it
        ("-1, 4, 2", 3, "1,0,2"),  # merges, too
    ],
)
def test_other_targets_stay(target: str, rank: int, perm: str) -> None:
    result, _ = compiled(target, rank=rank, perm=perm)
    assert not result.functions
    declared = [
        onnx.numpy_helper.to_array(entry.t).tolist()
        for node in result.graph.node
        for entry in node.attribute
        if entry.name == "value"
    ]
    assert [int(part) for part in target.split(",")] in declared


def test_a_normalization_before_heads_keeps_its_own_rows() -> None:
    """A kernel reduces along one row; the last step of a normalization must not move to a head's."""
    text = graph(
        "k = Constant<value = int64[4] {0, 0, 4, 2}>()\na = Add(x, b)\n"
        "n = LayerNormalization(a, b)\nr = Reshape(n, k)\ny = Transpose<perm=[0,2,1,3]>(r)",
        "float[m,n,8] x, float[8] b",
        "float[m,4,n,2] y",
    )
    result, _ = Host(HostOptions(vendors=(), enable=(NAME,))).run(parse_onnx(text))
    assert [[node.op_type for node in function.node] for function in result.functions] == [
        ["Add", "LayerNormalization"]
    ]
