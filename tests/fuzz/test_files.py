"""The first of the damaged files, and that the fuzzer sees what it looks for."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import ModelError, PassError
from tools.fuzz.files import Corpus, Findings, hosts, outcome, run
from tools.fuzz.mutate import Seed, mutated, parses
from tools.fuzz.planted import dies, hangs
from tools.fuzz.seeds import seed_models

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }'
)


def last(actual: Any) -> Findings:
    *_, end = actual
    return end


def test_damaged_files_are_compiled_well_or_refused() -> None:
    actual = last(run(seed=0, files=200))
    assert actual.wrong == {}
    assert actual.counts["compiled"] > 20
    assert actual.counts["refused with 3"] > 20


def test_the_seeds_are_compiled_all(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "external.onnx.data").write_bytes(bytes(5120))
    compile_ = hosts(tmp_path)
    assert {
        outcome(compile_, content, tmp_path, random.Random(0)) for content in seed_models()
    } == {("compiled", "")}


def test_damage_is_the_same_for_the_same_seed_and_often_still_a_model() -> None:
    files = [Corpus(1).file(number) for number in range(60)]
    assert files == [Corpus(1).file(number) for number in range(60)]
    assert files != [Corpus(2).file(number) for number in range(60)]
    assert 30 < sum(map(parses, files)) < 60


@pytest.mark.parametrize("number", range(50))
def test_a_file_is_damaged(number: int) -> None:
    seed = Seed(MODEL.SerializeToString())
    damaged = [mutated(seed, random.Random(f"{number}/{again}")) for again in range(20)]
    assert sum(content != seed.content for content in damaged) > 10


# -- what the fuzzer looks for --------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., None]:
    def compile_(*_: Any) -> None:
        raise error

    return compile_


def writing(edit: Callable[[onnx.ModelProto], Any]) -> Callable[..., None]:
    def compile_(_model: Path, output: Path, _rng: random.Random) -> None:
        copy = onnx.ModelProto()
        copy.CopyFrom(MODEL)
        edit(copy)
        output.write_bytes(copy.SerializeToString())

    return compile_


PLANTED = {
    "a foreign exception": (raising(KeyError("x")), "KeyError: 'x'"),
    "no memory": (raising(MemoryError()), "MemoryError"),
    "a pass that fails on a good model": (
        raising(PassError("it fell over")),
        "exit code 5: it fell over",
    ),
    "a refusal without a word": (raising(ModelError("")), "without a word"),
    "an output that is no model": (
        lambda _, output, __: output.write_bytes(b"x"),
        "the output is not right",
    ),
    "an output that is not valid": (
        writing(lambda proto: proto.graph.node[0].ClearField("op_type")),
        "'op_type' of 'node'",
    ),
    "an interface that is another": (
        writing(lambda proto: proto.graph.input.pop(0)),
        "the output is not right",
    ),
    "an input of another type": (
        writing(lambda proto: proto.graph.input[0].type.tensor_type.shape.ClearField("dim")),
        "the inputs were changed",
    ),
    "no output": (lambda *_: None, "the output is not right"),
}


@pytest.mark.parametrize(("compile_", "message"), PLANTED.values(), ids=PLANTED)
def test_what_is_wrong_is_a_finding(tmp_path: Path, compile_: Any, message: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    _, wrong = outcome(compile_, MODEL.SerializeToString(), tmp_path, random.Random(0))
    assert message in wrong


def test_a_process_that_dies_is_a_finding_for_each_file() -> None:
    actual = last(run(seed=0, files=2, setup=dies))
    assert actual.counts == {"crash": 2}
    assert list(actual.wrong) == [0, 1]


def test_a_process_that_hangs_is_a_finding() -> None:
    actual = last(run(seed=0, files=1, setup=hangs, patience=0.1))
    assert actual.counts == {"hang": 1}
