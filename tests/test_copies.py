"""Copies and pickles of what ``gehost`` exports, also as machine code."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gehost import (
    SUCCESS,
    CustomPassStage,
    DataType,
    EsGraph,
    EsGraphBuilder,
    GehostError,
    HostOptions,
    Model,
    NodeIo,
    NumbersDifferError,
    PassError,
    PassOption,
    Pattern,
    PatternMatcher,
    PatternMatcherConfigBuilder,
    Refusal,
    Region,
    Report,
    SubgraphBoundary,
    SubgraphInput,
    SubgraphOutput,
    TensorType,
    es,
)
from gehost.testing import graph_of, parse, run_pass

TEXT = """<ir_version: 8, opset_import: ["" : 17]> main (bool c, float[2] x) => (float[2] b)
{ [first] a = Relu(x) b = Exp(a) y = If(c) <then_branch = t () => (float[2] p) { p = Neg(b) }, else_branch = e () => (float[2] q) { q = Abs(x) }> }"""


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [pickled, copy.deepcopy, copy.copy]


def built(count: int = 1) -> EsGraph:
    builder = EsGraphBuilder("built")
    tensor = builder.CreateInput(0, dtype=DataType.FLOAT, rank=1)
    for _ in range(count):
        tensor = es.Relu(tensor + 1.0)
    return builder.BuildAndReset([tensor])


PLAIN = {
    "options": HostOptions(vendors=["v"], dump_level=1, settings={"P.most": 3}, dims={"n": 2}),
    "pass option": PassOption("most", int, 3, "how many"),
    "dtype": DataType.FLOAT,
    "type": TensorType(DataType.FLOAT, (2, "N", None)),
    "status": SUCCESS,
    "stage": CustomPassStage.kAfterInferShape,
    "config": PatternMatcherConfigBuilder().EnableConstValueMatch().Build(),
    "bind": es.Bind("p"),
    "origin": built().origin,
}


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("name", PLAIN)
def test_plain_objects_are_equal(copied: Callable[[Any], Any], name: str) -> None:
    assert copied(PLAIN[name]) == PLAIN[name]


@pytest.mark.parametrize("copied", COPIES)
def test_errors_and_rejections(copied: Callable[[Any], Any]) -> None:
    error = copied(PassError("why"))
    assert (type(error), str(error), error.exit_code) == (PassError, "why", 5)
    assert copied(Refusal.of("key: text")).reason == "key: text"
    differ = NumbersDifferError("why")
    differ.report, differ.model = Report(model="m"), parse(TEXT)
    other = copied(differ)
    assert (other.report, other.model) == (differ.report, differ.model)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("count", [1, 500])
def test_graphs_of_authors_match_and_replace_as_before(
    copied: Callable[[Any], Any], count: int
) -> None:
    graph = copied(built(count))
    assert [node.ops for node in graph.nodes] == [("Add",), ("Relu",)] * count
    assert graph.outputs[0].producer is graph.nodes[-1]
    assert str(graph.nodes[0].origin).startswith(f"{__file__}:")
    if count == 1:
        model = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x, float one) => (float[2] y) <float k = {1}> { a = Add(x, k) y = Relu(a) }'
        pattern = copied(Pattern(graph).CaptureTensor(graph.nodes[0].outputs[0]))
        match = PatternMatcher(pattern, graph_of(model)).MatchNext()
        assert match is not None
        assert match.GetCapturedTensor(0).value.name == "a"


@pytest.mark.parametrize("copied", COPIES)
def test_a_builder_goes_on_where_it_was(copied: Callable[[Any], Any]) -> None:
    builder = EsGraphBuilder("open")
    builder.CreateInputs(2)
    a, b = copied(builder).CreateInputs(2)
    assert [a.producer.index, b.producer.index] == [2, 3]


def test_a_copy_of_an_open_builder_is_another_one() -> None:
    builder = EsGraphBuilder("open")
    x = builder.CreateInput(0)
    other, its = copy.deepcopy((builder, x))
    graph = other.BuildAndReset([es.Relu(its)])
    assert len(graph.nodes) == 1
    assert builder.BuildAndReset([es.Neg(x)]).nodes[0].ops == ("Neg",)


@pytest.mark.parametrize("copied", COPIES)
def test_a_model_is_copied_with_its_types(copied: Callable[[Any], Any]) -> None:
    model = Model(parse(TEXT))
    model.graph.values["a"].known_type = TensorType(DataType.FLOAT, (2,))
    other = copied(model)
    assert other is not model
    assert other.flush() == model.flush()
    assert str(other.graph.values["a"].type) == "float[2]"
    other.graph.remove_nodes(list(other.graph.nodes)[-1:])
    assert len(model.graph) == 3


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy])
def test_what_is_in_a_model_is_copied_with_it(copied: Callable[[Any], Any]) -> None:
    graph = graph_of(TEXT)
    first, _, branch = graph.nodes
    inner = next(iter(branch.bodies[0].nodes))
    value = inner.inputs[0]
    boundary = SubgraphBoundary()
    boundary.AddInput(0, SubgraphInput([NodeIo(first, 0)]))
    boundary.AddOutput(0, SubgraphOutput(NodeIo(first, 0)))
    match = PatternMatcher(Pattern(relu()), graph).MatchNext()
    source = first.GetInDataNodesAndPortIndexs(0)
    region = Region.of_nodes([first])
    argument = (
        graph,
        first,
        inner,
        value,
        NodeIo(first, 0),
        boundary,
        first.GetInputDesc(0),
        match,
    )
    others = copied((*argument, source, region))
    g, n, i, v, io, edge, desc, actual, origin, part = others
    assert (origin.node.op_type, origin.node.name, origin.value.graph is g) == ("Data", "x", True)
    assert (part.graph is g, part.nodes, part.outputs) == (True, [n], [n.outputs[0]])
    assert (g is graph, n is first) == (False, False)
    assert n.graph is g
    assert (n.name, i.op, v.name) == ("first", "Neg", "b")
    assert i.graph.owner.graph is v.graph is g
    assert io.node is n
    assert edge.GetOutput(0).io.node is n if hasattr(edge.GetOutput(0), "io") else True
    assert desc.GetShape().GetDims() == [2]
    assert actual.GetMatchedNodes() == [n]
    assert copy.copy(first) is first
    assert copy.copy(graph) is graph


def relu() -> EsGraph:
    builder = EsGraphBuilder("p")
    return builder.BuildAndReset([es.Relu(builder.CreateInput(0))])


def test_what_was_removed_cannot_be_copied() -> None:
    graph = graph_of(TEXT)
    *_, branch = graph.nodes
    body = branch.bodies[0]
    graph.remove_nodes([branch])
    for gone in (branch, body):
        with pytest.raises(TypeError, match="no longer in its"):
            copy.deepcopy(gone)
    with pytest.raises(TypeError, match="cannot copy a model while a pass edits it"):
        pickle.dumps(graph.model)
    graph.model.commit()
    assert len(copy.deepcopy(graph)) == 2


def test_a_host_and_its_report(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("A", "Relu", "Abs"))
    host = vendors.host()
    _, report = host.run(parse(TEXT))
    for copied in COPIES:
        assert copied(report).as_dict() == report.as_dict()
        assert copied(host).passes.names() == ["A"]


# -- numpy's integers -----------------------------------------------------------------------------------------------

N = np.int64


def test_a_matched_node_has_a_position_that_may_be_numpy_s() -> None:
    builder = EsGraphBuilder("p")
    pattern = Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))
    (match,) = PatternMatcher(pattern, graph_of(TEXT))
    assert match.GetMatchedNode(N(0)) is match.GetMatchedNode(0)


def test_numpy_s_integers_are_integers(vendors: Any) -> None:
    builder = EsGraphBuilder("numpy")
    x = builder.CreateInput(N(0), dtype=N(1), shape=(N(2), "N"), rank=N(2))
    (y,) = builder.CreateInputs(np.uint8(1))
    assert (x.producer.index, x.producer.rank, x.producer.shape) == (0, 2, (2, "N"))
    assert [type(dim) for dim in x.producer.shape] == [int, str]
    assert len(es.Split(y, num_outputs=N(2), axis=N(0))) == 2
    assert len(es.Split(y, split=np.array([1, 2]), axis=N(0))) == 2
    assert builder.CreateConst(1, N(1), shape=(N(1),)).producer.array.shape == (1,)
    graph = graph_of(TEXT)
    node = next(iter(graph.nodes))
    assert node.input(N(0)).name == node.GetInDataNodesAndPortIndexs(N(0)).value.name == "x"
    assert node.GetInputDesc(N(0)).GetShape().GetDim(N(0)) == 2
    assert node.GetOutputDesc(N(0)).GetShape().GetDimNum() >= -1
    assert len(node.GetOutDataNodesAndPortIndexs(N(0))) == 1
    assert NodeIo(node, N(0)) == NodeIo(node, 0)
    boundary = SubgraphBoundary().AddInput(N(0), SubgraphInput([NodeIo(node, N(0))]))
    assert boundary.GetInput(0) is boundary.GetInput(N(0))
    boundary.AddOutput(N(0), SubgraphOutput(NodeIo(node, N(0))))
    assert boundary.GetOutput(0) is boundary.GetOutput(N(0))
    graph.set_input(node, N(0), graph.values["x"])
    graph.set_attribute(node, "alpha", N(3))
    assert node.attrs["alpha"] == 3
    options = HostOptions(dump_level=N(1), rewrite_limit=N(3), dims={"n": N(4)})
    assert [type(options.dump_level), type(options.rewrite_limit)] == [int, int]
    assert [(name, type(size)) for name, size in options.dims.items()] == [("n", int)]
    option = PassOption("most", int, N(3))
    assert [type(option.default), type(option.convert(N(4)))] == [int, int]
    assert [PassOption("by", float, np.float32(0.5)).default, option.convert(N(4))] == [0.5, 4]
    vendors.write(
        "acme/a.py",
        "import numpy as np\n",
        "@ops.register('acme::F', inputs=['x'], version=np.int64(2), "
        "shape=lambda types, attributes: [TensorType(DataType.FLOAT, (np.int64(2),))])\n",
        "def f(x, *, axes=(0,)): return es.Relu(x)\n",
        vendors.swap(
            "A",
            "Relu",
            "op('acme::F')",
            registration="@REG_FUSION_PASS(stage={stage}, min_opset=np.int64(7), max_opset=np.int32(30))",
        ),
    )
    host = vendors.host()
    (spec,) = host.passes
    assert [type(spec.min_opset), type(spec.max_opset)] == [int, int]
    model, report = host.run(parse(TEXT))
    assert report.passes[0].replaced == 1
    assert {entry.domain: entry.version for entry in model.opset_import}["acme"] == 2


def test_what_is_no_integer_is_refused() -> None:
    with pytest.raises(GehostError, match="rewrite_limit=1.5: wanted an integer"):
        HostOptions(rewrite_limit=1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(GehostError, match="input 0 of 'g'"):
        EsGraphBuilder("g").CreateInput(0, shape=(1.5,))  # pyright: ignore[reportArgumentType]


def test_parameters_of_numpy_s_reach_the_model() -> None:
    from gehost import PatternFusionPass

    class Swap(PatternFusionPass):
        def Patterns(self) -> Any:
            builder = EsGraphBuilder("p")
            return [Pattern(builder.BuildAndReset([es.Exp(builder.CreateInput(N(0)))]))]

        def Replacement(self, match: Any) -> Any:
            builder = EsGraphBuilder("r")
            return builder.BuildAndReset([es.Softmax(builder.CreateInput(N(0)), axis=N(0))])

    text = (
        '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Exp(x) }'
    )
    model, record = run_pass(text, Swap)
    assert record.replaced == 1
    assert [node.op_type for node in model.graph.node] == ["Softmax"]
