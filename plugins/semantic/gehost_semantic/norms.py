"""Layer, RMS and group normalization, found from the root of a mean of squares.

``(x − mean(x)) / √(mean((x − mean(x))²) + ε) · scale + bias``, or without the mean; the mean of
squares less the square of the mean counts, too, and so do the operators of each name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, isclose
from typing import TypeAlias, cast

from gehost import DataType, Graph, Node, Refused, Value
from gehost_semantic.activations import Function, function_behind
from gehost_semantic.bodies import has_body, is_same, views_of_body
from gehost_semantic.extents import Extent, exact_int, total
from gehost_semantic.layout_rules import CASTS
from gehost_semantic.layouts import way_up
from gehost_semantic.rotary import Rotary, rotations
from gehost_semantic.view import Unknown, View, coalesced, is_whole, only_reader
from gehost_semantic.views import Views

_WIDTHS = {DataType.FLOAT16: 1, DataType.BFLOAT16: 1, DataType.FLOAT: 2, DataType.DOUBLE: 3}
_OPERATORS = {
    "GroupNormalization": 21,
    "InstanceNormalization": 1,
    "LayerNormalization": 1,
    "RMSNormalization": 1,
    "SimplifiedLayerNormalization": 1,
    "gehost::LayerNormalization": 1,
    "gehost::RMSNormalization": 1,
}
"""The operators that normalize, from the opset on where their scale has the form described."""
_LAYERS = ("LayerNormalization", "gehost::LayerNormalization")
_IN_OWN_TYPE = ("InstanceNormalization", "gehost::LayerNormalization")

Axes: TypeAlias = tuple[int | None, ...]
"""For each axis of a tensor the axis of x that it is, None for one of size 1."""


class NormKind(StrEnum):
    LAYER = "layer"
    RMS = "rms"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Residual:
    """x as a sum: ``x + residual``, or ``(x + bias) + residual``."""

    x: Value
    residual: Value
    bias: Value | None
    """A vector over the last axis that is added to ``x`` first."""
    biased: Value
    """The sum of ``x`` and the bias."""
    spreads: bool
    """Whether the residual has size 1 where ``x`` has more, or fewer axes."""


@dataclass(frozen=True, slots=True)
class Norm:
    """A tensor normalized over its last axes, or over groups of channels."""

    kind: NormKind
    result: Value
    x: Value
    shape: tuple[Extent, ...]
    axis: int
    """The first of the last axes that are normalized, from the end; 1 for groups."""
    groups: int
    """Of axis 1; 1 for no groups."""
    epsilon: float
    compute: DataType
    """The element type in which the model normalizes."""
    normalized: Value
    """The normalized tensor, before scale and bias."""
    scale: Value | None
    """Over the normalized axes, or over the channels."""
    bias: Value | None
    residual: Residual | None
    function: Function | None = None
    """What is applied to the result, and to nothing else; see ``with_function``."""

    @property
    def node(self) -> Node:
        node = self.result.producer
        assert node is not None
        return node

    def summary(self) -> str:
        """Return one line: what is normalized over which axes, and what follows."""
        where = f"{self.groups} groups" if self.groups > 1 else f"axis {self.axis}"
        words = [f'{self.kind} norm of "{self.x.name}" {list(map(str, self.shape))} over {where}']
        words.append(f"epsilon {self.epsilon:g}")
        words += [name for name in ("scale", "bias", "residual") if getattr(self, name) is not None]
        if self.compute != self.x.dtype:
            words.append(f"in {self.compute.name.lower()}")
        return f"{self.node.label}: {', '.join(words)}"


def norms(views: Views) -> list[tuple[Node, Norm | Refused]]:
    """Return each normalization, and each root that nearly is one with the step that fails."""
    cached = views.answers.get("norms")
    if cached is None:
        cached = views.answers["norms"] = list(_norms(views))
    return cast("list[tuple[Node, Norm | Refused]]", cached)


def _norms(views: Views) -> Iterator[tuple[Node, Norm | Refused]]:
    results: set[Value] = set()
    for node in views.graph.nodes_of("Sqrt", "Pow", *_OPERATORS):
        try:
            core = _core(views, node)
            norm = None if core is None else _described(views, core)
        except Refused as refusal:
            yield node, refusal
            continue
        except Unknown:
            continue
        if norm is not None and norm.result not in results:
            results.add(norm.result)
            yield norm.node, norm


def may_have_norms(graph: Graph) -> bool:
    """Whether a graph has a root, or an operator that normalizes."""
    if graph.nodes_of("Sqrt", *_OPERATORS):
        return True
    powers = [node.inputs[1] for node in graph.nodes_of("Pow")]
    arrays = [None if power is None else power.array for power in powers]
    return any(array is None or (abs(array) == 0.5).all() for array in arrays)


def with_function(views: Views, norm: Norm) -> Norm:
    """Return a norm with the function that alone reads its result."""
    return replace(norm, function=function_behind(views, norm.result, norm.result.dtype))


@dataclass(frozen=True, slots=True)
class _Core:
    """What is normalized, before scale and bias that are operators of their own."""

    x: Value
    is_centred: bool
    axes: tuple[int, ...]
    """The normalized axes of x."""
    epsilon: float
    compute: DataType
    normalized: Value
    scale: Value | None = None
    bias: Value | None = None
    groups: int | None = None
    """Of channels, where the operator states them."""


# what is normalized


def _core(views: Views, node: Node) -> _Core | None:
    if node.op in _OPERATORS:
        core = _operator(views, node)
        return None if core is not None and has_body(node) and not _is_in_body(node, core) else core
    if node.op == "Pow":
        power = views.numbers.scalar(node.inputs[1], views)
        return None if power not in (0.5, -0.5) else _Root(views, node, power).core()
    return _Root(views, node, 0.5).core()


def _operator(views: Views, node: Node) -> _Core | None:
    if (node.graph.model.opset() or 0) < _OPERATORS[node.op]:
        raise Refused("scale", f"{node.op} of this opset has one for each group")
    if len(_outputs(node)) != 1:
        return None
    x, scale, bias = (node.input(slot) for slot in range(3))
    shape, result = views.shape(x), node.outputs[0]
    if x is None or shape is None or result is None or not _is_float(x):
        return None
    attrs, rank = node.attrs, len(shape)
    epsilon = float(attrs.get("epsilon", 1e-5))
    compute = own = x.dtype or DataType.FLOAT
    if node.op not in _IN_OWN_TYPE:
        stash = DataType(attrs.get("stash_type", DataType.FLOAT))
        compute = stash if _WIDTHS.get(stash, 0) >= _WIDTHS.get(own, 0) else own
    if node.op == "InstanceNormalization":
        # the usual spelling of groups, with a scale and a bias of its own that do nothing
        if views.numbers.fill(scale, views) != 1 or views.numbers.fill(bias, views) != 0:
            raise Refused("scale", "InstanceNormalization has one for each group")
        axes = (*range(2, rank),)
        return _Core(
            x, is_centred=True, axes=axes, epsilon=epsilon, compute=compute, normalized=result
        )
    groups: int | None = attrs.get("num_groups")
    axis = 1 if groups is not None else attrs.get("axis", -1) % rank
    is_centred = groups is not None or node.op in _LAYERS
    axes = (*range(axis, rank),)
    return _Core(x, is_centred, axes, epsilon, compute, result, scale, bias, groups)


def _is_in_body(node: Node, core: _Core) -> bool:
    """Whether the function of that name in the model computes a norm."""
    views = views_of_body(node)
    if views is None:
        return False
    names = {value.name: slot for slot, value in enumerate(node.inputs) if value is not None}
    inside = {value.name: value for value in views.graph.inputs}
    x, scale, bias = (
        None if value is None else inside.get(f"i{names[value.name]}")
        for value in (core.x, core.scale, core.bias)
    )
    kind = NormKind.LAYER if core.is_centred else NormKind.RMS
    wanted = (kind, core.axes[0], scale, bias)
    for _, norm in norms(views):
        if (
            isinstance(norm, Norm)
            and (norm.kind, norm.axis + len(norm.shape), norm.scale, norm.bias) == wanted
            and is_same(views, norm.x, x)
            and is_same(views, norm.result, views.graph.outputs[0])
        ):
            return isclose(norm.epsilon, core.epsilon, rel_tol=1e-3)
    return False


def _outputs(node: Node) -> list[Value]:
    return [value for value in node.outputs if value is not None and value.readers]


class _Root:
    """The search from a root of a mean of squares: back to x, and on to the quotient."""

    def __init__(self, views: Views, node: Node, power: float) -> None:
        self._views, self._node, self._power = views, node, power

    def core(self) -> _Core | None:
        views, numbers = self._views, self._views.numbers
        mean, epsilon = self._node.inputs[0], None
        if mean is not None and mean.rank is None:
            raise Refused("rank", f'that of "{mean.name}" under a root is not known')
        total_of = _producer(views, mean)
        if total_of is not None and total_of.op == "Add":
            for slot in (0, 1):
                operand = total_of.inputs[slot]
                number = numbers.scalar(operand, views)
                if number is not None or (operand is not None and operand.is_constant):
                    mean, epsilon = total_of.inputs[1 - slot], number
        norm = self._mean_of_squares(mean)
        if norm is None:
            return None
        squared, axes, tags, is_difference = norm
        x, is_centred = squared, is_difference
        centre = self._centre(squared)
        if centre is not None and not is_difference:
            if centre[1] != axes:
                raise Refused("mean", "it is over other axes than the mean of squares")
            x, is_centred = centre[0], True
        if epsilon is None:
            raise Refused("epsilon", "no number is added to the mean of squares")
        if not 0 < epsilon < inf:
            raise Refused("epsilon", "what is added to the mean of squares is no positive number")
        centred = x if is_centred else None
        normalized = self._quotient(None if is_difference else squared, centred, axes, tags)
        if normalized is None:
            raise Refused("quotient", f'"{squared.name}" is not divided by the root')
        compute = squared.dtype or DataType.FLOAT
        return _Core(x, is_centred, axes, epsilon, compute, normalized)

    def _mean_of_squares(
        self, value: Value | None
    ) -> tuple[Value, tuple[int, ...], Axes, bool] | None:
        """Return what is squared, its reduced axes, the axes of the mean; whether less mean²."""
        views = self._views
        norm = _mean(views, value)
        if norm is not None:
            inner, axes, tags, is_squared = norm
            squared = inner if is_squared else _square(views, inner)
            return None if squared is None else (squared, axes, tags, False)
        difference = _producer(views, value)
        if difference is None or difference.op != "Sub":
            return None
        first, second = difference.inputs
        left, mean = _mean(views, first), _square(views, second)
        right = None if mean is None else _mean(views, mean)
        if left is None or right is None:
            return None
        squared = left[0] if left[3] else _square(views, left[0])
        if squared is None or not is_same(views, squared, right[0]) or left[1:3] != right[1:3]:
            return None
        return squared, left[1], left[2], True

    def _centre(self, value: Value) -> tuple[Value, tuple[int, ...]] | None:
        """Return x and the axes of its mean where a tensor is ``x - mean(x)``."""
        views = self._views
        node, view = _producer(views, value), views.of(value)
        if (
            node is None
            or node.op != "Sub"
            or view is None
            or not is_whole(view, views.of(view.base))
        ):
            return None
        x, mean = node.inputs
        norm, shape = _mean(views, mean), views.shape(x)
        if norm is None or x is None or shape is None or norm[3]:
            return None
        inner, axes, tags, _ = norm
        if not is_same(views, inner, x) or not _spreads(tags, axes, len(shape)):
            return None
        return x, axes

    def _quotient(
        self, squared: Value | None, centred: Value | None, axes: tuple[int, ...], tags: Axes
    ) -> Value | None:
        """Return ``squared`` by the root, or ``centred`` less its mean."""
        views, root = self._views, self._node.outputs[0]
        shape = views.shape(squared or centred)
        if root is None or shape is None:
            return None
        # from the root through moves and reciprocals to the product with the numerator
        todo = [(root, root, self._power < 0)]
        while todo:
            value, base, inverted = todo.pop()
            own = _tags(views, value, base, tags)
            for reader, slot in value.uses:
                if not isinstance(reader, Node) or reader.graph is not value.graph:
                    continue
                result = reader.outputs[0]
                if result is None:
                    continue
                if reader.op in ("Mul", "Div"):
                    other = reader.inputs[1 - slot]
                    divides = (reader.op == "Div" and slot == 1) != inverted
                    # root / y: only 1 / root, read as a divisor, leads on
                    if reader.op == "Div" and slot == 0:
                        continue
                    if reader.op == "Div" and views.numbers.scalar(other, views) == 1:
                        if own is not None:
                            todo.append((result, result, not inverted))
                        continue
                    if other is not None and divides and own is not None:
                        is_numerator = is_same(views, other, squared) or (
                            centred is not None and self._is_less_its_mean(other, centred, axes)
                        )
                        if is_numerator and _spreads(own, axes, len(shape)):
                            return result
                elif reader.op == "Reciprocal":
                    if own is not None:
                        todo.append((result, result, not inverted))
                else:
                    # a layout operator: the same numbers under other axes
                    view = views.of(result)
                    if view is not None and view.base is base and view.factor == 1:
                        todo.append((result, base, inverted))
        return None

    def _is_less_its_mean(self, value: Value, x: Value, axes: tuple[int, ...]) -> bool:
        centre = self._centre(value)
        return centre is not None and centre[1] == axes and is_same(self._views, centre[0], x)


def _producer(views: Views, value: Value | None) -> Node | None:
    """Return what computes a tensor, behind layout operators and casts."""
    view = views.of(value)
    return None if view is None or view.factor != 1 else view.base.producer


def _mean(views: Views, value: Value | None) -> tuple[Value, tuple[int, ...], Axes, bool] | None:
    """Return what a mean is of, its axes, the axes of the mean, and whether it is of squares."""
    view = views.of(value)
    node = None if view is None else view.base.producer
    if view is None or value is None or node is None:
        return None
    if node.op not in ("ReduceMean", "ReduceSum", "ReduceSumSquare"):
        return None
    inner = node.inputs[0]
    shape, argument = views.shape(inner), views.axes(node)
    if inner is None or shape is None or not argument:
        return None
    axes = tuple(sorted(axis % len(shape) for axis in argument))
    count = exact_int(total(shape[axis] for axis in axes)) if node.op != "ReduceMean" else 1
    if count is None or abs(view.factor * count - 1) > 1e-6:
        return None
    retained = [None if axis in axes else axis for axis in range(len(shape))]
    if not node.attrs.get("keepdims", 1):
        retained = [axis for axis in retained if axis is not None]
    tags = _tags(views, value, view.base, tuple(retained))
    return None if tags is None else (inner, axes, tags, node.op == "ReduceSumSquare")


def _square(views: Views, value: Value | None) -> Value | None:
    """Return what a tensor is the square of."""
    node, view = _producer(views, value), views.of(value)
    if node is None or view is None or not is_whole(view, views.of(view.base)):
        return None
    first, second = node.inputs[0], node.input(1)
    if node.op == "Mul" and is_same(views, first, second):
        return first
    return first if node.op == "Pow" and views.numbers.scalar(second, views) == 2 else None


def _tags(views: Views, value: Value, base: Value, tags: Axes) -> Axes | None:
    """Return the axes of x that those of a view are."""
    view, shape = views.of(value), views.shape(base)
    if view is None or shape is None or view.base is not base or len(shape) != len(tags):
        return None
    if any(offset != 0 for offset in view.offsets):
        return None
    results: list[int | None] = []
    for dim in view.dims:
        if not dim:
            results.append(None)
            continue
        term, axis = dim[0], dim[0].axis
        if axis is None or (len(dim), term.stride, term.size) != (1, 1, shape[axis]):
            return None
        results.append(tags[axis])
    # a size of 1 has no term
    return tuple(results)


def _spreads(tags: Axes, axes: tuple[int, ...], rank: int) -> bool:
    """Whether a tensor spreads over exactly the reduced axes of one of a rank."""
    places = range(rank - len(tags), rank)
    if len(tags) > rank or any(axis not in axes for axis in range(places.start)):
        return False
    return all(tag in (None, place) for tag, place in zip(tags, places, strict=True)) and all(
        (tag is None) or place not in axes for tag, place in zip(tags, places, strict=True)
    )


# what follows, and what comes before


def _described(views: Views, core: _Core) -> Norm | None:
    x, shape = core.x, views.shape(core.x)
    if shape is None or not _is_float(x):
        return None
    axis, groups, kind = core.axes[0], 1, NormKind.LAYER if core.is_centred else NormKind.RMS
    if core.axes != (*range(axis, len(shape)),):
        raise Refused("axes", "the mean is not over the last ones")
    normalized, scale_axis = core.normalized, axis - len(shape)
    groups_of = core.groups or _groups(views, core)
    if groups_of is not None:
        x, normalized = (x, normalized) if core.groups else _in_place(views, core)
        kind, scale_axis, groups, shape = NormKind.GROUP, 1, groups_of, views.shape(x) or ()
    norm = Norm(
        kind,
        normalized,
        _narrow(x, core.compute),
        shape,
        scale_axis,
        groups,
        core.epsilon,
        core.compute,
        normalized,
        core.scale,
        core.bias,
        None,
    )
    if core.scale is None:
        norm = _with_vector(views, norm, "Mul")
    if norm.bias is None:
        norm = _with_vector(views, norm, "Add")
    norm = replace(norm, result=_cast_back(norm))
    return replace(norm, residual=_residual(views, norm))


def _groups(views: Views, core: _Core) -> int | None:
    """Return the groups, where what is normalized is [n, groups, ...] of [n, channels, ...]."""
    view = views.of(core.x)
    shape = None if view is None else views.shape(view.base)
    if view is None or shape is None or core.axes[0] != 2 or not core.is_centred:
        return None
    if len(shape) < 3 or view.shape[0] != shape[0] or not _keeps_order(views, view):
        return None
    groups, channels = view.shape[1], shape[1]
    if not isinstance(groups, int) or not isinstance(channels, int):
        return None
    if groups < 1 or channels % groups:
        return None
    node = core.normalized.producer
    is_instance = node is not None and node.op == "InstanceNormalization"
    return None if groups == channels and not is_instance else groups


def _in_place(views: Views, core: _Core) -> tuple[Value, Value]:
    """Return x and the normalized tensor in one shape, [n, channels, ...]."""
    view = views.of(core.x)
    assert view is not None
    reader = only_reader(core.normalized)
    behind = None if reader is None else reader.outputs[0]
    last, base = views.of(behind), views.shape(view.base)
    is_back = last is not None and last.base is core.normalized and _keeps_order(views, last)
    normalized = behind if behind is not None and is_back else core.normalized
    for x in way_up(views, core.x, view.base):
        shape = views.shape(x)
        if shape == views.shape(normalized) and shape and base and shape[1:2] == base[1:2]:
            return x, normalized
    raise Refused("groups", "the result has not the axes of x")


def _keeps_order(views: Views, view: View) -> bool:
    """Whether a view has all elements of its base in their order, unchanged."""
    base = views.of(view.base)
    assert base is not None
    orders = [coalesced(term for dim in item.dims for term in dim) for item in (view, base)]
    is_whole = orders[0] == orders[1] and not any(offset != 0 for offset in view.offsets)
    return is_whole and view.factor == 1


def _with_vector(views: Views, norm: Norm, op: str) -> Norm:
    """Return a norm with the scale (Mul) or bias (Add) that follows it, behind a cast."""
    value = norm.result
    reader = only_reader(value)
    if reader is not None and reader.op in CASTS and _is_float(reader.outputs[0]):
        value = reader.outputs[0] or value
        reader = only_reader(value)
    if reader is None or reader.op != op or len(set(reader.inputs)) != 2:
        return norm
    (vector,) = [operand for operand in reader.inputs if operand is not value]
    result = reader.outputs[0]
    if vector is None or result is None or not _is_vector(views, norm, vector):
        return norm
    if op == "Mul":
        return replace(norm, result=result, scale=vector)
    return replace(norm, result=result, bias=vector)


def _is_vector(views: Views, norm: Norm, value: Value) -> bool:
    """Whether a tensor spreads over all axes but those of the scale."""
    shape, rank = views.shape(value), len(norm.shape)
    if shape is None or len(shape) > rank or value.dtype is None or not value.dtype.is_float:
        return False
    own = range(1, 2) if norm.kind is NormKind.GROUP else range(rank + norm.axis, rank)
    first = rank - len(shape)
    return first <= own.start and all(
        size == (norm.shape[first + place] if first + place in own else 1)
        for place, size in enumerate(shape)
    )


def _cast_back(norm: Norm) -> Value:
    reader = only_reader(norm.result)
    if reader is None or reader.op not in CASTS or norm.result.dtype == norm.x.dtype:
        return norm.result
    behind = reader.outputs[0]
    return behind if behind is not None and behind.dtype == norm.x.dtype else norm.result


def _narrow(x: Value, compute: DataType) -> Value:
    """Return what casts without effect, and one that makes x wider, are of."""
    while x.producer is not None and x.producer.op in CASTS:
        source = x.producer.inputs[0]
        if source is None or not _is_float(source) or x.dtype != compute:
            break
        if source.dtype != x.dtype and _width(source) >= _width(x):
            break
        x = source
    return x


def _residual(views: Views, norm: Norm) -> Residual | None:
    node = norm.x.producer
    if node is None or node.op != "Add" or norm.x.graph is not node.graph:
        return None
    parts = [value for value in node.inputs if value is not None]
    whole = [part for part in parts if views.shape(part) == norm.shape]
    if len(parts) != 2 or not whole:
        return None
    if all(part.producer is not None and part.producer.op == "Mul" for part in parts) and any(
        isinstance(rotary, Rotary) and rotary.result is norm.x for _, rotary in rotations(views)
    ):
        return None  # which is a kernel's own
    if len(whole) == 1:
        (x,), (residual,) = whole, [part for part in parts if part not in whole]
    else:  # the stream comes first
        residual, x = sorted(parts, key=lambda part: part.producer.order if part.producer else -1)
    if len(whole) > 1 and x is not residual:
        for biased, other in ((x, residual), (residual, x)):
            inner = _biased(views, norm, biased)
            if inner is not None:
                return Residual(inner[0], other, inner[1], biased, spreads=False)
    return Residual(x, residual, None, x, spreads=len(whole) == 1)


def _biased(views: Views, norm: Norm, value: Value) -> tuple[Value, Value] | None:
    """Return what a vector over the last axis is added to, and the vector."""
    node = value.producer
    if node is None or node.op != "Add" or only_reader(value) is None:
        return None
    vectors = [item for item in node.inputs if item and views.shape(item) == norm.shape[-1:]]
    others = [item for item in node.inputs if item and views.shape(item) == norm.shape]
    return (others[0], vectors[0]) if len(vectors) == len(others) == 1 else None


def _is_float(value: Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_float


def _width(value: Value) -> int:
    return 0 if value.dtype is None else _WIDTHS.get(value.dtype, 0)
