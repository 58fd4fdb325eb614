"""An attention as a kernel takes it, and what replaces the graph's operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gehost import DataType, EsGraph, EsTensor, PassError, Refused, Value, es
from gehost_semantic.atoms import Atom, Operand
from gehost_semantic.attention import Add, Attention, Cache, Floor, Role, Select
from gehost_semantic.extents import Extent, exact_int, total
from gehost_semantic.kernel_call import HALVES, KernelCall, Known, is_rounded, nodes_between, number
from gehost_semantic.layouts import (
    Layout,
    is_readable,
    layout_of,
    relaid,
    size_of,
    way_up,
    words_of,
)
from gehost_semantic.projections import Projections, projections
from gehost_semantic.sources import PLAIN, Sources
from gehost_semantic.view import coalesced
from gehost_semantic.views import Views

FEATURES: Mapping[str, str] = {
    "causal": "each query sees the keys up to its own place, without a mask (`is_causal`)",
    "empty rows": "a row that the mask leaves empty gives 0, not NaN",
    "groups": "k and v have fewer heads than q",
    "mask": "one addend of the scores, which broadcasts to [b, h, s, t] (`attention.mask`)",
    "window": "with `causal`: each query sees `attention.window` keys at most, without a mask",
    "past": "`attention.past_k`, `past_v` before k and v; both presents are results of the kernel",
    "softcap": "scores become `attention.softcap * tanh(scores)` before the mask",
}
"""What a kernel may take beyond q, k, v and scale."""

_ALLOWZERO = 14
"""The first opset whose Reshape need not copy a size for 0."""
_LOWEST = -1e30
"""A score that is replaced by at most this has no weight, and absorbs what is added to it."""
_LOWEST_OF_HALF = -6e4
"""The same in float16, whose lowest number is -65504."""


class AttentionCall(KernelCall):
    """An attention as a kernel takes it: tensors in one layout, numbers, and ``reject``.

    Shapes: q [b, h, s, d], k [b, hk, t, d], v [b, hk, t, v]; the result is [b, h, s, v]; other ones
    where the pass states ``layouts``. ``hk`` is ``h`` unless the pass takes groups. ``mask``
    broadcasts to [b, h, s, t].
    """

    title = "softmax(q·kᵀ·scale, then softcap and mask)·v"
    operands = frozenset({"q", "k", "v"})
    example = 'es.op("npu::FlashAttention")(attention.q, attention.k, attention.v)'

    def __init__(
        self,
        views: Views,
        description: Attention,
        takes: Collection[str] = frozenset({"mask"}),
        layouts: Mapping[str, str] = PLAIN,
    ) -> None:
        super().__init__("attention", description.softmax.graph.model.opset() or 0, takes)
        self.description = description
        self.allowzero = self.opset >= _ALLOWZERO
        """Whether Reshape has the attribute."""
        self._views = views
        self.layouts = {**PLAIN, **layouts}
        """The layouts of q, k, v and the result."""
        self.may_have_empty_rows = True
        """Whether a row of the mask may be -inf throughout; a pass may prove otherwise."""
        self._sources = Sources(views, description, takes_groups="groups" in takes)
        self._factor = 1.0
        """What multiplies q and k already in their tensors."""
        for name in ("q", "k"):
            value, _ = self._sources.choose(name, self.layouts[name])
            self._factor *= self._sources.factor(value)
        self._sources.choose("v", self.layouts["v"])  # refused early
        self._caches = self._fitting() if "past" in self.takes else None
        if self._caches is not None:
            self.outputs = ("output", "present_k", "present_v")
        self.ignores_padding = False
        """Whether masks over batch and keys alone are known to keep each key; a pass may say so."""

    # numbers

    @number
    def head_size(self) -> int:
        """The size of a head of q and k."""
        return _known(self.description.head_size)

    @number
    def value_size(self) -> int:
        """The size of a head of v and of the result."""
        return _known(self.description.value_size)

    @number
    def heads(self) -> int:
        """The number of heads of q."""
        return _known(self.description.heads)

    @number
    def key_heads(self) -> int:
        """The number of heads of k and v that the kernel gets."""
        return _known(self.description.key_heads) if "groups" in self.takes else self.heads

    @number
    def scale(self) -> float:
        """The number that multiplies q·kᵀ."""
        return self._scale

    @property
    def _scale(self) -> float:
        return self.description.scale / self._factor

    @number
    def softcap(self) -> float | None:
        return self.description.softcap

    @number
    def is_causal(self) -> bool:
        """Whether the mask is replaced by ``t <= s`` and ``window``: False unless it is taken."""
        return self._is_causal

    @property
    def _is_causal(self) -> bool:
        mask = self.description.mask
        most = _LOWEST_OF_HALF if self.dtype is DataType.FLOAT16 else _LOWEST
        past = self.past_length
        rest = [item for item in mask.rest if not (self.ignores_padding and _is_padding(*item))]
        if "causal" not in self.takes or rest or mask.fill > most:
            return False
        windows = [limit for limit in mask.limits if limit.is_window]
        if len(windows) > 1 or (windows and self._window is None):
            return False
        if len(windows) == len(mask.limits):  # the last query sees all keys up to its own
            return self.description.queries == 1 and self.description.keys == past + 1
        # with other lengths some kernels align the first places, and some the last
        is_square = self.description.keys == past + self.description.queries
        return is_square and len(mask.limits) == len(windows) + 1 and mask.causal == past

    @number
    def window(self) -> int | None:
        """How many keys a query sees, up to its own place; None for all, or if none is taken."""
        return self._window

    @property
    def _window(self) -> int | None:
        most = self.description.mask.window
        size = None if most is None else exact_int(most + self.past_length + 1)
        return size if size is not None and size > 0 and "window" in self.takes else None

    @property
    def has_mask(self) -> bool:
        return bool(self.description.after) and not self._is_causal

    @property
    def dtype(self) -> DataType | None:
        """The element type of q."""
        return self.description.q.value.dtype

    @property
    def value_type(self) -> DataType | None:
        """The element type of v."""
        return self._sources.own("v").value.dtype

    @property
    def inner_types(self) -> frozenset[DataType | None]:
        """The element types of the tensors between q, k, v and the result."""
        sources = [self._sources.choose(name, self.layouts[name])[0] for name in "qkv"]
        nodes = nodes_between([self._sources.result.value], [*sources, *self._masks()])
        return frozenset(value.dtype for node in nodes for value in node.outputs if value)

    def _masks(self) -> list[Value]:
        after = self.description.after
        return [step.operand.value for step in after if not isinstance(step, Floor)]

    @property
    def score_type(self) -> DataType:
        """The element type of the scores and of ``mask``."""
        return self._sources.score_type

    @property
    def has_past(self) -> bool:
        """Whether k and v are the new ones alone: always False unless the pass takes a past."""
        return self._caches is not None

    @property
    def past_length(self) -> Extent:
        """The number of keys in the past; 0 without one."""
        return 0 if self._caches is None else self._sizes_of(self._caches[0].past)[2]

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
    def past_k(self) -> EsTensor | None:
        """The keys [b, h, p, d] before ``k``, None without a past."""
        return self._past("past_k", 0)

    @property
    def past_v(self) -> EsTensor | None:
        """The values [b, h, p, v] before ``v``, None without a past."""
        return self._past("past_v", 1)

    def _past(self, name: str, place: int) -> EsTensor | None:
        caches = self._caches
        return caches and self._once(name, lambda: self._input(caches[place].past))

    def _sizes_of(self, value: Value) -> tuple[Extent, ...]:
        shape = self._views.shape(value)
        assert shape is not None
        return shape

    def _fitting(self) -> tuple[Cache, Cache] | None:
        """Return the caches of k and v if both are [b, h, past and new, ·]."""
        results: list[Cache] = []
        for name, cache in zip("kv", self.description.past, strict=True):
            if (
                cache is None
                or cache.is_static
                or self.value(name, PLAIN[name]) is not cache.present
            ):
                return None
            node = cache.present.producer
            shapes = [self._views.shape(item) for item in (cache.past, cache.new)]
            if node is None or node.attrs["axis"] not in (2, -2) or None in shapes:
                return None
            if shapes[1] is None or shapes[1][2] != self.description.queries:
                return None
            if (
                cache.present.dtype != self.dtype
                or cache.present.graph is not self.description.softmax.graph
            ):
                return None
            results.append(cache)
        k, v = results
        return (k, v) if self._sizes_of(k.past)[2] == self._sizes_of(v.past)[2] else None

    def _new(self, name: str) -> EsTensor:
        """Return the new keys or values in the layout of the pass."""
        assert self._caches is not None
        new, text = self._caches["kv".index(name)].new, self.layouts[name]
        view = self._views.of(new)
        assert view is not None
        plain = self._sources.layout(name, PLAIN[name], is_wide="groups" not in self.takes)
        source = [list(axis) for axis in plain]
        source[2] = self.description.atoms(Role.QUERY)
        letters = PLAIN[name].split()
        target = layout_of(text, dict(zip(letters, source, strict=True)))
        dims = dict(zip(letters, view.dims, strict=True))
        expected = tuple(
            coalesced(term for letter in word for term in dims[letter]) for word in words_of(text)
        )
        for value in way_up(self._views, new, view.base)[::-1]:
            own = self._views.of(value)
            if value.dtype == new.dtype and own == replace(view, dims=expected):
                return self._input(value)
        return self._relaid(self._input(new), source, target)

    def input(self, value: Value) -> EsTensor:
        """Return a tensor of the graph, before q, k and v, as an input of the replacement."""
        self.reads.update("qkv")
        return self._input(value)

    def value(self, name: str, layout: str) -> Value | None:
        """Return the tensor of the graph that is q, k or v in a layout, as ``b t (h d)``."""
        return self._sources.with_layout(name, layout)

    def projections(self) -> Projections:
        """Return q, k and v as products of one tensor [b, s, d] with constant matrices.

        Raises:
            Refused: they are none.
        """
        self.reads.update("qkv")
        layouts = {"q": "b s h d", "k": "b t h d", "v": "b t h v"}
        values = [
            self.value(name, f"{text[:3]} ({text[4:]})") or self.value(name, text)
            for name, text in layouts.items()
        ]
        own = [value for value in values if value is not None]
        if len(own) < 3 or self.description.scales:
            raise Refused("layout", "q, k and v are not all projections")
        sizes = self.head_size, self.head_size, self.value_size
        counts = self.heads, self.key_heads, self.key_heads
        widths = [count * size for count, size in zip(counts, sizes, strict=True)]
        return projections(self._views, own, widths)

    @property
    def mask(self) -> EsTensor | None:
        """The addend of the scores; None without one."""
        if not self.has_mask:
            return None
        if "mask" not in self._tensors:
            self._tensors["mask"] = self._mask()
        return self._tensors["mask"]

    @property
    def full_mask(self) -> EsTensor | None:
        """The addend of the scores with all queries and keys: [b or 1, h or 1, s, t]."""
        mask = self.mask
        if mask is None or "full mask" in self._tensors:
            return self._tensors.get("full mask")
        lengths = [
            [1] if self._is_full(role) else self._length(self.description.atoms(role))
            for role in (Role.QUERY, Role.KEY)
        ]
        if lengths != [[1], [1]]:
            mask = es.Expand(mask, _joined([[1, 1], *lengths]))
        self._tensors["full mask"] = mask
        return mask

    def _is_full(self, role: Role) -> bool:
        """Whether an addend is known to have all queries or keys."""
        description = self.description
        atoms = set(description.atoms(role))
        for step in description.after:
            if isinstance(step, Floor):
                continue
            operand = step.operand
            for dim, terms in zip(
                operand.dims[::-1],
                operand.view.dims[: -len(operand.dims) - 1 : -1],
                strict=True,
            ):
                stored = {index.atom for index in dim}
                size = total(description.sizes[atom] for atom in stored)
                if atoms and atoms <= stored and size == total(term.size for term in terms):
                    return True
        return not atoms

    def length(self, letter: str) -> EsTensor:
        """Return the size of an axis as a vector: ``b``, ``s`` or ``t``."""
        description = self._length(self.description.atoms(Role(letter)))
        return (
            description
            if isinstance(description, EsTensor)
            else self._builder.CreateConst(np.array(description))
        )

    def _length(self, atoms: Sequence[Atom]) -> EsTensor | list[int]:
        """Return a size as a vector: from an input of the graph, or from q or k."""
        description, sources = self.description, self._sources
        size = total(description.sizes[atom] for atom in atoms)
        result = self._of_inputs(size)
        if result is not None:
            return result
        if self._caches is not None and atoms == description.atoms(Role.KEY):
            past = self._of_inputs(self.past_length)
            if past is None:
                whole = es.Shape(self._input(self._caches[0].past))
                past = es.Slice(whole, [2], [3], [0])
            return es.Add(past, self.length("s"))
        for name in ("q", "k"):
            value, layout = sources.choose(name, self.layouts[name])
            if is_readable(atoms, layout, description.sizes):
                return size_of(self._input(value), layout, atoms, description.sizes)
        raise Refused("mask", "the size to which it is expanded cannot be read")

    def _of_inputs(self, size: Extent) -> EsTensor | list[int] | None:
        """Return a size as a vector, if it is a number or that of an input of the graph."""
        if isinstance(size, int):
            return [size]
        for value in self.description.softmax.graph.inputs:
            shape = None if value.is_constant else self._views.shape(value)
            if shape is not None and size in shape:
                place = shape.index(size)
                whole = es.Shape(self._input(value))
                return es.Slice(whole, starts=[place], ends=[place + 1], axes=[0])
        return None

    def _tensor(self, name: str) -> EsTensor:
        self.reads.add(name)
        if self._caches is not None and name != "q":
            return self._once(name, lambda: self._new(name))
        return self._once(name, lambda: self.operand(name, self.layouts[name]))

    def operand(self, name: str, text: str) -> EsTensor:
        """Return q, k or v in a layout, as ``b t (h d)``."""
        self.reads.add(name)
        description, sources = self.description, self._sources
        value, layout = sources.choose(name, text)
        tensor = self._input(value)
        factor = sources.factor(value)
        usual = sources.factor(sources.choose(name, self.layouts[name])[0])
        if factor != usual:
            tensor = es.Mul(tensor, usual / factor)
        if name == "q":
            return self._relaid(self._scaled(tensor, layout), layout, sources.layout(name, text))
        heads, repeats = _known(description.heads), _known(description.groups)
        if sources.is_wide(name) or repeats == 1 or "groups" in self.takes:
            return self._relaid(
                tensor,
                layout,
                sources.layout(name, text, is_wide=sources.is_wide(name)),
            )
        plain = sources.layout(name, PLAIN[name], is_wide=False)
        tensor = self._relaid(tensor, layout, plain)
        if description.key_heads == 1:
            tensor = es.Expand(tensor, [1, repeats, 1, 1])
        else:
            tensor = _repeated(tensor, heads, repeats, allowzero=self.allowzero)
        return self._relaid(tensor, sources.layout(name, PLAIN[name]), sources.layout(name, text))

    def as_plain(self, name: str, tensor: EsTensor) -> EsTensor:
        """Return q, k or v of the kernel as [b, h, ·, ·]."""
        sources = self._sources
        is_wide = "groups" not in self.takes
        own, plain = (
            sources.layout(name, text, is_wide=is_wide)
            for text in (self.layouts[name], PLAIN[name])
        )
        return self._relaid(tensor, own, plain)

    def as_result(self, tensor: EsTensor) -> EsTensor:
        """Return [b, h, s, v] in the layout of the kernel's result."""
        texts = (PLAIN["result"], self.layouts["result"])
        plain, own = (self._sources.layout("result", text) for text in texts)
        return self._relaid(tensor, plain, own)

    def _relaid(self, tensor: EsTensor, source: Layout, target: Layout) -> EsTensor:
        return relaid(tensor, source, target, self.description.sizes, allowzero=self.allowzero)

    def _scaled(self, q: EsTensor, layout: Layout) -> EsTensor:
        """Multiply q by tensors that scale its heads or rows."""
        if not self.description.scales:
            return q
        plain = self._sources.layout("q", PLAIN["q"])
        q = self._relaid(q, layout, plain)
        for operand, divides in self.description.scales:
            factor = self._wide(operand)
            q = es.Div(q, factor) if divides else es.Mul(q, factor)
        return self._relaid(q, plain, layout)

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
                    retained = self._score(0) if merged is None else merged
                    merged = (
                        es.Where(condition, retained, low)
                        if keeps
                        else es.Where(condition, low, retained)
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
        value, layout = self._sources.of_operand(operand)
        stored = {atom for axis in layout for atom in axis}
        wholes = self._wholes()
        axes = [[atom for atom in whole if atom in stored] for whole in wholes]
        parts = [own and len(own) < len(whole) for own, whole in zip(axes, wholes, strict=True)]
        tensor = self._input(value)
        if not any(parts):
            return self._relaid(tensor, layout, axes)
        # it spreads over a part of the heads or batches
        apart: list[list[Atom]] = []
        wide: list[list[Atom]] = []
        lengths: list[EsTensor | list[int]] = []
        for own, whole, is_part in zip(axes, wholes, parts, strict=True):
            for atoms in [[atom] for atom in whole] if is_part else [own]:
                is_new = is_part and atoms[0] not in stored
                apart.append([] if is_new else atoms)
                wide.append(atoms)
                lengths.append(self._length(atoms) if is_new else [1])
        tensor = es.Expand(self._relaid(tensor, layout, apart), _joined(lengths))
        target = [
            whole if is_part else own
            for own, whole, is_part in zip(axes, wholes, parts, strict=True)
        ]
        return self._relaid(tensor, wide, target)

    def _wholes(self) -> list[list[Atom]]:
        """Return the atoms of each axis of the scores."""
        sources, roles = self._sources, self.description.roles
        kinds = ((Role.BATCH,), (Role.HEAD, Role.GROUP), (Role.QUERY,), (Role.KEY,))
        return [
            [atom for kind in item for atom in sources.order if roles[atom] is kind]
            for item in kinds
        ]

    # the replacement

    def refusal(self) -> str:
        """Return the first feature that the kernel lacks, with the reason; "" if there is none."""
        description = self.description
        if not all(
            isinstance(size, int)
            for size in (
                description.head_size,
                description.value_size,
                description.heads,
            )
        ):
            return "heads: their number or size is not known"
        if description.softcap is not None and "softcap" not in self.takes:
            return "softcap: the kernel takes none"
        if self.has_mask and "mask" not in self.takes:
            if "causal" in self.takes:
                return "mask: not proven to be causal and nothing else"
            return "mask: the kernel takes none"
        if description.probability_readers:
            return f"probabilities: {description.probability_readers[0]} reads them"
        for operand, _ in description.scales:
            if any(description.roles.get(atom) is Role.KEY for atom in operand.atoms):
                return "scale: a tensor over the keys"
        for place, step in enumerate(description.after):
            if isinstance(step, Select) and not step.fill <= -1e4:
                return f"mask: it puts {step.fill:g} in place of a score"
            narrow = self._sources.score_type not in (DataType.FLOAT, DataType.DOUBLE)
            if isinstance(step, Select) and narrow and not np.isinf(step.fill):
                return "mask: a finite one in half precision"
            if isinstance(step, Floor) and (
                step.least > _LOWEST or place < len(description.after) - 1 or not place
            ):
                return f"scores: at least {step.least:g}"
        return ""

    def needs(self) -> Collection[str]:
        pasts = () if self._caches is None else ("past_k", "past_v")
        return (*pasts, "mask") if self.has_mask else pasts

    def numbers(self) -> Collection[str]:
        results = ["q", "k", "v"]  # a kernel may get what these are computed from
        if self._scale != 1:
            results.append("scale")
        if self.description.softcap is not None:
            results.append("softcap")
        if self._is_causal:
            results.append("is_causal")
            results += [] if self._window is None else ["window"]
        sizes = {"heads", "key_heads", "head_size", "value_size"}
        is_folded = self.description.heads != 1 and any(
            "(" in layout for name, layout in self.layouts.items() if name in self._tensors
        )
        return [*results, "heads"] if is_folded and self.reads.isdisjoint(sizes) else results

    def finish(self, output: Any, known: Known) -> EsGraph:
        description = self.description
        results: list[Any] = (
            [*output] if self._caches and isinstance(output, list | tuple) else [output]
        )
        result, *presents = [self._result(cach) for cach in results]
        if self._caches is not None and len(presents) != 2:
            raise PassError(
                "Replacement must return the result and both presents where there is a past",
                hint="attention.has_past says so",
            )
        self._check_use([result, *presents])
        graph = result.graph
        self._define(graph, known)
        sources = self._sources
        layout = sources.layout("result", self.layouts["result"])
        if description.zero_empty_rows and "empty rows" not in self.takes and self.has_mask:
            result, layout = self._with_empty_rows(result, layout)
        target = [[index.atom for index in dim] for dim in sources.result.dims]
        result, old = self._relaid(result, layout, target), sources.result.value
        if old.dtype is not None and old.dtype != self.dtype:
            result = es.Cast(result, to=old.dtype)
        graph.outputs = [result, *presents]
        caches = self._caches or ()
        inner = [description.q.value, *self._masks(), *(cach.new for cach in caches)]
        self._cover([old, *(cach.present for cach in caches)], inner)
        return graph

    def _with_empty_rows(self, result: EsTensor, layout: Layout) -> tuple[EsTensor, Layout]:
        """Put 0 in rows whose mask is -inf throughout, as the graph does."""
        if not self.may_have_empty_rows:
            return result, layout
        mask, sources = self.mask, self._sources
        assert mask is not None
        stored = {
            atom
            for step in self.description.after
            if not isinstance(step, Floor)
            for atom in step.operand.atoms
        }
        b, h, s, _ = self._wholes()
        own = [whole if stored & set(whole) else [] for whole in (b, h, s)] + [[]]
        if own[1]:
            plain = sources.layout("result", PLAIN["result"])
            result, layout = self._relaid(result, layout, plain), plain
        rows = [[atom for atom in axis if atom in set().union(*own)] for axis in layout]
        dtype = sources.score_type
        if dtype in HALVES:  # few runtimes compare them
            mask, dtype = es.Cast(mask, to=DataType.FLOAT), DataType.FLOAT
        top = es.ReduceMax(mask, axes=[3], keepdims=1)
        retained = es.Greater(self._relaid(top, own, rows), self._number(-np.inf, dtype))
        return es.Where(retained, result, self._number(0, self.dtype or DataType.FLOAT)), layout

    def formula(self, of: Mapping[str, EsTensor]) -> EsTensor | Sequence[EsTensor]:
        """Return ``softmax(q·kᵀ·scale, then softcap and mask)·v`` of the kernel's tensors."""
        q, k, v = (self.as_plain(name, of[name]) for name in "qkv")
        first: EsTensor | np.int64 = np.int64(1)
        if self._caches is not None:
            past = of["past_k"]
            k, v = es.Concat(past, k, axis=2), es.Concat(of["past_v"], v, axis=2)
            first = es.Add(es.Squeeze(es.Slice(es.Shape(past), [2], [3], [0]), [0]), 1)
        presents = (k, v) if self._caches is not None else ()
        repeats = self.heads // self.key_heads
        if repeats > 1:
            k, v = (
                _repeated(tensor, self.heads, repeats, allowzero=self.allowzero)
                for tensor in (k, v)
            )
        scores = es.MatMul(q, es.Transpose(k, perm=[0, 1, 3, 2]))
        inner, own = self.score_type, self.dtype or self.score_type
        current = own
        if any(is_rounded(number, own) for number in (self.scale, self.softcap or 1.0)):
            scores, current = es.Cast(scores, to=DataType.FLOAT), DataType.FLOAT
        if self.scale != 1:
            scores = es.Mul(scores, self.scale)
        if current == own != inner:
            scores, current = es.Cast(scores, to=inner), inner
        if self.softcap is not None:
            scores = es.Mul(es.Tanh(scores), self.softcap)
        if current != inner:
            scores = es.Cast(scores, to=inner)
        if "mask" in of:
            scores = es.Add(scores, of["mask"])
        if self.is_causal:
            low = es.CastLike(np.float32(-np.inf), scores)
            lows = es.Expand(low, es.Shape(scores))
            scores = es.Add(scores, es.Trilu(lows, first, upper=1))
            if self.window is not None:
                last = first - (self.window + 1)
                scores = es.Add(scores, es.Trilu(lows, last, upper=0))
        if self.value_type != inner:
            v = es.Cast(v, to=inner)
        mixed = es.MatMul(es.Softmax(scores, axis=-1), v)
        result = self.as_result(mixed if inner == own else es.Cast(mixed, to=own))
        return (result, *presents) if presents else result


def _repeated(tensor: EsTensor, heads: int, repeats: int, *, allowzero: bool) -> EsTensor:
    """Return [b, hk, t, d] with each head repeated: [b, h, t, d]."""
    wide = es.Expand(es.Unsqueeze(tensor, axes=[2]), [1, 1, repeats, 1, 1])
    shape = es.Shape(tensor)
    sizes = [es.Slice(shape, starts=[n], ends=[n + 1], axes=[0]) for n in (0, 2, 3)]
    target = es.Concat(sizes[0], [heads], sizes[1], sizes[2], axis=0)
    return es.Reshape(wide, target, allowzero=1) if allowzero else es.Reshape(wide, target)


def _joined(sizes: Sequence[EsTensor | list[int]]) -> EsTensor | list[int]:
    """Return vectors as one."""
    numbers = [size for size in sizes if isinstance(size, list)]
    if len(numbers) == len(sizes):
        return [number for size in numbers for number in size]
    return es.Concat(*sizes, axis=0)


def _is_padding(kind: str, roles: Collection[Role]) -> bool:
    return kind == "keep" and set(roles) <= {Role.BATCH, Role.KEY}


def _known(size: Extent) -> int:
    number = exact_int(size)
    if number is None:
        raise Refused("heads", "their number or size is not known")
    return number
