"""What random models are made of beyond single operators: repeated chains, bodies, and what the shipped vendors fuse."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from onnx import numpy_helper

from tools.fuzz import operators
from tools.fuzz.graphs import FLOATS, Scope, Tensor
from tools.fuzz.operators import ANY_TYPE, a_float, chain


def fill(scope: Scope, size: int) -> None:
    """Add about ``size`` nodes to a graph."""
    while len(scope.nodes) < size:
        scope.rng.choices(FAMILIES, WEIGHTS)[0](scope)


def repeated(scope: Scope) -> None:
    """One short chain several times, each on what the one before made or on something else."""
    rng, seed = scope.rng, scope.rng.randrange(1 << 30)
    length, times = rng.randint(1, 3), rng.randint(2, 5)
    tensor = a_float(scope)
    for _ in range(times):
        fresh = (
            None if rng.random() < 0.7 else scope.find(lambda t: t.dtype in FLOATS and t.rank > 0)
        )
        tensor = chain(scope, fresh or tensor, length, random.Random(seed))


# -- bodies ---------------------------------------------------------------------------------------------------------


def branches(scope: Scope) -> None:
    """An If whose branches capture, down to the second level; the names inside them may be the same."""
    rng, maker = scope.rng, scope.maker
    condition = scope.find(lambda t: t.dtype == "bool" and t.rank == 0)
    x = scope.find(lambda t: t.dtype in ANY_TYPE and t.rank > 0) or a_float(scope)
    if condition is None or scope.depth > 1:
        return
    bodies = []
    with maker.same_names(again=rng.random() < 0.4) as restart:
        for name in ("then", "else"):
            restart()
            body = Scope(maker, scope)
            _inside(body)
            result = chain(body, x, rng.randint(0, 2))
            if result not in body.made:  # before opset 11 what a branch hands on must be its own
                result = body.emit("Identity", [result], [(x.dtype, x.shape)])[0]
            bodies.append(body.graph(name, [], [result]))
    scope.emit(
        "If", [condition], [(x.dtype, x.shape)], then_branch=bodies[0], else_branch=bodies[1]
    )


def _inside(body: Scope) -> None:
    """What a body computes besides its result; a quarter hold bodies of their own."""
    rng = body.rng
    if rng.random() < 0.25:
        rng.choice([branches, loops])(body)
    if rng.random() < 0.4:
        fill(body, len(body.nodes) + rng.randint(1, 2))


def loops(scope: Scope) -> None:
    """A Loop that carries one tensor, captures others, scans, and may hand an input straight on."""
    rng, maker = scope.rng, scope.maker
    if scope.depth > 1:
        return
    x, trips = a_float(scope), rng.randint(1, 3)
    body = Scope(maker, scope)
    step, going = Tensor(maker.fresh("i"), "int64", ()), Tensor(maker.fresh("b"), "bool", ())
    carried = Tensor(maker.fresh("v"), "float32", x.shape)
    body.tensors.extend([step, going, carried])
    _inside(body)
    result = chain(body, carried, rng.randint(0, 2))
    again = going if rng.random() < 0.4 else body.emit("Identity", [going], [("bool", ())])[0]
    scanned = (
        [body.emit("Identity", [result], [("float32", x.shape)])[0]] if rng.random() < 0.4 else []
    )
    graph = body.graph(maker.fresh("body"), [step, going, carried], [again, result, *scanned])
    count, start = scope.constant(trips, "int64"), scope.constant(True, "bool")
    stacked = [("float32", (trips, *x.shape))] if scanned else []
    scope.emit("Loop", [count, start, x], [("float32", x.shape), *stacked], body=graph)


def recurrences(scope: Scope) -> None:
    """A GRU: inputs and outputs are absent in the middle."""
    rng, maker = scope.rng, scope.maker
    x = scope.find(lambda t: t.dtype == "float32" and t.rank == 3 and 0 not in t.shape)
    if x is None:
        return
    steps, batch, width, hidden = *x.shape, 2
    weights = [
        scope.constant(maker.numbers("float32", (1, 3 * hidden, size))) for size in (width, hidden)
    ]
    start = scope.constant(maker.numbers("float32", (1, batch, hidden)))
    optional = [None, None, start] if rng.random() < 0.6 else []
    every, last = ("float32", (steps, 1, batch, hidden)), ("float32", (1, batch, hidden))
    scope.emit(
        "GRU",
        [x, *weights, *optional],
        rng.choice([[every, last], [None, last], [every]]),
        hidden_size=hidden,
    )


# -- what the shipped vendors fuse ----------------------------------------------------------------------------------


def layer_normalizations(scope: Scope) -> None:
    """By hand, with or without scale and bias, and of the root of the mean square."""
    rng = scope.rng
    x = scope.find(
        lambda t: t.dtype == "float32" and t.rank >= 2 and 0 not in t.shape
    ) or scope.constant(scope.maker.numbers("float32", (2, 3)))
    same, column = ("float32", x.shape), ("float32", (*x.shape[:-1], 1))
    axis = -1 if scope.opset >= 11 else x.rank - 1

    def mean(tensor: Tensor) -> Tensor:
        return scope.axes("ReduceMean", [tensor], [axis], 18, 1, column, keepdims=1)

    def vector() -> Tensor:
        return scope.constant(scope.maker.numbers("float32", x.shape[-1:]))

    centred = scope.emit("Sub", [x, mean(x)], [same])[0] if rng.random() < 0.6 else x
    square = scope.emit("Pow", [centred, scope.constant(2.0, "float32")], [same])[0]
    shifted = scope.emit(
        "Add", [mean(square), scope.constant(rng.choice([1e-5, 1e-3]), "float32")], [column]
    )[0]
    result = scope.emit("Div", [centred, scope.emit("Sqrt", [shifted], [column])[0]], [same])[0]
    result = scope.emit("Mul", rng.sample([result, vector()], 2), [same])[0]
    if rng.random() < 0.7:
        scope.emit("Add", rng.sample([result, vector()], 2), [same])


def gelus(scope: Scope) -> None:
    x = a_float(scope)
    same = [("float32", x.shape)]
    if scope.opset < 9:
        return
    number = [scope.constant(value, "float32") for value in (np.sqrt(2.0), 1.0, 0.5)]
    error = scope.emit("Erf", [scope.emit("Div", [x, number[0]], same)[0]], same)[0]
    shifted = scope.emit("Add", [error, number[1]], same)[0]
    if scope.rng.random() < 0.5:
        scope.emit("Mul", [scope.emit("Mul", [x, shifted], same)[0], number[2]], same)
    else:
        scope.emit("Mul", [x, scope.emit("Mul", [shifted, number[2]], same)[0]], same)


def neutral(scope: Scope) -> None:
    """What does nothing, or nearly: an added zero, a Relu behind a Concat, a Dropout, a Cast to the same type."""
    rng, x = scope.rng, a_float(scope)
    same = [("float32", x.shape)]
    kind = rng.random()
    if kind < 0.3:
        scope.emit("Add", [x, scope.constant(rng.choice([0.0, -0.0]), "float32")], same)
    elif kind < 0.5:
        scope.emit("Mul", [scope.constant(np.ones(rng.choice([(), (1,)])), "float32"), x], same)
    elif kind < 0.7:
        scope.emit("Cast", [x], same, to=x.elem_type)
    else:
        joined = scope.emit(
            "Concat", [x, x], [("float32", (2 * x.shape[0], *x.shape[1:]))], axis=0
        )[0]
        scope.emit("Relu", [joined], [("float32", joined.shape)])


def convolutions(scope: Scope) -> None:
    """A grouped Conv with or without bias."""
    rng, maker = scope.rng, scope.maker
    x = scope.find(lambda t: t.dtype == "float32" and t.rank == 3 and 0 not in t.shape)
    if x is None:
        return
    channels, width = x.shape[1], x.shape[2]
    groups = rng.choice([1, channels])
    weight = scope.constant(maker.numbers("float32", (2 * groups, channels // groups, 1)))
    bias = [scope.constant(maker.numbers("float32", (2 * groups,)))] if rng.random() < 0.5 else []
    scope.emit(
        "Conv",
        [x, weight, *bias],
        [("float32", (x.shape[0], 2 * groups, width))],
        group=groups,
        kernel_shape=[1],
    )


def texts(scope: Scope) -> None:
    """Strings, which no arithmetic takes."""
    words = np.array(["a", "", "längst"], dtype=object)
    name = scope.maker.fresh("c")
    scope.maker.root.initializers.append(numpy_helper.from_array(words, name))
    tensor = Tensor(name, "object", (3,))
    result = scope.emit("Identity", [tensor], [("object", (3,))])[0]
    if scope.opset >= 7:
        scope.emit("Concat", [result, tensor], [("object", (6,))], axis=0)


_WEIGHTED: tuple[tuple[Callable[[Scope], None], int], ...] = (
    (repeated, 18),
    (operators.elementwise, 9),
    (operators.logic, 3),
    (operators.products, 4),
    (operators.reductions, 3),
    (operators.normalizations, 2),
    (operators.joints, 4),
    (operators.movements, 6),
    (operators.slices, 2),
    (operators.clips, 2),
    (operators.casts, 3),
    (operators.gathers, 3),
    (operators.shapes, 2),
    (operators.dropouts, 1),
    (branches, 2),
    (loops, 1),
    (recurrences, 1),
    (layer_normalizations, 1),
    (gelus, 1),
    (neutral, 2),
    (convolutions, 1),
    (texts, 1),
)
FAMILIES = tuple(family for family, _ in _WEIGHTED)
WEIGHTS = tuple(weight for _, weight in _WEIGHTED)
