"""Compile models on a Dask cluster: each Dask worker runs a ``LocalEngine``.

Dask schedules and moves models whose Dask worker died; limits and crashes are a matter of the
``LocalEngine``, as on one machine.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from distributed import Client, KilledWorker, get_worker
from distributed.comm.addressing import get_address_host_port

from gehost import GehostError, OutputError, UsageError, shipped_directory
from gehost import __version__ as own_version
from gehost_zoo.engine import TRIES, Limits, LocalEngine
from gehost_zoo.hashes import hash_files, hash_model, model_files, vendor_files
from gehost_zoo.work import LOST, Record, Task

_PATIENCE = 15.0
"""Seconds to wait for a scheduler and its first worker."""
_NO_WORKER = 60.0
"""Seconds without any worker after which a run ends."""

_MODEL = "sent-model"
"""Directory of a model that was sent."""

Files = dict[str, bytes]
"""Contents by relative path."""


class DaskEngine:
    """The workers of a Dask scheduler that have this version of gehost."""

    def __init__(
        self, address: str, limits: Limits, *, send: bool, tell: Callable[[str], None]
    ) -> None:
        """Connect and ask every worker for its version.

        Args:
            address: of the scheduler, as in ``tcp://host:8786``.
            limits: of each model.
            send: send models and vendors, and write the outputs here, instead of sharing paths.
            tell: takes a line for each worker that is refused.

        Raises:
            UsageError: the scheduler cannot be reached, or no worker can be used.
        """
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        self._limits, self._send, self._tell = limits, send, tell
        self._address = address
        self._client = _connect(address)
        self._topic = f"gehost-zoo-{uuid.uuid4().hex}"
        self._starts: Counter[str] = Counter()
        self._running: dict[str, Future[tuple[Record, Files]]] = {}
        self._checked: dict[str, bool] = {}
        """Whether a worker may be used, by address."""
        self._alone_since: float | None = None
        self._looked = float("-inf")
        self._found: list[str] = []
        try:
            self._wait_for_workers()
            self._client.subscribe_topic(self._topic, self._started)
        except BaseException:
            self._client.close()
            raise

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._usable():
            if time.monotonic() > deadline:
                raise UsageError(
                    "the scheduler has no worker that can be used",
                    subject=f"--dask {self._address}",
                    hint=f"start one: dask worker {self._address}",
                )
            time.sleep(0.2)

    def _usable(self) -> list[str]:
        """The addresses of the workers with this version; others are refused by name.

        Asks the scheduler once a second.
        """
        if time.monotonic() - self._looked < 1.0:
            return self._found
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        new = [address for address in workers if address not in self._checked]
        if new:
            versions = self._client.run(version, "gehost", workers=new, on_error="return")
            for address, answer in versions.items():
                self._checked[address] = answer == version("gehost")
                if not self._checked[address]:
                    theirs = f"gehost {answer}" if isinstance(answer, str) else "no gehost"
                    self._tell(
                        f"worker {workers[address]['name']} ({address}) has {theirs}, this is"
                        f" {own_version}: it is left out"
                    )
        usable = [address for address in workers if self._checked.get(address)]
        self.capacity = sum(workers[address]["nthreads"] for address in usable)
        self._looked, self._found = time.monotonic(), usable
        return usable

    def check(self) -> None:
        if self._usable():
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > _NO_WORKER:
            raise UsageError(
                "no worker is left",
                subject=f"--dask {self._address}",
                hint="--resume continues when there is one",
            )

    def submit(self, task: Task) -> Future[Record]:
        usable = self._usable()
        refuses = not all(self._checked.values())
        executor = self._client.get_executor(
            pure=False, **({"workers": usable} if refuses and usable else {})
        )
        files = packed(task) if self._send else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large arguments: they are the models
            inner = executor.submit(run_task, task, self._limits, own_version, self._topic, files)
        self._running[task.name] = inner
        outer: Future[Record] = Future()
        inner.add_done_callback(partial(self._finish, task, outer))
        return outer

    def _started(self, event: tuple[float, str]) -> None:
        """Count the starts of a model; one whose workers died runs at most twice again."""
        _, name = event
        self._starts[name] += 1
        if self._starts[name] > TRIES and name in self._running:
            self._running[name].cancel()

    def _finish(
        self, task: Task, outer: Future[Record], inner: Future[tuple[Record, Files]]
    ) -> None:
        """Turn the end of a Dask task into a record, its outputs written here."""
        try:
            if inner.cancelled():
                if self._starts[task.name] <= TRIES:
                    raise UsageError(
                        "the scheduler is gone",
                        subject=f"--dask {self._address}",
                        hint="--resume continues",
                    )
                record = _died(task)
            else:
                record, files = inner.result()
                _write(task.directory, files)
                if "sha256" in record and not Path(task.directory, "models", task.output).exists():
                    raise UsageError(
                        f"{record['measured']['worker']} wrote {task.directory}, which is not"
                        " this one; share the path, or give --send"
                    )
        except KilledWorker:
            record = _died(task)
        except GehostError as error:
            outer.set_exception(error)
            return
        except Exception as error:  # noqa: BLE001 - any error of a cluster ends the run
            outer.set_exception(
                UsageError(f"{type(error).__name__}: {error}", subject=f"--dask {self._address}")
            )
            return
        outer.set_result(record)

    def close(self) -> None:
        for future in list(self._running.values()):
            future.cancel()
        usable = [address for address, fits in self._checked.items() if fits]
        try:
            alive = set(self._client.scheduler_info(n_workers=-1)["workers"])
            self._client.run(
                close_site, workers=[a for a in usable if a in alive], on_error="ignore"
            )
        finally:
            self._client.close()


def _connect(address: str) -> Client:
    try:
        get_address_host_port(address)  # a client of what is no address hangs when it is freed
        return Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the scheduler cannot be reached: {error}", subject=f"--dask {address}"
        ) from error


def _died(task: Task) -> Record:
    return task.record("died", LOST, f"the Dask worker that compiled it died {TRIES} times")


# -- on a Dask worker ---------------------------------------------------------------------------


class _Site:
    """State of a Dask worker's process: an engine, and a directory for received files."""

    def __init__(self, threads: int, limits: Limits) -> None:
        # a nanny starts its workers as daemons, which may not start processes; those of the
        # engine end by themselves when the worker's end of their pipe closes
        current_process().daemon = False
        self.engine = LocalEngine(threads, limits)
        self.home = Path(tempfile.mkdtemp(prefix="gehost-zoo-"))
        self._lock = threading.Lock()

    def common(self, key: str, files: Files) -> Path:
        """The directory with the vendors' files of a run."""
        directory = self.home / key
        with self._lock:
            if not directory.exists():
                _write(str(self.home / "new"), files)
                (self.home / "new").mkdir(exist_ok=True)
                os.rename(self.home / "new", directory)
        return directory

    def close(self) -> None:
        self.engine.close()
        shutil.rmtree(self.home, ignore_errors=True)


