"""Loading sorts, resolves and refuses; what is not edited is saved as it came."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import onnx
import pytest

from gehost.errors import GehostError, ModelError
from gehost.ir.edits import unlink
from gehost.ir.gc_policy import gc_disabled
from gehost.ir.graph import Node, Value
from gehost.ir.model import Model

HEAD = '<ir_version: 10, opset_import: ["": 17, "local": 1]>'


def load(text: str, head: str = HEAD) -> Model:
    return Model(onnx.parser.parse_model(head + text))


def ops(model: Model) -> list[list[str]]:
    return [[node.op for node in graph.nodes] for graph in model.graphs]


# -- files ----------------------------------------------------------------------------------------------------------


def test_a_model_is_read_from_its_file(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(
        onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) }"), path
    )
    model = Model.load(path)
    assert (model.path, model.base_dir, str(model)) == (str(path), str(tmp_path), str(path))
    assert [graph.name for graph in model.graphs] == ["g"]
    model.save(tmp_path / "copy.onnx")
    assert (tmp_path / "copy.onnx").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "the file is empty"),
        (b"\xff\xff nonsense", "cannot be parsed"),
        (b"\x08\x0a", "has no graph"),
    ],
)
def test_what_is_no_model_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        Model.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_bare_file_name_is_looked_for_in_the_working_directory(tmp_path, monkeypatch):
    onnx.save(
        onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Relu(x) }"),
        tmp_path / "m.onnx",
    )
    monkeypatch.chdir(tmp_path)
    assert Model.load("m.onnx").base_dir == str(tmp_path)


def test_what_nobody_edits_is_saved_as_it_came():
    proto = onnx.parser.parse_model(
        HEAD
        + "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] stale> { a = local.F(x, w) y = Relu(a) }"
        '<domain: "local", opset_import: ["": 17]> F (p, q) => (r) { r = Add(p, q) }'
    )
    proto.metadata_props.add(key="author", value="somebody")
    proto.graph.quantization_annotation.add(tensor_name="x")
    proto.graph.node[0].device_configurations.add(configuration_id="c")
    before = proto.SerializeToString(deterministic=True)
    model = Model(proto)
    assert model.flush().SerializeToString(deterministic=True) == before
    assert model.function("local::F") is not None
    assert model.original_ops == {"local::F", "Relu"}


# -- order ----------------------------------------------------------------------------------------------------------


def test_an_unsorted_graph_is_sorted_and_else_keeps_its_order(describe):
    text = "g (float[2] x) => (float[2] y) { y = Add(c, b) d = Neg(x) c = Exp(a) b = Abs(x) a = Relu(x) e = Neg(x) }"
    model = load(text)
    assert ops(model) == [["Neg", "Abs", "Relu", "Exp", "Add", "Neg"]]
    model.check()
    assert [node.op_type for node in model.flush().graph.node] == ops(model)[0]
    assert describe(model) == describe.fresh(model)


def test_a_body_may_read_what_stands_behind_its_node(describe):
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <
            then_branch = yes () => (float[2] p) {
                p = If(c) <then_branch = deep () => (float[2] q) { q = Add(late, x) }, else_branch = flat () => (float[2] later) { }>
            },
            else_branch = no () => (float[2] r) { r = Neg(s) s = Abs(x) }
        >
        late = Relu(x)
        later = Exp(late)
    }"""
    model = load(text)
    assert ops(model) == [["Relu", "Exp", "If"], ["If"], ["Add"], [], ["Abs", "Neg"]]
    model.check()
    model.flush()
    assert describe(model) == describe.fresh(model)


