"""Give the distribution gehost's version, and require exactly that gehost.

The version is read from gehost/__init__.py in a clone, from PKG-INFO in an sdist, and else is that
of the installed gehost (``pip install --no-build-isolation``).
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class OneVersion(MetadataHookInterface):
    """Set ``version``, and add gehost to ``dependencies``."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        files = (root / "PKG-INFO", root.parents[1] / "gehost" / "__init__.py")
        text = next((file.read_text(encoding="utf-8") for file in files if file.exists()), "")
        match = re.search(r'^(?:Version: |__version__ = ")([\w.+-]+)', text, re.MULTILINE)
        try:
            number = match[1] if match is not None else version("gehost")
        except PackageNotFoundError:
            raise RuntimeError(
                "no version: build in a clone of gehost, or beside an installed gehost "
                "with --no-build-isolation"
            ) from None
        metadata["version"] = number
        metadata["dependencies"] = [f"gehost=={number}", *self.config["dependencies"]]
