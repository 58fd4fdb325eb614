"""25 Softmax operators that are no attention: the step that fails, and what to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from gehost import Host, HostOptions, infer_model
from gehost.diagnose.explain.run import explain
from gehost.diagnose.sizes import show_sizes
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic.advice import advised
from gehost_semantic.command import lines
from plugins.semantic.tests.test_passes import FILE as FLASH
from plugins.semantic.tests.test_passes import Kernel
from tests.conftest import Vendors, no_default_vendors, vendors  # noqa: F401 - fixtures

CONSTANTS = """int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] last = {-1}, float half = {0.5},
    float minus = {-1}, float two = {2}"""
K = "kt = Transpose <perm = [0, 1, 3, 2]> (k) "
S = K + "x = MatMul (q, kt) "
P = "p = Softmax <axis = -1> (z) y = MatMul (p, v)"
X = "p = Softmax <axis = -1> (x) "
Q = "float[b, 4, s, 8] q, float[b, 4, t, 8] k, float[b, 4, t, 6] v"
SQUARE = "float[b, 4, s, 8] q, float[b, 4, s, 8] k, float[b, 4, s, 6] v"

CASES = {
    # body, inputs, the step that fails, what helps
    "router": (
        "z = MatMul (x, w) p = Softmax (z) y = Neg (p)", "float[s, 8] x, float[8, 4] w",
        'probabilities: no product reads them, but Neg "y"', "a router or a classifier",
    ),
    "an input": (
        "p = Softmax <axis = -1> (w) y = MatMul (p, v)", f"{Q}, float[b, 4, s, t] w",
        'leads to them, but "w"', "unless it is attention",
    ),
    "exp": (
        K + "x0 = MatMul (q, kt) x = Exp (x0) " + X + "y = MatMul (p, v)", Q,
        'Exp "x" changes them after a product', "no kernel has this step",
    ),
    "clipped": (
        S + "z = Clip (x, minus, two) " + P, Q, "scores: they are clipped", "remove the Clip",
    ),
    "capped twice": (
        S + "c = Tanh (x) z0 = Mul (c, two) z = Tanh (z0) " + P, Q, "softcap: ", "cap the scores once",
    ),
    "negative": (S + "z = Mul (x, minus) " + P, Q, "scale: it is not positive", "negate q"),
    "over queries": (
        S + "p = Softmax <axis = 2> (x) y = MatMul (p, v)", SQUARE, "sums other axes", "nothing to do",
    ),
    "over heads": (
        S + "p = Softmax <axis = 1> (x) y = MatMul (p, v)", Q, "sums other axes", "nothing to do",
    ),
    "probabilities changed": (
        S + X + "r = Relu (p) y = MatMul (r, v)", Q, 'no product reads them, but Relu "r"', "nothing to do",
    ),
    "probabilities scaled": (
        S + X + "r = Mul (p, half) y = MatMul (r, v)", Q, "scaled before", "scale v or the result",
    ),
    "fill": (
        S + "z = Where (m, x, f) " + P, f"{Q}, bool[b, 1, 1, t] m, float[b, 1, 1, t] f",
        "mask: what it puts in place of a score is no number", "one number in the model",
    ),
    "a part": (
        S + "z = Slice (x, i0, i1, i1) " + P, "float[b, 4, s, 8] q, float[b, 4, t, 8] k, float[b, 1, t, 6] v",
        'only a part of "x" is read', "cut q or k",
    ),
    "repeated": (
        K + "x0 = MatMul (q, kt) z = Expand (x0, n) " + P,
        "float[b, 1, s, 8] q, float[b, 1, t, 8] k, float[b, 4, t, 6] v, int64[4] n",
        'Expand "z" changes them after a product', "no kernel has this step",
    ),
    "rank": (
        "q = Reshape (a, n) x = MatMul (q, kt) " + X + "y = MatMul (p, v)",
        "float[c] a, int64[r] n, float[b, 8, t] kt, float[b, t, 6] v",
        'the rank of "q", made by Reshape, is not known', "a constant shape",
    ),
    "transposed probabilities": (
        S + X + "r = Transpose <perm = [0, 1, 3, 2]> (p) y = MatMul (r, v)", SQUARE,
        "sums other axes", "nothing to do",
    ),
    "gemm": (
        "x = Gemm <transB = 1> (q, k, g) " + X + "y = MatMul (p, v)",
        "float[s, 8] q, float[t, 8] k, float[t, 6] v, float[s, t] g",
        "product: a Gemm adds to it", "behind a MatMul",
    ),
    "diagonal": (
        'x = Einsum <equation = "bhsd,bhsd->bhs"> (q, k) p = Softmax <axis = -1> (x) y = Neg (p)',
        SQUARE, "no product reads them", "nothing to do",
    ),
    "ellipsis": (
        'x = Einsum <equation = "...sd,...td->...st"> (q, k) ' + X + "y = MatMul (p, v)", Q,
        "the equation of an Einsum", "without an ellipsis",
    ),
    "three operands": (
        'x = Einsum <equation = "bhsd,bhtd,d->bhst"> (q, k, g) ' + X + "y = MatMul (p, v)",
        f"{Q}, float[8] g", 'but "x", made by Einsum', "unless it is attention",
    ),
    "output": (
        S + "y = Softmax <axis = -1> (x)", Q, 'but the output "y"', "a router or a classifier",
    ),
    "vector": (
        "x = MatMul (q, k) " + X + "y = MatMul (p, v)", "float[b, t, 8] q, float[8] k, float[t, 6] v",
        "product: an operand is a vector", "an axis of size 1",
    ),
    "maximum": (
        S + "z = Max (x, m) " + P, f"{Q}, float[b, 1, 1, t] m", "scores: Max changes them", "no kernel",
    ),
    "scaled after a mask": (
        S + "z0 = Add (x, m) z = Mul (z0, h) " + P, f"{Q}, float[b, 1, 1, t] m, float[4, 1, 1] h",
        "scale: a tensor, after a mask", "before the mask",
    ),
    "batches": (
        S + X + "y = MatMul (p, v)", Q.replace("[b, 4, t, 8]", "[c, 4, t, 8]"),
        "is not known to equal", "--assume",
    ),
    "several axes": (
        S + "p = Softmax <axis = 2> (x) y = MatMul (p, v)", Q, "it is over several axes", "nothing to do",
    ),
}  # fmt: skip


STEPS = {
    # what stands between a product and the Softmax, and what helps
    "a sink": (
        "w = Concat <axis = -1> (x, sink) d = Concat <axis = 2> (k, first)",
        'Concat "w" changes them after a product; nothing to do: no kernel takes a sink',
    ),
    "a write": (
        "w = ScatterND (x, places, rows) d = Identity (k)",
        'ScatterND "w" changes them after a product; export with dynamo=True',
    ),
    "a rounding": (
        "w = Round (x) d = Identity (k)", 'Round "w" changes them after a product; nothing to do',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_step_between_product_and_softmax_is_named(name: str) -> None:
    nodes, sentence = STEPS[name]
    model = Model(
        parse(
            f"""<ir_version: 9, opset_import: ["" : 18]> g ({Q}, float[b, 4, s, 1] sink,
            float[b, 4, 1, 8] first, int64[i, 4] places, float[i] rows) => (float[?] y) {{
                {K} x = MatMul (q, kt) {nodes} p = Softmax <axis = -1> (w) y = MatMul (p, d) }}"""
        )
    )
    infer_model(model)
    assert sentence in lines(model)[0]


LENGTHS = {
    # the mask of a layer with keys of n + past and values of n + more; what helps, one after the other
    "of another name": ("m = Identity (l)", ["total == more + n", "more == past"]),
    "of another past": ("m = Concat <axis = 2> (r, l0)", ["more == past"]),
    "not known": ("m = Compress <axis = 2> (l, c)", ["sizes >= 1"]),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_the_length_of_a_mask_may_be_equal(
    name: str,
    vendors: Vendors,  # noqa: F811
    tmp_path: Path,
) -> None:
    """``show --attention`` and ``show --sizes`` name what helps."""
    mask, facts = LENGTHS[name]
    path = tmp_path / "m.onnx"
    onnx.save(
        parse(
            f"""<ir_version: 9, opset_import: ["" : 18]> g (float[1, n, 8] q, float[1, past, 8] u,
            float[1, n, 8] w, float[1, more, 8] o, float[1, 1, total] l, float[1, 1, more] r,
            float[1, 1, n] l0, bool[k] c) => (float[?] y) {{
                k = Concat <axis = 1> (u, w) v = Concat <axis = 1> (o, w) {mask}
                kt = Transpose <perm = [0, 2, 1]> (k) x = MatMul (q, kt) z = Add (x, m)
                p = Softmax <axis = -1> (z) y = MatMul (p, v) }}"""
        ),
        path,
    )
    vendors.write("acme/flash.py", FLASH)
    options = HostOptions(vendors=[vendors.root], plugins=False)
    for count, fact in enumerate(facts):
        options = replace(options, assume=facts[:count])
        model = Model(onnx.load(path))
        model.assume(options.assume)
        infer_model(model)
        assert f'--assume "{fact}"' in lines(model)[0]
        shown = show_sizes(str(path), options)
        assert "not known to equal" in shown
        assert ("unlocked by --assume" in shown) == ("==" in fact)
    _, report = Host(replace(options, assume=facts)).run(path)
    (record,) = (record for record in report.passes if record.name == "NpuFlashAttention")
    assert record.replaced == 1


SIZES = {
    # two sizes, and the equality that their texts show
    ("t", "u + 1"): "t == u + 1",
    ("past + s", "more + s"): "past == more",
    ("2*t", "2*u"): "t == u",
    ("past + s", "min(s + 3, more + s)"): "past == more",
    ("t + 1", "u + s"): "",
    ("t + 1", "u + 2"): "",
}


@pytest.mark.parametrize(("left", "right"), SIZES)
def test_a_compile_tries_no_facts(left: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gehost.sizes.fact_for", None)
    model = Model(
        parse(
            '<ir_version: 9, opset_import: ["" : 18]> g (float[t] x) => (float[t] y) { y = Neg (x) }'
        )
    )
    text = advised(f'scores: a size of "x": {left} is not known to equal {right}', model)
    assert text.partition('--assume "')[2].rstrip('"') == SIZES[left, right]


def test_a_concat_of_probabilities_is_no_sink() -> None:
    model = Model(
        parse(
            f"""<ir_version: 9, opset_import: ["" : 18]> g ({Q}) => (float[?] y) {{
            {S} p = Softmax <axis = -1> (x) y = Concat <axis = 0> (p, p) }}"""
        )
    )
    infer_model(model)
    reason = lines(model)[0]
    assert 'no product reads them, but Concat "y"' in reason
    assert "sink" not in reason


QUANTIZED = {
    # what rounds to integers, after the scores or before, and the step that fails
    "probabilities": (
        S + X + "i = QuantizeLinear (p, step, zero) r = DequantizeLinear (i, step, zero) y = MatMul (r, v)",
        'but QuantizeLinear "i"',
    ),
    "by integers": (
        S + X + """i, d, z = DynamicQuantizeLinear (p) j, e, n = DynamicQuantizeLinear (v)
        m = MatMulInteger (i, j, z, n) c = Cast <to = 1> (m) f = Mul (d, e) y = Mul (c, f)""",
        'but DynamicQuantizeLinear "i"',
    ),
    "scores": (
        S + "i = QuantizeLinear (x, step, zero) z = DequantizeLinear (i, step, zero) " + P,
        'but "z", made by DequantizeLinear',
    ),
    "scores by integers": (
        K + """i, d, z = DynamicQuantizeLinear (q) j, e, n = DynamicQuantizeLinear (kt)
        m = MatMulInteger (i, j, z, n) x = Cast <to = 1> (m) """ + X + "y = MatMul (p, v)",
        "made by MatMulInteger",
    ),
    "by one kernel": (
        K + """i = QuantizeLinear (q, step, zero) j = QuantizeLinear (kt, step, zero)
        m = QLinearMatMul (i, step, zero, j, step, zero, step, zero)
        x = DequantizeLinear (m, step, zero) """ + X + "y = MatMul (p, v)",
        'but "x", made by DequantizeLinear',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("place", ["root", "body"])
def test_a_quantized_attention_is_called_one(name: str, place: str) -> None:
    body, step = QUANTIZED[name]
    if place == "body":
        body = f"""o = If (yes) <then_branch = a () => (float[?] w) {{ {body} w = Neg (y) }},
            else_branch = b () => (float[?] u) {{ u = Neg (q) }}> y = Neg (o)"""
    constants = f"{CONSTANTS}, float step = {{0.01}}, uint8 zero = {{0}}"
    text = f"""<ir_version: 9, opset_import: ["" : 18]> g ({Q}, bool yes) => (float[?] y)
        <{constants}> {{ {body} }}"""
    model = Model(parse(text))
    infer_model(model)
    line, _ = lines(model)
    assert step in line
    assert "a quantized attention" in line.partition("; ")[2]


def test_there_are_25() -> None:
    assert len(CASES) == 25


@pytest.mark.parametrize("name", CASES)
def test_a_sentence_names_the_step_and_what_helps(name: str) -> None:
    body, inputs, step, advice = CASES[name]
    opset = 11 if name == "several axes" else 18
    text = (
        f'<ir_version: 9, opset_import: ["" : {opset}]> g ({inputs}) => (float[?] y) <{CONSTANTS}>'
    )
    proto = parse(f"{text} {{ {body} }}")
    model = Model(proto)
    infer_model(model)
    line, _ = lines(model)
    assert "no attention: " in line
    assert step in line
    assert "; " in line
    assert advice in line.partition("; ")[2]
    _, record = run_pass(parse(f"{text} {{ {body} }}"), Kernel)
    assert record.replaced == 0
    assert sum(record.rejected.values()) == 1


NORM = """p = Mul (x, x) v = ReduceMean <axes = [-1]> (p) e = Add (v, eps) r = Sqrt (e)
    n = Div (x, r)"""
ABSENT = {
    # the lines of a model, and what each base class says of it
    "y = Neg (x)": {
        "AttentionFusionPass": "it looked for a Softmax; the model has none",
        "NormFusionPass": "it looked for a norm of kind layer; the model has none",
        "ActivationFusionPass": "it looked for an activation of kind gelu; the model has none",
        "RotaryFusionPass": "it looked for sums of products that turn pairs of elements; the model has none",
        "LinearFusionPass": "it looked for a MatMul or Gemm; the model has none",
    },
    f"{NORM} g = Sigmoid (n) y = Mul (n, g)": {
        "NormFusionPass": "it looked for a norm of kind layer; the model has 1 of kind rms",
        "ActivationFusionPass": "it looked for an activation of kind gelu; the model has 1 of kind silu",
    },
    f"""{NORM} y = If (yes) <then_branch = a () => (DTYPE[2, 8] w) {{
        p1 = Mul (n, n) v1 = ReduceMean <axes = [-1]> (p1) e1 = Add (v1, eps) r1 = Sqrt (e1)
        w = Div (n, r1) }}, else_branch = b () => (DTYPE[2, 8] u) {{ u = Neg (x) }}>""": {
        "NormFusionPass": "it looked for a norm of kind layer; the model has 2 of kind rms",
    },
}
FILE = """
from gehost import REG_FUSION_PASS, CustomPassStage
from gehost_semantic import {0}

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class Kernel({0}):
    {1}

    def Replacement(self, call):
        raise AssertionError
