"""ONNX's schemas by opset."""

from __future__ import annotations

import onnx
import pytest

from gehost.ir.schemas import first_version, history, operator_names, schema_at


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


def test_each_operator_has_all_the_versions_that_onnx_has():
    expected = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        expected.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    assert {key: [schema.since_version for schema in history(*key)] for key in expected} == {
        key: sorted(versions) for key, versions in expected.items()
    }
    for domain in {domain for domain, _ in expected}:
        assert operator_names(domain) == {name for owner, name in expected if owner == domain}


@pytest.mark.parametrize(
    ("domain", "op_type"), [("", "relu"), ("ai.onnx", "Relu"), ("acme", "Relu"), ("", "\udc80")]
)
def test_what_onnx_does_not_know_has_no_versions(domain, op_type):
    assert history(domain, op_type) == []