_SITES: dict[Limits, _Site] = {}
_SITES_LOCK = threading.Lock()


def _site(limits: Limits) -> _Site:
    with _SITES_LOCK:
        if limits not in _SITES:
            _SITES[limits] = _Site(get_worker().state.nthreads, limits)
        return _SITES[limits]


def close_site() -> None:
    """End the processes of a Dask worker, and remove the files it received."""
    with _SITES_LOCK:
        while _SITES:
            _SITES.popitem()[1].close()


def run_task(
    task: Task, limits: Limits, version: str, topic: str, files: Files | None
) -> tuple[Record, Files]:
    """Compile a model on a Dask worker; returns its record, and the outputs where it was sent.

    Raises:
        UsageError: the worker has another version, or other files.
        OutputError: it cannot write the output.
    """
    worker = get_worker()
    if own_version != version:
        raise UsageError(
            f"worker {worker.name} has gehost {own_version}, this is {version}: stop it",
            hint="--resume continues",
        )
    worker.log_event(topic, task.name)
    site = _site(limits)
    if files is None:
        _check_shared(task, worker.name)
        return site.engine.run(task), {}
    return _run_sent(site, task, files)


def _check_shared(task: Task, name: Any) -> None:
    roots: list[str] = json.loads(task.options)["vendors"]
    advice = "share the path, or give --send"
    if hash_model(task.path) != task.hashes["model"]:
        raise UsageError(f"{task.path} has other bytes there; {advice}", subject=f"worker {name}")
    if _vendors_hash(tuple(roots), task.hashes["vendors"]) != task.hashes["vendors"]:
        raise UsageError(
            f"vendors {' '.join(roots)} differ there; {advice}", subject=f"worker {name}"
        )


