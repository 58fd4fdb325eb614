"""The context object that hooks of a compile receive."""

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
    """The current stage; None before the first and after the last."""
    inferred_at: int = 0
    """Position in the journal after shape inference."""
    cleaned_at: int | None = None
    """Position in the journal after the clean-up; None where no clean-up ran."""
    added: int = 0
    """Bytes of weights that passes added since the last clean-up, less those that they removed."""
    hook_edits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(hook, plugin) of each stage hook that edited the graph."""
