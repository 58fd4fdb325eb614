"""HLO files: read, and imported with the options that a user gives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from gehost import ModelError, UsageError
from gehost_hlo.context import Settings
from gehost_hlo.errors import HloSyntaxError, UntranslatableError
from gehost_hlo.importer import import_module
from gehost_hlo.literals import Array
from gehost_hlo.module import HloModule
from gehost_hlo.reader import parse

if TYPE_CHECKING:
    import onnx

RANDOM = "random"


def read_module(path: str | os.PathLike[str]) -> HloModule:
    """Read a file of HLO text.

    Raises:
        HloSyntaxError: it is not HLO; names the file, line and column.
        ModelError: it cannot be read, or is not UTF-8.
    """
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8-sig") as file:  # editors of Windows write a mark
            text = file.read()
    except OSError as error:
        raise ModelError(f"cannot read the text: {error.strerror or error}", where=name) from error
    except UnicodeDecodeError as error:
        raise ModelError(
            f"expected text in UTF-8, byte {error.start} is not", where=name
        ) from error
    try:
        return parse(text)
    except HloSyntaxError as error:
        raise error.in_file(name) from None


def import_file(
    path: str | os.PathLike[str],
    *,
    fusions: str = "functions",
    constants: str = "",
    assume_reductions: bool = False,
    computation: str = "",
) -> onnx.ModelProto:
    """Import a file of HLO text as an ONNX model.

    Args:
        path: of the text.
        fusions: ``functions`` makes each of XLA's fusions a model-local function, ``inline`` none.
        constants: an ``.npz`` file with the values of elided constants by instruction, or
            ``random``.
        assume_reductions: take a ``to_apply`` that is not in the text from ``op_type``.
        computation: the one to import in place of the entry.

    Raises:
        UsageError: ``fusions`` is neither of the two.
        ModelError: the text or the constants cannot be read, or instructions have no translation.
    """
    if fusions not in {"functions", "inline"}:
        raise UsageError(f"fusions: expected functions or inline, got {fusions}")
    module = read_module(path)
    entry = None
    if computation:
        entry = module.find(computation)
        if entry is None:
            raise ModelError(
                f"no computation is called {computation}{near(computation, module)}",
                where=os.fspath(path),
            )
    arrays = None if constants in {"", RANDOM} else _arrays(constants)
    settings = Settings(fusions, arrays, constants == RANDOM, assume_reductions)
    try:
        return import_module(module, settings, entry)
    except UntranslatableError as error:
        raise UntranslatableError(error.problems, os.fspath(path)) from None


def near(name: str, module: HloModule) -> str:
    """Return the names of computations that are like ``name``, for an error."""
    import difflib

    found = difflib.get_close_matches(
        name, [computation.name for computation in module.computations], 3
    )
    return f"; near: {', '.join(found)}" if found else ""


def _arrays(path: str) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name.removeprefix("%"): file[name] for name in file.files}
    except OSError as error:
        raise ModelError(
            f"cannot read the constants: {error.strerror or error}", where=path
        ) from error
    except Exception as error:  # a damaged zip raises many things
        raise ModelError("expected an .npz file of arrays by instruction", where=path) from error
