"""The report of a compile as one self-contained page without scripts.

Every text goes through autoescape and ``_printable``, so names of models and vendors stay text. The
size of the page is limited; it states each omission, and the JSON report is complete.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gehost.errors import printable
from gehost.page.data import ReportData
from gehost.page.drawing import KINDS, Drawing, draw, shortened
from gehost.passes.context import PassRecord
from gehost.passes.snapshots import Picture, Refusals, RewriteGroup

_MOST_DRAWN_OF_PASS = 6
_MOST_DRAWN = 40
_MOST_LISTED = 50
"""Largest number of rewrites, reasons or rows of one list."""
_MOST_NAMES = 12
"""Largest number of nodes of one rewrite or one reason."""
_LONGEST_TEXT = 2000
_WIDEST_BESIDE = 510
"""Widest drawing in pixels that has another one beside it."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """Numbers of an operator's nodes before and, if the compile ended, after."""

    op: str
    before: int
    after: int | None

    @property
    def change(self) -> int:
        return 0 if self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True)
class PassRow:
    """A pass, and the anchor of its details; "" without details."""

    record: PassRecord
    anchor: str


@dataclass(frozen=True, slots=True)
class StageRows:
    """The passes of a stage."""

    name: str
    passes: list[PassRow]

    @property
    def seconds(self) -> float:
        return sum(row.record.seconds for row in self.passes)


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """Rewrites of equal shape; the first of them is drawn."""

    group: RewriteGroup
    before: Drawing
    after: Drawing

    @property
    def wide(self) -> bool:
        """Whether the drawings do not fit side by side."""
        return max(self.before.width, self.after.width) > _WIDEST_BESIDE


@dataclass(frozen=True, slots=True)
class PassDetails:
    """Details of a pass below the table."""

    record: PassRecord
    anchor: str
    groups: list[DrawnGroup]
    undrawn: list[RewriteGroup]
    refusals: list[Refusals]
    """Most frequent first."""


def render(report: ReportData, command: str = "compile") -> str:
    """Return the page of what a command did."""
    environment, style = _environment(), _style()
    # whether there was a compiled model, saved or not
    ended = bool(report.op_types_after) or not report.error
    before, after = report.op_types_before, report.op_types_after
    ops = [
        OpRow(op, before.get(op, 0), after.get(op, 0) if ended else None)
        for op in dict.fromkeys([*before, *after])
    ]
    ops.sort(key=lambda row: (-abs(row.change), -max(row.before, row.after or 0), row.op))
    details = _pass_details(report.passes)
    anchors = {id(shown.record): shown.anchor for shown in details}
    rows = [PassRow(record, anchors.get(id(record), "")) for record in report.passes]
    stages = [
        StageRows(stage, list(records_here))
        for stage, records_here in groupby(rows, key=lambda row: row.record.stage)
    ]
    return environment.get_template("report.html.jinja").render(
        report=report,
        command=command,
        style=Markup(style),  # noqa: S704 - the package's own file
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        ended=ended,
        ops=ops,
        stages=stages,
        details=details,
        refused=sum(sum(record.rejected.values()) for record in report.passes),
        kinds=KINDS,
        most_listed=_MOST_LISTED,
    )


def svg(picture: Picture) -> str:
    """Return a picture as a self-contained SVG."""
    image = draw(picture)
    return (
        _environment()
        .get_template("picture.svg.jinja")
        .render(picture=image, style=Markup(_style()))  # noqa: S704 - the package's own file
    )


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gehost"),
        autoescape=True,
        finalize=_printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count="{:,}".format, change=_change, duration=_duration, names=_names
    )
    return environment


def _style() -> str:
    return files("gehost").joinpath("templates/report.css").read_text(encoding="utf-8")


def _pass_details(passes: Sequence[PassRecord]) -> list[PassDetails]:
    details: list[PassDetails] = []
    budget = _MOST_DRAWN
    for number, record in enumerate(passes, 1):
        if not (record.rewrites or record.rejected or record.message):
            continue
        groups = sorted(record.rewrites, key=lambda group: -len(group.matches))
        shown_groups = groups[: min(budget, _MOST_DRAWN_OF_PASS)]
        budget -= len(shown_groups)
        refusals = sorted(record.refusals, key=lambda refusal: -len(refusal.nodes))
        shown = [DrawnGroup(group, draw(group.before), draw(group.after)) for group in shown_groups]
        details.append(
            PassDetails(record, f"pass-{number}", shown, groups[len(shown_groups) :], refusals)
        )
    return details


# texts


def _printable(value: Any) -> Any:
    """Return a value of the template; texts without control characters, and shortened."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if len(value) > _LONGEST_TEXT:
        value = shortened(value, _LONGEST_TEXT)
    return "\n".join(map(printable, value.split("\n")))


def _change(number: int) -> str:
    return f"{number:+,}".replace("-", "−") if number else "0"


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _names(names: Sequence[str]) -> str:
    text = ", ".join(shortened(name, 60) for name in names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{text} … and {more:,} more" if more > 0 else text
