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
    """Return an operator's schemas, oldest first; empty if ONNX lacks it.

    Queried by operator: loading all schemas of ONNX costs more than the rest of a small compile.
    """
    schemas: list[onnx.defs.OpSchema] = []
    version = _NEWEST
    while version:
        try:
            schema = onnx.defs.get_schema(op_type, version, domain)
        except (onnx.defs.SchemaError, TypeError):  # TypeError: the name is not valid UTF-8
            break
        schemas.append(schema)
        version = schema.since_version - 1
    return schemas[::-1]


@cache
def operator_names(domain: str = "") -> frozenset[str]:
    """Return a domain's operators at any version ("" is ONNX's own)."""
    return frozenset(
        schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain
    )


@cache
def schema_at(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema at an opset, None if absent or deprecated."""
    schema = declared_schema_at(domain, op_type, version)
    return None if schema is None or schema.deprecated else schema


@cache
def declared_schema_at(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema at an opset, deprecated or not; None if absent."""
    newest = None
    for schema in history(domain, op_type):
        if schema.since_version <= version:
            newest = schema
    return newest


@cache
def first_version(domain: str, op_type: str) -> int | None:
    """Return the first opset with an operator, None if ONNX lacks it."""
    versions = history(domain, op_type)
    return versions[0].since_version if versions else None
