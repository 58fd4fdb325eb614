"""Vendors that installed packages ship.

``gehost:onnx`` names the entry point ``onnx`` of gehost.

A package lists its vendors in the entry point group ``gehost.vendors``. Each value is the path of
a vendor's directory, the one that holds ``custom_fusion_passes``; the entry point's name is the
vendor's. The vendors in ``gehost.default_vendors`` are used by the command line by default.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

from gehost.errors import UsageError, VendorError, described
from gehost.spelling import hint

GROUP = "gehost.vendors"
DEFAULT_GROUP = "gehost.default_vendors"

_SPELLING = re.compile(r"[A-Za-z0-9][\w.-]+:[\w.-]+")
_REGISTRATION = re.compile(
    r"^@(?:REG_|Register|\w+\.rule\b)(?:.*\n)+?(?:class|def) (\w+)", re.MULTILINE
)


def shipped_vendors(group: str = GROUP) -> list[str]:
    """List the vendors of installed packages, as ``PACKAGE:VENDOR``."""
    return sorted({_spelled(entry) for entry in entry_points(group=group)})


def shipped_passes() -> dict[str, list[str]]:
    """Return the shipped vendors by the names of the passes that their files register."""
    vendors: dict[str, list[str]] = {}
    for vendor in shipped_vendors():
        for file in sorted((shipped_directory(vendor) or Path()).rglob("*.py")):
            for name in _REGISTRATION.findall(file.read_text(encoding="utf-8")):
                vendors.setdefault(name, []).append(vendor)
    return vendors


def shipped_directory(root: str | os.PathLike[str]) -> Path | None:
    """Return the directory of ``PACKAGE:VENDOR``, None for a path.

    Raises:
        UsageError: no installed package ships this vendor.
        VendorError: its entry point cannot be loaded, or is no path of a vendor.
    """
    text = os.fspath(root)
    if not _SPELLING.fullmatch(text) or os.path.exists(text):
        return None
    entries = {_spelled(entry): entry for entry in entry_points(group=GROUP)}
    if text not in entries:
        listing = ", ".join(sorted(entries)) or "none"
        raise UsageError(
            "no installed package ships this vendor"
            + (hint(text, entries) or f"; there are {listing}"),
            where=text,
        )
    try:
        result: str | os.PathLike[str] = entries[text].load()
        return Path(result)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise VendorError(
            f"the entry point {entries[text].value} is no path of a vendor: {described(error)}",
            where=text,
        ) from error


def shipped_files(name: str) -> list[Path]:
    """Return the files of a name that packages with vendors hold beside them."""
    modules = sorted({entry.module for entry in entry_points(group=GROUP)})
    specs = [find_spec(module) for module in modules]
    folders = [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin]
    return [folder / name for folder in folders if (folder / name).is_file()]


def _spelled(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist is not None else ""
    return f"{package}:{entry.name}"
