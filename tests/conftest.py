"""Directories of vendors that tests write, and short passes to put into them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gehost import Host, HostOptions

_SWAP = """
{registration}
class {name}(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("{name}")
        return [Pattern(builder.BuildAndReset([es.{old}(builder.CreateInput(0))]))]

    def MeetRequirements(self, match):
        {meet}

    def Replacement(self, match):
        builder = EsGraphBuilder("{name}")
        return builder.BuildAndReset([es.{new}(builder.CreateInput(0))])
"""


@dataclass(frozen=True)
class Vendors:
    """A directory of vendors below ``root``."""

    root: Path

    def write(self, path: str, *code: str) -> Path:
        """Write ``<vendor>/<file>`` into the vendor's passes, after the import of everything that authors use."""
        vendor, _, name = path.partition("/")
        return self.write_raw(f"{vendor}/custom_fusion_passes/{name}", "from gehost import *\n" + "".join(map(dedent, code)))

    def write_raw(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    @staticmethod
    def swap(
        name: str, old: str, new: str, registration: str = "@REG_FUSION_PASS(stage={stage})", stage: str = "", meet: str = "return True"
    ) -> str:
        """The code of a pass that replaces one unary operator by another."""
        stage = f"CustomPassStage.{stage or 'kAfterInferShape'}"
        return _SWAP.format(name=name, old=old, new=new, meet=meet, registration=registration.format(stage=stage))

    def host(self, plugins: Any = (), **options: Any) -> Host:
        """A host of these vendors alone, without installed plugins and without clean-up."""
        return Host(HostOptions(**{"vendors": [self.root], "plugins": False, "cleanup": False, **options}), plugins=plugins)


@pytest.fixture
def vendors(tmp_path: Path) -> Vendors:
    root = tmp_path / "vendors"
    root.mkdir()
    return Vendors(root)
