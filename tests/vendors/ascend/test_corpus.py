"""The vendor alone on the real models in which it finds something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions
from tests.shipped import EXAMPLES

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
FLATTENED = {"FlattenBatchMatMulAddPass": 72}
FIRED = {
    "bert.ts": FLATTENED,
    "bert.dyn": {**FLATTENED, "RemoveAddZeroPass": 2},
    "bert_sdpa.ts": FLATTENED,
    "bert_sdpa.dynopt": FLATTENED,
    "vit.ts": FLATTENED,
    "vit.dynopt": FLATTENED,
    "t5_encoder.ts": {"RemoveAddZeroPass": 1},
    "mobilenetv2.ts": {"DecomposeGroupedConvPass": 1},
    "mobilenetv2.dyn": {"DecomposeGroupedConvPass": 1},
    "light_bvlc_alexnet": {"DecomposeGroupedConvPass": 3, "MoveReluBeforeConcatPass": 3},
    "light_shufflenet": {"DecomposeGroupedConvPass": 32, "MoveReluBeforeConcatPass": 3},
}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here"),
]


@pytest.mark.parametrize("name", FIRED)
def test_fires_and_keeps_numbers(ascend, name):
    model = onnx.load(CORPUS / "models" / f"{name}.onnx")
    result, report = Host(HostOptions(vendors=[ascend.root], plugins=False, enable=EXAMPLES)).run(
        model
    )
    assert {record.name: record.replaced for record in report.passes if record.replaced} == FIRED[
        name
    ]
    for feeds in _feeds(ascend, model, name):
        for output, actual in zip(
            ascend.outputs(model, feeds), ascend.outputs(result, feeds), strict=True
        ):
            np.testing.assert_allclose(actual, output, rtol=1e-3, atol=1e-4)
    _, report = Host(HostOptions(vendors=[ascend.root], plugins=False, enable=EXAMPLES)).run(result)
    assert not any(record.replaced for record in report.passes)


def _feeds(ascend: Any, model: onnx.ModelProto, name: str) -> list[dict[str, Any]]:
    stored = sorted((CORPUS / "feeds").glob(f"{name}.?.npz"))
    return [dict(np.load(path)) for path in stored] or [ascend.feeds(model, {})]
