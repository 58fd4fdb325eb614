"""What a rewrite leaves of outputs and of matched nodes that others still need: forwarding, taking over, bodies."""

from __future__ import annotations

import numpy as np
import pytest

from gehost import es
from gehost.es.graph import EsConst, EsTensor
from gehost.location import SourceLocation


def matmul_add(a, b, c):
    return es.Add(es.MatMul(a, b), c)


def gemm(a, b, c):
    return es.Gemm(a, b, c, alpha=1.0, beta=1.0)


# -- outputs --------------------------------------------------------------------------------------------------------


def test_forwarding_redirects_the_readers(rewriting):
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z) { a = Neg(x) b = Neg(a) y = Exp(b)
        z = If(c) <then_branch = t () => (float[2] p) { p = Abs(b) }, else_branch = e () => (float[2] q) { q = Tanh(x) }> }"""
    work = rewriting(text).replace(lambda x: es.Neg(es.Neg(x)), lambda x: x)
    assert (work.made, work.ops) == ([[]], ["Exp", "If"])
    work.assert_equal()


@pytest.mark.parametrize(
    ("outputs", "more"),
    [
        ("float[2] b", ""),
        ("float[2] b, float[2] z", "z = Exp(b)"),
        ("float[2] b, float[2] b", ""),
    ],
)
def test_forwarding_to_a_graph_output_leaves_an_identity(rewriting, outputs, more):
    work = rewriting(f"g (float[2] x) => ({outputs}) {{ a = Neg(x) b = Neg(a) {more} }}")
    work.replace(lambda x: es.Neg(es.Neg(x)), lambda x: x)
    assert work.made == [["P_Identity_0"]]
    assert work.ops[0] == "Identity"
    if outputs != "float[2] b, float[2] b":
        work.assert_equal()
    again = work.replace(es.Identity, lambda x: x, name="Q")
    assert again.refused == ["no change: the replacement equals the match"]


def test_forwarding_to_the_output_of_a_body(rewriting):
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { a = Neg(x) p = Neg(a) }, else_branch = e () => (float[2] q) { q = Tanh(x) }> }"""
    work = rewriting(text).replace(lambda x: es.Neg(es.Neg(x)), lambda x: x, graph=1)
    assert [[node.op for node in graph.nodes] for graph in work.model.graphs] == [
        ["If"],
        ["Identity"],
        ["Tanh"],
    ]
    work.assert_equal()


def test_an_outer_tensor_that_a_body_hands_on_keeps_its_name(rewriting):
    text = """g (float[2] x, bool c) => (float[2] y) { a = Neg(x) b = Neg(a)
        y = If(c) <then_branch = t () => (float[2] b) { }, else_branch = e () => (float[2] q) { q = Tanh(x) }> }"""
    work = rewriting(text).replace(lambda x: es.Neg(es.Neg(x)), lambda x: x)
    assert work.ops == ["Identity", "If"]
    work.model.flush()
    assert work.model.graph.subgraphs()[0].proto.output[0].name == "b"


def test_one_new_tensor_may_stand_for_two_old_ones(rewriting):
    text = "g (float[2] x) => (float[2] y, float[2] z, float[2] u) { y = Relu(x) b = Relu(x) z = Exp(b) u = Abs(b) }"

    def once(x):
        shared = es.Relu(x)
        return [shared, shared]

    work = rewriting(text).replace(lambda x: [es.Relu(x), es.Relu(x)], once)
    assert work.ops == ["Relu", "Exp", "Abs"]
    work.assert_equal()
    both = rewriting("g (float[2] x) => (float[2] y, float[2] z) { y = Relu(x) z = Relu(x) }")
    both.replace(lambda x: [es.Relu(x), es.Relu(x)], once)
    assert both.ops == ["Relu", "Identity"]
    both.assert_equal()


def test_a_constant_may_stand_for_an_output(rewriting):
    work = rewriting(
        "g (float[2] x) => (float[2] y, float[2] z) { a = Sub(x, x) y = Exp(a) z = Sub(y, y) }"
    )

    def zeros(x):
        return EsTensor(EsConst(x.producer.draft, np.zeros(2, np.float32), SourceLocation("", 0)))

    work.replace(lambda x: es.Sub(x, x), zeros)
    assert work.ops == ["Exp", "Identity"]
    work.assert_equal()


