"""The base classes of passes that replace what a recogniser describes by a kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
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
    Model,
    Node,
    PassError,
    Refusal,
    Refused,
    Status,
    author_errors,
)
from gehost_semantic.activation_call import ACTIVATION_FEATURES, ActivationCall
from gehost_semantic.activations import (
    FUNCTIONS,
    OPERATORS,
    ROOTS,
    Activation,
    ActivationKind,
    NoProduct,
    activations,
)
from gehost_semantic.advice import advised
from gehost_semantic.attention import Attention
from gehost_semantic.call import FEATURES, AttentionCall
from gehost_semantic.finder import AttentionFinder
from gehost_semantic.kernel_call import KernelCall, Known
from gehost_semantic.linear_call import LINEAR_FEATURES, LinearCall
from gehost_semantic.linears import linears, packs
from gehost_semantic.norm_call import NORM_FEATURES, NormCall
from gehost_semantic.norms import Norm, NormKind, may_have_norms, norms, with_function
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

_ROWS = """<ir_version: 9, opset_import: ["" : 17]>
operation (float[B, S, 8] a, float[B, S, 8] z) => (float[B, S, 8] y)
<float two = {{2}}, float eps = {{0.01}}, float alpha = {{1.702}}, float root = {{1.4142135}},
 float one = {{1}}, float half = {{0.5}}, float cubic = {{0.044715}}, float factor = {{0.7978845}},
 float[8] b = {{1, -2, 1, 0, 1, 2, 0, 3}}, float[8] w = {{2, 1, -1, 1, 2, 1, 3, 1}}> {{
    t = Add (a, b) {0} {1} }}"""
_PACKED = "both = Concat <axis = -1> (a, z) x, gate = Split <axis = -1> (both)"
_IMAGE = """<ir_version: 10, opset_import: ["" : 21]>
operation (float[2, 8, 4, 4] a, float[2, 8, 4, 4] z) => (float[2, 8, 4, 4] y)
<int64[3] apart = {0, 2, -1}, int64[4] whole = {2, 8, 4, 4}, float[2] ones = {1, 1},
 float[2] zeros = {0, 0}, float[8, 1, 1] w = {2, 1, -1, 1, 2, 1, 3, 1},
 float[8, 1, 1] b = {1, -2, 1, 0, 1, 2, 0, 3}> {
    x = Add (a, z) r = Reshape (x, apart) i = InstanceNormalization (r, ones, zeros)
    o = Reshape (i, whole) s = Mul (o, w) n = Add (s, b) g = Sigmoid (n) y = Mul (n, g) }"""
_TURNED = """<ir_version: 9, opset_import: ["" : 17]>
rotation (float[B, 2, S, 8] x, float[B, 1, S, 4] co, float[B, 1, S, 4] si)
=> (float[B, 2, S, 8] y)
<int64[1] start = {0}, int64[1] middle = {4}, int64[1] end = {8}, int64[1] last = {3}> {
    lo = Slice (x, start, middle, last) hi = Slice (x, middle, end, last)
    lc = Mul (lo, co) hs = Mul (hi, si) a = Sub (lc, hs)
    hc = Mul (hi, co) ls = Mul (lo, si) b = Add (hc, ls) y = Concat <axis = -1> (a, b) }"""
_PRODUCT = """<ir_version: 9, opset_import: ["" : 17]>
product (float[B, S, 2] x) => (float[B, S, 3] y)
<float[2, 3] w = {1, -2, 1, 0, 1, 2}, float[3] b = {1, 2, -1}> {
    m = MatMul (x, w) y = Add (m, b) }"""
_BY_ROOT = """p = Mul (d, d) v = ReduceMean <axes = [-1]> (p) e = Add (v, eps) q = Sqrt (e)
    i = Reciprocal (q) n = Mul (d, i) s = Mul (n, w)"""
_BODIES = {
    "layer": f"m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) {_BY_ROOT} y = Add (s, b)",
    "rms": _BY_ROOT.replace("(d, ", "(x, ").replace(", d)", ", x)").replace(" s =", " y ="),
    "gelu": "d = Div (x, root) e = Erf (d) p = Add (e, one) m = Mul (x, p) y = Mul (m, half)",
    "gelu tanh": """p = Mul (x, x) c = Mul (p, x) k = Mul (c, cubic) s = Add (x, k)
        m = Mul (s, factor) h = Tanh (m) e = Add (h, one) n = Mul (x, e) y = Mul (n, half)""",
    "silu": "g = Sigmoid (x) y = Mul (x, g)",
    "swish": "d = Mul (x, alpha) g = Sigmoid (d) y = Mul (g, x)",
}

CallT = TypeVar("CallT", bound=KernelCall)


class SemanticFusionPass(FusionBasePass, Generic[CallT]):
    """Replaces what a recogniser describes by a kernel of a vendor.

    What a description has beyond what the kernel ``takes`` is written around the kernel where that
    is exact, or refused by the feature's name.
    """

    required_methods: ClassVar[tuple[str, ...]] = ("Replacement",)
    shape_proven: ClassVar[bool] = True
    names_refusals: ClassVar[bool] = True
    features: ClassVar[Mapping[str, str]] = {}
    """What a kernel may take, with the meaning."""
    takes: ClassVar[Collection[str]] = frozenset()
    """Features of the kernel: names of ``features``."""
    sought: ClassVar[str] = ""
    """What the recogniser looks for, for ``explain``."""
    context: CustomPassContext
    """Of the run: its target and options."""

    def absence(self, model: Model) -> str:
        del model
        return f"it looked for {self.sought}; the model has none"

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
        _check_settings(self, context.pass_name)
        self.context = context
        known = {
            **{definition.name: definition for definition in context.registry},
            **dict.fromkeys(context.model.functions),
        }
        count = 0
        for node, call in self.calls(graph):
            if isinstance(call, Refused):
                context.refuse(node, str(call))
            else:
                count += self._replace(node, call, known, context)
        return SUCCESS if count else NOT_CHANGED

    def _replace(self, node: Node, call: CallT, known: Known, context: CustomPassContext) -> bool:
        result = call.refusal() or self._replacement(node, call, known, context)
        if isinstance(result, EsGraph):
            assert call.region is not None
            return not isinstance(context.replace(call.region, result), Refusal)
        context.record.matched += 1
        context.refuse(node, result)
        return False

    def _replacement(
        self, node: Node, call: CallT, known: Known, context: CustomPassContext
    ) -> EsGraph | str:
        """Return the replacement, or why there is none."""
        try:
            call.begin()
        except Refused as refusal:
            return str(refusal)
        call.reads.clear()
        with author_errors(context, "MeetRequirements", node):
            try:
                answer: Any = self.MeetRequirements(call)
            except Refused as refusal:
                return str(refusal)
        if isinstance(answer, Refusal):
            return answer.reason or "unspecified"
        if not isinstance(answer, bool | np.bool_):
            raise PassError(
                f"MeetRequirements must return True, False or reject(reason) of its argument, "
                f"got {answer!r}",
                subject=context.pass_name,
            )
        if not answer:
            return "MeetRequirements: it returned False"
        with author_errors(context, "Replacement", node):
            try:
                result: Any = self.Replacement(call)
                if isinstance(result, Refusal):
                    return result.reason or "unspecified"
                return call.finish(result, known)
            except Refused as refusal:
                return str(refusal)


class AttentionFusionPass(SemanticFusionPass[AttentionCall]):
    """Replaces each attention by a kernel of a vendor.

    A subclass defines ``Replacement`` and, if the kernel has limits, ``MeetRequirements``.
    ``Replacement`` returns the kernel's result, [b, h, s, v] unless ``layouts`` has another, of
    ``attention.q``, ``k``, ``v`` and ``mask``.
    """

    features = FEATURES
    sought = "a Softmax"
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
                yield softmax, Refused(Refusal.of(advised(str(refusal), graph.model)))
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
    sought = "sums of products that turn pairs of elements"
    layout: ClassVar[str] = ""
    """The kernel's axes, "b h s d" or "b s h d"; "" for those of the graph."""

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of halves, which each kernel turns, for ``gehost check-pass``."""
        yield onnx.parser.parse_model(_TURNED)

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
    kinds: ClassVar[Collection[str]] = ()
    """Several of them, in place of ``kind``."""

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of each kind, behind a sum and before SiLU, for ``gehost check-pass``."""
        for kind in _kinds(self, NormKind):
            text = _IMAGE if kind == "group" else _ROWS.format("x = Add (t, z)", _BODIES[kind])
            yield onnx.parser.parse_model(text)

    def absence(self, model: Model) -> str:
        return _without_kind("a norm", _kinds(self, NormKind), norms, model)

    def calls(self, graph: Graph) -> Iterator[tuple[Node, NormCall | Refused]]:
        kinds = _kinds(self, NormKind)
        if not may_have_norms(graph):
            return
        views = Views.shared(graph)
        takes_function = not set(FUNCTIONS).isdisjoint(self.takes)
        for node, result in norms(views):
            if isinstance(result, Refused):
                yield node, result
            elif result.kind in kinds:
                norm = with_function(views, result) if takes_function else result
                yield node, NormCall(norm, self.takes, kinds)


