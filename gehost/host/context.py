"""What hooks of a compile are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from gehost.host.report import Report
from gehost.infer import Inferrer
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.options import HostOptions
from gehost.stages import CustomPassStage


@dataclass
class CompileContext:
    """One compile: its model, options, operators and report so far."""

    model: Model
    options: HostOptions
    ops: OpRegistry
    inferrer: Inferrer
    report: Report
    stage: CustomPassStage | None = None
    """The stage at hand; None before the first and after the last."""
    inferred_at: int = 0
    """Point in the journal behind shape inference."""
    cleaned_at: int | None = None
    """Point in the journal behind the clean-up; None where none was done."""
    hook_edits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Each stage hook that edited the graph, and its plugin."""
