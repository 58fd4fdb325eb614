"""The forms of a model: widened, rounded to half, precise; and where they do not fit."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.checker
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost import ModelError, UsageError
from gehost.errors import UnsupportedModelError
from gehost.testing import parse
from gehost.verify import Baseline, Runner, compare, room
from gehost.verify import forms as forms_module
from gehost.verify import run as run_module
from gehost.verify.constants import exact_numbers, set_constants
from gehost.verify.forms import Forms
from gehost.verify.precise import load_precise
from gehost.verify.quantized import quantization_steps
from gehost.verify.retype import HALF, TO_DOUBLE, holds, retyped_bytes
from gehost.verify.room import NoRoomError
from gehost.verify.rounded import rounded
from gehost.verify.widen import widened

onnxruntime = pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 10, opset_import: ["": 21]>'
HALF_MODEL = f"""{HEAD} g (float16[n, 4] x, bool c) => (float16[n, 4] y)
{{
    p = MatMul (x, w)
    q = Mul (p, third)
    r = Cast <to = 10> (q)
    y = If (c) <
        then_branch = t () => (float16[n, 4] a) {{ a = Sqrt (r) }},
        else_branch = e () => (float16[n, 4] b) {{ b = Softmax (r) }}
    >
}}"""


def weights() -> dict[str, np.ndarray]:
    w = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float16)
    return {"w": w, "third": np.array(1 / 3, np.float16)}


def feeds() -> dict[str, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((3, 4))
    return {"x": x.astype(np.float32), "c": np.array(False)}


def feeds_of_ones() -> dict[str, np.ndarray]:
    return {"x": np.ones((2, 4), np.float32)}


def test_nothing_in_half_is_left_in_the_widened_form() -> None:
    model = parse(HALF_MODEL, weights())
    wide = widened(model)
    assert holds(model, HALF)
    assert not holds(wide, HALF)
    onnx.checker.check_model(wide, full_check=True)
    (y,) = Runner(wide).run(feeds()).values()
    assert y.dtype == np.float32
    assert np.allclose(y.sum(axis=1), 1)


def test_the_rounded_form_rounds_behind_each_node_also_in_bodies() -> None:
    form = rounded(parse(HALF_MODEL, weights()))
    onnx.checker.check_model(form, full_check=True)
    casts = [node for node in form.graph.node if node.op_type == "Cast"]
    assert sum(attribute.i == 10 for node in casts for attribute in node.attribute) == 3
    (y,) = Runner(form).run(feeds()).values()
    assert y.dtype == np.float32
    assert np.array_equal(y, y.astype(np.float16))


def test_a_weight_computed_in_half_stays_rounded() -> None:
    text = f"""{HEAD} g (float16[2, 4] x) => (float16[2, 4] y)
    {{ c = Mul (a, b) y = Mul (x, c) }}"""
    a, b = (np.array(value, np.float16) for value in (0.3333, 0.7))
    (y,) = Runner(widened(parse(text, {"a": a, "b": b}))).run(feeds_of_ones()).values()
    assert y[0, 0] == a * b != a.astype(np.float32) * b.astype(np.float32)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("place", ["of a known size", "in a body"])
def test_what_a_compile_folds_is_rounded_before_it_too(place: str, kind: str) -> None:
    """What is made of sizes and of a body's weights was not: right compiles seemed to differ."""
    number = np.full((2, 4), 0.7).astype({"float16": np.float16}.get(kind, ml_dtypes.bfloat16))
    cosine = np.cos(number.astype(np.float32)).astype(number.dtype)
    nodes = "s = Shape (x) k = Expand (w, s) z = Cos (k)"
    if place == "in a body":
        nodes = f"""z = If (c) <then_branch = t () => ({kind}[2, 4] a) {{ a = Cos (w) }},
            else_branch = e () => ({kind}[2, 4] b) {{ b = Neg (x) }}>"""

    def form(text: str, array: np.ndarray) -> onnx.ModelProto:
        proto = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 22]>
            g ({kind}[2, 4] x, bool c) => ({kind}[2, 4] y) {{ {text} y = Mul (x, z) }}"""
        )
        bodies = [entry.g for entry in proto.graph.node[0].attribute]
        home = bodies[0] if bodies else proto.graph
        home.initializer.append(onnx.numpy_helper.from_array(array, "w"))
        onnx.checker.check_model(proto, full_check=True)
        return proto

    original = form(nodes, number if place == "in a body" else number[0, :1])
    folded = form(
        nodes.replace("Cos", "Identity"), cosine if place == "in a body" else cosine[0, :1]
    )
    feeds = [{"x": number, "c": np.array(True)}]
    result = compare(original, folded, feeds)
    assert result.equal, result.summary()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_branches_that_name_values_alike_round_each_in_its_type(kind: str) -> None:
    text = f"""{HEAD} g ({kind}[2, 4] x, bool c) => ({kind}[2, 4] y) {{ y = If (c) <
        then_branch = t () => ({kind}[2, 4] u) {{ a = Sqrt (x) u = Tanh (a) }},
        else_branch = e () => ({kind}[2, 4] v) {{
        z = Cast <to = 1> (x) a = Sqrt (z) v = Cast <to = {16 if kind == "bfloat16" else 10}> (a)
    }}> }}"""
    form = rounded(parse(text))
    onnx.checker.check_model(form, full_check=True)
    pairs = {
        entry.name: sum(node.op_type == "Cast" for node in entry.g.node) // 2
        for entry in form.graph.node[0].attribute
    }
    assert pairs == {"then_branch": 2, "else_branch": 2}  # the second has two Casts of its own
    Runner(form).run({"x": np.ones((2, 4), np.float32), "c": np.array(False)})


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_loop_that_reads_an_input_for_nothing_is_as_without(kind: str) -> None:
    def form(nothing: str) -> onnx.ModelProto:
        return parse(
            f"""<ir_version: 10, opset_import: ["": 22]> g ({kind}[8] x) => ({kind}[8] y)
            <int64 two = {{2}}, bool yes = {{1}}> {{ f = Loop (two, yes, w)
            <body = b (int64 i, bool k, {kind}[8] s) => (bool o, {kind}[8] r)
            {{ o = Identity (k) {nothing} r = Sigmoid (s) }}> c = Cos (f) y = Add (x, c) }}""",
            {
                "w": np.linspace(0, 1, 8).astype(
                    {"float16": np.float16}.get(kind, ml_dtypes.bfloat16)
                )
            },
        )

    assert compare(form("n = Neg (x)"), form("")).equal


def test_a_loop_that_reads_an_input_in_its_body_is_no_constant() -> None:
    text = f"""{HEAD} g (float16[2, 4] x) => (float16[2, 4] y) {{ f = Loop (n, "", a) <body = b
        (int64 i, bool k, float16[2, 4] s) => (bool l, float16[2, 4] o)
        {{ l = Identity (k) o = Mul (s, x) }}> y = Sigmoid (f) }}"""
    start = {"n": np.array(2, np.int64), "a": np.full((2, 4), 0.3, np.float16)}
    form = widened(parse(text, start))
    assert [node.op_type for node in form.graph.node] == ["Loop", "Sigmoid"]


@pytest.mark.parametrize("kind", [10, 16])
def test_an_input_that_is_cast_twice_reaches_a_body(kind: int) -> None:
    """In float64 both Casts change no type; ONNX Runtime 1.31 lost the value in the If."""
    text = f"""{HEAD} g (float[2, 4] x, bool c) => (float[2, 4] y) {{ u = Cast <to = {kind}> (x)
        t = Cast <to = 1> (u) y = If (c) <then_branch = a () => (float[2, 4] p) {{ p = Neg (t) }},
        else_branch = b () => (float[2, 4] q) {{ q = Add (t, t) }}> }}"""
    feed = {"x": np.ones((2, 4), np.float32), "c": np.array(False)}
    forms = Forms(Runner(parse(text)))
    with forms.precise() as run:
        assert run(feed)["y"].tolist() == [[2.0] * 4] * 2


def test_the_run_in_float64_leaves_no_loop_to_the_reference() -> None:
    """It stacks what a body returns otherwise, and Softplus has no kernel of float64."""
    text = f"""{HEAD} g (float[2, 4] x) => (float[2, 4] y) {{ f, w = Loop (n, "", x) <body = b
        (int64 i, bool k, float[2, 4] s) => (bool l, float[2, 4] o, float[2, 4] p)
        {{ l = Identity (k) o = Tanh (s) p = Sigmoid (s) }}> h = Gather (w, zero)
        z = Add (f, h) y = Softplus (z) }}"""
    numbers = {"n": np.array(2, np.int64), "zero": np.array(0, np.int64)}
    model = parse(text, numbers)
    x = {"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)}
    forms = Forms(Runner(model))
    with forms.precise() as run:
        exact = run(x)["y"]
    assert np.abs(exact - Runner(model).run(x)["y"]).max() < 1e-5


def test_the_precise_form_casts_around_what_has_no_double_kernel() -> None:
    text = f"""{HEAD} g (float[2, 4] x) => (float[2, 4] y)
    {{ a = Erf (x) b = Softplus (a) c = Mish (b) d = Atan (c) y = Exp (d) }}"""
    model = parse(text)
    runner = load_precise(model, lambda form: Runner(form, engine="onnxruntime"))
    x = np.random.default_rng(0).standard_normal((2, 4))
    (y,) = runner.run({"x": x}).values()
    assert y.dtype == np.float64
    (single,) = Runner(model).run({"x": x.astype(np.float32)}).values()
    assert 0 < np.abs(y - single).max() < 1e-5


@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_the_precise_form_casts_around_recurrent_operators(op: str, gates: int) -> None:
    text = f"""{HEAD} g (float[3, 1, 4] x) => (float[1, 1, 4] y)
    {{ rows, last = {op} <hidden_size = 4> (x, w, w) y = Exp (last) }}"""
    w = np.random.default_rng(0).standard_normal((1, 4 * gates, 4)).astype(np.float32)
    runner = load_precise(parse(text, {"w": w}), lambda form: Runner(form, engine="onnxruntime"))
    (y,) = runner.run({"x": np.ones((3, 1, 4))}).values()
    assert y.dtype == np.float64


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_models_in_half_are_judged_widened_and_rounded(kind: type[np.floating]) -> None:
    name = "float16" if kind is np.float16 else "bfloat16"
    text = f"""{HEAD} g ({name}[n, 8] x) => ({name}[n, 8] y)
    {{ p = MatMul (x, w) q = BODY y = Identity (q) }}"""
    rng = np.random.default_rng(0)
    inputs = {
        "w": rng.standard_normal((8, 8)).astype(kind),
        "b": rng.standard_normal(8).astype(kind),
    }
    models = [
        parse(text.replace("BODY", body), inputs)
        for body in ("Add (p, b) ", "Add (b, p) ", "Sub (p, b) ")
    ]
    model, swapped, wrong = models
    result = compare(model, swapped)
    assert (result.equal, result.engine) == (True, "onnxruntime")
    assert not compare(model, wrong).equal


def test_a_product_out_of_the_range_of_half_is_found() -> None:
    """Widened, both are the same function; rounded, the second overflows."""
    text = f"{HEAD} g (float16[2, 4] x) => (float16[2, 4] y)"
    scalars = {"s": np.array(0.001, np.float16), "t": np.array(50000, np.float16)}
    models = [
        parse(f"{text} {{ a = Mul (x, {one}) y = Mul (a, {two}) }}", scalars)
        for one, two in ("st", "ts")
    ]
    inputs = [{"x": np.full((2, 4), 3, np.float16)}]
    result = Baseline.of(models[0], inputs).against(models[1])
    assert not result.equal
    assert result.rule == "rows, also rounded to half"


def test_another_output_type_is_not_hidden_by_widening() -> None:
    half = parse(f"{HEAD} g (float16[2] x) => (float16[2] y) {{ y = Exp (x) }}")
    wide = parse(f"{HEAD} g (float16[2] x) => (float[2] y) {{ a = Exp (x) y = Cast <to = 1> (a) }}")
    result = compare(half, wide)
    assert result.error == "output 'y' is float, wanted float16"


def test_exact_constants_go_to_all_that_equal_the_named_one() -> None:
    text = f"""{HEAD} g (float16[2] x) => (float16[2] y)
    {{ p = Mul (x, a) q = Mul (p, b) y = Div (q, c) }}"""
    inputs = {"a": 0.797, "b": 0.797, "c": 0.5, "d": 1.253}
    model = parse(text, {name: np.array(value, np.float16) for name, value in inputs.items()})
    wide = widened(model)
    set_constants(wide, exact_numbers(model, {"a": 0.7978846}))
    values = [float(onnx.numpy_helper.to_array(t).reshape(-1)[0]) for t in wide.graph.initializer]
    expected = [0.7978846, 0.7978846, 0.5, 1 / 0.7978846]  # d is the divisor of the same name
    assert values == list(map(float, np.array(expected, np.float32)))


def test_exact_constants_go_into_functions() -> None:
    """A constant of a function is none of the graph's, so a tensor beside it names the number."""
    model = parse("""<ir_version: 10, opset_import: ["": 21, "own": 1]> g (float16[2] x) => (float16[2] y) {
        y = own.F (x) }
    <domain: "own", opset_import: ["": 21]>
    F (a) => (b) { k = Constant <value = float {1.4140625}> () b = Div (a, k) }""")
    (constant, _) = model.functions[0].node
    constant.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(np.float16(1.4140625)))
    wide = widened(model)
    set_constants(wide, exact_numbers(model, {"x": sqrt(2)}))
    value = onnx.numpy_helper.to_array(wide.functions[0].node[0].attribute[0].t)
    assert value == np.float32(sqrt(2))


