"""Element-wise fusion by indexing maps, after MLIR's linalg.

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

    import click

    from gehost import PassRegistry
    from gehost_linalg.affine import AffineMap
    from gehost_linalg.block import Block
    from gehost_linalg.control import ControlError
    from gehost_linalg.driver import Driver, fuse_all
    from gehost_linalg.fusability import (
        OpOperand,
        Refusal,
        are_elementwise_ops_fusable,
        preserved_producer_results,
        producer_map_in_fused_coordinates,
    )
    from gehost_linalg.fuse import Fused, fuse_elementwise_ops
    from gehost_linalg.generic import Generic, GenericError, Payload, ScalarOp, Value
    from gehost_linalg.kernels.writer import kernel_writer
    from gehost_linalg.passes import control_function
    from gehost_mlir.scanner import MlirError

_HOMES = {
    "control": ("ControlError",),
    "block": ("Block",),
    "driver": ("Driver", "fuse_all"),
    "fusability": (
        "OpOperand",
        "Refusal",
        "are_elementwise_ops_fusable",
        "preserved_producer_results",
        "producer_map_in_fused_coordinates",
    ),
    "fuse": ("Fused", "fuse_elementwise_ops"),
    "generic": ("Generic", "GenericError", "Payload", "ScalarOp", "Value"),
    "kernels.writer": ("kernel_writer",),
    "passes": ("control_function",),
    "affine": ("AffineMap",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AffineMap",
    "Block",
    "ControlError",
    "Driver",
    "Fused",
    "Generic",
    "GenericError",
    "MlirError",
    "OpOperand",
    "Payload",
    "Refusal",
    "ScalarOp",
    "Value",
    "are_elementwise_ops_fusable",
    "control_function",
    "fuse_all",
    "fuse_elementwise_ops",
    "kernel_writer",
    "preserved_producer_results",
    "producer_map_in_fused_coordinates",
]


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Take the control functions that a vendor file marks.

    It costs nothing where no file imports this package.
    """
    if "gehost_linalg.passes" in sys.modules:
        from gehost_linalg.passes import collect

        collect(module, registry)


@hookimpl
def gehost_register_commands(cli: click.Group) -> None:
    """Add ``gehost linalg`` and ``gehost kernels``."""
    from gehost_linalg.cli import command
    from gehost_linalg.kernels.cli import command as kernels

    cli.add_command(command)
    cli.add_command(kernels)


@hookimpl
def gehost_register_passes(registry: PassRegistry) -> None:
    """Add ``FuseElementwisePass``."""
    from gehost_linalg.passes import register

    register(registry)


def __getattr__(name: str) -> Any:
    if name == "MlirError":
        from gehost_mlir.scanner import MlirError

        return MlirError
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gehost_linalg' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gehost_linalg.{_MODULE_OF[name]}"), name)
