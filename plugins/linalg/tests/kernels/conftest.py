"""One library for all numbers; without a C compiler its tests are skipped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from gehost import UsageError
from gehost_linalg.kernels.build import compiler
from gehost_linalg.kernels.library import Fused, write_library

from .cases import CASES
from .fused_models import fused_model


@pytest.fixture(scope="session")
def cc() -> str:
    try:
        return " ".join(compiler())
    except UsageError as error:
        pytest.skip(str(error))


@dataclass
class Built:
    model: Path
    library: Path
    found: Fused
    nodes: dict[str, int]
    """The number of each case's node."""


@pytest.fixture(scope="session")
def built(cc: str, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A model with a node for each case, and its library."""
    folder = tmp_path_factory.mktemp("kernels")
    model, library = folder / "fused.onnx", folder / "kernels.so"
    onnx.save(fused_model(list(CASES.values())), model)
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    result = write_library(str(model), str(library), march="x86-64-v3" if _is_x86() else "")
    patch.undo()
    return Built(model, library, result, {name: place for place, name in enumerate(CASES)})


def _is_x86() -> bool:
    import platform

    return platform.machine() == "x86_64"
