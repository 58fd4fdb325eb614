"""Redundant operations, and the published example of rules that feed each other."""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from gehost.testing import assert_equal_numbers
from gehost_drr import DeadCodeEliminationPass, GreedyRewriteConfig, PassManager

from .conftest import PLUGINS, Paddle

PASS = "remove_redundant_ops_pass"

EXAMPLE = """(float[4, 3, 16, 16] x) => (float[4, 16, 3, 16] y) {
    fill = Constant<value = float {1.5}>()
    sizes = Constant<value = int64[4] {4, 3, 16, 16}>()
    filled = Expand(fill, sizes)
    sum = Add(x, filled)
    target = Constant<value = int64[4] {16, 3, 4, 16}>()
    reshaped = Reshape(sum, target)
    wide = Cast<to = 11>(reshaped)
    narrow = Cast<to = 1>(wide)
    reshaped_again = Reshape(narrow, target)
    relu = Relu(reshaped_again)
    transposed = Transpose<perm = [0, 2, 1, 3]>(relu)
    wide_again = Cast<to = 11>(transposed)
    narrow_again = Cast<to = 1>(wide_again)
    y = Transpose<perm = [1, 0, 2, 3]>(narrow_again)
}"""


def ops(model: onnx.ModelProto) -> dict[str, int]:
    return dict(Counter(node.op_type for node in model.graph.node))


BEFORE = {"Constant": 3, "Expand": 1, "Add": 1, "Reshape": 2, "Cast": 4, "Relu": 1, "Transpose": 2}
REMOVED = {"Constant": 2, "ConstantOfShape": 1, "Add": 1, "Reshape": 1, "Relu": 1, "Transpose": 1}


def printed(text: str) -> list[dict[str, int]]:
    """The operations of each graph that was printed."""
    graphs = [re.findall(r'\) = "(\w+)" \(', part) for part in text.split("IRPrinting")[1:]]
    return [dict(Counter(operators)) for operators in graphs]


def manager_of(paddle: Paddle, config: GreedyRewriteConfig | None = None) -> PassManager:
    """The pass of redundant operations, as the host loaded it, and dead-code elimination."""
    spec = Host(HostOptions(vendors=[paddle.root], plugins=False), PLUGINS).passes.get(PASS)
    assert spec is not None
    redundant: Any = spec.factory()
    if config is not None:
        redundant.subject.InitializeConfig = lambda: config
    return PassManager().AddPass(redundant.subject).AddPass(DeadCodeEliminationPass())


PROGRAM = """() => (float[4, 16, 3, 16] y) {
    sizes = Constant<value = int64[4] {4, 3, 16, 16}>()
    filled = Expand(full, sizes)
    other = Constant<value = int64[4] {12, 4, 4, 16}>()
    reshaped = Reshape(filled, other)
    target = Constant<value = int64[4] {16, 3, 4, 16}>()
    reshaped_again = Reshape(reshaped, target)
    relu = Relu(reshaped_again)
    wide = Cast<to = 11>(relu)
    narrow = Cast<to = 1>(wide)
    transposed = Transpose<perm = [0, 2, 1, 3]>(narrow)
    transposed_again = Transpose<perm = [1, 0, 2, 3]>(transposed)
    last = Relu(transposed_again)
    y = Identity(last)
}"""


def test_a_program_of_fourteen_operators_ends_with_eight(paddle: Paddle) -> None:
    """Its constant has equal numbers throughout; matched constants go with their matches."""
    model = paddle.model(PROGRAM.replace("{\n", "{\n    full = Constant<value_float = 1.5>()\n", 1))
    full = model.graph.node[0]
    del full.attribute[:]
    array = onnx.numpy_helper.from_array(np.full((4, 3, 16, 16), 1.5, np.float32))
    full.attribute.append(onnx.helper.make_attribute("value", array))
    result, record = paddle.run(model, PASS)
    assert (len(model.graph.node), len(result.graph.node)) == (14, 8)
    assert (record.replaced, record.message) == (4, "")
    assert_equal_numbers(model, result)


