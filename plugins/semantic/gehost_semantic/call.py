"""An attention as a kernel takes it, and what replaces the graph's operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from gehost import (
    DataType,
    EsGraph,
    EsTensor,
    Value,
    es,
)
from gehost_semantic.atoms import Atom, Operand, Refused
from gehost_semantic.attention import Add, Attention, Floor, Role, Select
from gehost_semantic.extents import Extent, exact_int
from gehost_semantic.kernel_call import KernelCall
from gehost_semantic.layouts import relaid
from gehost_semantic.sources import Sources
from gehost_semantic.views import Views

FEATURES: Mapping[str, str] = {
    "causal": "each query sees the keys up to its own place, without a mask (`is_causal`)",
    "empty rows": "a row that the mask leaves empty gives 0, not NaN",
    "groups": "k and v have fewer heads than q",
    "mask": "one addend of the scores, which broadcasts to [b, h, s, t] (`attention.mask`)",
    "softcap": "scores become `attention.softcap * tanh(scores)` before the mask",
}
"""What a kernel may take beyond q, k, v and scale."""

_ALLOWZERO = 14
"""The first opset whose Reshape need not copy a size for 0."""
_LOWEST = -1e30
"""A score that is replaced by at most this has no weight, and absorbs what is added to it."""
_LOWEST_OF = {
    DataType.FLOAT16: -65504.0,
    DataType.BFLOAT16: -3.3895313892515355e38,
    DataType.FLOAT: -3.4028234663852886e38,
    DataType.DOUBLE: -1.7976931348623157e308,
}
"""Below the lowest number of its type a mask is -inf."""


class AttentionCall(KernelCall):
    """An attention as a kernel takes it: tensors in one layout, numbers, and ``reject``.

    Shapes: q [b, h, s, d], k [b, hk, t, d], v [b, hk, t, v]; the result is [b, h, s, v]. ``hk`` is
    ``h`` unless the pass takes groups. ``mask`` broadcasts to [b, h, s, t].
    """

    title = "softmax(q·kᵀ·scale, then softcap and mask)·v, in [b, h, s, d]"
    operands = frozenset({"q", "k", "v"})
    example = 'es.op("npu::FlashAttention")(attention.q, attention.k, attention.v)'

    def __init__(self, views: Views, description: Attention, takes: Collection[str]) -> None:
        super().__init__("attention", description.softmax.graph.model.opset() or 0, takes)
        self.description = description
        self.allowzero = self.opset >= _ALLOWZERO
        """Whether Reshape has the attribute."""
        self._views = views
        self._sources = Sources(views, description, takes_groups="groups" in takes)

    # numbers

    @property
    def head_size(self) -> int:
        """The size of a head of q and k."""
        return _known(self.description.head_size)

    @property
    def value_size(self) -> int:
        """The size of a head of v and of the result."""
        return _known(self.description.value_size)

    @property
    def heads(self) -> int:
        """The number of heads of q."""
        return _known(self.description.heads)

    @property
    def key_heads(self) -> int:
        """The number of heads of k and v that the kernel gets."""
        return _known(self.description.key_heads) if "groups" in self.takes else self.heads

    @property
    def scale(self) -> float:
        """The number that multiplies q·kᵀ."""
        return self.description.scale / self._sources.factor

    @property
    def softcap(self) -> float | None:
        return self.description.softcap

    @property
    def is_causal(self) -> bool:
        """Whether the mask is replaced by ``t <= s``: always False unless the pass takes it."""
        mask = self.description.mask
        return "causal" in self.takes and not mask.rest and mask.causal == 0 and mask.window is None

    @property
    def has_mask(self) -> bool:
        return bool(self.description.after) and not self.is_causal

    @property
    def dtype(self) -> DataType | None:
        """The element type of q."""
        return self.description.q.value.dtype

    # tensors, in Replacement

    @property
    def q(self) -> EsTensor:
        return self._tensor("q")

    @property
    def k(self) -> EsTensor:
        return self._tensor("k")

    @property
    def v(self) -> EsTensor:
        return self._tensor("v")

    @property
    def mask(self) -> EsTensor | None:
        """The addend of the scores; None without one."""
        if not self.has_mask:
            return None
        if "mask" not in self._tensors:
            self._tensors["mask"] = self._mask()
        return self._tensors["mask"]

    def _tensor(self, name: str) -> EsTensor:
        return self._once(name, lambda: self._made(name))

    def _made(self, name: str) -> EsTensor:
        description, sources = self.description, self._sources
        value, layout = sources.of[name]
        tensor = self._input(value)
        if name == "q":
            tensor = relaid(
                tensor, layout, sources.q_layout, description.sizes, allowzero=self.allowzero
            )
            return self._scaled(tensor)
        if sources.is_wide(name):
            return relaid(
                tensor,
                layout,
                sources.wide_layout(name),
                description.sizes,
                allowzero=self.allowzero,
            )
        operand = description.k if name == "k" else description.v
        tensor = relaid(
            tensor, layout, sources.key_layout(operand), description.sizes, allowzero=self.allowzero
        )
        repeats = _known(description.heads) // _known(description.key_heads)
        if repeats > 1 and "groups" not in self.takes:
            if description.key_heads == 1:
                return es.Expand(tensor, [1, repeats, 1, 1])
            return _repeated(tensor, _known(description.heads), repeats, allowzero=self.allowzero)
        return tensor

    def _scaled(self, q: EsTensor) -> EsTensor:
        """Multiply q by tensors that scale its heads or rows."""
        for operand, divides in self.description.scales:
            factor = self._wide(operand)
            q = es.Div(q, factor) if divides else es.Mul(q, factor)
        return q

    def _mask(self) -> EsTensor:
        """Merge all addends and masks into one addend."""
        merged: EsTensor | None = None
        for step in self.description.after:
            match step:
                case Add(operand, factor):
                    addend = self._wide(operand)
                    times = factor * operand.factor / self._sources.factor_of(operand)
                    if times != 1:
                        addend = es.Mul(addend, times)
                    merged = addend if merged is None else es.Add(merged, addend)
                case Select(operand, keeps, fill):
                    condition = self._wide(operand)
                    if operand.value.dtype is not DataType.BOOL:
                        condition = es.Cast(condition, to=DataType.BOOL)
                    low = self._score(fill if np.isinf(fill) else min(fill, _LOWEST))
                    kept = self._score(0) if merged is None else merged
                    merged = (
                        es.Where(condition, kept, low) if keeps else es.Where(condition, low, kept)
                    )
                case Floor(least):
                    if merged is not None:
                        merged = es.Max(merged, self._score(least))
        assert merged is not None
        return merged

    def _score(self, number: float) -> EsTensor:
        """Return a constant of the scores' type."""
        return self._number(number, self._sources.score_type)

    def _wide(self, operand: Operand) -> EsTensor:
        """Return a mask or scale as [b, h, s, t], with 1 where it spreads."""
        roles, sizes = self.description.roles, self.description.sizes
        value, layout = self._sources.of_operand(operand)
        stored = [atom for axis in layout for atom in axis]
        axes: list[list[Atom]] = []
        for kinds in ((Role.BATCH,), (Role.HEAD, Role.GROUP), (Role.QUERY,), (Role.KEY,)):
            whole = [atom for atom in self._sources.order if roles[atom] in kinds]
            own = [atom for atom in whole if atom in stored]
            if own and len(own) < len(whole):
                raise Refused("mask: it spreads over a part of the heads or batches")
            axes.append(own)
        return relaid(self._input(value), layout, axes, sizes, allowzero=self.allowzero)

    def _input(self, value: Value) -> EsTensor:
        return self._inputs[value]

    # the replacement

    def refusal(self) -> str:
        """Return the first feature that the kernel lacks, with the reason; "" if there is none."""
        description = self.description
        if not all(
            isinstance(size, int)
            for size in (description.head_size, description.value_size, description.heads)
        ):
            return "heads: their number or size is not known"
        if description.softcap is not None and "softcap" not in self.takes:
            return "softcap: the kernel takes none"
        if self.has_mask and "mask" not in self.takes:
            return "mask: the kernel takes none"
        if description.probability_readers:
            return f"probabilities: {description.probability_readers[0]} reads them"
        for operand, _ in description.scales:
            if any(description.roles.get(atom) is Role.KEY for atom in operand.atoms):
                return "scale: a tensor over the keys"
        for number, step in enumerate(description.after):
            if isinstance(step, Select) and not step.fill <= -1e4:
                return f"mask: it puts {step.fill:g} in place of a score"
            narrow = self._sources.score_type not in (DataType.FLOAT, DataType.DOUBLE)
            if isinstance(step, Select) and narrow and not np.isinf(step.fill):
                return "mask: a finite one in half precision"
            if isinstance(step, Floor) and (
                step.least > _LOWEST or number < len(description.after) - 1 or not number
            ):
                return f"scores: at least {step.least:g}"
        return ""

    def begin(self) -> None:
        self._begin([self._sources.result.value], self._sources.values())

    def finish(self, made: Any, known: Collection[str]) -> EsGraph:
        description = self.description
        result = self._result(made)
        graph = result.graph
        self._define(graph, known)
        sources = self._sources
        if description.zero_empty_rows and "empty rows" not in self.takes and self.has_mask:
            mask = self.mask
            assert mask is not None
            top = es.ReduceMax(mask, axes=[3], keepdims=1)
            lowest = self._score(_LOWEST_OF[sources.score_type])
            result = es.Where(es.Less(top, lowest), self._score(0), result)
        target = [[index.atom for index in dim] for dim in sources.result.dims]
        result = relaid(
            result, sources.result_layout, target, description.sizes, allowzero=self.allowzero
        )
        graph.outputs = [result]
        return graph

    def formula(self, of: Mapping[str, EsTensor]) -> EsTensor:
        """Return ``softmax(q·kᵀ·scale, then softcap and mask)·v`` of tensors [b, h, s, d]."""
        q, k, v = of["q"], of["k"], of["v"]
        repeats = self.heads // self.key_heads
        if repeats > 1:
            k, v = (
                _repeated(tensor, self.heads, repeats, allowzero=self.allowzero)
                for tensor in (k, v)
            )
        scores = es.MatMul(q, es.Transpose(k, perm=[0, 1, 3, 2]))
        if self.scale != 1:
            scores = es.Mul(scores, self.scale)
        if self.softcap is not None:
            scores = es.Mul(es.Tanh(scores), self.softcap)
        if "mask" in of:
            scores = es.Add(scores, of["mask"])
        if self.is_causal:
            low = es.CastLike(np.float32(-np.inf), scores)
            above = es.Trilu(es.Expand(low, es.Shape(scores)), np.int64(1), upper=1)
            scores = es.Add(scores, above)
        return es.MatMul(es.Softmax(scores, axis=-1), v)


def _repeated(tensor: EsTensor, heads: int, repeats: int, *, allowzero: bool) -> EsTensor:
    """Return [b, hk, t, d] with each head repeated: [b, h, t, d]."""
    wide = es.Expand(es.Unsqueeze(tensor, axes=[2]), [1, 1, repeats, 1, 1])
    shape = es.Shape(tensor)
    sizes = [es.Slice(shape, starts=[n], ends=[n + 1], axes=[0]) for n in (0, 2, 3)]
    target = es.Concat(sizes[0], [heads], sizes[1], sizes[2], axis=0)
    return es.Reshape(wide, target, allowzero=1) if allowzero else es.Reshape(wide, target)


def _known(size: Extent) -> int:
    number = exact_int(size)
    if number is None:
        raise Refused("heads: their number or size is not known")
    return number
