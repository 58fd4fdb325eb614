"""Model files that are damaged or make no sense: each is refused with one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from gehost.errors import ModelError
from gehost.ir.model import Model
from tests.hostile.conftest import without_warnings

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
    [first] a = Add(x, w)
    [second] f = Flatten<axis = 0>(a)
    [third] r = Relu(a)
    [fourth] y = If(c) <then_branch = t () => (float[2] p) { p = Neg(r) }, else_branch = e () => (float[2] q) { q = Abs(r) }>
}"""
CALLING = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2] x) => (float[2] y) { y = local.F(x) }
<domain: "local", opset_import: ["" : 17, "local" : 1]> F (p) => (q) { q = Relu(p) }
<domain: "local", opset_import: ["" : 17, "local" : 1]> G (p) => (q) { q = local.F(p) }"""


def model(text: str = MODEL) -> ModelProto:
    return onnx.parser.parse_model(text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.onnx"


# -- files that hold no model ---------------------------------------------------------------------------------------

NO_MODELS = {
    "empty": (b"", "the file is empty"),
    "text": (b"this is no model\n", "cannot be parsed"),
    "zeros": (bytes(1000), "cannot be parsed"),
    "noise": (bytes(range(256)) * 4, "cannot be parsed"),
    "a png": (b"\x89PNG\r\n\x1a\n" + bytes(50), "cannot be parsed"),
    "no graph": (ModelProto(ir_version=8).SerializeToString(), "the model has no graph"),
    "a graph alone": (model().graph.SerializeToString(), "m.onnx: "),
}


@pytest.mark.parametrize(("content", "message"), NO_MODELS.values(), ids=NO_MODELS)
def test_a_file_that_holds_no_model(refused, path, content, message):
    path.write_bytes(content)
    line = refused(3, path)
    assert str(path) in line
    assert message in line


def test_a_path_that_is_no_file(refused, tmp_path):
    (tmp_path / "directory").mkdir()
    assert "No such file or directory" in refused(3, tmp_path / "nowhere.onnx")
    assert "Is a directory" in refused(3, tmp_path / "directory")
    with pytest.raises(ModelError, match="its name has a NUL character"):
        Model.load("a\0b.onnx")  # no command line can hold one


def test_a_file_cut_at_any_byte_is_refused_or_whole(gehost_run, refused, path, tmp_path):
    content = model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
    ).SerializeToString()
    whole = 0
    for length in range(len(content)):
        path.write_bytes(content[:length])
        code, _, err = gehost_run("compile", path, "-o", tmp_path / "out.onnx")
        assert code in (0, 3), f"cut at {length}: {err}"
        if code == 0:
            whole += 1
            onnx.checker.check_model(tmp_path / "out.onnx")
        else:
            assert len(err.splitlines()) == 1, f"cut at {length}"
    assert whole == 0, "its opsets stand at the end, without which it is no model"


# -- models that make no sense --------------------------------------------------------------------------------------


def _node(proto: ModelProto, index: int = 0) -> NodeProto:
    return proto.graph.node[index]


def _tensor(proto: ModelProto) -> TensorProto:
    return proto.graph.initializer[0]


def _body(proto: ModelProto) -> GraphProto:
    return proto.graph.node[3].attribute[0].g


def _info(
    name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2,)
) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _set(target: Callable[[ModelProto], object], **fields: object) -> Callable[[ModelProto], None]:
    """An edit that gives fields of a message other values; a list replaces what was there."""

    def edit(proto: ModelProto) -> None:
        message = target(proto)
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(message, name)[:]
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)

    return edit


def _add(proto: ModelProto, *nodes: NodeProto) -> None:
    proto.graph.node.extend(nodes)


def _constant(proto: ModelProto, **fields: object) -> None:
    tensor = TensorProto(
        **{"name": "k", "data_type": 1, "dims": [2], "raw_data": bytes(8), **fields}
    )
    _add(proto, helper.make_node("Constant", [], ["k"], value=tensor))


def _sparse(proto: ModelProto, indices: list[int], dims: list[int]) -> None:
    sparse = proto.graph.sparse_initializer.add(dims=dims)
    sparse.values.CopyFrom(
        helper.make_tensor("s", TensorProto.FLOAT, [len(indices)], [1.0] * len(indices))
    )
    sparse.indices.CopyFrom(helper.make_tensor("i", TensorProto.INT64, [len(indices)], indices))


_first: Callable[[ModelProto], object] = _node
_flatten: Callable[[ModelProto], object] = lambda proto: _node(proto, 1).attribute[0]  # noqa: E731
_whole: Callable[[ModelProto], object] = lambda proto: proto  # noqa: E731
_graph: Callable[[ModelProto], object] = lambda proto: proto.graph  # noqa: E731
_imports: Callable[[ModelProto], object] = lambda proto: proto.opset_import[0]  # noqa: E731
_x: Callable[[ModelProto], object] = lambda proto: proto.graph.input[0]  # noqa: E731

SENSELESS: dict[str, tuple[Callable[[ModelProto], object], str]] = {
    # Versions.
    "no opset": (_set(_whole, opset_import=[]), "must specify opset_import"),
    "opset 0": (_set(_imports, version=0), "imports opset 0 of domain ''"),
    "negative opset": (_set(_imports, version=-1), "imports opset -1"),
    "opset 99": (_set(_imports, version=99), "imports opset 99 of domain '', of which the installed onnx"),
    "opset of another domain": (lambda m: m.opset_import.add(domain="ai.onnx.ml", version=77), "imports opset 77 of domain 'ai.onnx.ml'"),
    "two opsets": (lambda m: m.opset_import.add(domain="ai.onnx", version=18), "two opsets of domain '', 17 and 18"),
    "ir version 0": (_set(_whole, ir_version=0), "it has IR version 0, the installed onnx"),
    "ir version 2": (lambda m: _set(_whole, ir_version=2)(m) or m.graph.input.append(_info("w")), "cannot have opset_import"),
    "ir version 99": (_set(_whole, ir_version=99), "it has IR version 99"),
    "negative ir version": (_set(_whole, ir_version=-5), "it has IR version -5"),
    "no ir version": (lambda m: m.ClearField("ir_version"), "it has IR version 0"),
    "ir version 3 and an initializer that is no input": (_set(_whole, ir_version=3), 'initializer "w" is not among'),
    # Names and order.
    "cycle": (_set(_first, input=["x", "r"]), "is part of a cycle"),
    "self-loop": (_set(_first, input=["x", "a"]), 'node "first" (Add) is part of a cycle'),
    "cycle through a body": (_set(lambda m: _node(m, 2), input=["y"]), "is part of a cycle"),
    "two nodes make one tensor": (_set(lambda m: _node(m, 2), output=["a"]), 'tensor "a" is defined twice'),
    "a node makes a tensor twice": (_set(_first, output=["a", "a"]), 'tensor "a" is defined twice'),
    "a node makes a graph input": (_set(_first, output=["x"]), 'tensor "x" is defined twice'),
    "a node makes an initializer": (_set(_first, output=["w"]), 'tensor "w" is defined twice'),
    "an input twice": (lambda m: m.graph.input.append(_info("x")), 'tensor "x" is defined twice'),
    "an initializer twice": (lambda m: m.graph.initializer.append(_tensor(m)), 'two initializers are called "w"'),
    "a tensor that nothing makes": (_set(_first, input=["x", "nothing"]), 'node "first" (Add) reads tensor "nothing"'),
    "an output that nothing makes": (_set(_graph, output=[_info("nothing")]), 'output 0 of the graph reads tensor "nothing"'),
    "an output of a body that nothing makes": (lambda m: _set(_body, output=[_info("nothing")])(m), 'reads tensor "nothing"'),
    "a body that hides an outer name": (lambda m: _set(lambda m: _body(m).node[0], output=["a"])(m) or _set(_body, output=[_info("a")])(m), "'a' has been used as output names multiple times"),
    "two nodes of a body make one tensor": (lambda m: _body(m).node.append(_body(m).node[0]), 'tensor "p" is defined twice'),
    "an input without a name": (_set(_x, name=""), 'reads tensor "x", which nothing defines'),
    "an initializer without a name": (_set(_tensor, name=""), 'reads tensor "w", which nothing defines'),
    "a graph without a name": (_set(_graph, name=""), "'name' of 'graph'"),
    "a body without a name": (_set(_body, name=""), "'name' of 'graph'"),
    # Nodes and attributes.
    "no operator": (_set(_first, op_type=""), "'op_type' of 'node'"),
    "an operator that ONNX has not": (_set(_first, op_type="NoSuchOp"), "No Op registered for NoSuchOp"),
    "a domain that is not imported": (_set(_first, domain="acme"), "No opset import for domain 'acme'"),
    "an operator that is newer": (lambda m: _add(m, helper.make_node("Gelu", ["x"], ["n"])), "No Op registered for Gelu"),
    "too many inputs": (_set(_first, input=["x", "w", "w"]), "input size 3"),
    "too few inputs": (_set(_first, input=["x"]), "input size 1"),
    "too many outputs": (_set(_first, output=["a", "b"]), "output size 2"),
    "no outputs": (_set(lambda m: _node(m, 1), output=[]), "output size 0"),
    "an attribute that the operator lacks": (lambda m: _node(m).attribute.add(name="n", type=AttributeProto.INT), "Unrecognized attribute: n"),
    "an attribute of another type": (_set(_flatten, type=AttributeProto.STRING), "mismatch in attribute axis"),
    "an attribute without a type": (lambda m: _node(m, 1).attribute[0].ClearField("type"), "'type' of 'attr'"),
    "an attribute without a name": (_set(_flatten, name=""), "'name' of 'attr'"),
    "an attribute twice": (lambda m: _node(m, 1).attribute.append(_node(m, 1).attribute[0]), "'axis' appeared multiple times"),
    "an attribute with two values": (_set(_flatten, floats=[1.0]), "mismatch in attribute axis"),
    "a body that is missing": (lambda m: _node(m, 3).attribute.pop(), "Required attribute"),
    # Types.
    "an input without a type": (lambda m: m.graph.input[0].ClearField("type"), "'type' of 'value_info'"),
    "an input of no element type": (lambda m: m.graph.input[0].type.tensor_type.ClearField("elem_type"), "'elem_type' of 'type'"),
    "a type of nothing": (lambda m: m.graph.input[0].type.ClearField("tensor_type"), "(value_info name: x)"),
    # Tensors.
    "raw data too short": (_set(_tensor, raw_data=bytes(7), float_data=[]), "its raw data has 7 bytes, but its type and shape take 8"),
    "raw data too long": (_set(_tensor, raw_data=bytes(9), float_data=[]), "its raw data has 9 bytes"),
    "raw and typed data": (_set(_tensor, raw_data=bytes(8), float_data=[1.0, 2.0]), "it has data in float_data, where only raw_data"),
    "typed data too short": (_set(_tensor, float_data=[1.0]), "its float_data has 1 entries"),
    "typed data too long": (_set(_tensor, float_data=[1.0, 2.0, 3.0]), "its float_data has 3 entries"),
    "data of another type": (_set(_tensor, int64_data=[1, 2], float_data=[]), "it has data in int64_data, where only float_data"),
    "no data": (_set(_tensor, float_data=[]), "its float_data has 0 entries"),
    "unknown element type": (_set(_tensor, data_type=99), "element type 99"),
    "negative element type": (_set(_tensor, data_type=-1), "element type -1"),
    "no element type": (_set(_tensor, data_type=0), "element type 0"),
    "negative dimension": (_set(_tensor, dims=[-2]), "dimension -2 is negative"),
    "huge dimension": (_set(_tensor, dims=[1 << 40]), "its float_data has 2 entries"),
    "overflowing dimensions": (_set(_tensor, dims=[1 << 32, 1 << 32]), "its dimensions overflow"),
    "dimensions that overflow to what is there": (_set(_tensor, dims=[1 << 62, 4, 2]), "its dimensions overflow"),
    "segments": (lambda m: _tensor(m).segment.SetInParent(), "stored in segments"),
    "a constant's raw data too short": (lambda m: _constant(m, raw_data=bytes(4)), "its raw data has 4 bytes"),
    "a constant's dimension negative": (lambda m: _constant(m, dims=[-2]), "dimension -2 is negative"),
    "a constant of no element type": (lambda m: _constant(m, data_type=0), "element type 0"),
    "an initializer in a body too short": (
        lambda m: _body(m).initializer.append(TensorProto(name="k", data_type=1, dims=[9], raw_data=bytes(4))),
        "its raw data has 4 bytes, but its type and shape take 36",
    ),
    "an initializer of another type than the input": (
        lambda m: m.graph.input.append(_info("w", TensorProto.INT64)),
        'graph input "w" is int64[2], but its initializer is of element type 1',
    ),
    "an initializer of another shape than the input": (lambda m: m.graph.input.append(_info("w", shape=(3,))), 'graph input "w" is float[3]'),
    "a sparse index outside": (lambda m: _sparse(m, [7], [4]), "out of range [0, 3]"),
    "sparse indices out of order": (lambda m: _sparse(m, [2, 1], [4]), "not in sorted order"),
    "a sparse tensor of overflowing size": (lambda m: _sparse(m, [1], [1 << 62, 1 << 62]), "Sparse tensor"),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), SENSELESS.values(), ids=SENSELESS)
def test_a_model_that_makes_no_sense(refused, path, edit, message):
    proto = model()
    edit(proto)
    path.write_bytes(proto.SerializeToString())
    line = refused(3, path)
    assert line.startswith(f"gehost: {path}: ")
    assert message in line


def test_what_onnx_refuses_is_among_them():
    """Of these models; what else is refused, ONNX's checker takes."""
    refused_by_onnx = [name for name, (edit, _) in SENSELESS.items() if _onnx_refuses(edit)]
    assert len(refused_by_onnx) >= 50, refused_by_onnx


