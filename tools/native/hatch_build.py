"""Give the distribution gehost's version, and require exactly that gehost.

The version is read from gehost/__init__.py in a clone, and from PKG-INFO in an sdist.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class OneVersion(MetadataHookInterface):
    """Set ``version``, and add gehost to ``dependencies``."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        files = (root / "PKG-INFO", root.parents[1] / "gehost" / "__init__.py")
        text = next(file for file in files if file.exists()).read_text(encoding="utf-8")
        version = re.search(r'^(?:Version: |__version__ = ")([\w.+-]+)', text, re.MULTILINE)
        assert version is not None, "no version"
        metadata["version"] = version[1]
        metadata["dependencies"] = [f"gehost=={version[1]}", *self.config["dependencies"]]
