"""``FuseElementwisePass`` end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost import Host, HostOptions, UsageError
from gehost.host.report import Report
from gehost.testing import parse
from gehost_linalg.kernels.library import fused
from gehost_linalg.passes import NAME

from .models import graph, run_lowered, run_runtime

X = np.random.default_rng(5).normal(size=(2, 3, 4)).astype(np.float32)


@pytest.fixture
def fuse(tmp_path: Path) -> Any:
    """Run the pass on a model's text; returns the model, the pass's record and the report."""
    folder = tmp_path / "vendors"
    folder.mkdir()

    def run(text: str | onnx.ModelProto, **options: Any) -> tuple[onnx.ModelProto, Any, Report]:
        settings = {f"{NAME}.{name}": value for name, value in options.pop("settings", {}).items()}
        model = parse(text) if isinstance(text, str) else text
        host = Host(
            HostOptions(
                vendors=options.pop("vendors", [folder]),
                enable=(NAME,),
                settings=settings,
                **options,
            )
        )
        result, report = host.run(model)
        onnx.checker.check_model(result)
        return result, next(pass_ for pass_ in report.passes if pass_.name == NAME), report

    return run


def fused_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.domain == "gehost.linalg"]


RESIDUAL = graph("s = Add(x, r)\ny = LayerNormalization<axis=-1>(s, g, b)\nz = Relu(s)",
                 "float[n,3,4] x, float[n,3,4] r, float[4] g, float[4] b", "float[n,3,4] y, float[n,3,4] z")  # fmt: skip


def test_a_group_is_one_node_with_the_nodes_as_its_body(fuse: Any) -> None:
    result, record, _ = fuse(RESIDUAL)
    (node,) = fused_nodes(result)
    (function,) = result.functions
    assert [item.op_type for item in result.graph.node] == [node.op_type]
    assert (function.domain, function.name) == ("gehost.linalg", node.op_type)
    assert sorted(item.op_type for item in function.node) == ["Add", "LayerNormalization", "Relu"]
    assert node.op_type.rpartition("_")[0] == "Add_LayerNormalization_Relu"
    assert not node.attribute
    assert (record.replaced, record.matched) == (1, 1)
    feeds = {"x": X, "r": X[::-1].copy(), "g": X[0, 0], "b": X[1, 1]}
    for model, expected in zip(
        run_runtime(result, feeds), run_runtime(parse(RESIDUAL), feeds), strict=True
    ):
        np.testing.assert_array_equal(model, expected)


def test_a_group_of_constants_alone_is_left_alone(fuse: Any) -> None:
    result, record, _ = fuse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y, float[2] z) <float[2] w = {2, 2}> {
            a = Neg(w) b = Erf(a) y = Tanh(b) z = Abs(x) }""",
        cleanup=False,
    )
    assert not fused_nodes(result)
    assert record.rejected["constant"] == 1


def test_the_pass_is_off_by_default(tmp_path: Path) -> None:
    result, _ = Host(HostOptions(vendors=[tmp_path])).run(parse(RESIDUAL))
    assert not fused_nodes(result)


def layers(count: int) -> onnx.ModelProto:
    """Equal layers with weights of their own, which are not all equal."""
    lines = []
    for number in range(count):
        source = "x" if number == 0 else f"y{number - 1}"
        lines += [f"s{number} = Mul({source}, w{number})", f"t{number} = Tanh(s{number})"]
        lines += [f"a{number} = Add(t{number}, two)", f"y{number} = MatMul(a{number}, m)"]
    model = onnx.parser.parse_model(
        graph("\n".join(lines), "float[n,4] x", f"float[n,4] y{count - 1}")
    )
    random = np.random.default_rng(0)
    arrays = {f"w{number}": random.normal(size=4).astype(np.float32) for number in range(count)}
    arrays |= {
        "m": random.normal(size=(4, 4)).astype(np.float32),
        "two": np.full((1,), 2, np.float32),
    }
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()
    )
    return model


