"""Rotary embeddings in each spelling: what is described, replaced, and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import REG_FUSION_PASS, CustomPassStage, EsTensor, PassError, es
from gehost.ir.model import Model
from gehost.testing import parse, run_pass
from gehost_semantic import Rotary, RotaryCall, RotaryFusionPass, Views
from gehost_semantic.rotary import rotations
from plugins.semantic.tests.test_passes import assert_equal, run
from tools.semantic.check import random_feed

REPOSITORY = Path(__file__).parents[3]
AFTER = CustomPassStage.kAfterInferShape
CONSTANTS = """int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64[1] i3 = {3},
    int64[1] i4 = {4}, int64[1] i5 = {5}, int64[1] i8 = {8}, int64[1] i9 = {99}, int64[1] m1 = {-1},
    int64[1] m2 = {-2}, float k = {1.5}, int64[5] pairs = {0, 0, 0, 4, 2}, int64[4] flat = {0, 0, 0, 8},
    int64[4] heads = {0, 0, 4, 8}, int64[3] merged = {0, 0, 32}"""
ANGLES = """
    t = Concat <axis = -1> (f, f) c = Cos (t) s0 = Sin (t)
    cos = Unsqueeze (c, i1) sin = Unsqueeze (s0, i1)"""
TURNED = """
    low = Slice (x, i0, i4, m1) high = Slice (x, i4, i9, m1) minus = Neg (high)
    r = Concat <axis = -1> (minus, low)"""
HALVES = """
    low = Slice (x, i0, i4, m1) high = Slice (x, i4, i9, m1)"""
PAIRS = """
    low = Slice (x, i0, i9, m1, i2) high = Slice (x, i1, i9, m1, i2)"""
BY_HALF = """
    a = Mul (low, c) b = Mul (high, s0) y0 = Sub (a, b)
    d = Mul (high, c) e = Mul (low, s0) y1 = Add (d, e)"""
SUM = """
    a = Mul (x, cos) b = Mul (r, sin) y = Add (a, b)"""
X = "float[b, 4, s, 8] x"
F = "float[b, s, 4] f"
HALF_TABLES = "float[b, 1, s, 4] c, float[b, 1, s, 4] s0"
NEXT = """
    p = Reshape (x, pairs) low0, high0 = Split <axis = 4, num_outputs = 2> (p)
    low = Squeeze (low0, m1) high = Squeeze (high0, m1)"""
STACK = """
    z0 = Unsqueeze (y0, m1) z1 = Unsqueeze (y1, m1)
    z = Concat <axis = -1> (z0, z1) y = Reshape (z, flat)"""
EVERY_TWO = (
    PAIRS
    + """
    minus = Neg (high) n = Unsqueeze (minus, m1) l = Unsqueeze (low, m1)
    w = Concat <axis = -1> (n, l) r = Reshape (w, flat)
    c4 = Unsqueeze (c, m1) s4 = Unsqueeze (s0, m1)
    c5 = Concat <axis = -1> (c4, c4) s5 = Concat <axis = -1> (s4, s4)
    cos = Reshape (c5, flat) sin = Reshape (s5, flat)"""
)

FORMS = {
    # body, inputs, pairs of neighbours, partial
    "computed": (ANGLES + TURNED + SUM, f"{X}, {F}", False, False),
    "scaled": (
        ANGLES.replace("c = Cos (t)", "c0 = Cos (t) c = Mul (c0, k)") + TURNED + SUM,
        f"{X}, {F}", False, False,
    ),
    "joined tables": (
        "cos = Concat <axis = -1> (c, c) sin = Concat <axis = -1> (s0, s0)" + TURNED + SUM,
        f"{X}, {HALF_TABLES}", False, False,
    ),
    "other order": (
        ANGLES + TURNED + "a = Mul (cos, x) b = Mul (sin, r) y = Add (b, a)",
        f"{X}, {F}", False, False,
    ),
    "difference": (
        ANGLES + HALVES + "minus = Neg (low) r = Concat <axis = -1> (high, minus)"
        "a = Mul (x, cos) b = Mul (r, sin) y = Sub (a, b)",
        f"{X}, {F}", False, False,
    ),
    "halves": (HALVES + BY_HALF + "y = Concat <axis = -1> (y0, y1)", f"{X}, {HALF_TABLES}", False, False),
    "backwards": (
        HALVES + BY_HALF.replace("Sub", "Swap").replace("Add", "Sub").replace("Swap", "Add")
        + "y = Concat <axis = -1> (y0, y1)",
        f"{X}, {HALF_TABLES}", False, False,
    ),
    "split": (
        "low, high = Split <axis = 3, num_outputs = 2> (x)" + BY_HALF
        + "y = Concat <axis = -1> (y0, y1)",
        f"{X}, {HALF_TABLES}", False, False,
    ),
    "stacked halves": (
        HALVES + BY_HALF + """z0 = Unsqueeze (y0, i3) z1 = Unsqueeze (y1, i3)
        z = Concat <axis = 3> (z0, z1) y = Reshape (z, flat)""",
        f"{X}, {HALF_TABLES}", False, False,
    ),
    "every second": (PAIRS + BY_HALF + STACK, f"{X}, {HALF_TABLES}", True, False),
    "pairs": (NEXT + BY_HALF + STACK, f"{X}, {HALF_TABLES}", True, False),
    "neighbours to halves": (
        PAIRS + BY_HALF + "y = Concat <axis = -1> (y0, y1)", f"{X}, {HALF_TABLES}", False, False,
    ),
    "halves to neighbours": (HALVES + BY_HALF + STACK, f"{X}, {HALF_TABLES}", True, False),
    "part in pairs": (
        "x = Slice (w, i0, i8, m1) rest = Slice (w, i8, i9, m1)" + PAIRS + BY_HALF
        + STACK.replace("y =", "u =") + "y = Concat <axis = -1> (u, rest)",
        f"float[b, 4, s, 11] w, {HALF_TABLES}", True, True,
    ),
    "rotate every two": (EVERY_TWO + SUM, f"{X}, {HALF_TABLES}", True, False),
    "neighbours become halves": (
        """p = Reshape (x0, pairs) q = Transpose <perm = [0, 1, 2, 4, 3]> (p)
        x = Reshape (q, flat)""" + ANGLES + TURNED + SUM,
        f"{X}0, {F}", False, False,
    ),
    "part and rest": (
        "x = Slice (w, i0, i8, m1) rest = Slice (w, i8, i9, m1)" + ANGLES + TURNED + SUM.replace("y =", "u =")
        + "y = Concat <axis = -1> (u, rest)",
        f"float[b, 4, s, 11] w, {F}", False, True,
    ),
    "three pieces": (
        "x = Slice (w, i0, i8, m1) rest = Slice (w, i8, i9, m1)" + HALVES + BY_HALF
        + "y = Concat <axis = -1> (y0, y1, rest)",
        f"float[b, 4, s, 11] w, {HALF_TABLES}", False, True,
    ),
    "the last part": (
        "x = Slice (w, i5, i9, m1) rest = Slice (w, i0, i5, m1)" + ANGLES + TURNED + SUM.replace("y =", "u =")
        + "y = Concat <axis = -1> (rest, u)",
        f"float[b, 4, s, 13] w, {F}", False, True,
    ),
    "length first": (
        ANGLES.replace("(c, i1)", "(c, i2)").replace("(s0, i1)", "(s0, i2)") + TURNED + SUM,
        f"float[b, s, 4, 8] x, {F}", False, False,
    ),
    "packed heads": (
        "x0 = Reshape (w, heads) x = Transpose <perm = [0, 2, 1, 3]> (x0)" + ANGLES + TURNED + SUM,
        f"float[b, s, 32] w, {F}", False, False,
    ),
    "no batch": (ANGLES + TURNED + SUM, "float[s, 4, 8] x, float[s, 4] f", False, False),
    "half precision": (
        ANGLES.replace("c = Cos (t) s0 = Sin (t)", """c9 = Cos (t) s9 = Sin (t)
        c = Cast <to = 10> (c9) s0 = Cast <to = 10> (s9)""") + TURNED + SUM,
        f"float16[b, 4, s, 8] x, {F}", False, False,
    ),
    "island": (
        "x = Cast <to = 1> (h)" + ANGLES + TURNED + SUM.replace("y =", "u =")
        + "y = Cast <to = 10> (u)",
        f"float16[b, 4, s, 8] h, {F}", False, False,
    ),
}  # fmt: skip


@REG_FUSION_PASS(stage=AFTER)
class Plain(RotaryFusionPass):
    def Replacement(self, rotary: RotaryCall) -> EsTensor:
        return es.op("npu::Rotary")(
            rotary.x,
            rotary.cos,
            rotary.sin,
            size=rotary.rotary_size,
            interleaved=int(rotary.interleaved),
        )


@REG_FUSION_PASS(stage=AFTER)
class HeadsFirst(Plain):
    takes = ("interleaved", "partial")
    layout = "b h s d"


@REG_FUSION_PASS(stage=AFTER)
class Parts(Plain):
    takes = ("partial",)


@REG_FUSION_PASS(stage=AFTER)
class LengthFirst(Plain):
    layout = "b s h d"


def model(body: str, inputs: str, opset: int = 18) -> onnx.ModelProto:
    kind = "float16" if "float16" in inputs else "float"
    head = f'<ir_version: 9, opset_import: ["" : {opset}]> g '
    return parse(f"{head}({inputs}) => ({kind}[?] y) <{CONSTANTS}> {{ {body} }}")


def described(proto: onnx.ModelProto) -> list[Rotary]:
    graph = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    from gehost import infer_model

    infer_model(graph)
    results = [rotary for _, rotary in rotations(Views.shared(graph.graph))]
    return [rotary for rotary in results if isinstance(rotary, Rotary)]


@pytest.mark.parametrize("name", FORMS)
def test_each_spelling_is_described(name: str) -> None:
    body, inputs, interleaved, partial = FORMS[name]
    (rotary,) = described(model(body, inputs))
    assert (rotary.interleaved, rotary.is_partial) == (interleaved, partial)
    assert (rotary.rotary_size, rotary.result.name) == (8, "u" if name == "island" else "y")


@pytest.mark.parametrize("kernel", [Plain, HeadsFirst, LengthFirst, Parts])
@pytest.mark.parametrize("name", FORMS)
def test_a_kernel_takes_its_place_with_equal_numbers(name: str, kernel: type[Plain]) -> None:
    body, inputs, *_ = FORMS[name]
    before = model(body, inputs)
    after, record = run_pass(before, kernel, cleanup=True)
    assert (record.replaced, dict(record.rejected)) == (1, {})
    (call,) = [node for node in after.graph.node if node.domain == "npu"]
    assert len(call.input) == 3
    rest = [node.op_type for node in after.graph.node if node.op_type in ("Add", "Sub", "Neg")]
    assert rest == []
    graph = Model(onnx.ModelProto.FromString(before.SerializeToString())).graph
    tolerance = 2e-3 if "half" in name else 1e-5
    for seed, sizes in enumerate(({"b": 3, "s": 5}, {"b": 1, "s": 1}, {"b": 0, "s": 4})):
        feed = random_feed(graph, sizes, np.random.default_rng(seed))
        for one, other in zip(run(before, feed), run(after, feed), strict=True):
            np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance)


def test_a_kernel_for_parts_gets_whole_heads() -> None:
    body, inputs, *_ = FORMS["part and rest"]
    for kernel, width in ((HeadsFirst, "w"), (Plain, None)):
        after, _ = run_pass(model(body, inputs), kernel, cleanup=True)
        (call,) = [node for node in after.graph.node if node.domain == "npu"]
        assert (call.input[0] == "w") == (width == "w")
    assert not any(node.op_type == "Concat" for node in run_pass(model(body, inputs), HeadsFirst,
        cleanup=True)[0].graph.node if "w" in node.input)  # fmt: skip


@pytest.mark.parametrize("opset", [11, 13, 17, 21, 23])
def test_opsets(opset: int) -> None:
    body, inputs, *_ = FORMS["packed heads"]
    if opset < 13:
        body = body.replace("Unsqueeze (c, i1)", "Unsqueeze <axes = [1]> (c)").replace(
            "Unsqueeze (s0, i1)", "Unsqueeze <axes = [1]> (s0)"
        )
    before = model(body, inputs, opset)
    for kernel in (Plain, HeadsFirst):
        after, record = run_pass(before, kernel)
        assert record.replaced == 1
        assert_equal(before, after, {"b": 3, "s": 4})


TABLE = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)


@pytest.mark.parametrize("is_equal", [True, False])
def test_constant_tables_are_compared_as_numbers(is_equal: bool) -> None:
    body = "cos = Gather (cs, ids) sin = Gather (ss, ids) c = Identity (cos)" + TURNED + SUM
    proto = model(body, "float[4, s, 8] x, int64[s] ids, float[16, 8] cs, float[16, 8] ss")
    for name, table in (("cs", np.cos(TABLE)), ("ss", np.sin(TABLE))):
        whole = np.concatenate([table, table if is_equal else table + 1], axis=1)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(whole, name))
        proto.graph.input.pop()
    after, record = run_pass(proto, Plain)
    assert (record.replaced, dict(record.rejected)) == ((1, {}) if is_equal else (0, {"halves": 1}))
    if is_equal:
        feed = {
            "x": np.random.default_rng(1).standard_normal((4, 3, 8)).astype(np.float32),
            "ids": np.array([3, 0, 9]),
        }
        np.testing.assert_allclose(run(after, feed)[0], run(proto, feed)[0], rtol=1e-5, atol=1e-6)


REFUSALS = {
    "tables that may differ": (
        TURNED + SUM, f"{X}, float[b, 1, s, 8] cos, float[b, 1, s, 8] sin", "halves",
    ),
    "equal signs": (
        HALVES + BY_HALF.replace("Sub", "Add") + "y = Concat <axis = -1> (y0, y1)",
        f"{X}, {HALF_TABLES}", "signs",
    ),
    "an element exchanged": (
        HALVES + BY_HALF + "y = Concat <axis = -1> (y1, y0)", f"{X}, {HALF_TABLES}", "signs",
    ),
    "cos scaled in one half": (
        HALVES + BY_HALF.replace("d = Mul (high, c)", "d0 = Mul (high, c) d = Mul (d0, k)")
        + "y = Concat <axis = -1> (y0, y1)",
        f"{X}, {HALF_TABLES}", "signs",
    ),
    "quarters": (
        ANGLES + TURNED.replace("i0, i4", "i0, i2").replace("i4, i9", "i2, i9") + SUM,
        f"{X}, {F}", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_a_near_miss_stays(name: str) -> None:
    body, inputs, key = REFUSALS[name]
    _, record = run_pass(model(body, inputs), Plain)
    assert (record.replaced, dict(record.rejected)) == (0, {key: 1} if key else {})


EXPORTS = {
    "tests/models/llama.ts17.onnx": 4,
    "plugins/semantic/tests/models/gemma3_past.dyn.eager.onnx": 4,
}


@pytest.mark.parametrize("path", EXPORTS)
def test_it_fires_on_exports_with_equal_numbers(path: str) -> None:
    before = onnx.load(REPOSITORY / path)
    after, record = run_pass(before, HeadsFirst, cleanup=True)
    assert record.replaced == EXPORTS[path]
    assert_equal(before, after, {"batch": 3, "seq": 9, "past": 4})


def test_a_layout_that_does_not_exist_is_named() -> None:
    wrong = REG_FUSION_PASS(stage=AFTER)(type("Wrong", (Plain,), {"layout": "s b d"}))
    with pytest.raises(PassError, match="there is no 's b d'"):
        run_pass(model(*FORMS["computed"][:2]), wrong)
