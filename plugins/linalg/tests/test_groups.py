"""Row groups, and groups that are derived from a function alone."""

from __future__ import annotations

import onnx
import pytest

from gehost import DataType, Host, HostOptions, TensorType
from gehost.testing import parse
from gehost_linalg.fusability import Refusal
from gehost_linalg.groups.body import Body, Signature
from gehost_linalg.groups.derive import derive
from gehost_linalg.groups.row_space import Rows, joined
from gehost_linalg.passes import NAME

from .models import graph


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Rows(("b", "s"), "64"), Rows(("b", "s"), "64"), Rows(("b", "s"), "64")),
        (Rows(("b", "s"), "64"), Rows(("b", "s"), 1), Rows(("b", "s"), "64")),
        (Rows(("b", "s"), 1), Rows(("b", "s"), "64"), Rows(("b", "s"), "64")),
        (Rows(("b", "4"), "n"), Rows(("?1", "?2"), "?3"), Rows(("?1", "4"), "?3")),
        (Rows(("b",), "64"), Rows((), "b"), Rows(("b",), "64")),
        (Rows(("2",), "64"), Rows(("3",), "64"), "domain: [2, 64] against [3, 64]"),
        (Rows(("b", 1), "64"), Rows(("b", "4"), "64"), "domain: [b, 1, 64] against [b, 4, 64]"),
        (Rows(("b",), "64"), Rows(("b",), "32"), "domain: [b, 64] against [b, 32]"),
        (Rows(("b",), "64"), Rows(("b", "s", "t"), "64"), "domain: [b, 64] against [b, s, t, 64]"),
    ],
)
def test_domains(first: Rows, second: Rows, expected: Rows | str) -> None:
    result = joined(first, second, parts=False)
    assert (str(result) if isinstance(result, Refusal) else result) == expected


def test_a_part_of_a_row_is_a_member() -> None:
    assert joined(Rows(("b",), "64"), Rows(("b",), "32"), parts=True) == Rows(("b",), "64")


def groups(text: str) -> list[list[str]]:
    """The operators of each group that the pass forms."""
    result, _ = Host(HostOptions(vendors=(), enable=(NAME,))).run(parse(text))
    bodies = {
        function.name: [node.op_type for node in function.node if node.op_type != "Constant"]
        for function in result.functions
    }
    return [bodies[node.op_type] for node in result.graph.node if node.domain == "gehost.linalg"]


