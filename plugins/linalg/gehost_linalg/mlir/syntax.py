"""The operations of a function that have an assembly of their own, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gehost_linalg.mlir import carried, control_flow, generics, named, of_parts, tensors
from gehost_linalg.mlir.printer import Print
from gehost_linalg.mlir.reader import Make, Read, ReadRegion, Rows
from gehost_linalg.operations import OPERATIONS
from gehost_linalg.reshape import COLLAPSE, EXPAND


class OpSyntax(NamedTuple):
    """The assembly of one operation.

    ``print`` is None where the result is printed when something first reads it, and where it is
    printed in generic form. ``make`` makes the operation of a generic form.
    """

    read: Read
    print: Print | None = None
    make: Make | None = None


_MAKE = of_parts.MAKE

SYNTAX: Mapping[str, OpSyntax] = {
    "arith.constant": OpSyntax(tensors.constant, None, _MAKE["arith.constant"]),
    "tensor.empty": OpSyntax(tensors.read_empty, None, _MAKE["tensor.empty"]),
    "linalg.fill": OpSyntax(tensors.read_fill),
    "tensor.dim": OpSyntax(tensors.read_dim, tensors.print_dim, _MAKE["tensor.dim"]),
    "tensor.concat": OpSyntax(tensors.read_concat, tensors.print_concat, _MAKE["tensor.concat"]),
    "tensor.extract_slice": OpSyntax(
        tensors.read_extract_slice, tensors.print_extract_slice, _MAKE["tensor.extract_slice"]
    ),
    "tensor.cast": OpSyntax(tensors.read_cast, tensors.print_cast, _MAKE["tensor.cast"]),
    EXPAND: OpSyntax(tensors.read_reshape, tensors.print_expand, _MAKE[EXPAND]),
    COLLAPSE: OpSyntax(tensors.read_reshape, tensors.print_collapse, _MAKE[COLLAPSE]),
    carried.STRIDED: OpSyntax(tensors.read_extract_slice, carried.print_any_slice),
    "tensor.insert_slice": OpSyntax(
        carried.read_insert_slice, carried.print_insert_slice, _MAKE["tensor.insert_slice"]
    ),
    "tensor.extract": OpSyntax(
        carried.read_extract, carried.print_extract, _MAKE["tensor.extract"]
    ),
    "tensor.pad": OpSyntax(carried.read_pad, carried.print_pad),
    **dict.fromkeys(named.NAMED, OpSyntax(named.read_named, named.print_named)),
    "linalg.generic": OpSyntax(generics.read_generic, generics.print_generic_op),
    **dict.fromkeys(
        OPERATIONS,
        OpSyntax(tensors.read_scalar_op, tensors.print_scalar_op, tensors.scalar_op_of_parts),
    ),
    "scf.for": OpSyntax(control_flow.read_for),
    "scf.if": OpSyntax(control_flow.read_if),
    "scf.while": OpSyntax(control_flow.read_while),
    "scf.index_switch": OpSyntax(control_flow.read_index_switch),
    "scf.yield": OpSyntax(control_flow.read_terminator),
    "scf.condition": OpSyntax(control_flow.read_condition),
    **dict.fromkeys(("call", "func.call", "util.call"), OpSyntax(control_flow.read_call)),
}
"""By name; any other operation is carried through as it is written."""


def _with_region(name: str) -> ReadRegion | None:
    """What reads a region that is a payload, or the border of a ``tensor.pad``."""
    if name == "tensor.pad":
        return of_parts.pad_with_region
    return named.named_of_parts if name.startswith("linalg.") else None


ROWS = Rows(
    {name: row.read for name, row in SYNTAX.items()},
    {name: row.make for name, row in SYNTAX.items() if row.make is not None},
    _with_region,
)