@pytest.mark.parametrize(
    ("one", "target", "shape"),
    [
        ("float[2, 4] one = {1, 1, 1, 1, 1, 1, 1, 2}", "int64[2] s = {2, 4}", "2, 4"),
        ("float[2] one = {0.0, -0.0}", "int64[1] s = {2}", "2"),
        ("float[2, 4] one = {1, 1, 1, 1, 1, 1, 1, 1}", "int64[2] s = {1, 4}", "2, 4"),
    ],
)
def test_constants_that_do_not_fill_the_target_stay(
    paddle: Paddle, one: str, target: str, shape: str
) -> None:
    text = f"() => (float[{shape}] y) <{one}, {target}> {{ y = Expand(one, s) }}"
    paddle.refuses(paddle.model(text), PASS, "target" if "{1, 4}" in target else "value")


def test_fourteen_operations_become_seven(paddle: Paddle) -> None:
    model, stream = paddle.model(EXAMPLE), io.StringIO()
    manager = manager_of(paddle)
    manager.EnableIRPrinting(before=lambda name: name == PASS, stream=stream)
    result = manager.Run(model)
    assert [sum(counts.values()) for counts in (BEFORE, REMOVED)] == [14, 7]
    assert printed(stream.getvalue()) == [BEFORE, REMOVED, REMOVED]
    assert (ops(model), ops(result.model)) == (BEFORE, REMOVED)
    removed, swept = result.passes
    assert (removed.converged, removed.count, swept.count) == (True, 5, 0)
    assert {name: count for name, count in removed.rewrites.items() if count} == {
        "remove_redundant_cast": 2,
        "remove_redundant_reshape": 1,
        "remove_redundant_transpose": 1,
        "fold_expand_of_constant": 1,
    }
    assert ", converged" in result.Statistics().splitlines()[0]
    (transpose,) = (node for node in result.model.graph.node if node.op_type == "Transpose")
    assert list(transpose.attribute[0].ints) == [2, 0, 1, 3]
    assert_equal_numbers(model, result.model)


def test_the_same_by_the_host(paddle: Paddle) -> None:
    result, record = paddle.run(paddle.model(EXAMPLE), PASS)
    assert (record.replaced, record.message, ops(result)) == (5, "", REMOVED)


def test_a_single_round_does_not_tell_that_nothing_is_left(paddle: Paddle) -> None:
    """Whether rules feed each other shows in a round that changes nothing."""
    result = manager_of(paddle, GreedyRewriteConfig(max_iterations=1)).Run(paddle.model(EXAMPLE))
    assert (result.passes[0].converged, result.passes[0].reason) == (
        False,
        "not converged after 1 iterations",
    )


# -- Transpose ------------------------------------------------------------------------------------------------------


def transposes(first: str, second: str, shape: str = "2, 3, 4", rank: int = 3) -> str:
    sizes = ", ".join("?" * rank)
    return f"(float[{shape}] x) => (float[{sizes}] y) {{ t = Transpose{first}(x) z = Transpose{second}(t) y = Neg(z) }}"


@pytest.mark.parametrize(
    ("first", "second", "perm"),
    [
        ("<perm = [1, 2, 0]>", "<perm = [1, 0, 2]>", [2, 1, 0]),
        ("<perm = [1, 2, 0]>", "", [0, 2, 1]),
        ("", "<perm = [1, 2, 0]>", [1, 0, 2]),
        ("<perm = [1, 2, 0]>", "<perm = [2, 0, 1]>", None),
        ("", "", None),
    ],
)
def test_transposes_are_composed(
    paddle: Paddle, first: str, second: str, perm: list[int] | None
) -> None:
    model = paddle.model(transposes(first, second))
    expected = {"Neg": 1} if perm is None else {"Transpose": 1, "Neg": 1}
    result = paddle.fuses(model, PASS, expected, 1 + (perm is None))
    if perm is not None:
        assert list(result.graph.node[0].attribute[0].ints) == perm


