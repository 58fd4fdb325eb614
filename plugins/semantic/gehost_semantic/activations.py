"""Activations by their formula: Gelu, its form by tanh, x·sigmoid(a·x), plain and gated.

An expression of one tensor is a polynomial of its elements, erf and sigmoid; tanh(z) is
2·sigmoid(2z) - 1, and 1 / (1 + exp(-z)) is sigmoid(z), so that each spelling has one form.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import pi, sqrt
from typing import TypeAlias, cast

from gehost import DataType, Node, Refusal, Refused, Value
from gehost_semantic.bodies import has_body, is_same, views_of_body
from gehost_semantic.extents import Extent
from gehost_semantic.kernel_call import nodes_between
from gehost_semantic.layout_rules import CASTS, LAYOUTS
from gehost_semantic.view import is_whole, only_reader
from gehost_semantic.views import Views

PLAIN_FUNCTIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh"}
_FUNCTIONS = ("Erf", "Exp", "Sigmoid", "Tanh")
_DEPTH = 8
_MOST_TERMS = 8
_STEPS = 12
_ARITHMETIC = ("Add", "Div", "Mul", "Neg", "Pow", "Sub")
_TOLERANCES = {DataType.FLOAT16: 2e-3, DataType.BFLOAT16: 1e-2, DataType.DOUBLE: 1e-9}
"""How far a constant of a type may be from the formula's; 2e-6 for float32."""

_Atom: TypeAlias = tuple[str, "frozenset[tuple[_Product, float]]"]
"""A function of an expression; x itself is ``("x", {})``."""
_Product: TypeAlias = "frozenset[tuple[_Atom, int]]"
"""Atoms and their powers."""
_Expression: TypeAlias = dict[_Product, float]

_X: _Atom = "x", frozenset()
_ONE: _Product = frozenset()


class ActivationKind(StrEnum):
    GELU = "gelu"
    """½x(1 + erf(x/√2))"""
    GELU_TANH = "gelu tanh"
    """½x(1 + tanh(√(2/π)(x + 0.044715x³)))"""
    SILU = "silu"
    """x·sigmoid(x)"""
    SWISH = "swish"
    """x·sigmoid(αx), as QuickGelu with α = 1.702"""


class NoProduct(Refused):
    """A sigmoid of its own: a near miss of ``silu`` and ``swish`` alone."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A factor of the activation, of its shape."""

    value: Value
    result: Value
    packed: Value | None
    """The tensor of which x and the factor are the two halves of the last axis."""
    is_first: bool
    """Whether the factor is the first half."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each element of x."""

    kind: ActivationKind
    alpha: float
    """What the sigmoid's argument is multiplied by; 1 but for ``swish``."""
    x: Value
    shape: tuple[Extent, ...] | None
    """None for an unknown rank."""
    result: Value
    compute: DataType
    """The element type in which the model computes."""
    addend: tuple[Value, Value] | None
    """A tensor and a vector over the last axis, whose sum x is."""
    gate: Gate | None
    constant: tuple[Value, float] | None = None
    """A constant of ``gelu`` and the number that it rounds, √2 or its reciprocal.

    Inside of ``gehost::Gelu`` it has no name; x is in its place.
    """

    @property
    def node(self) -> Node:
        node = self.result.producer
        assert node is not None
        return node

    def summary(self) -> str:
        """Return one line: the function, x, and what is around it."""
        alpha = f" (alpha {self.alpha:.4g})" if self.alpha != 1 else ""
        shape = "of unknown rank" if self.shape is None else list(map(str, self.shape))
        words = [f'{self.kind}{alpha} of "{self.x.name}" {shape}']
        words += ["with bias"] if self.addend is not None else []
        if self.gate is not None:
            packed = " of one projection" if self.gate.packed is not None else ""
            words.append(f'times "{self.gate.value.name}"{packed}')
        return f"{self.node.label}: {', '.join(words)}"