class ActivationFusionPass(SemanticFusionPass[ActivationCall]):
    """Replaces each activation of one kind by a kernel of a vendor.

    A subclass defines ``Replacement``, which returns the kernel's result of ``activation.x``, and
    of ``bias`` and ``gate`` if it takes them.
    """

    features = ACTIVATION_FEATURES
    kind: ClassVar[str] = "gelu"
    """``gelu``, ``gelu tanh``, ``silu``, ``swish`` with another ``activation.alpha`` than 1."""
    kinds: ClassVar[Collection[str]] = ()
    """Several of them, in place of ``kind``."""

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of each kind, behind a bias, with a gate if the kernel takes one."""
        for kind in _kinds(self, ActivationKind):
            x, body = "x = Add (a, b)", _BODIES[kind]
            if not {"gate", "packed"}.isdisjoint(self.takes):
                body = f"{body.replace('y =', 'f =')} y = Mul (f, gate)"
                is_packed = "packed" in self.takes
                x = _PACKED if is_packed else f"{x} gate = Identity (z)"
            yield onnx.parser.parse_model(_ROWS.format(x, body))

    def absence(self, model: Model) -> str:
        return _without_kind("an activation", _kinds(self, ActivationKind), activations, model)

    def calls(self, graph: Graph) -> Iterator[tuple[Node, ActivationCall | Refused]]:
        kinds = _kinds(self, ActivationKind)
        roots = {op for kind in kinds for op in ROOTS[ActivationKind(kind)]}
        if not graph.nodes_of(*roots, *OPERATORS):
            return
        is_product = not {ActivationKind.SILU, ActivationKind.SWISH}.isdisjoint(kinds)
        for node, result in activations(Views.shared(graph)):
            if isinstance(result, Refused):
                if node.op in roots and (is_product or not isinstance(result, NoProduct)):
                    yield node, result
            elif result.kind in kinds:
                yield node, ActivationCall(result, self.takes, kinds)


class LinearFusionPass(SemanticFusionPass[LinearCall]):
    """Replaces each product with a constant matrix by a kernel of a vendor.

    A subclass defines ``Replacement``, which returns the kernel's result of ``linear.x``,
    ``weight`` and ``bias``.
    """

    features = LINEAR_FEATURES
    sought = "a MatMul or Gemm"
    takes: ClassVar[Collection[str]] = frozenset({"bias"})

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield a model of a product with a bias, for ``gehost check-pass``."""
        yield onnx.parser.parse_model(_PRODUCT)

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