"""


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize(
    ("body", "base"), [(body, base) for body in ABSENT for base in ABSENT[body]]
)
def test_a_pass_that_finds_nothing_says_what_it_looked_for(
    body: str,
    base: str,
    dtype: str,
    vendors: Vendors,  # noqa: F811
    tmp_path: Path,
) -> None:
    vendors.write("acme/kernel.py", FILE.format(base, 'kind = "layer"' if "Norm" in base else ""))
    lines = body.replace("DTYPE", dtype)
    model = parse(
        f"""<ir_version: 9, opset_import: ["" : 17]> g ({dtype}[2, 8] x, bool yes) => ({dtype}[2, 8] y)
        <float number = {{0.01}}> {{ eps = CastLike (number, x) {lines} }}"""
    )
    onnx.save(model, tmp_path / "m.onnx")
    result = explain(tmp_path / "m.onnx", "Kernel", HostOptions(vendors=[vendors.root]))
    assert result.notes == [ABSENT[body][base]]
    assert not result.findings


OWN_BODY = """
from gehost import ops

@ops.register("npu::FlashAttention")
def flash(q, k, v, mask=None, *, scale: float = 1.0):
    scores = es.MatMul(q, es.Transpose(k, perm=[0, 1, 3, 2])) * scale
    return es.MatMul(es.Softmax(scores if mask is None else scores + mask, axis=-1), v)
