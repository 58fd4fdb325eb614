"""Collect the fragments of changes/ into CHANGELOG.md, dated: ``make changelog``."""

from __future__ import annotations

import subprocess
import sys

from gehost import __version__ as version
from tools.release.__main__ import ROOT
from tools.release.version import no_changelog


def main() -> None:
    if reason := no_changelog(ROOT, version):
        sys.exit(reason)
    # --yes: without a terminal its question ends it between writing and removing the fragments
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
