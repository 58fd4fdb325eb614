"""Graphs as DOT text and JSON."""

from __future__ import annotations

import colorsys
import json
from pathlib import Path
from typing import Any

import networkx as nx

from gehost import OutputError, UsageError, quoting
from gehost_sharding.model_graph import ModelGraph

dot_string = quoting.dot_string


def write_strategy_graph(picture: nx.MultiGraph[Any], graph: ModelGraph, path: str) -> None:
    """Write the graph of the depth-first search; edges are coloured by strategy.

    Raises:
        UsageError: the name ends neither in .dot nor in .json.
        OutputError: the file cannot be written.
    """
    if path.endswith(".dot"):
        text = strategy_graph_dot(picture, graph)
    elif path.endswith(".json"):
        text = strategy_graph_json(picture, graph)
    else:
        raise UsageError("wanted a name that ends in .dot or .json", subject=f"--graph {path}")
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror or error}", where=path) from error


def strategy_graph_dot(picture: nx.MultiGraph[Any], graph: ModelGraph) -> str:
    """Write the graph of strategies as DOT."""
    lines = ["graph strategies {"]
    for tensor, dim in picture.nodes:
        label = f"{tensor} {'replicated' if dim < 0 else dim}"
        lines.append(f"  {dot_string(_id(tensor, dim))} [label={dot_string(label)}];")
    for (a, b), (c, d), data in picture.edges(data=True):
        label = ", ".join(_strategy(graph, strategy) for strategy in data["strategies"])
        lines.append(
            f"  {dot_string(_id(a, b))} -- {dot_string(_id(c, d))}"
            f" [label={dot_string(label)}, color={dot_string(_colour(data['strategies'][0][1]))}];"
        )
    return "\n".join([*lines, "}", ""])


def strategy_graph_json(picture: nx.MultiGraph[Any], graph: ModelGraph) -> str:
    """Write the graph of strategies as JSON."""
    data: dict[str, Any] = {
        "nodes": [{"tensor": tensor, "dim": dim} for tensor, dim in picture.nodes],
        "edges": [
            {
                "source": {"tensor": u[0], "dim": u[1]},
                "target": {"tensor": v[0], "dim": v[1]},
                "strategies": [
                    {"operator": graph.operators[operator].label, "strategy": number}
                    for operator, number in _strategies(edge)
                ],
                "colour": _colour(edge["strategies"][0][1]),
            }
            for u, v, edge in picture.edges(data=True)
        ],
    }
    return json.dumps(data, indent=1)


def cost_graph_dot(picture: nx.MultiDiGraph[Any]) -> str:
    """Write a cost graph as DOT."""
    lines = ["digraph costs {"]
    for number, data in picture.nodes(data=True):
        label = f"{data['label']} ({data['states']} states)"
        lines.append(f"  {number} [label={dot_string(label)}];")
    for source, target, data in picture.edges(data=True):
        lines.append(f"  {source} -> {target} [label={dot_string(data['tensor'])}];")
    return "\n".join([*lines, "}", ""])


def mesh_dot(picture: nx.Graph[Any]) -> str:
    """Write the graph of a mesh as DOT; edges are labelled and coloured by mesh axis."""
    lines = ["graph mesh {"]
    for device, data in picture.nodes(data=True):
        label = f"{device} {data['coordinates']}"
        lines.append(f"  {device} [label={dot_string(label)}];")
    number: dict[str, int] = {}
    for device, other, data in picture.edges(data=True):
        axis = data["axis"]
        colour = dot_string(_colour(number.setdefault(axis, len(number))))
        lines.append(f"  {device} -- {other} [label={dot_string(axis)}, color={colour}];")
    return "\n".join([*lines, "}", ""])


def _id(tensor: str, dim: int) -> str:
    return f"{tensor}:{dim}"


def _strategies(edge: dict[str, Any]) -> list[tuple[int, int]]:
    return edge["strategies"]


def _strategy(graph: ModelGraph, strategy: tuple[int, int]) -> str:
    return f"{graph.operators[strategy[0]].label}/{strategy[1]}"


def _colour(strategy: int) -> str:
    red, green, blue = colorsys.hsv_to_rgb(strategy * 0.381966 % 1, 0.85, 0.75)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