def _onnx_refuses(edit: Callable[[ModelProto], object]) -> bool:
    proto = model()
    edit(proto)
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError:
        return True
    return False


def test_functions_that_call_themselves(refused, path):
    proto = model(CALLING)
    proto.functions[0].node[0].op_type, proto.functions[0].node[0].domain = "G", "local"
    path.write_bytes(proto.SerializeToString())
    assert "calls itself" in refused(3, path)
    assert "calls itself" in refused(3, path, "--inline-functions")


def test_a_function_that_calls_itself(refused, path):
    proto = model(CALLING)
    proto.functions[0].node[0].op_type, proto.functions[0].node[0].domain = "F", "local"
    path.write_bytes(proto.SerializeToString())
    assert 'function "local::F" calls itself' in refused(3, path)


def test_functions_that_double_what_they_call(refused, path):
    proto = model(CALLING.replace("q = local.F(p)", "r = local.F(p) q = local.F(r)"))
    for level in range(1, 60):
        body = proto.functions.add()
        body.CopyFrom(proto.functions[1])
        body.name = f"G{level}"
        for node in body.node:
            node.op_type = f"G{level - 1}" if level > 1 else "G"
    proto.graph.node[0].op_type = "G59"
    path.write_bytes(proto.SerializeToString())
    assert "stand for more than 1,000,000 nodes" in refused(3, path)


