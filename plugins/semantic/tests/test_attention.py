"""Attention of real exports and of small graphs; each description recomputed in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import Refused, infer_model
from gehost.ir.model import Model
from gehost.testing import parse
from gehost_semantic import Attention, AttentionFinder, Views
from gehost_semantic.attention import Add, Role
from tools.semantic.__main__ import facts_of
from tools.semantic.check import differences, random_feed
from tools.semantic.fuzz import trial

REPOSITORY = Path(__file__).parents[3]
MODELS = {
    **{f"tests/models/{name}.onnx": 2 for name in (
        "bert.dyn20", "bert.raw18", "bert.ts13", "bert.ts17", "gpt2.dyn20", "gpt2.ts13", "gpt2.ts17",
        "llama.ts17", "vit.dyn20", "vit.ts13", "vit.ts17",
    )},
    "plugins/semantic/tests/models/gemma3_past.dyn.eager.onnx": 2,
    "plugins/semantic/tests/models/torchenc.ts.sdpa.onnx": 2,
    "plugins/semantic/tests/models/vae_attn.ts.eager.onnx": 1,
    "plugins/semantic/tests/models/yolo_psa.ts.onnx": 1,
}  # fmt: skip
RUNS = [
    {"batch": 3, "seq": 9, "past": 5, "height": 32, "width": 64},
    {"batch": 1, "seq": 4, "past": 3},
]


def described(proto: onnx.ModelProto) -> tuple[Views, list[Attention], list[str]]:
    model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(model)
    views = Views(model.graph)
    results, refusals = list[Attention](), list[str]()
    for softmax in model.graph.nodes_of("Softmax"):
        try:
            results.append(AttentionFinder(views).find(softmax))
        except Refused as refusal:
            refusals.append(str(refusal))
    return views, results, refusals


@pytest.mark.parametrize("path", MODELS)
def test_every_layer_is_described_and_right(path: str) -> None:
    proto = onnx.load(REPOSITORY / path)
    views, result, refusals = described(proto)
    assert (len(result), refusals) == (MODELS[path], [])
    for seed, sizes in enumerate(RUNS):
        feed = random_feed(views.graph, {**sizes, **facts_of(views)}, np.random.default_rng(seed))
        assert max(differences(proto, views, result, feed)) < 1e-5


def attention(body: str, inputs: str, opset: int = 18) -> Attention | str:
    """The description of a graph's only Softmax, recomputed; or the refusal."""
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    proto = parse(f"{head}({inputs}) => (float[?] y) {{ {body} }}")
    views, result, refusals = described(proto)
    if refusals:
        return refusals[0]
    feed = random_feed(views.graph, {"s": 5, "t": 7, "b": 3}, np.random.default_rng(0))
    assert max(differences(proto, views, result, feed)) < 1e-5
    return result[0]


QKV = "float[b, 4, s, 8] q, float[b, 4, t, 8] k, float[b, 4, t, 6] v"
PLAIN = """
kt = Transpose <perm = [0, 1, 3, 2]> (k)
scores = MatMul (q, kt)
scale = Constant <value = float {0.25}> ()
scaled = Mul (scores, scale)
"""
REST = "\np = Softmax <axis = -1> (%s)\ny = MatMul (p, v)"


def test_plain_attention() -> None:
    result = attention(PLAIN + REST % "scaled", QKV)
    assert isinstance(result, Attention)
    assert (result.heads, result.head_size, result.value_size, result.scale) == (4, 8, 6, 0.25)
    assert result.layout(result.k) == "b h t d"
    assert result.result_layout() == "b h s v"
    assert result.groups == 1


def test_softcap_mask_and_bias_keep_their_order() -> None:
    body = (
        PLAIN
        + """
cap = Constant <value = float {2.0}> ()
tanh = Tanh (scaled)
capped = Mul (tanh, cap)
biased = Add (capped, bias)
low = Constant <value = float {-3.4028234663852886e38}> ()
masked = Where (mask, biased, low)
"""
    )
    result = attention(body + REST % "masked", f"{QKV}, float[4, s, t] bias, bool[b, 1, 1, t] mask")
    assert isinstance(result, Attention)
    assert result.softcap == 2
    assert result.mask.rest == (
        ("bias", frozenset({Role.HEAD, Role.QUERY, Role.KEY})),
        ("keep", frozenset({Role.BATCH, Role.KEY})),
    )


