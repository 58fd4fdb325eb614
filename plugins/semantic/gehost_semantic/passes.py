"""The base class of passes that replace attention by a kernel."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from gehost import (
    NOT_CHANGED,
    SUCCESS,
    CustomPassContext,
    EsGraph,
    EsTensor,
    FusionBasePass,
    Graph,
    Node,
    PassError,
    Refusal,
    Status,
    author_errors,
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
        views = Views.shared(graph)
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
            with author_errors(context, "MeetRequirements", softmax):
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
        made = reason or self._made(softmax, call, known, context)
        if isinstance(made, EsGraph):
            assert call.region is not None
            return not isinstance(context.replace(call.region, made, keep_shared=True), Refusal)
        context.record.matched += 1
        context.refuse(softmax, made)
        return False

    def _made(
        self, softmax: Node, call: AttentionCall, known: Collection[str], context: CustomPassContext
    ) -> EsGraph | str:
        """Return the replacement, or why there is none."""
        with author_errors(context, "Replacement", softmax):
            try:
                call.begin()
                made: Any = self.Replacement(call)
                if isinstance(made, Refusal):
                    return made.reason or "unspecified"
                return call.finish(made, known)
            except Refused as refusal:
                return str(refusal)