@pytest.mark.parametrize(("ir", "opset"), [(10, 17), (3, 12)])
def test_a_constant_for_a_tensor_that_nobody_reads_is_not_kept(rewriting, ir, opset):
    def zeros(x):
        return EsTensor(EsConst(x.producer.draft, np.zeros(2, np.float32), SourceLocation("", 0)))

    work = rewriting("g (float[2] x) => (float[2] z) { a = Sub(x, x) z = Exp(x) }", opset, ir)
    work.replace(lambda x: es.Sub(x, x), zeros)
    assert (work.ops, len(work.model.flush().graph.initializer)) == (["Exp"], 0)
    work.assert_equal()


def test_several_outputs_and_readers_that_stand_too_early(rewriting):
    text = """g (float[2] x) => (float[2] r, float[2] s, float[2] u) {
        a = Relu(x) r = Exp(a) n = Neg(r) b = Neg(x) s = Abs(b) u = Add(n, s) }"""

    def put(x):
        return [es.Max(x, 0.0), es.Mul(x, -1.0)]

    work = rewriting(text).replace(lambda x: [es.Relu(x), es.Neg(x)], put)
    assert work.ops == ["Max", "Mul", "Exp", "Neg", "Abs", "Add"]
    work.assert_equal()


def test_outputs_may_be_swapped_by_forwarding(rewriting):
    text = "g (float[2] x, float[2] z) => (float[2] a, float[2] y) { a = Neg(x) c = Exp(a) d = Exp(z) b = Neg(d) y = Mul(b, c) }"
    work = rewriting(text)
    work.replace(
        lambda x, z: [es.Neg(x), es.Neg(z)], lambda x, z: [es.Mul(z, -1.0), es.Mul(x, -1.0)], 2
    )
    assert work.made == [["P_Mul_0", "P_Mul_1"]]
    work.model.check()
    assert work.ops == ["Exp", "Mul", "Mul", "Exp", "Mul"]


# -- nodes that stay ------------------------------------------------------------------------------------------------


def test_an_output_is_replaced_and_the_node_stays_for_the_other(rewriting):
    text = "g (float[4] x) => (float[4] y, bool[4] m) { t, m = Dropout(x) y = Neg(t) }"
    work = rewriting(text).replace(es.Dropout, lambda x: es.Add(x, 0.0))
    assert work.ops == ["Dropout", "Add", "Neg"]
    dropout = next(work.model.graph.nodes)
    assert [value.name for value in dropout.outputs] == ["t_replaced_0", "m"]
    assert work.model.graph.values["t"].producer.op == "Add"
    work.assert_equal()
    forwarded = rewriting(text).replace(es.Dropout, lambda x: x)
    assert forwarded.ops == ["Dropout", "Neg"]
    forwarded.assert_equal()


def test_a_node_stays_for_another_node_that_reads_it(rewriting):
    text = "g (float[4] x) => (float[4] y, bool[4] z) { t, m = Dropout(x) y = Neg(t) z = Not(m) }"
    work = rewriting(text).replace(lambda x: es.Neg(es.Dropout(x)), es.Neg)
    assert work.ops == ["Dropout", "Neg", "Not"]
    work.assert_equal()


def test_names_of_several_outputs(rewriting):
    text = "g (float[4] x) => (float[4] y) { y = Abs(x) }"

    def put(x):
        second = es.TopK(es.TopK(x, K=4).Values, K=4)
        return second.Values

    work = rewriting(text).replace(es.Abs, put)
    assert [
        (node.name, *[value.name for value in node.outputs]) for node in work.model.graph.nodes
    ] == [
        ("P_TopK_0", "P_TopK_0", "P_TopK_1"),
        ("P_TopK_2", "y", "P_TopK_3"),
    ]


def test_a_node_that_stays_keeps_what_it_reads(rewriting):
    text = "g (float[4] x) => (float[4] y, bool[4] m) { a = Relu(x) b = Abs(a) t, m = Dropout(b) y = Neg(t) }"

    def find(x):
        return es.Neg(es.Dropout(es.Abs(es.Relu(x))))

    work = rewriting(text).replace(find, lambda x: es.Min(-x, 0.0))
    assert work.ops == ["Relu", "Abs", "Dropout", "Neg", "Min"]
    work.assert_equal()


