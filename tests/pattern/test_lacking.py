"""Attributes that the model's opset lacks: a pattern, a node and a replacement see what the operator does there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import onnx
import pytest

from gehost import es
from gehost.es.graph import EsGraphBuilder, EsNode, EsTensor
from gehost.es.opset import arguments_at, signature_at
from gehost.ir.attributes import attribute_value
from gehost.ir.effective import LACKING
from gehost.ir.model import Model
from gehost.ir.schemas import history, operator_names, schema_at
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.refusal import Refused

FIRST, NEWEST = 7, onnx.defs.onnx_opset_version()
OTHERS = {
    "RoiAlign coordinate_transformation_mode": "output_half_pixel",
    "Resize coordinate_transformation_mode": "asymmetric",
    "Resize nearest_mode": None,
    "BatchNormalization spatial": 1,
}
"""Attributes that count otherwise than the default of a later opset."""


class Row(NamedTuple):
    """An attribute that an opset lacks, and that another one has with a default."""

    op: str
    name: str
    opset: int
    counts: Any


def rows() -> Iterator[Row]:
    """Of each operator and attribute, the first and the last opset without it."""
    for op in sorted(operator_names()):
        versions = [(opset, schema_at("", op, opset)) for opset in range(FIRST, NEWEST + 1)]
        by_name: dict[str, list[int]] = {}
        defaults: dict[str, Any] = {}
        for schema in history("", op):
            for name, attribute in schema.attributes.items():
                if attribute.default_value.type and schema.since_version > FIRST:
                    defaults[name] = attribute_value(attribute.default_value)
        if op == "BatchNormalization":
            defaults["spatial"] = 1
        for opset, schema in versions:
            for name in defaults if schema is not None else ():
                is_input = any(parameter.name == name for parameter in schema.inputs)
                if name not in schema.attributes and not is_input:
                    by_name.setdefault(name, []).append(opset)
        for name, opsets in by_name.items():
            counts = OTHERS.get(f"{op} {name}", defaults[name])
            for opset in {opsets[0], opsets[-1]}:
                yield Row(op, name, opset, counts)


ROWS = sorted(rows())


def bare(op: str, opset: int, outputs: int = 1) -> Model:
    """A model of one node without attributes; the first input is an image."""
    schema = schema_at("", op, opset)
    assert schema is not None
    names = [f"x{slot}" for slot in range(schema.min_input)]
    entries = [
        onnx.helper.make_tensor_value_info(name, 1, [1, 2, 8, 8] if name == "x0" else None)
        for name in names
    ]
    node = onnx.helper.make_node(op, names, [f"y{slot}" for slot in range(outputs)])
    graph = onnx.helper.make_graph(
        [node], "g", entries, [onnx.helper.make_empty_tensor_value_info("y0")]
    )
    imports = [onnx.helper.make_opsetid("", opset)]
    return Model(onnx.helper.make_model(graph, opset_imports=imports, ir_version=8))


def matches(op: str, model: Model, *, exact: bool = False, **wanted: Any) -> int:
    """How many matches ``op`` with these attributes has."""
    inputs = len(model.graph.nodes[0].inputs)
    builder = EsGraphBuilder("p")
    pattern = Pattern(builder.BuildAndReset([es.constrain(made(op, builder, inputs), **wanted)]))
    try:
        return len(list(PatternMatcher(pattern, model, PatternMatcherConfig(ir_attr_match=exact))))
    except Refused:
        return 0


def made(op: str, builder: EsGraphBuilder, inputs: int, **params: Any) -> EsTensor:
    """The first output of an operator of placeholders."""
    result = es.op(op)(*builder.CreateInputs(inputs), **params)
    return result if isinstance(result, EsTensor) else result[0]


def test_the_rows_are_all_there() -> None:
    names = {(row.op, row.name) for row in ROWS}
    assert len(names) == 53
    assert names >= LACKING.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.op}-{row.name}-{row.opset}")
def test_what_an_opset_lacks_counts(row: Row) -> None:
    op, name, opset, counts = row
    model = bare(op, opset)
    assert model.graph.nodes[0].attr(name) == counts
    wishes = (counts, lambda _: True, es.Bind("v"))
    tried = [matches(op, model, **{name: wish}) for wish in wishes]
    other = f"{counts}?" if isinstance(counts, str) else 5
    if counts is None:
        assert tried[1:] == [0, 0]  # nothing says what it does
    else:
        assert tried == [1, 1, 1]
    assert matches(op, model, **{name: other}) == 0
    assert matches(op, model, **{name: lambda value: value == other}) == 0
    assert matches(op, model, **{name: None}) == 1
    if counts is not None:
        assert name not in lowered(op, opset, **{name: counts})
    with pytest.raises(Refused, match=f"has no parameter {name}"):
        lowered(op, opset, **{name: other})


def lowered(op: str, opset: int, **params: Any) -> dict[str, Any]:
    """What remains of the parameters of a replacement's operator at an opset."""
    schema = schema_at("", op, opset)
    assert schema is not None
    node = made(op, EsGraphBuilder("r"), schema.min_input, **params).producer
    assert isinstance(node, EsNode)
    return arguments_at(node, op, signature_at(op, opset), opset)[1]


