"""A new directory of files, written whole or not at all.

Existing files are never overwritten.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gehost.errors import OutputError, UsageError


def check_fresh(path: str) -> None:
    """Refuse a directory that cannot be written, before any work is done.

    Raises:
        UsageError: the path exists and is not an empty directory, or its parent does not exist.
    """
    if "\0" in path or not path:
        raise UsageError(
            f"{path!r} is not a directory name", hint="name one that does not exist yet"
        )
    target = Path(path)
    if os.path.lexists(path) and not (
        target.is_dir() and not target.is_symlink() and not any(target.iterdir())
    ):
        raise UsageError(
            "exists already and is kept as it is",
            where=path,
            hint="remove it or name another directory",
        )
    if not target.absolute().parent.is_dir():
        raise UsageError(
            f"there is no directory {target.absolute().parent}", where=path, hint="create it first"
        )


def free_name(stem: str) -> str:
    """Return the first free name of ``stem``, ``stem-2`` and so on."""
    names = (stem if number == 1 else f"{stem}-{number}" for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def fresh_directory(path: str) -> Generator[Path]:
    """Yield a new directory to fill.

    It gets its name ``path`` when the block ends without error.

    After an error it is removed.

    Raises:
        UsageError: as ``check_fresh``.
        OutputError: the directory cannot be written.
    """
    check_fresh(path)
    target = Path(path).absolute()
    temporary = target.parent / f".gehost-{os.urandom(8).hex()}.tmp"
    try:
        temporary.mkdir()
        yield temporary
        os.rename(temporary, target)
    except OSError as error:
        raise OutputError(
            f"cannot write {path!r}: {error.strerror or error}; the directory was removed"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
