"""Reports fit the schema in the reference, which lists each key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gehost import Report
from gehost.cli import run

jsonschema = pytest.importorskip("jsonschema", reason="of the dev extra")

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "reference" / "report.schema.json").read_text())
COMPILE = ["compile", "m.onnx", "-o", "out.onnx", "--vendors", "vendors", "--report", "r.json"]

pytestmark = pytest.mark.usefixtures("here")


def problems(report: dict[str, Any]) -> list[str]:
    actual = jsonschema.Draft202012Validator(SCHEMA).iter_errors(report)
    return [f"{item.json_path}: {item.message}" for item in actual]


@pytest.mark.parametrize(
    ("code", "meet", "options"),
    [
        (0, "return True", ["--verify", "--dump", "dumps"]),
        (0, "return match.reject('rank: only matrices')", []),
        (0, "return True", ["--disable", "Turn"]),
        (5, "1 / 0", []),
        (5, "1 / 0", ["--keep-going"]),
        (2, "return True", ["--dim", "no=3"]),
    ],
)
def test_each_report_fits(code: int, meet: str, options: list[str], vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Turn", "Neg", "Neg", meet=meet))
    assert run([*COMPILE, *options]) == code
    report = json.loads(Path("r.json").read_text())
    assert problems(report) == []


def test_a_report_whose_numbers_differ_fits(vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Turn", "Relu", "Abs"))
    assert run([*COMPILE, "--verify"]) == 6
    report = json.loads(Path("r.json").read_text())
    assert problems(report) == []
    assert report["verify"]["equal"] is False
    assert report["passes"][0]["rewrites"]


def test_a_report_of_nothing_fits() -> None:
    assert problems(Report().as_dict()) == []


@pytest.mark.parametrize(
    "changed",
    [{"more": 1}, {"nodes_before": "3"}, {"passes": [{"name": "P"}]}, {"verify": {"a": 1}}],
)
def test_another_key_or_type_does_not_fit(changed: dict[str, Any]) -> None:
    assert problems({**Report().as_dict(), **changed})


def test_each_object_requires_its_keys_and_allows_no_others() -> None:
    actual = list(objects(SCHEMA))
    assert len(actual) >= 9
    for item in actual:
        assert item["additionalProperties"] is False
        assert item["required"] == list(item["properties"])


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of a schema that list keys."""
    if isinstance(schema, dict):
        if "required" in schema:
            yield schema
        for part in schema.values():
            yield from objects(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects(part)
