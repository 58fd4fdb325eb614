"""ONNX's own operator schemas, by domain, name and opset."""

from __future__ import annotations

from functools import cache

import onnx

RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})
"""Operators that draw random numbers; ``Dropout`` does in training mode."""


@cache
def history() -> dict[tuple[str, str], list[onnx.defs.OpSchema]]:
    """Every schema that ONNX ever had, oldest first, by domain and operator."""
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema)
    for versions in found.values():
        versions.sort(key=lambda schema: schema.since_version)
    return found


@cache
def operator_names(domain: str = "") -> frozenset[str]:
    return frozenset(name for owner, name in history() if owner == domain)


@cache
def schema_at(domain: str, op_type: str, version: int) -> onnx.defs.OpSchema | None:
    """The schema in force at an opset; None where there is none or it is deprecated there."""
    found = None
    for schema in history().get((domain, op_type), ()):
        if schema.since_version <= version:
            found = schema
    return None if found is None or found.deprecated else found


@cache
def first_version(domain: str, op_type: str) -> int | None:
    """The opset that brought an operator; None where ONNX has none of that name."""
    versions = history().get((domain, op_type))
    return versions[0].since_version if versions else None
