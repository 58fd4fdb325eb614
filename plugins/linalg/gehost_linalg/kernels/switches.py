"""Add a library of kernels to a switch file of ``gehost tune``, with its measurements."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gehost import tune, write_bytes_atomic
from gehost_linalg.kernels import ort
from gehost_linalg.kernels.measure import Gain
from gehost_linalg.passes import NAME

_PACKAGES = ("gehost", "onnx", "onnxruntime")


def add_library(
    path: str, library: str, gains: Mapping[str, Gain], over_original: Gain | None = None
) -> None:
    """Add a library to a switch file, or begin one; ``gehost.runtime_options`` then loads it.

    Args:
        path: the switch file.
        library: its absolute path is written, in place of the file's other libraries of kernels,
            as ONNX Runtime loads one of them into a session.
        gains: the measurement of each kernel, by name.
        over_original: the model with its kernels against the original.

    Raises:
        UsageError: the file is there and is no switch file.
        OutputError: it cannot be written.
    """
    content: dict[str, Any] = {"Switch": {"GraphFusion": {}}}
    if os.path.exists(path):
        tune.read_switch_file(path)
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    content["Switch"]["GraphFusion"][NAME] = "on"
    runtime = content["Switch"].setdefault("Runtime", {})
    place = os.path.abspath(library)
    others = [other for other in runtime.get("libraries", []) if other != place]
    runtime["libraries"] = [*[other for other in others if not _has_kernels(other)], place]
    here = tune.machine(_PACKAGES)
    evidence = content.setdefault("Evidence", {})
    evidence.setdefault("cpu", here.pop("cpu"))
    evidence.setdefault("versions", here)
    kinds = {f"kernel {name}": gain.as_dict() for name, gain in gains.items()}
    if over_original is not None:
        kinds["kernels over the original"] = over_original.as_dict()
    if kinds:
        evidence["kinds"] = {**evidence.get("kinds", {}), **kinds}
    write_bytes_atomic(path, (json.dumps(content, indent=2) + "\n").encode())


def _has_kernels(library: str) -> bool:
    try:
        return ort.MARK.encode() in Path(library).read_bytes()
    except OSError:
        return False
