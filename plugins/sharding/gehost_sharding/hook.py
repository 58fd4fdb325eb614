"""Planning as a stage hook: a compile ends with an annotated model."""

from __future__ import annotations

from collections.abc import Sequence

from gehost import CompileContext, Graph, ModelError, hookimpl
from gehost_sharding.annotations import LEAST_IR_VERSION, configuration_of, node_entries
from gehost_sharding.cost_graph import Objective
from gehost_sharding.hardware import Hardware
from gehost_sharding.mesh import Mesh
from gehost_sharding.model_graph import ModelGraph
from gehost_sharding.plan import Plan, Planner
from gehost_sharding.propagation import Pin
from gehost_sharding.rules.table import RuleTable


class PlanningHook:
    """A plugin that plans the fused graph and writes the plan as annotations.

    It runs after every pass. Its edits are journaled, so that they are undone if a later step of
    the stage fails.

    Attributes:
        plan: the plan of the last compile; None before the first.
    """

    def __init__(
        self,
        mesh: str,
        hardware: Hardware | None = None,
        *,
        objective: Objective | None = None,
        memory: int | None = None,
        pins: Sequence[str] = (),
        table: RuleTable | None = None,
    ) -> None:
        """Keep the arguments of ``gehost shard plan``.

        Args:
            mesh: ``data=2,model=4``.
            hardware: of one device.
            objective: what to minimise; time by default.
            memory: bytes of weights and live tensors that a device may hold.
            pins: placements, ``TENSOR=AXIS:MESHAXIS``.
            table: rules; those of ONNX and of plugins by default.

        Raises:
            UsageError: a mesh that is none.
        """
        self.plan: Plan | None = None
        self._mesh = Mesh.parse(mesh)
        self._hardware = hardware
        self._objective = objective
        self._memory = memory
        self._pins = pins
        self._table = table

    @hookimpl(trylast=True)
    def gehost_after_origin_graph_optimize(self, graph: Graph, context: CompileContext) -> None:
        """Plan, and annotate every node.

        Raises:
            ModelError: a model that cannot be sharded, no plan under the capacity, IR version 3.
            UsageError: a mesh or pins that do not fit the model.
        """
        model = context.model
        if model.ir_version < 4:
            raise ModelError(
                f"{model}: IR version {model.ir_version} has initializers that callers may replace;"
                " save it with IR version 4 or later, or use gehost shard plan"
            )
        planned = ModelGraph(model.flush(), model.path)  # the edits so far stay
        planner = Planner(planned, self._mesh, self._hardware, self._table)
        pins = [Pin.parse(text, planned, self._mesh) for text in self._pins]
        self.plan = planner.plan(objective=self._objective, memory=self._memory, pins=pins)
        model.raise_ir_version(LEAST_IR_VERSION)
        model.configurations = (configuration_of(self._mesh),)
        entries = node_entries(self.plan.assignment)
        for position, node in enumerate(graph.nodes):
            if position in entries or node.device_configurations:
                node.device_configurations = entries.get(position, ())
