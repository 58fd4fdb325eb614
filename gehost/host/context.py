"""The context object that hooks of a compile receive."""

from __future__ import annotations

from dataclasses import dataclass, field

from gehost.host.report import Report
from gehost.infer import Inferrer
from gehost.ir.constants import stored_bytes
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
    weights: int = field(init=False)
    """Bytes of the model's weights before the first stage, and after each clean-up."""
    hook_edits: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(hook, plugin) of each stage hook that edited the graph."""

    def __post_init__(self) -> None:
        self.weights = weight_bytes(self.model)


def weight_bytes(model: Model) -> int:
    """Return the bytes of a model's constants."""
    size = 0
    for graph in model.graphs:
        values = [value for value in graph.values.values() if value.initializer is not None]
        values += [value for node in graph.by_op.get("Constant", ()) if (value := node.outputs[0])]
        size += sum(stored_bytes(value) or 0 for value in values)
    return size