def test_equal_layers_share_a_kernel_and_only_splats_are_part_of_it(fuse: Any) -> None:
    original = layers(3)
    result, _, _ = fuse(original)
    nodes = fused_nodes(result)
    assert len(nodes) == 3
    assert len({node.op_type for node in nodes}) == len(result.functions) == 1
    assert [list(node.input)[1] for node in nodes] == ["w0", "w1", "w2"]
    constants = [
        constant for constant in result.functions[0].node if constant.op_type == "Constant"
    ]
    assert [
        onnx.numpy_helper.to_array(constant.attribute[0].t).tolist() for constant in constants
    ] == [[2.0]]
    assert "two" not in {constant.name for constant in result.graph.initializer}
    feeds = {"x": X[0]}
    np.testing.assert_array_equal(run_runtime(result, feeds)[0], run_runtime(original, feeds)[0])


def test_a_second_run_changes_nothing(fuse: Any) -> None:
    result, _, _ = fuse(layers(2))
    again, record, _ = fuse(result)
    assert record.replaced == 0
    assert len(fused_nodes(again)) == 2


def test_static_ones_and_dtypes_have_kernels_of_their_own(fuse: Any) -> None:
    def kernel(inputs: str, output: str) -> str:
        result, _, _ = fuse(graph("s = Add(a, b)\ny = Exp(s)", inputs, output))
        return fused_nodes(result)[0].op_type

    base = kernel("float[2,3] a, float[2,3] b", "float[2,3] y")
    assert kernel("float[4,5] a, float[4,5] b", "float[4,5] y") == base  # never sizes
    assert kernel("float[n,m] a, float[n,m] b", "float[n,m] y") == base
    assert kernel("float[2,3] a, float[2,1] b", "float[2,3] y") != base
    assert kernel("double[2,3] a, double[2,3] b", "double[2,3] y") != base
    assert kernel("float[2,3] a, float[3] b", "float[2,3] y") != base


def test_a_value_that_others_read_is_an_output_of_the_node(fuse: Any) -> None:
    result, _, _ = fuse(
        graph(
            "s = Add(x, x)\ne = Exp(s)\nm = MatMul(s, w)\ny = Mul(e, s)",
            "float[4,4] x, float[4,4] w",
            "float[4,4] y, float[4,4] m",
        )
    )
    (node,) = fused_nodes(result)
    assert len(node.output) == 2


def test_a_path_that_leaves_the_nodes_and_returns_keeps_them_apart(fuse: Any) -> None:
    """Exp → MatMul → Mul and Exp → Mul: one node for Exp and Mul would wait for itself."""
    text = graph(
        "e = Exp(x)\nt = Tanh(e)\nm = MatMul(t, w)\ns = Sqrt(m)\ny = Mul(t, s)",
        "float[4,4] x, float[4,4] w",
        "float[4,4] y",
    )
    result, record, _ = fuse(text)
    assert len(fused_nodes(result)) == 2
    assert record.rejected["cycle"] == 1
    feeds = {"x": X[0].repeat(2, 0)[:4], "w": np.abs(X[1]).repeat(2, 0)[:4]}
    feeds = {name: array[:4, :4] for name, array in feeds.items()}
    np.testing.assert_array_equal(run_runtime(result, feeds)[0], run_runtime(parse(text), feeds)[0])


