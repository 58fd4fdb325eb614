"""Data flow of a computation: which instruction reads which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from gehost import quoting
from gehost_hlo.attributes import called
from gehost_hlo.module import HloComputation, HloInstruction

if TYPE_CHECKING:
    import networkx as nx


def dataflow(computation: HloComputation) -> nx.MultiDiGraph[str]:
    """Return the data flow: instructions and their operands.

    Instructions are nodes; edges go from the operand to its user.

    Nodes have ``opcode`` and ``shape``; edges have ``operand``, the index among the operands of the
    user. An instruction that reads another twice has two edges. An instruction written in place of
    an operand is a node ``user:index``. ``graph["calls"]`` names the computations that the
    instructions call.
    """
    import networkx as nx

    graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=computation.name, calls=calls(computation))
    for instruction in computation.instructions:
        _add(graph, instruction.name, instruction)
    return graph


def _add(graph: nx.MultiDiGraph[str], name: str, instruction: HloInstruction) -> None:
    graph.add_node(
        name,
        opcode=instruction.opcode,
        shape="" if instruction.shape is None else str(instruction.shape),
    )
    for index, operand in enumerate(instruction.operands):
        if operand.instruction is not None:
            inner = f"{name}:{index}"
            _add(graph, inner, operand.instruction)
            graph.add_edge(inner, name, operand=index)
        elif operand.literal is None:
            graph.add_edge(operand.name, name, operand=index)


def calls(computation: HloComputation) -> list[str]:
    """Return the computations that instructions name, each once, in order."""
    return list(
        dict.fromkeys(
            name for instruction in computation.instructions for _, name in called(instruction)
        )
    )


def as_json(computations: Iterable[HloComputation]) -> list[dict[str, Any]]:
    """Return one object for each computation: ``name``, ``calls``, ``nodes``, ``edges``."""
    return [computation_json(computation) for computation in computations]


def computation_json(computation: HloComputation) -> dict[str, Any]:
    graph = dataflow(computation)
    nodes = [
        {
            "id": name,
            "label": f"{name} = {data['opcode']}",
            "opcode": data["opcode"],
            "shape": data["shape"],
        }
        for name, data in graph.nodes(data=True)
    ]
    edges = [
        {"source": source, "target": target, "operand": data["operand"]}
        for source, target, data in graph.edges(data=True)
    ]
    return {"name": computation.name, "calls": graph.graph["calls"], "nodes": nodes, "edges": edges}


def as_dot(computations: Iterable[HloComputation]) -> str:
    """Return a Graphviz digraph with one cluster for each computation."""
    lines = ["digraph hlo {", "  node [shape=box];"]
    for number, computation in enumerate(computations):
        tree = computation_json(computation)
        title = tree["name"] + (f" calls {', '.join(tree['calls'])}" if tree["calls"] else "")
        lines += [f"  subgraph cluster_{number} {{", f"    label={quoting.dot_string(title)};"]
        for node in tree["nodes"]:
            label = [node[key] for key in ("id", "opcode", "shape")]
            lines.append(
                f"    {_vertex(computation, node['id'])} [label={quoting.dot_string(*label)}];"
            )
        lines.append("  }")
        for edge in tree["edges"]:
            source, target = (
                _vertex(computation, edge["source"]),
                _vertex(computation, edge["target"]),
            )
            lines.append(f"  {source} -> {target} [label={edge['operand']}];")
    return "\n".join([*lines, "}"]) + "\n"


def _vertex(computation: HloComputation, name: str) -> str:
    return quoting.dot_string(f"{computation.name}/{name}")
