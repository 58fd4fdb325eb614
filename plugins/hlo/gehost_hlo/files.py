"""HLO files: read, and imported with the options that a user gives."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from gehost import ModelError, UsageError
from gehost_hlo import stablehlo
from gehost_hlo.context import Settings
from gehost_hlo.errors import HloSyntaxError, UntranslatableError
from gehost_hlo.importer import import_module
from gehost_hlo.literals import Array
from gehost_hlo.module import HloComputation, HloModule
from gehost_hlo.reader import parse
from gehost_hlo.tokens import Token, tokens

if TYPE_CHECKING:
    import onnx

RANDOM = "random"


def read_module(path: str | os.PathLike[str]) -> HloModule:
    """Read a file of HLO text, or of StableHLO.

    Raises:
        HloSyntaxError: it is not HLO; names the file, line and column.
        ModelError: it cannot be read, or is not UTF-8.
    """
    return _parsed(read_text(path), path)


def read_tokens(path: str | os.PathLike[str]) -> list[Token]:
    """Return the tokens of a file of HLO text or StableHLO.

    Raises:
        HloSyntaxError: a character begins no token.
        ModelError: it cannot be read, or is not UTF-8.
    """
    text = read_text(path)
    try:
        return list(tokens(text, is_mlir=stablehlo.is_stablehlo(text)))
    except HloSyntaxError as error:
        raise error.in_file(os.fspath(path)) from None


def read_text(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8-sig") as file:  # editors of Windows write a mark
            return file.read()
    except OSError as error:
        raise ModelError(f"cannot read the text: {error.strerror or error}", where=name) from error
    except UnicodeDecodeError as error:
        raise ModelError(
            f"expected text in UTF-8, byte {error.start} is not", where=name
        ) from error


def _parsed(text: str, path: str | os.PathLike[str]) -> HloModule:
    try:
        return stablehlo.parse(text) if stablehlo.is_stablehlo(text) else parse(text)
    except HloSyntaxError as error:
        raise error.in_file(os.fspath(path)) from None


def texts_in(directory: str) -> list[tuple[str, str]]:
    """Return the paths of the modules of a directory, and names for their models.

    XLA's dumps have other texts beside them, as buffer assignments.
    """
    results: list[tuple[str, str]] = []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        stem, suffix = os.path.splitext(name)
        if suffix not in {".txt", ".hlo", ".mlir"} or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            text = file.read()
        if text.lstrip().startswith("HloModule ") or stablehlo.is_stablehlo(text):
            results.append((path, stem))
    return results


def import_file(
    path: str | os.PathLike[str],
    *,
    fusions: str = "functions",
    constants: str = "",
    assume_reductions: bool = False,
    computation: str = "",
    unroll: int = 0,
) -> onnx.ModelProto:
    """Import a file of HLO text as an ONNX model.

    Args:
        path: of the text.
        fusions: ``functions`` makes each of XLA's fusions a model-local function, ``inline`` none.
        constants: an ``.npz`` file with the values of elided constants by instruction, or
            ``random``.
        assume_reductions: take a ``to_apply`` that is not in the text from ``op_type``.
        computation: the one to import in place of the entry.
        unroll: unroll loops of at most so many iterations, where the text tells their number.

    Raises:
        UsageError: ``fusions`` is neither of the two; an array of ``constants`` has the name of no
            elided constant; or calls become too many instructions when they are inlined.
        ModelError: the text or the constants cannot be read, or instructions have no translation.
    """
    if fusions not in {"functions", "inline"}:
        raise UsageError(f"fusions: expected functions or inline, got {fusions}")
    text = read_text(path)
    module = _parsed(text, path)
    entry = None
    if computation:
        entry = module.find(computation)
        if entry is None:
            raise ModelError(
                f"no computation is called {computation}{near(computation, module)}",
                where=os.fspath(path),
            )
    arrays = None if constants in {"", RANDOM} else _arrays(constants)
    if arrays is not None:
        _check_names(arrays, module, constants)
    settings = Settings(fusions, arrays, constants == RANDOM, assume_reductions, unroll)
    try:
        return import_module(module, settings, entry)
    except UntranslatableError as error:
        raise UntranslatableError(error.problems, os.fspath(path), text, module.places) from None
    except UsageError as error:
        raise UsageError(error.message, where=os.fspath(path), hint=error.hint) from None


def _check_names(arrays: Mapping[str, Array], module: HloModule, path: str) -> None:
    """Raise an error for arrays that are for no elided constant."""
    elided = {name for computation in module.computations for name in _elided(computation)}
    unknown = [name for name in arrays if name not in elided]
    if unknown:
        named = ", ".join([f'"{name}"{_meant(name, elided)}' for name in unknown])
        raise UsageError(f"the text has no elided constant {named}", where=path)


def _elided(computation: HloComputation) -> Iterator[str]:
    """Yield the names of the constants whose values are not in the text."""
    waiting = list(computation.instructions)
    for instruction in waiting:  # grows during the loop
        for operand in instruction.operands:
            if operand.instruction is not None:
                waiting.append(operand.instruction)
            if operand.literal is not None and operand.literal.is_elided:
                yield instruction.name


def _meant(name: str, names: Collection[str]) -> str:
    import difflib

    nearest = difflib.get_close_matches(name, names, 1)
    return f' (did you mean "{nearest[0]}"?)' if nearest else ""


def near(name: str, module: HloModule) -> str:
    """Return the names of computations that are like ``name``, for an error."""
    import difflib

    nearest = difflib.get_close_matches(
        name, [computation.name for computation in module.computations], 3
    )
    return f"; near: {', '.join(nearest)}" if nearest else ""


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