@pytest.mark.parametrize(
    ("body", "inputs", "output", "key"),
    [
        (
            "c = Conv(x, w)\nr = Relu(c)\ny = Clip(r)",
            "float[1,3,8,8] x, float[3,3,1,1] w",
            "float[1,3,8,8] y",
            "conv-epilogue",
        ),
        (
            "m = MatMul(a, b)\nk = Constant<value = float {0.125}>()\ny = Mul(m, k)",
            "float[2,2] a, float[2,2] b",
            "float[2,2] y",
            "matmul-scale",
        ),
        (
            "m = MatMul(a, b)\nt = Add(m, b)\nk = Constant<value = float {0.125}>()\ns = Mul(t, k)\n"
            "y = MatMul(s, b)",
            "float[2,2] a, float[2,2] b",
            "float[2,2] y",
            "matmul-scale",
        ),
        (
            "t = Transpose<perm=[1,0]>(b)\ny = MatMul(a, t)",
            "float[2,2] a, float[2,2] b",
            "float[2,2] y",
            "matmul-transpose",
        ),
        (
            "n = Neg(b)\nt = Transpose<perm=[1,0]>(n)\nk = Constant<value = float {0.125}>()\ns = Mul(t, k)\n"
            "y = MatMul(a, s)",
            "float[2,2] a, float[2,2] b",
            "float[2,2] y",
            "matmul-transpose",
        ),
        (
            "n = Neg(b)\nt = Transpose(n)\ny = Gemm(a, t, a)",
            "float[2,2] a, float[2,2] b",
            "float[2,2] y",
            "matmul-transpose",
        ),
        (
            "n = Neg(x)\ny = Transpose<perm=[0,2,3,1]>(n)",
            "float[1,4,h,w] x",
            "float[1,h,w,4] y",
            "short-rows",
        ),
        ("y = Softmax(x)", "float[2,2] x", "float[2,2] y", "single-operator"),
        ("y = Reshape(x, s)", "float[2,2] x, int64[1] s", "float[4] y", "view"),
        (
            "r = Reshape(x, s)\ny = Neg(r)",
            "float[2,2] x, int64[1] s",
            "float[4] y",
            "not-lowered",
        ),
        (
            "k = Constant<value = int64[4] {0, 0, 2, 3}>()\nr = Reshape(x, k)\n"
            "t = Transpose<perm=[0,2,1,3]>(r)\ny = MatMul(t, w)",
            "float[b,s,6] x, float[3,3] w",
            "float[b,2,s,3] y",
            "not-lowered",
        ),
    ],
)
def test_what_the_runtime_does_better_is_left_alone(
    fuse: Any, body: str, inputs: str, output: str, key: str
) -> None:
    result, record, _ = fuse(graph(body, inputs, output))
    assert not fused_nodes(result)
    assert record.rejected[key] >= 1


@pytest.mark.parametrize("size", ["16,h,w", "4,8,8"])
def test_a_transpose_to_rows_that_are_long_or_few_is_fused(fuse: Any, size: str) -> None:
    text = graph(
        "n = Neg(x)\ny = Transpose<perm=[0,2,3,1]>(n)", f"float[1,{size}] x", "float[1,o,p,q] y"
    )
    result, _, _ = fuse(text)
    assert len(fused_nodes(result)) == 1


@pytest.mark.parametrize("body", ["y = Transpose(n)", "t = Transpose(n)\ny = Gemm(b, b, t)"])
def test_an_operation_before_a_transpose_is_a_group(fuse: Any, body: str) -> None:
    result, _, _ = fuse(graph(f"n = Neg(b)\n{body}", "float[2,2] b", "float[2,2] y"))
    assert len(fused_nodes(result)) == 1


def test_a_computed_operand_of_a_product_is_scaled_in_its_group(fuse: Any) -> None:
    """The last operation of a Gelu."""
    text = graph(
        "k = Constant<value = float {0.5}>()\ne = Erf(x)\na = Mul(x, e)\nm = Mul(a, k)\ny = MatMul(m, w)",
        "float[4,4] x, float[4,4] w",
        "float[4,4] y",
    )
    result, record, _ = fuse(text)
    assert [node.op_type for node in result.graph.node][1:] == ["MatMul"]
    assert "matmul-scale" not in record.rejected


