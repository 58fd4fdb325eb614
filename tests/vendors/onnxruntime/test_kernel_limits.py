"""What the kernels do not take: unequal head sizes apart, empty tensors, a width that ONNX cannot infer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.testing import parse
from gehost.verify import Runner, compare_outputs
from tests.conftest import is_older

from .test_attention import FORMS, GUARD, MASKS, SOFTMAX, model
from .test_standard_attention import CAPS

pytest.importorskip("onnxruntime")

EMPTY = {"batch": (0, 3), "rows": (2, 0), "both": (0, 0)}


@pytest.fixture(scope="module")
def plain(host: Host) -> Host:
    """The vendor's host, which assumes nothing."""
    return Host(replace(host.options, assume=[]))


def kernels(result: onnx.ModelProto) -> Counter[str]:
    match = Counter(node.op_type for node in result.graph.node)
    names = ("Attention", "MultiHeadAttention", "GroupQueryAttention", "Softmax")
    return Counter({name: match[name] for name in names if match[name]})


def reasons(report: Any, name: str) -> list[str]:
    (record,) = [one for one in report.passes if one.name == name]
    return list(record.rejected)


def assert_as_before(model: onnx.ModelProto, result: onnx.ModelProto, run: Any, feeds: Any) -> None:
    if is_older("1.29") and not all(array.size for array in feeds.values()):
        return  # the kernel ends the process there; ``gehost.needs`` says so
    for one in compare_outputs(Runner(model).run(feeds), run(result, feeds), rtol=1e-3, atol=1e-4):
        assert one.equal, one


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


# -- heads apart ----------------------------------------------------------------------------------

APART: dict[str, tuple[str, str]] = {
    "given apart": ("", "q, k, v"),
    "k alone computed": ("kr = Neg (k)", "q, kr, v"),
    "as DeepSeek-V3": (  # the heads of k share a part
        "a, b = Split <axis = -1> (k, halves) c, d = Split <axis = -1> (k1, halves) "
        "e = Expand (d, each) kr = Concat <axis = -1> (a, e)",
        "q, kr, v",
    ),
    "repeated": (
        """ku = Unsqueeze (k1, two) ke = Expand (ku, times) kr = Reshape (ke, k_spread)
        vu = Unsqueeze (v1, two) ve = Expand (vu, times) vr = Reshape (ve, v_spread)""",
        "q, kr, vr",
    ),
}


def apart(values: int, prepared: str, qkv: str, opset: int = 17) -> onnx.ModelProto:
    """Attention of two heads of size 4 for q and k, and another for v, all [B, N, S, ·]."""
    q, k, v = qkv.split(", ")
    return parse(f"""<ir_version: 8, opset_import: ["" : {opset}]>
    main (float[B, 2, S, 4] q, float[B, 2, T, 4] k, float[B, 2, T, {values}] v,
          float[B, 1, T, 4] k1, float[B, 1, T, {values}] v1) => (float[B, S, W] out)
    <int64[2] halves = {{2, 2}}, int64[4] each = {{1, 2, 1, 1}}, int64[1] two = {{2}}, int64[5] times = {{1, 1, 2, 1, 1}}, float scale = {{0.5}},
     int64[4] k_spread = {{0, 2, -1, 4}}, int64[4] v_spread = {{0, 2, -1, {values}}},
     int64[3] joined = {{0, 0, {2 * values}}}> {{
        {prepared}
        kt = Transpose <perm = [0, 1, 3, 2]> ({k}) m = MatMul ({q}, kt) s = Mul (m, scale)
        p = Softmax <axis = -1> (s) y = MatMul (p, {v})
        yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)
    }}""")


