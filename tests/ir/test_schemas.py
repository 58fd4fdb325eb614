"""ONNX's schemas by opset."""

from __future__ import annotations

import pytest

from gehost.ir.schemas import first_version, operator_names, schema_at


@pytest.mark.parametrize(
    ("op_type", "opset", "since"),
    [
        ("Relu", 5, 1),
        ("Relu", 13, 13),
        ("Relu", 20, 14),
        ("Gelu", 19, None),
        ("Gelu", 20, 20),
        ("Upsample", 9, 9),
        ("Upsample", 10, None),
    ],
)
def test_the_schema_in_force(op_type, opset, since):
    schema = schema_at("", op_type, opset)
    assert (None if schema is None else schema.since_version) == since


def test_names():
    assert {"Relu", "If", "Upsample"} <= operator_names()
    assert "LinearClassifier" in operator_names("ai.onnx.ml")
    assert operator_names("acme") == frozenset()
    assert (first_version("", "Gelu"), first_version("", "Nothing")) == (20, None)
