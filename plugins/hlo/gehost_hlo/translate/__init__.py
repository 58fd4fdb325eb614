"""Translations of HLO's opcodes to ONNX: one table from opcode to function."""

from __future__ import annotations

from gehost_hlo.context import Translator
from gehost_hlo.translate import (
    bits,
    calls,
    contraction,
    control,
    elementwise,
    indexing,
    reduction,
    shapes,
    sorting,
    windows,
)

TABLE: dict[str, Translator] = {
    **elementwise.TABLE,
    **bits.TABLE,
    **shapes.TABLE,
    **contraction.TABLE,
    **reduction.TABLE,
    **windows.TABLE,
    **indexing.TABLE,
    **sorting.TABLE,
    **control.TABLE,
    **calls.TABLE,
}

SCALAR_TABLE: dict[str, Translator] = {
    **elementwise.TABLE,
    **bits.TABLE,
    **shapes.SCALAR_TABLE,
    **{
        opcode: calls.TABLE[opcode]
        for opcode in ("tuple", "get-tuple-element", "call", "fusion", "copy", "opt-barrier")
    },
}
"""Opcodes of computations that are applied to single elements."""