def test_a_factor_after_a_bias_scales_it() -> None:
    body = (
        PLAIN.replace("Mul (scores", "Add (scores").replace("scale)", "bias)")
        + """
half = Constant <value = float {0.5}> ()
all = Mul (scaled, half)
"""
    )
    result = attention(body + REST % "all", f"{QKV}, float[s, t] bias")
    assert isinstance(result, Attention)
    assert result.scale == 0.5
    assert isinstance(result.after[0], Add)
    assert result.after[0].factor == 0.5


def test_a_causal_mask_is_proven_with_its_past() -> None:
    body = (
        PLAIN
        + """
zero = Constant <value_int = 0> ()
one = Constant <value_int = 1> ()
s = Shape <start = 2, end = 3> (q)
t = Shape <start = 2, end = 3> (k)
first = Sub (t, s)
empty = Constant <value_ints = [0]> ()
start = Squeeze (first, empty)
end = Squeeze (t, empty)
keys = Range (zero, end, one)
queries = Range (start, end, one)
column = Unsqueeze (queries, last)
last = Constant <value_ints = [1]> ()
kept = LessOrEqual (keys, column)
low = Constant <value = float {-3.4028234663852886e38}> ()
masked = Where (kept, scaled, low)
"""
    )
    lines = body.replace("last = Constant <value_ints = [1]> ()\n", "")
    lines = lines.replace("column =", "last = Constant <value_ints = [1]> ()\ncolumn =")
    result = attention(lines + REST % "masked", QKV)
    assert isinstance(result, Attention)
    assert [str(limit) for limit in result.mask.limits] == ["causal (t - s <= -s + t)"]
    assert not result.mask.rest


WRITES = {
    "ScatterND": "k2 = ScatterND (k, places, new)",
    "ScatterElements": "k2 = ScatterElements <axis = 2> (k, wide, new)",
    "Where": "k2 = Where (here, new, k)",
    "TensorScatter": "k2 = TensorScatter <axis = 2> (k, new, at)",
}


@pytest.mark.parametrize("op", WRITES)
def test_static_caches_are_described(op: str) -> None:
    """Their length stays; a kernel gets what is joined."""
    head = '<ir_version: 13, opset_import: ["" : 24]> g '
    inputs = f"""{QKV}, float[b, 4, 1, 8] new, int64[b, 4, 1, 3] places, int64[b, 4, 1, 8] wide,
        bool[b, 4, t, 1] here, int64[b] at"""
    body = WRITES[op] + PLAIN.replace("(k)", "(k2)") + REST % "scaled"
    _, (result,), _ = described(parse(f"{head}({inputs}) => (float[?] y) {{ {body} }}"))
    cache = result.past[0]
    assert cache is not None
    assert (cache.past.name, cache.new.name, cache.is_static) == ("k", "new", True)
    assert 'k: static "k"' in result.summary()


MASKS_OF_POSITIONS = {
    "a window of the last three": ("near = Less (d, three)", ["causal (t - s <= 0)", "window (s - t <= 2)"], ()),
    "any of two": ("n0 = Less (d, three) near = Or (n0, m)", ["causal (t - s <= 0)"], ("pattern",)),
    "an input": ("near = Identity (m)", ["causal (t - s <= 0)"], ("keep",)),
    "always": ("near = GreaterOrEqual (d, low)", ["causal (t - s <= 0)"], ()),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS_OF_POSITIONS)
def test_conditions_on_positions(name: str) -> None:
    near, limits, rest = MASKS_OF_POSITIONS[name]
    body = f"""{PLAIN}
zero = Constant <value_int = 0> ()
one = Constant <value_int = 1> ()
three = Constant <value_int = 3> ()
low = Constant <value_int = -1000000> ()
last = Constant <value_ints = [1]> ()
s0 = Shape <start = 2, end = 3> (q)
end = Squeeze (s0)
keys = Range (zero, end, one)
rows = Unsqueeze (keys, last)
d = Sub (rows, keys)
le = LessOrEqual (keys, rows)
{near}
kept = And (le, near)
fill = Constant <value = float {{-3.4028234663852886e38}}> ()
masked = Where (kept, scaled, fill)
"""
    inputs = QKV.replace(", t,", ", 900," if name == "always" else ", s,")
    if name == "always":
        inputs = inputs.replace(", s,", ", 900,")
    result = attention(
        body + REST % "masked", f"{inputs}, bool[b, 1, 1, {'900' if name == 'always' else 's'}] m"
    )
    assert isinstance(result, Attention)
    assert sorted(map(str, result.mask.limits)) == limits
    assert tuple(kind for kind, _ in result.mask.rest) == rest


