"""Masks of shifted windows: forms, both exporters, near misses with their reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs
from tests.vendors import like_exports

pytest.importorskip("onnxruntime")

BIAS = "a = Add (s, near)"
MASK = "m = Add (w, part)"
CUT = np.where(np.random.default_rng(0).random((1, 4, 1, 3, 3)) < 0.4, -100, 0).astype(np.float32)
NEAR = np.random.default_rng(1).normal(size=(1, 2, 3, 3)).astype(np.float32)


def model(
    bias: str = BIAS,
    mask: str = MASK,
    *,
    x: str = "B, 12, 8",
    opset: int = 17,
    apart: str = "apart",
    cut: Any = CUT,
    near: Any = NEAR,
    outputs: str = "",
) -> onnx.ModelProto:
    """Attention of two heads of size 4 over four windows of three positions, in an image of 12."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    main (float[{x}] x, float[1, 4, 1, 3, 3] free, float[1, 2, 3, 3] other) => (float[W, 3, 8] y {outputs})
    <int64[3] windows = {{-1, 3, 8}}, int64[4] heads = {{0, 3, 2, 4}}, int64[3] together = {{0, 0, 8}},
     int64[5] apart = {{-1, 4, 2, 3, 3}}, int64[4] joined = {{-1, 2, 3, 3}},
     int64[5] swapped = {{4, -1, 2, 3, 3}}, float scale = {{0.5}}> {{
        r = Reshape (x, windows) h = Reshape (r, heads)
        q = Transpose <perm = [0, 2, 1, 3]> (h) k = Transpose <perm = [0, 2, 3, 1]> (h)
        p = MatMul (q, k) s = Mul (p, scale) {bias} w = Reshape (a, {apart}) {mask} t = Reshape (m, joined)
        o = Softmax <axis = -1> (t) v = MatMul (o, q) vt = Transpose <perm = [0, 2, 1, 3]> (v)
        y = Reshape (vt, together) }}"""
    return parse(text, {"part": np.asarray(cut), "near": np.asarray(near)})


def check(host: Host, run: Any, model: onnx.ModelProto, inputs: Any) -> Counter[str]:
    """Compile, compare numbers in the runtime and in the reference; return the operators."""
    compiled, _ = host.run(model)
    expected = Runner(model).run(inputs)
    for result in (run(compiled, inputs), Runner(compiled, engine="reference").run(inputs)):
        for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
            assert one.equal, one
    return Counter(node.op_type for node in compiled.graph.node)


def feeds(batch: int) -> Any:
    drawing = np.random.default_rng(batch)
    return {
        "x": drawing.normal(size=(batch, 12, 8)).astype(np.float32),
        "free": drawing.normal(size=(1, 4, 1, 3, 3)).astype(np.float32),
        "other": drawing.normal(size=(1, 2, 3, 3)).astype(np.float32),
    }


@pytest.mark.parametrize("opset", [13, 17, 20, 23])
@pytest.mark.parametrize("bias", [BIAS, "a = Add (near, s)", "a = Identity (s)"])
@pytest.mark.parametrize("mask", [MASK, "m = Add (part, w)"])
def test_windows_are_fused(host: Host, run: Any, bias: str, mask: str, opset: int) -> None:
    inputs = model(bias, mask, opset=opset)
    for batch in (1, 3):
        counts = check(host, run, inputs, feeds(batch))
        assert not counts["Softmax"]
        assert counts["Expand"] == 1


@pytest.mark.parametrize("shape", [(1, 4, 2, 3, 3), (4, 1, 3, 3), (1, 4, 1, 1, 3)])
def test_masks_of_each_head_and_of_fewer_axes(host: Host, run: Any, shape: tuple[int, ...]) -> None:
    cut = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    assert not check(host, run, model(cut=cut), feeds(2))["Softmax"]


def test_a_batch_of_one_size(host: Host, run: Any) -> None:
    assert not check(host, run, model(x="2, 12, 8"), feeds(2))["Softmax"]


def test_sums_that_others_read_stay(host: Host, run: Any) -> None:
    inputs = model(outputs=", float[W, 2, 3, 3] a")
    check(host, run, inputs, feeds(2))


def test_sizes_computed_by_torchscript(host: Host, run: Any) -> None:
    """The number of images is a quotient of the number of windows."""
    inputs = like_exports.swin()
    drawing = np.random.default_rng(0).normal(size=(2, 256, 32)).astype(np.float32)
    assert not check(host, run, inputs, {"x": drawing})["Softmax"]


def test_a_mask_of_each_image(host: Host, run: Any) -> None:
    inputs = model(cut=np.repeat(CUT, 2, axis=0), x="2, 12, 8")
    assert not check(host, run, inputs, feeds(2))["Softmax"]


def test_windows_in_another_order_keep_their_numbers(host: Host, run: Any) -> None:
    """Images behind windows; two images in one."""
    for batch in (4, 8):
        swapped = model(apart="swapped", cut=np.swapaxes(CUT, 0, 1))
        check(host, run, swapped, feeds(batch))
    for batch in (1, 3):
        drawing = np.random.default_rng(batch).normal(size=(batch, 24, 8)).astype(np.float32)
        check(host, run, model(x="B, 24, 8"), {**feeds(1), "x": drawing})


@pytest.mark.parametrize(
    "inputs",
    [
        model(mask="m = Add (w, free)"),
        model(cut=CUT * np.float32(1e2)),
        model("a = Add (s, other)"),
        model(near=NEAR * np.float32(1e30)),
        model(near=NEAR * np.float32(np.nan)),
    ],
    ids=[
        "mask of an input",
        "mask of -1e4",
        "bias of an input",
        "large bias",
        "bias that is no number",
    ],
)
def test_near_misses(host: Host, inputs: onnx.ModelProto) -> None:
    compiled, report = host.run(inputs)
    assert any(node.op_type == "Softmax" for node in compiled.graph.node)
    (record,) = [record for record in report.passes if record.name == "OrtAttentionPass"]
    assert list(record.rejected) == ["mask"]
