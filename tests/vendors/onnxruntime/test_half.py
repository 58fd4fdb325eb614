"""The passes in float16 and bfloat16: each rewrite is the same function, by runs in float32."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host
from gehost.verify import make_feeds

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
NUMBERS = {"float16": 10, "bfloat16": 16}
HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
LOW = {"float16": "-65504", "bfloat16": "-3.38953139e38", "float": "-3.40282347e38"}

QKV = """qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
    kh = Reshape (k, heads) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
    vh = Reshape (v, heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)"""
OUT = "t = Transpose <perm = [0, 2, 1, 3]> (mixed) y = Reshape (t, joined)"
PLAIN = "m = MatMul (qt, kt) s = Mul (m, scale) {mask} p = Softmax <axis = -1> (a) mixed = MatMul (p, vt)"
GUARDED = """m = MatMul (qt, kt) s = Mul (m, scale) {mask} p0 = Softmax <axis = -1> (a)
    nan = IsNaN (p0) p = Where (nan, zero, p0) mixed = MatMul (p, vt)"""
WHERE = "mask = Where (keep, zero, low) a = Add (s, mask)"
INFINITE = "mask = Where (keep, zero, inf) a = Add (s, mask)"
FILLED = "a = Where (keep, s, inf)"
WIDE = """m = MatMul (qt, kt) s0 = Mul (m, scale) s = Cast <to = 1> (s0)
    {mask} p0 = Softmax <axis = -1> (a) p = Cast <to = T> (p0) mixed = MatMul (p, vt)"""
WIDE_MASK = "mask = Where (keep, zero32, inf32) a = Add (s, mask)"


def attention(dtype: str, lines: str, mask: str, result: str = "") -> onnx.ModelProto:
    """Attention of 2 heads of size 8; ``keep`` is False where a position is masked."""
    body = f"{QKV} {lines.replace('{mask}', mask)} {OUT}".replace("T>", f"{NUMBERS[dtype]}>")
    output = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]>
        g ({", ".join(f"{dtype}[B, S, 16] {name}" for name in "qkv")}, bool[B, 1, S, S] keep)
        => ({result or dtype}[B, S, 16] y)
        <int64[4] heads = {{0, 0, 2, 8}}, int64[3] joined = {{0, 0, 16}}> {{ {body} }}"""
    )
    numbers = {"scale": 0.353, "zero": 0.0, "low": float(LOW[dtype]), "inf": -np.inf}
    arrays = {name: np.array(number).astype(TYPES[dtype]) for name, number in numbers.items()}
    wide = {"zero32": 0.0, "inf32": -np.inf, "low32": float(LOW["float"])}
    arrays |= {name: np.array(number, np.float32) for name, number in wide.items()}
    read = set(re.findall(r"\w+", body))
    output.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items() if name in read
    )
    return output


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every half tensor, constant and Cast target in float32."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.value_info[:]
    for value in (*result.graph.input, *result.graph.output):
        if value.type.tensor_type.elem_type in HALVES:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    for tensor in result.graph.initializer:
        _widen(tensor)
    for node in (*result.graph.node, *(node for one in result.functions for node in one.node)):
        for attribute in node.attribute:
            if attribute.name in ("to", "stash_type") and attribute.i in HALVES:
                attribute.i = onnx.TensorProto.FLOAT
            if attribute.HasField("t"):
                _widen(attribute.t)
    return result


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in HALVES:
        array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def compiled(host: Host, model: onnx.ModelProto, run: Any, expected: str, **argument: Any) -> None:
    """Compile a model; it has the kernel, and computes the same function as before."""
    result, _ = host.run(model)
    assert [node.op_type for node in result.graph.node if node.op_type == expected]
    onnx.checker.check_model(result)
    feeds = make_feeds(widened(model)) | argument
    before, after = run(widened(model), feeds), run(widened(result), feeds)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=2e-5, atol=2e-6)


def keep(pad: str) -> np.ndarray[Any, Any]:
    """Causal, with padding of the last row; with left padding its first rows see nothing."""
    result = np.tril(np.ones((2, 1, 5, 5), bool))
    result[1, :, :, {"left": slice(0, 2), "right": slice(3, 5), "none": slice(0, 0)}[pad]] = False
    return result


def feeds(dtype: str, pad: str) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    rows = {
        name: rng.standard_normal((2, 5, 16)).astype(TYPES[dtype]).astype(np.float32)
        for name in "qkv"
    }
    return {**rows, "keep": keep(pad)}


