"""A host with this vendor's passes on, and its kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions

OWN = Path(__file__).parents[3] / "vendors" / "onnxruntime"


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host with this vendor alone, all of its passes on, for models whose sizes are not 0."""
    root = tmp_path_factory.mktemp("vendors")
    (root / OWN.name).symlink_to(OWN)
    names = [spec.name for spec in Host(HostOptions(vendors=[root], plugins=False)).passes]
    options = HostOptions(vendors=[root], plugins=False, enable=names, assume=["no-empty-inputs"])
    return Host(options)


@pytest.fixture(scope="session")
def run() -> Callable[[onnx.ModelProto, Any], dict[str, Any]]:
    """Run a model with all of the runtime's optimizations."""
    onnxruntime = pytest.importorskip("onnxruntime")

    def running(result: onnx.ModelProto, argument: Any) -> dict[str, Any]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            result.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, argument), strict=True))

    return running


def capped(inputs: Any, first: float = 2.0, second: float = 2.0) -> Any:
    """The same with scores first · tanh(scores / second)."""
    place = next(n for n, node in enumerate(inputs.graph.node) if "s" in node.output)
    inputs.graph.node[place].output[0] = "uncapped"
    for name, number in (("cap1", first), ("cap2", second)):
        inputs.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(number, np.float32), name)
        )
    for item in (
        onnx.helper.make_node("Mul", ["tanh", "cap1"], ["s"]),
        onnx.helper.make_node("Tanh", ["divided"], ["tanh"]),
        onnx.helper.make_node("Div", ["uncapped", "cap2"], ["divided"]),
    ):
        inputs.graph.node.insert(place + 1, item)
    return inputs
