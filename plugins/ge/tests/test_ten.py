"""Ten passes in GE's Python form fire on real models as their C++-named twins do."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from gehost import Host, HostOptions

from .conftest import replaced

HERE = Path(__file__).parent
CORPUS = HERE.parents[3] / "shared" / "corpus"
FIRES = {
    "llama.dynopt": {
        "SiluAsDivision": 16,
        "RsqrtAsDivision": 33,
        "SquareAsProduct": 33,
        "NegAsDifference": 32,
        "ScaleBeforeProduct": 16,
        "SoftmaxByLogarithm": 16,
    },
    "gpt2.dynopt": {
        "CubeAsProducts": 12,
        "GemmAsProduct": 48,
        "ScaleBeforeProduct": 12,
        "SoftmaxByLogarithm": 12,
    },
    "light_squeezenet": {"ReluAsMaximum": 25},
    "vit.dynopt": {"SumOfThree": 24, "ScaleBeforeProduct": 12, "SoftmaxByLogarithm": 12},
}
"""What the passes replace, by model."""

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus"),
]


@pytest.mark.parametrize("name", FIRES)
def test_ten_passes_fire_and_give_the_bytes_of_their_twins(name: str, tmp_path: Path) -> None:
    outputs: list[bytes] = []
    for source in ("ten_passes", "ten_twins"):
        file = tmp_path / f"{source}.py"
        file.write_text((HERE / f"{source}.py.txt").read_text())
        options = HostOptions(pass_paths=[file], cleanup=False, verify=True)
        report = Host(options).compile(CORPUS / "models" / f"{name}.onnx", tmp_path / "out.onnx")
        fired = {name: count for name, count in replaced(report).items() if count}
        assert fired == FIRES[name]
        assert report.verify
        assert report.verify["equal"]
        compiled = onnx.load(tmp_path / "out.onnx")
        for node in compiled.graph.node:
            del node.metadata_props[:]  # the vendor is the directory of the file
        outputs.append(compiled.SerializeToString(deterministic=True))
    assert outputs[0] == outputs[1]


def test_each_of_the_ten_fires() -> None:
    assert len({name for fires in FIRES.values() for name in fires}) == 10