FORMS = {
    "no mask": (PLAIN, "a = Identity (s)"),
    "the lowest number": (PLAIN, WHERE),
    "infinity": (PLAIN, INFINITE),
    "a guard": (GUARDED, INFINITE),
    "a Where over the scores": (PLAIN, FILLED),
    "a Softmax in float32": (WIDE, WIDE_MASK),
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("pad", ["none", "right", "left"])
@pytest.mark.parametrize("form", FORMS)
def test_attention(host: Host, run: Any, dtype: str, pad: str, form: str) -> None:
    model = attention(dtype, *FORMS[form])
    compiled(host, model, run, "MultiHeadAttention", **feeds(dtype, pad))


@pytest.mark.parametrize("form", FORMS)
def test_what_loads_still_loads(host: Host, run: Any, form: str) -> None:
    model = attention("float16", *FORMS[form])
    result, _ = host.run(model)
    inputs = feeds("float16", "right")
    inputs |= {name: inputs[name].astype(np.float16) for name in "qkv"}
    before, after = run(model, inputs)["y"], run(result, inputs)["y"]
    np.testing.assert_allclose(np.nan_to_num(after), np.nan_to_num(before), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("pad", ["none", "right", "left"])
def test_values_and_result_in_float32(host: Host, run: Any, pad: str) -> None:
    """Autocast's TorchScript exports: what follows the Softmax is float32."""
    lines = """m = MatMul (qt, kt) s0 = Mul (m, scale) s = Cast <to = 1> (s0) {mask}
    p0 = Softmax <axis = -1> (a) nan = IsNaN (p0) p = Where (nan, zero32, p0)
    wide = Cast <to = 1> (vt) mixed = MatMul (p, wide)"""
    model = attention("float16", lines, WIDE_MASK, "float")
    compiled(host, model, run, "MultiHeadAttention", **feeds("float16", pad))


def refusals(host: Host, model: onnx.ModelProto, name: str) -> set[str]:
    _, report = host.run(model)
    (record,) = [one for one in report.passes if one.name == name]
    return set(record.rejected)


def test_a_fill_that_shows_scores_is_no_sum(host: Host) -> None:
    """A row of -65504 throughout averages v, and -65504 plus scores does not."""
    model = attention("float16", PLAIN, "a = Where (keep, s, low)")
    assert refusals(host, model, "OrtAttentionPass") == {"mask"}


def test_a_float32_mask_that_half_cannot_hold_stays(host: Host) -> None:
    model = attention("float16", WIDE, WIDE_MASK.replace("inf32", "low32"))
    assert refusals(host, model, "OrtAttentionPass") == {"mask"}


def test_float32_narrowed_inside_stays(host: Host) -> None:
    narrow = PLAIN.replace(
        "s = Mul (m, scale)",
        "s1 = Mul (m, scale) s2 = Cast <to = 10> (s1) s = Cast <to = 1> (s2)",
    )
    model = attention("float16", narrow, "a = Identity (s)")
    wide = widened(model)
    for node in wide.graph.node:
        if node.output[0] == "s2":
            node.attribute[0].i = onnx.TensorProto.FLOAT16
    assert refusals(host, wide, "OrtAttentionPass") == {"dtype"}


@pytest.mark.parametrize(
    ("dtype", "target", "there"),
    [
        ("float16", "cpu", True),
        ("bfloat16", "cpu", False),
        ("bfloat16", "cuda", True),
        ("float16", "cpu:1.21.0", False),
    ],
)
def test_only_kernels_of_the_target(host: Host, dtype: str, target: str, *, there: bool) -> None:
    result, report = host.with_options(target=target).run(attention(dtype, PLAIN, WHERE))
    assert ("MultiHeadAttention" in {node.op_type for node in result.graph.node}) == there
    (record,) = [one for one in report.passes if one.name == "OrtAttentionPass"]
    assert set(record.rejected) == (set() if there else {"kernel"})


PROJECTED = """qp = MatMul (x, wq) q = Add (qp, bq) kp = MatMul (x, wk) k = Add (kp, bk)
    vp = MatMul (x, wv) v = Add (vp, bv)"""


@pytest.mark.parametrize("dtype", TYPES)
def test_packed_weights_keep_their_type(host: Host, run: Any, dtype: str) -> None:
    model = attention(dtype, f"{PLAIN}", WHERE)
    projections = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]> g ({dtype}[B, S, 16] x) => ({dtype} q)
        {{ {PROJECTED} }}"""
    ).graph
    nodes = [*projections.node, *model.graph.node]
    del model.graph.node[:], model.graph.input[:3]
    model.graph.node.extend(nodes)
    model.graph.input.insert(0, projections.input[0])
    rng = np.random.default_rng(0)
    for name in ("wq", "wk", "wv", "bq", "bk", "bv"):
        array = rng.standard_normal((16, 16) if name[0] == "w" else (16,)).astype(TYPES[dtype])
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    compiled(host, model, run, "Attention", keep=keep("right"), x=feeds(dtype, "none")["q"])


@pytest.mark.parametrize("dtype", TYPES)
def test_causal_attention(host: Host, run: Any, dtype: str) -> None:
    mask = """size = Shape <start = 1, end = 2> (q) n = Squeeze (size) c = Range (i0, n, i1)
    r = Unsqueeze (c, i1v) le = LessOrEqual (c, r) mm = Where (le, zero, low)
    mask = Unsqueeze (mm, front) a = Add (s, mask)"""
    model = attention(dtype, PLAIN, mask)
    ints = {"i0": np.array(0), "i1": np.array(1), "i1v": np.array([1]), "front": np.array([0, 1])}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in ints.items()
    )
    assuming = host.with_options(assume=["no-empty-inputs"])
    compiled(assuming, model, run, "GroupQueryAttention", **feeds(dtype, "none"))


@pytest.mark.parametrize(
    ("dtype", "cast"), [("float16", False), ("float16", True), ("bfloat16", True)]
)
def test_rotary(host: Host, run: Any, dtype: str, *, cast: bool) -> None:
    wide = "float" if cast else dtype
    angles = f"c0 = Cos (t) s0 = Sin (t) c = Cast <to = {NUMBERS[dtype]}> (c0) s = Cast <to = {NUMBERS[dtype]}> (s0)"
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]>
        g ({dtype}[B, S, 16] q, {wide}[1, S, 4] f) => ({dtype}[B, 2, S, 8] y)
        <int64[4] heads = {{0, 0, 2, 8}}, int64[1] i0 = {{0}}, int64[1] i1 = {{1}},
        int64[1] i3 = {{3}}, int64[1] i4 = {{4}}, int64[1] i8 = {{8}}>
        {{ qh = Reshape (q, heads) x = Transpose <perm = [0, 2, 1, 3]> (qh)
        t = Concat <axis = -1> (f, f) {angles if cast else "c = Cos (t) s = Sin (t)"}
        cos = Unsqueeze (c, i1) sin = Unsqueeze (s, i1)
        low = Slice (x, i0, i4, i3) high = Slice (x, i4, i8, i3) minus = Neg (high)
        r = Concat <axis = -1> (minus, low)
        a = Mul (x, cos) b = Mul (r, sin) y = Add (a, b) }}"""
    )
    compiled(host, model, run, "RotaryEmbedding")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op", ["LayerNormalization", "gehost::RMSNormalization"])
