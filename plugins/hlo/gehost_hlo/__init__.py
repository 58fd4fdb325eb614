"""HLO text of XLA: read, printed, shown, imported as ONNX.

It is shown as data flow; its fusions stand beside gehost's.

Everything is imported when it is first used: the command line loads plugins before it knows whether
it needs graphs.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gehost import hookimpl
from gehost_hlo.suffixes import SUFFIXES

if TYPE_CHECKING:
    import click
    import onnx

    from gehost_hlo.context import Settings
    from gehost_hlo.data_flow import dataflow
    from gehost_hlo.errors import HloSyntaxError, UntranslatableError
    from gehost_hlo.files import import_file, read_module
    from gehost_hlo.fusions import xla_fusions
    from gehost_hlo.importer import import_module
    from gehost_hlo.module import (
        HloComputation,
        HloInstruction,
        HloModule,
        Layout,
        Literal,
        Operand,
        Shape,
    )
    from gehost_hlo.printer import to_text
    from gehost_hlo.reader import parse

_HOMES = {
    "context": ("Settings",),
    "data_flow": ("dataflow",),
    "errors": ("HloSyntaxError", "UntranslatableError"),
    "files": ("import_file", "read_module"),
    "fusions": ("xla_fusions",),
    "importer": ("import_module",),
    "module": (
        "HloComputation",
        "HloInstruction",
        "HloModule",
        "Layout",
        "Literal",
        "Operand",
        "Shape",
    ),
    "printer": ("to_text",),
    "reader": ("parse",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "HloComputation",
    "HloInstruction",
    "HloModule",
    "HloSyntaxError",
    "Layout",
    "Literal",
    "Operand",
    "Settings",
    "Shape",
    "UntranslatableError",
    "dataflow",
    "import_file",
    "import_module",
    "parse",
    "read_module",
    "to_text",
    "xla_fusions",
]


@hookimpl
def gehost_register_importers(registry: Any) -> None:
    """Read ``.hlo`` and ``.hlo.txt`` files wherever a command takes a model."""
    from gehost import PassOption

    options = (
        PassOption("fusions", str, "functions", "the form of XLA's fusions: functions or inline"),
        PassOption("constants", str, "", "values of elided constants: FILE.npz, or random"),
        PassOption(
            "assume_reductions", bool, default=False, help="take a missing to_apply from op_type"
        ),
        PassOption("unroll", int, 0, "unroll loops of at most so many iterations"),
        PassOption("computation", str, "", "import this computation in place of the entry"),
    )
    for suffix in SUFFIXES:
        registry.add(suffix, _import, options=options, name="hlo", command="gehost hlo import")


@hookimpl
def gehost_register_commands(cli: click.Group) -> None:
    from gehost_hlo.cli import hlo

    cli.add_command(hlo)


def _import(path: str, options: Mapping[str, Any]) -> onnx.ModelProto:
    from gehost_hlo.errors import HloSyntaxError
    from gehost_hlo.files import import_file

    try:
        return import_file(path, **options)
    except HloSyntaxError as error:  # one line: a caret needs a line of its own
        line = error.excerpt.partition("\n")[0].strip()
        error.args = (f"{error.summary}: {line}",)
        raise


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'gehost_hlo' has no attribute {name!r}")
    return getattr(importlib.import_module(f"gehost_hlo.{_MODULE_OF[name]}"), name)
