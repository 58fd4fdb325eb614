"""``gehost linalg``."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner, Result

from gehost import UsageError
from gehost.testing import parse
from gehost_linalg import MlirError
from gehost_linalg.cli import command
from gehost_linalg.mlir import parse as parse_mlir

from .conftest import CASES
from .models import graph

MODEL = graph("s = Add(x, r)\ny = Softmax<axis=-1>(s)\nm = MatMul(y, w)\nt = Tanh(m)\nz = Exp(t)",
              "float[2,4] x, float[2,4] r, float[4,4] w", "float[2,4] z")  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    named = parse(MODEL)
    for node in named.graph.node:
        node.name = f"n_{node.op_type}"
    onnx.save(named, tmp_path / "m.onnx")
    (tmp_path / "vendors").mkdir()
    return str(tmp_path / "m.onnx")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=True)


def shown(model: str, *options: str) -> str:
    result = run(model, "--vendors", str(Path(model).parent / "vendors"), *options)
    assert result.exit_code == 0, result.exception
    return result.output


def test_the_table_has_groups_loops_maps_payload_and_bounds(model: str) -> None:
    text = shown(model)
    assert "Add_Softmax: 2 nodes, 80 bytes of intermediates saved" in text
    assert "loops: d0 parallel 2, d1 reduction 4" in text
    assert "in x tensor<2x4xf32>: (d0, d1) -> (d0, d1)" in text
    assert "payload: addf" in text
    assert "bounded: MatMul n_MatMul: not-lowered: MatMul" in text
    assert "5 nodes" in text
    assert "2 groups" in text


def test_the_groups_are_those_that_a_compile_forms(tmp_path: Path) -> None:
    """A vendor's pass makes RMSNormalization, whose call is inlined."""
    body = (
        "s = Add(x, x)\np = Pow(s, two)\nm = ReduceMean<axes=[-1], keepdims=1>(p)\nv = Add(m, e)\n"
    )
    body += "q = Sqrt(v)\nd = Div(s, q)\ny = Mul(d, g)"
    constants = "float two = {2}, float e = {0.00001}"
    onnx.save(
        parse(
            f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,4] x, float[4] g) => (float[2,4] y) <{constants}> {{ {body} }}'
        ),
        tmp_path / "m.onnx",
    )
    result = run(str(tmp_path / "m.onnx"), "--vendors", "gehost:onnx")
    assert "Add_Mul_ReduceMean_Sqrt_Div: 7 nodes" in result.stdout
    assert "1 groups" in result.stdout


def test_one_group_as_mlir_before_and_after(model: str) -> None:
    before = parse_mlir(shown(model, "--node", "n_Tanh", "--format", "mlir", "--before"))
    after = parse_mlir(shown(model, "--node", "n_Tanh", "--format", "mlir", "--after"))
    assert [len(function.ops) for function in (*before, *after)] == [2, 1]


def test_groups_of_one_name_are_functions_of_several_names(tmp_path: Path) -> None:
    body = "s = Add(x, r)\na = Relu(s)\nm = MatMul(a, w)\nt = Add(m, r)\nz = Relu(t)"
    named = parse(graph(body, "float[2,4] x, float[2,4] r, float[4,4] w", "float[2,4] z"))
    named.graph.node[0].name = "first\nsecond"
    onnx.save(named, tmp_path / "m.onnx")
    (tmp_path / "vendors").mkdir()
    for when in ("--before", "--after"):
        text = shown(str(tmp_path / "m.onnx"), "--format", "mlir", when)
        assert [item.name for item in parse_mlir(text)] == ["Add_Relu", "Add_Relu_1"]
    double = "func.func @f() {\n  return\n}\n" * 2
    with pytest.raises(MlirError, match="^line 4, column 1: function @f is defined twice"):
        parse_mlir(double)