def test_a_node_that_stays_reads_what_the_old_nodes_make(rewriting):
    text = "g (float[4] x) => (float[4] a, float[4] y, bool[4] m, float[4] z) { a = Relu(x) t, m = Dropout(a) y = Neg(t) z = Exp(a) }"

    def find(x):
        inner = es.Relu(x)
        return [es.Neg(es.Dropout(inner)), inner]

    work = rewriting(text).replace(find, lambda x: [es.Min(-x, 0.0), es.Max(x, 0.0)])
    assert work.ops == ["Relu", "Dropout", "Neg", "Min", "Max", "Exp"]
    relu, dropout = list(work.model.graph.nodes)[:2]
    assert dropout.inputs[0] is relu.outputs[0] is not work.model.graph.values["a"]
    work.assert_equal()
    inner = rewriting(text.replace("float[4] a, ", ""))
    inner.replace(find, lambda x: [es.Min(-x, 0.0), x])
    assert inner.ops == ["Relu", "Dropout", "Neg", "Min", "Exp"]
    assert inner.model.graph.values["m"].producer.inputs == (inner.model.graph.values["a"],)
    assert inner.model.graph.values["z"].producer.inputs == (inner.model.graph.values["x"],)
    forwarded = rewriting(text).replace(find, lambda x: [es.Min(-x, 0.0), x])
    assert forwarded.ops == ["Relu", "Dropout", "Neg", "Min", "Identity", "Exp"]


def test_a_tensor_of_the_match_may_be_an_input_of_the_replacement(rewriting):
    text = "g (float[4] x) => (float[4] y) { a = Relu(x) y = Add(a, a) }"
    work = rewriting(text).replace(
        lambda x, z: es.Add(es.Relu(x), z), lambda x, z: es.Max(x, 0.0) + z, 2
    )
    assert sorted(work.ops) == ["Add", "Max", "Relu"]
    work.assert_equal()


# -- bodies ---------------------------------------------------------------------------------------------------------

NESTED = {
    "if": "z = If(c) <then_branch = t () => (float[2, 4] p) { p = Neg(y) }, else_branch = e () => (float[2, 4] q) { q = Exp(y) }>",
    "loop": "z = Loop(n, c, y) <body = l (int64 i, bool go, float[2, 4] p) => (bool go, float[2, 4] q) { q = Add(p, y) }>",
    "scan": "z, u = Scan(y, s) <num_scan_inputs = 1, body = b (float[2, 4] p, float[4] e) => (float[2, 4] q, float[4] v) { q = Add(p, y) v = Neg(e) }>",
}


@pytest.mark.parametrize("kind", NESTED)
def test_an_output_that_a_body_reads(rewriting, kind):
    text = f"g (float[2, 3] x, bool c, float[2, 4] s) => (float[2, 4] z) <int64 n = {{2}}> {{ t = MatMul(x, w) y = Add(t, b) {NESTED[kind]} }}"
    work = rewriting(text, w=(3, 4), b=(4,)).replace(matmul_add, gemm, 3)
    assert work.ops[0] == "Gemm"
    assert len(work.made) == 1
    work.assert_equal()


@pytest.mark.parametrize("kind", NESTED)
def test_an_inner_tensor_that_a_body_reads_is_no_match(rewriting, kind):
    node = NESTED[kind].replace("(y)", "(t)").replace(", y)", ", t)").replace("(y, ", "(t, ")
    text = f"g (float[2, 3] x, bool c, float[2, 4] s) => (float[2, 4] z, float[2, 4] y) <int64 n = {{2}}> {{ t = MatMul(x, w) y = Add(t, b) {node} }}"
    work = rewriting(text, w=(3, 4), b=(4,)).replace(matmul_add, gemm, 3)
    assert (work.made, work.refused) == ([], [])


def test_inside_a_body_with_tensors_from_around(rewriting):
    text = """g (float[2, 3] x, bool c) => (float[2, 4] z) { r = Relu(x)
        z = If(c) <
            then_branch = t () => (float[2, 4] p) { a = MatMul(r, w) p = Add(a, b) },
            else_branch = e () => (float[2, 4] q) { a = MatMul(x, w) o = Add(a, b) q = Neg(o) }> }"""
    work = rewriting(text, w=(3, 4), b=(4,))
    work.replace(matmul_add, gemm, 3, graph=1).replace(matmul_add, gemm, 3, graph=2)
    assert work.made == [["P_Gemm_0"], ["P_Gemm_1"]]
    assert [[node.op for node in graph.nodes] for graph in work.model.graphs] == [
        ["Relu", "If"],
        ["Gemm"],
        ["Gemm", "Neg"],
    ]
    work.assert_equal()
