"""The transaction: what it puts where, what it leaves, what it refuses, and that a refusal leaves no trace."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from gehost import es
from gehost.errors import PassError
from gehost.es.graph import EsGraphBuilder
from gehost.ir.ge import NodeIo
from gehost.ir.region import Region, SubgraphBoundary, SubgraphInput, SubgraphOutput
from gehost.ops import OpRegistry
from gehost.rewrite.rewriter import MAX_GENERATIONS, Author, Rewriter

LINEAR = "g (float[2, 3] x) => (float[2, 4] y) { t = MatMul(x, w) y = Add(t, b) }"


def matmul_add(a, b, c):
    return es.Add(es.MatMul(a, b), c)


def gemm(a, b, c):
    return es.Gemm(a, b, c, alpha=1.0, beta=1.0)


# -- one node for two -----------------------------------------------------------------------------------------------


def test_a_match_is_replaced_and_the_numbers_stay(rewriting):
    work = rewriting(LINEAR, w=(3, 4), b=(4,)).replace(matmul_add, gemm, 3)
    assert (work.made, work.refused, work.ops) == ([["P_Gemm_0"]], [], ["Gemm"])
    (node,) = work.assert_equal().graph.node
    assert (list(node.input), list(node.output), node.name) == (["x", "w", "b"], ["y"], "P_Gemm_0")
    assert {entry.key: entry.value for entry in node.metadata_props} == {
        "gehost.pass": "P",
        "gehost.origin_nodes": '["t", "y"]',
        "gehost.origin_types": '["MatMul", "Add"]',
    }


def test_an_addend_that_widens_the_product_is_refused_by_the_transaction_alone(rewriting):
    text = "g (float[2, 3] x, float[5, 2, 4] b) => (float[5, 2, 4] y) { t = MatMul(x, w) y = Add(t, b) }"
    work = rewriting(text, w=(3, 4)).replace(matmul_add, gemm, 3, proven=True)
    assert work.made == []
    assert [reason.partition(":")[0] for reason in work.refused] in (["types"], ["rank"])
    work.assert_equal()


def test_names_are_stable_readable_and_new(rewriting):
    text = """g (float[2, 3] x, float[2, 3] P_Gemm_0) => (float[2, 4] y, float[2, 4] z, float[2, 4] P_Gemm_2) {
        t = MatMul(x, w) y = Add(t, b) [P_Gemm_1] s = MatMul(P_Gemm_0, w) z = Add(s, b) P_Gemm_2 = Neg(z) }"""
    work = rewriting(text, w=(3, 4), b=(4,)).replace(matmul_add, gemm, 3)
    assert work.made == [["P_Gemm_3"], ["P_Gemm_4"]]
    work.assert_equal()
    assert rewriting(text, w=(3, 4), b=(4,)).replace(matmul_add, gemm, 3).finish() == work.finish()


def test_names_after_a_refusal_are_those_of_a_first_try(rewriting):
    text = "g (float[2, 3] x, int64[4] c) => (float[2, 4] y, float[2, 4] z) { t = MatMul(x, w) y = Add(t, b) s = MatMul(x, w) z = Sub(s, b) }"
    work = rewriting(text, w=(3, 4), b=(4,))
    work.replace(matmul_add, lambda a, b, c: es.Cast(gemm(a, b, c), to=7), 3)
    assert [reason.partition(":")[0] for reason in work.refused] == ["dtype"]
    work.replace(matmul_add, gemm, 3)
    assert work.made == [["P_Gemm_0"]]


def test_a_replacement_may_use_fewer_inputs_and_its_own_constants(rewriting):
    work = rewriting("g (float[2] x, float[2] z) => (float[2] y) { t = Mul(z, zero) y = Add(x, t) }", zero=np.zeros(2, np.float32))

    def put(x):
        return es.Mul(x, 1.0)

    work.replace(lambda x, z: es.Add(x, es.Mul(z, 0.0)), put, 2, new_inputs=1)
    assert work.ops == ["Mul"]
    result = work.assert_equal()
    added = next(tensor for tensor in result.graph.initializer if tensor.name != "zero")
    assert (added.name, added.data_type, list(added.dims)) == ("P_Constant_0", 1, [])
    assert "zero" in {tensor.name for tensor in result.graph.initializer}, "what is dead elsewhere is the clean-up's work"


def test_below_ir_version_4_constants_are_nodes(rewriting):
    work = rewriting("g (float16[2] x) => (float16[2] y) { y = Relu(x) }", ir=3, opset=9)
    work.replace(es.Relu, lambda x: es.Max(x, 0.0))
    assert work.ops == ["Constant", "Max"]
    assert work.finish().graph.node[0].attribute[0].t.data_type == onnx.TensorProto.FLOAT16


def test_a_constant_that_others_read_stays(rewriting):
    text = "g (float[2, 3] x) => (float[2, 4] y, float[4] z) { k = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>() t = MatMul(x, w) y = Add(t, k) z = Neg(k) }"
    work = rewriting(text, w=(3, 4)).replace(matmul_add, gemm, 3)
    assert work.ops == ["Constant", "Gemm", "Neg"]
    work.assert_equal()


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
    assert again.refused == ["no change: the replacement equals what it replaces"]


def test_forwarding_to_the_output_of_a_body(rewriting):
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { a = Neg(x) p = Neg(a) }, else_branch = e () => (float[2] q) { q = Tanh(x) }> }"""
    work = rewriting(text).replace(lambda x: es.Neg(es.Neg(x)), lambda x: x, graph=1)
    assert [[node.op for node in graph.nodes] for graph in work.model.graphs] == [["If"], ["Identity"], ["Tanh"]]
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
    work = rewriting("g (float[2] x) => (float[2] y, float[2] z) { a = Sub(x, x) y = Exp(a) z = Sub(y, y) }")

    def zeros(x):
        from gehost.es.graph import EsConst, EsTensor, Origin

        return EsTensor(EsConst(x.graph, np.zeros(2, np.float32), Origin("", 0)))

    work.replace(lambda x: es.Sub(x, x), zeros)
    assert work.ops == ["Exp", "Identity"]
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
    work.replace(lambda x, z: [es.Neg(x), es.Neg(z)], lambda x, z: [es.Mul(z, -1.0), es.Mul(x, -1.0)], 2)
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
    forwarded = rewriting(text).replace(find, lambda x: [es.Min(-x, 0.0), x])
    assert forwarded.ops == ["Relu", "Dropout", "Neg", "Min", "Identity", "Exp"]