def _without_kind(
    what: str,
    wanted: Collection[str],
    find: Callable[[Views], Sequence[tuple[Node, Norm | Activation | Refused]]],
    model: Model,
) -> str:
    """Say which kinds a model has in place of those that a pass looked for."""
    results = [item for graph in model.graphs for _, item in find(Views.shared(graph))]
    kinds = Counter(item.kind.value for item in results if not isinstance(item, Refused))
    there = " and ".join(f"{count} of kind {kind}" for kind, count in kinds.items())
    return f"it looked for {what} of kind {' or '.join(wanted)}; the model has {there or 'none'}"


_SETTINGS = ("takes", "kind", "kinds", "layout", "layouts")
"""What authors set on the classes; not each base class has all of them."""


def _check_settings(own: SemanticFusionPass[Any], name: str) -> None:
    """Raise ``PassError`` for a wrong feature, or an attribute that nothing reads."""
    for setting in ("takes", "kinds"):
        value: Any = getattr(own, setting, ())
        if isinstance(value, str):
            raise PassError(
                f"{setting} is a set of names, got a text",
                subject=name,
                hint=f'write {setting} = {{"{value}"}}',
            )
    unknown = sorted(set(own.takes) - set(own.features))
    if unknown:
        raise PassError(
            f"takes: there is no feature {unknown[0]!r}; there are {', '.join(own.features)}",
            subject=name,
        )
    layouts: Mapping[str, str] = getattr(own, "layouts", PLAIN)
    strange = sorted(set(layouts) - set(PLAIN))
    if strange:
        raise PassError(
            f"layouts: there is no tensor {strange[0]!r}; there are {', '.join(PLAIN)}",
            subject=name,
        )
    base = next(cls for cls in type(own).__mro__ if cls.__module__ == __name__)
    settings = [setting for setting in _SETTINGS if hasattr(base, setting)]
    for attribute, value in vars(type(own)).items():
        if callable(value) or hasattr(base, attribute) or attribute.startswith("_"):
            continue
        near = get_close_matches(attribute.lower(), settings, 1, 0.8)
        if near or attribute in _SETTINGS:
            meant = f"; is {near[0]} meant?" if near else f"; it has {', '.join(settings)}"
            raise PassError(f"{base.__name__} has no {attribute}{meant}", subject=name)


def _kinds(
    own: NormFusionPass | ActivationFusionPass, kinds: type[NormKind | ActivationKind]
) -> Collection[str]:
    results = own.kinds or [own.kind]
    for kind in results:
        if kind not in [*kinds]:
            raise PassError(
                f"kind: there is no {kind!r}; there are {', '.join(kinds)}",
                subject=type(own).__name__,
            )
    return results