def apart_feeds(values: int, batch: int = 2, rows: int = 3, columns: int = 5) -> Any:
    shapes = {
        "q": (2, rows, 4),
        "k": (2, columns, 4),
        "v": (2, columns, values),
        "k1": (1, columns, 4),
        "v1": (1, columns, values),
    }
    return {name: normal(batch, *shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(("prepared", "qkv"), APART.values(), ids=APART)
@pytest.mark.parametrize("values", [2, 4, 8])
def test_heads_of_v_may_have_a_size_of_their_own(
    plain: Host, run: Any, values: int, prepared: str, qkv: str
) -> None:
    """The kernel takes such k and v as rows alone."""
    inputs = apart(values, prepared, qkv)
    result, _ = plain.run(inputs)
    assert kernels(result) == {"MultiHeadAttention": 1}
    empty = ((0, 3, 5), (0, 0, 0)) if "Reshape" not in prepared else ()  # it takes no -1 then
    for batch, rows, columns in ((2, 3, 5), (1, 1, 1), (2, 0, 5), *empty):
        assert_as_before(inputs, result, run, apart_feeds(values, batch, rows, columns))
    rows_made = sum(node.op_type == "Transpose" for node in result.graph.node)
    assert rows_made == (1 if values == 4 else 3)  # of q, and of k and v where these must be rows


@pytest.mark.parametrize("values", [2, 8])
@pytest.mark.parametrize(("prepared", "qkv"), APART.values(), ids=APART)
def test_heads_of_v_may_have_a_size_of_their_own_at_opset_23(
    host: Host, run: Any, values: int, prepared: str, qkv: str
) -> None:
    inputs = apart(values, prepared, qkv, opset=23)
    result, _ = host.run(inputs)
    assert kernels(result) == {"Attention": 1}
    assert_as_before(inputs, result, run, apart_feeds(values))


@pytest.mark.parametrize(
    ("target", "options", "is_fused"),
    [
        ("cpu:1.28", {}, False),
        ("cpu:1.28", {"dims": {"B": 2, "S": 3, "T": 5}}, True),
        ("cpu:1.28", {"assume": ["no-empty-inputs"]}, True),
        ("cpu:1.29", {}, True),
        ("cpu", {}, True),
    ],
)
def test_releases_that_end_the_process_at_empty_tensors(
    plain: Host, target: str, options: Any, *, is_fused: bool
) -> None:
    """Before 1.29 MultiHeadAttention divides by a batch or length of 0."""
    result, report = plain.with_options(target=target, **options).run(
        apart(2, *APART["given apart"])
    )
    assert kernels(result) == ({"MultiHeadAttention": 1} if is_fused else {"Softmax": 1})
    if is_fused:
        oldest = "1.21.1" if "dims" in options else "1.29.0"
        assert report.needs == [f"onnxruntime>={oldest}"]
    else:
        assert reasons(report, "OrtAttentionPass") == ["empty"]


# -- empty tensors --------------------------------------------------------------------------------


def masked_feeds(batch: int, rows: int, columns: int) -> Any:
    keep = np.random.default_rng(0).random((batch, 1, rows, columns)) < 0.6
    return {
        "q": normal(batch, rows, 8),
        **{name: normal(batch, columns, 8) for name in "kv"},
        "keep": keep,
        "keep_row": keep[..., :1, :] if rows else np.ones((batch, 1, 1, columns), bool),
    }


@pytest.mark.parametrize("opset", [13, 17, 18, 23])
@pytest.mark.parametrize("mask", ["B1ST", "B11T"])
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_guard_takes_what_is_empty(
    plain: Host, run: Any, opset: int, mask: str, batch: int, rows: int
) -> None:
    """ONNX Runtime's reductions give an empty tensor back as it is."""
    inputs = model(mask=MASKS[mask], softmax=GUARD, fill="far", opset=opset)
    result, _ = plain.run(inputs)
    assert kernels(result)["MultiHeadAttention"] == 1
    assert_as_before(inputs, result, run, masked_feeds(batch, rows, rows))


def test_a_guard_takes_no_keys(plain: Host, run: Any) -> None:
    inputs = model(mask=MASKS["B1ST"], softmax=GUARD, fill="far", length="T")
    result, _ = plain.run(inputs)
    assert kernels(result)["MultiHeadAttention"] == 1
    for columns in (0, 1, 5):
        assert_as_before(inputs, result, run, masked_feeds(2, 3, columns))


def fixed(model: onnx.ModelProto, **sizes: int) -> onnx.ModelProto:
    """The model with sizes in the place of symbols."""
    for info in (*model.graph.input, *model.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return model


STANDARD = {"B": 2, "S": 3}


@pytest.mark.parametrize("fix", [(), ("B",), ("S",)])
@pytest.mark.parametrize("scores", [FORMS["no scale"], CAPS["no factor behind"]])
def test_a_kernel_that_refuses_empty_tensors_is_not_used_for_open_sizes(
    plain: Host, run: Any, scores: str, fix: tuple[str, ...]
) -> None:
    inputs = fixed(model(scores, opset=23), **{name: STANDARD[name] for name in fix})
    result, report = plain.run(inputs)
    assert sum(kernels(result).values()) == 1
    assert not any(one.domain == "" and one.op_type == "Attention" for one in result.graph.node)
    assert reasons(report, "OrtStandardAttentionPass") == ["empty"]
    for batch, rows in () if fix else EMPTY.values():
        assert_as_before(inputs, result, run, masked_feeds(batch, rows, rows))


@pytest.mark.parametrize("scores", [FORMS["no scale"], CAPS["no factor behind"]])
def test_a_kernel_that_refuses_empty_tensors_is_used_for_fixed_sizes(
    plain: Host, run: Any, scores: str
) -> None:
    inputs = fixed(model(scores, opset=23), **STANDARD)
    result, _ = plain.run(inputs)
    assert kernels(result) == {"Attention": 1}
    assert_as_before(inputs, result, run, masked_feeds(2, 3, 3))


@pytest.mark.parametrize("empty", [("batch", {"B": 0, "S": 3}), ("length", {"S": 0})])
@pytest.mark.parametrize("scores", ["given", "apart"])
def test_attention_of_nothing_stays(
    plain: Host, scores: str, empty: tuple[str, dict[str, int]]
) -> None:
    reason, sizes = empty
    apart_form = apart(4, "", "q, k, v")
    inputs = fixed(apart_form if scores == "apart" else model(FORMS["no scale"]), **sizes)
    result, report = plain.run(inputs)
    assert kernels(result) == {"Softmax": 1}
    assert reasons(report, "OrtAttentionPass") == [reason]


@pytest.mark.parametrize("empty", [("batch", "B"), ("rows", "S"), ("length", "T")])
def test_a_size_of_0_is_refused_whatever_is_assumed(host: Host, empty: tuple[str, str]) -> None:
    reason, name = empty
    _, report = host.run(fixed(apart(4, "", "q, k, v", opset=23), **{name: 0}))
    assert reasons(report, "OrtStandardAttentionPass") == [reason]


def causal(size: str) -> onnx.ModelProto:
    """Causal attention with heads of size 8; a batch of 0 ends the process of the kernel."""
    return parse(f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[{size}, S, 16] q, float[{size}, S, 16] k, float[{size}, S, 16] v) => (float[{size}, S, 16] out)
    <int64[4] heads = {{0, 0, 2, 8}}, int64[3] joined = {{0, 0, 16}}, float low = {{-3.4e38}},
     int64 one = {{1}}> {{
        qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, heads) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
        vh = Reshape (v, heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        s = MatMul (qt, kt) n = Shape <start = 1, end = 2> (q) square = Concat <axis = 0> (n, n)
        lows = Expand (low, square) mask = Trilu <upper = 1> (lows, one) a = Add (s, mask) {SOFTMAX}
        y = MatMul (p, vt) yt = Transpose <perm = [0, 2, 1, 3]> (y) out = Reshape (yt, joined)
    }}""")


def test_the_causal_kernel_is_not_used_for_open_sizes(plain: Host, host: Host, run: Any) -> None:
    inputs = causal("B")
    result, report = plain.run(inputs)
    assert kernels(result) == {"MultiHeadAttention": 1}
    assert reasons(report, "OrtCausalAttentionPass") == ["empty"]
    for batch, rows in (*EMPTY.values(), (2, 3)):
        feeds = {name: normal(batch, rows, 16) for name in "qkv"}
        assert_as_before(inputs, result, run, feeds)
    assert kernels(host.run(inputs)[0]) == {"GroupQueryAttention": 1}
    assert kernels(plain.run(fixed(causal("B"), B=2, S=3))[0]) == {"GroupQueryAttention": 1}


# -- a width that ONNX cannot infer ---------------------------------------------------------------

COMPUTED = """shape = Shape (v0) front = Slice (shape, zero, two) target = Concat <axis = 0> (front, width)
    v = Reshape <allowzero = 1> (v0, target)"""


@pytest.mark.parametrize("opset", [23, 24])
def test_the_width_of_v_is_stated_where_inference_loses_it(
    host: Host, run: Any, opset: int
) -> None:
    """ONNX's inference of Attention reads an unknown width of v as 0, also in ONNX Runtime."""
    attention = f"""qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
        kh = Reshape (k, heads) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
        vh = Reshape (v, heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
        m = MatMul (qt, kt) t = Tanh (m) a0 = Mul (t, scale) {SOFTMAX.replace("(a)", "(a0)")}
        y = MatMul (p, vt) yt = Transpose <perm = [0, 2, 1, 3]> (y) a = Reshape (yt, joined)"""
    model = parse(
        f"""<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        main (float[B, S, 8] q, float[B, S, 8] k, float[B, S, 8] v0) => (float[B, S, 5] out)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] width = {{8}}, float scale = {{0.5}},
         int64[4] heads = {{0, 0, 2, 4}}, int64[3] joined = {{0, 0, 8}}> {{
            {COMPUTED} {attention} out = MatMul (a, w)
        }}""",
        {"w": normal(8, 5)},
    )
    result, _ = Host(replace(host.options, cleanup=False)).run(model)
    assert kernels(result) == {"Attention": 1}
    onnx.checker.check_model(result, full_check=True)
    feeds = {name: normal(2, 3, 8) for name in ("q", "k", "v0")}
    assert_as_before(model, result, run, feeds)