@cache
def _vendors_hash(roots: tuple[str, ...], _wanted: str) -> str:
    return hash_files(vendor_files(roots))


# -- sending ------------------------------------------------------------------------------------


def packed(task: Task) -> Files:
    """The files that a task reads, for a worker that does not share them."""
    options = json.loads(task.options)
    folder = os.path.dirname(task.path)
    files = {f"{_MODEL}/{os.path.relpath(path, folder)}": path for path in model_files(task.path)}
    files |= {f"common/vendors/{place}": path for place, path in vendor_files(options["vendors"])}
    if task.feeds is not None:
        files["feeds.npz"] = task.feeds
    if options["fusion_switch_file"]:
        files["common/switches.json"] = options["fusion_switch_file"]
    for number, path in enumerate(options["ort_libraries"]):
        files[f"common/libraries/{number}/{os.path.basename(path)}"] = path
    try:
        return {place: Path(path).read_bytes() for place, path in files.items()}
    except OSError as error:
        raise UsageError(f"cannot be sent: {error.strerror}", where=error.filename) from error


def _run_sent(site: _Site, task: Task, files: Files) -> tuple[Record, Files]:
    """Compile a model from files that were sent; messages name the sender's paths."""
    shared = {place[7:]: content for place, content in files.items() if place.startswith("common/")}
    common = site.common(_key(shared), shared)
    options = json.loads(task.options)
    roots: list[str] = options["vendors"]
    options["vendors"] = [
        root if shipped_directory(root) else str(common / "vendors" / str(number))
        for number, root in enumerate(roots)
    ]
    if options["fusion_switch_file"]:
        options["fusion_switch_file"] = str(common / "switches.json")
    options["ort_libraries"] = [
        str(common / "libraries" / str(number) / os.path.basename(path))
        for number, path in enumerate(options["ort_libraries"])
    ]
    for root in options["vendors"]:
        if not shipped_directory(root):
            os.makedirs(root, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=site.home) as place:
        _write(
            place,
            {path: content for path, content in files.items() if not path.startswith("common/")},
        )
        model = os.path.join(place, _MODEL, os.path.basename(task.path))
        local = replace(
            task,
            path=model,
            directory=place,
            options=json.dumps(options),
            feeds=None if task.feeds is None else os.path.join(place, "feeds.npz"),
        )
        record = site.engine.run(local)
        outputs = {
            path.relative_to(place).as_posix(): path.read_bytes()
            for folder in ("models", "reports")
            for path in Path(place, folder).rglob("*")
            if path.is_file()
        }
    if "error" in record:
        received = [f"{_MODEL}/{os.path.basename(model)}", *options["vendors"]]
        for theirs, ours in zip(received, [task.path, *roots], strict=True):
            record["error"] = record["error"].replace(theirs, ours)
        record["replay"] = task.replay()
    return record, outputs


def _key(files: Files) -> str:
    digest = hashlib.sha256()
    for place, content in sorted(files.items()):
        digest.update(f"{place} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _write(directory: str, files: Files) -> None:
    """Write files below a directory, each whole.

    Raises:
        OutputError: one cannot be written.
    """
    for name, content in files.items():
        path = Path(directory, name)
        beside = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(content)
            os.replace(beside, path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise OutputError(f"cannot be written: {error.strerror}", where=path) from error