def test_the_steps_of_quantized_outputs() -> None:
    text = f"""{HEAD} g (float[2] x) => (int8[2] q, float[2] y, float[2] z)
    <float s = {{0.25}}, int8 zero = {{0}}> {{
        q = QuantizeLinear (x, s, zero) d = DequantizeLinear (q, s, zero)
        y = Reshape <allowzero = 0> (d, two) z = Exp (d) two = Constant <value = int64[1] {{2}}> ()
    }}"""
    lines = text.replace("two = Constant <value = int64[1] {2}> ()", "").replace(
        "q = Quant", "two = Constant <value = int64[1] {2}> () q = Quant"
    )
    assert quantization_steps(parse(lines)) == {"q": 1.0, "y": pytest.approx(0.25)}


@pytest.mark.parametrize(
    "nodes",
    [
        "z = ConstantOfShape (s)",
        "z = RandomNormal <shape = [4], seed = 1.0> ()",
    ],
)
def test_a_type_that_an_operator_has_by_default_is_widened(nodes: str) -> None:
    text = f"""{HEAD} g (float[4] x) => (float[4] y) <int64[1] s = {{4}}, float[4] z> {{
        {nodes} y = Add (x, z) }}"""
    with Forms(Runner(parse(text))).precise() as run:
        assert run({"x": np.ones(4, np.float32)})["y"].dtype == np.float64


