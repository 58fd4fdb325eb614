"""Normalizations in each spelling: what is described, replaced, and refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import (
    REG_FUSION_PASS,
    CustomPassStage,
    DataType,
    EsTensor,
    PassError,
    Refusal,
    es,
    infer_model,
)
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic import Norm, NormCall, NormFusionPass, Views
from gehost_semantic.norms import norms
from plugins.semantic.tests.test_passes import run
from tools.semantic.check import random_feed

REPOSITORY = Path(__file__).parents[3]
AFTER = CustomPassStage.kAfterInferShape
CONSTANTS = """float two = {2}, float half = {0.5}, float minus = {-0.5}, float one = {1},
    float eps = {0.01}, float[1] eps1 = {0.01}, float[1, 1, 1, 1] eps4 = {0.01}, float n = {16}, float part = {0.0625},
    float zero = {0}, int64[1] last = {-1}, int64[1] first = {1}, int64[2] tail = {1, 2},
    int64[3] apart = {0, 4, -1}, int64[4] whole = {0, 8, 3, 5},
    float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}"""
X = "float[b, s, 16] x, float[16] w"
XB = f"{X}, float[16] c"
MEAN = "p = Pow (x, two) m = ReduceMean <keepdims = 1> (p, last) e = Add (m, eps) "
BY_ROOT = "r = Sqrt (e) q = Div (x, r) "
SCALED = "y = Mul (q, w)"
CENTRED = """u = ReduceMean <keepdims = 1> (x, last) d = Sub (x, u) p = Mul (d, d)
    m = ReduceMean <keepdims = 1> (p, last) e = Add (m, eps) r = Sqrt (e) """
ISLAND = """h = Cast <to = 1> (x) p = Pow (h, two) m = ReduceMean <keepdims = 1> (p, last)
    e = Add (m, eps) r = Sqrt (e) v = Reciprocal (r) q = Mul (h, v) """
GROUP = "z = Reshape (x, apart) "
IMAGE = "float[b, 8, 3, 5] x, float[8, 1, 1] w, float[8, 1, 1] c"

FORMS = {
    # kind, body, inputs, scale and bias
    "quotient": ("rms", MEAN + BY_ROOT + SCALED, X, "s"),
    "reciprocal": (
        "rms",
        "p = Mul (x, x) m = ReduceMean (p, last) e = Add (eps, m) r = Sqrt (e) "
        "v = Reciprocal (r) q = Mul (v, x) y = Mul (w, q)",
        X, "s",
    ),
    "one by the root": ("rms", MEAN + "r = Sqrt (e) v = Div (one, r) q = Mul (x, v) " + SCALED, X, "s"),
    "power -1/2": ("rms", MEAN + "v = Pow (e, minus) q = Mul (x, v) " + SCALED, X, "s"),
    "power 1/2": ("rms", MEAN + "r = Pow (e, half) q = Div (x, r) " + SCALED, X, "s"),
    "sum by the size": (
        "rms",
        "p = Pow (x, two) t = ReduceSum (p, last) m = Div (t, n) e = Add (m, eps1) " + BY_ROOT + SCALED,
        X, "s",
    ),
    "sum of squares": (
        "rms", "t = ReduceSumSquare (x, last) m = Mul (t, part) e = Add (m, eps) " + BY_ROOT + SCALED,
        X, "s",
    ),
    "axes dropped": (
        "rms",
        "p = Pow (x, two) m0 = ReduceMean <keepdims = 0> (p, last) m = Unsqueeze (m0, last) "
        "e = Add (m, eps) " + BY_ROOT + SCALED,
        X, "s",
    ),
    "one more than w": ("rms", MEAN + BY_ROOT + "w1 = Add (w, one) y = Mul (q, w1)", X, "s"),
    "no scale": ("rms", MEAN + "r = Sqrt (e) y = Div (x, r)", "float[b, s, 16] x", ""),
    "scale of other axes": (
        "rms", MEAN + BY_ROOT + "y = Mul (q, k)", "float[b, s, 16] x, float[b, 1, 16] k", "",
    ),
    "rank 2": ("rms", MEAN + BY_ROOT + SCALED, "float[s, 16] x, float[16] w", "s"),
    "bias": ("rms", MEAN + BY_ROOT + "t = Mul (q, w) y = Add (t, c)", XB, "sb"),
    "casts without effect": (
        "rms", "x1 = Cast <to = 1> (x) x2 = Cast <to = 1> (x) p = Pow (x1, two) m = ReduceMean (p, last) "
        "e = Add (m, eps) r = Sqrt (e) q = Div (x2, r) q2 = Cast <to = 1> (q) y = Mul (w, q2)", X, "s",
    ),
    "half island": (
        "rms", ISLAND + "o = Cast <to = 10> (q) y = Mul (w, o)",
        "float16[b, s, 16] x, float16[16] w", "s",
    ),
    "half island with its scale": (
        "rms", ISLAND + "w1 = Cast <to = 1> (w) o = Mul (q, w1) y = Cast <to = 10> (o)",
        "float16[b, s, 16] x, float16[16] w", "s",
    ),
    "centred": ("layer", CENTRED + "q = Div (d, r) t = Mul (q, w) y = Add (t, c)", XB, "sb"),
    "centred twice": (
        "layer",
        CENTRED + "d2 = Sub (x, u) v = Reciprocal (r) q = Mul (d2, v) t = Mul (q, w) y = Add (c, t)",
        XB, "sb",
    ),
    "mean of squares less square of the mean": (
        "layer",
        """u = ReduceMean (x, last) d = Sub (x, u) p = Mul (x, x) m2 = ReduceMean (p, last)
        u2 = Mul (u, u) var = Sub (m2, u2) e = Add (var, eps) r = Sqrt (e)
        q = Div (d, r) t = Mul (q, w) y = Add (t, c)""",
        XB, "sb",
    ),
    "operator": ("layer", "y = LayerNormalization <epsilon = 0.01> (x, w, c)", XB, "sb"),
    "operator without bias": (
        "layer", "t = LayerNormalization <epsilon = 0.01> (x, w) y = Add (t, c)", XB, "sb",
    ),
    "groups by instances": (
        "group",
        GROUP + "i = InstanceNormalization <epsilon = 0.01> (z, ones, zeros) o = Reshape (i, whole) "
        "t = Mul (o, w) y = Add (t, c)",
        IMAGE, "sb",
    ),
    "groups by means": (
        "group",
        GROUP + CENTRED.replace("(x,", "(z,") + """i = Div (d, r) o = Reshape (i, whole)
        t = Mul (o, w) y = Add (t, c)""",
        IMAGE, "sb",
    ),
}  # fmt: skip


class Kernel(NormFusionPass):
    takes = ("bias",)

    def Replacement(self, norm: NormCall) -> EsTensor | Sequence[EsTensor] | Refusal:
        return es.op("npu::Norm")(
            norm.x, norm.scale, norm.bias, epsilon=norm.epsilon, groups=norm.groups, axis=norm.axis
        )


KINDS = {
    kind: REG_FUSION_PASS(stage=AFTER)(type(kind.title(), (Kernel,), {"kind": kind}))
    for kind in ("layer", "rms", "group")
}
PLAIN = {
    kind: REG_FUSION_PASS(stage=AFTER)(
        type(
            f"Plain{kind.title()}",
            (NormFusionPass,),
            {
                "kind": kind,
                "Replacement": lambda self, norm: es.op("npu::Norm")(
                    norm.x, norm.scale, epsilon=norm.epsilon, groups=norm.groups
                ),
            },
        )
    )
    for kind in ("layer", "rms", "group")
}


@REG_FUSION_PASS(stage=AFTER)
class Sum(NormFusionPass):
    takes = ("residual", "residual bias")

    def Replacement(self, norm: NormCall) -> EsTensor | Sequence[EsTensor] | Refusal:
        result = es.op("npu::AddNorm")(
            norm.x,
            norm.residual,
            norm.scale,
            norm.residual_bias,
            epsilon=norm.epsilon,
        )
        return result[0], result[1]


@REG_FUSION_PASS(stage=AFTER)
class SumAlone(NormFusionPass):
    takes = ("residual",)

    def Replacement(self, norm: NormCall) -> EsTensor | Sequence[EsTensor] | Refusal:
        operands = (norm.x, norm.residual, norm.scale)
        return es.op("npu::AddNorm")(*operands, epsilon=norm.epsilon, groups=norm.groups)


def model(body: str, inputs: str, opset: int = 18, outputs: str = "float[?] y") -> onnx.ModelProto:
    if "float16" in inputs:
        outputs = outputs.replace("float", "float16")
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    return parse(f"{head}({inputs}) => ({outputs}) <{CONSTANTS}> {{ {body} }}")


def described(proto: onnx.ModelProto) -> list[Norm]:
    graph = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(graph)
    results = [norm for _, norm in norms(Views.shared(graph.graph))]
    return [norm for norm in results if isinstance(norm, Norm)]


def assert_equal(before: onnx.ModelProto, after: onnx.ModelProto, tolerance: float = 1e-5) -> None:
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    for seed, sizes in enumerate(({"b": 3, "s": 5}, {"b": 1, "s": 1})):
        feed = random_feed(graph, sizes, np.random.default_rng(seed))
        for one, other in zip(run(before, feed), run(after, feed), strict=True):
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)


def calls(proto: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in proto.graph.node if node.domain == "npu"]


@pytest.mark.parametrize("name", FORMS)
def test_each_spelling_is_described(name: str) -> None:
    kind, body, inputs, vectors = FORMS[name]
    (norm,) = described(model(body, inputs))
    assert norm.kind == kind
    assert "".join(n[0] for n in ("scale", "bias") if getattr(norm, n) is not None) == vectors
    assert (norm.x.name, norm.epsilon) == ("x", pytest.approx(0.01))
    assert norm.groups == (4 if kind == "group" else 1)
    assert norm.result.name == "y" or name == "scale of other axes"


@pytest.mark.parametrize("passes", [KINDS, PLAIN])
@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_takes_its_place_with_equal_numbers(name: str, passes: dict[str, Any]) -> None:
    kind, body, inputs, _ = FORMS[name]
    before = model(body, inputs)
    after, record = run_pass(before, passes[kind], cleanup=True)
    assert (record.replaced, dict(record.rejected), len(calls(after))) == (1, {}, 1)
    assert not {"Sqrt", "Pow", "ReduceMean"} & {node.op_type for node in after.graph.node}
    assert_equal(before, after, 2e-3 if "half" in name else 1e-5)


@pytest.mark.parametrize("kind", ["layer", "rms", "group"])
def test_another_kind_is_not_asked(kind: str) -> None:
    own, body, inputs, _ = FORMS["quotient"]
    _, record = run_pass(model(body, inputs), KINDS[kind])
    assert (record.replaced, dict(record.rejected)) == (int(kind == own), {})


RESIDUAL = "float[b, s, 16] a, float[b, s, 16] stream, float[16] w, float[16] k"
ADDED = "t0 = Neg (a) t1 = Add (t0, k) x = Add (t1, stream) "


@pytest.mark.parametrize("kernel", [Sum, SumAlone, PLAIN["rms"]])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_sum_is_given_in_parts(kernel: type[NormFusionPass], is_read: bool) -> None:
    outputs = "float[?] y, float[?] z" if is_read else "float[?] y"
    body = ADDED + MEAN + BY_ROOT + SCALED + (" z = Neg (x)" if is_read else "")
    before = model(body, RESIDUAL, outputs=outputs)
    after, record = run_pass(before, kernel, cleanup=True)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    (call,) = calls(after)
    sums = [node for node in after.graph.node if node.op_type == "Add"]
    if kernel is Sum:
        assert list(call.input) == ["t0", "stream", "w", "k"]
        assert (len(sums), len(call.output)) == (0, 2)
    elif kernel is SumAlone:
        assert list(call.input) == ["t1", "stream", "w"]
        assert len(sums) == 1 + is_read
    else:
        assert list(call.input) == ["x", "w"]
    assert_equal(before, after)


@REG_FUSION_PASS(stage=AFTER)
class SumThatSpreads(SumAlone):
    takes = ("residual", "spread residual")


@pytest.mark.parametrize("kernel", [SumAlone, SumThatSpreads])
def test_a_table_that_spreads_is_a_residual_where_the_kernel_takes_it(
    kernel: type[NormFusionPass],
) -> None:
    body = "x = Add (a, t) " + MEAN + BY_ROOT + SCALED
    before = model(body, "float[b, s, 16] a, float[1, s, 16] t, float[16] w")
    after, record = run_pass(before, kernel)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    assert [*calls(after)[0].input] == (["x", "", "w"] if kernel is SumAlone else ["a", "t", "w"])
    assert_equal(before, after)


TURNED = """z0, z1 = Split <axis = -1, num_outputs = 2> (z) n0 = Neg (z1) t0 = Concat <axis = -1> (n0, z0)
    g = Concat <axis = -1> (f, f) c0 = Cos (g) s0 = Sin (g) e0 = Mul (z, c0) f0 = Mul (t0, s0)"""


@pytest.mark.parametrize(
    ("products", "is_residual"),
    [
        (TURNED, False),
        (TURNED.replace("Neg", "Abs"), True),
        ("e0 = Mul (z, w) f0 = Mul (z, c)", True),
    ],
)
def test_the_sum_of_a_rotation_is_no_residual(products: str, *, is_residual: bool) -> None:
    body = f"{products} x = Add (e0, f0) " + MEAN + BY_ROOT + SCALED
    inputs = f"{XB}, float[b, s, 16] z, float[s, 8] f".replace("float[b, s, 16] x, ", "")
    (norm,) = described(model(body, inputs))
    assert (norm.residual is not None) is is_residual


def test_sizes_that_may_differ_make_no_residual() -> None:
    body = "x = Add (a, t) " + MEAN + BY_ROOT + SCALED
    (norm,) = described(model(body, "float[b, s, 16] a, float[b, u, 16] t, float[16] w"))
    assert norm.residual is None


REFUSALS = {
    "an epsilon of more axes than x": (
        MEAN.replace("eps", "eps4") + BY_ROOT + SCALED, X, "quotient",
    ),
    "no epsilon": (MEAN.replace("e = Add (m, eps)", "e = Identity (m)") + BY_ROOT + SCALED, X, "epsilon"),
    "epsilon 0": (MEAN.replace("eps", "zero") + BY_ROOT + SCALED, X, "epsilon"),
    "another axis": (MEAN.replace("last", "first") + BY_ROOT + SCALED, X, "axes"),
    "two axes": (MEAN.replace("last", "tail") + BY_ROOT + "y = Identity (q)", X, "axes"),
    "another numerator": (
        MEAN + BY_ROOT.replace("(x,", "(o,") + SCALED, f"{X}, float[b, s, 16] o", "quotient",
    ),
    "a mean of another tensor": (
        CENTRED.replace("ReduceMean <keepdims = 1> (x", "ReduceMean <keepdims = 1> (o")
        + "q = Div (x, r) " + SCALED,
        f"{X}, float[b, s, 16] o", "quotient",
    ),
    "the axes exchanged": (
        MEAN.replace("e = Add", "m9 = Transpose <perm = [1, 0, 2]> (m) e = Add").replace("(m, eps", "(m9, eps")
        + BY_ROOT + SCALED,
        "float[s, s, 16] x, float[16] w", "quotient",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_near_miss_stays(name: str) -> None:
    body, inputs, key = REFUSALS[name]
    _, record = run_pass(model(body, inputs), PLAIN["rms"])
    assert (record.replaced, dict(record.rejected)) == (0, {key: 1})


def test_no_root_of_a_mean_is_no_near_miss() -> None:
    body = "e = ReduceMean (x, last) r = Sqrt (e) y = Div (x, r)"
    _, record = run_pass(model(body, "float[b, s, 16] x"), PLAIN["rms"])
    assert (record.replaced, dict(record.rejected)) == (0, {})


@pytest.mark.parametrize("opset", [11, 13, 17, 21, 23])
def test_opsets(opset: int) -> None:
    for name in ("quotient", "centred", "groups by instances"):
        kind, body, inputs, _ = FORMS[name]
        if opset < 18:
            body = body.replace("<keepdims = 1>", "<axes = [-1]>").replace(", last)", ")")
        before = model(body, inputs, opset)
        after, record = run_pass(before, KINDS[kind])
        assert record.replaced == 1, name
        assert_equal(before, after)


@pytest.mark.parametrize("passes", [KINDS, PLAIN])
@pytest.mark.parametrize(
    ("kind", "body", "inputs", "opset"),
    [
        ("rms", "y = RMSNormalization <epsilon = 0.01> (x, w)", X, 23),
        (
            "group",
            "y = GroupNormalization <num_groups = 4, epsilon = 0.01> (x, w, c)",
            "float[b, 8, 3, 5] x, float[8] w, float[8] c",
            21,
        ),
    ],
)
def test_operators_of_newer_opsets(
    kind: str, body: str, inputs: str, opset: int, passes: dict[str, Any]
) -> None:
    before = model(body, inputs, opset)
    after, record = run_pass(before, passes[kind])
    assert record.replaced == 1
    assert_equal(before, after)


def test_an_axis_of_0_elements_has_no_groups() -> None:
    body = CENTRED + "q = Div (d, r) y = Mul (q, w)"
    (norm,) = described(model(body, "float[b, 0, 16] x, float[16] w"))
    assert (norm.kind, norm.groups) == ("layer", 1)


def test_a_scale_for_each_group_is_named() -> None:
    body = FORMS["groups by instances"][1].replace("zeros", "ones")
    _, record = run_pass(model(body, IMAGE), PLAIN["group"])
    assert dict(record.rejected) == {"scale": 1}


@REG_FUSION_PASS(stage=AFTER)
class Followed(NormFusionPass):
    kinds = ("rms", "group")
    takes = ("bias", "silu", "swish")

    def Replacement(self, norm: NormCall) -> EsTensor | Sequence[EsTensor] | Refusal:
        return es.op("npu::Norm")(
            norm.x,
            norm.scale,
            norm.bias,
            function=norm.activation,
            alpha=norm.alpha,
            kind=norm.kind,
            epsilon=norm.epsilon,
            groups=norm.groups,
        )


@pytest.mark.parametrize(
    ("behind", "function", "alpha"),
    [
        ("g = Sigmoid (k) y = Mul (k, g)", "silu", 1.0),
        ("h = Mul (k, two) g = Sigmoid (h) y = Mul (g, k)", "swish", 2.0),
        ("y = Tanh (k)", "", 1.0),
        ("g = Sigmoid (k) s = Mul (k, g) y = Add (s, k)", "", 1.0),
    ],
)
@pytest.mark.parametrize("name", ["quotient", "groups by instances"])
def test_a_function_of_the_result(name: str, behind: str, function: str, alpha: float) -> None:
    _, body, inputs, _ = FORMS[name]
    before = model(body.replace("y =", "k =") + " " + behind, inputs)
    after, record = run_pass(before, Followed, cleanup=True)
    assert record.replaced == 1
    (call,) = calls(after)
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in call.attribute}
    assert (attributes["function"], attributes["alpha"]) == (function.encode(), alpha)
    left = {"Sigmoid", "Tanh"} & {node.op_type for node in after.graph.node}
    assert bool(left) == (not function)
    assert_equal(before, after)


def test_a_bias_before_the_stream_comes_first() -> None:
    """The addend that the stream is made of has the bias."""
    body = "x0 = Add (stream, k) a0 = Neg (a) x = Add (x0, a0) " + MEAN + BY_ROOT + SCALED
    before = model(body, RESIDUAL)
    after, _ = run_pass(before, Sum, cleanup=True)
    (call,) = calls(after)
    assert list(call.input) == ["stream", "a0", "w", "k"]
    assert_equal(before, after)


@pytest.mark.parametrize("is_read", [True, False])
def test_the_size_of_a_sum_leads_back_to_the_norm(is_read: bool) -> None:
    """With other readers of the size, the graph's own sum stays."""
    body = f"x = Add (a, b) size = Shape (x) {FORMS['groups by instances'][1]}"
    body = body.replace("(i, whole)", "(i, size)") + (
        " f = Cast <to = 1> (size)" if is_read else ""
    )
    inputs = IMAGE.replace("x,", "a, float[b, 8, 3, 5] b,")
    outputs = "float[?] y, float[?] f" if is_read else "float[?] y"
    before = model(body, inputs, outputs=outputs)
    group = REG_FUSION_PASS(stage=AFTER)(type("GroupSum", (SumAlone,), {"kind": "group"}))
    after, record = run_pass(before, group, cleanup=True)
    assert record.replaced == 1
    assert (calls(after)[0].input[1] in ("a", "b")) == (not is_read)
    assert_equal(before, after)