@pytest.mark.parametrize("step", [1, 2])
def test_parts_of_unknown_sizes_are_read_again(tmp_path: Path, step: int) -> None:
    numbers = {"s": step - 1, "a": 1, "e": 100, "k": step}
    body = "\n".join(f"{n} = Constant<value = int64[1] {{{i}}}>()" for n, i in numbers.items())
    body += "\nf = Exp(x)\np = Slice(f, s, e, a, k)\ny = Tanh(p)"
    onnx.save(parse(graph(body, "float[n,m] x", "float[n,l] y")), tmp_path / "m.onnx")
    (tmp_path / "vendors").mkdir()
    (tmp_path / "m.mlir").write_text(
        shown(str(tmp_path / "m.onnx"), "--format", "mlir", "--before")
    )
    for when in ("--before", "--after"):
        (tmp_path / "again.mlir").write_text(run(str(tmp_path / "m.mlir"), when).output)
        text = run(str(tmp_path / "again.mlir"), when).output
        assert text == (tmp_path / "again.mlir").read_text() != ""
        assert text.count("arith.minsi") == 1


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        ("a = Slice(x, s, e, z, k)\nb = Tanh(a)\ny = Exp(b)", "float[n,m] x", "float[p,m] y"),
        ("a = Tanh(x)\nr = Reshape(a, q)\nb = Exp(r)\ny = Relu(b)", "float[n,8] x", "float[n,2,4] y"),
        ("a = Tanh(x)\nb = Exp(a)\nr = Reshape(b, f)\ny = Relu(r)", "float[n,2,4] x", "float[m,4] y"),
        ("a = Tanh(x)\nb = Exp(a)\nr = Reshape(b, f)\ny = Relu(r)", "float[n,k,4] x", "float[m,4] y"),
    ],
)  # fmt: skip
def test_the_text_of_a_model_fuses_as_the_model_does(
    tmp_path: Path, body: str, inputs: str, outputs: str
) -> None:
    """A size of a result is that of its out: reading it from the result would be another use."""
    numbers = {"s": "1", "e": "100", "z": "0", "k": "2", "q": "0, 2, 4", "f": "-1, 4"}
    constants = [
        f"{name} = Constant<value = int64[{text.count(',') + 1}] {{{text}}}>()"
        for name, text in numbers.items()
    ]
    result = parse(graph("\n".join([*constants, body]), inputs, outputs))
    onnx.save(result, tmp_path / "m.onnx")
    (tmp_path / "vendors").mkdir()
    options = ("--companions", "reshape")
    before = shown(str(tmp_path / "m.onnx"), *options, "--format", "mlir", "--before")
    (tmp_path / "m.mlir").write_text(before)
    theirs = run(str(tmp_path / "m.mlir"), *options, "--after").output
    ours = shown(str(tmp_path / "m.onnx"), *options, "--format", "mlir", "--after")
    assert (theirs.count("linalg.generic"), ours.count("linalg.generic")) == (1, 1)
    assert before.count("linalg.generic") >= 3


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("%n = arith.minsi %i, %f : index", "column 19: arith.minsi of index, f32"),
        (
            "%p = tensor.extract_slice %a[%i] [2] [1] : tensor<?xf32> to tensor<3xf32>",
            "do not make",
        ),
        ("%p = tensor.extract_slice %a[0] [9] [1] : tensor<?xf32> to tensor<2xf32>", "sizes"),
        ("%p = tensor.extract_slice %a[0] [2] [1] : tensor<?xf32> to tensor<?xf32>", "sizes"),
        ("%p = tensor.extract_slice %a[0, 0] [2] [1] : tensor<?xf32> to tensor<2xf32>", "has 1 of"),
        ("%p = tensor.extract_slice %a[0] [%j] [1] : tensor<?xf32> to tensor<?xf32>", "%j is not"),
    ],
)
def test_malformed_parts_have_a_place_and_a_reason(statement: str, reason: str) -> None:
    head = "func.func @f(%a: tensor<?xf32>, %i: index, %f: f32) {"
    with pytest.raises(MlirError, match="^line 2, column") as raised:
        parse_mlir(f"{head}\n  {statement}\n  return\n}}")
    assert reason in str(raised.value)


