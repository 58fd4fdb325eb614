"""The sizes of shipped rewrites: which the host proves, and which authors vouch for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from gehost import Host, HostOptions
from gehost.verify import compare
from tests.vendors import like_exports

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "models"
VOUCHED = {
    "add_to_sum.py",  # two names that are broadcast together
    "sum_apart.py",  # likewise
    "decompose_grouped_conv.py",  # the spatial sizes that a Conv makes
    "remove_add_zero_in_custom_op.py",  # an operator of which nothing is known
    "projections.py",  # gpt2.ts: rows restored over computed sizes
    "fold_into_weights.py",  # the spatial sizes that a Conv makes
    "conv_activation.py",  # likewise
    "slices_to_split.py",  # the axis, which inference leaves open behind a Slice
}
OFF = ("FlattenBatchMatMulAddPass", "MoveReluBeforeConcatPass", "DecomposeGroupedConvPass")


def test_authors_vouch_only_where_the_host_cannot_prove() -> None:
    results = {
        path.name
        for vendor in ("ascend", "onnx", "onnxruntime", "openxla", "paddle")
        for path in (ROOT / "vendors" / vendor).rglob("*.py")
        if "shape_proven=True" in path.read_text().replace(" ", "")
    }
    assert results == VOUCHED


@pytest.mark.parametrize("name", ["bert.ts17", "bert.dyn20", "gpt2.ts17", "llama.ts17", "vit.ts17"])
def test_no_rewrite_of_a_model_is_unproven(name: str, tmp_path: Path) -> None:
    assert_proven(ROOT / "tests" / "models" / f"{name}.onnx", tmp_path)


@pytest.mark.parametrize(("name", "projections"), [("clip", 8), ("swin", 8)])
def test_no_rewrite_of_a_like_export_is_unproven(
    name: str, projections: int, tmp_path: Path
) -> None:
    onnx.save(getattr(like_exports, name)(), tmp_path / "m.onnx")
    rewrites = assert_proven(tmp_path / "m.onnx", tmp_path)
    assert rewrites["FlattenBatchMatMulAddPass"] == projections
    assert compare(tmp_path / "m.onnx", tmp_path / "out.onnx").equal


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="no ../shared/corpus")
@pytest.mark.parametrize("name", ["bert_sdpa.ts", "vit.ts"])
def test_no_rewrite_of_a_corpus_model_is_unproven(name: str, tmp_path: Path) -> None:
    rewrites = assert_proven(CORPUS / f"{name}.onnx", tmp_path)
    assert rewrites["FlattenBatchMatMulAddPass"] == 72


def assert_proven(path: Path, folder: Path) -> dict[str, int]:
    """Compile with the shipped vendors but those for ONNX Runtime; returns rewrites by pass."""
    for vendor in ("ascend", "onnx", "openxla", "paddle"):
        (folder / "vendors").mkdir(exist_ok=True)
        (folder / "vendors" / vendor).symlink_to(ROOT / "vendors" / vendor)
    host = Host(HostOptions(vendors=[folder / "vendors"], enable=OFF))
    report = host.compile(path, folder / "out.onnx")
    assert {
        record.name: dict(record.rejected)
        for record in report.passes
        if record.rejected.get("unproven")
    } == {}
    rewrites = {record.name: record.replaced for record in report.passes}
    assert sum(rewrites.values()) > 0
    return rewrites