_SIGMOIDS = ("Exp", "Sigmoid", "Tanh")
ROOTS = {
    ActivationKind.GELU: ("Erf",),
    ActivationKind.GELU_TANH: _SIGMOIDS,
    ActivationKind.SILU: _SIGMOIDS,
    ActivationKind.SWISH: _SIGMOIDS,
}
"""The functions from which each kind is found."""
OPERATORS = ("Gelu", "Swish", "gehost::Gelu")
"""The operators that are an activation."""
FUNCTIONS = (*PLAIN_FUNCTIONS.values(), *ActivationKind)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of each element of another operation's result."""

    name: str
    """``relu``, ``sigmoid``, ``tanh``, or a kind of ``ActivationKind``."""
    alpha: float
    """What the argument of a ``swish`` is multiplied by; else 1."""
    result: Value


def function_behind(views: Views, value: Value, compute: DataType | None) -> Function | None:
    """Return the function that alone reads a tensor, computed in a type."""
    reader = only_reader(value)
    behind = reader.outputs[0] if reader is not None and reader.op in PLAIN_FUNCTIONS else None
    if reader is not None and behind is not None:
        return Function(PLAIN_FUNCTIONS[reader.op], 1.0, behind)
    for _, item in activations(views):
        if isinstance(item, Activation) and item.x is value and item.compute == compute:
            inside = set(nodes_between([item.result], [value]))
            if all(reader in inside for reader in value.readers):
                return Function(item.kind.value, item.alpha, item.result)
    return None


def activations(views: Views) -> list[tuple[Node, Activation | Refused]]:
    """Return each activation, and near misses of Gelu's formulas with the step that fails."""
    cached = views.answers.get("activations")
    if cached is None:
        cached = views.answers["activations"] = list(_activations(views))
    return cast("list[tuple[Node, Activation | Refused]]", cached)


def _activations(views: Views) -> Iterator[tuple[Node, Activation | Refused]]:
    for node in views.graph.nodes_of(*_FUNCTIONS, *OPERATORS):
        try:
            activation = _operator(views, node) if node.op in OPERATORS else _find(views, node)
        except Refused as refusal:
            yield node, refusal
            continue
        if activation is not None:
            yield activation.node, activation


def _operator(views: Views, node: Node) -> Activation | None:
    x, result = node.inputs[0], node.outputs[0]
    if x is None or result is None:
        return None
    kind, alpha = ActivationKind.GELU, 1.0
    if node.op == "Swish":
        alpha = float(node.attrs.get("alpha", 1.0))
        kind = ActivationKind.SILU if alpha == 1 else ActivationKind.SWISH
    elif node.attrs.get("approximate", "none") == "tanh":
        kind = ActivationKind.GELU_TANH
    if has_body(node) and not _is_in_body(node, kind, alpha):
        return None
    is_body = node.op == "gehost::Gelu" and kind is ActivationKind.GELU
    constant = (x, sqrt(2.0)) if is_body else None
    return _described(views, kind, alpha, x, result, x.dtype or DataType.FLOAT, constant)


def _is_in_body(node: Node, kind: ActivationKind, alpha: float) -> bool:
    """Whether the function of that name in the model computes an activation."""
    views = views_of_body(node)
    if views is None:
        return False
    return any(
        isinstance(item, Activation)
        and (item.kind, item.alpha) == (kind, alpha)
        and is_same(views, item.x, views.graph.inputs[0])
        and is_same(views, item.result, views.graph.outputs[0])
        for _, item in activations(views)
    )


