"""Dumps: GE's names, three levels, two formats, for onnx and Netron to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf import text_format

from gehost import Host, HostOptions, OutputError, hookimpl
from gehost.testing import parse

STAGES = [
    "ge_onnx_00000000_graph_0_PreRunBegin",
    "ge_onnx_00000001_graph_0_RunCustomPassBeforeInfershape",
    "ge_onnx_00000002_graph_0_RunCustomPass_AfterInferShape",
    "ge_onnx_00000003_graph_0_RunCustomPassAfterBuiltinFusionPass",
    "ge_onnx_00000004_graph_0_RunCustomPassAfterOriginGraphOptimize",
    "ge_onnx_00000005_graph_0_Build",
]
SMALL = np.arange(4, dtype=np.int64).reshape(2, 2)
BIG = np.arange(1000, dtype=np.float32)
MODEL = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (bool c, float[N, 1000] x) => (float[M, 1000] y)
{
    a = Add(x, w)
    b = Relu(a)
    d = local.Shift(b)
    y = If(c) <
        then_branch = t () => (float[K, 1000] p) { inner = Relu(d) p = Mul(inner, big) },
        else_branch = e () => (float[K, 1000] q) { q = Identity(d) }
    >
}
<domain: "local", opset_import: ["" : 17]>
Shift (i) => (o) { k = Constant <value_floats: floats = []> () o = Identity(i) }"""


def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(MODEL.replace("<value_floats: floats = []>", "<value_int = 1>"))
    graph = proto.graph
    graph.initializer.append(onnx.numpy_helper.from_array(BIG, "w"))
    graph.node[3].attribute[0].g.initializer.append(onnx.numpy_helper.from_array(BIG, "big"))
    for name, array in (("large", BIG), ("small", SMALL)):
        graph.node.append(
            onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))
        )
    del proto.functions[0].node[0].attribute[:]
    proto.functions[0].node[0].attribute.append(
        onnx.helper.make_attribute("value_floats", BIG.tolist())
    )
    onnx.checker.check_model(proto)
    return proto


def dumped(path: Path, **options: Any) -> tuple[dict[str, onnx.ModelProto], Any]:
    host = Host(HostOptions(plugins=False, dump=path, **options))
    _, report = host.run(model())
    return {Path(name).name: read(Path(name)) for name in report.dumps}, report


def read(path: Path) -> onnx.ModelProto:
    if path.suffix == ".onnx":
        return onnx.load(path)
    return text_format.Parse(path.read_text(encoding="utf-8"), onnx.ModelProto())


@pytest.mark.parametrize("file_format", ["pbtxt", "onnx"])
def test_one_dump_after_each_stage_under_ges_names(tmp_path: Path, file_format: Any) -> None:
    actual, report = dumped(tmp_path / "made" / "here", dump_format=file_format)
    assert list(actual) == [f"{stage}.{file_format}" for stage in STAGES]
    assert sorted(path.name for path in (tmp_path / "made" / "here").iterdir()) == list(actual)
    assert report.dumps == [str(tmp_path / "made" / "here" / name) for name in actual]
    for proto in actual.values():
        assert {node.op_type for node in proto.graph.node} >= {"Add", "Relu", "Shift", "If"}
        assert [entry.name for entry in proto.graph.input] == ["c", "x"]


def test_a_readable_dump_names_nodes_and_their_users(tmp_path: Path) -> None:
    host = Host(HostOptions(plugins=False, dump=tmp_path, dump_format=["readable", "onnx"]))
    _, report = host.run(model())
    names = [Path(name).name for name in report.dumps]
    assert names[:2] == [
        "ge_readable_00000000_graph_0_PreRunBegin.txt",
        "ge_onnx_00000000_graph_0_PreRunBegin.onnx",
    ]
    assert len(names) == 2 * len(STAGES)
    text = (tmp_path / names[0]).read_text()
    assert text.startswith('graph("main"):')
    assert "  %x : [#users=1] = Node[type=Data] ()" in text
    assert "  %a : [#users=1] = Node[type=Add] (inputs = (A=%x, B=%w))" in text
    assert text.endswith("  return (%y)\n")


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (["Build"], [5]),
        (["PreRunBegin", "AfterInfershape"], [0, 2]),
        (["CustomPass"], [1, 2, 3, 4]),
    ],
)
def test_only_the_stages_asked_for(tmp_path: Path, stages: list[str], expected: list[int]) -> None:
    dumps, _ = dumped(tmp_path, dump_stages=stages)
    assert list(dumps) == [f"{STAGES[number]}.pbtxt" for number in expected]


