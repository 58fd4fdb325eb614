"""Sizes and values to measure with."""

from __future__ import annotations

import numpy as np
import pytest

from gehost import UsageError
from gehost.testing import parse
from gehost.tune.inputs import describe_sizes, realistic_inputs
from gehost.verify import Runner

pytest.importorskip("onnxruntime")


def sizes_of(text: str, **measure: tuple[int, ...]) -> list[str]:
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> m {text}')
    actual = realistic_inputs(Runner(model), measure)
    return [describe_sizes(feeds, 9) for feeds in actual.feeds]


def test_names_have_roles() -> None:
    assert sizes_of("(float[batch, seq] x) => (float[batch, seq] y) { y = Relu(x) }") == [
        "x 1 × 16", "x 1 × 128",
    ]  # fmt: skip
    assert sizes_of("(float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }") == [
        "x 1 × 3 × 224 × 224"
    ]
    assert sizes_of("(float[batch, samples] x) => (float[batch, samples] y) { y = Relu(x) }") == [
        "x 1 × 16000"
    ]


def test_opaque_names_take_the_role_of_their_input() -> None:
    ids = "(int64[s0, s1] input_ids) => (int64[s0, s1] y) { y = Abs(input_ids) }"
    assert sizes_of(ids) == ["input_ids 1 × 16", "input_ids 1 × 128"]
    assert sizes_of("(float[?, ?] x) => (float[?, ?] y) { y = Relu(x) }") == ["x 1 × 64"]


def test_channels_are_those_of_the_first_conv() -> None:
    conv = """(float[n, c, h, w] x) => (float[n, k, i, j] y)
    <float[2, 5, 1, 1] f = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}> { y = Conv(x, f) }"""
    assert sizes_of(conv) == ["x 1 × 5 × 224 × 224"]


def test_with_a_past_one_new_token_is_fed() -> None:
    text = """(float[batch, past, 2] cache, float[batch, seq, 2] x,
               float[batch, past_plus_seq, 2] m) => (float[batch, t, 2] y)
    { a = Concat<axis = 1>(cache, x)
      y = Add(a, m) }"""
    assert sizes_of(text) == [
        "cache 1 × 16 × 2, x 1 × 1 × 2, m 1 × 17 × 2",
        "cache 1 × 512 × 2, x 1 × 1 × 2, m 1 × 513 × 2",
    ]


ROWS = ", ".join(["1"] * 40)
TABLE = f"""(int64[batch, seq] input_ids) => (float[batch, seq] y) {{
    s = Shape<start = 1>(input_ids)
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    n = Squeeze(s)
    r = Range(zero, n, one)
    table = Constant<value = float[40] {{{ROWS}}}>()
    p = Gather(table, r)
    f = Cast<to = 1>(input_ids)
    y = Add(f, p)
}}"""


def test_a_size_that_does_not_run_is_replaced_and_noted() -> None:
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> m {TABLE}')
    actual = realistic_inputs(Runner(model))
    assert describe_sizes(actual.largest) == "input_ids 1 × 32"
    assert actual.notes == ("seq 32 in place of 128, at which it does not run",)


def test_measure_sets_sizes_and_refuses_what_is_not_there() -> None:
    text = "(float[batch, seq] x) => (float[batch, seq] y) { y = Relu(x) }"
    assert sizes_of(text, seq=(256, 8), batch=(4,)) == ["x 4 × 8", "x 4 × 256"]
    with pytest.raises(UsageError, match="size of sqe: the model has no such open size; .*seq"):
        sizes_of(text, sqe=(3,))
    with pytest.raises(UsageError, match="does not run at the sizes to measure with"):
        sizes_of(TABLE, seq=(64,))


def test_masks_are_ones_with_padding_and_positions_count_up() -> None:
    text = """(int64[b, seq] attention_mask, int64[b, seq] position_ids) => (int64[b, seq] y)
    { y = Add(attention_mask, position_ids) }"""
    model = parse(f'<ir_version: 8, opset_import: ["" : 17]> m {text}')
    feeds = realistic_inputs(Runner(model)).largest
    assert feeds["attention_mask"].sum() == 112
    assert feeds["attention_mask"][0, -1] == 0
    np.testing.assert_array_equal(feeds["position_ids"][0], np.arange(128))


def test_a_long_list_of_inputs_is_cut() -> None:
    feeds = {name: np.zeros((1, 2)) for name in "abc"}
    assert describe_sizes(feeds) == "a 1 × 2, b 1 × 2 and 1 more"
    assert describe_sizes({"s": np.zeros(())}) == "s scalar"
    assert describe_sizes({}) == "no inputs"
