"""The committed witnesses: wrong sizes stay in doubt, right ones known, and the runtime as it was."""

from __future__ import annotations

import inspect
from collections import Counter

import numpy as np
import onnx
import onnx.parser
import pytest

from gehost.infer.doubtful_sizes import DOUBTS, VERSIONS
from tools.sizes import chains
from tools.sizes.__main__ import main as command
from tools.sizes.cases import Case
from tools.sizes.record import read_witnesses, versions
from tools.sizes.witnesses import DISAGREE, actual_shapes, gehost_shapes, judge

WITNESSES = read_witnesses()
WRONG = [witness for witness in WITNESSES if witness[0]["wrong"]]
RIGHT = [witness for witness in WITNESSES if not witness[0]["wrong"]]

measured = pytest.mark.skipif(
    versions() != VERSIONS, reason=f"the list is of {dict(VERSIONS)}: run make sizes"
)


def test_each_doubt_has_witnesses() -> None:
    assert {witness[1].op for witness in WRONG} == set(DOUBTS)
    assert len(RIGHT) >= 40


def test_no_wrong_size_is_believed() -> None:
    believed = [
        entry["about"]
        for entry, case, _, actual in WRONG
        if judge(case, gehost_shapes(case, case.model()), actual) == DISAGREE
    ]
    assert believed == []


def test_right_sizes_are_known() -> None:
    doubted = {
        entry["about"]: result
        for entry, case, inferred, _ in RIGHT
        if (result := gehost_shapes(case, case.model())) != inferred
    }
    assert doubted == {}


@measured
def test_the_sizes_are_those_that_were_measured() -> None:
    changed = {}
    for entry, case, inferred, actual in WITNESSES:
        result, _ = actual_shapes(case, case.model())
        without = gehost_shapes(case, case.model(), {})
        if result != actual or without != inferred:
            changed[entry["about"]] = (result, without)
    assert changed == {}


@pytest.mark.parametrize("length", [2, 3])
def test_the_reference_is_not_asked_about_scan_inputs_that_differ_in_length(length: int) -> None:
    body = onnx.parser.parse_graph(
        "body (float[2] p, float x, float y) => (float[2] q, float z) { q = Identity(p) z = Add(x, y) }"
    )
    node = onnx.helper.make_node(
        "Scan", ["i0", "i1", "i2"], ["o0", "o1"], body=body, num_scan_inputs=2
    )
    arrays = [np.zeros(size, np.float32) for size in (2, length, 3)]
    case = Case(node, 15, arrays, frozenset(), {1: (None,)}, [])
    actual, refused = actual_shapes(case, case.model())
    assert ("reference" in actual) == ("onnxruntime" in actual) == (length == 3), refused


def test_clean_up_changes_no_number() -> None:
    counts = Counter[str]()
    for place, (_, case, _, actual) in enumerate(WITNESSES):
        if "onnxruntime" not in actual:
            continue
        for seed in (place, place + len(WITNESSES)):
            chain = chains.run_case(seed, case)
            assert chain.verdict != chains.WRONG, (chain.op, chain.about)
            counts[chain.verdict] += 1
    assert counts[chains.RIGHT] > 100


def test_the_command_takes_its_options() -> None:
    callback = command.callback
    assert callback is not None
    assert {entry.name for entry in command.params} == {*inspect.signature(callback).parameters}
