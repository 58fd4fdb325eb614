"""MLIR text of Generics: printed, and the same subset read back."""

from __future__ import annotations

from gehost_linalg.generic import Generic
from gehost_linalg.mlir.calls import inlined
from gehost_linalg.mlir.function import Function
from gehost_linalg.mlir.literals import literal_text
from gehost_linalg.mlir.modules import ModuleReader
from gehost_linalg.mlir.printer import Printer
from gehost_linalg.mlir.syntax import ROWS, SYNTAX

__all__ = ["Function", "literal_text", "parse", "print_function", "print_generic"]


def parse(text: str) -> list[Function]:
    """The functions of an MLIR text.

    Raises:
        MlirError: it is malformed, or outside of the subset; the message names line and column.
    """
    return inlined(ModuleReader(text, ROWS).functions())


def print_function(function: Function) -> str:
    """One ``func.func`` with a ``linalg.generic`` for each Generic."""
    output = {name: row.print for name, row in SYNTAX.items() if row.print is not None}
    return Printer(function, output).text()


def print_generic(op: Generic, name: str = "generic") -> str:
    """A Generic as a function of its operands."""
    arguments = [
        value
        for value in dict.fromkeys(op.operands)
        if value.kind in {"tensor", "scalar"} and value.constant is None
    ]
    read = dict.fromkeys([*arguments, *op.scalars])
    return print_function(Function(name, list(read), [op], list(op.results)))
