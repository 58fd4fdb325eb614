"""Operators with bodies in float16: whole in float32, or half inside with types that agree."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import onnx.checker
import onnx.parser
import pytest

from gehost.half import HalfConversion, judge, to_float16
from gehost.half.judge import with_rounded_weights
from gehost.ir.bodies import node_lists
from gehost.testing import parse

onnxruntime = pytest.importorskip("onnxruntime")
_DRAW = np.random.default_rng(0)
X = _DRAW.normal(size=(5, 32)).astype(np.float32)
A = (_DRAW.normal(size=(32, 32)) * 30).astype(np.float32)
B = (_DRAW.normal(size=(32, 32)) * 240).astype(np.float32)
SMALL = {"A": A / 150, "B": B / 800}
LARGE = {"A": A, "B": B}
SIZES: dict[str, Any] = {
    "rows": np.array([-1, 1], np.int64),
    "axis": np.array([0], np.int64),
    "two": np.array(2, np.int64),
    "yes": np.array(True),
    "h": np.array(0.3, np.float32),
    "start": np.zeros(32, np.float32),
}
PRODUCTS = "p = MatMul ({0}, A) q = MatMul (p, B)"
# what divides is as large as the numbers, but moved: neither rule nor neighbour keeps it in float32
NORM = """{1}a = Abs ({0}) {1}t = Transpose <perm = [1, 0]> ({1}a)
{1}m = ReduceMax <axes = [0], keepdims = 1> ({1}t) {1}r = Reshape ({1}m, rows)
{1} = Div ({0}, {1}r)"""
FLAG = {"c": np.array(True)}
HEAD = '<ir_version: 9, opset_import: ["": 17, "my": 1]> g '
LOOP = "<body = b (int64 i, bool k, float[n, 32] s) => "


def model(text: str, weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a model with the weights that it reads."""
    words = set(re.findall(r"\w+", text))
    arrays = {name: array for name, array in {**SIZES, **weights}.items() if name in words}
    return parse(HEAD + text, arrays)


