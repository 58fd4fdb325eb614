"""ONNX's own operator schemas, by domain, name and opset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import onnx

RANDOM = frozenset(
    {
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators that draw random numbers; ``Dropout`` does in training mode."""

_NEWEST = 2**31 - 1


@cache
def history(domain: str, op_type: str) -> Sequence[onnx.defs.OpSchema]:
    """Every schema that an operator ever had, oldest first; none where ONNX has no such operator.

    Asked for by operator: all that ONNX has together cost more than everything else that a small
    compile looks up.
    """
    found: list[onnx.defs.OpSchema] = []
    version = _NEWEST
    while version:
        try:
            schema = onnx.defs.get_schema(op_type, version, domain)
        except (onnx.defs.SchemaError, TypeError):  # TypeError: a name with what UTF-8 cannot hold
            break
        found.append(schema)
        version = schema.since_version - 1
    return found[::-1]


@cache
def operator_names(domain: str = "") -> frozenset[str]:
    return frozenset(
        schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain
    )


@cache
def schema_at(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    """The schema in force at an opset; None where there is none or it is deprecated there."""
    found = None
    for schema in history(domain, op_type):
        if schema.since_version <= version:
            found = schema
    return None if found is None or found.deprecated else found


@cache
def first_version(domain: str, op_type: str) -> int | None:
    """The opset that brought an operator; None where ONNX has none of that name."""
    versions = history(domain, op_type)
    return versions[0].since_version if versions else None
