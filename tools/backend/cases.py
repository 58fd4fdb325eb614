"""The backend test cases that the onnx wheel carries: a model, the inputs to run it on, and what has to come out."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.case.test_case import TestCase

Values: TypeAlias = Mapping[str, Any]
"""Arrays by name; of sequences lists of them, of an absent optional value None."""

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
_SEED = 20210


@dataclass(frozen=True)
class Run:
    """Inputs, and the outputs that they have to give."""

    feeds: Values
    expected: Values


@dataclass(frozen=True)
class Case:
    """A model with its runs; ``rtol`` and ``atol`` say how close an output has to come."""

    kind: str
    name: str
    model: onnx.ModelProto
    runs: tuple[Run, ...]
    rtol: float
    atol: float

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


LISTED = Path(__file__).with_name("names.txt")
"""The names of the cases, so that collecting the tests need not make them, which takes seconds."""


def listed() -> tuple[str, ...]:
    """The names in ``names.txt``; ``python -m tools.backend.cases`` writes it."""
    return tuple(LISTED.read_text(encoding="utf-8").split())


@functools.cache
def names() -> tuple[str, ...]:
    """All cases of this onnx as ``kind/name``, sorted."""
    return tuple(sorted(name for kind in KINDS for name in _found(kind)))


def is_case(name: str) -> bool:
    """Whether this onnx has a case; of the kinds, only the case's own is made for that."""
    return name in _found(name.partition("/")[0])


def load(name: str) -> Case:
    """Read a case, or take it from those that onnx makes when they are asked for."""
    source = _found(name.partition("/")[0])[name]
    if source.model_dir is None:
        model, runs = source.model, source.data_sets
        assert model is not None
        assert runs is not None
    else:
        directory = Path(source.model_dir)
        model = onnx.load(directory / "model.onnx")
        runs = [_read_run(model, data) for data in sorted(directory.glob("test_data_set_*"))]
    return Case(
        source.kind,
        source.name,
        model,
        tuple(_named(model, *run) for run in runs),
        source.rtol,
        source.atol,
    )


@functools.cache
def _found(kind: str) -> dict[str, TestCase]:
    """What the wheel has of a kind; onnx makes the cases of ``node``, which takes seconds, from numpy's global random state."""
    state = np.random.get_state()
    np.random.seed(_SEED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numpy, about the infinities in the cases
            from onnx.backend.test.loader import load_model_tests

            result = load_model_tests(kind=kind)
    finally:
        np.random.set_state(state)
    return {f"{case.kind}/{case.name}": case for case in result}


def _named(model: onnx.ModelProto, inputs: Any, outputs: Any) -> Run:
    """Give inputs and outputs their names; the initializers of old models are inputs too, and come last."""
    selected, result = ([_numpy(value) for value in values] for values in (inputs, outputs))
    feeds = dict(zip((entry.name for entry in model.graph.input), selected, strict=False))
    return Run(feeds, dict(zip((entry.name for entry in model.graph.output), result, strict=True)))


def _numpy(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if value is None or isinstance(value, list):
        return value if value is None else [_numpy(element) for element in value]
    return np.asarray(value)


def _read_run(model: onnx.ModelProto, directory: Path) -> tuple[list[Any], list[Any]]:
    return _read(directory, "input", model.graph.input), _read(
        directory, "output", model.graph.output
    )


def _read(directory: Path, what: str, entries: Any) -> list[Any]:
    files = sorted(
        directory.glob(f"{what}_*.pb"), key=lambda path: int(re.findall(r"\d+", path.stem)[-1])
    )
    return [
        _decode(path.read_bytes(), entry.type) for path, entry in zip(files, entries, strict=False)
    ]


def _decode(content: bytes, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return onnx.numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if kind.HasField("optional_type"):
        return onnx.numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(content))


if __name__ == "__main__":
    LISTED.write_text("\n".join(names()) + "\n", encoding="utf-8")