def _find(views: Views, node: Node) -> Activation | None:
    argument, output = node.inputs[0], node.outputs[0]
    if argument is None or output is None:
        return None
    if argument.dtype is None:
        raise Refused("dtype", f'that of "{argument.name}" is not known')
    tolerance = _TOLERANCES.get(argument.dtype, 2e-6)
    near: str | None = None
    for leaf in _leaves(argument):
        inner = _expression(views, argument, leaf)
        if inner is None:
            continue
        last: tuple[ActivationKind, float, Value] | None = None
        for value in _behind(output):
            expression = _expression(views, value, leaf)
            if expression is None:  # a layout operator's, or of another tensor
                continue
            entry = _kind(expression, tolerance)
            if isinstance(entry, str):
                near = entry
            elif entry is not None and value.dtype not in _types(leaf):
                near = f'dtype: "{leaf.name}" is {leaf.dtype or "unknown"}, not {value.dtype}'
            elif entry is not None:
                last = *entry, value
        if last is not None:
            kind, alpha, result = last
            constant = _constant(views, argument, leaf) if kind is ActivationKind.GELU else None
            x = _narrow(leaf, result)
            return _described(views, kind, alpha, x, result, argument.dtype, constant)
    if near is not None:
        *_, end = _behind(output)
        is_shared = near.startswith("constant") and len(set(end.readers)) > 1
        if is_shared:
            raise Refused("shared", f'"{end.name}" is read by others, too')
        raise Refused(Refusal.of(near))
    if node.op == "Sigmoid":
        raise NoProduct(f'product: "{argument.name}" is not multiplied by its sigmoid')
    return None


def _constant(views: Views, argument: Value, leaf: Value) -> tuple[Value, float] | None:
    """Return the constant of Gelu's formula, where one alone scales the argument of erf."""
    node = argument.producer
    if node is None or node.op not in ("Div", "Mul"):
        return None
    for slot in (1,) if node.op == "Div" else (0, 1):
        value, x = node.inputs[slot], node.inputs[1 - slot]
        is_x = _expression(views, x, leaf) == {frozenset({(_X, 1)}): 1.0}
        if is_x and value is not None and value.is_constant:
            return value, sqrt(2.0 if node.op == "Div" else 0.5)
    return None


def _leaves(argument: Value) -> Iterator[Value]:
    """Yield the tensors of which a function's argument may be an expression, nearest first."""
    todo, visited = [(argument, 0)], set[Value]()
    while todo:
        value, depth = todo.pop(0)
        if value in visited or value.is_constant or depth > _DEPTH:
            continue
        visited.add(value)
        yield value
        node = value.producer
        if node is not None and node.op in _ARITHMETIC:
            todo += [(operand, depth + 1) for operand in node.inputs if operand is not None]
        elif node is not None and node.op in LAYOUTS and node.inputs[0] is not None:
            todo.append((node.inputs[0], depth + 1))


def _behind(value: Value) -> Iterator[Value]:
    """Yield the results of operators on elements that follow, while each is read once."""
    for _ in range(_STEPS):
        yield value
        readers = list(value.readers)
        reader = readers[0] if len(set(readers)) == 1 else None
        if not isinstance(reader, Node) or reader.graph is not value.graph:
            return
        behind = reader.outputs[0]
        if behind is None or reader.op not in (*_ARITHMETIC, "Reciprocal", *LAYOUTS):
            return
        value = behind
    yield value


# expressions


def _expression(
    views: Views, value: Value | None, leaf: Value, depth: int = 0
) -> _Expression | None:
    """Return each element of a tensor as an expression of the same element of another one."""
    if value is None or depth > _DEPTH:
        return None
    number = views.numbers.fill(value, views)
    if number is not None:
        return {_ONE: float(number)} if number != 0 else {}
    view, own = views.of(value), views.of(leaf)
    if own is not None and own.factor == 0:
        return None
    if value is leaf:
        return {frozenset({(_X, 1)}): 1.0}
    node, factor = value.producer, 1.0
    if view is not None:
        if own is not None and view.base is own.base and is_whole(view, own):
            return _times({frozenset({(_X, 1)}): 1.0}, {_ONE: view.factor / own.factor})
        node, factor = view.base.producer, view.factor
    if node is None or (view is not None and not is_whole(view, views.of(view.base))):
        return None
    activation = _computed(views, node, leaf, depth)
    if activation is None or len(activation) > _MOST_TERMS:
        return None
    return _times(activation, {_ONE: factor})


