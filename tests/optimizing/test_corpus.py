"""What ``--for any`` writes of the corpus runs as the model did, in three runtimes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gehost
from gehost import optimizing
from gehost.verify import Runner, compare_outputs
from tests.validity import CORPUS, feeds_of

FILES = sorted((CORPUS / "models").glob("*.onnx"))
SLOW_IN_REFERENCE = ("light_vgg19", "light_densenet121", "light_inception", "light_zfnet512")
"""Convolutions of full size, which onnx.reference takes minutes for."""


def _ways() -> dict[str, Callable[[Path, Any], dict[str, Any]]]:
    results: dict[str, Callable[[Path, Any], dict[str, Any]]] = {
        "ONNX Runtime": lambda path, feeds: Runner(path).run(feeds),
        "onnx.reference": lambda path, feeds: Runner(path, engine="reference").run(feeds),
    }
    openvino = optimizing.targets()["openvino"]
    if not openvino.missing():

        def in_openvino(path: Path, feeds: Any) -> dict[str, Any]:
            run = openvino.loaded(str(path))
            assert run is not None
            return run(feeds)

        results["OpenVINO"] = in_openvino
    return results


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_any_writes_runs_as_the_model_did(path: Path, tmp_path: Path) -> None:
    result = tmp_path / "r.onnx"
    gehost.optimize(path, "any", measured=False, output=result)
    for name, run in _ways().items():
        if name == "onnx.reference" and path.stem.startswith(SLOW_IN_REFERENCE):
            continue
        for feeds in feeds_of(path):
            try:
                expected = run(path, feeds)
            except Exception:  # noqa: BLE001 - where the model does not run, nothing is asked
                continue
            for one in compare_outputs(expected, run(result, feeds), rtol=1e-3, atol=1e-4):
                assert one.equal, f"{name}, {one.place}: {one.reason or (one.a, one.b)}"
