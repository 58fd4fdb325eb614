from __future__ import annotations

import pytest

NAME = "MoveReluBeforeConcatPass"


@pytest.mark.parametrize("opset", [9, 13, 17])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_fires(ascend, axis, opset):
    if opset < 11 and axis < 0:
        pytest.skip("no negative axes yet")
    shape = "4,3" if axis == 0 else "2,6"
    text = f"g (float[2,3] a, float[2,3] b) => (float[{shape}] y) {{ c = Concat <axis = {axis}> (a, b) y = Relu(c) }}"
    result = ascend.assert_rewrites(
        ascend.model(text, opset=opset), NAME, 1, {"Relu": 2, "Concat": 1}
    )
    assert list(result.graph.node[-1].output) == ["y"]


def test_operands_keep_their_order_and_one_may_stand_twice(ascend):
    text = "g (float[2,3] a, float[2,1] b) => (float[2,9] y) { c = Concat <axis = 1> (a, b, k, a, b) y = Relu(c) }"
    result = ascend.assert_rewrites(ascend.model(text, k=(2, 1)), NAME, 1, {"Relu": 3, "Concat": 1})
    assert len(result.graph.node[-1].input) == 5


def test_a_concat_of_concats_is_followed_to_its_ends_at_once(ascend):
    text = """g (float[2,3] a, float[2,1] b, float[2,2] d) => (float[2,8] y) {
        c = Concat <axis = 1> (a, b) e = Concat <axis = 1> (c, d) f = Concat <axis = 1> (e, d) y = Relu(f) }"""
    ascend.assert_rewrites(ascend.model(text), NAME, 1, {"Relu": 3, "Concat": 3})


def test_a_long_chain_of_concats_is_one_rewrite(ascend):
    chain = " ".join(f"c{k + 1} = Concat <axis = 1> (c{k}, b)" for k in range(150))
    text = f"g (float[2,1] c0, float[2,1] b) => (float[2,151] y) {{ {chain} y = Relu(c150) }}"
    ascend.assert_rewrites(ascend.model(text), NAME, 1, {"Relu": 2, "Concat": 150})


@pytest.mark.parametrize(
    "lines",
    ["e = Concat <axis = 1> (c, c)", "d = Concat <axis = 1> (c, b) e = Concat <axis = 1> (c, d)"],
    ids=["in one Concat", "in two"],
)
def test_an_inner_concat_that_stands_twice_is_followed_at_once(ascend, lines):
    text = f"g (float[2,3] a, float[2,1] b) => (float[2,w] y) {{ c = Concat <axis = 1> (a, b) {lines} y = Relu(e) }}"
    result = ascend.assert_rewrites(
        ascend.model(text), NAME, 1, {"Relu": 2, "Concat": 1 + lines.count("Concat")}
    )
    _, (record,) = ascend.run(result, NAME)
    assert record.replaced == 0


def test_an_inner_concat_with_another_reader_ends_the_tree(ascend):
    text = """g (float[2,3] a, float[2,1] b) => (float[2,8] y, float[2,4] z) {
        c = Concat <axis = 1> (a, b) e = Concat <axis = 1> (c, c) y = Relu(e) z = Neg(c) }"""
    ascend.assert_rewrites(ascend.model(text), NAME, 1, {"Relu": 1, "Concat": 2, "Neg": 1})


def test_symbols_and_unknown_sizes(ascend):
    text = """g (float[N,A] a, float[N,B] b) => (float[N,total] y) { c = Concat <axis = 1> (a, b) y = Relu(c) }"""
    ascend.assert_rewrites(
        ascend.model(text),
        NAME,
        1,
        {"Relu": 2, "Concat": 1},
        {"N": 2, "A": 1, "B": 4},
        {"N": 1, "A": 0, "B": 2},
    )


def test_operands_of_unknown_rank(ascend):
    text = "g (float[6] x, int64[r] s) => (float[?,?] y) { a = Reshape(x, s) c = Concat <axis = 0> (a, a) y = Relu(c) }"
    result, (record,) = ascend.run(ascend.model(text), NAME)
    assert record.replaced == 1
    assert ascend.ops(result) == {"Reshape": 1, "Relu": 1, "Concat": 1}


