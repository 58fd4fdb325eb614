"""``make shard``: plans and runs of the corpus in processes, and the plans of wide decoders.

``python -m plugins.sharding.tools.acceptance [--meshes data=2,model=2] [--only bert] [--dialect …]``
needs ``../shared/corpus`` for the runs and prints a Markdown table for each part.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from gehost.verify import compare_outputs
from gehost_sharding.annotations import annotate
from gehost_sharding.check import read_annotations
from gehost_sharding.cost_graph import Objective
from gehost_sharding.hardware import Hardware
from gehost_sharding.launch import run_split
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.partition import write_split
from gehost_sharding.plan import Planner, Solved
from gehost_sharding.propagation import Pin
from gehost_sharding.rules.table import RuleTable

from ..tests.conftest import SLOW, whole_run
from ..tests.corpus import CORPUS, corpus, fixed_model
from ..tests.decoder import decoder

WEIGHT_PRICE = 1e-9
"""Seconds per byte that make every plan on ``SLOW`` devices cut nearly all weights."""
MESHES = ("data=1,model=2", "data=2,model=2", "data=1,model=4")


def run_corpus(only: Sequence[str], meshes: Sequence[str], dialect: str) -> bool:
    """Run each model by its fastest plan, and with distinct weights also by a plan that cuts them.

    True if all outputs are equal, all bytes are as predicted, and weights were cut where wanted.
    """
    print(
        "| model | mesh | plan | weights held | largest difference | of | predicted bytes | counted"
        " | collectives |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    good = True
    for entry in corpus():
        if only and not any(text in entry["name"] for text in only):
            continue
        graph, feeds = fixed_model(entry)
        expected = whole_run(graph, feeds)
        has_distinct_weights = not entry["name"].startswith("light_")
        for mesh in meshes:
            planner = Planner(graph, Mesh.parse(mesh), SLOW, RuleTable())
            for price in (0.0, WEIGHT_PRICE) if has_distinct_weights else (0.0,):
                solved = planner.plan(objective=Objective(weights=price)).solved
                line, is_good = run_plan(graph, solved, feeds, expected, dialect)
                label = "weights cut" if price else "fastest"
                share = solved.held_weights() / whole_weights(graph)
                is_cut = not price or share < 1.2 / planner.mesh.devices
                good = good and is_good and is_cut
                print(
                    f"| {entry['name']} | {mesh} | {label}"
                    f" | {share:.0%}{'' if is_cut else ' WRONG'} | {line}",
                    flush=True,
                )
    return good


def whole_weights(graph: ModelGraph) -> int:
    """Bytes of all weights that operators read."""
    return sum(graph.tensors[name].bytes for name in graph.readers if graph.is_constant(name))


def run_plan(
    graph: ModelGraph,
    solved: Solved,
    feeds: Mapping[str, Any],
    expected: Mapping[str, Any],
    dialect: str,
) -> tuple[str, bool]:
    """Annotate, split from the annotations and run in processes; a table row, True if equal."""
    annotated = read_annotations(ModelGraph(annotate(solved.assignment)), RuleTable())
    assert annotated.assignment is not None, annotated.findings
    with tempfile.TemporaryDirectory() as scratch:
        directory = f"{scratch}/split"
        write_split(annotated.assignment, directory, dialect=dialect)
        result = run_split(directory, feeds, timeout=600)
    differences = compare_outputs(expected, result.outputs)
    is_equal = all(difference.equal for difference in differences)
    predicted = (solved.wire_bytes, solved.output_bytes)
    is_exact = (result.bytes, result.output_bytes) == predicted
    worst = max(difference.max_abs for difference in differences)
    largest = max(float(np.abs(value).max()) for value in expected.values() if value.size)
    line = (
        f"{worst:.1e}{'' if is_equal else ' WRONG'} | {largest:.3g}"
        f" | {solved.wire_bytes} + {solved.output_bytes}"
        f" | {result.bytes} + {result.output_bytes}{'' if is_exact else ' WRONG'}"
        f" | {kinds_of(solved)} |"
    )
    return line, is_equal and is_exact


def kinds_of(solved: Solved) -> str:
    return ", ".join(
        f"{row['count']} {kind}" for kind, row in sorted(solved.by_collective().items())
    )


def megatron(graph: ModelGraph, mesh: Mesh, layers: int, *, whole: bool = False) -> list[Pin]:
    """q, k, v, w1 by columns, wo, w2 by rows, the batch over data.

    ``whole`` also keeps the sums between the parts whole over the model axis, as in Megatron
    without sequence parallelism.
    """
    pins = ["x=0:data"]
    for layer in range(layers):
        pins += [f"l{layer}.w{name}=1:model" for name in "qkv1"]
        pins += [f"l{layer}.w{name}=0:model" for name in "o2"]
        if whole:
            pins += [f"l{layer}.{name}=-1:model" for name in ("o", "x1", "down", "x2")]
    return [Pin.parse(pin, graph, mesh) for pin in pins]


def plan_decoders() -> None:
    """Eight layers of width 4096 on 2 x 4 devices, beside the manual plans.

    The milliseconds include the price of weights where there is one.
    """
    mesh = Mesh.parse("data=2,model=4")
    print(
        "\n| case | plan | ms | sent MB | Megatron, all-reduce | Megatron, best | data axis only"
        " | seconds to plan |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for label, batch, length, price in (
        ("batch 8, length 2048", 8, 2048, 0.0),
        ("batch 2, length 2048", 2, 2048, 0.0),
        ("batch 2, length 128", 2, 128, 0.0),
        ("batch 2, length 2048, weights priced 2e-12 s/B", 2, 2048, 2e-12),
    ):
        graph = ModelGraph(decoder(8, batch=batch, length=length))
        started = time.process_time()
        planner = Planner(graph, mesh, Hardware(), RuleTable())
        plan = planner.plan(objective=Objective(weights=price))
        seconds = time.process_time() - started
        planner.compare(
            plan,
            {
                "all-reduce": megatron(graph, mesh, 8, whole=True),
                "best": megatron(graph, mesh, 8),
            },
        )
        others = ("all-reduce", "best", "data parallelism over data")
        figures = [f"{milliseconds(plan.compared[name]):.3f}" for name in others]
        print(
            f"| {label} | {kinds_of(plan.solved) or 'no communication'}"
            f" | {milliseconds(plan.solved):.3f} | {plan.solved.wire_bytes / 1e6:.0f}"
            f" | {' | '.join(figures)} | {seconds:.2f} |"
        )


def milliseconds(solved: Solved | str) -> float:
    assert isinstance(solved, Solved)
    return solved.minimum.cost * 1e3


def time_plans() -> None:
    """CPU seconds of a large plan, and of Llama."""
    print("\n| model | operators | strategies | width | read | tables | search | annotations |")
    print("|---|---|---|---|---|---|---|---|")
    models: list[tuple[str, onnx.ModelProto, str]] = [
        ("480 decoder layers", decoder(480, batch=2, length=2048), "data=2,model=4")
    ]
    models += [
        (f"{entry['name']}, {mesh}", fixed_model(entry)[0].proto, mesh)
        for entry in corpus()
        if entry["name"] == "llama.dynopt"
        for mesh in ("data=2,model=2", "data=2,model=4")
    ]
    for label, model, mesh in models:
        marks = [time.process_time()]
        graph = ModelGraph(model)
        marks.append(time.process_time())
        planner = Planner(graph, Mesh.parse(mesh), Hardware(), RuleTable())
        cost_graph = planner.cost_graph()
        marks.append(time.process_time())
        solved = planner.solve(cost_graph, Objective(), {})
        marks.append(time.process_time())
        annotate(solved.assignment)
        marks.append(time.process_time())
        parts = [f"{b - a:.2f}" for a, b in itertools.pairwise(marks)]
        most = max(vertex.states for vertex in cost_graph.vertices)
        print(
            f"| {label} | {len(graph.operators)} | {most} | {solved.minimum.width}"
            f" | {' | '.join(parts)} |"
        )


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m plugins.sharding.tools.acceptance")
    parser.add_argument("--only", action="append", default=[], help="part of a model's name")
    parser.add_argument("--meshes", nargs="*", default=MESHES)
    parser.add_argument("--dialect", default="gehost")
    options = parser.parse_args(None if arguments is None else list(arguments))
    plan_decoders()
    time_plans()
    if not corpus():
        print(f"\nno corpus at {CORPUS}: nothing is run")
        return 0
    print()
    return 0 if run_corpus(options.only, options.meshes, options.dialect) else 1


if __name__ == "__main__":
    sys.exit(main())
