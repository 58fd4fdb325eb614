"""GE's Python interface for passes: files that import ``ge.passes`` run as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from gehost import hookimpl

if TYPE_CHECKING:  # the command line loads plugins before it knows whether it needs them at all
    from gehost import PassRegistry, StyleRegistry


@hookimpl
def gehost_import_path() -> str:
    """Let pass files import ``ge``, while they load and run."""
    return str(Path(__file__).parent / "modules")


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Register the classes that this module or its package's modules marked."""
    if "gehost_ge.registered" not in sys.modules:  # no module can have marked a class
        return
    from gehost_ge.adapter import spec_of
    from gehost_ge.passes import BASES, RESERVED, pass_classes
    from gehost_ge.registered import registered_in

    for descriptor in registered_in(module):
        registry.check_method_names(descriptor.cls, BASES, RESERVED, descriptor.origin)
        registry.add(spec_of(descriptor))
    for cls in pass_classes(module):
        registry.suspect(cls, _MARK)


@hookimpl
def gehost_register_styles(registry: StyleRegistry) -> None:
    """Let ``gehost new`` write a first pass in this style."""
    from importlib.resources import files

    first = files(__name__) / "first_pass.py.txt"
    registry.add("ge", "", first=first.read_text(encoding="utf-8"))


_MARK = "put @register_fusion_pass or @register_decompose_pass above it"