def test_sizes_stay_visible_to_inference(fuse: Any, tmp_path: Path) -> None:
    """A size of 1 behind Expand follows from them; without it, a node there had no kernel."""
    text = graph(
        "s = Shape(w)\ni = Constant<value = int64[1] {0}>()\nn = Gather(s, i)\nk = Constant<value = int64[1] {1}>()\n"
        "c = Concat<axis = 0>(n, k)\nm = Constant<value = int64[2] {-1, -1}>()\no = Constant<value = int64[2] {1, 1}>()\n"
        "e = Equal(c, m)\nt = Where(e, o, c)\nz = Expand(x, t)\na = Add(z, w)\ny = Exp(a)",
        "float[1,1] x, float[N,M] w",
        "float[P,Q] y",
    )
    result, record, _ = fuse(text)
    onnx.save(result, tmp_path / "fused.onnx")
    assert not fused(str(tmp_path / "fused.onnx")).left
    assert record.rejected["shape"] >= 2


def test_conv_batch_normalization_relu_is_left_alone_unless_asked_for(fuse: Any) -> None:
    text = graph(
        "c = Conv(x, w)\nn = BatchNormalization(c, s, s, s, s)\ny = Relu(n)",
        "float[1,3,8,8] x, float[3,3,1,1] w, float[3] s",
        "float[1,3,8,8] y",
    )
    result, record, _ = fuse(text)
    assert not fused_nodes(result)
    assert record.rejected["conv-epilogue"] == 2
    result, _, _ = fuse(text, settings={"leave_alone": "false"})
    assert len(fused_nodes(result)) == 1


SHARED = graph("e = Exp(x)\na = Tanh(e)\nb = Sqrt(e)\nm = MatMul(a, w)\nn = MatMul(b, w)",
               "float[4,4] x, float[4,4] w", "float[4,4] m, float[4,4] n")  # fmt: skip


def test_duplicate_copies_a_shared_producer_into_each_group(fuse: Any) -> None:
    settings = {"control": "always", "multi_use": "duplicate", "rows": "false"}
    result, _, _ = fuse(SHARED, settings=settings)
    assert sorted(len(function.node) for function in result.functions) == [2, 2]
    assert "Exp" not in {node.op_type for node in result.graph.node}
    feeds = {"x": X[0].repeat(2, 0)[:4], "w": X[1].repeat(2, 0)[:4]}
    for model, expected in zip(
        run_runtime(result, feeds), run_runtime(parse(SHARED), feeds), strict=True
    ):
        np.testing.assert_array_equal(model, expected)


def test_share_makes_one_group(fuse: Any) -> None:
    result, _, _ = fuse(
        SHARED, settings={"control": "always", "multi_use": "share", "rows": "false"}
    )
    assert len(fused_nodes(result)) == 1
    assert not [node for node in result.graph.node if node.op_type in {"Exp", "Tanh"}]


def test_works_without_clean_up_and_removes_what_it_left_unread(fuse: Any) -> None:
    body = "k = Constant<value = float {2.0}>()\ns = Mul(x, k)\ny = Exp(s)"
    result, _, _ = fuse(graph(body, "float[n] x", "float[n] y"), cleanup=False)
    assert [node.domain for node in result.graph.node] == ["gehost.linalg"]


def test_equal_groups_are_merged(fuse: Any) -> None:
    body = "a = Exp(x)\nb = Tanh(a)\nc = Exp(x)\nd = Tanh(c)\ny = MatMul(b, w)\nz = MatMul(d, v)"
    result, _, _ = fuse(
        graph(body, "float[4,4] x, float[4,4] w, float[4,4] v", "float[4,4] y, float[4,4] z"),
        cleanup=False,
    )
    assert len(fused_nodes(result)) == 1


