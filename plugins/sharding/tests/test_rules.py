"""Every strategy of every rule, run on all ranks of a mesh, gives the numbers of the operator."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import VendorError
from gehost_sharding.assignment import Assignment, all_transfers
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.propagation import OperatorStrategies
from gehost_sharding.redistribution import Redistributions
from gehost_sharding.rules.rule import Factors, Instance, LocalNode, Rule
from gehost_sharding.rules.table import RuleTable, sharding_rule
from gehost_sharding.sharding import is_partial, replicated
from gehost_sharding.strategies import splittable_factors

from .conftest import (
    assert_equal,
    differs,
    feeds_of,
    graph_of,
    model_of,
    reread,
    split_run,
    whole_run,
)
from .rule_cases import TODAY

MESH = Mesh(("data", "model"), (2, 2))

CASES: dict[str, tuple[int, str]] = {
    "add": (20, "(float[4,8] x, float[8] y) => (float[4,8] z) { z = Add (x, y) }"),
    "add_row": (20, "(float[4,1] x, float[4,8] y) => (float[4,8] z) { z = Sub (x, y) }"),
    "add_scalar": (20, "(float[4,8] x, float y) => (float[4,8] z) { z = Mul (x, y) }"),
    "add_itself": (20, "(float[4,8] x) => (float[4,8] z) { z = Add (x, x) }"),
    "where": (
        20,
        "(bool[4,1] c, float[8] x, float[4,8] y) => (float[4,8] z) { z = Where (c, x, y) }",
    ),
    "clip": (20, "(float[4,8] x, float a, float b) => (float[4,8] z) { z = Clip (x, a, b) }"),
    "cast": (20, "(float[4,8] x) => (int64[4,8] z) { z = Cast <to = 7> (x) }"),
    "cast_like": (20, "(float[4,8] x, int64[3] y) => (int64[4,8] z) { z = CastLike (x, y) }"),
    "matmul": (20, "(float[4,8] x, float[8,4] y) => (float[4,4] z) { z = MatMul (x, y) }"),
    "matmul_batch": (
        20,
        "(float[2,1,4,8] x, float[4,8,6] y) => (float[2,4,4,6] z) { z = MatMul (x, y) }",
    ),
    "matmul_vector": (20, "(float[8] x, float[4,8,6] y) => (float[4,6] z) { z = MatMul (x, y) }"),
    "matmul_dot": (20, "(float[8] x, float[8] y) => (float z) { z = MatMul (x, y) }"),
    "matmul_square": (20, "(float[4,4] x) => (float[4,4] z) { z = MatMul (x, x) }"),
    "gemm": (
        20,
        "(float[8,4] x, float[6,8] y, float[6] c) => (float[4,6] z)"
        " { z = Gemm <transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (x, y, c) }",
    ),
    "gemm_plain": (20, "(float[4,8] x, float[8,4] y) => (float[4,4] z) { z = Gemm (x, y) }"),
    "gemm_old": (
        9,
        "(float[4,8] x, float[8,4] y, float[4,1] c) => (float[4,4] z) { z = Gemm (x, y, c) }",
    ),
    "einsum": (
        20,
        "(float[4,2,8] x, float[4,8,6] y) => (float[2,6,4] z)"
        ' { z = Einsum <equation = "bik,bkj->ijb"> (x, y) }',
    ),
    "einsum_implicit": (
        20,
        '(float[4,8] x, float[8,6] y) => (float[4,6] z) { z = Einsum <equation = "ab,bc"> (x, y) }',
    ),
    "reduce_sum": (
        20,
        "(float[4,8,6] x) => (float[4,6] z) { a = Constant <value = int64[1] {-2}> ()"
        " z = ReduceSum <keepdims = 0> (x, a) }",
    ),
    "reduce_mean": (
        17,
        "(float[4,8,6] x) => (float[4,1,1] z) { z = ReduceMean <axes = [1, 2]> (x) }",
    ),
    "reduce_mean_integers": (
        17,
        "(int32[4,8] x) => (int32[4,1] z) { z = ReduceMean <axes = [1]> (x) }",
    ),
    "reduce_max": (17, "(float[4,8] x) => (float[1,8] z) { z = ReduceMax <axes = [0]> (x) }"),
    "reduce_min": (17, "(float[4,8] x) => (float z) { z = ReduceMin <keepdims = 0> (x) }"),
    "reduce_prod": (17, "(float[4,8] x) => (float[4,1] z) { z = ReduceProd <axes = [1]> (x) }"),
    "reduce_l1": (17, "(float[4,8] x) => (float[4,1] z) { z = ReduceL1 <axes = [1]> (x) }"),
    "reduce_l2": (17, "(float[4,8] x) => (float[4,1] z) { z = ReduceL2 <axes = [1]> (x) }"),
    "reduce_log_sum_exp": (
        17,
        "(float[4,8] x) => (float[4,1] z) { z = ReduceLogSumExp <axes = [1]> (x) }",
    ),
    "softmax": (20, "(float[4,8,6] x) => (float[4,8,6] z) { z = Softmax <axis = 1> (x) }"),
    "softmax_old": (11, "(float[4,8,6] x) => (float[4,8,6] z) { z = Softmax <axis = 1> (x) }"),
    "cumsum": (
        20,
        "(float[4,8] x) => (float[4,8] z) { a = Constant <value = int64 {1}> () z = CumSum (x, a) }",
    ),
    "layer_norm": (
        20,
        "(float[4,6,8] x, float[8] s, float[8] b) => (float[4,6,8] z, float[4,6,1] m)"
        " { z, m = LayerNormalization <axis = -1> (x, s, b) }",
    ),
    "instance_norm": (
        20,
        "(float[4,6,8] x, float[6] s, float[6] b) => (float[4,6,8] z)"
        " { z = InstanceNormalization (x, s, b) }",
    ),
    "batch_norm": (
        17,
        "(float[4,6,8] x, float[6] s, float[6] b, float[6] m, float[6] v) => (float[4,6,8] z)"
        " { w = Abs (v) z = BatchNormalization (x, s, b, m, w) }",
    ),
    "lrn": (20, "(float[4,6,8,2] x) => (float[4,6,8,2] z) { z = LRN <size = 3> (x) }"),
    "lp_norm": (20, "(float[4,8] x) => (float[4,8] z) { z = LpNormalization <axis = 1> (x) }"),
    "arg_max": (
        20,
        "(float[4,8,6] x) => (int64[4,6] z) { z = ArgMax <axis = 1, keepdims = 0> (x) }",
    ),
    "top_k": (
        20,
        "(float[4,8] x) => (float[4,2] z, int64[4,2] i) { k = Constant <value = int64[1] {2}> ()"
        " z, i = TopK <axis = 1> (x, k) }",
    ),
    "transpose": (
        20,
        "(float[4,8,6] x) => (float[6,4,8] z) { z = Transpose <perm = [2, 0, 1]> (x) }",
    ),
    "transpose_reverse": (20, "(float[4,8,6] x) => (float[6,8,4] z) { z = Transpose (x) }"),
    "reshape_split": (
        20,
        "(float[4,8] x) => (float[4,2,4] z) { s = Constant <value = int64[3] {0, 2, -1}> ()"
        " z = Reshape (x, s) }",
    ),
    "reshape_join": (
        20,
        "(float[4,6,8] x) => (float[24,8] z) { s = Constant <value = int64[2] {24, 8}> ()"
        " z = Reshape (x, s) }",
    ),
    "reshape_mixed": (
        20,
        "(float[4,6,8] x) => (float[8,24] z) { s = Constant <value = int64[2] {8, 24}> ()"
        " z = Reshape (x, s) }",
    ),
    "flatten": (20, "(float[4,6,8] x) => (float[24,8] z) { z = Flatten <axis = 2> (x) }"),
    "squeeze_all": (20, "(float[2,1,8] x) => (float[2,8] z) { z = Squeeze (x) }"),
    "unsqueeze": (
        20,
        "(float[4,8] x) => (float[4,1,8] z) { a = Constant <value = int64[1] {1}> ()"
        " z = Unsqueeze (x, a) }",
    ),
    "expand": (
        20,
        "(float[4,1] x) => (float[2,4,8] z) { s = Constant <value = int64[3] {2, 4, 8}> ()"
        " z = Expand (x, s) }",
    ),
    "constant_of_shape": (
        20,
        "(float[4,8] x) => (float[4,8] z) { s = Constant <value = int64[2] {4, 8}> ()"
        " o = ConstantOfShape <value = float[1] {2.5}> (s) z = Mul (x, o) }",
    ),
    "concat": (
        20,
        "(float[4,2,6] x, float[4,4,6] y) => (float[4,6,6] z) { z = Concat <axis = 1> (x, y) }",
    ),
    "split": (
        20,
        "(float[4,8] x) => (float[4,2] a, float[4,6] b) { s = Constant <value = int64[2] {2, 6}> ()"
        " a, b = Split <axis = 1> (x, s) }",
    ),
    "slice": (
        20,
        "(float[4,8,6] x) => (float[4,4,6] z) { s = Constant <value = int64[1] {2}> ()"
        " e = Constant <value = int64[1] {6}> () a = Constant <value = int64[1] {-2}> ()"
        " z = Slice (x, s, e, a) }",
    ),
    "slice_reverse": (
        20,
        "(float[4,8] x) => (float[4,8] z) { s = Constant <value = int64[1] {-1}> ()"
        " e = Constant <value = int64[1] {-9}> () a = Constant <value = int64[1] {1}> ()"
        " t = Constant <value = int64[1] {-1}> () z = Slice (x, s, e, a, t) }",
    ),
    "slice_old": (
        9,
        "(float[4,8] x) => (float[4,4] z) { z = Slice <starts = [2], ends = [6], axes = [1]> (x) }",
    ),
    "pad": (
        20,
        "(float[4,8] x) => (float[4,10] z) { p = Constant <value = int64[4] {0, 1, 0, 1}> ()"
        " z = Pad (x, p) }",
    ),
    "tile": (
        20,
        "(float[4,6] x) => (float[4,12] z) { r = Constant <value = int64[2] {1, 2}> () z = Tile (x, r) }",
    ),
    "trilu": (20, "(float[4,6,6] x) => (float[4,6,6] z) { z = Trilu (x) }"),
    "depth_to_space": (
        20,
        "(float[4,4,2,2] x) => (float[4,1,4,4] z) { z = DepthToSpace <blocksize = 2> (x) }",
    ),
    "gather": (
        20,
        "(float[4,8] x, int64[2,6] i) => (float[2,6,8] z) { z = Gather <axis = 0> (x, i) }",
    ),
    "gather_inner": (
        20,
        "(float[4,8,6] x, int64[2] i) => (float[4,2,6] z) { z = Gather <axis = 1> (x, i) }",
    ),
    "gather_scalar": (
        20,
        "(float[4,8] x) => (float[4] z) { i = Constant <value = int64 {3}> ()"
        " z = Gather <axis = 1> (x, i) }",
    ),
    "gather_elements": (
        20,
        "(float[4,8] x, int64[4,2] i) => (float[4,2] z) { z = GatherElements <axis = 1> (x, i) }",
    ),
    "gather_nd": (
        20,
        "(float[4,8,6] x, int64[2,2] i) => (float[2,6] z) { z = GatherND (x, i) }",
    ),
    "one_hot": (
        20,
        "(int64[4,6] i) => (float[4,5,6] z) { d = Constant <value = int64 {5}> ()"
        " v = Constant <value = float[2] {0.0, 1.0}> () z = OneHot <axis = 1> (i, d, v) }",
    ),
    "conv": (
        20,
        "(float[2,4,6,6] x, float[8,4,3,3] w, float[8] b) => (float[2,8,6,6] z)"
        " { z = Conv <pads = [1, 1, 1, 1]> (x, w, b) }",
    ),
    "conv_pointwise": (
        20,
        "(float[2,4,6,6] x, float[8,4,1,1] w) => (float[2,8,6,6] z) { z = Conv (x, w) }",
    ),
    "conv_depthwise": (
        20,
        "(float[2,4,6,6] x, float[4,1,3,3] w, float[4] b) => (float[2,4,4,4] z)"
        " { z = Conv <group = 4> (x, w, b) }",
    ),
    "conv_grouped": (
        20,
        "(float[2,8,6,6] x, float[4,4,3,3] w, float[4] b) => (float[2,4,4,4] z)"
        " { z = Conv <group = 2> (x, w, b) }",
    ),
    "conv_transpose": (
        20,
        "(float[2,4,3,3] x, float[4,6,2,2] w, float[6] b) => (float[2,6,4,4] z)"
        " { z = ConvTranspose (x, w, b) }",
    ),
    "max_pool": (
        20,
        "(float[2,4,6,6] x) => (float[2,4,3,3] z)"
        " { z = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x) }",
    ),
    "global_pool": (20, "(float[2,4,6,6] x) => (float[2,4,1,1] z) { z = GlobalAveragePool (x) }"),
    "quantize": (
        20,
        "(float[4,8] x, float[8] s) => (uint8[4,8] z) { a = Abs (s) z = QuantizeLinear <axis = 1> (x, a) }",
    ),
    "unknown": (
        20,
        "(float[4,8] x) => (float[4,8] z) { z = MeanVarianceNormalization <axes = [1]> (x) }",
    ),
}


CASES |= TODAY


def assignments(graph: ModelGraph, table: RuleTable, mesh: Mesh = MESH) -> list[Assignment]:
    """For each strategy of each operator an assignment that uses it, others whole."""
    strategies = OperatorStrategies(graph, mesh, table)
    whole = replicated(mesh)
    results: list[Assignment] = []
    for operator in graph.operators:
        for number, strategy in enumerate(strategies[operator].choices):
            chosen = [0] * len(graph.operators)
            chosen[operator.index] = number
            specs = dict.fromkeys(graph.producer, whole)
            for name, sharding in zip(
                (name for name in operator.node.output if name), strategy.results, strict=True
            ):
                specs[name] = whole if is_partial(sharding) else sharding
            results.append(Assignment(graph, mesh, strategies, chosen, specs))
    return results


def checked(graph: ModelGraph, table: RuleTable) -> int:
    feeds = feeds_of(graph)
    expected = whole_run(graph, feeds)
    every = assignments(graph, table)
    for assignment in every:
        actual, lock_step = split_run(reread(assignment, table), feeds, table=table)
        assert_equal(expected, actual)
        transfers = all_transfers(assignment, Redistributions(assignment.mesh))
        assert lock_step.sent == [sum(transfer.bytes for transfer in transfers)] * 4
    return len(every)


@pytest.mark.parametrize("name", CASES)
def test_every_strategy_gives_the_numbers_of_the_operator(name: str) -> None:
    opset, text = CASES[name]
    count = checked(graph_of(text, opset=opset), RuleTable())
    assert count > 1 or name in {"unknown", "matmul_square"}


def test_every_rule_is_run() -> None:
    """Elementwise operators share one rule; of the others each has a case."""
    table = RuleTable()
    used = {
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type
        for opset, text in CASES.values()
        for node in model_of(text, opset=opset).graph.node
    }
    from gehost_sharding.rules import elementwise

    missing = {
        op for op in table.operators() if op not in used and op not in elementwise.OPERATORS.split()
    }
    same_rule = {
        "LpPool",  # as MaxPool
        "ArgMin", "CumProd", "DequantizeLinear", "Hardmax", "LogSoftmax", "SpaceToDepth",
        "ReduceLogSum", "ReduceSumSquare", "SimplifiedLayerNormalization",
        "Scatter",  # the name of ScatterElements below opset 11
        "com.microsoft::GroupNorm", "com.microsoft::SkipGroupNorm",  # no kernel on CPU: below
    }  # fmt: skip
    assert missing - same_rule == {"Dropout", "ReverseSequence"}


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        (
            "(float[4,8] x) => (float[4,8] z) { z, m = Dropout (x) }",
            20,
        ),
        (
            "(float[4,6,8] x, int64[6] n) => (float[4,6,8] z)"
            " { one = Constant <value = int64 {1}> () l = Add (n, one) z = ReverseSequence (x, l) }",
            20,
        ),
    ],
)
def test_further_rules(text: str, opset: int) -> None:
    assert checked(graph_of(text, opset=opset), RuleTable()) > 1


@pytest.mark.parametrize(
    ("op", "shapes", "results"),
    [
        ("GroupNorm", [(4, 6, 6, 8), (8,), (8,)], 1),
        ("SkipGroupNorm", [(4, 6, 6, 8), (8,), (8,), (4, 1, 1, 8), (8,)], 2),
    ],
)
def test_groups_of_contrib_norms_pass(op: str, shapes: list[tuple[int, ...]], results: int) -> None:
    """ONNX Runtime has them on GPUs alone: the rule, and the groups of a piece."""
    instance = Instance(
        f"com.microsoft::{op}", 1, {"groups": 4}, tuple(shapes), (shapes[0],) * results, {}, ()
    )
    table = RuleTable()
    rule = table.rule(instance)
    assert [rule.factors[factor].size for factor in splittable_factors(rule)] == [4, 4]
    node = onnx.helper.make_node(op, ["x", "s", "b"], ["z"], domain="com.microsoft", groups=4)
    local = LocalNode(node, instance, rule, (0, -1), ((4, 6, 6, 4),), MESH, (0, 0), lambda _v, n: n)
    localize = table.localizer(instance.op)
    assert localize is not None
    localize(local)
    assert [entry.i for entry in node.attribute] == [2]


def test_a_wrong_factor_gives_wrong_numbers() -> None:
    """The softmax axis declared as pass: the test above would see it."""
    table = RuleTable()

    def wrong(instance: Instance) -> Rule:
        factors = Factors()
        data = tuple(factors.add(size) for size in instance.shape(0))
        return factors.rule([data], [data], 1)

    table.add("Softmax", wrong)
    graph = graph_of("(float[4,8] x) => (float[4,8] z) { z = Softmax <axis = 1> (x) }")
    feeds = feeds_of(graph)
    expected = whole_run(graph, feeds)
    results = [
        differs(expected, split_run(reread(candidate, table), feeds, table=table)[0])
        for candidate in assignments(graph, table)
    ]
    assert any(results)
    assert not results[0]  # nothing split


def test_bias_is_added_once() -> None:
    """Without the localizer the bias of a split k counts twice."""
    table = RuleTable()
    rule = table.rule
    table.add("Gemm", lambda instance: RuleTable().rule(instance))
    graph = graph_of(CASES["gemm"][1])
    feeds = feeds_of(graph)
    expected = whole_run(graph, feeds)
    results = [
        differs(expected, split_run(reread(candidate, table), feeds, table=table)[0])
        for candidate in assignments(graph, table)
    ]
    assert any(results)
    del rule


def test_a_factor_that_is_minor_somewhere_is_not_split() -> None:
    graph = graph_of(CASES["reshape_join"][1])
    rule = RuleTable().rule_of(graph, graph.operators[0])
    sizes = [rule.factors[factor].size for factor in splittable_factors(rule)]
    assert sizes == [4, 8]  # not 6, which is the minor part of 24


def test_operators_without_a_rule_are_replicated_and_named() -> None:
    graph = graph_of(CASES["unknown"][1])
    strategies = OperatorStrategies(graph, MESH, RuleTable())
    assert strategies.unknown == {"MeanVarianceNormalization": 1}
    assert len(strategies[0]) == 1


def test_a_marked_function_adds_a_rule() -> None:
    table = RuleTable()

    @sharding_rule("MeanVarianceNormalization")
    def mean_variance(instance: Instance) -> Rule:
        factors = Factors()
        axes = instance.attribute("axes", [0, 2, 3])
        data = tuple(
            factors.add(size, "need" if dim in axes else "pass")
            for dim, size in enumerate(instance.shape(0))
        )
        return factors.rule([data], [data], 1)

    module: Any = ModuleType("acme")
    module.mean_variance = mean_variance
    table.add_module(module)
    assert checked(graph_of(CASES["unknown"][1]), table) == 4  # none, data, model or both


NORM = """(float[4,6,8] x, float[8] s) => ({outputs}) {{
    z, m, i = LayerNormalization <axis = -1> (x, s)
}}"""


@pytest.mark.parametrize(
    ("outputs", "left_out", "count"),
    [
        ("float[4,6,8] z, float[4,6,1] m", {"i"}, 8),
        ("float[4,6,8] z, float[4,6,1] i", {"m"}, 8),
    ],
)
def test_results_may_be_left_out(outputs: str, left_out: set[str], count: int) -> None:
    model = model_of(NORM.format(outputs=outputs))
    for node in model.graph.node:
        for position, name in enumerate(node.output):
            if name in left_out:
                node.output[position] = ""
    assert checked(ModelGraph(model), RuleTable()) == count


def test_a_rule_that_does_not_fit_the_shapes_is_refused() -> None:
    table = RuleTable()

    def short(instance: Instance) -> Rule:
        factors = Factors()
        return factors.rule([(factors.add(4),)], [(factors.add(4),)], 1)

    table.add("Relu", short)
    graph = graph_of("(float[4,8] x) => (float[4,8] z) { z = Relu (x) }")
    with pytest.raises(VendorError, match="sharding rule of Relu does not fit"):
        table.rule_of(graph, graph.operators[0])


FUNCTIONS = """<ir_version: 10, opset_import: ["" : 20, "acme" : 1]>
main (float[4,6,8] x) => (float[4,6,8] z) {{ z = acme.Body (x) }}
<domain: "acme", opset_import: ["" : 20]>
Body (x) => (z) {{ {body} }}"""


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        ("a = Exp (x) z = Tanh (a)", [4, 6, 8]),
        ("a = Softmax <axis = 2> (x) z = Mul (a, x)", [4, 6]),
        ("a = ReduceMax <axes = [1]> (x) z = Sub (x, a)", [4, 8]),
        ("one = Constant <value = float {1.0}> () z = Add (x, one)", [4, 6, 8]),
        (
            "s = Constant <value = int64[2] {24, 8}> () a = Reshape (x, s)"
            " t = Constant <value = int64[3] {4, 6, 8}> () z = Reshape (a, t)",
            [],
        ),
        (
            # the mean by the number of elements, which a Size of a piece would get wrong
            "n = Size (x) f = Cast <to = 1> (n) a = Div (x, f) z = Tanh (a)",
            [],
        ),
    ],
)
def test_functions_get_the_rule_of_their_body(body: str, sizes: list[int]) -> None:
    from gehost.testing import parse

    opset = FUNCTIONS.format(body=body)
    if "ReduceMax" in body:
        opset = opset.replace('"" : 20', '"" : 17')
    graph = ModelGraph(parse(opset))
    rule = RuleTable().rule_of(graph, graph.operators[0])
    assert [rule.factors[factor].size for factor in splittable_factors(rule)] == sizes
    assert checked(graph, RuleTable()) == (1 if not sizes else len(assignments(graph, RuleTable())))


def test_a_localizer_sees_the_local_sizes() -> None:
    shapes: list[tuple[tuple[int, ...], ...]] = []
    table = RuleTable()

    def note(local: LocalNode) -> None:
        shapes.append(local.result_shapes)

    table.add("Relu", RuleTable().rule, note)
    graph = graph_of("(float[4,8] x) => (float[4,8] z) { z = Relu (x) }")
    split_run(assignments(graph, table)[-1], feeds_of(graph), table=table)
    assert shapes == [((2, 4),)] * 4 or shapes == [((4, 2),)] * 4


def test_rules_are_replaced_not_changed() -> None:
    """A rule is a value: changing the copy leaves the table's as it was."""
    graph = graph_of(CASES["add"][1])
    rule = RuleTable().rule_of(graph, graph.operators[0])
    assert replace(rule, flops=1) != rule
    assert np.prod([factor.size for factor in rule.factors]) == rule.flops
