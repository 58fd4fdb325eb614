"""The stages of a compile at which passes run."""

from __future__ import annotations

from enum import Enum, EnumMeta

from gehost.spelling import hint


class _StageNames(EnumMeta):
    def __getattr__(cls, name: str) -> object:
        """Raises ``AttributeError`` with the nearest stage."""
        entry = hint(name, cls.__members__) or f"; stages: {', '.join(cls.__members__)}"
        raise AttributeError(f"there is no stage {name}{entry}")


class CustomPassStage(Enum, metaclass=_StageNames):
    """GE's stage names, in the order in which a compile reaches them."""

    kBeforeInferShape = "before_infershape"  # noqa: N815 - GE's name
    """With the types of the model file; the default."""
    kAfterInferShape = "after_infershape"  # noqa: N815 - GE's name
    """Tensors have dtype and shape as far as inference knows them."""
    kAfterBuiltinFusionPass = "after_builtin_fusion_pass"  # noqa: N815 - GE's name
    """After the built-in clean-up."""
    kAfterOriginGraphOptimize = "after_origin_graph_optimize"  # noqa: N815 - GE's name
    """The last one that may change the graph."""
    kAfterAssignLogicStream = "after_assign_logic_stream"  # noqa: N815 - GE's name
    """Exists in GE only; graphs are fixed at this stage, so fusion passes are refused."""


RUN_STAGES = tuple(
    stage for stage in CustomPassStage if stage is not CustomPassStage.kAfterAssignLogicStream
)
"""The stages at which fusion passes run, in order."""