"""


@pytest.mark.parametrize("place", ["root", "body"])
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_a_mask_of_another_type_than_q_is_named(
    half: str,
    place: str,
    vendors: Vendors,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Scores in float32 beside q in half; the body of the author's operator has one type."""
    vendors.write("acme/flash.py", FLASH + OWN_BODY)
    lines = """kt = Transpose <perm = [0, 1, 3, 2]> (k) x = MatMul (q, kt) w = Cast <to = 1> (x)
        z = Add (w, m) p = Softmax <axis = -1> (z) h = CastLike (p, q) y = MatMul (h, v)"""
    result = f"{half}[b, 4, s, 6]"
    if place == "body":
        lines = f"""o = If (yes) <then_branch = a () => ({result} y) {{ {lines} }},
            else_branch = b () => ({result} u) {{ u = Identity (e) }}> y = Identity (o)"""
    inputs = f"{Q.replace('float', half)}, float[b, 1, 1, t] m, {result} e, bool yes"
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({result} y)'
    onnx.save(parse(f"{text} {{ {lines} }}"), tmp_path / "m.onnx")
    options = HostOptions(vendors=[vendors.root])
    (finding,) = explain(tmp_path / "m.onnx", "NpuFlashAttention", options).findings
    assert (
        f"the body of npu::FlashAttention does not take q {half}, k {half}, v {half}, mask float32: "
        f"Add of {half} and float32; Cast an input"
    ) in finding.reason
