from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

NAME = "DecomposeGroupedConvPass"


def site(attributes, x, y, inputs="x, w, b"):
    return f"g (float[{x}] x) => (float[{y}] y) {{ y = Conv <{attributes}> ({inputs}) }}"


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 20])
@pytest.mark.parametrize("ir", [3, 8])
def test_fires(ascend, ir, opset):
    model = ascend.model(
        site("group = 2", "2,4,5,5", "2,6,3,3"), opset=opset, ir=ir, w=(6, 2, 3, 3), b=(6,)
    )
    constants = {"Constant": 3} if ir < 4 and opset >= 13 else {}
    result = ascend.assert_rewrites(
        model, NAME, 1, {"Split": 3, "Conv": 2, "Concat": 1, **constants}
    )
    assert list(result.graph.node[-1].output) == ["y"]


def test_without_bias(ascend):
    for inputs in ("x, w", 'x, w, ""'):
        text = site("group = 3", "1,3,5,5", "1,6,5,5", inputs).replace('""', "")
        text = text.replace("<group", "<pads = [1, 1, 1, 1], group")
        ascend.assert_rewrites(
            ascend.model(text, w=(6, 1, 3, 3)), NAME, 1, {"Split": 2, "Conv": 3, "Concat": 1}
        )


@pytest.mark.parametrize(
    ("attributes", "x", "w", "y"),
    [
        ("group = 2, kernel_shape = [3], strides = [2]", "2,4,7", (4, 2, 3), "2,4,3"),
        ("group = 2, dilations = [2, 1], pads = [2, 1, 0, 1]", "1,4,6,5", (4, 2, 3, 3), "1,4,4,5"),
        (
            'group = 4, auto_pad = "SAME_UPPER", strides = [2, 2]',
            "1,4,5,6",
            (8, 1, 3, 2),
            "1,8,3,3",
        ),
        ('group = 2, auto_pad = "SAME_LOWER"', "1,4,5,6", (2, 2, 2, 4), "1,2,5,6"),
        ("group = 2, pads = [1, 1, 1, 1, 1, 1]", "1,4,3,3,3", (6, 2, 3, 3, 3), "1,6,3,3,3"),
    ],
    ids=["1-D", "dilations and pads", "auto_pad", "auto_pad lower", "3-D"],
)
def test_attributes_are_carried_over(ascend, attributes, x, w, y):
    groups = int(attributes.split("group = ")[1].split(",")[0].strip())
    model = ascend.model(site(attributes, x, y), w=w, b=(w[0],))
    result = ascend.assert_rewrites(model, NAME, 1, {"Split": 3, "Conv": groups, "Concat": 1})
    names = [
        {entry.name for entry in node.attribute}
        for node in result.graph.node
        if node.op_type == "Conv"
    ]
    inputs = {part.split("=")[0].strip() for part in attributes.split(", ") if "=" in part} - {
        "group"
    }
    assert names == [inputs] * groups


def test_weights_that_are_computed(ascend):
    text = "g (float[1,4,5,5] x, float[4,2,3,3] v, float[4] b) => (float[1,4,3,3] y) { w = Neg(v) y = Conv <group = 2> (x, w, b) }"
    ascend.assert_rewrites(
        ascend.model(text), NAME, 1, {"Neg": 1, "Split": 3, "Conv": 2, "Concat": 1}
    )


def test_batch_and_spatial_sizes_may_be_unknown(ascend):
    text = site("group = 2, pads = [1, 1, 1, 1], strides = [2, 2]", "N,4,H,W", "N,4,oH,oW")
    model = ascend.model(text, w=(4, 2, 3, 3), b=(4,))
    sizes = {"N": 1, "H": 4, "W": 7}, {"N": 3, "H": 5, "W": 5}
    ascend.assert_rewrites(model, NAME, 1, {"Split": 3, "Conv": 2, "Concat": 1}, *sizes)


def test_channels_of_the_image_need_not_be_known(ascend):
    text = site("group = 2", "N,C,H,W", "?,4,?,?")
    ascend.assert_rewrites(
        ascend.model(text, w=(4, 2, 3, 3), b=(4,)),
        NAME,
        1,
        {"Split": 3, "Conv": 2, "Concat": 1},
        {"N": 1, "C": 4, "H": 4, "W": 5},
    )


def test_depthwise_up_to_the_limit(ascend):
    model = ascend.model(site("group = 32", "1,32,3,3", "1,32,1,1"), w=(32, 1, 3, 3), b=(32,))
    ascend.assert_rewrites(model, NAME, 1, {"Split": 3, "Conv": 32, "Concat": 1})