def test_a_part_that_no_stage_has_is_noted(tmp_path: Path) -> None:
    dumps, report = dumped(tmp_path, dump_stages=["PreRunBegin", "Unheard", "Origin"])
    assert list(dumps) == [f"{STAGES[0]}.pbtxt", f"{STAGES[4]}.pbtxt"]
    assert report.notes[-1].startswith("dumps: no stage has Unheard in its name; there are Pre")


def constants(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    actual = {tensor.name: tensor for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "Constant":
            actual[node.output[0]] = node.attribute[0].t
        for entry in node.attribute:
            actual.update({tensor.name: tensor for tensor in entry.g.initializer})
    return actual


def size_of_function_constant(proto: onnx.ModelProto) -> int:
    return len(proto.functions[0].node[0].attribute[0].floats)


def test_level_1_has_the_weights(tmp_path: Path) -> None:
    actual, _ = dumped(tmp_path, dump_level=1, cleanup=False)
    for proto in actual.values():
        tensors = constants(proto)
        for name, array in {"w": BIG, "big": BIG, "large": BIG, "small": SMALL}.items():
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensors[name]), array)
        assert size_of_function_constant(proto) == 1000


def test_level_2_has_names_and_shapes_of_weights_but_not_their_data(tmp_path: Path) -> None:
    actual, _ = dumped(tmp_path, cleanup=False)
    for proto in actual.values():
        tensors = constants(proto)
        for name in ("w", "big", "large"):
            assert (tensors[name].data_type, list(tensors[name].dims)) == (
                onnx.TensorProto.FLOAT,
                [1000],
            )
            assert tensors[name].ByteSize() < 32
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensors["small"]), SMALL)
        assert size_of_function_constant(proto) == 0
        assert proto.ByteSize() < 4000


def test_level_3_has_structure_only(tmp_path: Path) -> None:
    actual, _ = dumped(tmp_path, dump_level=3, cleanup=False)
    for proto in actual.values():
        assert not proto.graph.initializer
        assert not proto.graph.value_info
        assert [node.op_type for node in proto.graph.node] == [
            "Add",
            "Relu",
            "Shift",
            "If",
            "Constant",
            "Constant",
        ]
        assert proto.ByteSize() < 3000


def test_sparse_weights_stay_out_too(tmp_path: Path) -> None:
    values = onnx.numpy_helper.from_array(BIG, "s")
    indices = onnx.numpy_helper.from_array(np.arange(1000, dtype=np.int64), "i")
    proto = model()
    proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [2000]))
    Host(HostOptions(plugins=False, dump=tmp_path, cleanup=False)).run(proto)
    (rest,) = read(tmp_path / f"{STAGES[0]}.pbtxt").graph.sparse_initializer
    assert (rest.values.name, list(rest.dims)) == ("s", [2000])
    assert rest.ByteSize() < 64


def types(graph: onnx.GraphProto) -> dict[str, list[Any]]:
    return {
        entry.name: [dim.dim_value or dim.dim_param for dim in entry.type.tensor_type.shape.dim]
        for entry in graph.value_info
    }


def test_types_of_intermediate_values_are_written_also_in_bodies_and_never_to_the_model(
    tmp_path: Path,
) -> None:
    actual, _ = dumped(tmp_path, cleanup=False)
    before, after = actual[f"{STAGES[1]}.pbtxt"], actual[f"{STAGES[2]}.pbtxt"]
    assert types(before.graph) == {}
    assert types(after.graph) == {
        "a": ["N", 1000],
        "b": ["N", 1000],
        "d": ["N", 1000],
        "large": [1000],
        "small": [2, 2],
    }
    assert types(after.graph.node[3].attribute[0].g) == {"inner": ["N", 1000]}
    result, _ = Host(HostOptions(plugins=False, dump=tmp_path, cleanup=False)).run(model())
    assert result == model()


