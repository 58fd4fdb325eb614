"""Show part of a model as text, Graphviz's dot or SVG picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal

from gehost.diagnose.at_stage import at_stage
from gehost.diagnose.nodes import check_name, near_names, nodes_named
from gehost.diagnose.report.recorder import attribute_texts, constant_text, picture_of
from gehost.errors import UsageError, one_line
from gehost.host.model_files import read_model
from gehost.infer import infer_model
from gehost.infer.local import array_type
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.options import HostOptions
from gehost.page.page import svg
from gehost.pattern.explain.messages import named
from gehost.quoting import dot_string
from gehost.spelling import counted, hint
from gehost.stages import CustomPassStage

Form = Literal["text", "dot", "svg"]

_INFERRED = CustomPassStage.kAfterInferShape.name
_MOST_DRAWN = 150
"""Largest number of nodes in an SVG; the others are only counted."""


@dataclass(frozen=True)
class Selection:
    """Nodes of one graph in topological order, with requested ones marked."""

    graph: Graph
    nodes: Sequence[Node]
    centres: Sequence[Node]


def show(
    model: str,
    options: HostOptions,
    *,
    around: str | None = None,
    ops: Sequence[str] = (),
    depth: int = 2,
    stage: str | None = None,
    form: Form = "text",
) -> str:
    """Render some nodes' neighbourhood, or without a choice the root graph.

    Args:
        model: the file.
        options: of the compile up to ``stage``.
        around: a node's name, or that of a tensor it produces.
        ops: operators; all their nodes are centres.
        depth: steps from a centre, towards producers and towards users.
        stage: compile up to the passes of this stage; None shows the file as it is, with the types
            that shape inference adds.
        form: of the result.

    Raises:
        UsageError: the node, operator or stage does not exist.
        ModelError: the model cannot be read.
    """

    def rendered(loaded: Model) -> str:
        chosen = list(_selections(loaded, around, ops, depth))
        return _FORMS[form](model, loaded, chosen)

    if stage is None:
        loaded = read_model(model, options.settings)
        try:
            infer_model(loaded)
            return rendered(loaded)
        finally:
            loaded.close()
    return at_stage(model, options, stage, rendered)


def look_at(
    model: str, options: HostOptions, stage: str | None, look: Callable[[Model], str]
) -> str:
    """Return what a plugin renders of a model, whose sizes the options may fix.

    Args:
        model: the file.
        options: of the compile up to ``stage``.
        stage: None is shape inference without passes.
        look: renders the model.

    Raises:
        UsageError: the stage does not exist.
        ModelError: the model cannot be read.
    """
    if stage is not None:
        return at_stage(model, options, stage, look)
    return at_stage(model, replace(options, vendors=(), pass_paths=()), _INFERRED, look)


def _selections(
    model: Model, around: str | None, ops: Sequence[str], depth: int
) -> Iterator[Selection]:
    centres: list[Node] = []
    if around is not None:
        check_name(around)
        centres = nodes_named(model, around)
        if not centres:
            raise UsageError(f'the model has no node "{around}"; {near_names(model, around)}')
    for op in ops:
        op_names = {name for graph in model.graphs for name, nodes in graph.by_op.items() if nodes}
        in_domains = [name for name in op_names if name.rpartition("::")[2] == op]
        if op not in op_names and len(in_domains) != 1:
            raise UsageError(f"the model has no {op}{hint(op, op_names)}")
        name = op if op in op_names else in_domains[0]
        centres += [node for graph in model.graphs for node in graph.nodes_of(name)]
    if not centres:
        yield Selection(model.graph, list(model.graph.nodes), ())
        return
    for graph in dict.fromkeys(node.graph for node in centres):
        inside = [node for node in centres if node.graph is graph]
        yield Selection(graph, _near(graph, inside, depth), inside)


def _near(graph: Graph, centres: Iterable[Node], depth: int) -> list[Node]:
    """Return nodes within ``depth`` steps of a centre, in topological order."""
    near = dict.fromkeys(centres)
    edge = list(near)
    for _ in range(depth):
        reached: dict[Node, None] = {}
        for node in edge:
            for value in node.inputs:
                if value is not None and value.producer is not None and value.graph is graph:
                    reached[value.producer] = None
            for value in node.outputs:
                reached.update(dict.fromkeys(_users(graph, value)))
        edge = [node for node in reached if node not in near]
        near.update(dict.fromkeys(edge))
    return sorted(near, key=lambda node: node.order)


def _users(graph: Graph, value: Value | None) -> Iterator[Node]:
    for reader, _ in () if value is None else value.uses:
        user = graph.reading_node(reader)
        if user is not None:
            yield user


# forms


def _text(path: str, model: Model, chosen: Sequence[Selection]) -> str:
    total = sum(map(len, model.graphs))
    shown = sum(len(selection.nodes) for selection in chosen)
    lines = [one_line(f"{path}: {shown} of {counted(total, 'node')}")]
    for selection in chosen:
        if selection.graph.owner is not None:
            where = f'in graph "{selection.graph.name}" of {named(selection.graph.owner)}:'
            lines += ["", one_line(where)]
        for node in selection.nodes:
            first, *others = (
                " " * (len(line) - len(line.lstrip())) + one_line(line)
                for line in _node_lines(selection.graph, node)
            )
            mark = ">" if node in selection.centres else " "
            lines += ["", f"{mark} {first}", *(f"  {line}" for line in others)]
    return "\n".join(lines)


def _node_lines(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the operator with attributes, then a line per input and output."""
    attributes = " ".join(f"{name}={text}" for name, text in attribute_texts(node).items())
    yield f"{named(node)} {attributes}".rstrip()
    for value in node.inputs:
        yield "    in -" if value is None else f"    in {_typed(value)}, {_source(value)}"
    for value in node.outputs:
        if value is not None:
            users = [named(user) for user in dict.fromkeys(_users(graph, value))]
            users += ["the graph's outputs"] if value.is_graph_output else []
            yield f"    out {_typed(value)}, to {', '.join(users) or 'nothing'}"


