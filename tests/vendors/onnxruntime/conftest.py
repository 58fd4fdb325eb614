"""A host with this vendor's passes on, and its kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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
