"""Plans of decoders at their real sizes beside the plans that people make.

``python -m plugins.sharding.tools.real_plans`` prints a Markdown table, with ``--draw 2`` the picture
of the second plan. The search is timed on its own; the milliseconds include the price of weights.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import NamedTuple

from gehost_sharding.cost_graph import Objective
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.picture import picture
from gehost_sharding.plan import Plan, Planner, Solved
from gehost_sharding.rules.table import RuleTable

from ..tests.real_sizes import CLUSTER, SIZES, manual_plans, real_decoder


class Case(NamedTuple):
    """A model, a mesh and what is asked of it."""

    sizes: str
    mesh: str
    batch: int
    length: int
    price: float = 0.0
    """Seconds per byte of weights that a device holds."""


CASES = (
    Case("7B", "node=2,gpu=4", 2, 512, 1e-13),
    Case("7B", "node=2,gpu=4", 2, 2048, 1e-12),
    Case("7B", "node=2,gpu=4", 32, 4096, 1e-11),
    Case("7B", "node=8,gpu=8", 8, 256, 1e-13),
    Case("7B", "node=64,gpu=8", 512, 2048, 1e-12),
    Case("70B", "node=2,gpu=4", 2, 2048, 1e-11),
    Case("70B", "node=8,gpu=8", 8, 1024, 1e-12),
    Case("70B", "node=64,gpu=8", 64, 1024, 5e-12),
    Case("8x7B", "node=2,gpu=4", 2, 1024, 1e-12),
    Case("8x7B", "node=8,gpu=8", 8, 512, 1e-13),
    Case("8x7B", "node=8,gpu=8", 64, 1024, 1e-12),
    Case("8x7B", "node=64,gpu=8", 64, 2048, 1e-11),
)
DATA, MODEL = ("node",), ("gpu",)


def kinds_of(solved: Solved) -> str:
    counts = solved.by_collective()
    return ", ".join(f"{row['count']} {kind}" for kind, row in sorted(counts.items())) or "none"


def planned(case: Case) -> tuple[Planner, Plan]:
    sizes, mesh = SIZES[case.sizes], Mesh.parse(case.mesh)
    graph = ModelGraph(real_decoder(sizes, batch=case.batch, length=case.length))
    planner = Planner(graph, mesh, CLUSTER, RuleTable())
    return planner, planner.plan(objective=Objective(weights=case.price))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=int, metavar="NUMBER", choices=range(1, len(CASES) + 1))
    options = parser.parse_args()
    if options.draw is None:
        return table()
    _, plan = planned(CASES[options.draw - 1])
    print("\n".join(picture(plan.assignment)))
    return 0


def table() -> int:
    print(
        "| model, mesh, batch × length, price | search s | ms | sent MB | weights GB | activations GB"
        " | collectives | manual plans, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    is_never_worse = True
    for case in CASES:
        started = time.perf_counter()
        planner, plan = planned(case)
        seconds = time.perf_counter() - started
        graph, mesh = planner.graph, planner.mesh
        pins = manual_plans(graph, mesh, SIZES[case.sizes].layers, data=DATA, model=MODEL)
        planner.compare(plan, pins)
        own, others = plan.solved.minimum.cost, list[str]()
        for label, result in plan.compared.items():
            if isinstance(result, Solved) and label in pins:
                cost = result.minimum.cost
                is_never_worse = is_never_worse and own <= cost * (1 + 1e-9)
                mark = " = this plan" if cost <= own * (1 + 1e-9) else ""
                others.append(f"{label} {cost * 1e3:.4g}{mark}")
        print(
            f"| {case.sizes}, {case.mesh}, {case.batch} × {case.length}, {case.price:g}"
            f" | {seconds:.1f} | {own * 1e3:.4g} | {plan.solved.wire_bytes / 1e6:.4g}"
            f" | {plan.solved.held_weights() / 1e9:.3g} | {plan.solved.activation_bytes / 1e9:.3g}"
            f" | {kinds_of(plan.solved)} | {'; '.join(others)} |",
            flush=True,
        )
    return 0 if is_never_worse else 1


if __name__ == "__main__":
    sys.exit(main())