@pytest.mark.parametrize("options", [(), ("--inline-functions",)], ids=["as it is", "inlined"])
@pytest.mark.parametrize("what", ["input", "output"])
def test_a_call_of_more_than_the_function_has(refused, path, what, options):
    proto = model(CALLING)
    getattr(proto.graph.node[0], what).append("" if what == "input" else "more")
    path.write_bytes(proto.SerializeToString())
    assert f'calls function "local::F" with 2 {what}s, where it has 1' in refused(3, path, *options)


# -- depth ----------------------------------------------------------------------------------------------------------


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field as protobuf writes it."""
    length, size = len(content), bytearray()
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + content


def _nested(depth: int) -> bytes:
    """A model with an If in both branches of an If, ``depth`` times over."""
    output = helper.make_tensor_value_info("p", TensorProto.FLOAT, [2]).SerializeToString()
    node = helper.make_node("Identity", ["x"], ["p"]).SerializeToString()
    outer = model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, bool c) => (float[2] p) { }'
    )
    for _ in range(depth):
        body = _field(1, node) + _field(2, b"b") + _field(12, output)
        attribute = GRAPH_KIND + _field(6, body)
        node = (
            _field(1, b"c")
            + _field(2, b"p")
            + _field(4, b"If")
            + _field(5, _field(1, b"then_branch") + attribute)
        )
        node += _field(5, _field(1, b"else_branch") + GRAPH_KIND + _field(6, SIMPLE_BODY))
    graph = _field(1, node) + outer.graph.SerializeToString()
    outer.ClearField("graph")
    return outer.SerializeToString() + _field(7, graph)


GRAPH_KIND = b"\xa0\x01\x05"
SIMPLE_BODY = (
    _field(1, helper.make_node("Identity", ["x"], ["p"]).SerializeToString())
    + _field(2, b"e")
    + _field(12, helper.make_tensor_value_info("p", TensorProto.FLOAT, [2]).SerializeToString())
)


@pytest.mark.parametrize("depth", [40, 200, 2000])
def test_bodies_in_bodies_beyond_what_protobuf_reads(refused, path, depth):
    path.write_bytes(_nested(depth))
    assert "cannot be parsed" in refused(3, path)


@pytest.mark.parametrize("depth", [1, 12, 25])
def test_bodies_in_bodies_within_it(gehost_run, path, tmp_path, depth):
    path.write_bytes(_nested(depth))
    code, _, err = gehost_run(
        "compile", path, "-o", tmp_path / "out.onnx", "--dump", tmp_path / "dumps"
    )
    assert (code, err) == (0, "")
    onnx.checker.check_model(tmp_path / "out.onnx")


HARMLESS: dict[str, Callable[[ModelProto], object]] = {
    "an output of no stated rank": lambda proto: proto.graph.output[0].type.tensor_type.ClearField(
        "shape"
    ),
    "an input of no stated rank": lambda proto: proto.graph.input[0].type.tensor_type.ClearField(
        "shape"
    ),
    "an attribute that refers outside of a function": _set(_flatten, ref_attr_name="axis"),
    "a constant with two values": lambda proto: (
        _constant(proto) or _node(proto, 4).attribute.append(helper.make_attribute("value_int", 1))
    ),
    "a constant without a value": lambda proto: _add(
        proto, helper.make_node("Constant", [], ["k"])
    ),
}


@pytest.mark.parametrize("edit", HARMLESS.values(), ids=HARMLESS)
def test_what_does_no_harm_is_compiled_and_keeps_its_interface(gehost_run, path, tmp_path, edit):
    proto = model()
    edit(proto)
    path.write_bytes(proto.SerializeToString())
    code, _, err = gehost_run("compile", path, "-o", tmp_path / "out.onnx")
    assert (code, without_warnings(err)) == (0, "")
    compiled = onnx.load(tmp_path / "out.onnx").graph
    assert (list(compiled.input), list(compiled.output)) == (
        list(proto.graph.input),
        list(proto.graph.output),
    )
