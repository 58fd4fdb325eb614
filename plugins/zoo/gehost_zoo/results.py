"""``zoo.jsonl``: one line a model, appended whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gehost import OutputError, UsageError
from gehost_zoo.work import Record

NAME = "zoo.jsonl"


def read_results(directory: str) -> dict[str, Record]:
    """Read the results of a run by model; an incomplete last line is none.

    Raises:
        UsageError: there are none, or a line is no result.
    """
    path = Path(directory, NAME)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"no results there: {error.strerror}", where=path) from error
    records: dict[str, Record] = {}
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        try:
            record: Any = json.loads(line)
            if not {"status", "hashes", "exit_code"} <= record.keys():
                raise KeyError
            records[record["model"]] = record
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UsageError(
                "this is no result of a model",
                where=f"{path}:{number}",
                hint="remove it",
            ) from error
    return records


def _lock(directory: str) -> int:
    """Open a directory for one run; its end, however it comes, frees the directory.

    Raises:
        UsageError: another run has it open.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError("another run writes there", where=directory) from error
    except OSError:
        pass  # a file system without locks, as some over a network
    return descriptor


class ResultFile:
    """The results of a run in its directory, open for more."""

    def __init__(self, directory: str, records: list[Record]) -> None:
        """Begin the file with results that are kept.

        Raises:
            UsageError: another run has the directory open.
            OutputError: it cannot be written.
        """
        self.path = str(Path(directory, NAME))
        beside = f"{self.path}.new"
        with ExitStack() as stack:
            try:
                os.makedirs(directory, exist_ok=True)
                stack.callback(os.close, _lock(directory))
                self._descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            except OSError as error:
                why = f"cannot be written: {error.strerror}"
                raise OutputError(why, where=self.path) from error
            stack.callback(os.close, self._descriptor)
            self._size = 0
            try:
                for record in records:
                    self.append(record)
                os.replace(beside, self.path)
            except BaseException:
                os.unlink(beside)
                raise
            self._open = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._open.close()

    def append(self, record: Record) -> None:
        """Append a result as one complete line.

        Raises:
            OutputError: there is no space for it; the file is as before.
        """
        line = json.dumps(record, ensure_ascii=False).encode(errors="surrogateescape") + b"\n"
        count = 0
        try:
            while count < len(line):
                count += os.write(self._descriptor, line[count:])
        except BaseException as error:
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            if isinstance(error, OSError):
                raise OutputError(
                    f"cannot be written: {error.strerror}",
                    where=self.path,
                    hint="--resume continues when there is space",
                ) from error
            raise
        self._size += len(line)


def is_done(record: Record, hashes: dict[str, str], limits: Record, *, paged: bool) -> bool:
    """Whether a result stands for a model: its hashes match, and the limits that it exceeded."""
    return (
        record["hashes"] == hashes
        and record.get("limits", limits) == limits
        and (not paged or "report" in record or "limits" in record)
    )