def test_one_head_of_keys_for_all_heads() -> None:
    inputs = QKV.replace("float[b, 4, t", "float[b, 1, t")
    result = attention(PLAIN + REST % "scaled", inputs)
    assert isinstance(result, Attention)
    assert (result.heads, result.key_heads, result.groups) == (4, 1, 4)


def test_a_bias_that_is_a_product_is_no_product_of_q_and_k() -> None:
    lines = "masked = Add (scaled, left)\nbias = MatMul (left, right)\nsum = Add (masked, bias)"
    body = PLAIN + lines + REST % "sum"
    inputs = f"{QKV}, float[1, 4, s, t] left, float[1, 4, t, t] right"
    result = attention(body, inputs)
    assert isinstance(result, Attention)
    assert result.q.value.name == "q"
    assert len(result.after) == 2


NEGATIVE = "minus = Constant <value = float {-2.0}> ()\n"


@pytest.mark.parametrize(
    ("body", "scale", "softcap"),
    [
        ("low = Div (scaled, minus)\ntanh = Tanh (low)\nall = Mul (tanh, minus)", 0.125, 2),
        ("low = Neg (scaled)\ntanh = Tanh (low)\nall = Neg (tanh)", 0.25, 1),
        ("all = Mul (scaled, minus)", 0.5, None),
    ],
)
def test_two_negative_factors_are_positive(body: str, scale: float, softcap: float | None) -> None:
    plain = PLAIN if softcap else PLAIN.replace("0.25", "-0.25")
    result = attention(f"{plain}{NEGATIVE}{body}{REST % 'all'}", QKV)
    assert isinstance(result, Attention), result
    assert (result.scale, result.softcap) == (scale, softcap)


def test_q_and_k_of_one_tensor_are_no_diagonal() -> None:
    body = PLAIN.replace("(k)", "(q)") + REST % "scaled"
    result = attention(body, "float[b, 4, s, 8] q, float[b, 4, s, 6] v")
    assert isinstance(result, Attention)
    assert len(result.atoms(Role.QUERY)) == len(result.atoms(Role.KEY)) == 1


REFUSALS = {
    "softmax over queries": (
        PLAIN + REST.replace("-1", "2") % "scaled",
        QKV,
        'values: MatMul "y" sums other axes than the Softmax is over',
    ),
    "no product below": (
        PLAIN + "p = Softmax <axis = -1> (scaled)\ny = Neg (p)",
        QKV,
        "probabilities: no product reads them",
    ),
    "no product above": ("p = Softmax (q)\ny = MatMul (p, v)", QKV.replace("t, 6]", "8, 6]"), ""),
    "negative scale": (
        PLAIN.replace("0.25", "-0.25") + REST % "scaled", QKV, "scale: it is not positive"
    ),
    "a negative softcap": (
        f"{PLAIN}{NEGATIVE}tanh = Tanh (scaled)\nall = Mul (tanh, minus){REST % 'all'}",
        QKV,
        "scale: it is not positive",
    ),
    "a negative number times a masked score": (
        PLAIN.replace("0.25", "-0.25")
        + f"{NEGATIVE}m = Max (scaled, minus)\nall = Mul (m, minus){REST % 'all'}",
        QKV,
        "scale: it is not positive",
    ),
    "scaled by a tensor after a mask": (
        PLAIN + "m = Add (scaled, mask)\nall = Mul (m, mask)" + REST % "all",
        f"{QKV}, float[s, t] mask",
        "scale: a tensor, after a mask or a softcap",
    ),
    "sigmoid": (PLAIN + "all = Sigmoid (scaled)" + REST % "all", QKV, 'scores: Sigmoid "all" changes them after a product'),
    "a mask that widens": (
        PLAIN + "all = Add (scaled, mask)" + REST % "all",
        f"{QKV.replace('[b,', '[1,')}, float[3, 4, s, t] mask",
        'scores: "scaled" widens them',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_near_miss_is_refused_with_the_steps_sentence(name: str) -> None:
    body, inputs, reason = REFUSALS[name]
    result = attention(body, inputs)
    assert isinstance(result, str), result.summary()
    assert reason in result


@pytest.mark.parametrize("seed", [*range(24), 4600825])  # the last: 0 queries become 2
def test_random_attentions_are_described_and_replaced_right(seed: int) -> None:
    outcome, reason = trial(seed)
    assert not outcome.startswith(("wrong", "missed")), reason
