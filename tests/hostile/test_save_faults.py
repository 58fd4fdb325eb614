"""An error or interrupt at every call to the operating system while saving leaves the old files, or the new ones, whole."""

from __future__ import annotations

import errno
import io
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest

from gehost.errors import GehostError
from gehost.ir.files import external, save
from gehost.ir.model import Model
from gehost.testing import parse

TEXT = """<ir_version: 8, opset_import: ["" : 17]> main (float[2, 3] x, float[3, 4] w, float[4] b) => (float[2, 4] y) {
    y = Gemm (x, w, b)
}"""


class Calls:
    """Counts calls; the one numbered ``at`` raises, before it is made or after."""

    def __init__(
        self, at: int = -1, error: BaseException | None = None, *, after: bool = False
    ) -> None:
        self.names: list[str] = []
        self._at, self._error, self._after = at, error, after

    def made(self, name: str, call: Any, *arguments: Any, **options: Any) -> Any:
        self.names.append(name)
        hit = len(self.names) - 1 == self._at
        if hit and not self._after:
            raise self._error  # type: ignore[misc]
        result = call(*arguments, **options)
        if hit:
            raise self._error  # type: ignore[misc]
        return result


class Watched:
    """A module whose functions are counted."""

    def __init__(self, module: ModuleType, calls: Calls) -> None:
        self._module, self._calls = module, calls

    def __getattr__(self, name: str) -> Any:
        actual = getattr(self._module, name)
        if isinstance(actual, ModuleType):
            return Watched(actual, self._calls)
        if actual is io.FileIO:
            return lambda *arguments: self._calls.made("open", _file_class(self._calls), *arguments)
        if not callable(actual) or isinstance(actual, type) or name == "fspath":
            return actual
        return lambda *arguments, **options: self._calls.made(name, actual, *arguments, **options)


def _file_class(calls: Calls) -> type[io.FileIO]:
    class File(io.FileIO):
        def close(self) -> None:
            if self.closed:
                super().close()
            else:
                calls.made("close", super().close)

    return File


def write_model(directory: Path, seed: int, *, embedded: bool) -> Path:
    generator = np.random.default_rng(seed)
    weights = {
        "w": generator.standard_normal((3, 4), np.float32),
        "b": generator.standard_normal(4, np.float32),
    }
    path = directory / f"m{seed}.onnx"
    proto = parse(TEXT, weights)
    onnx.save(
        proto, path, save_as_external_data=not embedded, location=f"m{seed}.bin", size_threshold=0
    )
    return path


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


ERRORS = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()]
LAYOUTS = [
    "embedded",
    "weights stay",
    "weights are copied",
    "weights are copied by hand",
    "weights are shared",
]


def cloned(_descriptor: int, _request: int, source: int) -> None:
    os.write(_descriptor, os.pread(source, 1 << 20, 0))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_failure_at_any_call_leaves_all_files_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, old: bool, after: bool
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    out.mkdir()
    directory = source if layout == "weights stay" else out
    target = directory / "out.onnx"
    model = Model.load(write_model(source, 0, embedded=layout == "embedded"))
    if old:
        Model.load(write_model(source, 1, embedded=layout == "embedded")).save(target)
    if layout != "weights are shared":
        monkeypatch.setattr(save, "_clone", lambda *_: False)
    else:
        import fcntl

        monkeypatch.setattr(fcntl, "ioctl", cloned)
    if layout == "weights are copied by hand":
        monkeypatch.setattr(
            os, "copy_file_range", lambda *_: (_ for _ in ()).throw(OSError(errno.EXDEV, "no"))
        )

    before, proto = files(directory), model.proto.SerializeToString()

    def saved(calls: Calls) -> Calls:
        with monkeypatch.context() as patch:
            patch.setattr(save, "os", Watched(os, calls))
            patch.setattr(save, "io", Watched(io, calls))
            patch.setattr(external, "os", Watched(os, calls))
            model.save(target)
        return calls

    def put_back() -> None:
        for name in files(directory).keys() - before.keys():
            (directory / name).unlink()
        for name, content in before.items():
            (directory / name).write_bytes(content)

    names = saved(Calls()).names
    new = files(directory)
    assert {"write", "fsync", "replace", "open", "close"} <= set(names)
    ends: dict[str, int] = {"old": 0, "new": 0}
    for at, name in enumerate(names):
        for error in ERRORS:
            put_back()
            with suppress(GehostError, KeyboardInterrupt, MemoryError):
                saved(Calls(at, error, after=after))
            actual = files(directory)
            # without its lock, a save leaves the weights of the earlier one
            unlocked = [{**before, **new}] if name in ("open", "flock", "listdir") else []
            assert actual in (before, new, *unlocked), (
                f"{error!r} {'after' if after else 'at'} call {at}, {name}: {sorted(actual)}"
            )
            assert model.proto.SerializeToString() == proto
            ends["new" if actual == new else "old"] += 1
    assert ends["old"] > ends["new"]
    saved(Calls())
    assert files(directory) == new
