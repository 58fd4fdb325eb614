"""The operations of a function that have an assembly of their own, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gehost_linalg.mlir import carried, generics, tensors
from gehost_linalg.mlir.printer import Print
from gehost_linalg.mlir.reader import Read
from gehost_linalg.operations import OPERATIONS
from gehost_linalg.reshape import COLLAPSE, EXPAND


class OpSyntax(NamedTuple):
    """The assembly of one operation.

    ``print`` is None where the result is printed when something first reads it.
    """

    read: Read
    print: Print | None = None


SYNTAX: Mapping[str, OpSyntax] = {
    "arith.constant": OpSyntax(tensors.constant),
    "tensor.empty": OpSyntax(tensors.read_empty),
    "linalg.fill": OpSyntax(tensors.read_fill),
    "tensor.dim": OpSyntax(tensors.read_dim, tensors.print_dim),
    "tensor.concat": OpSyntax(tensors.read_concat, tensors.print_concat),
    "tensor.extract_slice": OpSyntax(tensors.read_extract_slice, tensors.print_extract_slice),
    "tensor.cast": OpSyntax(tensors.read_cast, tensors.print_cast),
    EXPAND: OpSyntax(tensors.read_reshape, tensors.print_expand),
    COLLAPSE: OpSyntax(tensors.read_reshape, tensors.print_collapse),
    carried.STRIDED: OpSyntax(tensors.read_extract_slice, carried.print_any_slice),
    "tensor.insert_slice": OpSyntax(carried.read_insert_slice, carried.print_insert_slice),
    "tensor.extract": OpSyntax(carried.read_extract, carried.print_extract),
    "tensor.pad": OpSyntax(carried.read_pad, carried.print_pad),
    **dict.fromkeys(
        carried.STRUCTURED, OpSyntax(carried.read_structured, carried.print_structured)
    ),
    "linalg.generic": OpSyntax(generics.read_generic, generics.print_generic_op),
    **{
        name: OpSyntax(tensors.read_of_sizes)
        for name, row in OPERATIONS.items()
        if row.operands == 2 and row.form == "plain"
    },
}
"""By name; any other operation is read and printed in generic form."""