def test_dot(model: str) -> None:
    text = shown(model, "--format", "dot")
    assert text.startswith("digraph linalg {")
    assert text.count("subgraph cluster_") == 2
    assert "n_Exp\\n(d0, d1) -> (d0, d1)\\n(d0, d1)" in text


def test_a_group_is_shown_as_the_options_fuse_it(tmp_path: Path) -> None:
    body = "c = Constant<value_float = 2.0>()\na = Mul(x, c)\nb = Exp(a)\nd = Tanh(b)\ny = Exp(d)"
    onnx.save(parse(graph(body, "float[4] x", "float[4] y")), tmp_path / "m.onnx")
    (tmp_path / "vendors").mkdir()
    named = ("--format", "mlir", "--control", "max-body-ops=2")
    text = shown(str(tmp_path / "m.onnx"), *named)
    assert text.count("linalg.generic") == 2
    assert shown(str(tmp_path / "m.onnx"), "--format", "mlir").count("linalg.generic") == 1
    companions = ("--format", "mlir", "--companions", "-fold-splat")
    text = shown(str(tmp_path / "m.onnx"), *companions)
    assert "(d0) -> ()" in text


def test_a_control_function_of_a_vendor_is_known(model: str) -> None:
    file = Path(model).parent / "vendors" / "acme" / "custom_fusion_passes" / "control.py"
    file.parent.mkdir(parents=True)
    file.write_text("""from gehost_linalg import control_function

@control_function("never")
def never(operand):
    return "never"
""")
    assert "2 groups" in shown(model, "--control", "never")  # row groups form all the same


SIZES = """
func.func @sizes(%a: tensor<?x?xf32>, %b: tensor<?x?xf32>, %s: tensor<f32>) -> (tensor<?x?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c0 : tensor<?x?xf32>
  %m = tensor.dim %a, %c1 : tensor<?x?xf32>
  %unread = tensor.dim %b, %c1 : tensor<?x?xf32>
  %z = "test.scalar"() : () -> f32
  %e = tensor.empty(%n, %m) : tensor<?x?xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.generic {indexing_maps = [#t, #i, #i], iterator_types = ["parallel", "parallel"]}
      ins(%b, %f : tensor<?x?xf32>, tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %r = arith.addf %x, %y : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  %q = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) {
  ^bb0(%x: f32, %o: f32):
    %k = arith.index_cast %n : index to i64
    %l = arith.sitofp %k : i64 to f32
    %r = arith.divf %x, %l : f32
    linalg.yield %r : f32
  } -> tensor<?x?xf32>
  %w = tensor.dim %q, %c1 : tensor<?x?xf32>
  %g = tensor.empty(%w) : tensor<?xf32>
  return %q, %g : tensor<?x?xf32>, tensor<?xf32>
}
"""


@pytest.mark.parametrize("multi_use", ["refuse", "duplicate", "share"])
def test_sizes_are_read_by_tensors_payloads_and_outputs(tmp_path: Path, multi_use: str) -> None:
    maps = "#i = affine_map<(d0, d1) -> (d0, d1)>\n#t = affine_map<(d0, d1) -> (d1, d0)>"
    (tmp_path / "sizes.mlir").write_text(maps + SIZES)
    control = "one-use" if multi_use == "refuse" else "always"
    text = run(str(tmp_path / "sizes.mlir"), "--control", control, "--multi-use", multi_use).output
    (tmp_path / "fused.mlir").write_text(text)
    assert run(str(tmp_path / "fused.mlir"), "--before").exit_code == 0, text
    assert [text.count(name) for name in ("linalg.generic", "tensor.dim")] == [1, 3]