def _computed(views: Views, node: Node, leaf: Value, depth: int) -> _Expression | None:
    operands = [_expression(views, operand, leaf, depth + 1) for operand in node.inputs[:2]]
    first, second = [*operands, {}, {}][:2]
    if not operands or first is None or second is None:
        return None
    match node.op:
        case "Add":
            return _sum(first, second)
        case "Sub":
            return _sum(first, second, -1.0)
        case "Neg":
            return _sum({}, first, -1.0)
        case "Mul":
            return _times(first, second)
        case "Div":
            return _divided(first, second)
        case "Reciprocal":
            return _divided({_ONE: 1.0}, first)
        case "Pow":
            return _power(first, second)
        case "Sigmoid":
            return _sigmoid(first)
        case "Tanh":
            twice = {product: 2 * number for product, number in first.items()}
            return _sum(_times({_ONE: 2.0}, _sigmoid(twice)), {_ONE: -1.0})
        case "Erf" | "Exp":
            return {frozenset({((node.op, frozenset(first.items())), 1)}): 1.0}
        case _:
            return None


def _sum(first: _Expression, second: _Expression, sign: float = 1.0) -> _Expression:
    results = dict(first)
    for product, number in second.items():
        results[product] = results.get(product, 0.0) + sign * number
    return {product: number for product, number in results.items() if number != 0}


def _times(first: _Expression, second: _Expression) -> _Expression:
    results: _Expression = {}
    for one, number in first.items():
        for other, times in second.items():
            powers = dict(one)
            for atom, power in other:
                powers[atom] = powers.get(atom, 0) + power
            product = frozenset(powers.items())
            results[product] = results.get(product, 0.0) + number * times
    return {product: number for product, number in results.items() if number != 0}


def _power(first: _Expression, second: _Expression) -> _Expression | None:
    if set(second) != {_ONE} or second[_ONE] not in (2, 3):
        return None
    square = _times(first, first)
    return square if second[_ONE] == 2 else _times(square, first)


def _sigmoid(argument: _Expression) -> _Expression:
    return {frozenset({(("Sigmoid", frozenset(argument.items())), 1)}): 1.0}


def _divided(first: _Expression, second: _Expression) -> _Expression | None:
    """Divide by a number, or by ``1 + exp(z)``."""
    if set(second) == {_ONE}:
        results = {product: number / second[_ONE] for product, number in first.items()}
        return {product: number for product, number in results.items() if number != 0}
    if len(second) != 2 or second.get(_ONE) != 1:
        return None
    (product,) = set(second) - {_ONE}
    atoms = list(product)
    if second[product] != 1 or len(atoms) != 1 or atoms[0][1] != 1 or atoms[0][0][0] != "Exp":
        return None
    return _times(first, _sigmoid({item: -number for item, number in atoms[0][0][1]}))


# kinds


def _kind(expression: _Expression, tolerance: float) -> tuple[ActivationKind, float] | str | None:
    """Return an expression's kind and alpha; a sentence if a constant of one differs."""
    x = frozenset({(_X, 1)})
    if len(expression) == 1:
        ((product, number),) = expression.items()
        argument = _argument(product, "Sigmoid")
        if argument is None or number != 1:
            return None
        return _of_sigmoid(argument, tolerance)
    if len(expression) == 2 and x in expression:
        (product,) = set(expression) - {x}
        argument = _argument(product, "Erf")
        if argument is None or set(argument) != {x}:
            return None
        for name, number, expected in (
            ("the factor of x", expression[x], 0.5),
            ("the factor of x·erf", expression[product], 0.5),
            ("the factor in erf", argument[x], sqrt(0.5)),
        ):
            if not _is_near(number, expected, tolerance):
                return f"constant: {name} is {number:.7g}, Gelu's is {expected:.7g}"
        return ActivationKind.GELU, 1.0
    return None


def _argument(product: _Product, function: str) -> _Expression | None:
    """Return the argument of a function that x is multiplied by."""
    atoms = dict(product)
    if len(atoms) != 2 or atoms.pop(_X, 0) != 1:
        return None
    (((name, argument), power),) = atoms.items()
    return dict(argument) if name == function and power == 1 else None