def _typed(value: Value) -> str:
    type_ = value.type
    if type_ is None and value.is_constant and (array := value.array) is not None:
        type_ = array_type(array)
    return f"{value.name} {type_ or 'of unknown type'}"


def _source(value: Value) -> str:
    if value.is_constant:
        text = constant_text(value)
        return f"constant {text}".rstrip()
    if value.producer is not None:
        return f"from {named(value.producer)}"
    return "an input of the graph" if value.initializer is None else "a default of the graph"


def _dot(path: str, model: Model, chosen: Sequence[Selection]) -> str:
    del model
    lines = [f"digraph {dot_string(path)} {{", "  node [shape=box];"]
    nodes = chain.from_iterable(selection.nodes for selection in chosen)
    numbers = {node: number for number, node in enumerate(nodes)}
    for selection in chosen:
        for node in selection.nodes:
            bold = " style=bold" if node in selection.centres else ""
            label = dot_string(one_line(f"{node.op} {node.label}"))
            lines.append(f"  {numbers[node]} [label={label}{bold}];")
        for node in selection.nodes:
            for value in node.outputs:
                for user in dict.fromkeys(_users(selection.graph, value)):
                    if user in numbers and value is not None:
                        label = dot_string(str(value.type or ""))
                        lines.append(f"  {numbers[node]} -> {numbers[user]} [label={label}];")
    return "\n".join([*lines, "}"])


def _svg(path: str, model: Model, chosen: Sequence[Selection]) -> str:
    del path, model
    first, *others = chosen
    if others:
        raise UsageError(
            f"these nodes are in {len(chosen)} graphs, and an SVG shows one",
            hint="name one node with --around, or use --text",
        )
    return svg(picture_of(first.graph, first.nodes, first.centres, _MOST_DRAWN))


_FORMS: dict[str, Callable[[str, Model, Sequence[Selection]], str]] = {
    "text": _text,
    "dot": _dot,
    "svg": _svg,
}
