"""The base classes of passes that replace what a recogniser describes by a kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import onnx
import onnx.parser

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
from gehost_semantic.activation_call import ACTIVATION_FEATURES, ActivationCall
from gehost_semantic.activations import ActivationKind, activations
from gehost_semantic.advice import advised
from gehost_semantic.atoms import Refused
from gehost_semantic.attention import Attention
from gehost_semantic.call import FEATURES, AttentionCall
from gehost_semantic.finder import AttentionFinder
from gehost_semantic.kernel_call import KernelCall
from gehost_semantic.linear_call import LINEAR_FEATURES, LinearCall
from gehost_semantic.linears import linears, packs
from gehost_semantic.norm_call import NORM_FEATURES, NormCall
from gehost_semantic.norms import NormKind, norms
from gehost_semantic.rotary import rotations
from gehost_semantic.rotary_call import LAYOUTS, ROTARY_FEATURES, RotaryCall
from gehost_semantic.sources import PLAIN
from gehost_semantic.views import Views

_INSTANCE = """<ir_version: 9, opset_import: ["" : {3}]>
attention (float[{0}, {1}, 8] q, float[{0}, {2}, 8] k, float[{0}, {2}, 8] v{4})
=> (float[{0}, {1}, 8] y)
<int64[4] heads = {{0, 0, 2, 4}}, int64[3] rows = {{0, 0, 8}}, float scale = {{0.5}},
 float zero = {{0}}, float low = {{-3.4e38}}> {{
    qh = Reshape (q, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
    kh = Reshape (k, heads) kt = Transpose <perm = [0, 2, 3, 1]> (kh)
    vh = Reshape (v, heads) vt = Transpose <perm = [0, 2, 1, 3]> (vh)
    m = MatMul (qt, kt) s = Mul (m, scale) {5} p = Softmax <axis = -1> (a)
    o = MatMul (p, vt) turned = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape (turned, rows) }}"""
_MASKED = {
    "": ("", "a = Identity (s)"),
    "mask": (", bool[B, 1, S, T] keep", "mask = Where (keep, zero, low) a = Add (s, mask)"),
}

CallT = TypeVar("CallT", bound=KernelCall)


class SemanticFusionPass(FusionBasePass, Generic[CallT]):
    """Replaces what a recogniser describes by a kernel of a vendor.

    What a description has beyond what the kernel ``takes`` is written around the kernel where that
    is exact, or refused by the feature's name.
    """

    required_methods: ClassVar[tuple[str, ...]] = ("Replacement",)
    shape_proven: ClassVar[bool] = True
    features: ClassVar[Mapping[str, str]] = {}
    """What a kernel may take, with the meaning."""
    takes: ClassVar[Collection[str]] = frozenset()
    """Features of the kernel: names of ``features``."""

    def MeetRequirements(self, call: CallT, /) -> bool | Refusal:
        """Return whether to replace it, or ``call.reject("key: text")``."""
        del call
        return True

    def Replacement(self, call: CallT, /) -> EsTensor | Sequence[EsTensor] | Refusal:
        """Return the kernel's results, of the tensors of the call."""
        raise NotImplementedError

    def calls(self, graph: Graph) -> Iterator[tuple[Node, CallT | Refused]]:
        """Yield what the recogniser describes, and near misses with the step that fails.

        All is described before the first replacement. A call is made when it is asked for: a
        replacement removes tensors.
        """
        raise NotImplementedError

    def Run(self, graph: Graph, context: CustomPassContext) -> Status | bool | None:
        unknown = sorted(set(self.takes) - set(self.features))
        if unknown:
            raise PassError(
                f"takes: there is no feature {unknown[0]!r}; there are {', '.join(self.features)}",
                subject=context.pass_name,
            )
        entry = {definition.name for definition in context.registry} | set(context.model.functions)
        count = 0
        for node, call in self.calls(graph):
            if isinstance(call, Refused):
                context.refuse(node, str(call))
            else:
                count += self._replace(node, call, entry, context)
        return SUCCESS if count else NOT_CHANGED

    def _replace(
        self, node: Node, call: CallT, names: Collection[str], context: CustomPassContext
    ) -> bool:
        reason = call.refusal()
        if not reason:
            with author_errors(context, "MeetRequirements", node):
                answer: Any = self.MeetRequirements(call)
            if isinstance(answer, Refusal):
                reason = answer.reason or "unspecified"
            elif not isinstance(answer, bool | np.bool_):
                raise PassError(
                    f"MeetRequirements must return True, False or reject(reason) of its argument, "
                    f"got {answer!r}",
                    subject=context.pass_name,
                )
            elif not answer:
                reason = "MeetRequirements"
        result = reason or self._made(node, call, names, context)
        if isinstance(result, EsGraph):
            assert call.region is not None
            return not isinstance(context.replace(call.region, result), Refusal)
        context.record.matched += 1
        context.refuse(node, result)
        return False

    def _made(
        self, node: Node, call: CallT, names: Collection[str], context: CustomPassContext
    ) -> EsGraph | str:
        """Return the replacement, or why there is none."""
        with author_errors(context, "Replacement", node):
            try:
                call.begin()
                result: Any = self.Replacement(call)
                if isinstance(result, Refusal):
                    return result.reason or "unspecified"
                return call.finish(result, names)
            except Refused as refusal:
                return str(refusal)


class AttentionFusionPass(SemanticFusionPass[AttentionCall]):
    """Replaces each attention by a kernel of a vendor.

    A subclass defines ``Replacement`` and, if the kernel has limits, ``MeetRequirements``.
    ``Replacement`` returns the kernel's result, [b, h, s, v] unless ``layouts`` has another, of
    ``attention.q``, ``k``, ``v`` and ``mask``.
    """

    features = FEATURES
    takes: ClassVar[Collection[str]] = frozenset({"mask"})
    """Features of the kernel beyond q, k, v and scale: names of ``FEATURES``."""
    layouts: ClassVar[Mapping[str, str]] = PLAIN
    """Those of q, k, v and the result, as ``{"q": "b s (h d)"}``; the others are plain."""

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models of two heads without and with a mask, for ``gehost check-pass``."""
        for sizes, opset, masked in (("BST", 17, ""), ("BST", 17, "mask"), ("235", 23, "")):
            yield onnx.parser.parse_model(_INSTANCE.format(*sizes, opset, *_MASKED[masked]))

    def calls(self, graph: Graph) -> Iterator[tuple[Node, AttentionCall | Refused]]:
        softmaxes = graph.nodes_of("Softmax")
        if not softmaxes:
            return
        views = Views.shared(graph)
        finder = AttentionFinder(views)
        descriptions: list[Attention] = []
        for softmax in softmaxes:
            try:
                descriptions.append(finder.find(softmax))
            except Refused as refusal:
                yield softmax, Refused(advised(str(refusal)))
        for description in descriptions:
            try:
                yield (
                    description.softmax,
                    AttentionCall(views, description, self.takes, self.layouts),
                )
            except Refused as refusal:
                yield description.softmax, refusal


class RotaryFusionPass(SemanticFusionPass[RotaryCall]):
    """Replaces each rotary embedding by a kernel of a vendor.

    A subclass defines ``Replacement``, which returns the kernel's result, of the shape of
    ``rotary.x``, of ``rotary.x``, ``cos`` and ``sin``.
    """

    features = ROTARY_FEATURES
    layout: ClassVar[str] = ""
    """The kernel's axes, "b h s d" or "b s h d"; "" for those of the graph."""

    def calls(self, graph: Graph) -> Iterator[tuple[Node, RotaryCall | Refused]]:
        if self.layout not in LAYOUTS:
            raise PassError(
                f"layout: there is no {self.layout!r}; there are {', '.join(map(repr, LAYOUTS))}",
                subject=type(self).__name__,
            )
        views = Views.shared(graph)
        for node, result in rotations(views):
            if isinstance(result, Refused):
                yield node, result
            else:
                yield node, RotaryCall(views, result, self.takes, self.layout)


class NormFusionPass(SemanticFusionPass[NormCall]):
    """Replaces each normalization of one kind by a kernel of a vendor.

    A subclass defines ``Replacement``, which returns the kernel's result of ``norm.x``, ``scale``
    and ``epsilon``; with ``takes = {"residual"}`` also the sum of ``norm.x`` and ``norm.residual``.
    """

    features = NORM_FEATURES
    kind: ClassVar[str] = "rms"
    """``layer``, ``rms`` or ``group``."""

    def calls(self, graph: Graph) -> Iterator[tuple[Node, NormCall | Refused]]:
        _check_kind(self, NormKind)
        for node, result in norms(Views.shared(graph)):
            if isinstance(result, Refused):
                yield node, result
            elif result.kind == self.kind:
                yield node, NormCall(result, self.takes)


class ActivationFusionPass(SemanticFusionPass[ActivationCall]):
    """Replaces each activation of one kind by a kernel of a vendor.

    A subclass defines ``Replacement``, which returns the kernel's result of ``activation.x``, and
    of ``bias`` and ``gate`` if it takes them.
    """

    features = ACTIVATION_FEATURES
    kind: ClassVar[str] = "gelu"
    """``gelu``, ``gelu tanh``, ``silu``, or ``swish`` with any ``activation.alpha``."""

    def calls(self, graph: Graph) -> Iterator[tuple[Node, ActivationCall | Refused]]:
        _check_kind(self, ActivationKind)
        for node, result in activations(Views.shared(graph)):
            if isinstance(result, Refused):
                yield node, result
            elif result.kind == self.kind:
                yield node, ActivationCall(result, self.takes)


class LinearFusionPass(SemanticFusionPass[LinearCall]):
    """Replaces each product with a constant matrix by a kernel of a vendor.

    A subclass defines ``Replacement``, which returns the kernel's result of ``linear.x``,
    ``weight`` and ``bias``.
    """

    features = LINEAR_FEATURES
    takes: ClassVar[Collection[str]] = frozenset({"bias"})

    def calls(self, graph: Graph) -> Iterator[tuple[Node, LinearCall | Refused]]:
        products = linears(Views.shared(graph))
        results = [item for _, item in products if not isinstance(item, Refused)]
        for node, refusal in products:
            if isinstance(refusal, Refused):
                yield node, refusal
        together = (
            packs(results, self.takes) if "packed" in self.takes else [(item,) for item in results]
        )
        for group in together:
            yield group[0].node, LinearCall(group, self.takes)


def _check_kind(
    own: NormFusionPass | ActivationFusionPass, kinds: type[NormKind | ActivationKind]
) -> None:
    if own.kind not in [*kinds]:
        raise PassError(
            f"kind: there is no {own.kind!r}; there are {', '.join(kinds)}",
            subject=type(own).__name__,
        )
