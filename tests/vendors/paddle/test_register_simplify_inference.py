"""What changes nothing in inference goes; what only looks like it stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost.testing import assert_fuses, assert_refuses, check_pass, parse

PASS = "simplify_inference"


CONSTANTS = {
    "one": np.array([1]),
    "two": np.array([2]),
    "half": np.array(0.5, np.float32),
    "no": np.array(False),
    "yes": np.array(True),
}


def model(
    body: str,
    *,
    opset: int = 17,
    x: str = "4, 4, 4",
    y: str = "",
    inputs: str = "",
    outputs: str = "",
) -> Any:
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    main (float[{x}] x{inputs}) => (float[{y or x}] y{outputs}) {{ a = Abs(x) {body} y = Exp(b) }}"""
    arguments = {
        name: array
        for name, array in CONSTANTS.items()
        if f" {name})" in body or f" {name}," in body
    }
    return parse(text, arguments)


def transposes(first: str, second: str) -> str:
    return f"t = Transpose{first}(a) b = Transpose{second}(t)"


@pytest.mark.parametrize(
    "body",
    [
        transposes("<perm = [1, 2, 0]>", "<perm = [2, 0, 1]>"),
        transposes("<perm = [0, 2, 1]>", "<perm = [0, 2, 1]>"),
        transposes("", ""),
        transposes("<perm = [2, 1, 0]>", ""),
        "t = Unsqueeze(a, one) b = Squeeze(t, one)",
        "b = Dropout(a)",
        "b = Dropout(a, half)",
        "b = Dropout(a, half, no)",
        "b = Dropout(a, , no)",
    ],
)
@pytest.mark.parametrize("x", ["4, 4, 4", "N, M, 4"])
def test_what_goes(alone, body: str, x: str) -> None:
    after = assert_fuses(model(body, x=x), PASS, **alone)
    assert [node.op_type for node in after.graph.node] == ["Abs", "Exp"]


def test_a_squeeze_of_the_only_size_of_one_goes(alone) -> None:
    """Without axes it drops all of them, which known sizes tell."""
    after = assert_fuses(model("t = Unsqueeze(a, one) b = Squeeze(t)", x="2, 3, 4"), PASS, **alone)
    assert [node.op_type for node in after.graph.node] == ["Abs", "Exp"]


@pytest.mark.parametrize("opset", [7, 9, 11])
@pytest.mark.parametrize(
    "body",
    ["t = Unsqueeze<axes = [1]>(a) b = Squeeze<axes = [1]>(t)", "b = Dropout<ratio = 0.25>(a)"],
)
def test_older_opsets_have_these_as_attributes(alone, body: str, opset: int) -> None:
    after = assert_fuses(model(body, opset=opset), PASS, **alone)
    assert [node.op_type for node in after.graph.node] == ["Abs", "Exp"]


def test_one_after_another(alone) -> None:
    body = "d = Dropout(a) u = Unsqueeze(d, one) s = Squeeze(u, one) t = Transpose<perm = [1, 0, 2]>(s) b = Transpose<perm = [1, 0, 2]>(t)"
    after = assert_fuses(model(body), PASS, 3, **alone)
    assert [node.op_type for node in after.graph.node] == ["Abs", "Exp"]


def test_a_mask_that_nobody_reads_goes_too(alone) -> None:
    after = assert_fuses(model("b, m = Dropout(a)"), PASS, **alone)
    assert [node.op_type for node in after.graph.node] == ["Abs", "Exp"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"body": transposes("<perm = [1, 2, 0]>", "<perm = [1, 2, 0]>")}, "condition"),
        ({"body": transposes("<perm = [0, 2, 1]>", "<perm = [2, 1, 0]>")}, "condition"),
        (
            {
                "body": transposes("<perm = [0, 2, 1]>", "<perm = [0, 2, 1]>"),
                "outputs": ", float[4, 4, 4] t",
            },
            None,
        ),
        ({"body": "t = Unsqueeze(a, one) b = Squeeze(t, two)", "x": "1, 1, 4"}, "condition"),
        (
            {"body": "t = Unsqueeze(a, one) b = Squeeze(t)", "x": "1, 3, 4", "y": "3, 4"},
            "condition",
        ),
        ({"body": "t = Unsqueeze(a, one) b = Squeeze(t)", "x": "N, 3, 4"}, "unknown"),
        (
            {"body": "t = Unsqueeze(a, axes) b = Squeeze(t, axes)", "inputs": ", int64[1] axes"},
            None,
        ),
        ({"body": "b = Dropout(a, half, yes)"}, "condition"),
        ({"body": "b = Dropout(a, , yes)"}, "condition"),
        ({"body": "b = Dropout(a, half, training)", "inputs": ", bool training"}, "weight"),
        ({"body": "b, m = Dropout(a)", "outputs": ", bool[4, 4, 4] m"}, None),
        ({"body": "b = Dropout(a)", "opset": 6}, "needs opset 7"),
    ],
)
def test_near_misses(alone, changed: dict[str, Any], reason: str | None) -> None:
    assert_refuses(model(**changed), PASS, reason, **alone)


def test_instances_and_changes_of_the_pattern_keep_their_numbers(alone) -> None:
    check_pass(PASS, **alone)
