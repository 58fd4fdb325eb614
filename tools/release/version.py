"""What must hold for a version before its changelog or its distributions are made."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from packaging.version import InvalidVersion, Version


def no_changelog(root: Path, version: str) -> str:
    """Return why CHANGELOG.md cannot get ``version``; "" if it can."""
    releases = re.findall(
        r"^## (\S+)", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    if version in releases:
        return f"CHANGELOG.md has {version}: raise __version__ of gehost/__init__.py first"
    if not [file for file in (root / "changes").glob("*.md") if file.name != "README.md"]:
        return "changes/ has no fragments: nothing to release"
    return no_normal_form(version)


def no_release(root: Path, version: str) -> str:
    """Return why the distributions cannot be built from the clone ``root``; "" if they can."""
    command = ["git", "-C", root, "status", "--porcelain"]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    if status.returncode:
        return f"a release is built from a clone: {status.stderr.strip()}"
    if status.stdout:
        return f"commit or remove these first, an sdist would have them:\n{status.stdout.rstrip()}"
    return no_normal_form(version)


def no_normal_form(version: str) -> str:
    """Return why a version is not in the normal form of PEP 440; "" if it is."""
    try:
        normal = str(Version(version))
    except InvalidVersion:
        return f"__version__ of gehost/__init__.py is {version!r}; wanted one as 0.3.0"
    if normal != version:
        return f"__version__ of gehost/__init__.py is {version!r}; write {normal!r}"
    return ""
