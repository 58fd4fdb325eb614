"""The textual form of a graph."""

from __future__ import annotations

from gehost.testing import graph_of
from gehost_drr import print_graph

HEAD = '<ir_version: 8, opset_import: ["" : 17]> main '


def lines(text: str) -> list[str]:
    return [line.strip() for line in print_graph(graph_of(HEAD + text)).splitlines()]


def test_an_operation_is_a_line_with_its_types() -> None:
    text = (
        "(float[1, 300, 256] x, float[256, 256] w) => (float[1, 300, 256] y) { y = MatMul(x, w) }"
    )
    assert lines(text) == [
        "{",
        '(%0) = "builtin.input" () {name: "x"} : () -> tensor<1x300x256xf32>',
        '(%1) = "builtin.input" () {name: "w"} : () -> tensor<256x256xf32>',
        '(%2) = "MatMul" (%0, %1) {} : (tensor<1x300x256xf32>, tensor<256x256xf32>) -> tensor<1x300x256xf32>',
        '() = "builtin.output" (%2) : (tensor<1x300x256xf32>) ->',
        "}",
    ]


def test_several_results_absent_inputs_and_what_is_not_known() -> None:
    text = """(float16[N, 4] x, float16 most) => (int64[2] i, float16 m) <int64[1] k = {2}> {
    c = Clip(x, , most)
    v, i = TopK<axis = -1>(c, k)
    m = ReduceMax<keepdims = 0>(v)
}"""
    parameter, clip, topk = lines(text)[3:6]
    assert parameter == '(%2) = "builtin.parameter" () {name: "k"} : () -> tensor<1xi64>'
    types = "(tensor<-1x4xf16>, <<NULL TYPE>>, tensor<f16>)"
    assert clip == f'(%3) = "Clip" (%0, <<NULL VALUE>>, %1) {{}} : {types} -> tensor<*x?>'
    assert (
        topk
        == '(%4, %5) = "TopK" (%3, %2) {axis: -1} : (tensor<*x?>, tensor<1xi64>) -> (tensor<*x?>, tensor<2xi64>)'
    )


def test_bodies_stand_below_their_operation() -> None:
    text = """(bool c, float[2] x) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] p) { p = Relu(x) }, else_branch = e () => (float[2] q) { q = Neg(x) }>
}"""
    result = lines(text)
    assert result[3].startswith(
        '(%2) = "If" (%0) {else_branch: region e, then_branch: region t} : (tensor<b>) -> '
    )
    assert [line.partition(" : ")[0] for line in result[4:12]] == [
        "{", '(%3) = "Relu" (%1) {}', '() = "builtin.output" (%3)', "}",
        "{", '(%4) = "Neg" (%1) {}', '() = "builtin.output" (%4)', "}",
    ]  # fmt: skip


def test_a_name_of_several_lines_stays_on_one() -> None:
    graph = graph_of(HEAD + "(float[2] x) => (float[2] y) { y = Relu(x) }")
    graph.inputs[0].name = 'a"\n}'
    assert (
        print_graph(graph).splitlines()[1].strip()
        == '(%0) = "builtin.input" () {name: "a\\"\\n}"} : () -> tensor<2xf32>'
    )


def test_attributes_are_sorted_and_texts_are_quoted() -> None:
    text = '(float[2, 2] x) => (float y) { a = Pad<mode = "edge">(x, p) y = ReduceSum<keepdims = 0>(a) }'
    result = lines(text.replace("{ a", "<int64[4] p = {0, 1, 2, 3}> { a"))
    assert '"Pad" (%0, %1) {mode: "edge"}' in result[3]


def test_attributes_are_readable() -> None:
    text = """(float[2, 3] x) => (int64[3, 2] y) {
    a = LeakyRelu<alpha = 0.2>(x) b = Transpose<perm = [1, 0]>(a) y = Cast<to = 7>(b)
    c = Constant<value_floats = [0.1, 0.5]>() d = Constant<value_ints = [ONES]>() }"""
    result = "\n".join(lines(text.replace("ONES", ", ".join("1" * 40))))
    for shown in ("{alpha: 0.2}", "{perm: [1, 0]}", "{value_floats: [0.1, 0.5]}", "{to: i64}"):
        assert shown in result
    assert f"{{value_ints: [{', '.join('1' * 16)}, …]}}" in result