def test_other_readers_of_the_relu_follow(ascend):
    text = """g (bool p, float[2,3] a) => (float[4,3] y, float[4,3] z, float[4,3] w) {
        c = Concat <axis = 0> (a, b) y = Relu(c) z = Neg(y)
        w = If (p) <then_branch = h () => (float[4,3] u) { u = Neg(y) }, else_branch = e () => (float[4,3] v) { v = Abs(y) }> }"""
    ascend.assert_rewrites(
        ascend.model(text, b=(2, 3)), NAME, 1, {"Relu": 2, "Concat": 1, "Neg": 1, "If": 1}
    )


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] a) => (float[4,3] y, float[4,3] c) { c = Concat <axis = 0> (a, b) y = Relu(c) }",
        "g (float[2,3] a) => (float[4,3] y, float[4,3] z) { c = Concat <axis = 0> (a, b) y = Relu(c) z = Neg(c) }",
        """g (bool p, float[2,3] a) => (float[4,3] y, float[4,3] z) { c = Concat <axis = 0> (a, b) y = Relu(c)
           z = If (p) <then_branch = h () => (float[4,3] u) { u = Neg(c) },
                       else_branch = e () => (float[4,3] v) { v = Abs(y) }> }""",
    ],
    ids=["graph output", "other reader", "captured by a body"],
)
def test_a_concat_that_is_read_by_others_is_refused(ascend, text):
    ascend.assert_refuses(ascend.model(text, b=(2, 3)), NAME, readers=1)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3] a) => (float[4,3] y) { c = Concat <axis = 0> (a, b) y = Sigmoid(c) }",
        "g (float[2,3] a) => (float[4,3] y) { c = Concat <axis = 0> (a, b) n = Neg(c) y = Relu(n) }",
        "g (float[2,3] a) => (float[2,3] y) { y = Relu(a) }",
        """g (bool p, float[2,3] a) => (float[4,3] y) { c = Concat <axis = 0> (a, b)
           y = If (p) <then_branch = h () => (float[4,3] u) { u = Relu(c) },
                       else_branch = e () => (float[4,3] v) { v = Abs(k) }> }""",
    ],
    ids=["no Relu", "something between", "no Concat", "Concat of an outer graph"],
)
def test_what_does_not_match(ascend, text):
    ascend.assert_refuses(
        ascend.model(text, b=(2, 3), **({"k": (4, 3)} if "(k)" in text else {})), NAME
    )


def test_in_a_nested_body(ascend):
    text = """g (bool p, float[2,3] a) => (float[4,3] y) {
        y = If (p) <then_branch = h () => (float[4,3] u) { c = Concat <axis = 0> (a, b) u = Relu(c) },
                    else_branch = e () => (float[4,3] v) { v = Concat <axis = 0> (b, a) }> }"""
    result, (record,) = ascend.run(model := ascend.model(text, b=(2, 3)), NAME)
    assert record.replaced == 1
    ascend.assert_equal(model, result)


@pytest.mark.parametrize("pairs", [5, 150])
def test_a_chain_of_concat_and_relu_is_a_step_each(ascend, pairs):
    chain = " ".join(
        f"c{k} = Concat <axis = 1> (r{k - 1}, b) r{k} = Relu(c{k})" for k in range(1, pairs + 1)
    )
    text = f"g (float[2,1] r0, float[2,1] b) => (float[2,{pairs + 1}] r{pairs}) {{ {chain} }}"
    ascend.assert_rewrites(ascend.model(text), NAME, pairs, {"Relu": pairs + 1, "Concat": pairs})


def test_the_result_of_a_relu_gets_no_second_one(ascend):
    text = """g (float[2,3] a, float[2,3] b) => (float[4,3] y) {
        r = Relu(a) c = Concat <axis = 0> (r, b) y = Relu(c) }"""
    ascend.assert_rewrites(ascend.model(text), NAME, 1, {"Relu": 2, "Concat": 1})


@pytest.mark.parametrize("opset", [1, 3])
def test_concat_1_needs_no_axis(ascend, opset):
    text = "g (float[2,3] a, float[2,1] b) => (float[2,4] y) { c = Concat (a, b) y = Relu(c) }"
    model = ascend.model(text, opset=opset)
    result, (record,) = ascend.run(model, NAME)
    assert (record.replaced, ascend.ops(result)) == (1, {"Relu": 2, "Concat": 1})