def test_dumping_changes_nothing_in_the_model(vendors: Any, tmp_path: Path) -> None:
    """A function that a pass brings and a later pass makes unused must not stay because a dump was written between them."""
    vendors.write(
        "acme/a.py",
        "@ops.register('acme::Twice')\ndef twice(x):\n    return es.Add(x, x)\n",
        vendors.swap("A", "Relu", "op('acme::Twice')"),
        vendors.swap("B", "op('acme::Twice')", "Abs", stage="kAfterOriginGraphOptimize"),
    )
    chain = parse(
        """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
    )
    plain, report = vendors.host().run(chain)
    assert [record.replaced for record in report.passes] == [1, 1]
    dumped, report = vendors.host(dump=tmp_path / "dumps", dump_passes=True).run(chain)
    assert len(report.dumps) == 8
    assert dumped.SerializeToString(deterministic=True) == plain.SerializeToString(
        deterministic=True
    )
    (function,) = read(Path(report.dumps[3])).functions
    assert function.name == "Twice"


def test_one_more_dump_after_each_pass_that_changed_something(vendors: Any, tmp_path: Path) -> None:
    name = "../../é evil\0\n" + "x" * 300
    quoted = f"@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape, name={name!r})"
    vendors.write(
        "acme/a.py",
        vendors.swap("Evil", "Relu", "Abs", registration=quoted),
        vendors.swap("Idle", "Cos", "Sin"),
    )
    _, report = vendors.host(dump=tmp_path / "dumps", dump_passes=True).run(
        parse(
            """<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }"""
        )
    )
    names = [Path(path).name for path in report.dumps]
    assert (
        names[2]
        == f"ge_onnx_00000002_graph_0_{('Pass_.._.._' + '__evil__' + 'x' * 300)[:100]}.pbtxt"
    )
    assert names[3] == "ge_onnx_00000003_graph_0_RunCustomPass_AfterInferShape.pbtxt"
    assert sorted(path.name for path in (tmp_path / "dumps").iterdir()) == names
    assert [node.op_type for node in read(Path(report.dumps[2])).graph.node] == ["Abs"]
    assert [path.name for path in tmp_path.iterdir() if path.name != "vendors"] == ["dumps"]


def test_numbers_start_anew_in_each_compile(tmp_path: Path) -> None:
    host = Host(HostOptions(plugins=False, dump=tmp_path))
    first, second = (host.run(model())[1].dumps for _ in range(2))
    assert first == second
    assert len(list(tmp_path.iterdir())) == 6


def test_weights_in_other_files_keep_their_place_at_every_level(tmp_path: Path) -> None:
    proto = model()
    onnx.save_model(
        proto,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=100,
    )
    for level in (1, 2):
        host = Host(HostOptions(plugins=False, dump=tmp_path / "dumps", dump_level=level))
        host.compile(tmp_path / "m.onnx", tmp_path / "out.onnx")
        (tensor,) = read(tmp_path / "dumps" / f"{STAGES[0]}.pbtxt").graph.initializer
        assert {entry.key: entry.value for entry in tensor.external_data}[
            "location"
        ] == "weights.bin"


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(
        OutputError, match="file/dumps: cannot make the directory for dumps: Not a directory"
    ):
        Host(HostOptions(plugins=False, dump=tmp_path / "file" / "dumps", keep_going=True)).run(
            model()
        )


def test_dumps_take_the_place_of_those_of_an_earlier_compile(vendors: Any, tmp_path: Path) -> None:
    directory = tmp_path / "dumps"
    vendors.write("acme/a.py", vendors.swap("A", "Relu", "Abs"))
    vendors.host(dump=directory, dump_passes=True, dump_format="onnx").run(model())
    assert len(list(directory.iterdir())) == 7
    others = [
        "notes.txt",
        "ge_onnx_00000003_graph_0_OfGE.pbtxt",
        "ge_onnx_00000003_graph_1_Build.pbtxt",
    ]
    for name in others:
        (directory / name).write_text("")
    host = vendors.host(dump=directory)
    for _ in range(2):
        _, report = host.run(model())
        assert sorted(path.name for path in directory.iterdir()) == sorted(
            [*others, *(f"{stage}.pbtxt" for stage in STAGES)]
        )
    assert len(report.dumps) == 6


def test_the_time_of_dumps_is_not_that_of_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("gehost.host.executor.time.perf_counter", lambda: clock[0])

    class Slow:
        @hookimpl
        def gehost_stage_finished(self) -> None:
            clock[0] += 10

        @hookimpl
        def gehost_compile_finished(self) -> None:
            clock[0] += 1

        @hookimpl
        def gehost_after_infershape(self) -> None:
            clock[0] += 5

    _, report = Host(HostOptions(plugins=False), [("slow", Slow())]).run(model())
    assert (report.seconds["passes"], report.seconds["hooks"]) == (5.0, 41.0)


def test_a_readable_dump_names_each_of_several_outputs(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[4] x) => (float[2] y, float[2] z) '
        "{ [s] a, b = Split<num_outputs = 2>(x) y = Neg(a) z = Exp(b) }"
    )
    host = Host(HostOptions(plugins=False, dump=tmp_path, dump_format=["readable"]))
    _, report = host.run(proto)
    text = Path(report.dumps[0]).read_text()
    assert "  %s : [#users=2] = Node[type=Split]" in text
    assert "  %b : [users=1] = get_element[node=%s](1)" in text