def branch(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return an If whose branch reads a product around it."""
    return model(
        f"""(float[n, 32] x, bool c) => (float[n, 32] y) {{ {PRODUCTS.format("x")}
        y = If (c) <then_branch = t () => (float[n, 32] u) {{ {NORM.format("q", "u")} }},
        else_branch = e () => (float[n, 32] v) {{ v = Mul (x, h) }}> }}""",
        weights,
    )


def result_of_branch(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return an If whose branch makes a product."""
    return model(
        f"""(float[n, 32] x, bool c) => (float[n, 32] y) {{ z = Mul (x, h)
        w = If (c) <then_branch = t () => (float[n, 32] q) {{ {PRODUCTS.format("z")} }},
        else_branch = e () => (float[n, 32] v) {{ v = Relu (z) }}> {NORM.format("w", "y")} }}""",
        weights,
    )


def inside(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return an If whose branch makes a product and normalizes it."""
    return model(
        f"""(float[n, 32] x, bool c) => (float[n, 32] y) {{ z = Mul (x, h)
        y = If (c) <then_branch = t () => (float[n, 32] u)
        {{ {PRODUCTS.format("z")} {NORM.format("q", "u")} }},
        else_branch = e () => (float[n, 32] v) {{ v = Relu (z) }}> }}""",
        weights,
    )


def carried(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a Loop that begins with a product."""
    return model(
        f"""(float[n, 32] x) => (float[n, 32] y) {{ {PRODUCTS.format("x")}
        z = Loop (two, yes, q) {LOOP} (bool l, float[n, 32] o)
        {{ l = Identity (k) o = Mul (s, h) }}> {NORM.format("z", "y")} }}""",
        weights,
    )


def stacked(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a Loop that stacks products, and carries its input on."""
    return model(
        f"""(float[n, 32] x) => (float[n, 32] y) {{
        f, w = Loop (two, yes, x) {LOOP} (bool l, float[n, 32] o, float[n, 32] q)
        {{ l = Identity (k) {PRODUCTS.format("s")} o = Identity (s) }}>
        d = ReduceSum <keepdims = 0> (w, axis) {NORM.format("d", "y")} }}""",
        weights,
    )


def scan(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a Scan with a sum and a product."""
    return model(
        """(float[n, 32] x) => (float[32] f, float[n, 32] y) {
        f, y = Scan <num_scan_inputs = 1, body = b (float[32] s, float[32] r)
        => (float[32] o, float[32] q) { o = Add (s, r) q = MatMul (o, B) }> (start, x) }""",
        {"B": weights["B"] * 50},
    )


def nested(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return an If in a Loop, which reads a product around both."""
    return model(
        f"""(float[n, 32] x, bool c) => (float[n, 32] y) {{ {PRODUCTS.format("x")}
        y = Loop (two, yes, x) {LOOP} (bool l, float[n, 32] o) {{ l = Identity (k)
        o = If (c) <then_branch = t () => (float[n, 32] w) {{ {NORM.format("q", "u")}
        w = Sub (u, s) }}, else_branch = e () => (float[n, 32] v) {{ v = Mul (s, h) }}> }}> }}""",
        weights,
    )


def called(weights: dict[str, Any]) -> onnx.ModelProto:
    """Return a function that a Loop and the graph call."""
    text = f"""(float[n, 32] x) => (float[n, 32] y) {{ {PRODUCTS.format("x")}
    w = Loop (two, yes, x) {LOOP} (bool l, float[n, 32] o) {{ l = Identity (k)
    u = my.norm (q) o = Sub (u, s) }}> v = my.norm (x) y = Add (v, w) }}
    <domain: "my", opset_import: ["": 17, "my": 1]> norm (X) => (Y)
    {{ a = my.size (X) Y = Div (X, a) }}
    <domain: "my", opset_import: ["": 17]> size (X) => (Y)
    {{ a = Abs (X) Y = ReduceMax <axes = [-1], keepdims = 1> (a) }}"""
    return model(text, weights)


KINDS = [branch, result_of_branch, inside, carried, stacked, scan, nested, called]


def feeds_of(proto: onnx.ModelProto) -> list[dict[str, Any]]:
    names = {info.name for info in proto.graph.input}
    return [{name: array for name, array in {"x": X, **FLAG}.items() if name in names}]


def prove(proto: onnx.ModelProto, conversion: HalfConversion, feeds: list[dict[str, Any]]) -> None:
    """Compare a conversion with its original, optimized and as it is."""
    onnx.checker.check_model(conversion.model, full_check=True)
    onnx.shape_inference.infer_shapes(conversion.model, check_type=True, strict_mode=True)
    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        sessions = [
            onnxruntime.InferenceSession(item.SerializeToString(), options)
            for item in (proto, conversion.model)
        ]
        kinds = {"tensor(float16)": np.float16, "tensor(float)": np.float32}
        for feed in feeds:
            entry = {
                info.name: feed[info.name].astype(kinds.get(info.type, feed[info.name].dtype))
                for info in sessions[1].get_inputs()
            }
            expected = sessions[0].run(None, feed)
            for a, b in zip(expected, sessions[1].run(None, entry), strict=True):
                assert np.isfinite(b).all()
                assert np.abs(a - b).max() < 0.02 * np.abs(a).max()


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("keep", [(), ("If", "Loop", "Scan"), ("MatMul",)])
@pytest.mark.parametrize("make", KINDS)
def test_bodies_have_types_that_agree(make: Any, keep: tuple[str, ...], keep_io: bool) -> None:
    proto = make(SMALL)
    conversion = to_float16(proto, keep_float32=keep, keep_io=keep_io)
    prove(proto, conversion, feeds_of(proto))


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("make", KINDS)
def test_numbers_out_of_range_keep_bodies_in_float32(make: Any, keep_io: bool) -> None:
    """Where they are around a body at once, where they are inside of it in the cautious form."""
    proto = make(LARGE)
    feeds = feeds_of(proto)
    conversion = to_float16(proto, feeds=feeds, keep_io=keep_io)
    if make is inside:
        assert judge(proto, conversion, feeds).is_far
        conversion = to_float16(proto, feeds=feeds, keep_io=keep_io, cautious=True)
    if make is scan and not keep_io:
        return  # its output is out of range
    retained = [label for labels in conversion.kept.values() for label in labels]
    assert any(label.startswith(("If", "Loop", "Scan")) for label in retained)
    prove(proto, conversion, feeds)
    result = judge(proto, conversion, feeds)
    assert result.equal, result.summary()
    assert not result.is_far


@pytest.mark.parametrize("make", [branch, carried, stacked, nested, called])
def test_a_body_that_is_asked_for_has_no_half_inside(make: Any) -> None:
    conversion = to_float16(make(SMALL), keep_float32=["If", "Loop", "MatMul"])
    for node in conversion.model.graph.node:
        for entry in node.attribute:
            kinds = {info.type.tensor_type.elem_type for info in entry.g.output}
            assert onnx.TensorProto.FLOAT16 not in kinds
            assert not any(item.op_type == "Cast" for item in entry.g.node)


def test_branches_may_use_the_same_names() -> None:
    """One of them keeps a value in float32 that is half in the other."""
    proto = model(
        """(float[n, 32] x, bool c) => (float[n, 32] y) { y = If (c)
        <then_branch = t () => (float[n, 32] u) { a = Relu (x) u = MatMul (a, A) },
        else_branch = e () => (float[n, 32] v) { a = Exp (x) v = MatMul (a, A) }> }""",
        SMALL,
    )
    for flag in (True, False):
        prove(proto, to_float16(proto), [{"x": X, "c": np.array(flag)}])


def test_a_loop_from_constants_is_half_where_its_body_reads_more() -> None:
    proto = model(
        """(float[n, 32] x) => (float[n, 32] y) { f = Loop (two, yes, start)
        <body = b (int64 i, bool k, float[32] s) => (bool l, float[32] o) { l = Identity (k)
        r = ReduceMean <axes = [0], keepdims = 0> (x) o = Add (s, r) }> y = Add (x, f) }""",
        {},
    )
    conversion = to_float16(proto)
    assert not conversion.kept
    prove(proto, conversion, feeds_of(proto))


def test_a_function_holds_a_body() -> None:
    """Asked for or not; what it calls is the same for all of its calls."""
    proto = model(
        """(float[n, 32] x, bool c) => (float[n, 32] y)
        { z = Mul (x, h) w = my.f (z, c) v = my.g (w) y = Relu (v) }
        <domain: "my", opset_import: ["": 17, "my": 1]> f (X, C) => (Y) { T = Tanh (X)
        Y = If (C) <then_branch = t () => (u) { u = my.g (T) },
        else_branch = e () => (v) { v = Neg (T) }> }
        <domain: "my", opset_import: ["": 17]> g (X) => (Y) { Y = Sigmoid (X) }""",
        {},
    )
    for keep in ((), ("If",), ("Tanh",)):
        conversion = to_float16(proto, keep_float32=keep)
        prove(proto, conversion, feeds_of(proto))
        assert bool(conversion.kept) == (keep == ("If",))


PAIR = """y = If (k) <then_branch = t () => (float[2, 4] p) { c = Constant <value = float[1] {0.7}> ()
p = Add (b, c) }, else_branch = e () => (float[2, 4] q) { q = Relu (b) }>"""
INNER = '<ir_version: 8, opset_import: ["": 17, "my": 1]> g (float[2, 4] x) => (float[2, 4] y) {{ y = my.F (x) }}'
INNER += '<domain: "my", opset_import: ["": 17]> F (x) => (y) {{ {} }}'
CONSTANTS = {
    "around and in a body": f"""{HEAD}(float[2, 4] x, bool k) => (float[2, 4] y) {{
        a = Constant <value = float[1] {{0.3}}> () b = Add (x, a) {PAIR} }}""",
    "the same in a function": INNER.format(
        f"""a = Constant <value = float[1] {{0.3}}> () b = Add (x, a)
        k = Constant <value = bool {{1}}> () {PAIR}"""
    ),
    "in a function's body alone": INNER.format(
        f"b = Tanh (x) k = Constant <value = bool {{1}}> () {PAIR}"
    ),
    "types in a function's body": INNER.format(
        """n = Constant <value = int64 {2}> () y = Loop (n, "", x) <body = t (int64 i, bool c,
        float[2, 4] a) => (bool d, float[2, 4] e) { d = Identity (c) e = Relu (a) }>"""
    ),
    "a fill": f"""{HEAD}(float[n, 4] x) => (float[n, 4] y, float[n, 4] z) {{
        z = Relu (x) s = Shape (x) y = ConstantOfShape <value = float[1] {{0.5}}> (s) }}""",
}


@pytest.mark.parametrize("place", ["beside", "branches"])
def test_functions_may_have_overloads(place: str) -> None:
    """IR version 10: two functions of one name, told apart by the calls."""
    proto = parse(
        """<ir_version: 10, opset_import: ["": 17, "my": 1]> m (float[n, 32] x, bool c) =>
        (float[n, 32] y) { CALLS }
        <domain: "my", opset_import: ["": 17]> f (X) => (Y) { Y = Exp (X) }
        <domain: "my", opset_import: ["": 17]> g (X) => (Y) { Y = Tanh (X) }""".replace(
            "CALLS",
            "a = my.f (x) b = my.g (x) y = Sub (a, b)"
            if place == "beside"
            else """y = If (c) <then_branch = t () => (u) { u = my.f (x) },
            else_branch = e () => (v) { v = my.g (x) }>""",
        )
    )
    proto.functions[1].name = "f"
    proto.functions[0].overload, proto.functions[1].overload = "one", "other"
    for nodes in node_lists(proto):
        for node in nodes:
            if node.domain == "my":
                node.overload = "one" if node.op_type == "f" else "other"
                node.op_type = "f"
    conversion = to_float16(proto, keep_float32=["Exp"])
    assert len(conversion.model.functions) == 2
    prove(proto, conversion, feeds_of(proto))
    with_rounded_weights(proto, conversion)


@pytest.mark.parametrize("first", ["x, , up", "x, down", "x"])
def test_calls_of_a_function_may_leave_inputs_out(first: str) -> None:
    proto = model(
        f"""(float[n, 32] x) => (float[n, 32] y)
        {{ up = Constant <value = float {{0.5}}> () down = Constant <value = float {{-0.5}}> ()
        z = my.f ({first}) y = my.f (z, down, up) }}
        <domain: "my", opset_import: ["": 17]> f (X, low, high) => (Y)
        {{ Y = Clip (X, low, high) }}""",
        {},
    )
    prove(proto, to_float16(proto), feeds_of(proto))


@pytest.mark.parametrize("text", CONSTANTS.values(), ids=CONSTANTS)
def test_constants_and_types_of_bodies_are_those_of_the_conversion(text: str) -> None:
    for typed in (True, False):
        source = onnx.parser.parse_model(text)
        for node in () if typed or not source.functions else source.functions[0].node:
            for entry in node.attribute:
                for info in entry.g.output if node.op_type == "If" else ():
                    info.ClearField("type")
        for keep_io in (False, True):
            conversion = to_float16(source, keep_io=keep_io)
            onnx.checker.check_model(conversion.model, full_check=True)
            feed = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
            feed |= {"k": np.array(True)} if len(source.graph.input) > 1 else {}
            assert judge(source, conversion, [feed]).equal


def test_a_scan_in_a_body_has_the_sizes_that_the_graph_declares() -> None:
    """Of the Loop's result, which the runtime does not infer and the graph returns."""
    proto = model(
        """(float[4, 8] x, bool c) => (float[4, 8] w, float[4, 8] y) {
        w = Loop (two, "", x) <body = b (int64 i, bool k, float[4, 8] s) => (bool l, float[r, 8] o)
        { l = Identity (k) t = Concat <axis = 0> (s, s) o = Gather <axis = 0> (t, places) }>
        e = Exp (w) y = If (c) <then_branch = t () => (float[4, 8] p) {
        f, q = Scan <num_scan_inputs = 1, body = d (float[8] a, float[8] r) => (float[8] g, last)
        { g = Tanh (r) j = Gather (e, zero) last = Identity (j) }> (row, x) p = Tanh (q) },
        else_branch = v () => (float[4, 8] u) { u = Relu (x) }> }""",
        {"row": X[0, :8], "places": np.arange(4), "zero": np.array(0)},
    )
    feed = {"x": X[:4, :8], "c": np.array(True)}
    for keep_io in (False, True):
        prove(proto, to_float16(proto, keep_io=keep_io), [feed])


NAMES = {
    "two types": """(float[2, 4] x, bool k) => (float[2, 4] y) { y = If (k)
        <then_branch = t () => (float[2, 4] p) { a = Constant <value = float[4] {0.3, 1, 2, 3}> ()
        p = Mul (x, a) }, else_branch = e () => (float[2, 4] q)
        { a = Constant <value = int64[2] {2, 4}> () q = Reshape (x, a) }> }""",
    "two shapes, in a loop": """(float[2, 4] x, bool k) => (float[2, 4] y) {
        n = Constant <value = int64 {2}> () y = Loop (n, "", x) <body = b (int64 i, bool c,
        float[2, 4] s) => (bool d, float[2, 4] o) { d = Identity (c) o = If (k)
        <then_branch = t () => (float[2, 4] p) { a = Constant <value = float {0.3}> ()
        p = Mul (s, a) }, else_branch = e () => (float[2, 4] q) {
        a = Exp (s) q = Div (s, a) }> }> }""",
    "two types, in a function": """(float[2, 4] x, bool k) => (float[2, 4] y) { y = my.f (x, k) }
        <domain: "my", opset_import: ["": 17]> f (x, k) => (y) { y = If (k)
        <then_branch = t () => (float[2, 4] p) { a = Relu (x) p = Tanh (a) },
        else_branch = e () => (float[2, 4] q) { a = Constant <value = int64[2] {2, 4}> ()
        q = Reshape (x, a) }> }""",
    "a Scan beside an If": """(float[2, 4] x, bool k) => (float[2, 4] y) {
        w = Constant <value = float[4] {0.3, 1, 2, 3}> () f, z = Scan <num_scan_inputs = 1,
        body = b (float[4] s, float[4] r) => (float[4] o, float[4] q)
        { a = Mul (r, r) o = Add (s, a) q = Tanh (r) }> (w, x) y = If (k)
        <then_branch = t () => (float[2, 4] p) { a = Constant <value = float[4] {0.1, 1, 2, 3}> ()
        p = Mul (z, a) }, else_branch = e () => (float[2, 4] u) { u = Relu (z) }> }""",
}


@pytest.mark.parametrize("text", NAMES.values(), ids=NAMES)
def test_bodies_may_give_one_name_to_several_values(text: str) -> None:
    source = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(HEAD + text))
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    feeds = [{"x": x, "k": np.array(flag)} for flag in (True, False)]
    for keep_io in (False, True):
        conversion = to_float16(source, keep_io=keep_io)
        prove(source, conversion, feeds)
        assert judge(source, conversion, feeds).equal


DECLARED = {
    "a constant in a body": f"""{HEAD}(float[2, 4] x, bool k) => (float[2, 4] y) {{ y = If (k)
        <then_branch = t () => (float[2, 4] p) <float[4] a> {{ a = Constant <value = float[4]
        {{0.3, 1, 2, 3}}> () p = Mul (x, a) }}, else_branch = e () => (float[2, 4] q)
        {{ q = Relu (x) }}> }}""",
    "a constant that moves into a body": f"""{HEAD}(float[2, 4] x, bool k) => (float[2, 4] y)
        <float[4] a> {{ a = Constant <value = float[4] {{0.3, 1, 2, 3}}> () y = If (k)
        <then_branch = t () => (float[2, 4] p) {{ p = Mul (x, a) }},
        else_branch = e () => (float[2, 4] q) {{ q = Relu (x) }}> }}""",
    "an output of a body that is cast": f"""{HEAD}(float[2, 4] x, bool k) => (float[2, 4] y) {{
        y = If (k) <then_branch = t () => (float[2, 4] p) <float[2, 4] p> {{ p = Exp (x) }},
        else_branch = e () => (float[2, 4] q) {{ q = Relu (x) }}> }}""",
    "an output of the graph that is cast": f"""{HEAD}(float[2, 4] x) => (float[2, 4] y, float[2, 4] z)
        <float[2, 4] y, float[2, 4] z> {{ y = Exp (x) z = Relu (x) }}""",
}


@pytest.mark.parametrize("keep_io", [False, True])
@pytest.mark.parametrize("text", DECLARED.values(), ids=DECLARED)
def test_declared_types_are_those_of_the_conversion(text: str, keep_io: bool) -> None:
    source = onnx.parser.parse_model(text)
    conversion = to_float16(source, keep_io=keep_io)
    onnx.checker.check_model(conversion.model, full_check=True)
    onnx.shape_inference.infer_shapes(conversion.model, check_type=True, strict_mode=True)
    onnxruntime.InferenceSession(conversion.model.SerializeToString())


def test_a_constant_that_a_body_returns_and_reads_in_float32_keeps_both() -> None:
    proto = model(
        f"""(float[n, 32] x) => (float[n, 32] y) {{ f, w = Loop (two, yes, x)
        {LOOP} (bool l, float[n, 32] a, float[n, 32] o) {{ l = Identity (k)
        a = Constant <value = float[1, 32] {{{", ".join(map(str, X[0]))}}}> () o = Sigmoid (a) }}>
        d = ReduceSum <keepdims = 0> (w, axis) y = Add (d, f) }}""",
        {},
    )
    result = judge(proto, to_float16(proto), [{"x": X[:1]}])
    assert result.equal, result.summary()


def test_what_a_function_casts_reaches_its_body() -> None:
    """Widened, the Casts change no type; ONNX Runtime 1.31 lost the value in the If."""
    proto = model(
        """(float[n, 32] x, bool c) => (float[n, 32] y) { y = my.f (x, c) }
        <domain: "my", opset_import: ["": 17]> f (X, C) => (Y) { Y = If (C) <then_branch = t ()
        => (u) { u = Softmax (X) }, else_branch = e () => (v) { v = Neg (X) }> }""",
        {},
    )
    conversion = to_float16(proto, keep_io=True, keep_float32=["If", "Softmax"])
    result = judge(proto, conversion, feeds_of(proto))
    assert result.equal, result.summary()


@pytest.mark.parametrize("captures", [False, True])
def test_what_follows_a_loop_from_constants_is_compared_unrounded(captures: bool) -> None:
    step = "o = Mul (s, x)" if captures else "o = Tanh (s)"
    proto = model(
        f"""(float[n, 32] x) => (float[n, 32] y) {{ f = Loop (two, yes, full)
        {LOOP} (bool l, float[n, 32] o) {{ l = Identity (k) {step} }}> g = Sigmoid (f)
        y = Mul (g, x) }}""",
        {"full": X * np.float32(0.3)},
    )
    feeds = feeds_of(proto)
    result = judge(proto, to_float16(proto), feeds)
    assert result.equal, result.summary()


def test_states_that_change_places_are_followed_once() -> None:
    """What a function reads may be either of them, at each step."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[4] x, float[4] y, int64 n, bool c) => (float[4] v, float[4] w) {
            v, w = Loop (n, c, x, y) <body = b (int64 step, bool go, float[4] p, float[4] q) =>
                (bool more, float[4] q, float[4] p) { more = own.Both (go, p) }> }
        <domain: "own", opset_import: ["": 17]> Both (go, p) => (more) { more = Identity (go) }"""
    )
    half = to_float16(onnx.shape_inference.infer_shapes(model))
    onnx.checker.check_model(half.model, full_check=True)
