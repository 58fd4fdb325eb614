"""StableHLO and CHLO, as jax prints them: read, and made the instructions of HLO.

``pretty`` reads the text, ``convert`` makes the module, ``operations``, ``regions`` and ``chlo``
have a function for each operation.
"""

from __future__ import annotations

import re

from gehost_hlo.check import check_computation
from gehost_hlo.errors import HloSyntaxError
from gehost_hlo.module import HloModule
from gehost_hlo.stablehlo.convert import ModuleConverter
from gehost_hlo.stablehlo.pretty import PrettyReader
from gehost_mlir.scanner import MlirError

_BEGIN = re.compile(
    r'(?:\s+|//[^\n]*)*+(?:[#!][\w.$-]+\s*=|"?builtin\.module|module\b|"?func\.func|sdy\.mesh)'
)


def is_stablehlo(text: str) -> bool:
    """Whether a text is MLIR's, and not HLO."""
    return _BEGIN.match(text) is not None and "func.func" in text


def parse(text: str) -> HloModule:
    """Read a module of StableHLO from its text, pretty or generic.

    Raises:
        HloSyntaxError: the text breaks the grammar, or has an operation of another dialect.
    """
    try:
        reader = PrettyReader(text)
        converter = ModuleConverter(reader)
        module = converter.module()
    except MlirError as error:
        raise HloSyntaxError(text, _position(text, error), error.reason) from None
    except RecursionError:
        raise HloSyntaxError(text, 0, "regions or types are nested too deep") from None
    for computation in module.computations:
        problem = check_computation(computation)
        if problem:
            raise HloSyntaxError(text, 0, f'"{computation.name}": {problem}')
    module.places = converter.places
    return module


def _position(text: str, error: MlirError) -> int:
    start = 0
    for _ in range(error.line - 1):
        start = text.find("\n", start) + 1
    return start + error.column - 1