def test_bodies_of_control_flow_are_fused_too(fuse: Any) -> None:
    body = """y = If(c) <
  then_branch = t () => (float[4] u) { e = Exp(x)
    u = Tanh(e) },
  else_branch = f () => (float[4] v) { v = Neg(x) }
>"""
    text = graph(body, "bool c, float[4] x", "float[4] y")
    result, _, _ = fuse(text)
    inner = [
        node.domain for attribute in result.graph.node[0].attribute for node in attribute.g.node
    ]
    assert sorted(inner) == ["", "gehost.linalg"]
    for condition in (True, False):
        feeds = {"c": np.array(condition), "x": X[0, 0]}
        np.testing.assert_array_equal(
            run_runtime(result, feeds)[0], run_runtime(parse(text), feeds)[0]
        )


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("control", "one-used", "no control is called 'one-used'; nearest: one-use"),
        ("control", "max-operands=none", "needs a number from 1 to 999999999"),
        ("multi_use", "shared", "no multi-use is called 'shared'; nearest: share"),
        ("companions", "dedupe", "no companion is called 'dedupe'; nearest: dedup"),
    ],
)
def test_settings_that_mean_nothing_are_usage_errors(
    fuse: Any, setting: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        fuse(RESIDUAL, settings={setting: value})
    assert message in str(caught.value)


def test_a_vendor_file_adds_a_control_function(fuse: Any, tmp_path: Path) -> None:
    file = tmp_path / "others" / "acme" / "custom_fusion_passes" / "control.py"
    file.parent.mkdir(parents=True)
    file.write_text("""from gehost_linalg import control_function

@control_function("never-after-exp")
def never_after_exp(operand):
    return operand.producer.payload.ops[0].name != "math.exp" or "after exp"
""")
    text = graph("e = Exp(x)\nt = Tanh(e)\ny = Sqrt(t)", "float[n] x", "float[n] y")
    settings = {"control": "never-after-exp", "rows": "false"}
    result, record, _ = fuse(text, vendors=[tmp_path / "others"], settings=settings)
    assert sorted(node.op_type for node in result.functions[0].node) == ["Sqrt", "Tanh"]
    assert record.rejected["control"] == 1


EDGES = [
    ("a = Exp(x)\ny = Tanh(a)", "float x", "float y"),
    ("a = Exp(x)\ny = Tanh(a)", "float[0,3] x", "float[0,3] y"),
    ("a = Exp(x)\ny = Tanh(a)", "float[2147483648] x", "float[2147483648] y"),
    ("a = ReduceMax(x)\ny = Tanh(a)", "float[0,3] x", "float[1,1] y"),
]


@pytest.mark.parametrize(("body", "inputs", "output"), EDGES)
def test_edges_are_fused_or_left_alone(fuse: Any, body: str, inputs: str, output: str) -> None:
    fuse(graph(body, inputs, output))


def test_unknown_ranks_are_left_alone_with_a_reason(fuse: Any) -> None:
    body = "r = Reshape(x, s)\na = Exp(r)\nb = Tanh(a)\ny = Reshape(b, t)"
    result, record, _ = fuse(graph(body, "float[n] x, int64[k] s, int64[1] t", "float[m] y"))
    assert not fused_nodes(result)
    assert record.rejected["operand-unranked"] >= 1


def test_forty_axes(fuse: Any) -> None:
    sizes = ",".join(["1"] * 39 + ["4"])
    result, _, _ = fuse(graph("a = Exp(x)\ny = Tanh(a)", f"float[{sizes}] x", f"float[{sizes}] y"))
    assert len(fused_nodes(result)) == 1


def test_a_group_has_at_most_256_nodes(fuse: Any) -> None:
    lines = [f"v{n + 1} = {'Tanh' if n % 2 else 'Exp'}(v{n})" for n in range(600)]
    result, record, _ = fuse(graph("\n".join(lines), "float[n] v0", "float[n] v600"))
    assert max(len(function.node) for function in result.functions) <= 256
    sizes = {function.name: len(function.node) for function in result.functions}
    assert sum(sizes[node.op_type] for node in fused_nodes(result)) >= 590
    assert record.rejected["too-large"] >= 2


@pytest.mark.parametrize(
    ("x", "y", "sizes"),
    [("4", 4, (1, 4)), ("1", 5, (5, 5)), ("dim 4", "4", (1, 3))],
)
def test_names_of_sizes_may_look_like_numbers(x: str, y: str | int, sizes: tuple[int, int]) -> None:
    """They may stand for any size."""
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Exp", ["x"], ["e"]),
        onnx.helper.make_node("Add", ["e", "y"], ["z"]),
    ]
    result = onnx.helper.make_graph(
        nodes, "g", [value("x", 1, [x]), value("y", 1, [y])], [value("z", 1, [None])]
    )
    model = onnx.helper.make_model(result, opset_imports=[onnx.helper.make_opsetid("", 20)])
    model.ir_version = 10
    feeds = {name: X.reshape(-1)[:size] for name, size in zip("xy", sizes, strict=True)}
    (expected,) = run_runtime(model, feeds)
    for fuse in (False, True):
        (inputs,) = run_lowered(model, feeds, fuse=fuse)
        np.testing.assert_allclose(inputs, expected, rtol=1e-6)