def test_a_first_transpose_that_is_read_elsewhere_stays(paddle: Paddle) -> None:
    text = "(float[2, 3] x) => (float[2, 3] y, float[3, 2] t) { t = Transpose<perm = [1, 0]>(x) y = Transpose<perm = [1, 0]>(t) }"
    paddle.refuses(paddle.model(text), PASS, "perm")


def test_an_absent_perm_says_nothing_of_an_unknown_rank(paddle: Paddle) -> None:
    text = "(float[2] x) => (float[?, ?] y) { u = acme.Unknown(x) t = Transpose(u) z = Transpose(t) y = Neg(z) }"
    paddle.refuses(paddle.model(text), PASS, "rank", "perm")


# -- Reshape --------------------------------------------------------------------------------------------------------


def reshapes(second: str, shape: str = "2, 3, 4", attributes: str = "") -> str:
    size = len(second.split(","))
    return f"""(float[{shape}] x) => (float[{", ".join("?" * size)}] y)
        <int64[2] s1 = {{-1, 4}}, int64[{size}] s2 = {{{second}}}>
        {{ t = Reshape(x, s1) z = Reshape{attributes}(t, s2) y = Neg(z) }}"""


@pytest.mark.parametrize(
    ("second", "shape", "attributes"),
    [
        ("4, 6", "2, 3, 4", ""),
        ("-1, 8", "2, 3, 4", ""),
        ("2, -1, 2", "N, 3, 4", ""),
        ("4, 6", "2, 3, 4", "<allowzero = 1>"),
    ],
)
def test_only_the_second_target_counts(
    paddle: Paddle, second: str, shape: str, attributes: str
) -> None:
    result = paddle.fuses(
        paddle.model(reshapes(second, shape, attributes)), PASS, {"Reshape": 1, "Neg": 1}
    )
    assert bool(result.graph.node[0].attribute) == bool(attributes)


def test_a_target_that_copies_a_size_of_what_would_go_is_refused(paddle: Paddle) -> None:
    """[2, 3, 4] → [6, 4] → [0, -1] is [6, 4], and without the first it would be [2, 12]."""
    paddle.refuses(paddle.model(reshapes("0, 2, -1", "2, 3, N")), PASS, "target", "shape")


def test_a_target_that_is_no_constant_is_refused(paddle: Paddle) -> None:
    text = """(float[2, 3, 4] x, int64[2] s2) => (float[?, ?] y) <int64[2] s1 = {6, 4}>
        { t = Reshape(x, s1) z = Reshape(t, s2) y = Neg(z) }"""
    paddle.refuses(paddle.model(text), PASS, "target", "shape")


def test_a_reshape_to_its_own_shape_goes(paddle: Paddle) -> None:
    text = (
        "(float[N, 4] x) => (float[N, 4] y) <int64[2] s = {0, 4}> { z = Reshape(x, s) y = Neg(z) }"
    )
    paddle.fuses(paddle.model(text), PASS, {"Neg": 1})


def test_two_unknown_sizes_are_not_equal(paddle: Paddle) -> None:
    text = (
        "(float[?, ?] x) => (float[?, ?] y) <int64[2] s = {-1, 4}> { z = Reshape(x, s) y = Neg(z) }"
    )
    paddle.refuses(paddle.model(text), PASS, "shape")


# -- Cast -----------------------------------------------------------------------------------------------------------


def casts(start: str, *to: int, end: str) -> str:
    steps = " ".join(
        f"t{i} = Cast<to = {dtype}>({f't{i - 1}' if i else 'x'})" for i, dtype in enumerate(to)
    )
    return f"({start}[2, 3] x) => ({end}[2, 3] y) {{ {steps} y = Identity(t{len(to) - 1}) }}"


