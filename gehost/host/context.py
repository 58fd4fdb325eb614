"""What hooks of a compile are given."""

from __future__ import annotations

from dataclasses import dataclass

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
