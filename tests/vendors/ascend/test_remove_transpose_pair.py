from __future__ import annotations

import pytest

AROUND = "RemoveTransposePairAroundConvPass"
PAIR = "RemoveTransposePairPass"


def nhwc(
    attributes="pads = [1, 1, 1, 1]",
    x="2,5,6,3",
    y="2,5,6,4",
    inputs="t, w, b",
    first="0, 3, 1, 2",
    second="0, 2, 3, 1",
):
    return f"""g (float[{x}] x) => (float[{y}] y) {{
        t = Transpose <perm = [{first}]> (x) c = Conv <{attributes}> ({inputs}) y = Transpose <perm = [{second}]> (c) }}"""


@pytest.mark.parametrize("opset", [9, 13, 17, 20])
def test_a_conv_takes_over_both(ascend, opset):
    model = ascend.model(nhwc(), opset=opset, w=(4, 3, 3, 3), b=(4,))
    result = ascend.assert_rewrites(model, AROUND, 1, {"ge::ConvNHWC": 1})
    assert [node.op_type for node in result.functions[0].node] == [
        "Transpose",
        "Conv",
        "Transpose",
        "Identity",
    ]


@pytest.mark.parametrize(
    ("attributes", "x", "w", "y"),
    [
        ("strides = [2, 1], pads = [1, 0, 1, 0]", "2,5,6,3", (4, 3, 3, 2), "2,3,5,4"),
        ("dilations = [2, 2], kernel_shape = [2, 2]", "2,5,6,3", (4, 3, 2, 2), "2,3,4,4"),
        ('auto_pad = "SAME_UPPER", strides = [2, 2]', "1,5,6,3", (4, 3, 3, 3), "1,3,3,4"),
        ("group = 3", "1,5,6,3", (6, 1, 3, 3), "1,3,4,6"),
    ],
)
def test_attributes_are_carried_over(ascend, attributes, x, w, y):
    model = ascend.model(nhwc(attributes, x, y, "t, w"), w=w)
    result = ascend.assert_rewrites(model, AROUND, 1, {"ge::ConvNHWC": 1})
    (node,) = result.graph.node
    assert {entry.name for entry in node.attribute} == {
        part.split("=")[0].strip() for part in attributes.split(", ") if "=" in part
    }


def test_each_set_of_attributes_has_its_body(ascend):
    text = """g (float[1,9,9,3] x) => (float[1,2,2,3] y) {
        t = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv <strides = [2, 2]> (t, w) u = Transpose <perm = [0, 2, 3, 1]> (c)
        v = Transpose <perm = [0, 3, 1, 2]> (u) d = Conv(v, w) y = Transpose <perm = [0, 2, 3, 1]> (d) }"""
    model = ascend.model(text, w=(3, 3, 3, 3))
    result, records = ascend.run(model, AROUND, PAIR)
    assert [record.replaced for record in records] == [2, 0]
    assert len(result.functions) == 2
    ascend.assert_equal(model, result)


def test_unknown_sizes_need_no_proof(ascend):
    text = nhwc(x="N,H,W,3", y="N,oH,oW,4", inputs="t, w")
    model = ascend.model(text, w=(4, 3, 3, 3))
    ascend.assert_rewrites(
        model, AROUND, 1, {"ge::ConvNHWC": 1}, {"N": 2, "H": 4, "W": 5}, {"N": 1, "H": 3, "W": 3}
    )


@pytest.mark.parametrize(
    "text",
    [
        nhwc(first="0, 3, 2, 1", y="2,6,5,4"),
        nhwc(second="0, 3, 2, 1", y="2,6,5,4"),
        nhwc(second="0, 3, 1, 2", y="2,6,4,5"),
        nhwc().replace("(float[2,5,6,4] y)", "(float[2,5,6,4] y, float[2,3,5,6] t)"),
        nhwc().replace("(float[2,5,6,4] y)", "(float[2,5,6,4] y, float[2,4,5,6] c)"),
        nhwc()
        .replace("(float[2,5,6,4] y)", "(float[2,5,6,4] y, float[2,4,5,6] z)")
        .replace("y =", "z = Neg(c) y ="),
        """g (bool p, float[2,5,6,3] x) => (float[2,5,6,4] y, float[2,4,5,6] z) {
            t = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv <pads = [1, 1, 1, 1]> (t, w, b)
            y = Transpose <perm = [0, 2, 3, 1]> (c)
            z = If (p) <then_branch = h () => (float[2,4,5,6] u) { u = Neg(c) },
                        else_branch = e () => (float[2,4,5,6] v) { v = Abs(c) }> }""",
        nhwc().replace("c = Conv", "n = Neg(t) c = Conv").replace("(t, w, b)", "(n, w, b)"),
    ],
    ids=[
        "first perm",
        "second perm",
        "same perm",
        "image is output",
        "result is output",
        "other reader",
        "captured",
        "between",
    ],
)
def test_what_a_conv_cannot_take_over(ascend, text):
    ascend.assert_refuses(ascend.model(text, w=(4, 3, 3, 3), b=(4,)), AROUND)


