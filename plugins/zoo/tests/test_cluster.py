"""``gehost zoo --dask`` on a scheduler and workers that are processes of their own."""

from __future__ import annotations

import gc
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pebble")
pytest.importorskip("distributed")

import gehost
from gehost_zoo import cluster as zoo_cluster
from gehost_zoo.engine import TRIES

from .cluster import cluster


def _files(directory: str) -> dict[str, bytes]:
    root = Path(directory, "models")
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_cluster_gives_what_one_process_gives(place: Any) -> None:
    for name in ("a", "kept", "wrong", "raise", "sub/b"):
        place.model(f"{name}.onnx")
    place.model("dynamic.onnx", size="N")
    Path("zoo.jsonl").write_text(
        '{"model": "models/dynamic.onnx", "name": "fixed", "dims": {"N": 3}}\n', encoding="utf-8"
    )
    arguments = ["models", "zoo.jsonl", "--verify"]
    assert place.zoo(*arguments, "-o", "one", "--jobs", "1") == 5
    other = place.root / "other" / "gehost-0.0.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: gehost\nVersion: 0.0.9\n")
    place.errors()
    with cluster(place.root / "dask") as dask:
        dask.worker("north")
        dask.worker("old", path=str(other.parent))
        dask.worker("south", nanny=True)
        while dask.logs().count("Registered to") < 3:
            assert all(process.poll() is None for process in dask.processes), dask.logs()
            time.sleep(0.1)
        assert place.zoo(*arguments, "-o", "two", "--dask", dask.address) == 5, dask.logs()
        errors = place.errors()
        assert place.zoo(*arguments, "-o", "three", "--dask", dask.address, "--send") == 5, (
            dask.logs()
        )
        best = ["models", "--optimize", "--for", "any", "--no-measure"]
        assert place.zoo(*best, "-o", "best", "--dask", dask.address, "--send") == 0, dask.logs()
        # its Dask worker dies with the first of these; the other one takes the model over
        place.model("more/a.onnx", "orphan")
        place.model("more/b.onnx")
        assert place.zoo("models/more", "-o", "four", "--dask", dask.address) == 0, dask.logs()
        assert (place.root / "flag").exists()
    (line,) = [line for line in errors.splitlines() if "worker" in line]
    assert line.startswith("gehost: worker old (tcp://127.0.0.1:")
    assert f"has gehost 0.0.9, this is {gehost.__version__}: it is left out" in line
    assert _files("one") == _files("two") == _files("three")
    assert set(_files("one")) == {
        "fixed.onnx",
        *(f"models/{name}.onnx" for name in ("a", "kept", "sub/b", "dynamic", "wrong.refused")),
    }
    assert place.results("one") == place.results("two") == place.results("three")
    assert {row["status"] for row in place.results("four").values()} == {"done"}
    assert len(_files("best")) == 6
    assert {row["numbers"]["equal"] for row in place.results("best").values()} == {True}


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", "foo://127.0.0.1:1"])
def test_a_scheduler_that_cannot_be_reached_is_one_line(
    place: Any, monkeypatch: Any, address: str
) -> None:
    monkeypatch.setattr(zoo_cluster, "_PATIENCE", 0.5)
    place.model("a.onnx")
    assert place.zoo("models", "-o", "out", "--dask", address) == 2
    gc.collect()  # a client that was not made to its end speaks when it is freed
    (line,) = place.errors().splitlines()
    assert line.startswith(f"gehost: --dask {address}: the scheduler cannot be reached: ")
    assert not Path("out").exists()


def test_a_model_whose_workers_die_runs_at_most_twice_again(place: Any) -> None:
    engine = object.__new__(zoo_cluster.DaskEngine)
    engine.__dict__.update(_starts=zoo_cluster.Counter(), _running={}, _address="tcp://x:1")
    task = Future[Any]()
    engine._running["a"] = task
    for number in range(TRIES):
        engine._started((float(number), "a"))
        assert not task.cancelled()
    engine._started((9.0, "a"))
    assert task.cancelled()
