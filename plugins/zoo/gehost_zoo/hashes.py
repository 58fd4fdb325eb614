"""Hashes of models, vendors and options; equal ones mean that a result still holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence

from gehost import external_files, shipped_directory


def model_files(path: str) -> list[str]:
    """The files whose bytes make a model: its own and those of its weights."""
    beside: list[str] = []
    if path.endswith(".onnx"):
        try:
            beside = external_files(path)
        except Exception:  # noqa: BLE001 - the compile reports a file that is no model
            beside = []
    return [path, *(name for name in beside if os.path.isfile(name))]


def vendor_files(roots: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The files below the directories of vendors: place ``<number>/<path>`` and path."""
    for number, root in enumerate(roots):
        root = shipped_directory(root) or root
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not name.endswith(".pyc"):
                    yield f"{number}/{os.path.relpath(path, root)}", path


def hash_files(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over names and bytes of files; one that cannot be read counts as absent."""
    digest = hashlib.sha256()
    for name, path in files:
        try:
            with open(path, "rb") as file:
                text = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            text = "absent"
        digest.update(f"{text} {name}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def hash_model(path: str) -> str:
    """SHA-256 of a model and its weights."""
    return hash_files((os.path.basename(file), file) for file in model_files(path))


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
