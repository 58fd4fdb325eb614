"""The page about a run: one static file, no network; a script sorts its tables.

Every text goes through autoescape and ``_shown``: names of models and passes stay text.
"""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gehost import OutputError, printable
from gehost import __version__ as gehost_version
from gehost_zoo.summary import Comparison, failures, summarize_passes
from gehost_zoo.work import Record

_MOST_EXTREME = 10
"""Models of the lists of the slowest and the largest."""
_MOST_LISTED = 100


def write_page(path: str, text: str) -> None:
    """Write the page whole or not at all.

    Raises:
        OutputError: it cannot be written.
    """
    target = Path(path).absolute()
    try:
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=".zoo-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
            os.chmod(beside, 0o644)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=path) from error


def render(
    path: str,
    directory: str,
    records: Sequence[Record],
    invalid: Sequence[str],
    comparison: Comparison | None,
    against: str | None,
) -> str:
    """The page's text; links are relative to its place."""
    environment = Environment(
        loader=PackageLoader("gehost_zoo", ""),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = cast("dict[str, Any]", environment.filters)
    filters.update(count=_count, seconds=_seconds, size=_size, plural=_plural)
    folder = os.path.relpath(os.path.join(directory, "reports"), os.path.dirname(path) or ".")

    def report_link(record: Record) -> str:
        return quote(os.path.join(folder, record["report"]))

    style, script = (
        files("gehost_zoo").joinpath(name).read_text(encoding="utf-8")
        for name in ("page.css", "page.js")
    )
    failed = failures(records)
    successes = [record for record in records if not record["exit_code"]]
    return environment.get_template("page.html.jinja").render(
        directory=directory,
        version=gehost_version,
        style=Markup(style),  # noqa: S704 - the package's own file
        style_hash=_digest(style),
        script=Markup(script),  # noqa: S704 - the package's own file
        script_hash=_digest(script),
        records=[*failed, *successes],
        prefix=_common_prefix([record["model"] for record in records]),
        failed=failed,
        done=successes,
        invalid=invalid,
        passes=summarize_passes(records),
        slowest=_most(successes, _cpu),
        largest=_most(successes, _size_of_file),
        comparison=comparison,
        against=against,
        report_link=report_link,
        most_listed=_MOST_LISTED,
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _cpu(record: Record) -> float:
    return record["measured"]["cpu"]


def _size_of_file(record: Record) -> int:
    return record.get("bytes", 0)


def _most(records: Sequence[Record], measure: Callable[[Record], float]) -> list[Record]:
    return sorted(records, key=lambda record: (-measure(record), record["model"]))[:_MOST_EXTREME]


def _common_prefix(names: Sequence[str]) -> str:
    """The folder that all names have in common, with its slash; "" where there is none."""
    if len(names) < 2:
        return ""
    folders = [os.path.dirname(name).split("/") for name in names]
    shared = list(takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False)))
    return "".join(f"{parts[0]}/" for parts in shared) if folders[0] != [""] else ""


def _count(number: int) -> str:
    return f"{number:,}"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _plural(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def _shown(value: Any) -> Any:
    """Texts without control or formatting characters."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\n".join(map(printable, value.split("\n")))