@pytest.mark.parametrize(
    ("text", "rest", "count"),
    [
        (casts("float", 11, 1, end="float"), 0, 1),
        (casts("float16", 1, 11, end="double"), 1, 1),
        (casts("float", 1, end="float"), 0, 1),
        (casts("float16", 1, 11, 10, end="float16"), 0, 3),
        (casts("int32", 7, 6, end="int32"), 0, 1),
    ],
)
def test_casts_that_lose_nothing_are_merged_or_go(
    paddle: Paddle, text: str, rest: int, count: int
) -> None:
    result = paddle.fuses(
        paddle.model(text), PASS, {"Identity": 1, **({"Cast": rest} if rest else {})}, count
    )
    assert len(result.graph.node) == 1 + rest


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        (casts("float", 10, 1, end="float"), {"lossy", "where"}),
        (casts("float", 7, 1, end="float"), {"lossy", "where"}),
        (casts("int64", 11, 7, end="int64"), {"lossy", "where"}),
        (casts("float", 11, 6, end="int32"), {"dtype", "lossy", "where"}),
    ],
)
def test_casts_that_lose_something_stay(paddle: Paddle, text: str, reasons: set[str]) -> None:
    paddle.refuses(paddle.model(text), PASS, *reasons)


# -- Expand of a constant -------------------------------------------------------------------------------------------


def expand(
    one: str = "float one = {2.5}", target: str = "int64[2] s = {3, 4}", shape: str = "3, 4"
) -> str:
    return f"(float[3, 4] x) => (float[{shape}] y) <{one}, {target}> {{ e = Expand(one, s) f = Cast<to = 1>(e) y = Add(x, f) }}"


@pytest.mark.parametrize(
    "one", ["float one = {2.5}", "float[1] one = {2.5}", "float[1, 1] one = {2.5}"]
)
def test_an_expanded_number_is_a_filled_shape(paddle: Paddle, one: str) -> None:
    paddle.fuses(paddle.model(expand(one)), PASS, {"ConstantOfShape": 1, "Add": 1}, 2)


def test_its_dtype_is_kept(paddle: Paddle) -> None:
    paddle.fuses(
        paddle.model(expand("int32 one = {7}")), PASS, {"ConstantOfShape": 1, "Cast": 1, "Add": 1}
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (expand("float[2, 1] one = {1, 2}", "int64[3] s = {3, 1, 4}", "?, ?, ?"), "value"),
        (expand("float[1, 1, 1] one = {1}", shape="1, 3, 4"), "target"),
        (expand(target="int64[2] s = {-1, 4}", shape="?, ?"), "target"),
        (
            expand()
            .replace("float[3, 4] x)", "float[3, 4] x, int64[2] s)")
            .replace(", int64[2] s = {3, 4}", ""),
            "target",
        ),
        (
            expand()
            .replace("float[3, 4] x)", "float[3, 4] x, float one)")
            .replace("<float one = {2.5}, ", "<"),
            "constant",
        ),
    ],
)
def test_what_is_not_one_number_of_a_known_shape_stays(
    paddle: Paddle, text: str, reason: str
) -> None:
    text = text.replace("f = Cast<to = 1>(e) y = Add(x, f)", "y = Add(x, e)").replace(
        "[2, 1]", "[2, 1, 1]"
    )
    paddle.refuses(paddle.model(text), PASS, reason)


def test_a_target_that_is_no_list_stays(paddle: Paddle) -> None:
    """Expand takes a scalar for a list of one size, ConstantOfShape does not."""
    text = "() => (float[?] y) <float one = {2.5}, int64 s = {3}> { y = Expand(one, s) }"
    paddle.refuses(paddle.model(text), PASS, "target")


def test_an_expanded_text_stays(paddle: Paddle) -> None:
    text = """() => (string[3] y) <string one = {"a"}, int64[1] s = {3}> { y = Expand(one, s) }"""
    paddle.refuses(paddle.model(text), PASS, "dtype")