def test_weights_of_a_large_form_are_mapped_from_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms_module, "MUCH", 0)
    model = parse(HALF_MODEL, weights())
    forms = Forms(Runner(model))
    for form in (forms.plain(widen=True), forms.rounded(), forms.precise()):
        with form as run:
            (y,) = run(feeds()).values()
        assert np.allclose(y.sum(axis=1), 1, atol=1e-3)


def limited(limit: int) -> Any:
    def check_room(*argument: Any, **options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(room, "available_memory", lambda: limit)
            room.check_room(*argument, **options)

    return check_room


def test_a_run_that_does_not_fit_is_refused_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = parse(HALF_MODEL, weights())
    onnx.save(model, tmp_path / "m.onnx")
    monkeypatch.setattr(room, "available_memory", lambda: 100)
    for inputs in (model, tmp_path / "m.onnx"):
        with pytest.raises(UsageError, match=r": a run needs 0 MiB of memory, and 0 MiB are free"):
            Runner(inputs)


@pytest.mark.parametrize("limit", [0, 1 << 40])
def test_what_does_not_fit_is_not_judged(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{HEAD} g (float[4, 4] x) => (float[4, 4] y) <float k = {{{{0.1}}}}> {{{{ {{}} }}}}"
    model = parse(text.format("a = Exp (x) y = Mul (a, k)"))
    other = parse(text.format("a = Exp (x) b = Mul (a, k) c = Mul (b, k) y = Div (c, k)"))
    wrong = parse(text.format("a = Exp (x) y = Div (a, k)"))
    monkeypatch.setattr(forms_module, "check_room", limited(limit))
    equal, differ = compare(model, other), compare(model, wrong)
    assert equal.equal
    if limit:
        assert equal.summary().startswith("equal: 3 feeds")
        assert not differ.equal
    else:
        # within the tolerances of its type proves nothing either: most planted faults of half are
        for result in (equal, differ):
            assert result.rule == "tolerances by type"
            assert result.equal
            assert result.summary().startswith("not judged: model 'g': its run in float")
            assert "free" in result.unjudged
    same = compare(model, model)
    assert same.summary().startswith("equal: 3 feeds, 1 output, no difference")


def test_rounding_that_does_not_fit_is_said_of_equal_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse(HALF_MODEL, weights())
    baseline = Baseline.of(model)
    monkeypatch.setattr(Forms, "rounded", raising(NoRoomError("its run in float32 is too large")))
    result = baseline.against(model)
    assert result.equal
    assert result.summary().startswith("equal: 3 feeds, 1 output, no difference; computed by ")
    assert result.summary().endswith("; not judged: its run in float32 is too large")


def raising(error: Exception) -> Any:
    def fail(*_: Any) -> Any:
        raise error

    return fail


def test_a_large_weight_does_not_fit_while_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms_module, "MUCH", 0)
    monkeypatch.setattr(forms_module, "check_room", limited(100))
    forms = Forms(Runner(parse(HALF_MODEL, weights())))
    with pytest.raises(NoRoomError, match="its run in float64 needs 0 MiB of memory"):  # noqa: SIM117
        with forms.precise():
            pass


def test_mapped_weights_are_not_packed_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The runtime would hold a copy of each in the processor's layout."""
    model = parse(HALF_MODEL, weights())
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    entries: list[str] = []
    create = onnxruntime.SessionOptions.add_session_config_entry
    monkeypatch.setattr(
        onnxruntime.SessionOptions,
        "add_session_config_entry",
        lambda self, key, value: (entries.append(key), create(self, key, value)),
    )
    for much, packed in ((1 << 29, True), (0, False)):
        monkeypatch.setattr(run_module, "MUCH", much)
        Runner(onnx.load(tmp_path / "m.onnx", load_external_data=False), base_dir=tmp_path)
        assert ("session.disable_prepacking" not in entries) == packed


def test_bytes_of_a_form() -> None:
    assert sum(retyped_bytes(parse(HALF_MODEL, weights()), TO_DOUBLE)) == 17 * 8


# -- operators of ONNX Runtime -------------------------------------------------------------------

KERNELS = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
PRODUCT = "com.microsoft.MatMulNBits <K = 32, N = 32, bits = 4, block_size = 32>"
GATED = f"""a = {PRODUCT} (x, w, s) b = {PRODUCT} (x, w, s) g = Mul (a, b)
    d = {PRODUCT} (g, w, s) y = Mul (d, c)"""


def gated(kind: str, factor: float, body: str = GATED) -> onnx.ModelProto:
    """A gated product of weights in 4 bits, with no declared type inside."""
    dtype = np.float32 if kind == "float" else np.float16
    weights = np.random.default_rng(0).integers(0, 255, (32, 1, 16)).astype(np.uint8)
    return parse(
        f"{KERNELS} g ({kind}[n, 32] x) => ({kind}[n, 32] y) {{ {body} }}",
        {"w": weights, "s": np.full(32, 0.05, dtype), "c": np.array(factor, dtype)},
    )


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_a_fault_behind_the_runtimes_operators_is_found(kind: str) -> None:
    result = compare(gated(kind, 1), gated(kind, 1.5))
    assert not result.equal
    assert result.rule.startswith("rows, error")
    assert not result.unjudged


def test_an_operator_without_a_double_kernel_does_not_end_the_run_in_float64() -> None:
    """Where onnx.reference does not run the model either, the message is another."""
    body = GATED.replace("y = Mul (d, c)", "e = Atan (d) y = Mul (e, c)")
    result = compare(gated("float", 1, body), gated("float", 1 + 2**-23, body))
    assert result.rule.startswith("rows, error")
    assert result.note == ""


def test_a_failure_of_the_run_in_float64_hides_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    right = gated("float16", 1, GATED.replace("Mul (a, b)", "Mul (b, a)"))
    monkeypatch.setattr(Forms, "precise", raising(ModelError("no float64 form of the model loads")))
    result = compare(gated("float16", 1), right)
    assert result.equal
    result = compare(gated("float16", 1), gated("float16", 1.5))
    assert not result.equal
    assert result.rule.startswith("rows, error")
    assert "fails: no float64 form of the model loads" in result.summary()


def test_a_failure_of_the_rounded_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forms, "rounded", raising(ModelError("it does not load")))
    result = compare(gated("float16", 1), gated("float16", 1))
    assert "not compared rounded to half: it does not load" in result.summary()
    assert not compare(gated("float16", 1), gated("float16", 1.5)).equal


