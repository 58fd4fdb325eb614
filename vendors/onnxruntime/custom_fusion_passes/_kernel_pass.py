"""What the passes to ONNX Runtime's kernels of attention share.

Found by running them (1.31.1, CPU): MultiHeadAttention and com.microsoft::Attention take a batch or
length of 0; Attention of opset 23 refuses it; GroupQueryAttention refuses length 0, and a batch
of 0 ends the process (division by 0). MultiHeadAttention refuses keys and values [B, N, T, ·] of
different head sizes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from gehost import es
from gehost_semantic import AttentionFusionPass

from ._masks import mask_problem, problem_of_types
from ._shapes import remove_dead
from ._types import no_kernel

if TYPE_CHECKING:
    from gehost import CustomPassContext, EsTensor, Graph, Refusal
    from gehost_semantic import AttentionCall

ROWS = MappingProxyType(
    {"q": "b s (h d)", "k": "b t (h d)", "v": "b t (h v)", "result": "b s (h v)"}
)
"""The layouts of kernels that read heads side by side."""


class KernelPass(AttentionFusionPass):
    """Attention to one kernel of the runtime."""

    kernel: ClassVar[str]
    layouts = ROWS

    def Run(self, graph: Graph, context: CustomPassContext) -> Any:
        status = super().Run(graph, context)
        remove_dead(graph)
        return status

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        problem = (
            problem_of_types(attention)
            or no_kernel(self.context, self.kernel, attention.description.q.value)
            or self.problem(attention)
            or mask_problem(attention)
        )
        return attention.reject(problem) if problem else True

    def problem(self, attention: AttentionCall) -> str:
        """Return why the kernel does not compute an attention, or ""."""
        raise NotImplementedError


def mask_of_kernel(attention: AttentionCall) -> EsTensor | None:
    """Return the whole mask in the type of q, k and v."""
    mask = attention.full_mask
    if mask is not None and attention.score_type != attention.dtype:
        mask = es.Cast(mask, to=attention.dtype)
    return mask


def zero_problem(attention: AttentionCall) -> str:
    """Return which size is 0, or ""."""
    description = attention.description
    if description.batch == 0:
        return "batch: it is 0"
    if 0 in (description.queries, description.keys):  # the runtime drops an Expand of a mask
        return f"length: {description.queries} of q, {description.keys} of k"
    return ""
