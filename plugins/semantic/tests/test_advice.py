"""25 Softmax operators that are no attention: the step that fails, and what to do next."""

from __future__ import annotations

import pytest

from gehost import infer_model
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic.command import lines
from plugins.semantic.tests.test_passes import Kernel

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
        "probabilities: no product reads them, but y", "a router or a classifier",
    ),
    "an input": (
        "p = Softmax <axis = -1> (w) y = MatMul (p, v)", f"{Q}, float[b, 4, s, t] w",
        'leads to them, but "w"', "unless it is attention",
    ),
    "exp": (
        K + "x0 = MatMul (q, kt) x = Exp (x0) " + X + "y = MatMul (p, v)", Q,
        'but "x", made by Exp', "move that operator",
    ),
    "clipped": (
        S + "z = Clip (x, minus, two) " + P, Q, "scores: they are clipped", "remove the upper bound",
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
        S + X + "r = Relu (p) y = MatMul (r, v)", Q, "no product reads them, but r", "nothing to do",
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
        'but "z", made by Expand', "unless it is attention",
    ),
    "rank": (
        "q = Reshape (a, n) x = MatMul (q, kt) " + X + "y = MatMul (p, v)",
        "float[c] a, int64[r] n, float[b, 8, t] kt, float[b, t, 6] v",
        "their rank is not known", "fixed ranks",
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
        S + "p = Softmax <axis = 2> (x) y = MatMul (p, v)", Q, "it is over several axes", "--opset 13",
    ),
}  # fmt: skip


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
