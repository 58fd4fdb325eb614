"""Element-wise fusion by indexing maps, after MLIR's linalg.

Everything is imported when it is first used: the command line loads plugins before it knows whether it needs graphs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gehost_linalg.affine import AffineMap, MlirError
    from gehost_linalg.control import ControlError
    from gehost_linalg.driver import Block, Driver, fuse_all
    from gehost_linalg.fusability import (
        OpOperand,
        Refusal,
        are_elementwise_ops_fusable,
        preserved_producer_results,
        producer_map_in_fused_coordinates,
    )
    from gehost_linalg.fuse import Fused, fuse_elementwise_ops
    from gehost_linalg.generic import Generic, GenericError, Payload, ScalarOp, Value, generic
    from gehost_linalg.interpret import interpret

_HOMES = {
    "affine": ("AffineMap", "MlirError"),
    "control": ("ControlError",),
    "driver": ("Block", "Driver", "fuse_all"),
    "fusability": (
        "OpOperand",
        "Refusal",
        "are_elementwise_ops_fusable",
        "preserved_producer_results",
        "producer_map_in_fused_coordinates",
    ),
    "fuse": ("Fused", "fuse_elementwise_ops"),
    "generic": ("Generic", "GenericError", "Payload", "ScalarOp", "Value", "generic"),
    "interpret": ("interpret",),
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
    "fuse_all",
    "fuse_elementwise_ops",
    "generic",
    "interpret",
    "preserved_producer_results",
    "producer_map_in_fused_coordinates",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gehost_linalg' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gehost_linalg.{_MODULE_OF[name]}"), name)