def test_a_kernel_may_want_its_scale_in_another_type() -> None:
    class Wide(NormFusionPass):
        def Replacement(self, norm: NormCall) -> EsTensor:
            norm.vector_type = DataType.FLOAT
            assert norm.epsilon
            return norm.x * es.CastLike(norm.scale, norm.x)

    inputs = "float16[b, s, 16] x, float16[1, 16] w"
    before = model(FORMS["half island"][1], inputs)
    after, record = run_pass(before, REG_FUSION_PASS(stage=AFTER)(Wide))
    assert record.replaced == 1
    operators = [node.op_type for node in after.graph.node]
    assert operators == ["Squeeze", "Cast", "CastLike", "Mul"]


def test_a_tensor_inside_that_others_use_is_named() -> None:
    class Careful(NormFusionPass):
        def Replacement(self, norm: NormCall) -> EsTensor | Refusal:
            if norm.shared:
                return norm.reject(f"shared: {norm.shared[0].name}")
            return es.op("npu::Norm")(norm.x, norm.scale, epsilon=norm.epsilon)

    before = model(FORMS["quotient"][1], X, outputs="float[?] y, float[?] p")
    _, record = run_pass(before, REG_FUSION_PASS(stage=AFTER)(Careful))
    assert (record.replaced, dict(record.rejected)) == (0, {"shared": 1})


