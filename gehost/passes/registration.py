"""The mark that registration leaves on a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gehost.errors import VendorError
from gehost.location import SourceLocation
from gehost.settings import PassOption
from gehost.spelling import hint
from gehost.stages import RUN_STAGES, CustomPassStage

MARK = "__gehost_pass__"
MARKED = "__gehost_passes__"
"""Name of a module's list of classes that are marked in it, in order; includes classes that no name
refers to any more.
"""


@dataclass
class PassRegistration:
    """The registration of a class: settings and place."""

    name: str
    stage: CustomPassStage
    module: str
    location: SourceLocation
    min_opset: int | None = None
    max_opset: int | None = None
    op_types: tuple[Any, ...] = ()
    default: bool | Any = True
    options: tuple[PassOption, ...] = ()

    @property
    def origin(self) -> str:
        """The location as text, as in ``PassSpec`` and reports."""
        return str(self.location)


def mark_of(cls: type) -> PassRegistration | None:
    """Return a class's own mark; inherited ones do not count."""
    return cls.__dict__.get(MARK)


def check_stage(stage: object, origin: str, name: str) -> None:
    """Refuse an unknown stage, and the one where graphs are fixed.

    Raises:
        VendorError: names ``origin`` and ``name``.
    """
    if stage not in RUN_STAGES:
        named = stage.name if isinstance(stage, CustomPassStage) else repr(stage)
        near = hint(stage, CustomPassStage.__members__) if isinstance(stage, str) else ""
        expected = ", ".join(stage.name for stage in RUN_STAGES)
        raise VendorError(
            f"fusion passes cannot run at {named}; wanted one of {expected}{near}",
            where=origin,
            subject=name,
        )
