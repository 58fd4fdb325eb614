"""A run over a zoo: tasks from entries, an engine, results that are appended as they come."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from gehost import GehostError, HostOptions, UsageError, shipped_directory
from gehost import __version__ as gehost_version
from gehost_zoo.engine import Engine, Limits
from gehost_zoo.hashes import hash_files, hash_model, hash_text, vendor_files
from gehost_zoo.manifest import Entry
from gehost_zoo.results import ResultFile, is_done
from gehost_zoo.work import Record, Task


class Tasks:
    """Makes the tasks of a run: options of the run and of the entry, and hashes."""

    def __init__(
        self,
        directory: str,
        options: HostOptions,
        *,
        paged: bool,
        optimize: Record | None = None,
    ) -> None:
        self._optimize = "" if optimize is None else json.dumps(optimize, sort_keys=True)
        self._directory = os.path.abspath(directory)
        self._paged = paged
        settings = options.as_dict()
        settings["vendors"] = [
            str(root) if shipped_directory(root) else os.path.abspath(root)
            for root in settings["vendors"]
        ]
        settings["ort_libraries"] = [os.path.abspath(path) for path in settings["ort_libraries"]]
        if settings["fusion_switch_file"]:
            settings["fusion_switch_file"] = os.path.abspath(settings["fusion_switch_file"])
        self._options: Record = settings
        self._vendors = hash_files(vendor_files(settings["vendors"]))
        named = [*settings["ort_libraries"], settings["fusion_switch_file"]]
        self._files = hash_files((str(path), path) for path in named if path)

    def of(self, entry: Entry) -> Task:
        """The task of an entry; reads the model's bytes for their hash."""
        options: Record = {**self._options, **entry.options, "dims": {}, "feeds": None}
        dims = {**self._options["dims"], **entry.dims}
        feeds = entry.feeds if options["verify"] or self._optimize else None
        if not options["verify"]:
            options |= {"special_values": False, "rtol": None, "atol": None, "provider": "cpu"}
        feeds = None if feeds is None else os.path.abspath(feeds)
        text = json.dumps(options, sort_keys=True)
        parts = [gehost_version, text, json.dumps(dims, sort_keys=True), self._files]
        if self._optimize:
            parts.append(self._optimize)
        if feeds is not None:
            parts.append(hash_files([("feeds", feeds)]))
        path = os.path.abspath(entry.path)
        return Task(
            entry.name,
            path,
            self._directory,
            entry.output,
            f"{entry.output.removesuffix('.onnx')}.html" if self._paged else None,
            text,
            dims,
            feeds,
            {
                "model": hash_model(path),
                "vendors": self._vendors,
                "options": hash_text("\n".join(parts)),
            },
            self._optimize,
        )


def split_done(
    entries: list[Entry], tasks: Tasks, results: dict[str, Record], limits: Limits, *, paged: bool
) -> tuple[list[Record], list[Entry]]:
    """Separate the results that stand from the models that are left.

    Reads the models that have a result; the others are first read when their turn comes.
    """
    records: list[Record] = []
    pending: list[Entry] = []
    for entry in entries:
        record = results.get(entry.name)
        if record is not None and is_done(
            record, tasks.of(entry).hashes, limits.as_dict(), paged=paged
        ):
            records.append(record)
        else:
            pending.append(entry)
    return records, pending


def run_tasks(
    tasks: Iterator[Task],
    engine: Engine,
    results: ResultFile,
    finished: Callable[[Record], None],
) -> None:
    """Run tasks, few more at a time than the engine has room for; append each result.

    Raises:
        GehostError: the run cannot go on; appended lines stay.
    """
    pending: set[Future[Any]] = set()

    def flush() -> None:
        """Append the results that have come, after at most a second's wait for one."""
        nonlocal pending
        ended, pending = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
        if not ended:
            engine.check()
        failure: GehostError | None = None
        for future in ended:
            try:
                record = future.result()
            except GehostError as error:  # raised when the others are appended
                failure = failure or error
            else:
                results.append(record)
                finished(record)
        if failure is not None:
            raise failure

    for task in tasks:
        # a cluster's capacity is 0 while none of its workers is connected
        while pending and len(pending) >= 2 * engine.capacity:
            flush()
        pending.add(engine.submit(task))
    while pending:
        flush()


def exit_code(entries: list[Entry], results: dict[str, Record], invalid: list[str]) -> int:
    """Code of the first failed model, in the order of the entries; 2 if only lines are invalid."""
    codes = (results[entry.name]["exit_code"] for entry in entries)
    return next((code for code in codes if code), 2 if invalid else 0)


def check_directory(directory: str, entries: list[Entry], results: dict[str, Record]) -> None:
    """Refuse results of another zoo.

    Raises:
        UsageError: the directory has results of models that are not in this run.
    """
    names = {entry.name for entry in entries}
    others = [name for name in results if name not in names]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UsageError(
            f"holds the results of another zoo ({others[0]}{more} is not in this one)",
            where=directory,
            hint="name another directory",
        )
