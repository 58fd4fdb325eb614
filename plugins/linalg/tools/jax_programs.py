"""Lower jax programs to linalg by IREE's tools: ``python jax_programs.py FOLDER``.

It needs an environment of its own: ``pip install jax iree-base-compiler==3.13``. For each program
it writes NAME.mlir, NAME.generic.mlir (MLIR's generic form) and NAME.fused.mlir (after
``linalg-fuse-elementwise-ops``); ``jax_texts.py`` compares gehost with them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn
from jax_kinds import KINDS

F32, F16, BF16 = jnp.float32, jnp.float16, jnp.bfloat16
I32, I8, BOOL = jnp.int32, jnp.int8, jnp.bool_

Program = tuple[Callable[..., Any], tuple[Any, ...]]


def of(*shape: int, dtype: Any = F32) -> jax.ShapeDtypeStruct:
    """An argument."""
    return jax.ShapeDtypeStruct(shape, dtype)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def rms_norm(x: Any, scale: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def group_norm(x: Any) -> Any:
    parts = x.reshape(2, 4, 4, 8, 8)
    mean = parts.mean((2, 3, 4), keepdims=True)
    return ((parts - mean) * lax.rsqrt(parts.var((2, 3, 4), keepdims=True) + 1e-5)).reshape(x.shape)


def attention(q: Any, k: Any, v: Any) -> Any:
    return nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 4, axis=-1) @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.25
    mask = jnp.tril(jnp.ones(scores.shape[-2:], BOOL))
    weights = nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def grouped_attention(q: Any, k: Any, v: Any) -> Any:
    return attention(q, jnp.repeat(k, 2, axis=1), jnp.repeat(v, 2, axis=1))


def rotary(x: Any) -> Any:
    angles = jnp.arange(8)[:, None] / 10000.0 ** (jnp.arange(8) / 8)
    sin, cos = jnp.sin(angles), jnp.cos(angles)
    low, high = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def transformer_layer(x: Any, qkv: Any, out: Any, up: Any, down: Any) -> Any:
    q, k, v = [
        part.reshape(2, 8, 4, 8).transpose(0, 2, 1, 3) for part in jnp.split(x @ qkv, 3, axis=-1)
    ]
    x = x + attention(q, k, v).transpose(0, 2, 1, 3).reshape(2, 8, 32) @ out
    return x + nn.gelu(layer_norm(x, 1.0, 0.0) @ up) @ down


def llama_layer(x: Any, wq: Any, wo: Any, gate: Any, up: Any, down: Any) -> Any:
    h = rms_norm(x, 1.0)
    q = rotary((h @ wq).reshape(2, 8, 2, 16).transpose(0, 2, 1, 3))
    x = x + attention(q, q, q).transpose(0, 2, 1, 3).reshape(2, 8, 32) @ wo
    h = rms_norm(x, 1.0)
    return x + (nn.silu(h @ gate) * (h @ up)) @ down


def convolution(x: Any, w: Any, **more: Any) -> Any:
    more = {"window_strides": (1, 1), "padding": "SAME", **more}
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **more)


def batch_norm(x: Any) -> Any:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) / jnp.sqrt(var + 1e-3)


def residual_block(x: Any, a: Any, b: Any) -> Any:
    return nn.relu(x + batch_norm(convolution(nn.relu(batch_norm(convolution(x, a))), b)))


def pool(x: Any, kind: str) -> Any:
    sizes = (1, 2, 2, 1)
    if kind == "max":
        return lax.reduce_window(x, -jnp.inf, lax.max, sizes, sizes, "VALID")
    return lax.reduce_window(x, 0.0, lax.add, sizes, sizes, "VALID") / 4


def lstm(x: Any, w: Any, u: Any) -> Any:
    def step(state: Any, item: Any) -> Any:
        h, c = state
        i, f, g, o = jnp.split(item @ w + h @ u, 4, axis=-1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((2, 8))
    return lax.scan(step, (zero, zero), x)[1]


def newton(x: Any) -> Any:
    return lax.while_loop(
        lambda s: jnp.abs(s * s - x).max() > 1e-3, lambda s: 0.5 * (s + x / s), jnp.ones_like(x)
    )


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v


def mlp_loss(x: Any, y: Any, a: Any, b: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ a) @ b - y) ** 2)


def cross_entropy(x: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(nn.log_softmax(x), labels[:, None], axis=-1).mean()


def quantized(x: Any, w: Any) -> Any:
    scale = jnp.abs(x).max(-1, keepdims=True) / 127
    q = jnp.clip(jnp.round(x / scale), -128, 127).astype(I8)
    return lax.dot(q, w, preferred_element_type=I32).astype(F32) * scale


def mixture(x: Any, router: Any, experts: Any) -> Any:
    weights, chosen = lax.top_k(nn.softmax(x @ router), 2)
    gates = (nn.one_hot(chosen, 4) * weights[..., None]).sum(1)
    return jnp.einsum("td,edf,te->tf", x, experts, gates)


def sinusoid() -> Any:
    angles = jnp.arange(16)[:, None] / 10000.0 ** (jnp.arange(8) / 8)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def cache_update(cache: Any, new: Any, at: Any) -> Any:
    return lax.dynamic_update_slice(cache, new, (0, at, 0))


def bilinear(x: Any) -> Any:
    return jax.image.resize(x, (1, 16, 16, 3), "bilinear")


def switch(which: Any, x: Any) -> Any:
    return lax.switch(which, [jnp.sin, jnp.cos, lambda y: y * y], x)


def complex_rotation(x: Any, y: Any) -> Any:
    return jnp.abs(lax.complex(x, y) * jnp.exp(1j * x)) + lax.complex(x, y).real


def mandelbrot(x: Any, y: Any) -> Any:
    c = lax.complex(x, y)
    return jnp.abs(lax.fori_loop(0, 5, lambda _, z: z * z + c, c))


PROGRAMS: Mapping[str, Program] = {
    "chain": (lambda x, y: jnp.exp(x) * y + jnp.tanh(y), (of(4, 8), of(4, 8))),
    "broadcast": (lambda x, y: (x + y) * 2 - y, (of(4, 8), of(8))),
    "scalar": (lambda x: jnp.sin(x) * 3 + 1, (of(),)),
    "transposed": (lambda x, y: x.T + y * x.T, (of(4, 8), of(8, 4))),
    "softmax": (nn.softmax, (of(4, 8),)),
    "logsumexp": (lambda x: jax.scipy.special.logsumexp(x, axis=-1), (of(4, 8),)),
    "layer_norm": (layer_norm, (of(2, 8, 16), of(16), of(16))),
    "rms_norm": (rms_norm, (of(2, 8, 16), of(16))),
    "group_norm": (group_norm, (of(2, 16, 8, 8),)),
    "batch_norm": (batch_norm, (of(2, 8, 8, 4),)),
    "attention": (attention, (of(2, 4, 8, 16), of(2, 4, 8, 16), of(2, 4, 8, 16))),
    "causal_attention": (causal_attention, (of(2, 8, 4, 16),) * 3),
    "grouped_attention": (grouped_attention, (of(2, 4, 8, 16), of(2, 2, 8, 16), of(2, 2, 8, 16))),
    "rotary": (rotary, (of(2, 4, 8, 16),)),
    "transformer_layer": (transformer_layer, (of(2, 8, 32), of(32, 96), of(32, 32), of(32, 64), of(64, 32))),
    "llama_layer": (llama_layer, (of(2, 8, 32), of(32, 32), of(32, 32), of(32, 64), of(32, 64), of(64, 32))),
    "gelu": (lambda x: nn.gelu(x, approximate=False) + nn.gelu(x), (of(4, 8),)),
    "activations": (lambda x: nn.silu(x) + nn.elu(x) + nn.softplus(x) + nn.hard_swish(x) + nn.mish(x), (of(4, 8),)),
    "mlp_bf16": (lambda x, w, b: nn.relu(x @ w + b), (of(4, 8, dtype=BF16), of(8, 16, dtype=BF16), of(16, dtype=BF16))),
    "mixed_precision": (lambda x, w: (x.astype(F16) @ w).astype(F32) * 2, (of(4, 8), of(8, 16, dtype=F16))),
    "einsum": (lambda a, b: jnp.einsum("abc,cda->bd", a, b), (of(2, 3, 4), of(4, 5, 2))),
    "einsum_batch": (lambda a, b: jnp.einsum("bijd,dkbi->ibjk", a, b), (of(5, 2, 3, 4), of(4, 6, 5, 2))),
    "vector_products": (lambda m, v, w: (m @ v) * w + v @ m.T, (of(4, 8), of(8), of(4))),
    "dot": (lambda v, w: jnp.dot(v, w) * 2, (of(8), of(8))),
    "convolution": (lambda x, w: nn.relu(convolution(x, w)), (of(1, 8, 8, 3), of(3, 3, 3, 4))),
    "strided_convolution": (lambda x, w: convolution(x, w, window_strides=(2, 2), rhs_dilation=(2, 2)), (of(1, 9, 9, 3), of(3, 3, 3, 4))),
    "depthwise_convolution": (lambda x, w: convolution(x, w, feature_group_count=4), (of(1, 8, 8, 4), of(3, 3, 1, 4))),
    "grouped_convolution": (lambda x, w: convolution(x, w, feature_group_count=2), (of(1, 8, 8, 4), of(3, 3, 2, 8))),
    "transposed_convolution": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (of(1, 4, 4, 3), of(3, 3, 3, 4))),
    "convolution_1d": (lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")), (of(2, 8, 3), of(3, 3, 4))),
    "convolution_3d": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1, 1), "VALID", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")), (of(1, 4, 4, 4, 2), of(2, 2, 2, 2, 3))),
    "residual_block": (residual_block, (of(1, 8, 8, 4), of(3, 3, 4, 4), of(3, 3, 4, 4))),
    "max_pool": (lambda x: pool(x, "max") + 1, (of(1, 8, 8, 4),)),
    "average_pool": (lambda x: nn.relu(pool(x, "average")), (of(1, 8, 8, 4),)),
    "cumulative": (lambda x: jnp.cumsum(x, -1) + jnp.cumprod(x, 0), (of(4, 8),)),
    "lstm": (lstm, (of(5, 2, 4), of(4, 32), of(8, 32))),
    "scan": (lambda x: lax.scan(lambda c, e: (jnp.sin(c) + e, c * e), x[0], x), (of(5, 4),)),
    "fori_loop": (lambda x: lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) + x * i, x), (of(5),)),
    "while_loop": (newton, (of(4),)),
    "cond": (lambda p, x: lax.cond(p, jnp.sin, lambda y: jnp.exp(y) * 2, x), (of(dtype=BOOL), of(4))),
    "switch": (switch, (of(dtype=I32), of(4))),
    "map": (lambda x: lax.map(lambda e: jnp.tanh(e) * 2, x), (of(4, 8),)),
    "embedding": (lambda t, i: t[i] * 2, (of(10, 16), of(4, dtype=I32))),
    "gather": (lambda x, i: jnp.take(x, i, axis=1) + 1, (of(4, 8), of(3, dtype=I32))),
    "scatter_add": (lambda x, i, u: x.at[i].add(u), (of(10, 4), of(3, dtype=I32), of(3, 4))),
    "scatter_set": (lambda x, i: x.at[i].set(1.0), (of(10,), of(3, dtype=I32))),
    "one_hot": (lambda i: nn.one_hot(i, 8) * 2, (of(4, dtype=I32),)),
    "where": (lambda x, y: jnp.where(x > 0, x, jnp.where(y < 1, y, -x)), (of(4, 8), of(4, 8))),
    "comparisons": (lambda x, i: ((x >= 0) & (i != 3) | ~(x == 1)).astype(I32) * i, (of(4), of(4, dtype=I32))),
    "integers": (lambda i, j: (i // 3 + j % 5) * (i >> 2) - (j << 1) ^ i, (of(4, dtype=I32), of(4, dtype=I32))),
    "unsigned": (lambda i: (i + 3) * i // 2 % 7, (of(4, dtype=jnp.uint32),)),
    "pad_slice": (lambda x: jnp.pad(x, ((1, 2), (0, 3)))[1:, ::2] * 2, (of(4, 8),)),
    "reflect_pad": (lambda x: jnp.pad(x, 2, mode="reflect"), (of(4, 8),)),
    "negative_slice": (lambda x: x[::-1, 1:-1] + 1, (of(4, 8),)),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 8)) * 3, (of(4, 8), of(dtype=I32))),
    "cache_update": (cache_update, (of(2, 8, 4), of(2, 1, 4), of(dtype=I32))),
    "roll": (lambda x: jnp.roll(x, 3, axis=1) * x, (of(4, 8),)),
    "concatenate": (lambda x, y: jnp.exp(jnp.concatenate([x, y * 2], 0)), (of(4, 8), of(2, 8))),
    "stack_split": (lambda x, y: sum(jnp.split(jnp.stack([x, y]), 2)), (of(4, 8), of(4, 8))),
    "tile": (lambda x: jnp.tile(x, (2, 3)) + 1, (of(2, 4),)),
    "sort": (lambda x: jnp.sort(x, -1), (of(4, 8),)),
    "argmax": (lambda x: jnp.argmax(x, -1), (of(4, 8),)),
    "top_k": (lambda x: lax.top_k(x, 2), (of(3, 8),)),
    "reductions": (lambda x: (x.max(0), x.min(1), x.prod(), x.std(0), (x > 0).any(), jnp.median(x)), (of(4, 8),)),
    "gradient": (jax.grad(mlp_loss, (2, 3)), (of(4, 8), of(4, 2), of(8, 16), of(16, 2))),
    "value_and_grad": (jax.value_and_grad(cross_entropy), (of(4, 8), of(4, dtype=I32))),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x**3)), (of(4),)),
    "adam": (adam, (of(4, 8),) * 4),
    "vmap": (jax.vmap(lambda x, w: jnp.tanh(w @ x)), (of(3, 8), of(3, 4, 8))),
    "quantized": (quantized, (of(4, 8), of(8, 16, dtype=I8))),
    "mixture": (mixture, (of(6, 8), of(8, 4), of(4, 8, 8))),
    "sinusoid": (sinusoid, ()),
    "iota": (lambda x: x * jnp.arange(8) + jnp.linspace(0, 1, 8), (of(4, 8),)),
    "bilinear": (bilinear, (of(1, 8, 8, 3),)),
    "random": (lambda k: jax.random.normal(jax.random.wrap_key_data(k), (4, 8)), (of(2, dtype=jnp.uint32),)),
    "dropout": (lambda k, x: jnp.where(jax.random.bernoulli(jax.random.wrap_key_data(k), 0.9, x.shape), x / 0.9, 0), (of(2, dtype=jnp.uint32), of(4, 8))),
    "complex": (complex_rotation, (of(4), of(4))),
    "mandelbrot": (mandelbrot, (of(4), of(4))),
    "special": (lambda x: jax.scipy.special.erf(x) + jnp.expm1(x) + jnp.log1p(x) + jnp.arctan2(x, 2) + jnp.cbrt(x), (of(8),)),
    "inverse_functions": (lambda x: jnp.arcsin(x) + jnp.arccosh(x + 2) + jnp.arctanh(x / 2) + jnp.sinh(x), (of(8),)),
    "rounding": (lambda x: jnp.round(x) + jnp.floor(x) + jnp.ceil(x) + jnp.sign(x) + jnp.trunc(x), (of(8),)),
    "power": (lambda x, y: x**3 + x**y + jnp.exp2(x) + x**0.5, (of(8), of(8))),
    "isfinite": (lambda x: jnp.nan_to_num(x) + jnp.isfinite(x), (of(8),)),
    "clip": (lambda x: jnp.clip(x, -1, 1) + jnp.maximum(x, 0) % 2, (of(8),)),
    "float8": (lambda x: x.astype(jnp.float8_e4m3fn).astype(F32) + 1, (of(8),)),
    "int4": (lambda x: x.astype(jnp.int4).astype(I32) * 2, (of(8, dtype=I32),)),
    "triangular": (lambda x: jnp.tril(x) + jnp.triu(x, 1) * 2, (of(8, 8),)),
    "eye": (lambda x: x + jnp.eye(8) * 2, (of(8, 8),)),
    "outer": (lambda x, y: jnp.outer(x, y) + jnp.add.outer(x, y), (of(4), of(8))),
    "norms": (lambda x: x / jnp.linalg.norm(x, axis=-1, keepdims=True), (of(4, 8),)),
    "cosine": (lambda x, y: (x * y).sum(-1) / jnp.sqrt((x * x).sum(-1) * (y * y).sum(-1)), (of(4, 8), of(4, 8))),
    "distances": (lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), (of(4, 8), of(5, 8))),
    "squeeze_excite": (lambda x, a, b: x * nn.sigmoid(nn.relu(x.mean((1, 2)) @ a) @ b)[:, None, None], (of(2, 8, 8, 4), of(4, 2), of(2, 4))),
    "two_results": (lambda x: (x + 1, (x + 1) * 2), (of(4),)),
    **KINDS,
}  # fmt: skip


def main() -> int:
    """Write the texts; return how many programs were not lowered."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tool = shutil.which("iree-opt", path=str(Path(sys.executable).parent)) or "iree-opt"
    refused = 0
    for name, (function, arguments) in PROGRAMS.items():
        text = jax.jit(function).lower(*arguments).as_text()
        try:
            pretty = _run(tool, text, "--iree-stablehlo-input-transformation-pipeline")
        except subprocess.CalledProcessError as error:
            print(f"{name}: not lowered: {error.stderr.splitlines()[0]}")
            refused += 1
            continue
        (folder / f"{name}.mlir").write_text(pretty)
        (folder / f"{name}.generic.mlir").write_text(_run(tool, pretty, "--mlir-print-op-generic"))
        fused = _run(tool, pretty, "--linalg-fuse-elementwise-ops")
        (folder / f"{name}.fused.mlir").write_text(fused)
    print(f"{len(PROGRAMS) - refused} of {len(PROGRAMS)} programs were lowered")
    return refused


def _run(tool: str, text: str, *options: str) -> str:
    command = [tool, *options, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