def test_an_mlir_text_is_fused() -> None:
    result = run(str(CASES / "diamond.mlir"), "--control", "always", "--multi-use", "duplicate")
    assert result.exit_code == 0
    assert result.output.count("math.exp") == 2
    assert run(str(CASES / "diamond.mlir"), "--before").output.count("math.exp") == 1


def test_a_fused_text_can_be_read_again(tmp_path: Path) -> None:
    result = run(str(CASES / "sizes_of_an_argument.mlir"), "--after")
    assert result.exit_code == 0
    assert (result.output.count("tensor.dim"), result.output.count("linalg.generic")) == (2, 1)
    (tmp_path / "fused.mlir").write_text(result.output)
    assert run(str(tmp_path / "fused.mlir"), "--before").output == result.output


def test_a_control_function_of_a_vendor_is_known_for_a_text(model: str) -> None:
    file = Path(model).parent / "vendors" / "acme" / "custom_fusion_passes" / "control.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        'from gehost_linalg import control_function\n\n\n@control_function("never")\n'
        'def never(operand):\n    return "never"\n'
    )
    vendors = ("--vendors", str(file.parents[2]))
    result = run(str(CASES / "add_mul.mlir"), "--control", "never", *vendors)
    assert result.output.count("linalg.generic") == 2
    file.write_text(file.read_text().replace('return "never"', "return operand.nothing"))
    result = run(str(CASES / "add_mul.mlir"), "--control", "never", *vendors)
    assert isinstance(result.exception, UsageError)
    assert f"never ({file}:4) raised AttributeError" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--node", "n"), "--node n: an MLIR text has no nodes"),
        (("--format", "dot"), "--format dot: an MLIR text is shown as mlir only"),
        (("--format", "table"), "--format table: an MLIR text is shown as mlir only"),
    ],
)
def test_options_for_models_are_refused_for_a_text(options: tuple[str, ...], message: str) -> None:
    result = run(str(CASES / "add_mul.mlir"), *options)
    assert isinstance(result.exception, UsageError)
    assert message in str(result.exception)
    assert run(str(CASES / "add_mul.mlir"), "--format", "mlir").exit_code == 0


def test_a_text_without_functions_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "empty.mlir").write_text("")
    result = run(str(tmp_path / "empty.mlir"))
    assert isinstance(result.exception, UsageError)
    assert "it has no func.func" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--control", "one-used"), "no control is called 'one-used'; nearest: one-use"),
        (("--multi-use", "share-all"), "no multi-use is called 'share-all'; nearest: share"),
        (("--companions", "fold"), "no companion is called 'fold'; nearest: fold-fill"),
    ],
)
def test_unknown_names_are_usage_errors(
    model: str, arguments: tuple[str, ...], message: str
) -> None:
    for path in (model, str(CASES / "add_mul.mlir")):
        result = run(path, *arguments)
        assert isinstance(result.exception, UsageError)
        assert message in str(result.exception)


def test_a_malformed_text_names_file_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "bad.mlir"
    path.write_text("func.func @f(%a: tensor<4xf32> ]\n}")
    result = run(str(path))
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"{path}: line 1, column 32: expected ',', found ']'"
    assert result.output.splitlines()[-1].endswith("^")
    missing = run(str(tmp_path / "none.mlir"))
    assert isinstance(missing.exception, UsageError)


def test_a_node_that_is_in_no_group_has_a_reason(model: str) -> None:
    for name, message in (
        ("n_MatMul", 'node "n_MatMul" is in no group: not-lowered: MatMul'),
        ("x", 'no node is called "x"'),
    ):
        result = run(model, "--vendors", str(Path(model).parent / "vendors"), "--node", name)
        assert isinstance(result.exception, UsageError)
        assert message in str(result.exception)


def test_names_are_checked_although_nothing_is_fused() -> None:
    file = str(CASES / "add_mul.mlir")
    for option, name in (("--control", "alwys"), ("--multi-use", "dup"), ("--companions", "zz")):
        result = run(file, "--before", option, name)
        assert isinstance(result.exception, UsageError)
        assert name in str(result.exception)
