"""Models that hold kernels of ONNX Runtime already, as onnxruntime.transformers and others write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.verify import Runner, compare_outputs

pytest.importorskip("onnxruntime")

HEAD = '<ir_version: 9, opset_import: ["" : {opset}, "com.microsoft" : 1]>'
PROJECTIONS = "q = MatMul (x, wq) k = MatMul (x, wk) v = MatMul (x, wv)"
INPUTS = "float[2,S,16] x, int32[2,S] m, float[48] b, float[1,1,S,S] a"
CALLS = {
    "padding mask": "<num_heads = 2, scale = 0.35> (q, k, v, , m)",
    "padding mask and bias": "<num_heads = 2, scale = 0.35> (q, k, v, , m, a)",
    "causal": "<num_heads = 2, scale = 0.35, unidirectional = 1> (q, k, v)",
    "no scale": "<num_heads = 2> (q, k, v)",
    "bias of an input": "<num_heads = 2, scale = 0.35> (q, k, v, b, , a)",
    "the same as ours": "<num_heads = 2, scale = 0.35> (q, k, v)",
    "filter value": "<num_heads = 2, scale = 0.35, mask_filter_value = -1.0> (q, k, v, , m)",
}


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    rng = np.random.default_rng(3)
    return [
        onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]


def attention(body: str, result: str, *, opset: int = 17, inputs: str = INPUTS) -> onnx.ModelProto:
    output = onnx.parser.parse_model(
        f"{HEAD.format(opset=opset)} g ({inputs}) => ({result}) {{ {body} }}"
    )
    read = {name for node in output.graph.node for name in node.input}
    shapes = {"wq": (16, 16), "wk": (16, 16), "wv": (16, 16), "w": (16, 48), "c": (48,)}
    output.graph.initializer.extend(weight for weight in weights(**shapes) if weight.name in read)
    return output


def assert_equal_numbers(host: Host, model: onnx.ModelProto) -> onnx.ModelProto:
    result, _ = host.run(model)
    rng = np.random.default_rng(4)
    causal = np.where(np.tri(3, dtype=bool), 0, -3.4e38).astype(np.float32)
    feeds: dict[str, Any] = {
        "x": rng.standard_normal((2, 3, 16)).astype(np.float32),
        "m": np.array([[1, 1, 0], [0, 1, 1]], np.int32),
        "b": rng.standard_normal(48).astype(np.float32),
        "a": causal[None, None],
        "t": rng.standard_normal((2, 3, 1)).astype(np.float32),
    }
    named = {entry.name for entry in model.graph.input}
    feeds = {name: value for name, value in feeds.items() if name in named}
    for one in compare_outputs(Runner(model).run(feeds), Runner(result).run(feeds)):
        assert one.equal, one
    return result


@pytest.mark.parametrize("opset", [17, 23])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_attention_with_other_inputs_and_attributes_stays(
    host: Host, call: str, opset: int
) -> None:
    body = f"{PROJECTIONS} y = com.microsoft.MultiHeadAttention {call}"
    result = assert_equal_numbers(host, attention(body, "float[2,S,16] y", opset=opset))
    assert "MultiHeadAttention" in {node.op_type for node in result.graph.node}


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (
            "y = com.microsoft.Attention <num_heads = 2> (x, w, c, m)",
            "float[2,S,16] y",
        ),
        (
            f"{PROJECTIONS} y, k2, v2 = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)",
            "float[2,S,16] y, float[2,2,S,8] k2, float[2,2,S,8] v2",
        ),
    ],
    ids=["Attention", "keys and values as outputs"],
)
def test_other_forms_are_compiled(host: Host, body: str, result: str) -> None:
    assert_equal_numbers(host, attention(body, result))


def test_packed_keys_and_values_stay(host: Host) -> None:
    """ONNX Runtime has a kernel on other devices only."""
    body = (
        f"{PROJECTIONS} i = Constant <value = int64[5] {{0, 0, 2, 1, 8}}> () "
        "k5 = Reshape (k, i) v5 = Reshape (v, i) kv = Concat <axis = 3> (k5, v5) "
        "y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, kv)"
    )
    result, _ = host.run(attention(body, "float[2,S,16] y"))
    assert result.graph.node[-1].op_type == "MultiHeadAttention"


@pytest.mark.parametrize("narrow", ["q", "k", "v"])
def test_a_bias_of_a_narrower_tensor_is_no_bias_of_a_projection(host: Host, narrow: str) -> None:
    parts = []
    for name in "qkv":
        source = "t" if name == narrow else f"{name}p"
        if name != narrow:
            parts.append(f"{name}p = MatMul (x, w{name})")
        parts.append(f"{name}a = Add ({source}, c{name}) {name}r = Reshape ({name}a, split)")
        parts.append(f"{name}h = Transpose <perm = [0, 2, 1, 3]> ({name}r)")
    body = " ".join(parts) + (
        " kt = Transpose <perm = [0, 1, 3, 2]> (kh) s = MatMul (qh, kt) d = Mul (s, scale)"
        " p = Softmax <axis = -1> (d) o = MatMul (p, vh) r = Transpose <perm = [0, 2, 1, 3]> (o)"
        " y = Reshape (r, joined)"
    )
    result = onnx.parser.parse_model(
        f"{HEAD.format(opset=17)} g (float[2,3,16] x, float[2,3,1] t) => (float[2,3,16] y) "
        "<int64[4] split = {0, 0, 2, 8}, int64[3] joined = {0, 0, 16}, float scale = {0.35}> "
        f"{{ {body} }}"
    )
    read = {name for node in result.graph.node for name in node.input}
    shapes = dict.fromkeys(("wq", "wk", "wv"), (16, 16)) | dict.fromkeys(("cq", "ck", "cv"), (16,))
    result.graph.initializer.extend(weight for weight in weights(**shapes) if weight.name in read)
    compiled = assert_equal_numbers(host, result)
    assert "Softmax" not in {node.op_type for node in compiled.graph.node}


def test_a_call_with_fewer_outputs_than_its_function_is_raised(tmp_path: Path) -> None:
    """onnx's inference does not take it."""
    function = (
        """<domain: "acme", opset_import: ["" : 17]> F (x) => (y, z) { y = Relu (x) z = Neg (x) }"""
    )
    main = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[2] x) => (float[2] y)'
    model = onnx.parser.parse_model(f"{main} {{ y = acme.F (x) }} {function}")
    onnx.save(model, tmp_path / "m.onnx")
    Host(HostOptions(vendors=[], opset=23)).compile(tmp_path / "m.onnx", tmp_path / "o.onnx")
    compiled = onnx.load(tmp_path / "o.onnx")
    versions = [item.opset_import[0].version for item in (compiled, *compiled.functions)]
    assert versions == [23, 23]
    onnx.checker.check_model(compiled)


def test_a_long_mask_is_followed_once(host: Host) -> None:
    """60 products of a tensor by itself are no 2**60 steps."""
    lines = ["one = Constant <value_float = 1.0> () zero = Constant <value_float = 0.0> ()"]
    lines.append("m0 = Where (keep, one, zero)")
    lines += [f"m{n + 1} = Mul (m{n}, m{n})" for n in range(60)]
    lines.append(
        "kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt) d = Add (s, m60) "
        "p = Softmax <axis = -1> (d) y = MatMul (p, v)"
    )
    qkv = ", ".join(f"float[2,2,S,8] {name}" for name in "qkv")
    inputs = attention(
        " ".join(lines), "float[2,2,S,8] y", opset=23, inputs=f"{qkv}, bool[1,1,S,S] keep"
    )
    result, _ = host.run(inputs)
    assert "Attention" in {node.op_type for node in result.graph.node}
