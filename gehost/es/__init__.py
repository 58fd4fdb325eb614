"""Operator functions for patterns, replacements and bodies.

``es.<Operator>`` exists for every ONNX operator; other names (``es.GEMM``) mean an operator
registered with ``gehost.ops.register`` and are resolved when the graph is used.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from gehost.es.functions import (
    Alternatives,
    AnyOf,
    Bind,
    Commutative,
    Name,
    OpFunction,
    Optional,
    constrain,
    op,
)
from gehost.es.graph import EsGraph, EsGraphBuilder, EsNode, EsTensor
from gehost.es.reuse import Recipe
from gehost.es.schemas import first_version, operator_names
from gehost.location import SourceLocation as Origin
from gehost.location import author_origin, written_at
from gehost.spelling import hint

__all__ = [
    "Alternatives",
    "AnyOf",
    "Bind",
    "Commutative",
    "EsGraph",
    "EsGraphBuilder",
    "EsNode",
    "EsTensor",
    "Name",
    "OpFunction",
    "Optional",
    "Origin",
    "Recipe",
    "author_origin",
    "constrain",
    "first_version",
    "op",
    "operator_names",
    "written_at",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *operator_names("")})


if TYPE_CHECKING:

    def __getattr__(name: str) -> OpFunction: ...
else:

    @cache
    def __getattr__(name: str) -> OpFunction:
        if not name[:1].isupper():
            raise AttributeError(f"gehost.es has no {name!r}{hint(name, __all__)}")
        return OpFunction(name, bare=True)