def test_clean_up_folds_the_splits_of_constants(ascend):
    model = ascend.model(site("group = 2", "2,4,5,5", "2,6,3,3"), w=(6, 2, 3, 3), b=(6,))
    result, _ = ascend.run(model, NAME, cleanup=True)
    assert ascend.ops(result) == {"Split": 1, "Conv": 2, "Concat": 1}
    ascend.assert_equal(model, result)


@pytest.mark.parametrize(
    ("attributes", "x", "w", "y", "key"),
    [
        ("group = 1", "1,4,5,5", (4, 4, 3, 3), "1,4,3,3", "group"),
        ("strides = [1, 1]", "1,4,5,5", (4, 4, 3, 3), "1,4,3,3", "group"),
        ("group = 33", "1,33,3,3", (33, 1, 3, 3), "1,33,1,1", "groups"),
        ("group = 0", "1,4,5,5", (4, 4, 3, 3), "1,4,3,3", "group"),
        ("group = -2", "1,4,5,5", (4, 4, 3, 3), "1,4,3,3", "group"),
        ("group = 2", "1,4,5,5", (3, 2, 3, 3), "1,3,3,3", "channels"),
        ("group = 2", "1,5,5,5", (4, 2, 3, 3), "1,4,3,3", "channels"),
    ],
    ids=[
        "one group",
        "default group",
        "many groups",
        "no groups",
        "negative groups",
        "indivisible result",
        "other channels",
    ],
)
def test_near_misses_give_their_reason(ascend, attributes, x, w, y, key):
    ascend.assert_refuses(ascend.model(site(attributes, x, y), w=w, b=(w[0],)), NAME, **{key: 1})


def test_weights_of_unknown_sizes_are_refused(ascend):
    text = "g (float[1,4,5,5] x, float[M,2,3,3] w) => (float[1,M,3,3] y) { y = Conv <group = 2> (x, w) }"
    ascend.assert_refuses(ascend.model(text), NAME, channels=1)
    text = "g (float[1,4,5,5] x, float[72] v, int64[r] s) => (float[?,?,?,?] y) { w = Reshape(v, s) y = Conv <group = 2> (x, w) }"
    ascend.assert_refuses(ascend.model(text), NAME, channels=1)


def test_a_result_with_several_readers_and_one_in_a_body(ascend):
    text = """g (bool p, float[1,4,5,5] x) => (float[1,4,3,3] y, float[1,4,3,3] z, float[1,4,3,3] r) {
        y = Conv <group = 2> (x, w, b) z = Neg(y)
        r = If (p) <then_branch = h () => (float[1,4,3,3] u) { u = Conv <group = 2> (x, w, b) },
                    else_branch = e () => (float[1,4,3,3] v) { v = Abs(y) }> }"""
    model = ascend.model(text, w=(4, 2, 3, 3), b=(4,))
    ascend.assert_rewrites(model, NAME, 2, {"Split": 3, "Conv": 2, "Concat": 1, "Neg": 1, "If": 1})


def test_an_ordinary_conv_beside_a_grouped_one(ascend):
    text = "g (float[1,4,5,5] x) => (float[1,2,1,1] y) { c = Conv <group = 2> (x, w, b) y = Conv(c, v) }"
    model = ascend.model(text, w=(4, 2, 3, 3), b=(4,), v=(2, 4, 3, 3))
    result, (record,) = ascend.run(model, NAME)
    assert (record.matched, record.replaced, dict(record.rejected)) == (2, 1, {"group": 1})
    ascend.assert_equal(model, result)


def test_float16(ascend):
    text = site("group = 2", "1,4,5,5", "1,4,3,3").replace("float[", "float16[")
    rng = np.random.default_rng(3)
    weights = {
        "w": rng.standard_normal((4, 2, 3, 3)).astype(np.float16),
        "b": rng.standard_normal(4).astype(np.float16),
    }
    ascend.assert_rewrites(
        ascend.model(text, **weights), NAME, 1, {"Split": 3, "Conv": 2, "Concat": 1}
    )


def test_double_which_onnx_runtime_has_no_kernel_for(ascend):
    rng = np.random.default_rng(3)
    text = site("group = 2", "1,4,5,5", "1,4,3,3").replace("float[", "double[")
    model = ascend.model(text, w=rng.standard_normal((4, 2, 3, 3)), b=rng.standard_normal(4))
    result, (record,) = ascend.run(model, NAME)
    assert record.replaced == 1
    feeds = ascend.feeds(model, {})
    (expected,), (actual,) = (ReferenceEvaluator(item).run(None, feeds) for item in (model, result))
    np.testing.assert_allclose(actual, expected)
