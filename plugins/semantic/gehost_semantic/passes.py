"""The base class of passes that replace attention by a kernel."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from gehost import (
    NOT_CHANGED,
    SUCCESS,
    CustomPassContext,
    EsTensor,
    FusionBasePass,
    Graph,
    Node,
    PassError,
    Refusal,
    Status,
)
from gehost_semantic.atoms import Refused
from gehost_semantic.call import FEATURES, AttentionCall
from gehost_semantic.finder import AttentionFinder
from gehost_semantic.views import Views


class AttentionFusionPass(FusionBasePass):
    """Replaces each attention by a kernel of a vendor.

    A subclass defines ``Replacement`` and, if the kernel has limits, ``MeetRequirements``. What the
    attention has beyond what the kernel ``takes`` is written around the kernel where that is exact,
    or refused by the feature's name.
    """

    required_methods: ClassVar[tuple[str, ...]] = ("Replacement",)
    shape_proven: ClassVar[bool] = True
    takes: ClassVar[Collection[str]] = frozenset({"mask"})
    """Features of the kernel beyond q, k, v and scale: names of ``FEATURES``."""

    def MeetRequirements(self, attention: AttentionCall) -> bool | Refusal:
        """Return whether to replace an attention, or ``attention.reject("key: text")``."""
        del attention
        return True

    def Replacement(self, attention: AttentionCall) -> EsTensor | Refusal:
        """Return the kernel's result, [b, h, s, v], of ``attention.q``, ``k``, ``v``, ``mask``."""
        raise NotImplementedError

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        unknown = sorted(set(self.takes) - set(FEATURES))
        if unknown:
            raise PassError(
                f"takes: there is no feature {unknown[0]!r}; there are {', '.join(FEATURES)}",
                subject=context.pass_name,
            )
        softmaxes = graph.nodes_of("Softmax")
        if not softmaxes:
            return NOT_CHANGED
        views = Views(graph)
        finder = AttentionFinder(views)
        calls: list[tuple[Node, AttentionCall]] = []
        for softmax in softmaxes:
            try:
                calls.append((softmax, AttentionCall(views, finder.find(softmax), self.takes)))
            except Refused as refusal:
                context.refuse(softmax, str(refusal))
        known = {definition.name for definition in context.registry} | set(context.model.functions)
        count = sum(self._replace(softmax, call, known, context) for softmax, call in calls)
        return SUCCESS if count else NOT_CHANGED

    def _replace(
        self, softmax: Node, call: AttentionCall, known: Collection[str], context: CustomPassContext
    ) -> bool:
        reason = call.refusal()
        if not reason:
            answer: Any = self.MeetRequirements(call)
            if isinstance(answer, Refusal):
                reason = answer.reason or "unspecified"
            elif not isinstance(answer, bool | np.bool_):
                raise PassError(
                    f"MeetRequirements must return True, False or attention.reject(reason), got "
                    f"{answer!r}",
                    subject=context.pass_name,
                )
            elif not answer:
                reason = "MeetRequirements"
        if not reason:
            try:
                call.begin()
                made: Any = self.Replacement(call)
                if isinstance(made, Refusal):
                    reason = made.reason or "unspecified"
                else:
                    graph = call.finish(made, known)
                    assert call.region is not None
                    return not isinstance(
                        context.replace(call.region, graph, keep_shared=True), Refusal
                    )
            except Refused as refusal:
                reason = str(refusal)
        context.record.matched += 1
        context.refuse(softmax, reason)
        return False