def test_residual_norms(run: Any, dtype: str, op: str) -> None:
    """An island of float32 is one only of a kernel that computes in float32: the CPU's."""
    from gehost import HostOptions

    both = HostOptions(
        vendors=["gehost:onnx", "gehost:onnxruntime"],
        plugins=False,
        enable=["OrtSkipNormPass", "OrtSkipRmsNormPass"],
        target="cpu",
    )
    parts = "y = LayerNormalization <epsilon = 1e-5> (s, g, b)"
    if op != "LayerNormalization":
        parts = f"""w = Cast <to = 1> (s) p = Pow (w, two) m = ReduceMean (p, last)
        e = Add (m, eps) r = Sqrt (e) n0 = Div (w, r) n = Cast <to = {NUMBERS[dtype]}> (n0)
        y = Mul (n, g)"""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 18]>
        g ({dtype}[B, S, 8] x, {dtype}[B, S, 8] z) => ({dtype}[B, S, 8] y)
        <{dtype}[8] g = {{1, 2, 3, 4, 5, 6, 7, 8}}, {dtype}[8] b = {{1, 2, 3, 4, 5, 6, 7, 8}},
        float two = {{2}}, float eps = {{1e-5}}, int64[1] last = {{-1}}>
        {{ s = Add (x, z) {parts} }}"""
    )
    simplified = "" if op == "LayerNormalization" else "Simplified"
    host = Host(both)
    compiled(host, model, run, f"Skip{simplified}LayerNormalization")
    for target, kernels in (("cuda:1.24", 0), ("cuda:1.30", 0), ("cuda:1.32", 1), ("cuda", 1)):
        result, report = host.with_options(target=target).run(model)
        assert sum("Skip" in node.op_type for node in result.graph.node) == kernels, target
        if kernels:  # older ones hold epsilon in half
            assert report.needs == ["onnxruntime>=1.31.1"]


def test_a_norm_that_a_converter_kept_in_float32_has_a_reason(host: Host) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 18]>
        g (float16[B, S, 8] x, float16[B, S, 8] z) => (float16[B, S, 8] y)
        <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}>
        { s = Add (x, z) t = Cast <to = 1> (s) n = LayerNormalization (t, w, b)
          y = Cast <to = 10> (n) }"""
    )
    _, report = host.run(model)
    (record,) = (item for item in report.passes if item.name == "OrtSkipNormPass")
    assert list(record.rejected) == ["cast"]
