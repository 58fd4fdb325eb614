"""The whole: a file in, a file out or nothing; a model in, another one out."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import (
    NOT_CHANGED,
    CustomPassStage,
    FusionBasePass,
    Host,
    HostOptions,
    ModelError,
    NumbersDifferError,
    OutputError,
    PassError,
    PassOption,
    PassSpec,
    UsageError,
    VendorError,
    hookimpl,
)
from gehost.ir.model import Model
from gehost.testing import parse
from gehost.verify import compare

CHAIN = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2] x) => (float[2] y) {
    a = Relu(x)
    b = Identity(a)
    y = Neg(b)
}"""
FUNCTION = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
main (float[2] x) => (float[2] y) { y = local.Two(x) }
<domain: "local", opset_import: ["" : 17]>
Two (i) => (o) { t = Relu(i) o = Relu(t) }"""


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parse(CHAIN), path)
    return path


def test_without_vendors_only_the_clean_up_works(model_file: Path, tmp_path: Path) -> None:
    report = Host(HostOptions(plugins=False)).compile(model_file, tmp_path / "out.onnx")
    assert op_types(onnx.load(tmp_path / "out.onnx")) == ["Relu", "Neg"]
    assert (report.model, report.nodes_before, report.nodes_after) == (str(model_file), 3, 2)
    assert list(report.seconds) == ["load", "check", "passes", "infer_shape", "cleanup", "save"]


def test_without_clean_up_and_matches_the_model_is_what_it_was(
    vendors: Any, model_file: Path, tmp_path: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Cos", "Sin"))
    vendors.host().compile(str(model_file), str(tmp_path / "out.onnx"))
    assert (tmp_path / "out.onnx").read_bytes() == model_file.read_bytes()


def test_run_leaves_its_model_alone_and_gives_another(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    value, expected = parse(CHAIN), parse(CHAIN)
    result, report = vendors.host().run(value)
    assert value == expected
    assert op_types(result) == ["Abs", "Identity", "Neg"]
    assert report.model == "main"


def test_a_host_compiles_many_models(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    host = vendors.host()
    results = [host.run(parse(CHAIN))[0].SerializeToString(deterministic=True) for _ in range(3)]
    assert len(set(results)) == 1


def test_models_are_closed_whatever_happens(
    vendors: Any, model_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Model] = []
    monkeypatch.setattr(
        Model, "close", lambda self, close=Model.close: closed.append(self) or close(self)
    )
    vendors.write(
        "acme/a.py",
        vendors.swap("P", "Relu", "Abs"),
        vendors.swap("Q", "Neg", "Sin", meet="return 1 / 0"),
    )
    vendors.host(disable=["Q"]).compile(model_file, tmp_path / "out.onnx")
    vendors.host(disable=["Q"]).run(parse(CHAIN))
    with pytest.raises(PassError):
        vendors.host().compile(model_file, tmp_path / "out.onnx")
    with pytest.raises(OutputError):
        vendors.host(disable=["Q"]).compile(model_file, tmp_path / "no" / "out.onnx")
    assert len(closed) == 4
    assert not any(list(model.graph.nodes) for model in closed)


def test_nothing_of_a_compile_stays_in_the_host(vendors: Any) -> None:
    references: list[weakref.ref[Any]] = []

    class Watch:
        @hookimpl
        def gehost_compile_started(self, graph: Any) -> None:
            references.append(weakref.ref(graph.model))

    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    host = vendors.host(plugins=[("watch", Watch())])
    host.run(parse(CHAIN))
    gc.collect()
    assert references[0]() is None


@pytest.mark.parametrize("inline", [True, False])
def test_local_functions_are_carried_through_or_inlined_first(vendors: Any, inline: bool) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    result, report = vendors.host(inline_functions=inline).run(parse(FUNCTION))
    assert op_types(result) == (["Abs", "Abs"] if inline else ["Two"])
    assert len(result.functions) == (0 if inline else 1)
    assert report.nodes_before == (2 if inline else 1)


# -- what fails -----------------------------------------------------------------------------------------------------


@pytest.fixture
def old_output(tmp_path: Path) -> Path:
    path = tmp_path / "out.onnx"
    path.write_text("what was there")
    return path


UNLIKE = """<ir_version: 8, opset_import: ["local" : 1]>
main (float[2] x) => (float[2] y) { y = local.Two(x) }
<domain: "local", opset_import: ["" : 17]>
Two (i) => (o) { o = Relu(i) }"""


def test_functions_that_cannot_be_inlined_are_no_half_valid_model(vendors: Any) -> None:
    with pytest.raises(
        ModelError,
        match="^the model: its functions cannot be inlined: .*; compile without inline_functions$",
    ):
        Host(HostOptions(inline_functions=True, plugins=False)).run(parse(UNLIKE))


def test_a_failed_compile_leaves_the_old_output(
    vendors: Any, model_file: Path, old_output: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs", meet="return 1 / 0"))
    with pytest.raises(PassError, match=r"^P \(.*/a.py:10\): MeetRequirements at node"):
        vendors.host().compile(model_file, old_output)
    assert old_output.read_text() == "what was there"
    assert sorted(path.name for path in old_output.parent.iterdir()) == [
        "m.onnx",
        "out.onnx",
        "vendors",
    ]


def test_a_broken_vendor_file_stops_before_the_model_is_read(vendors: Any, tmp_path: Path) -> None:
    vendors.write("acme/a.py", "1 / 0\n")
    with pytest.raises(VendorError, match=r"a.py:2: ZeroDivisionError"):
        vendors.host().compile(tmp_path / "no such model.onnx", tmp_path / "out.onnx")


def test_with_keep_going_all_that_failed_is_reported(
    vendors: Any, model_file: Path, old_output: Path
) -> None:
    vendors.write("acme/a.py", "1 / 0\n")
    vendors.write(
        "acme/b.py",
        vendors.swap("P", "Relu", "Abs", meet="return 1 / 0"),
        vendors.swap("Q", "Neg", "Sin"),
    )
    report = vendors.host(keep_going=True).compile(model_file, old_output)
    assert op_types(onnx.load(old_output)) == ["Relu", "Identity", "Sin"]
    assert [problem.partition(" ")[0].rpartition("/")[2] for problem in report.problems] == [
        "a.py:2:",
        "P",
    ]
    assert [(record.name, record.status) for record in report.passes] == [
        ("P", "failed"),
        ("Q", "done"),
    ]


@pytest.mark.parametrize("content", [None, b"", b"no model"])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes | None, old_output: Path) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=r"bad.onnx"):
        Host(HostOptions(plugins=False, keep_going=True)).compile(path, old_output)
    assert old_output.read_text() == "what was there"


def test_a_model_in_memory_that_is_not_valid() -> None:
    with pytest.raises(ModelError, match='reads tensor "nothing", which nothing defines'):
        Host(HostOptions(plugins=False)).run(
            onnx.parser.parse_model(CHAIN.replace("Neg(b)", "Neg(nothing)"))
        )


@pytest.mark.parametrize("keep_going", [True, False])
def test_a_shape_function_that_fails_is_reported_and_the_compile_goes_on(
    vendors: Any, *, keep_going: bool
) -> None:
    vendors.write(
        "acme/ops.py",
        "from gehost import ops\n",
        "ops.register('acme::F', inputs=['x'], shape=lambda types, _: types[1])\n",
    )
    vendors.write("acme/p.py", vendors.swap("P", "Relu", "Abs"))
    proto = parse(CHAIN)
    proto.graph.node[1].domain, proto.graph.node[1].op_type = "acme", "F"
    proto.opset_import.add(domain="acme", version=1)
    host = vendors.host(keep_going=keep_going)
    if not keep_going:
        with pytest.raises(VendorError, match="the shape function of acme::F failed"):
            host.run(proto)
        return
    result, report = host.run(proto)
    assert op_types(result) == ["Abs", "F", "Neg"]
    assert [problem.partition(": ")[0] for problem in report.problems] == [
        "shape inference gave up"
    ]


def test_what_onnx_does_not_allow_is_refused_before_anything_is_done(vendors: Any) -> None:
    proto = onnx.parser.parse_model(CHAIN.replace("Neg(b)", "NoSuchOp(b)"))
    with pytest.raises(
        ModelError,
        match="^the model: onnx.checker: No Op registered for NoSuchOp .*; export the model again$",
    ):
        vendors.host().run(proto)


# -- comparing ------------------------------------------------------------------------------------------------------


def test_numbers_are_compared_and_reported(vendors: Any, model_file: Path, tmp_path: Path) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"), vendors.swap("Q", "Cos", "Sin"))
    host = vendors.host(verify=True, disable=["P"])
    assert host.compile(model_file, tmp_path / "out.onnx").verify["equal"] is True
    assert onnx.load(tmp_path / "out.onnx").graph.node
    _, report = host.run(parse(CHAIN))
    assert report.verify["equal"] is True
    assert report.seconds["verify"] > 0


def test_a_model_of_other_numbers_never_gets_the_outputs_name(
    vendors: Any, model_file: Path, old_output: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    with pytest.raises(NumbersDifferError, match=r"out\.refused\.onnx; gehost bisect") as caught:
        vendors.host(verify=True).compile(model_file, old_output)
    assert old_output.read_text() == "what was there"
    refused = old_output.with_name("out.refused.onnx")
    assert op_types(onnx.load(refused)) == ["Abs", "Identity", "Neg"]
    assert sorted(path.name for path in old_output.parent.iterdir() if "out" in path.name) == [
        "out.onnx",
        "out.refused.onnx",
    ]
    report = caught.value.report
    assert report.verify["equal"] is False
    assert report.verify["summary"] in str(caught.value)
    assert [record.replaced for record in report.passes] == [1]
    assert caught.value.model is None


def test_a_conversion_that_changes_numbers_is_named_where_no_pass_rewrote(
    model_file: Path, old_output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(model: Model, version: int) -> None:
        model.proto.opset_import[0].version = version
        next(node for node in model.proto.graph.node if node.op_type == "Neg").op_type = "Abs"

    monkeypatch.setattr("gehost.host.preparations.raise_opset", wrong)
    options = HostOptions(verify=True, opset=23, plugins=False)
    with pytest.raises(
        NumbersDifferError, match="no pass rewrote anything: the conversion to opset 23 or"
    ):
        Host(options).compile(model_file, old_output)


def test_a_model_in_memory_of_other_numbers_comes_with_the_error(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    with pytest.raises(
        NumbersDifferError, match="the compiled model gives other numbers"
    ) as caught:
        vendors.host(verify=True).run(parse(CHAIN))
    for error in (
        caught.value,
        pickle.loads(pickle.dumps(caught.value)),
        copy.deepcopy(caught.value),
    ):
        assert op_types(error.model) == ["Abs", "Identity", "Neg"]
        assert error.report.verify["equal"] is False


@pytest.mark.parametrize(
    ("output", "refused"),
    [
        ("out.onnx", "out.refused.onnx"),
        ("out", "out.refused.onnx"),
        ("out.pb", "out.pb.refused.onnx"),
        ("m.onnx", "m.refused.onnx"),
    ],
)
def test_the_refused_model_is_named_after_the_output(
    vendors: Any, model_file: Path, output: str, refused: str
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    model = model_file.rename(model_file.with_name("m.onnx"))
    before = model.read_bytes()
    with pytest.raises(NumbersDifferError):
        vendors.host(verify=True).compile(model, model.with_name(output))
    assert model.with_name(refused).exists()
    assert model.read_bytes() == before
    assert model.with_name(output).exists() is (output == "m.onnx")


def test_a_refused_model_that_is_compiled_is_not_overwritten(
    vendors: Any, model_file: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    model = model_file.rename(model_file.with_name("out.refused.onnx"))
    before = model.read_bytes()
    with pytest.raises(NumbersDifferError):
        vendors.host(verify=True).compile(model, model.with_name("out.onnx"))
    assert model.read_bytes() == before
    assert model.with_name("out.refused.refused.onnx").exists()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_external_data_of_a_refused_model_is_kept_apart(
    vendors: Any, tmp_path: Path, elsewhere: bool
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    weights = {"w": np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)}
    text = CHAIN.replace("Neg(b)", "MatMul(w, b)").replace("float[2] y", "float[3] y")
    model, output = tmp_path / "m.onnx", tmp_path / "out" / "o.onnx"
    output.parent.mkdir()
    onnx.save(
        parse(text, weights), model, save_as_external_data=True, size_threshold=0, location="m.data"
    )
    if not elsewhere:
        output = tmp_path / "o.onnx"
    output.write_text("what was there")
    output.with_name("o.onnx.data").write_text("its weights")
    data = (tmp_path / "m.data").read_bytes()
    with pytest.raises(NumbersDifferError):
        vendors.host(verify=True).compile(model, output)
    assert (output.read_text(), output.with_name("o.onnx.data").read_text()) == (
        "what was there",
        "its weights",
    )
    assert (tmp_path / "m.data").read_bytes() == data
    refused = output.with_name("o.refused.onnx")
    assert bool([*output.parent.glob("o.refused.onnx.*.data")]) is elsewhere
    assert not compare(model, refused).equal
    assert compare(refused, refused).equal


def test_a_refused_model_that_cannot_be_written_is_still_refused(
    vendors: Any, model_file: Path, old_output: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    old_output.with_name("out.refused.onnx").mkdir()
    with pytest.raises(NumbersDifferError, match="was not kept: cannot write") as caught:
        vendors.host(verify=True).compile(model_file, old_output)
    assert isinstance(caught.value.__cause__, OutputError)
    assert old_output.read_text() == "what was there"


def test_verify_on_given_feeds_sees_only_what_they_show(
    vendors: Any, model_file: Path, tmp_path: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    for values, equal in (([1.0, 2.0], True), ([1.0, -2.0], False)):
        np.savez(tmp_path / "feeds.npz", x=np.array(values, np.float32))
        host = vendors.host(verify=True, feeds=tmp_path / "feeds.npz")
        with nullcontext() if equal else pytest.raises(NumbersDifferError):
            assert host.compile(model_file, tmp_path / "out.onnx").verify["equal"]


def test_feeds_that_cannot_be_used_stop_before_anything_runs(
    vendors: Any, model_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="turn verify on"):
        HostOptions(feeds="feeds.npz")
    with pytest.raises(UsageError, match=r"none\.npz"):
        vendors.host(verify=True, feeds=tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("feeds", "error"), [("x", UsageError), ("z", UsageError), (None, ModelError)]
)
def test_what_cannot_be_verified_leaves_the_old_output(
    vendors: Any, model_file: Path, old_output: Path, feeds: str | None, error: type[Exception]
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    path = None
    if feeds is None:  # it is valid, and runs on nothing
        onnx.save(
            parse(CHAIN.replace("Neg(b)", "Gather <axis = 0> (b, i)"), {"i": np.array([7, 7])}),
            model_file,
        )
    else:
        path = old_output.with_name("feeds.npz")
        np.savez(path, **{feeds: np.ones(3, np.float32)})
    with pytest.raises(error):
        vendors.host(verify=True, feeds=path).compile(model_file, old_output)
    assert old_output.read_text() == "what was there"


def test_two_runs_give_equal_bytes_also_with_weights(vendors: Any, tmp_path: Path) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    weights = {"w": np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32)}
    proto = parse(
        CHAIN.replace("float[2] x)", "float[2] x, float[3, 2] w)").replace(
            "Neg(b)", "Add(b, b) z = MatMul(w, b)"
        ),
        weights,
    )
    onnx.save(proto, tmp_path / "m.onnx")
    for name in ("one", "two"):
        vendors.host(cleanup=True).compile(tmp_path / "m.onnx", tmp_path / f"{name}.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_a_compile_inside_a_hook_of_another_host_is_on_its_own(
    vendors: Any, tmp_path: Path
) -> None:
    other = type(vendors)(tmp_path / "other")
    for tree, name in ((vendors, "outer"), (other, "inner")):
        tree.write("acme/_utils.py", f"NAME = '{name}'\n")
        edit = "from . import _utils\n    graph.set_metadata(graph.tail, 'by', _utils.NAME)\n"
        tree.write("acme/a.py", f"@hookimpl\ndef gehost_before_infershape(graph):\n    {edit}")
    inner = other.host()

    class Nest:
        @hookimpl
        def gehost_compile_started(self, graph: Any) -> None:
            result, _ = inner.run(parse(CHAIN))
            assert result.graph.node[-1].metadata_props[0].value == "inner"

    result, _ = vendors.host(plugins=[("nest", Nest())]).run(parse(CHAIN))
    assert result.graph.node[-1].metadata_props[0].value == "outer"
    assert not [name for name in sys.modules if name.startswith("gehost_vendors")]


@pytest.mark.parametrize("large", [0, 10_000])
def test_compiles_leave_no_objects_behind(monkeypatch: pytest.MonkeyPatch, large: int) -> None:
    monkeypatch.setattr("gehost.ir.model.LARGE", large)
    host = Host(HostOptions(vendors=[Path(__file__).parents[2] / "vendors"], plugins=False))
    counts: list[int] = []
    for _ in range(30):
        host.run(parse(CHAIN))
        counts.append(len(gc.get_objects()))
    assert max(counts) < counts[0] + 200_000


# -- passes of plugins ------------------------------------------------------------------------------------------------


class Brings:
    """A plugin that registers passes of its own."""

    def __init__(self, *names: str, **more: Any) -> None:
        self._names, self._more = names, more

    @hookimpl
    def gehost_register_passes(self, registry: Any) -> None:
        class Counting(FusionBasePass):
            def Run(self, graph: Any, context: Any) -> Any:
                context.record.message = f"{len(graph)} nodes"
                return NOT_CHANGED

        stage = CustomPassStage.kAfterInferShape
        for name in self._names:
            registry.add(PassSpec(name, stage, "plugin.py:1", "fusion", Counting, **self._more))


def test_a_plugin_registers_its_own_passes_which_run_after_the_vendors(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Z", "Relu", "Abs"))
    host = vendors.host(plugins=[("brings", Brings("A", "B"))], disable=["B"])
    _, report = host.run(parse(CHAIN))
    assert [(r.name, r.vendor, r.status, r.message) for r in report.passes] == [
        ("Z", "acme", "done", ""),
        ("A", "brings", "not changed", "3 nodes"),
        ("B", "brings", "disabled", ""),
    ]


def test_a_plugins_pass_of_a_name_that_is_taken_is_refused_whole(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Z", "Relu", "Abs"))
    brings = [("brings", Brings("New", "Z"))]
    with pytest.raises(VendorError, match=r"^plugin.py:1: a pass called Z is registered already"):
        vendors.host(plugins=brings)
    host = vendors.host(plugins=brings, keep_going=True)
    assert host.passes.names() == ["Z"]
    assert "a pass called Z" in host.problems[0]


def test_a_plugins_pass_may_be_off_by_default_and_have_options(vendors: Any) -> None:
    brings = [("brings", Brings("A", default=False, options=(PassOption("o", int, 1),)))]
    assert vendors.host(plugins=brings).run(parse(CHAIN))[1].passes == []
    enabled = vendors.host(plugins=brings, enable=["A"], settings={"A.o": 2})
    assert enabled.run(parse(CHAIN))[1].passes[0].status == "not changed"


def test_a_vendor_file_registers_passes_by_the_hook_too(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        """
        class Idle(FusionBasePass):
            def Run(self, graph, context): return NOT_CHANGED

        @hookimpl
        def gehost_register_passes(registry):
            stage = CustomPassStage.kAfterInferShape
            registry.add(PassSpec("Idle", stage, __file__ + ":2", "fusion", Idle))
        """,
    )
    (spec,) = vendors.host().passes
    assert (spec.name, spec.vendor) == ("Idle", "acme")


def test_a_host_with_other_options_shares_the_vendors_that_are_loaded(
    vendors: Any, tmp_path: Path
) -> None:
    vendors.write("acme/a.py", vendors.swap("P", "Relu", "Abs"))
    model = parse(CHAIN.replace("float[2]", "float[N]"))
    host = vendors.host(verify=True)
    np.savez(tmp_path / "feeds.npz", x=np.float32([1, 2, 3]))
    other = host.with_options(dims={"N": 3}, feeds=tmp_path / "feeds.npz")
    assert other.passes is host.passes
    compiled, report = other.run(model)
    assert compiled.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3
    assert (report.verify["feeds"], report.options["dims"]) == (1, {"N": 3})
    with pytest.raises(NumbersDifferError) as differ:  # Relu is not Abs on seeded inputs
        host.run(model)
    assert differ.value.report.options["dims"] == {}
    _, off = host.with_options(disable=["P"]).run(model)
    assert [record.status for record in off.passes] == ["disabled"]
    with pytest.raises(UsageError, match="Q"):
        host.with_options(disable=["Q"])
    with pytest.raises(UsageError, match="plugins, vendors: only a new Host can change this"):
        host.with_options(vendors=[], plugins=True)


def test_patterns_are_built_again_for_other_settings(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        """
        from gehost import PassOption

        @REG_FUSION_PASS(options=[PassOption("op", str, "Relu", "the operator")])
        class P(PatternFusionPass):
            def Patterns(self):
                builder = EsGraphBuilder("p")
                op = es.op(self.options["op"])
                return [Pattern(builder.BuildAndReset([op(builder.CreateInput(0))]))]

            def Replacement(self, match):
                builder = EsGraphBuilder("r")
                return builder.BuildAndReset([es.Abs(builder.CreateInput(0))])
        """,
    )
    host = vendors.host(cleanup=True)
    assert [node.op_type for node in host.run(parse(CHAIN))[0].graph.node] == ["Abs", "Neg"]
    other = host.with_options(settings={"P.op": "Neg"})
    assert [node.op_type for node in other.run(parse(CHAIN))[0].graph.node] == ["Relu", "Abs"]