@pytest.mark.parametrize(
    ("opset", "outputs", "training"),
    [(6, 1, None), (7, 1, 0), (9, 1, 0), (13, 1, 0), (9, 5, None), (13, 3, None), (14, 1, 0)],
)
def test_a_batch_normalization_of_several_outputs_may_train(
    opset: int, outputs: int, training: int | None
) -> None:
    model = bare("BatchNormalization", opset, outputs)
    assert model.graph.nodes[0].attr("training_mode") == training
    wishes = [{"training_mode": 0}, {"training_mode": lambda value: value == 0}]
    found = [matches("BatchNormalization", model, **wish) for wish in wishes]
    assert found == [training == 0] * 2
    assert matches("BatchNormalization", model, training_mode=1) == 0
    assert matches("BatchNormalization", model, exact=True) == (training == 0)


@pytest.mark.parametrize(
    ("op", "opset", "exact"),
    [("RoiAlign", 10, 0), ("RoiAlign", 16, 1), ("ScatterND", 13, 1), ("DepthToSpace", 10, 1)],
)
def test_equal_attributes_include_what_the_opset_lacks(op: str, opset: int, exact: int) -> None:
    assert matches(op, bare(op, opset), exact=True) == exact


@pytest.mark.parametrize("opset", [9, 18, 19])
def test_lists_of_defaults(opset: int) -> None:
    model = bare("AveragePool", opset)
    assert model.graph.nodes[0].attr("dilations") == [1, 1]
    assert matches("AveragePool", model, dilations=[1, 1]) == 1
    assert matches("AveragePool", model, dilations=[2, 1]) == 0
    assert matches("AveragePool", model, dilations=lambda value: value == [1, 1]) == 1


def test_what_became_an_input_is_no_attribute() -> None:
    for op, opset, name in (("Clip", 13, "min"), ("Dropout", 13, "ratio"), ("Slice", 13, "axes")):
        assert bare(op, opset).graph.nodes[0].attr(name) is None
    assert bare("Dropout", 13).graph.nodes[0].attr("is_test") is None
    assert bare("Add", 13).graph.nodes[0].attr("broadcast") is None


def test_a_keyword_may_be_a_condition() -> None:
    model = bare("ScatterND", 13)
    for wish, count in ((es.Bind("r"), 1), (lambda value: value == "none", 1), (len, 1)):
        builder = EsGraphBuilder("p")
        tensor = made("ScatterND", builder, 3, reduction=wish)
        found = list(PatternMatcher(Pattern(builder.BuildAndReset([tensor])), model))
        assert len(found) == count