def test_one_axis_is_not_this_layout(ascend):
    text = nhwc("pads = [1, 1]", "2,5,3", "2,5,4", "t, w", "0, 2, 1", "0, 2, 1")
    ascend.assert_refuses(ascend.model(text, w=(4, 3, 3)), AROUND)


def test_a_transposed_result_with_several_readers(ascend):
    text = """g (bool p, float[2,5,6,3] x) => (float[2,5,6,4] y, float[2,5,6,4] z) {
        t = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv <pads = [1, 1, 1, 1]> (t, w) y = Transpose <perm = [0, 2, 3, 1]> (c)
        z = If (p) <then_branch = h () => (float[2,5,6,4] u) { u = Neg(y) },
                    else_branch = e () => (float[2,5,6,4] v) { v = Abs(y) }> }"""
    ascend.assert_rewrites(
        ascend.model(text, w=(4, 3, 3, 3)), AROUND, 1, {"ge::ConvNHWC": 1, "If": 1}
    )


# -- two Transposes alone -----------------------------------------------------------------------------------------------


def pair(first, second, x="2,3,4", y="2,3,4"):
    return f"g (float[{x}] x) => (float[{y}] y) {{ n = Neg(x) t = Transpose {first} (n) u = Transpose {second} (t) y = Abs(u) }}"


@pytest.mark.parametrize("opset", [9, 13, 17])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("<perm = [1, 2, 0]>", "<perm = [2, 0, 1]>"),
        ("<perm = [0, 2, 1]>", "<perm = [0, 2, 1]>"),
        ("<perm = [2, 1, 0]>", ""),
        ("", "<perm = [2, 1, 0]>"),
        ("", ""),
    ],
)
def test_a_pair_that_cancels_goes(ascend, first, second, opset):
    ascend.assert_rewrites(
        ascend.model(pair(first, second), opset=opset), PAIR, 1, {"Neg": 1, "Abs": 1}
    )


@pytest.mark.parametrize(
    ("first", "second", "y"),
    [
        ("<perm = [1, 2, 0]>", "<perm = [1, 2, 0]>", "4,2,3"),
        ("<perm = [0, 2, 1]>", "", "3,4,2"),
        ("", "<perm = [0, 2, 1]>", "4,2,3"),
    ],
)
def test_a_pair_that_does_not_cancel_stays(ascend, first, second, y):
    ascend.assert_refuses(ascend.model(pair(first, second, y=y)), PAIR, perm=1)


@pytest.mark.parametrize(
    ("first", "second"), [("<perm: ints = []>", ""), ("", "<perm: ints = []>")]
)
def test_a_scalar_has_no_axes_to_permute(ascend, first, second):
    text = f"g (float x) => (float y) {{ t = Transpose {first} (x) u = Transpose {second} (t) y = Neg(u) }}"
    ascend.assert_rewrites(ascend.model(text), PAIR, 1, {"Neg": 1})


def test_sizes_and_ranks_that_nobody_knows(ascend):
    model = ascend.model(pair("<perm = [1, 2, 0]>", "<perm = [2, 0, 1]>", "A,?,C", "A,?,C"))
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "B"
    ascend.assert_rewrites(model, PAIR, 1, {"Neg": 1, "Abs": 1}, {"A": 2, "B": 3, "C": 4})
    text = "g (float[6] a, int64[r] s) => (float[?,?] y) { x = Reshape(a, s) t = Transpose(x) u = Transpose(t) y = Abs(u) }"
    result, (record,) = ascend.run(ascend.model(text), PAIR)
    assert record.replaced == 1
    assert ascend.ops(result) == {"Reshape": 1, "Abs": 1}


def test_three_in_a_row_leave_one_and_an_output_keeps_its_name(ascend):
    text = """g (float[2,3,4] x) => (float[3,4,2] y) {
        t = Transpose <perm = [1, 2, 0]> (x) u = Transpose <perm = [2, 0, 1]> (t) y = Transpose <perm = [1, 2, 0]> (u) }"""
    ascend.assert_rewrites(ascend.model(text), PAIR, 1, {"Transpose": 1})
    text = "g (float[2,3] x) => (float[2,3] y) { t = Transpose(x) y = Transpose(t) }"
    ascend.assert_rewrites(ascend.model(text), PAIR, 1, {"Identity": 1})


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] x) => (float[2,3] y, float[3,2] t) { t = Transpose(x) y = Transpose(t) }",
        "g (float[2,3] x) => (float[2,3] y, float[3,2] z) { t = Transpose(x) y = Transpose(t) z = Neg(t) }",
        """g (bool p, float[2,3] x) => (float[2,3] y, float[3,2] z) { t = Transpose(x) y = Transpose(t)
           z = If (p) <then_branch = h () => (float[3,2] u) { u = Neg(t) },
                       else_branch = e () => (float[3,2] v) { v = Abs(t) }> }""",
    ],
    ids=["graph output", "other reader", "captured by a body"],
)
def test_a_first_result_that_is_also_read_elsewhere_stays(ascend, text):
    ascend.assert_refuses(ascend.model(text), PAIR)