EXPORTS = {
    "tests/models/bert.ts17.onnx": ("layer", 5),
    "tests/models/llama.ts17.onnx": ("rms", 5),
    "plugins/semantic/tests/models/gemma3_past.dyn.eager.onnx": ("rms", 13),
    "plugins/semantic/tests/models/vae_attn.ts.eager.onnx": ("group", 1),
}


@pytest.mark.parametrize("path", EXPORTS)
def test_it_fires_on_exports_with_equal_numbers(path: str) -> None:
    kind, count = EXPORTS[path]
    before = onnx.load(REPOSITORY / path)
    for kernel in (KINDS[kind], Sum) if kind == "rms" else (KINDS[kind],):
        after, record = run_pass(before, kernel, cleanup=True)
        assert (record.replaced, dict(record.rejected)) == (count, {})
        graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
        sizes = {"batch": 2, "seq": 9, "past": 4, "height": 4, "width": 6}
        feed = random_feed(graph, sizes, np.random.default_rng(0))
        for one, other in zip(run(before, feed), run(after, feed), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"kind": "batch"}, "there is no 'batch'"),
        ({"takes": {"sum"}}, "there is no feature 'sum'"),
        ({"Replacement": lambda self, norm: ()}, "got 0"),
    ],
)
def test_a_mistake_is_named(wrong: dict[str, Any], text: str) -> None:
    result = REG_FUSION_PASS(stage=AFTER)(type("Wrong", (PLAIN["rms"],), wrong))
    with pytest.raises(PassError, match=text):
        run_pass(model(*FORMS["quotient"][1:3]), result)


def test_a_tensor_that_the_replacement_leaves_out_is_refused() -> None:
    result = REG_FUSION_PASS(stage=AFTER)(
        type("Less", (Kernel,), {"Replacement": lambda self, norm: es.op("npu::N")(norm.x)})
    )
    _, record = run_pass(model(*FORMS["quotient"][1:3]), result)
    assert (record.replaced, dict(record.rejected)) == (0, {"scale": 1})
