"""``gehost kernels``: what it writes, what it leaves to bodies, and its errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from gehost import GehostError, UsageError
from gehost.testing import parse
from gehost_linalg.groups.body import DOMAIN
from gehost_linalg.kernels.c import source
from gehost_linalg.kernels.cli import command
from gehost_linalg.kernels.library import check_lines, fused, write_library
from gehost_linalg.kernels.ort import MARK

from .cases import CASES
from .conftest import Built
from .fused_models import Case, fused_model

GOOD = Case("float[N] x, float[N] z", "s = Add(x, z)\ny = Tanh(s)")
OTHER = Case("float[N] x, float[N] z", "s = Mul(x, z)\ny = Exp(s)")


def saved(model: onnx.ModelProto, folder: Path) -> str:
    onnx.save(model, folder / "fused.onnx")
    return str(folder / "fused.onnx")


def left(path: str) -> list[str]:
    return [reason for _, reason in fused(path).left]


def test_check(built: Built) -> None:
    lines = check_lines(str(built.model), str(built.library))
    assert lines[-1] == f"{len(built.found.nodes)} of {len(built.found.nodes)} nodes by kernels"
    result = CliRunner().invoke(command, ["--check", str(built.model), str(built.library)])
    assert result.exit_code == 0
    assert result.output.splitlines() == lines


def test_check_of_a_library_without_the_kernel(built: Built, tmp_path: Path) -> None:
    name = fused_model([OTHER]).functions[0].name
    lines = check_lines(saved(fused_model([OTHER]), tmp_path), str(built.library))
    assert lines == [
        f"{name}: 1 node by the body: kernels.so has no kernel of that name",
        "0 of 1 node by kernels",
    ]


def test_check_of_a_function_that_the_kernel_does_not_compute(built: Built, tmp_path: Path) -> None:
    """ONNX Runtime takes the kernel by its name."""
    model = fused_model([CASES["Exp"]])
    model.functions[0].node[0].op_type = "Sin"
    path = saved(model, tmp_path)
    with pytest.raises(
        UsageError, match=r"takes the kernel Exp_\w+ of kernels.so, but in this file"
    ):
        check_lines(path, str(built.library))


def test_a_second_node_with_other_types(tmp_path: Path) -> None:
    model = fused_model([GOOD])
    names = [f"{value.name}_double" for value in model.graph.input]
    for name in names:
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, 11, ["N"]))
    model.graph.node.append(
        onnx.helper.make_node(model.functions[0].name, names, ["second"], domain=DOMAIN)
    )
    (reason,) = left(saved(model, tmp_path))
    assert "compile the model again" in reason


def test_no_fused_node(tmp_path: Path) -> None:
    model = parse(
        '<ir_version: 10, opset_import: ["" : 20]>\nmain (float[N] x) => (float[N] y) { y = Tanh(x) }'
    )
    with pytest.raises(
        UsageError,
        match="has no node of gehost.linalg: compile it with --enable FuseElementwisePass; if it was, "
        "gehost explain --pass FuseElementwisePass says why nothing is fused",
    ):
        fused(saved(model, tmp_path))


def test_wrong_options(tmp_path: Path) -> None:
    path = saved(fused_model([GOOD]), tmp_path)
    for arguments in (
        [path],
        ["--check", path],
        ["--check", path, "a.so", "--measure", "f.npz"],
        [path, "a.so", "-o", "b.so"],
        [path, "-o", "a.so", "--original", "b.onnx"],
        [path, "a.so", "-o", "b.so"],
    ):
        assert isinstance(CliRunner().invoke(command, arguments).exception, UsageError), arguments


@pytest.mark.parametrize(
    "arguments",
    [["-o", "fused.onnx"], ["-o", "a.so", "--emit-c", "fused.onnx"], ["-o", "a.so", "--emit-c", "./a.so"],
     ["-o", "a.so", "--measure", "f.npz", "--fusion-switch-file", "f.npz"]],
)  # fmt: skip
def test_no_file_is_written_over(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = Path(saved(fused_model([GOOD]), tmp_path)).read_bytes()
    outcome = CliRunner().invoke(command, ["fused.onnx", *arguments])
    assert isinstance(outcome.exception, UsageError)
    assert "is given twice; name another file to write" in str(outcome.exception)
    assert (tmp_path / "fused.onnx").read_bytes() == content
    assert not (tmp_path / "a.so").exists()


def test_another_body_under_a_known_name(tmp_path: Path) -> None:
    model = fused_model([GOOD])
    model.functions[0].node[0].op_type = "Sub"
    assert left(saved(model, tmp_path))[0].startswith("its function computes Sub_Tanh_")


def test_a_function_that_is_missing_or_damaged(tmp_path: Path) -> None:
    model = fused_model([GOOD])
    model.functions[0].node[1].input[0] = "nothing"
    assert "nothing makes" in left(saved(model, tmp_path))[0]
    model = fused_model([GOOD])
    del model.functions[0].node[:]
    assert left(saved(model, tmp_path)) != []


def test_a_constant_whose_type_was_changed(tmp_path: Path) -> None:
    model = fused_model([Case("float[M, N] x", "a = Constant<value = int64[1] {-1}>()\nr = ReduceSum(x, a)\ny = Sub(x, r)")])  # fmt: skip
    (constant,) = [node for node in model.functions[0].node if node.op_type == "Constant"]
    constant.attribute[0].type = onnx.AttributeProto.INTS
    assert left(saved(model, tmp_path))[0].endswith("a constant without a value")


def test_an_operator_that_is_not_emitted(tmp_path: Path) -> None:
    model = fused_model([GOOD])
    model.functions[0].node[1].op_type = "*/ system(0); /*"
    assert left(saved(model, tmp_path)) != []


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (Case("float16[N] x", "s = Exp(x)\ny = Neg(s)", "float16[…] y"), "element type f16"),
        (Case("float[M, N] x", "a = Constant<value = int64[1] {0}>()\ns = Exp(x)\ny = ReduceSum(s, a)"), "a reduction along axis 0 of 2"),
        (Case("float[1, A, B, C, D, E, F, G, H, I, J, K, L] x", "a = Constant<value = int64[1] {0}>()\ns = Squeeze(x, a)\nt = Exp(s)\ny = Neg(t)"), "a tensor of rank 13"),
        (Case("int8[N] x, int8[N] z", "s = Add(x, z)\ny = Mul(s, z)", "int8[…] y"), "element type i8"),
        (Case("float[M, N] x", "s = Exp(x)\nt = Transpose(s)\ny = Softmax(t)", "float[…] y, float[…] s"), "is computed in one order and read in another"),
        (Case("float[B, N] a, float[C, K] b", "t = Neg(a)\nu = Exp(b)\nq = Concat<axis = -1>(t, u)\ny = Tanh(q)"), "is read in part along axis 0"),
        (Case("float[B, N] a", "s = Constant<value = int64[2] {4, 4}>()\nt = Neg(a)\nu, v = Split<axis = 1>(t, s)\nw = Tanh(u)\ny = Mul(w, v)"), "whose size is not known"),
        (Case("float[A, B, N] a, float[C, B, N] b", "i = Constant<value = int64 {1}>()\nm = Min(a, b)\ns = Gather<axis = 0>(m, i)\ny = Tanh(s)"), "place 1 of an axis that may be broadcast"),
        (Case("float[B, 7] a", "s = Constant<value = int64[2] {4, 4}>()\nt = Neg(a)\nu, v = Split<axis = 1>(t, s)\nw = Tanh(u)\ny = Mul(w, v)"), "whose size is not known"),
    ],
)  # fmt: skip
def test_what_is_left_to_bodies(case: Case, reason: str, tmp_path: Path) -> None:
    (result,) = left(saved(fused_model([case]), tmp_path))
    assert reason in result


def test_types_that_are_not_known(tmp_path: Path) -> None:
    model = fused_model([GOOD])
    first = model.graph.input[0].name
    model.graph.input[0].name = "raw"
    model.graph.node.insert(0, onnx.helper.make_node("Foreign", ["raw"], [first], domain="foreign"))
    model.opset_import.add(domain="foreign", version=1)
    assert left(saved(model, tmp_path)) == [f'the type of input "{first}" is not known']


def test_no_text_of_a_model_reaches_the_c(tmp_path: Path) -> None:
    model = fused_model([Case("float[N] x", 'y = Gelu<approximate = "tanh">(x)')])
    model.functions[0].node[0].attribute[0].s = b'*/ int evil; /* "\\\n??/'
    model.functions[0].node[0].name = "*/ int evil;"
    text = source(fused(saved(model, tmp_path)).kernels)
    assert "*/ int evil" not in text
    model = fused_model([GOOD])
    for node in model.functions[0].node:
        node.name = node.doc_string = "*/ int evil;"
    assert "evil" not in source(fused(saved(model, tmp_path)).kernels)


def test_overloads_of_a_function_have_no_kernel(tmp_path: Path) -> None:
    """ONNX Runtime would run a kernel of that name for each."""
    model = fused_model([GOOD])
    other = onnx.FunctionProto.FromString(model.functions[0].SerializeToString())
    other.overload = "x"
    other.node[-1].op_type = "Mul" if other.node[-1].op_type != "Mul" else "Sub"
    for place in (0, 1):
        del model.functions[1:]
        model.functions.insert(place, other)
        assert "has overloads" in left(saved(model, tmp_path))[0]
        model.functions.remove(other)


def test_names_in_messages_are_one_line(tmp_path: Path) -> None:
    model = fused_model([GOOD])
    model.functions[0].name = model.graph.node[0].op_type = "two\nlines"
    (line, _) = check_lines(saved(model, tmp_path), str(_library(tmp_path)))
    assert line.startswith("two lines: 1 node by the body: ")


def _library(folder: Path) -> Path:
    """A file that names no kernel."""
    library = folder / "none.so"
    library.write_bytes(MARK.encode() + b"\0")
    return library


@pytest.mark.parametrize(
    "content",
    [
        '{"Switch": {"GraphFusion": {}, "Runtime": []}}',
        '{"Switch": {"GraphFusion": {}}, "Evidence": {"kinds": []}}',
    ],
)
def test_nothing_is_written_beside_a_bad_switch_file(cc: str, tmp_path: Path, content: str) -> None:
    path = saved(fused_model([GOOD]), tmp_path)
    switches = tmp_path / "switches.json"
    switches.write_text(content)
    for inputs in (switches, tmp_path / "missing" / "switches.json"):
        with pytest.raises(GehostError) as error:
            write_library(path, str(tmp_path / "a.so"), switch_file=str(inputs))
        assert error.value.exit_code == 2
        assert not (tmp_path / "a.so").exists()
    assert switches.read_text() == content


def test_an_output_that_cannot_be_written(cc: str, tmp_path: Path) -> None:
    path = saved(fused_model([GOOD]), tmp_path)
    result = CliRunner().invoke(command, [path, "-o", str(tmp_path / "missing" / "a.so")])
    assert isinstance(result.exception, GehostError)
    assert result.exception.exit_code == 2
    assert DOMAIN not in str(result.exception)


def test_emit_c(cc: str, tmp_path: Path) -> None:
    path = saved(fused_model([GOOD]), tmp_path)
    result = CliRunner().invoke(
        command, [path, "-o", str(tmp_path / "a.so"), "--emit-c", str(tmp_path / "a.c")]
    )
    assert result.output == f"{tmp_path / 'a.so'}: 1 kernel for 1 of 1 node\n"
    assert "v2 = Add(x0, x1)" in (tmp_path / "a.c").read_text()
    assert (tmp_path / "a.so").stat().st_size


def test_a_kernel_has_at_most_40_lines(built: Built) -> None:
    """With its tables, without its comment; outputs of several sizes have one function each."""
    for kernel in built.found.kernels:
        lines = list(kernel.lines)
        functions = sum("(const Rows *w" in line for line in lines)
        assert len(lines) - lines.index("*/") - 1 <= 40 * functions, kernel.name


def test_the_command_does_not_load_what_compiles_models() -> None:
    """Its time would be twice that without the C compiler."""
    code = "import sys, gehost_linalg.kernels.library; print('gehost.host.host' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert result.stdout == "False\n", result.stderr