def rms(residual: str) -> str:
    """A residual and RMS normalization as exporters write it, at an opset without the operator."""
    body = (
        f"s = {residual}\ntwo = Constant<value = float {{2}}>()\np = Pow(s, two)\nm = ReduceMean<axes = [-1]>(p)\n"
        "eps = Constant<value = float {0.00001}>()\ne = Add(m, eps)\nq = Sqrt(e)\nd = Div(s, q)\n"
        "y = Mul(g, d)"
    )
    return graph(body, "float[n,3,4] x, float[n,3,4] r, float[4] g", "float[n,3,4] y", 17)


def test_a_call_of_a_later_operator_is_part_of_a_group(fuse: Any) -> None:
    """The vendor of the ONNX passes makes it ``gehost::RMSNormalization`` first."""
    result, _, report = fuse(rms("Add(x, r)"), vendors=["gehost:onnx"])
    first = next(pass_ for pass_ in report.passes if pass_.name == "RMSNormalizationFusionPass")
    assert first.replaced == 1
    assert [function.domain for function in result.graph.node] == ["gehost.linalg"]
    assert [function.domain for function in result.functions] == ["gehost.linalg"]
    feeds = {"x": X, "r": X[::-1].copy(), "g": X[0, 0]}
    (inputs,) = run_runtime(result, feeds)
    (expected,) = run_runtime(parse(rms("Add(x, r)")), feeds)
    np.testing.assert_allclose(inputs, expected, rtol=1e-6)


CALL = """<ir_version: 10, opset_import: ["" : 20, "gehost" : 1]>
main (float[n,4] x, float[4,4] w) => (float[n,4] y) {
  s = Sigmoid(x)
  t = gehost.F<k = 2>(s, w)
  y = Tanh(t)
}
"""


def test_a_call_is_replaced_by_what_its_function_computes(fuse: Any) -> None:
    """The name says nothing: a file may bring any function under it."""
    function = """<domain: "gehost", opset_import: ["" : 20]> F <k: int = 1> (a, b) => (c) {
  i = Identity(a)
  f = Constant<value_int: int = @k>()
  n = CastLike(f, a)
  c = Mul(i, n)
}"""
    result, _, _ = fuse(CALL + function)
    (node,) = result.graph.node
    assert node.op_type.startswith("Sigmoid_Mul_Tanh")
    feeds = {"x": X[0], "w": np.eye(4, dtype=np.float32)}
    (inputs,) = run_runtime(result, feeds)
    np.testing.assert_allclose(inputs, np.tanh(2 / (1 + np.exp(-X[0]))), rtol=1e-6)


@pytest.mark.parametrize(
    ("version", "body"),
    [(20, "c = MatMul(a, b)"), (18, "c = Mul(a, a)")],
    ids=["operator", "opset"],
)
def test_a_call_that_cannot_be_lowered_stays(fuse: Any, version: int, body: str) -> None:
    head = f'<domain: "gehost", opset_import: ["" : {version}]> F <k: int = 1> (a, b) => (c)'
    result, _, _ = fuse(f"{CALL}{head} {{ {body} }}")
    assert [item.op_type for item in result.graph.node] == ["Sigmoid", "F", "Tanh"]


