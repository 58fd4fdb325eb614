"""Declarative rewrite rules, and Paddle's pass manager over a gehost host.

Everything is imported when it is first used: the command line loads plugins before it knows whether
it needs graphs.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from gehost import hookimpl

if TYPE_CHECKING:
    from types import ModuleType

    from gehost import PassRegistry, StyleRegistry
    from gehost_drr import drr
    from gehost_drr.builder import Builder
    from gehost_drr.dce import DeadCodeEliminationPass
    from gehost_drr.greedy import (
        ApplyPatternsGreedily,
        FrozenRewritePatternSet,
        GreedyResult,
        GreedyRewriteConfig,
        IrContext,
        RewritePatternSet,
    )
    from gehost_drr.manager import ManagerResult, PassManager, PassResult
    from gehost_drr.matched import MatchContext, MatchedTensor
    from gehost_drr.passes import REG_IR_PASS, Pass, PatternRewritePass
    from gehost_drr.patterns import DrrPatternContext, ResultPattern, SourcePattern, attr
    from gehost_drr.printing import print_graph
    from gehost_drr.rule import DrrPatternBase, DrrRule

_HOMES = {
    "builder": ("Builder",),
    "dce": ("DeadCodeEliminationPass",),
    "greedy": (
        "ApplyPatternsGreedily",
        "FrozenRewritePatternSet",
        "GreedyResult",
        "GreedyRewriteConfig",
        "IrContext",
        "RewritePatternSet",
    ),
    "manager": ("ManagerResult", "PassManager", "PassResult"),
    "matched": ("MatchContext", "MatchedTensor"),
    "passes": ("REG_IR_PASS", "Pass", "PatternRewritePass"),
    "patterns": ("DrrPatternContext", "ResultPattern", "SourcePattern", "attr"),
    "printing": ("print_graph",),
    "rule": ("DrrPatternBase", "DrrRule"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "REG_IR_PASS",
    "ApplyPatternsGreedily",
    "Builder",
    "DeadCodeEliminationPass",
    "DrrPatternBase",
    "DrrPatternContext",
    "DrrRule",
    "FrozenRewritePatternSet",
    "GreedyResult",
    "GreedyRewriteConfig",
    "IrContext",
    "ManagerResult",
    "MatchContext",
    "MatchedTensor",
    "Pass",
    "PassManager",
    "PassResult",
    "PatternRewritePass",
    "ResultPattern",
    "RewritePatternSet",
    "SourcePattern",
    "attr",
    "drr",
    "print_graph",
]


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Register the rules and passes of a vendor file.

    Files that do not import this style cost nothing.
    """
    if not {"gehost_drr.passes", "gehost_drr.rule"} & sys.modules.keys():
        return
    from gehost_drr.collect import collect

    collect(module, registry)


def __getattr__(name: str) -> Any:
    if name == "drr":
        return importlib.import_module("gehost_drr.drr")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gehost_drr' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gehost_drr.{_MODULE_OF[name]}"), name)


@hookimpl
def gehost_register_styles(registry: StyleRegistry) -> None:
    """Let ``gehost new --from`` write passes in this style."""
    from importlib.resources import files

    template = files(__name__) / "new_pass.py.jinja"
    registry.add("drr", template.read_text(encoding="utf-8"), by_function=True)
