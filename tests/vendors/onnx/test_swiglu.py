"""ONNX's SwiGLU of opset 28: numbers in the reference, refusals by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from gehost.testing import parse
from gehost.verify import Runner, compare_outputs

NAME = "SwiGLUFusionPass"
SILU = "g = Sigmoid (a) s = Mul (a, g)"
WIDE = "g = Sigmoid (w) s = Mul (w, g)"
pytestmark = pytest.mark.skipif(
    onnx.defs.onnx_opset_version() < 28, reason="this onnx has no opset 28"
)


def model(lines: str, dtype: str = "float", opset: int = 28) -> onnx.ModelProto:
    shape = f"{dtype}[B, 8]"
    return parse(
        f"""<ir_version: {14 if opset > 27 else 10}, opset_import: ["" : {opset}]>
        g ({shape} a, {shape} b, {dtype}[B, 1] c) => ({shape} y)
        <float alpha = {{1.5}}, float one = {{1}}> {{ {lines} }}"""
    )


@pytest.mark.parametrize(
    "lines",
    [
        f"{SILU} y = Mul (s, b)",
        f"{SILU} y = Mul (b, s)",
        "m = Mul (alpha, a) g = Sigmoid (m) s = Mul (g, a) y = Mul (s, b)",
        "n = Neg (a) e = Exp (n) d = Add (e, one) s = Div (a, d) y = Mul (s, b)",
        "s = Swish <alpha = 1.7> (a) y = Mul (s, b)",
    ],
)
def test_a_gated_activation_becomes_the_operator(
    fuses: Callable[..., onnx.ModelProto], lines: str
) -> None:
    source = model(lines)
    result = fuses(source, NAME, "SwiGLU", numbers=False)
    draw = np.random.default_rng(0)
    feeds = {name: draw.standard_normal((3, 8)).astype(np.float32) for name in "ab"}
    feeds["c"] = np.ones((3, 1), np.float32)
    expected, numbers = (Runner(one, engine="reference").run(feeds) for one in (source, result))
    assert all(entry.equal for entry in compare_outputs(expected, numbers, rtol=1e-5, atol=1e-6))


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("gate", SILU.replace("s =", "y =")),
        ("gate", f"{SILU} y = Mul (s, c)"),
        ("gate", f"{SILU} t = Mul (s, b) y = Sub (t, s)"),
        ("product", "g = Sigmoid (a) y = Mul (b, g)"),
        ("dtype", f"w = Cast <to = 11> (a) {WIDE} t = Cast <to = 1> (s) y = Mul (t, b)"),
        (None, "r = Relu (a) y = Mul (r, b)"),
    ],
)  # fmt: skip
def test_what_is_none_stays(refuses: Callable[..., None], key: str | None, lines: str) -> None:
    refuses(model(lines), NAME, key)


def test_older_opsets_lack_it(refuses: Callable[..., None]) -> None:
    refuses(model(f"{SILU} y = Mul (s, b)", opset=27), NAME, None)
