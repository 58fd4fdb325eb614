"""The clean-up as a whole: on real models, twice, undone, and from one process to the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import CleanUpResult, clean_up

ROOT = Path(__file__).parents[3]
MODELS = ROOT / "tests" / "models"
CORPUS = ROOT.parent / "shared" / "corpus"


def load(path: Path) -> Model:
    model = Model.load(path)
    infer_model(model)
    return model


def clean_once(model: Model) -> CleanUpResult:
    return clean_up(model, OpRegistry(), Inferrer(model, OpRegistry()))


def run(model: onnx.ModelProto, feeds: dict[str, Any], base_dir: Path) -> list[Any]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(base_dir)
    )
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = {entry.name for entry in session.get_inputs()}
    return session.run(None, {name: value for name, value in feeds.items() if name in names})


def feeds_of(path: Path, model: onnx.ModelProto) -> list[dict[str, Any]]:
    actual = sorted((path.parent / "feeds").glob(f"{path.stem}.*.npz")) or sorted(
        (path.parents[1] / "feeds").glob(f"{path.stem}.*.npz")
    )
    if actual:
        return [dict(np.load(file)) for file in actual]
    rng = np.random.default_rng(0)
    value = {tensor.name for tensor in model.graph.initializer}
    shapes = {
        entry.name: [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        for entry in model.graph.input
        if entry.name not in value
    }
    return [{name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}]


def assert_cleaned(path: Path, *, numbers: bool = True) -> CleanUpResult:
    original = onnx.load(path, load_external_data=False)
    model = load(path)
    mark = model.mark()
    result = clean_once(model)
    model.check()
    assert clean_once(model).total == 0
    model.undo(mark)
    model.check()
    assert model.flush().SerializeToString() == original.SerializeToString()
    assert clean_once(model) == result
    output = model.flush()
    assert (
        len(output.graph.node) < len(original.graph.node)
        or not result.dead_nodes + result.identities
    )
    if path.name != "external.onnx":
        onnx.checker.check_model(output)
    for feeds in feeds_of(path, original) if numbers else []:
        for before, after in zip(
            run(original, feeds, path.parent), run(output, feeds, path.parent), strict=True
        ):
            np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-4, strict=True)
    return result


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_models(path: Path) -> None:
    assert_cleaned(path)


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize(
    "path", sorted((CORPUS / "models").glob("*.onnx")), ids=lambda path: path.stem
)
def test_corpus(path: Path) -> None:
    assert_cleaned(path, numbers=False)  # tests/test_corpus.py compares the numbers


def test_total_is_zero_exactly_if_nothing_changed() -> None:
    assert not CleanUpResult(grown=0).total
    assert CleanUpResult(1, 2, 3, 4, 5, 6).total == 15


def test_the_result_does_not_depend_on_hashing(tmp_path: Path) -> None:
    script = (
        "import sys, hashlib\n"
        "from gehost.infer import Inferrer, infer_model\nfrom gehost.ir.model import Model\n"
        "from gehost.ops import OpRegistry\nfrom gehost.passes.cleanup import clean_up\n"
        "model = Model.load(sys.argv[1])\ninfer_model(model)\n"
        "print(clean_up(model, OpRegistry(), Inferrer(model, OpRegistry())))\n"
        "print(hashlib.sha256(model.flush().SerializeToString()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script, str(MODELS / "llama.ts17.onnx")],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(outputs) == 1


def test_a_clean_up_within_a_transaction() -> None:
    """What was there before the mark stays, what the clean-up did goes."""
    model = Model(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { a = Identity(x)  y = Neg(a) }'
        )
    )
    added = model.graph.add_node("Exp", [model.graph.values["x"]], ["extra"], name="added")
    mark = model.mark()
    assert clean_once(model).total == 2
    model.undo(mark)
    assert [node.op for node in model.graph.nodes] == ["Exp", "Identity", "Neg"]
    assert added.in_graph
    model.check()


@pytest.mark.parametrize(
    "node",
    [
        "a = Transpose <perm = 5> (w)",
        'a = Transpose <perm = "x"> (x)',
        'a = Cast <to = "FLOAT"> (w)',
        "a = ConstantOfShape <value = 3> (s)",
        'a = Shape <start = "x"> (x)',
        "a = Gather(s)",
        'a = Gather <axis = "x"> (s, s)',
        'a = Gather <axis = "x"> (w, s)',
        "a = Squeeze <axes = 3> (w)",
        "a = Concat <axis = [1]> (w, w)",
        "a = Slice(w)",
        "a = Split(w)",
        "a = Add(w)",
        "a = Add(w, w, w)",
        "a = CastLike(w)",
        "a = Range(s)",
        "a = Reshape(w)",
        "a = Reshape(x)",
        "a = Expand(x)",
        "a = Where(w, w)",
        "a = Size()",
        "a = Shape()",
        "a = Identity()",
        "a = Dropout()",
        "a = Concat()",
        "a = Min()",
        "a = Constant()",
        "a = If(c)",
        "a = Loop()",
    ],
)
def test_invalid_nodes_are_left_to_whoever_checks(node: str) -> None:
    model = Model(
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21]> g (float[2] x, bool c) => (float[2] y) '
            f"<float[2] w = {{1, 2}}, int64[2] s = {{1, 1}}> {{ {node}  b = Neg(x)  y = Add(a, b) }}"
        )
    )
    before = [entry.op for entry in model.graph.nodes]
    assert clean_once(model).folded == 0
    assert [entry.op for entry in model.graph.nodes] == before
    model.check()
