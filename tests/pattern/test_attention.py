"""One pattern of less than thirty lines finds the attention of five models of the corpus."""

from __future__ import annotations

import inspect
from pathlib import Path

import onnx
import pytest

from gehost import es
from gehost.es.graph import EsGraphBuilder
from gehost.ir.model import Model
from gehost.pattern.match import PatternMatcher
from gehost.pattern.pattern import Pattern

MODELS = Path(__file__).parents[3] / "shared" / "corpus" / "models"


def attention():
    """softmax(q kᵀ · scale + mask) v, with the scale at the scores, or a root of it at q and k."""
    builder = EsGraphBuilder("attention")
    q, k, v, mask = builder.CreateInputs("q", "k", "v", "mask")
    scale, root_q, root_k = (builder.CreateScalar(1.0) for _ in range(3))
    k_t = es.Alternatives(
        es.constrain(es.Transpose(k), perm=[0, 2, 3, 1]),
        es.constrain(es.Transpose(k), perm=[0, 1, 3, 2]),
        k,
    )
    scores = es.MatMul(
        es.Optional(lambda x: es.Mul(x, es.Name("root_q", root_q)), q),
        es.Optional(lambda x: es.Mul(x, es.Name("root_k", root_k)), k_t),
    )
    scores = es.Optional(lambda x: es.AnyOf("Mul", "Div")(x, es.Name("scale", scale)), scores)
    scores = es.Optional(lambda x: es.Commutative(es.Add(x, mask)), scores)
    weights = es.constrain(es.Softmax(scores), axis=-1)
    weights = es.Optional(es.Cast, es.Optional(es.Cast, weights))
    return Pattern(builder.BuildAndReset(es.MatMul(weights, v)))


FOUND = {
    "bert.ts": (12, {"mask", "scale"}),
    "gpt2.ts": (12, {"mask", "scale"}),
    "llama.ts": (16, {"mask", "scale"}),
    "vit.ts": (12, {"scale"}),
    "t5_encoder.ts": (12, {"mask", "root_q", "root_k"}),
}


def test_the_pattern_is_short():
    assert len(inspect.getsource(attention).splitlines()) <= 30


@pytest.mark.corpus
@pytest.mark.parametrize("name", FOUND)
def test_one_pattern_finds_the_attention_of_a_model(name):
    if not (path := MODELS / f"{name}.onnx").exists():
        pytest.skip("no corpus")
    model = Model(onnx.load(path, load_external_data=False))
    count, parts = FOUND[name]
    actual = list(PatternMatcher(attention(), model))
    assert len(actual) == count
    for match in actual:
        assert {part for part in ("mask", "scale", "root_q", "root_k") if part in match} == parts
        assert match["q"].name != match["k"].name
