from __future__ import annotations

import numpy as np
import pytest

NAME = "RemoveAddCustomZeroPass"
BODY = '<domain: "ge", opset_import: ["" : 17]> AddCustom (p, q) => (r) { r = Add(p, q) }'


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("operands", ["x, zero", "zero, x"])
@pytest.mark.parametrize("zero", [(), (3,), (2, 3)])
def test_fires_in_both_orders(ascend, operands, zero, opset):
    text = f"g (float[2,3] x) => (float[2,3] y) {{ s = ge.AddCustom({operands}) y = Neg(s) }} {BODY}".replace(
        "17", str(opset)
    )
    model = ascend.model(text, opset=opset, zero=np.zeros(zero, np.float32))
    ascend.assert_rewrites(model, NAME, 1, {"Neg": 1})


def test_fires_where_nothing_is_known_of_the_result(ascend):
    text = "g (float[N,3] x) => (float[N,3] y) { s = ge.AddCustom(x, zero) t = ge.AddCustom(zero, s) y = Neg(t) }"
    result, (record,) = ascend.run(ascend.model(text, zero=np.float32(0)), NAME)
    assert record.replaced == 2
    assert ascend.ops(result) == {"Neg": 1}


def test_a_graph_output_keeps_its_name_and_readers_in_bodies_follow(ascend):
    text = f"""g (bool p, float[2,3] x) => (float[2,3] y, float[2,3] z) {{ n = Abs(x) y = ge.AddCustom(n, zero)
        z = If (p) <then_branch = h () => (float[2,3] u) {{ u = Neg(y) }},
                    else_branch = e () => (float[2,3] v) {{ v = Abs(y) }}> }} {BODY}"""
    ascend.assert_rewrites(
        ascend.model(text, zero=np.float32(0)), NAME, 1, {"Abs": 1, "Identity": 1, "If": 1}
    )


def test_zeros_that_widen_are_refused(ascend):
    text = "g (float[N,3] x) => (float[4,3] y) { s = ge.AddCustom(x, zero) y = Neg(s) }"
    ascend.assert_refuses(ascend.model(text, zero=np.zeros((4, 3), np.float32)), NAME, zeros=1)


def bodied(inputs: str = "p, q", outputs: str = "r", body: str = "", more: str = "") -> str:
    """A call of a model's own AddCustom, with the function."""
    return f"""g (float[2,3] x) => (float[2,3] y) {{ y = ge.AddCustom(x, zero) }}
        <domain: "ge", opset_import: ["" : 17{more}]> AddCustom ({inputs}) => ({outputs}) {{ {body} }}"""


@pytest.mark.parametrize(
    "body",
    [
        "r = Sub(p, q)",
        "t = Add(p, q) r = Neg(t)",
        "r = Add(p, p)",
        "t = Add(p, q) r = Add(t, q)",
        "t = Add(p, q) r = Identity(p)",
        "t = Add(p, q) r = Identity(q)",
        "u = Identity(p) t = Add(p, q) r = Identity(u)",
        "u = Identity(p) r = Add(u, p)",
        "t = Add(p, q) r = Constant<value_float = 1.0>()",
    ],
)
def test_another_operator_of_that_name_is_refused(ascend, body):
    ascend.assert_refuses(ascend.model(bodied(body=body), zero=np.float32(0)), NAME, operator=1)


@pytest.mark.parametrize(
    ("inputs", "outputs", "body"),
    [
        ("p, q", "r, s", "r = Add(p, q) s = Neg(p)"),
        ("p, q, o", "r", "r = Add(p, o)"),
        ("p, q, o", "r", "r = Add(p, q)"),
    ],
)
def test_another_signature_is_refused(ascend, inputs, outputs, body):
    model = ascend.model(bodied(inputs, outputs, body), zero=np.float32(0))
    ascend.assert_refuses(model, NAME, operator=1)


def test_an_add_of_another_domain_is_refused(ascend):
    text = bodied(body="r = q.Add(p, q)", more=', "q" : 1')
    text += ' <domain: "q", opset_import: ["" : 17]> Add (p, q) => (r) { r = Sub(p, q) }'
    model = ascend.model(text, zero=np.float32(0))
    model.opset_import.add(domain="q", version=1)
    ascend.assert_refuses(model, NAME, operator=1)


@pytest.mark.parametrize("attributes", ["", "<broadcast = 1>"])
def test_an_older_add_is_refused(ascend, attributes):
    """Before opset 7 it broadcasts only where its attributes state it."""
    text = bodied(body=f"r = Add{attributes}(p, q)").replace("17", "6")
    ascend.assert_refuses(ascend.model(text, opset=6, zero=np.float32(0)), NAME, operator=1)


@pytest.mark.parametrize(
    "body",
    [
        "r = Add(q, p)",
        "t = Add(p, q) r = Identity(t)",
        "u = Identity(q) v = Identity(u) t = Add(v, p) s = Identity(t) r = Identity(s)",
        "r = Add(p, q) t = Add(p, p)",
    ],
)
def test_the_same_sum_in_other_words_is_taken(ascend, body):
    ascend.assert_rewrites(
        ascend.model(bodied(body=body), zero=np.float32(0)), NAME, 1, {"Identity": 1}
    )


def test_bool_is_refused(ascend):
    text = "g (bool[2] x) => (bool[2] y) { y = ge.AddCustom(x, zero) }"
    ascend.assert_refuses(ascend.model(text, zero=np.zeros((), np.bool_)), NAME, dtype=1)


@pytest.mark.parametrize("text", ["ge.AddCustom(x, one)", "ge.AddOther(x, zero)", "Add(x, zero)"])
def test_others_do_not_match(ascend, text):
    model = ascend.model(
        f"g (float[2,3] x) => (float[2,3] y) {{ y = {text} }}",
        zero=np.float32(0),
        one=np.float32(1),
    )
    ascend.assert_refuses(model, NAME)
