"""Sharding: plan, annotate, check, split and run ONNX models on several devices.

Everything is imported when it is first used: the command line loads plugins before it knows whether
it needs graphs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gehost import hookimpl

if TYPE_CHECKING:
    import click

    from gehost_sharding.annotations import annotate
    from gehost_sharding.check import read_annotations
    from gehost_sharding.hardware import Hardware
    from gehost_sharding.hook import PlanningHook
    from gehost_sharding.launch import RankError, run_split
    from gehost_sharding.mesh import Mesh
    from gehost_sharding.model_graph import ModelGraph, read_model
    from gehost_sharding.partition import write_split
    from gehost_sharding.plan import Plan, Planner
    from gehost_sharding.propagation import Pin, Propagation
    from gehost_sharding.rules.rule import Factors, Instance, LocalNode, Rule
    from gehost_sharding.rules.table import RuleTable, sharding_rule

_HOMES = {
    "annotations": ("annotate",),
    "check": ("read_annotations",),
    "hardware": ("Hardware",),
    "hook": ("PlanningHook",),
    "launch": ("RankError", "run_split"),
    "mesh": ("Mesh",),
    "model_graph": ("ModelGraph", "read_model"),
    "partition": ("write_split",),
    "plan": ("Plan", "Planner"),
    "propagation": ("Pin", "Propagation"),
    "rules.rule": ("Factors", "Instance", "LocalNode", "Rule"),
    "rules.table": ("RuleTable", "sharding_rule"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Factors",
    "Hardware",
    "Instance",
    "LocalNode",
    "Mesh",
    "ModelGraph",
    "Pin",
    "Plan",
    "Planner",
    "PlanningHook",
    "Propagation",
    "RankError",
    "Rule",
    "RuleTable",
    "annotate",
    "read_annotations",
    "read_model",
    "run_split",
    "sharding_rule",
    "write_split",
]


@hookimpl
def gehost_register_commands(cli: click.Group) -> None:
    """Add ``gehost shard``."""
    from gehost_sharding.cli import shard

    cli.add_command(shard)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gehost_sharding' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gehost_sharding.{_MODULE_OF[name]}"), name)