def test_a_view_keeps_no_rows_apart(fuse: Any) -> None:
    """The rotary embedding of keys, whose heads are repeated then."""
    body = (
        "f = Constant<value = int64[2] {2, 2}>()\no = Constant<value = int64[1] {1}>()\n"
        "a, b = Split<axis = 2>(x, f)\nn = Neg(b)\nc = Concat<axis = 2>(n, a)\n"
        "i = Mul(x, q)\nj = Mul(c, r)\ns = Add(i, j)\nu = Unsqueeze(s, o)\n"
    )
    inputs = "float[2,3,4] x, float[3,4] q, float[3,4] r, int64[4] k"
    result, _, _ = fuse(graph(body + "y = Expand(u, k)", inputs, "float[a,b,c,d] y"))
    results = [item.op_type.rpartition("_")[0] or item.op_type for item in result.graph.node]
    assert results == ["Constant", "Neg_Mul_Mul_Add", "Unsqueeze", "Expand"]

    read = f"{body}v = Relu(u)\ny = Expand(v, k)"
    result, _, _ = fuse(graph(read, inputs, "float[a,b,c,d] y"))
    assert "Unsqueeze" not in [item.op_type for item in result.graph.node]


SLICED = "e = Exp(x)\nt = Slice(e, i, j, a)\nq = Squeeze(t, a)\nf = Neg(q)\ny = Tanh(f)"


def sliced(to: int, size: int | str) -> str:
    constants = f"int64[1] i = {{1}}, int64[1] j = {{{to}}}, int64[1] a = {{1}}"
    return (
        f'<ir_version: 8, opset_import: ["": 18]> g (float[2,{size},4] x) => (float[2,4] y) '
        f"<{constants}> {{ {SLICED} }}"
    )


@pytest.mark.parametrize("size", [3, "n"])
def test_a_slice_of_one_place_loses_its_axis(fuse: Any, size: int | str) -> None:
    result, _, _ = fuse(sliced(2, size))
    (node,) = fused_nodes(result)
    assert [item.op_type for item in result.graph.node] == [node.op_type]
    (inputs,) = run_runtime(result, {"x": X})
    np.testing.assert_allclose(inputs, np.tanh(-np.exp(X[:, 1])), rtol=1e-6)


def test_a_node_that_needs_sizes_of_the_model_bounds_the_group(fuse: Any) -> None:
    """A kernel knows ranks alone: of [1:3], it does not know that it has one place."""
    result, record, _ = fuse(sliced(3, 2))
    results = [item.op_type.rpartition("_")[0] or item.op_type for item in result.graph.node]
    assert results == ["Exp", "Slice", "Squeeze", "Neg_Tanh"]
    assert record.rejected["not-lowered"] == 1


def test_a_call_may_have_results_that_are_not_read(fuse: Any) -> None:
    function = """<domain: "gehost", opset_import: ["" : 20]> F <k: int> (a, b) => (c, d) {
  c = Neg(b)
  d = Exp(a)
}"""
    result, _, _ = fuse(CALL.replace("t =", "unread, t =") + function)
    (node,) = result.graph.node
    assert node.op_type.startswith("Sigmoid_Exp_Tanh")


def test_a_call_without_the_value_of_a_constant_stays(fuse: Any) -> None:
    function = """<domain: "gehost", opset_import: ["" : 20]> F <k, e> (a, b) => (c) {
  f = Constant<value_float: float = @e>()
  c = Mul(a, f)
}"""
    model = onnx.parser.parse_model(CALL + function)
    result, _, _ = fuse(model, verify=False)
    assert "F" in [item.op_type for item in result.graph.node]