@pytest.fixture(autouse=True)
def no_vendors(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("GEHOST_VENDORS", str(tmp_path))


def test_softmax_with_scale_and_mask_is_one_group() -> None:
    body = "k = Constant<value = float {0.125}>()\na = Mul(x, k)\ns = Add(a, m)\ny = Softmax<axis=-1>(s)"
    assert groups(graph(body, "float[b,4,n,n] x, float[b,1,1,n] m", "float[b,4,n,n] y")) == [
        ["Mul", "Add", "Softmax"]
    ]


def test_rotary_embedding_is_one_group() -> None:
    body = """z = Constant<value = int64[1] {0}>()
h = Constant<value = int64[1] {8}>()
l = Constant<value = int64[1] {9223372036854775807}>()
a = Constant<value = int64[1] {3}>()
first = Slice(x, z, h, a)
second = Slice(x, h, l, a)
minus = Neg(second)
turned = Concat<axis=-1>(minus, first)
c = Mul(x, cos)
s = Mul(turned, sin)
y = Add(c, s)"""
    (group,) = groups(
        graph(
            body, "float[b,4,n,16] x, float[b,1,n,16] cos, float[b,1,n,16] sin", "float[b,4,n,16] y"
        )
    )
    assert sorted(group) == ["Add", "Concat", "Mul", "Mul", "Neg", "Slice", "Slice"]


def test_rows_along_another_axis_stay_apart() -> None:
    body = "a = Constant<value = int64[1] {0}>()\ne = Exp(x)\nr = ReduceSum(e, a)\nt = Tanh(r)\ny = Sqrt(t)"
    assert groups(graph(body, "float[4,8] x", "float[1,8] y")) == [
        ["Exp", "ReduceSum"],
        ["Tanh", "Sqrt"],
    ]


@pytest.mark.parametrize(("call", "count"), [("Softplus", 3), ("Sqrt", 1)])
def test_a_dear_number_for_each_row_stays_apart(call: str, count: int) -> None:
    body = f"c = {call}(x)\nd = Neg(c)\ns = Mul(d, w)\ny = Exp(s)\nt = Sub(d, w)\nz = Tanh(t)"
    result = groups(graph(body, "float[64,1] x, float[64,8] w", "float[64,8] y, float[64,8] z"))
    assert len(result) == count


def test_a_dear_number_after_a_reduction_stays_with_it() -> None:
    body = "a = Constant<value = int64[1] {1}>()\nr = ReduceSum(x, a)\ne = Exp(r)\ny = Div(x, e)"
    result = groups(graph(body, "float[64,8] x", "float[64,8] y"))
    assert result == [["ReduceSum", "Exp", "Div"]]


def test_transposed_rows_are_strided() -> None:
    body = "e = Exp(x)\nf = Tanh(e)\nr = ReduceMax<keepdims=1>(f, a)\nu = Transpose<perm=[1,0]>(f)\nv = Sqrt(u)\nw = Neg(v)\ny = Sub(f, r)"
    body = "a = Constant<value = int64[1] {1}>()\n" + body
    result = groups(graph(body, "float[4,8] x", "float[4,8] y, float[8,4] w"))
    assert len(result) == 2


def function_and_signature(text: str) -> tuple[onnx.FunctionProto, list[Signature], str]:
    result, _ = Host(HostOptions(vendors=(), enable=(NAME,))).run(parse(text))
    (node,) = [node for node in result.graph.node if node.domain == "gehost.linalg"]
    entries = {value.name: value.type.tensor_type for value in result.graph.input}
    signature = []
    for name in node.input:
        dims = [dim.dim_value for dim in entries[name].shape.dim]
        signature.append(
            Signature(
                DataType(entries[name].elem_type),
                len(dims),
                tuple(i for i, dim in enumerate(dims) if dim == 1),
            )
        )
    return result.functions[0], signature, node.op_type


def test_the_name_is_derived_from_the_function_of_the_file() -> None:
    """``compile`` and whoever reads the file later give a group the same name and the same loops."""
    text = graph("k = Constant<value = float {0.5}>()\na = Mul(x, k)\ns = Add(a, m)\ny = Softmax<axis=-1>(s)\nz = Neg(a)",
                 "float[2,8] x, float[1,8] m", "float[2,8] y, float[2,8] z")  # fmt: skip
    function, signature, name = function_and_signature(text)
    group = derive(
        Body.of_function(onnx.FunctionProto.FromString(function.SerializeToString())), signature
    )
    assert group.name == name
    assert len(group.inputs) == 2
    assert len(group.outputs) == 2


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: f.node.pop(0), "nothing makes"),
        (lambda f: f.node[0].attribute.pop(0), "a constant without a value"),
        (lambda f: f.output.append("none"), 'nothing makes output "none"'),
    ],
)
def test_damaged_functions_are_refused(damage: object, message: str) -> None:
    function, _, _ = function_and_signature(
        graph(
            "k = Constant<value = float {0.5}>()\na = Mul(x, k)\ny = Exp(a)",
            "float[2] x",
            "float[2] y",
        )
    )
    damage(function)  # type: ignore[operator]
    with pytest.raises(ValueError, match=message):
        Body.of_function(function)


def test_signatures() -> None:
    assert Signature.of(TensorType(DataType.FLOAT, (1, "n", 4))) == Signature(
        DataType.FLOAT, 3, (0,)
    )
    assert Signature.of(TensorType(DataType.FLOAT, None)) is None
