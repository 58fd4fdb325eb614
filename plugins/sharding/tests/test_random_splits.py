"""Random chains of today's operators under random strategies give the numbers of the whole."""

from __future__ import annotations

import numpy as np
import pytest

from gehost_sharding.assignment import Assignment, all_transfers
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.redistribution import Redistributions
from gehost_sharding.rules.table import RuleTable
from gehost_sharding.sharding import Sharding, shardings_of

from .conftest import Array, assert_equal, feeds_of, model_of, split_run, whole_run

BLOCKS: dict[str, str] = {
    "attention": """q = MatMul (x, w16) k = MatMul (x, u16) z =
        Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, x)""",
    "attention_grouped": """k = MatMul (x, w8) v = MatMul (x, u8) z =
        Attention <q_num_heads = 4, kv_num_heads = 2, is_causal = 1> (x, k, v)""",
    "multi_head": """k = MatMul (x, w16) z =
        com.microsoft.MultiHeadAttention <num_heads = 4> (x, k, x, b48)""",
    "packed": "z = com.microsoft.Attention <num_heads = 4> (x, w48, b48)",
    "group_query": """k = MatMul (x, w16) z =
        com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2>
        (x, k, x, , , last, length)""",
    "rotary": "z = RotaryEmbedding <num_heads = 4> (x, cos, sin)",
    "contrib_rotary": "z = com.microsoft.RotaryEmbedding <num_heads = 4> (x, steps, cos8, sin8)",
    "rms": "z = RMSNormalization <axis = -1> (x, b16)",
    "skip": """y = MatMul (x, w16)
        z, , , t = com.microsoft.SkipLayerNormalization (x, y, b16, b16) u = Tanh (t)
        z2 = Add (z, u)""",
    "skip_rms": """y = MatMul (x, w16)
        z, , , t = com.microsoft.SkipSimplifiedLayerNormalization (x, y, b16) z2 = Sub (z, t)""",
    "lookup": "i = ArgMax <axis = -1, keepdims = 0> (x) z = Gather (w16, i)",
    "scatter_elements": """z = ScatterElements <axis = 1, reduction = "add"> (x, rows, update)""",
    "scatter_nd": """z = ScatterND <reduction = "add"> (x, places, update1)""",
    "tensor_scatter": "z = TensorScatter <axis = 1> (x, update, writes)",
    "gather_nd": "z = GatherND <batch_dims = 1> (x, shuffled)",
    "lstm": """y, h = LSTM <hidden_size = 8, direction = "bidirectional"> (x, lw, lr)
        t = Transpose <perm = [0, 2, 1, 3]> (y) z = Reshape (t, shape)""",
    "gru": "y = GRU <hidden_size = 16> (x, gw, gr) z = Squeeze (y, one)",
    "einsum": """z = Einsum <equation = "b...h,hk->b...k"> (x, w16)""",
    "einsum_diagonal": """z = Einsum <equation = "...h,hh->...h"> (x, w16)""",
    "conv": """t = Transpose <perm = [0, 2, 1]> (x) y = Conv <pads = [1, 1]> (t, cw, b16)
        z = Transpose <perm = [0, 2, 1]> (y)""",
    "conv_image": """t = Reshape (x, image) y = Conv <pads = [1, 1, 1, 1]> (t, iw)
        z = Reshape (y, shape)""",
    "max_pool": """t = Transpose <perm = [0, 2, 1]> (x)
        y = MaxPool <kernel_shape = [3], pads = [1, 1]> (t) z = Transpose <perm = [0, 2, 1]> (y)""",
    "global_pool": "y = GlobalAveragePool (x) z = Mul (x, y)",
    "experts": """g = MatMul (x, w4) p = Softmax (g)
        y = Einsum <equation = "gse,gsh->egsh"> (p, x) e = Reshape (y, by_expert)
        u = MatMul (e, ew) r = Relu (u) d = Reshape (r, back)
        z = Einsum <equation = "gse,egsh->gsh"> (p, d)""",
    "mixture": """g = MatMul (x, w4) p = Reshape (g, by_token)
        y = com.microsoft.MoE <k = 2> (x, p, ew, , ew) z = Add (y, x)""",
    "quantized_mixture": """g = MatMul (x, w4) p = Reshape (g, by_token)
        z = com.microsoft.QMoE <k = 2 , expert_weight_bits = 4> (x, p, qw, qs , , qw, qs)""",
}
"""Nodes that compute ``z`` from ``x``, both float[4,8,16].

The Add behind MoE keeps its input: ONNX Runtime to 1.31.1 computes zeros without a later reader.
"""


