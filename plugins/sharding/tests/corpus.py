"""The models of ../shared/corpus, where it is present, at the sizes of their first feeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx

from gehost import Host, HostOptions
from gehost.verify import load_feeds
from gehost_sharding.model_graph import ModelGraph

from .conftest import feeds_of

ROOT = Path(__file__).parents[3]
CORPUS = ROOT.parent / "shared" / "corpus"


def corpus() -> list[dict[str, Any]]:
    """Entries of the manifest; none where there is no corpus."""
    manifest = CORPUS / "manifest.json"
    return json.loads(manifest.read_text()) if manifest.exists() else []


def fixed_model(
    entry: dict[str, Any], *, compiled: bool = True
) -> tuple[ModelGraph, dict[str, Any]]:
    """A model of the corpus at the sizes of its first feeds, and these feeds."""
    model = onnx.load(CORPUS / entry["file"])
    feeds: dict[str, Any] = {}
    if entry.get("feeds"):
        feeds = load_feeds(CORPUS / "feeds" / entry["feeds"][0])
        for value in model.graph.input:
            for dim, size in zip(
                value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True
            ):
                dim.Clear()
                dim.dim_value = size
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        del model.graph.value_info[:]
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if compiled:
        model, _ = Host(HostOptions(vendors=[ROOT / "vendors"])).run(model)
    graph = ModelGraph(model)
    feeds = {name: feeds[name] for name in graph.inputs} if feeds else feeds_of(graph)
    return graph, feeds