def test_a_body_that_reads_nothing_else_than_what_stands_behind():
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If(c) <then_branch = t () => (float[2] p) { p = Neg(late) }, else_branch = e () => (float[2] q) { q = Abs(late) }>
        late = Relu(x) }"""
    model = load(text)
    assert ops(model)[0] == ["Relu", "If"]
    model.check()


@pytest.mark.parametrize(
    ("nodes", "stuck"),
    [
        ("y = Relu(y)", "y"),
        ("y = Add(x, a) [in] a = Neg(b) b = Abs(a)", "in"),
        (
            "a = Relu(x) y = If(c) <then_branch = t () => (float[2] p) { p = Neg(y) }, else_branch = e () => (float[2] a) { }>",
            "y",
        ),
        (
            "d = Neg(y) y = If(c) <then_branch = t () => (float[2] d) { }, else_branch = e () => (float[2] x) { }>",
            "d",
        ),
        (
            "a = Relu(x) y = If(c) <then_branch = t () => (float[2] p) { p = Neg(q) q = Abs(p) }, else_branch = e () => (float[2] a) { }>",
            "p",
        ),
    ],
)
def test_a_cycle_is_refused_and_one_of_its_nodes_named(nodes, stuck):
    with pytest.raises(ModelError, match=rf'node "{stuck}" \(\w+\) is part of a cycle'):
        load(f"g (float[2] x, bool c) => (float[2] y) {{ {nodes} }}")


@pytest.mark.parametrize(
    ("length", "way"),
    [(2, '"n0" → "n1" → "n0"'), (9, '"n0" → "n1" → "n2" → "n3" → "n4" → "n5" → … → "n0"')],
)
def test_the_error_for_a_cycle_names_its_nodes(length, way):
    nodes = " ".join(f"[n{i}] t{(i + 1) % length} = Neg(t{i})" for i in range(length))
    with pytest.raises(ModelError, match=rf': node "n0" \(Neg\) is part of a cycle: {way}$'):
        load(f"g (float[2] x) => (float[2] y) {{ y = Relu(x) {nodes} }}")


# -- definitions ----------------------------------------------------------------------------------------------------


def test_outputs_may_be_inputs_initializers_and_given_twice(describe):
    model = load(
        "g (float[2] x) => (float[2] x, float[2] w, float[2] y, float[2] y) <float[2] w = {1, 2}> { y = Relu(x) }"
    )
    graph = model.graph
    assert [value.name for value in graph.outputs] == ["x", "w", "y", "y"]
    assert graph.values["y"].uses == [(graph, 2), (graph, 3)]
    assert graph.values["x"].is_graph_output
    assert graph.values["x"].is_input
    assert graph.values["w"].is_constant
    model.check()
    assert describe(model) == describe.fresh(model)


def test_loop_and_scan_bodies_read_outside(describe):
    text = """g (int64 n, bool c, float[2] x, float[3, 2] xs) => (float[2] y, float[2] z, float[3, 2] s) {
        a = Relu(x)
        y = Loop(n, c, x) <body = loop (int64 i, bool go, float[2] p) => (bool go, float[2] q) { q = Add(p, a) }>
        z, s = Scan(x, xs) <num_scan_inputs = 1, body = scan (float[2] acc, float[2] e) => (float[2] next, float[2] a) { next = Mul(acc, a) }>
    }"""
    model = load(text)
    a = model.graph.values["a"]
    assert [(reader.op, slot) for reader, slot in a.consumers()] == [("Add", 1), ("Mul", 1)]
    assert a.is_graph_output, "the scan hands it on"
    assert [graph.values["go"].is_input for graph in model.graphs if "go" in graph.values] == [True]
    model.check()
    assert describe(model) == describe.fresh(model)


def test_a_body_s_own_name_hides_the_outer_one():
    text = """g (float[2] x, bool c) => (float[2] y) { a = Relu(x)
        y = If(c) <then_branch = t () => (float[2] p) { a = Neg(x) p = Abs(a) }, else_branch = e () => (float[2] a) { }> }"""
    model = load(text)
    then = model.graph.subgraphs()[0]
    assert [reader.op for reader, _ in then.values["a"].consumers()] == ["Abs"]
    assert model.graph.values["a"].consumers() == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }",
            'tensor "x" is defined twice in graph "g"',
        ),
        (
            "g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }",
            'tensor "y" is defined twice',
        ),
        ("g (float[2] x) => (float[2] y) { y, y = Split(x) }", 'tensor "y" is defined twice'),
        (
            "g (float[2] x) => (float[2] y) { y = Relu(a) a = Neg(x) a = Abs(x) }",
            'tensor "a" is defined twice',
        ),
        ("g (float[2] x) => (float[2] x) { x = Relu(x) }", 'tensor "x" is defined twice'),
        (
            "g (float[2] x) => (float[2] w) <float[2] w = {1, 2}> { w = Relu(x) }",
            'tensor "w" is defined twice',
        ),
        (
            "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] w = {3, 4}> { y = Add(x, w) }",
            'two initializers are called "w"',
        ),
        (
            "g (float[2] x) => (float[2] y) { [n] y = Add(x, z) }",
            r'node "n" \(Add\) reads tensor "z", which nothing defines',
        ),
        (
            "g (float[2] x) => (float[2] y) { }",
            'output 0 of the graph reads tensor "y", which nothing defines',
        ),
        (
            "g (float[2] x, bool c) => (float[2] y) { y = If(c) <then_branch = t () => (float[2] p) { q = Neg(x) p = Abs(q) }, "
            "else_branch = e () => (float[2] q) { }> }",
            'output 0 of the graph reads tensor "q", which nothing defines',
        ),
    ],
)
def test_what_is_not_defined_once_is_refused(text, message):
    with pytest.raises(ModelError, match=message):
        load(text)


def test_a_sparse_initializer_is_a_definition():
    proto = onnx.parser.parse_model(HEAD + "g (float[2] x) => (float[2] y) { y = Add(x, s) }")
    sparse = proto.graph.sparse_initializer.add(dims=[2])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.array([5], np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.array([1], np.int64), "i"))
    value = Model(proto).graph.values["s"]
    assert (value.is_constant, value.array, value.type) == (True, None, None)


def test_an_initializer_without_a_name_is_not_what_absent_inputs_read():
    proto = onnx.parser.parse_model(
        HEAD
        + "g (float x) => (float y) <float low = {5.0}, float high = {1.0}> { y = Clip(x, , high) }"
    )
    proto.graph.initializer[0].name = ""
    (clip,) = Model(proto).graph.nodes
    assert clip.inputs[1] is None


def test_domains_have_one_spelling():
    model = load("g (float[2] x) => (float[2] y) { a = ai.onnx.Relu(x) y = local.Relu(a) }")
    assert [(node.op, node.op_type, node.domain) for node in model.graph.nodes] == [
        ("Relu", "Relu", ""),
        ("local::Relu", "Relu", "local"),
    ]
    assert (model.opset(), model.opset("ai.onnx"), model.opset("local"), model.opset("acme")) == (
        17,
        17,
        1,
        None,
    )


# -- transactions ---------------------------------------------------------------------------------------------------


def test_what_was_written_cannot_be_undone_any_more():
    model = load("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    mark = model.mark()
    model.flush()
    model.undo(mark)  # nothing was edited, so nothing is lost
    result = model.graph.add_node("Relu", [model.graph.inputs[0]], ["new"])
    later = model.mark()
    model.flush()
    with pytest.raises(GehostError, match="cannot be undone"):
        model.undo(mark)
    assert result.in_graph
    model.graph.remove_node(result)
    model.undo(later)
    assert result.in_graph
    assert model.mark() == later


def _function(name: str, *calls: str) -> onnx.FunctionProto:
    function = onnx.FunctionProto(name=name, domain="acme", input=["p"], output=["q"])
    function.opset_import.add(domain="", version=17)
    for call in calls:
        domain, _, op_type = call.rpartition("::")
        function.node.add(op_type=op_type, domain=domain, input=["p"], output=["q"])
        function.opset_import.add(domain=domain, version=2)
    return function


def test_only_functions_that_are_called_are_written():
    model = load("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    for function in (
        _function("F", "acme::G"),
        _function("G", "acme::H"),
        _function("H", "other::Z"),
        _function("Unused", "Relu"),
    ):
        model.offer_function(f"acme::{function.name}", function)
    model.offer_function("acme::F", _function("F", "Neg"))
    assert len(model.flush().functions) == 0
    model.graph.add_node("acme::F", [model.graph.inputs[0]], ["new"])
    assert [function.name for function in model.flush().functions] == ["H", "G", "F"]
    assert [function.name for function in model.flush().functions] == ["H", "G", "F"]
    assert {entry.domain: entry.version for entry in model.proto.opset_import} == {
        "": 17,
        "local": 1,
        "acme": 2,
        "other": 2,
    }
    assert model.function("acme::F") is model.proto.functions[2]


# -- proving the index ----------------------------------------------------------------------------------------------


def _break_order(model: Model) -> None:
    first, second = list(model.graph.nodes)
    first.order, second.order = second.order, first.order


def _break_list(model: Model) -> None:
    model.graph.move_after(list(model.graph.nodes)[1], None)


def _break_input(model: Model) -> None:
    next(model.graph.nodes).proto.input[0] = "w"


def _break_output(model: Model) -> None:
    next(model.graph.nodes).proto.output[0] = "w"


def _break_uses(model: Model) -> None:
    model.graph.values["a"].read_by = None


def _break_extra_use(model: Model) -> None:
    model.graph.values["w"].add_reader(model.graph)


def _break_output_use(model: Model) -> None:
    model.graph.values["y"].read_by = None


def _break_producer(model: Model) -> None:
    model.graph.values["a"].producer = None


def _break_two_producers(model: Model) -> None:
    node = next(model.graph.nodes)
    model.graph.add_node("Neg", [model.graph.values["x"]], [node.outputs[0]], after=node)


def _break_dangling(model: Model) -> None:
    model.graph.new_value("dangling")


def _break_removed(model: Model) -> None:
    unlink(model.graph, [next(model.graph.nodes)])


def _break_values(model: Model) -> None:
    del model.graph.values["a"]


def _break_interface(model: Model) -> None:
    model.proto.graph.output[0].name = "w"


def _break_type(model: Model) -> None:
    model.proto.graph.input[0].type.tensor_type.elem_type = 7


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (_break_order, "out of order"),
        (_break_list, "before it is made"),
        (_break_input, "the inputs of .* and of its protobuf differ"),
        (_break_output, "the outputs of .* and of its protobuf differ"),
        (_break_uses, "missing among the readers"),
        (_break_extra_use, "lists a reader that does not read it"),
        (_break_output_use, 'missing among the readers of "y"'),
        (_break_producer, "has two producers|has no producer"),
        (_break_two_producers, '"a" has two producers'),
        (_break_dangling, '"dangling" has no producer'),
        (_break_removed, "removed node|does not read it"),
        (_break_values, "not among the graph's values"),
        (_break_interface, "inputs or outputs were changed"),
        (_break_type, "inputs or outputs were changed"),
    ],
)
def test_check_finds_what_is_broken(break_it: Callable[[Model], None], message):
    model = load(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) y = Relu(a) }"
    )
    model.check()
    break_it(model)
    with pytest.raises(ModelError, match=message):
        model.check()


def test_check_looks_into_bodies():
    text = """g (float[2] x, bool c) => (float[2] y) { a = Relu(x)
        y = If(c) <then_branch = t () => (float[2] p) { p = Neg(a) }, else_branch = e () => (float[2] a) { }> }"""
    model = load(text)
    first, second = model.graph.nodes
    model.graph.move_after(first, second)
    with pytest.raises(ModelError, match='reads "a" before it is made'):
        model.check()


# -- memory ---------------------------------------------------------------------------------------------------------


def test_close_gives_the_index_back_without_the_collector():
    def alive() -> int:
        return sum(isinstance(actual, Node | Value) for actual in gc.get_objects())

    gc.collect()
    before = alive()
    model = load("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    assert alive() == before + 5
    with gc_disabled():
        model.close()
        assert alive() == before


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was_after_a_load(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ModelError):
            load("g (float[2] x) => (float[2] y) { }")
        assert gc.isenabled() is enabled
        with gc_disabled():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()


# -- devices --------------------------------------------------------------------------------------------------------


def configuration(name: str, *devices: int) -> onnx.NodeDeviceConfigurationProto:
    result = onnx.NodeDeviceConfigurationProto(configuration_id=name)
    result.sharding_spec.add(tensor_name="x", device=devices)
    return result


def test_device_configurations_are_set_and_taken_back():
    model = load("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    (node,) = model.graph.nodes
    assert (node.device_configurations, model.configurations) == ((), ())
    assert not model.has_device_configurations
    before = model.flush().SerializeToString(deterministic=True)
    mark = model.mark()
    node.device_configurations = (configuration("a", 0), configuration("b", 1))
    model.configurations = (onnx.DeviceConfigurationProto(name="a", num_devices=2),)
    assert model.has_device_configurations
    between = model.mark()
    node.device_configurations = (configuration("c"),)
    model.configurations = ()
    model.undo(between)
    assert [item.configuration_id for item in node.device_configurations] == ["a", "b"]
    assert [item.name for item in model.configurations] == ["a"]
    assert model.proto.graph.node[0].device_configurations[1].sharding_spec[0].device == [1]
    model.undo(mark)
    assert model.flush().SerializeToString(deterministic=True) == before


def test_the_ir_version_is_raised_and_taken_back():
    model = load("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    before = model.ir_version
    mark = model.mark()
    model.raise_ir_version(before)
    assert model.mark() == mark
    model.raise_ir_version(before + 1)
    assert (model.ir_version, model.flush().ir_version) == (before + 1, before + 1)
    mark = model.mark()
    model.raise_ir_version(before + 2)
    model.undo(mark)
    assert (model.ir_version, model.proto.ir_version) == (before + 1, before + 1)
    old = Model(onnx.ModelProto(ir_version=3, graph=onnx.GraphProto(name="g")))
    with pytest.raises(GehostError, match="IR version 3 cannot be raised"):
        old.raise_ir_version(11)


def test_what_is_read_is_a_copy_and_what_is_assigned_is_checked():
    model = load("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    (node,) = model.graph.nodes
    node.device_configurations = (configuration("a"),)
    model.configurations = (onnx.DeviceConfigurationProto(name="a"),)
    mark = model.mark()
    node.device_configurations[0].configuration_id = "changed"
    model.configurations[0].name = "changed"
    with pytest.raises(TypeError):
        node.device_configurations = (configuration("b"), "c")
    with pytest.raises(TypeError):
        model.configurations = ("c",)
    assert node.device_configurations == (configuration("a"),)
    assert model.configurations == (onnx.DeviceConfigurationProto(name="a"),)
    assert model.mark() == mark


def test_a_node_keeps_its_device_configurations_when_the_graph_is_written():
    model = load("g (float[2] x) => (float[2] y) { a = Relu(x) y = Neg(a) }")
    first, second = model.graph.nodes
    second.device_configurations = (configuration("a"),)
    new = model.graph.add_node("Abs", [model.graph.values["x"]], ["b"], after=first)
    model.graph.set_input(second, 0, new.outputs[0])
    model.graph.remove_node(first)
    assert [len(node.device_configurations) for node in model.flush().graph.node] == [0, 1]