def weights(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    shapes = {
        "w16": (16, 16), "u16": (16, 16), "w8": (16, 8), "u8": (16, 8), "w48": (16, 48),
        "w4": (16, 4), "b16": (16,), "b48": (48,), "cos": (4, 8, 2), "sin": (4, 8, 2),
        "cos8": (8, 2), "sin8": (8, 2), "lw": (2, 32, 16), "lr": (2, 32, 8), "gw": (1, 48, 16),
        "gr": (1, 48, 16), "cw": (16, 16, 3), "iw": (2, 2, 3, 3), "ew": (4, 16, 16),
        "update": (4, 2, 16), "update1": (3, 8, 16),
    }  # fmt: skip
    values = {
        name: (rng.standard_normal(shape) * 0.4).astype(np.float32)
        for name, shape in shapes.items()
    }
    return values | {
        "rows": rng.integers(-8, 8, (4, 2, 16)),
        "places": np.array([[0], [3], [0]]),
        "writes": rng.integers(0, 6, 4),
        "shuffled": rng.integers(0, 8, (4, 8, 1)),
        "steps": np.tile(np.arange(8), (4, 1)),
        "shape": np.array([4, 8, 16]),
        "image": np.array([4, 2, 8, 8]),
        "by_expert": np.array([4, 32, 16]),
        "back": np.array([4, 4, 8, 16]),
        "by_token": np.array([32, 4]),
        "qw": rng.integers(0, 256, (4, 16, 8)).astype(np.uint8),
        "qs": rng.random((4, 16)).astype(np.float32) * 0.1,
        "one": np.array([1]),
        "last": np.full(4, 7, np.int32),
        "length": np.array(8, np.int32),
    }


def chain(seed: int, names: list[str]) -> ModelGraph:
    """One block after the other; every name of a block gets its number."""
    constants = weights(seed)
    text, x = "", "x"
    for number, name in enumerate(names):
        body = BLOCKS[name].replace("(", "( ").replace(",", " ,").replace(")", " )")
        words = [
            x if word == "x" else f"{word}_{number}" if word in LOCAL else word
            for word in body.split()
        ]
        text += " ".join(words) + "\n"
        x = f"z2_{number}" if "z2" in BLOCKS[name] else f"z_{number}"
    used = {word for word in text.split() if word in constants}
    header = f"(float[4,8,16] x) => (float[4,8,16] {x}) {{ {text} }}"
    return ModelGraph(model_of(header, {n: constants[n] for n in sorted(used)}, opset=24))


LOCAL = frozenset(["q", "k", "v", "y", "z", "z2", "t", "u", "i", "h", "g", "p", "e", "r", "d"])


@pytest.mark.parametrize("seed", range(600))
def test_a_random_split_is_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = [list(BLOCKS)[seed % len(BLOCKS)], *rng.choice(list(BLOCKS), 2)]
    graph = chain(seed, list(map(str, names)))
    mesh = Mesh(("data", "model"), (2, 2))
    strategies = OperatorStrategies(graph, mesh, RuleTable())
    assert not strategies.unknown
    chosen = [int(rng.integers(len(strategies[operator]))) for operator in graph.operators]
    specs: dict[str, Sharding] = {}
    for name in graph.producer:
        legal = shardings_of(mesh, graph.tensors[name].shape)
        specs[name] = legal[int(rng.integers(len(legal)))]
    assignment = Assignment(graph, mesh, strategies, chosen, specs)
    feeds = feeds_of(graph, seed)
    actual, lock_step = split_run(assignment, feeds)
    assert_equal(whole_run(graph, feeds), actual)
    transfers = all_transfers(assignment, Redistributions(mesh))
    assert lock_step.sent == [sum(transfer.bytes for transfer in transfers)] * 4
