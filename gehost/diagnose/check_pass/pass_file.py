"""Find the passes of a vendor file or directory.

Each gets a host that runs it alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gehost.diagnose.check_pass.trial import BY_RULE, Comparing, Trial
from gehost.diagnose.check_pass.verdict import Finding, PassCheck, Wrong
from gehost.errors import UsageError
from gehost.host.host import Host
from gehost.host.loaded import REGISTERS_NOTHING
from gehost.host.registry import Unregistered
from gehost.host.vendors import PASSES_DIR, broken_link
from gehost.location import SourceLocation
from gehost.options import HostOptions
from gehost.settings import NO_OPTIONS
from gehost.spelling import nearest


class PassFile(NamedTuple):
    """The passes of a vendor file or directory."""

    unregistered: list[PassCheck]
    """A finding for each class that looks like a pass and is not registered."""
    trials: Iterator[Trial]


def read_pass_file(
    file: str | os.PathLike[str],
    vendors: Sequence[str] = (),
    name: str | None = None,
    settings: Mapping[str, Any] = NO_OPTIONS,
    comparing: Comparing = BY_RULE,
    paths: Sequence[str] = (),
) -> PassFile:
    """Return a trial for each pass of a vendor file or directory.

    Args:
        file: ``<vendors>/<vendor>/custom_fusion_passes/<file>.py``, a package there, that
            directory, that of the vendor, or a directory of vendors.
        vendors: directories of vendors to load; default: the one that ``file`` is in.
        name: only this pass.
        settings: options of the passes, by ``PASS.option``.
        comparing: how numbers are compared.
        paths: files and directories of passes that belong to no vendor; where ``file`` is among
            them, the host loads them.

    Raises:
        UsageError: the file or pass does not exist, or the host does not load the file.
        VendorError: a vendor file cannot be loaded.
    """
    path = Path(os.path.abspath(file))
    if not path.exists():
        beside = os.listdir(path.parent) if path.parent.is_dir() else []
        message = broken_link(path) or f"no such file{_meant(path.name, beside)}"
        raise UsageError(message, where=file)
    loaded = [argument for argument in paths if path.is_relative_to(os.path.abspath(argument))]
    roots = list(vendors) if vendors or loaded else [_directory_of_vendors(path)]
    host = Host(HostOptions(vendors=roots, pass_paths=loaded, settings=settings))
    # the __init__.py of a package stands for the whole package
    folder = os.path.realpath(path.parent if path.name == "__init__.py" else path)

    def is_inside(origin: str) -> bool:
        place = os.path.realpath(SourceLocation.parse(origin).path)
        return f"{place}{os.sep}".startswith(f"{folder}{os.sep}")

    specs = [spec for spec in host.passes if is_inside(spec.origin)]
    suspects = [class_ for class_ in host.unregistered if is_inside(class_.origin)]
    if not specs and not suspects:
        skipped = next((line for line in host.skipped if line.startswith(f"{path}: ")), None)
        message = skipped or f"{file}: {REGISTERS_NOTHING}"
        place = ""
        if vendors and not skipped:
            place = f"; it must be below {os.fspath(vendors[0])}, or in ASCEND_GE_PY_PASS_PATH"
        raise UsageError(f"{message}{place}")
    names = [class_.name for class_ in (*specs, *suspects)]
    if name is not None and name not in names:
        choices = f"; it has {', '.join(names)}"
        raise UsageError(f'it has no pass "{name}"{_meant(name, names) or choices}', where=file)
    return PassFile(
        [_finding(class_) for class_ in suspects if name in (None, class_.name)],
        (Trial(host, spec, comparing) for spec in specs if name in (None, spec.name)),
    )


def _finding(suspect: Unregistered) -> PassCheck:
    finding = Finding(Wrong.NOT_REGISTERED, "", "", suspect.advice)
    return PassCheck(suspect.name, suspect.origin, findings=[finding])


def _directory_of_vendors(path: Path) -> Path:
    for parent in (path, *path.parents):
        if parent.name == PASSES_DIR:
            return parent.parent.parent
    if (path / PASSES_DIR).is_dir():
        return path.parent
    if any(path.glob(f"*/{PASSES_DIR}")):
        return path
    raise UsageError(
        f"the host loads files below VENDOR/{PASSES_DIR} only",
        where=path,
        hint="move it there, as `gehost new` does, or name it in ASCEND_GE_PY_PASS_PATH",
    )


def _meant(name: str, names: Sequence[str]) -> str:
    near = nearest(name, names)
    return f'; did you mean "{near[0]}"?' if near else ""