def in_bfloat16(attributes: str = "") -> onnx.ModelProto:
    return parse(f"""{KERNELS} g (float[b, s, 16] q, float[b, t, 16] k) => (float[b, s, 16] y) {{
        a = Cast <to = 16> (q) c = Cast <to = 16> (k)
        o = com.microsoft.MultiHeadAttention <num_heads = 2{attributes}> (a, c, c)
        y = Cast <to = 1> (o)
    }}""")


def test_bfloat16_files_with_kernels_are_compared() -> None:
    """ONNX Runtime loads no such file on a CPU; its first message names the kernel."""
    result = compare(in_bfloat16(), in_bfloat16())
    assert result.equal
    assert result.engine == "onnxruntime"
    assert not compare(in_bfloat16(), in_bfloat16(", scale = 0.9")).equal


@pytest.mark.parametrize("operator", ["MultiHeadAttention", "QAttention"])
def test_types_that_only_a_later_release_defines_run_widened(
    monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    """1.21 has no MultiHeadAttention of bfloat16, 1.24 has; no release has a QAttention of it."""
    session = onnxruntime.InferenceSession

    def old(model: Any, *arguments: Any, **options: Any) -> Any:
        if holds(onnx.load_from_string(model), frozenset({onnx.TensorProto.BFLOAT16})):
            raise RuntimeError(
                f"Type Error: Type 'tensor(bfloat16)' of input parameter (a) of operator "
                f"({operator}) in node () is invalid."
            )
        return session(model, *arguments, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", old)
    monkeypatch.setattr(onnxruntime, "__version__", "1.21.1")
    if operator == "QAttention":
        with pytest.raises(ModelError, match="QAttention"):
            compare(in_bfloat16(), in_bfloat16())
        return
    assert compare(in_bfloat16(), in_bfloat16()).equal
    assert not compare(in_bfloat16(), in_bfloat16(", scale = 0.9")).equal
    message = "ONNX Runtime 1.21.1 has no com.microsoft::MultiHeadAttention of bfloat16, 1.24.1 has"
    with pytest.raises(UnsupportedModelError, match=message):
        Runner(in_bfloat16())


def test_a_kernel_that_no_form_has_is_still_named() -> None:
    text = f"{KERNELS} g (float16[n, 8] x) => (float16[n, 8] y) {{ y = com.microsoft.BiasAdd (x) }}"
    with pytest.raises(ModelError, match="BiasAdd"):
        compare(parse(text), parse(text))
