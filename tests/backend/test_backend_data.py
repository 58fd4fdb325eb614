"""The models that the onnx wheel is tested with, through gehost: as they are with the shipped vendors, and in variants.

``python -m tools.backend`` (``make backend``) runs all cases in all variants with the vendors and prints what it saw.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost import DataType, TensorType
from gehost.ir.types import OtherType
from gehost.verify.draws import unseeded
from tools.backend import cases
from tools.backend.check import Outcome, check, run_as_expected
from tools.backend.engines import bits_equal, differences
from tools.backend.types import contradictions
from tools.backend.variants import VARIANTS

NAMES = cases.listed()
IN_TURNS = [name for name in VARIANTS if name != "constant"]
"""Every second case runs with constant inputs, the others in one of these; ``make backend`` runs all."""


# First: the process that makes the cases of nodes for these three, which takes seconds, then runs them too.


def test_cases_that_the_list_lacks() -> None:
    for name in set(cases.names()).difference(NAMES):
        outcome = check(name, "plain")
        assert outcome is None or outcome.findings == [], name


def test_nearly_all_cases_run() -> None:
    """Of a share of the cases, as each test of a case is green where no engine runs it."""
    assert len(cases.names()) >= 1500
    actual = [cases.load(name) for name in cases.names()[::23]]
    right = [
        case.name
        for case in actual
        if all(run_as_expected(case, run, Outcome()) is not None for run in case.runs)
    ]
    assert len(right) >= 0.95 * len(actual)


def test_chance_is_no_expected_output() -> None:
    """Ten fair coins may fall as expected before the compile; after it they fall again."""
    random = {name for name in cases.names() if unseeded(cases.load(name).model) is not None}
    assert {"node/test_bernoulli", "node/test_bernoulli_expanded"} <= random
    assert "node/test_bernoulli_seed" not in random
    outcomes = [check(name, "plain") for name in sorted(random)]
    assert [outcome.engine for outcome in outcomes if outcome] == [""] * len(random)


@pytest.mark.parametrize(
    ("place", "name"), [pytest.param(place, name, id=name) for place, name in enumerate(NAMES)]
)
def test_expected_outputs_and_true_types(place: int, name: str) -> None:
    if not cases.is_case(name):
        pytest.skip("this onnx has no such case")
    variant = "constant" if place % 2 else IN_TURNS[place // 2 % len(IN_TURNS)]
    outcome = check(name, variant, vendors=variant == "plain")
    assert outcome is None or outcome.findings == [], variant


FLOAT = TensorType(DataType.FLOAT, (2, "N", None))
SEQUENCE = OtherType(
    onnx.helper.make_sequence_type_proto(
        onnx.helper.make_tensor_type_proto(1, [2])
    ).SerializeToString()
)


@pytest.mark.parametrize(
    ("said", "value", "true"),
    [
        (FLOAT, np.zeros((2, 3, 4), np.float32), True),
        (FLOAT, np.zeros((2, 3, 4), np.float64), False),
        (FLOAT, np.zeros((1, 3, 4), np.float32), False),
        (FLOAT, np.zeros((2, 3), np.float32), False),
        (TensorType(DataType.FLOAT, None), np.float32(0), True),
        (TensorType(DataType.STRING, ()), np.array("a", object), True),
        (SEQUENCE, [np.zeros(2, np.float32)], True),
        (SEQUENCE, [np.zeros(2, np.float32), np.zeros(2, np.int32)], False),
    ],
)
def test_a_type_is_held_against_the_value(
    said: TensorType | OtherType, value: object, true: bool
) -> None:
    assert (contradictions({"x": said}, {"x": value}) == []) is true


def test_a_name_of_a_size_means_one_size() -> None:
    types = {name: TensorType(DataType.FLOAT, ("N",)) for name in "ab"}
    assert contradictions(types, {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}) == []
    assert contradictions(types, {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)}) == [
        "b is said to be float[N], but is float32[3]"
    ]


def test_outputs_are_compared_through_sequences_and_absent_values() -> None:
    one, other = np.array([1, np.nan], np.float32), np.array([1.1, np.nan], np.float32)
    assert differences({"x": [one, one], "y": None}, {"x": [one, one], "y": None}, 1e-3, 1e-7) == []
    assert len(differences({"x": [one, one]}, {"x": [one, other]}, 1e-3, 1e-7)) == 1
    assert len(differences({"x": [one, one]}, {"x": [one]}, 1e-3, 1e-7)) == 2
    assert len(differences({"y": one}, {"y": None}, 1e-3, 1e-7)) == 1
    near = np.array([1 + 2e-7, np.nan], np.float32)
    assert differences({"x": one}, {"x": near}, 0, 0, ulps=2) == []
    assert len(differences({"x": one}, {"x": near}, 0, 0, ulps=1)) == 1
    assert len(differences({"x": one}, {"x": other}, 0, 0, ulps=2)) == 1
    assert bits_equal({"x": np.float32(0)}, {"x": np.float32(0)})
    assert not bits_equal({"x": np.float32(0)}, {"x": np.float32(-0.0)})