def _of_sigmoid(
    argument: _Expression, tolerance: float
) -> tuple[ActivationKind, float] | str | None:
    x, cube = frozenset({(_X, 1)}), frozenset({(_X, 3)})
    if set(argument) == {x}:
        alpha = argument[x]
        if _is_near(alpha, 1.0, 1e-9):
            return ActivationKind.SILU, 1.0
        return (ActivationKind.SWISH, alpha) if alpha > 0 else None
    if set(argument) != {x, cube}:
        return None
    factor, cubic = argument[x] / 2, argument[cube] / argument[x]
    for name, number, expected in (
        ("the factor in tanh", factor, sqrt(2 / pi)),
        ("the factor of x³", cubic, 0.044715),
    ):
        if not _is_near(number, expected, 2 * tolerance):
            return f"constant: {name} is {number:.7g}, Gelu's is {expected:.7g}"
    return ActivationKind.GELU_TANH, 1.0


def _is_near(number: float, expected: float, tolerance: float) -> bool:
    return abs(number - expected) <= tolerance * abs(expected)


# what is around


def _types(leaf: Value) -> set[DataType | None]:
    """Return the element types that x may have for a kernel."""
    node = leaf.producer
    source = node.inputs[0] if node is not None and node.op in CASTS else None
    return {leaf.dtype} if source is None else {leaf.dtype, source.dtype}


def _narrow(leaf: Value, result: Value) -> Value:
    """Return what a cast makes x of, if it has the result's type."""
    node = leaf.producer
    source = node.inputs[0] if node is not None and node.op in CASTS else None
    return leaf if source is None or source.dtype != result.dtype else source


def _described(
    views: Views,
    kind: ActivationKind,
    alpha: float,
    x: Value,
    result: Value,
    compute: DataType,
    constant: tuple[Value, float] | None = None,
) -> Activation | None:
    shape = views.shape(x)
    if views.shape(result) != shape or x.dtype is None or not x.dtype.is_float:
        return None
    if shape is None:
        inside = nodes_between([result], [x])
        if any(v and v.is_constant and v.rank != 0 for node in inside for v in node.inputs):
            raise Refused("rank", f'that of "{x.name}" is not known, and a constant has axes')
        return Activation(kind, alpha, x, shape, result, compute, None, None, constant)
    addend, gate = _addend(views, x, shape), _gate(views, x, result, shape)
    return Activation(kind, alpha, x, shape, result, compute, addend, gate, constant)


def _addend(views: Views, x: Value, shape: tuple[Extent, ...]) -> tuple[Value, Value] | None:
    node = x.producer
    if node is None or node.op != "Add" or not shape:
        return None
    for slot in (0, 1):
        vector, other = node.inputs[slot], node.inputs[1 - slot]
        if vector is None or other is None or views.shape(other) != shape:
            continue
        if views.shape(vector) == shape[-1:] and (len(shape) > 1 or vector.is_constant):
            return other, vector
    return None


def _gate(views: Views, x: Value, result: Value, shape: tuple[Extent, ...]) -> Gate | None:
    reader = only_reader(result)
    if reader is None or reader.op != "Mul":
        return None
    others = [operand for operand in reader.inputs if operand is not None and operand is not result]
    behind = reader.outputs[0]
    if len(others) != 1 or behind is None or views.shape(others[0]) != shape:
        return None
    packed = _packed(views, x, others[0], shape)
    return Gate(others[0], behind, *(packed or (None, False)))


def _packed(
    views: Views, x: Value, gate: Value, shape: tuple[Extent, ...]
) -> tuple[Value, bool] | None:
    """Return the tensor that has both as its halves, and whether the gate comes first."""
    if x.producer is None or gate.producer is None or not isinstance(shape[-1], int):
        return None
    whole, other = x.producer.inputs[0], gate.producer.inputs[0]
    if whole is None or whole is not other:
        return None
    one, two, view = views.of(x), views.of(gate), views.of(whole)
    if one is None or two is None or view is None:
        return None
    if view.shape != (*shape[:-1], 2 * shape[-1]) or not is_whole(view, views.of(view.base)):
        return None
    for is_first, low, high in ((False, one, two), (True, two, one)):
        if low.base is view.base and low.dims == high.dims and low.factor == high.factor == 1:
            apart = (*(0 for _ in shape[:-1]), shape[-1])
            if (low.offsets, high.offsets) == ((0,) * len(shape), apart):
                return whole, is_first
    return None
