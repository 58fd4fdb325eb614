"""Passes by meaning: attention is found by what it computes, not by an exporter's operators.

Everything is imported when it is first used: the command line loads plugins before it knows whether
it needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gehost import hookimpl

if TYPE_CHECKING:
    import click

    from gehost_semantic.activation_call import ACTIVATION_FEATURES, ActivationCall
    from gehost_semantic.activations import Activation, ActivationKind
    from gehost_semantic.atoms import Operand
    from gehost_semantic.attention import (
        Add,
        Attention,
        Cache,
        Floor,
        Limit,
        MaskMeaning,
        Role,
        Select,
    )
    from gehost_semantic.call import FEATURES, AttentionCall
    from gehost_semantic.extents import Extent
    from gehost_semantic.finder import AttentionFinder
    from gehost_semantic.kernel_call import NO_EMPTY_INPUTS, empty_problem
    from gehost_semantic.linear_call import LINEAR_FEATURES, LinearCall
    from gehost_semantic.linears import Linear
    from gehost_semantic.norm_call import NORM_FEATURES, NormCall
    from gehost_semantic.norms import Norm, NormKind
    from gehost_semantic.passes import (
        ActivationFusionPass,
        AttentionFusionPass,
        LinearFusionPass,
        NormFusionPass,
        RotaryFusionPass,
    )
    from gehost_semantic.projections import Projections
    from gehost_semantic.rotary import Rotary
    from gehost_semantic.rotary_call import ROTARY_FEATURES, RotaryCall
    from gehost_semantic.sources import PLAIN
    from gehost_semantic.view import Term, View
    from gehost_semantic.views import Views

_HOMES = {
    "activation_call": ("ACTIVATION_FEATURES", "ActivationCall"),
    "activations": ("Activation", "ActivationKind"),
    "atoms": ("Operand",),
    "attention": ("Add", "Attention", "Cache", "Floor", "Limit", "MaskMeaning", "Role", "Select"),
    "extents": ("Extent",),
    "sources": ("PLAIN",),
    "finder": ("AttentionFinder",),
    "call": ("FEATURES", "AttentionCall"),
    "kernel_call": ("NO_EMPTY_INPUTS", "empty_problem"),
    "linear_call": ("LINEAR_FEATURES", "LinearCall"),
    "linears": ("Linear",),
    "norm_call": ("NORM_FEATURES", "NormCall"),
    "norms": ("Norm", "NormKind"),
    "passes": (
        "ActivationFusionPass",
        "AttentionFusionPass",
        "LinearFusionPass",
        "NormFusionPass",
        "RotaryFusionPass",
    ),
    "projections": ("Projections",),
    "rotary": ("Rotary",),
    "rotary_call": ("ROTARY_FEATURES", "RotaryCall"),
    "view": ("Term", "View"),
    "views": ("Views",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ACTIVATION_FEATURES",
    "FEATURES",
    "LINEAR_FEATURES",
    "NORM_FEATURES",
    "NO_EMPTY_INPUTS",
    "PLAIN",
    "ROTARY_FEATURES",
    "Activation",
    "ActivationCall",
    "ActivationFusionPass",
    "ActivationKind",
    "Add",
    "Attention",
    "AttentionCall",
    "AttentionFinder",
    "AttentionFusionPass",
    "Cache",
    "Extent",
    "Floor",
    "Limit",
    "Linear",
    "LinearCall",
    "LinearFusionPass",
    "MaskMeaning",
    "Norm",
    "NormCall",
    "NormFusionPass",
    "NormKind",
    "Operand",
    "Projections",
    "Role",
    "Rotary",
    "RotaryCall",
    "RotaryFusionPass",
    "Select",
    "Term",
    "View",
    "Views",
    "empty_problem",
]


@hookimpl
def gehost_register_commands(cli: click.Group) -> None:
    """Add ``gehost show --attention``."""
    from gehost_semantic.command import add_option

    add_option(cli.commands["show"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gehost_semantic' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gehost_semantic.{_MODULE_OF[name]}"), name)