def test_a_tensor_of_the_match_may_be_an_input_of_the_replacement(rewriting):
    text = "g (float[4] x) => (float[4] y) { a = Relu(x) y = Add(a, a) }"
    work = rewriting(text).replace(lambda x, z: es.Add(es.Relu(x), z), lambda x, z: es.Max(x, 0.0) + z, 2)
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
    assert [[node.op for node in graph.nodes] for graph in work.model.graphs] == [["Relu", "If"], ["Gemm"], ["Gemm", "Neg"]]
    work.assert_equal()


# -- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("put", "reason"),
    [
        (lambda a, b, c: es.Cast(gemm(a, b, c), to=10), 'dtype: "y" was float[2,4], would be float16[2,4]'),
        (lambda a, b, c: es.Unsqueeze(gemm(a, b, c), axes=[0]), 'rank: "y" had 2 dimensions, would have 3'),
        (lambda a, b, c: es.Transpose(gemm(a, b, c), perm=[1, 0]), 'shape: dimension 0 of "y" was 2, would be 4'),
        (lambda a, b, c: es.MatMul(b, a), "types: "),
        (lambda a, b, c: es.Gelu(gemm(a, b, c)), "not applicable: Gelu needs opset 20, the model has 17"),
        (lambda a, b, c: gemm(a, b, es.op("acme::F")(c)), "needs a function body: acme::F has none, and the replacement is more"),
        (matmul_add, "no change: the replacement equals what it replaces"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_trace(rewriting, put, reason):
    work = rewriting(LINEAR, w=(3, 4), b=(4,))
    before = work.model.flush().SerializeToString(deterministic=True)
    work.replace(matmul_add, put, 3)
    assert work.made == []
    assert [refused[: len(reason)] for refused in work.refused] == [reason]
    assert work.finish().SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    ("put", "inputs", "message"),
    [
        (lambda a, b, c: [gemm(a, b, c), a], 3, "the replacement has 2 outputs, the pattern 1"),
        (lambda a, b, c, d: gemm(a, b, c), 4, "the replacement has 4 inputs, the pattern 3"),
    ],
)
def test_what_is_no_replacement_is_an_error(rewriting, put, inputs, message, describe):
    work = rewriting(LINEAR, w=(3, 4), b=(4,))
    before = describe(work.model)
    with pytest.raises(PassError, match=message):
        work.replace(matmul_add, put, 3, new_inputs=inputs)
    assert describe(work.model) == before


def test_equal_nodes_in_another_order_are_no_change(rewriting):
    text = "g (float[2] x, float[2] z) => (float[2] y) { b = Sigmoid(z) a = Relu(x) y = Add(a, b) }"
    work = rewriting(text).replace(lambda x, z: es.Add(es.Relu(x), es.Sigmoid(z)), lambda x, z: es.Add(es.Relu(x), es.Sigmoid(z)), 2)
    assert (work.made, len(work.refused)) == ([], 1)
    work = rewriting(text).replace(lambda x, z: es.Add(es.Relu(x), es.Sigmoid(z)), lambda x, z: es.Add(es.Relu(z), es.Sigmoid(x)), 2)
    assert len(work.made) == 1
    work = rewriting("g (float[2] x) => (float[2] y) { a = Relu(x) b = Relu(x) y = Add(a, b) }")

    def once(x):
        shared = es.Relu(x)
        return es.Add(shared, shared)

    assert work.replace(lambda x: es.Add(es.Relu(x), es.Relu(x)), once).ops == ["Relu", "Add"]
    constant = rewriting("g (float[2] x) => (float[2] y) { y = Add(x, w) }", w=np.float32(1.0))
    assert constant.replace(lambda x: x + 1.0, lambda x: x + 1.0).refused != []
    assert constant.replace(lambda x: x + 1.0, lambda x: x + 2.0).made != []


def test_rewrites_that_feed_each_other_are_stopped(rewriting, describe):
    work = rewriting("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for step in range(MAX_GENERATIONS):
        work.replace(es.Relu if step % 2 == 0 else es.Neg, es.Neg if step % 2 == 0 else es.Relu)
    assert len(work.made) == MAX_GENERATIONS
    before = describe(work.model)
    with pytest.raises(PassError, match=r"without end: P_Relu_49 \(Relu\) is 101 generations deep"):
        work.replace(es.Relu, es.Neg)
    assert describe(work.model) == before


# -- provenance -----------------------------------------------------------------------------------------------------


def test_provenance_is_kept_over_generations(rewriting):
    text = "g (float[2, 3] x) => (float[2, 4] y) { [product] t = MatMul(x, w) s = Add(t, b) y = Relu(s) }"
    work = rewriting(text, w=(3, 4), b=(4,))
    work.replace(matmul_add, gemm, 3, name="First", vendor="acme")
    work.replace(lambda a, b, c: es.Relu(es.Gemm(a, b, c)), lambda a, b, c: es.Max(gemm(a, b, c), 0.0), 3, name="Second")
    made = list(work.model.graph.nodes)
    assert [node.name for node in made] == ["Second_Gemm_0", "Second_Max_0"]
    for node in made:
        assert node.metadata["gehost.pass"] == "Second"
        assert "gehost.vendor" not in node.metadata
        assert json.loads(node.metadata["gehost.origin_nodes"]) == ["product", "s", "y"]
        assert json.loads(node.metadata["gehost.origin_types"]) == ["MatMul", "Add", "Relu"]
    work.assert_equal()


def test_metadata_that_somebody_else_wrote_is_no_provenance(rewriting):
    proto = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { [n] y = Relu(x) }')
    proto.graph.node[0].metadata_props.add(key="gehost.origin_nodes", value="{broken")
    proto.graph.node[0].metadata_props.add(key="gehost.origin_types", value='{"a": 1}')
    work = rewriting(proto).replace(es.Relu, lambda x: es.Max(x, 0.0), vendor="acme")
    assert next(work.model.graph.nodes).metadata == {
        "gehost.pass": "P", "gehost.vendor": "acme", "gehost.origin_nodes": '["n"]', "gehost.origin_types": '["Relu"]'
    }  # fmt: skip


# -- boundaries -----------------------------------------------------------------------------------------------------


def made_of(put, inputs):
    builder = EsGraphBuilder("replacement")
    return builder.BuildAndReset(put(*builder.CreateInputs(inputs)))


def test_a_boundary_by_hand(rewriting):
    work = rewriting(LINEAR, w=(3, 4), b=(4,))
    product, total = work.model.graph.nodes
    boundary = SubgraphBoundary()
    for index, (node, slot) in enumerate([(product, 0), (product, 1), (total, 1)]):
        boundary.AddInput(index, SubgraphInput([NodeIo(node, slot)]))
    boundary.AddOutput(0, SubgraphOutput(NodeIo(total, 0)))
    rewriter = Rewriter(work.model, OpRegistry(), Author("P"))
    with pytest.raises(PassError, match="Replace: dtype"):
        rewriter.replace_boundary(boundary, made_of(lambda a, b, c: es.Cast(gemm(a, b, c), to=11), 3))
    (made,) = rewriter.replace_boundary(boundary, made_of(gemm, 3))
    assert (made.op, rewriter.replaced) == ("Gemm", 1)
    with pytest.raises(PassError, match="is not in the graph"):
        rewriter.replace_boundary(boundary, made_of(gemm, 3))
    work.assert_equal()


def test_a_boundary_that_closes_a_cycle_is_refused(rewriting, describe):
    work = rewriting("g (float[2] x) => (float[2] a, float[2] y) { a = Relu(x) b = Neg(a) y = Exp(b) }")
    relu, _, exp = work.model.graph.nodes
    boundary = SubgraphBoundary().AddInput(0, SubgraphInput([NodeIo(relu, 0)])).AddInput(1, SubgraphInput([NodeIo(exp, 0)]))
    boundary.AddOutput(0, SubgraphOutput(NodeIo(relu, 0))).AddOutput(1, SubgraphOutput(NodeIo(exp, 0)))
    before = describe(work.model)
    with pytest.raises(PassError, match="cycle: the replacement would make one"):
        Rewriter(work.model, OpRegistry(), Author("P")).replace_boundary(boundary, made_of(lambda x, z: [es.Abs(x), es.Abs(z)], 2))
    assert describe(work.model) == before


def test_a_control_flow_node_may_be_replaced_with_its_bodies(rewriting):
    text = """g (float[2] x, bool c) => (float[2] y) { a = Relu(x)
        b = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = e () => (float[2] q) { q = Neg(a) }>
        y = Abs(b) }"""
    work = rewriting(text)
    relu, branch, _ = work.model.graph.nodes
    boundary = SubgraphBoundary().AddInput(0, SubgraphInput([NodeIo(relu, 0)])).AddInput(1, SubgraphInput([NodeIo(branch, 0)]))
    boundary.AddOutput(0, SubgraphOutput(NodeIo(branch, 0)))
    Rewriter(work.model, OpRegistry(), Author("P")).replace_boundary(boundary, made_of(lambda x, c: es.Neg(es.Relu(x)), 2))
    assert work.ops == ["Relu", "Neg", "Abs"]
    work.assert_equal()


def test_a_single_node_with_absent_inputs(rewriting):
    work = rewriting("g (float[4] x, float h) => (float[4] y) { y = Clip(x, , h) }")
    (clip,) = work.model.graph.nodes
    rewriter = Rewriter(work.model, OpRegistry(), Author("P"))
    region = Region(work.model.graph, clip.inputs, [work.model.graph.values["y"]], [clip])
    with pytest.raises(PassError, match="the replacement uses input 1, which is absent here"):
        rewriter.replace(region, made_of(lambda x, low, high: es.Min(es.Max(x, low), high), 3))
    rewriter.replace(region, made_of(lambda x, low, high: es.Min(x, high), 3))
    assert work.ops == ["Min"]
    work.assert_equal()


# -- the same every time --------------------------------------------------------------------------------------------


def test_two_runs_give_equal_bytes(rewriting):
    text = "g (float[2, 3] x) => (float[2, 4] y, float[2, 4] z) { t = MatMul(x, w) y = Add(t, b) s = MatMul(x, w) u = Add(s, b) z = Relu(u) }"
    results = [
        rewriting(text, w=(3, 4), b=(4,)).replace(matmul_add, lambda a, b, c: gemm(a, b, c) * 1.0, 3).finish().SerializeToString()
        for _ in range(2)
    ]
    assert results[0] == results[1]
