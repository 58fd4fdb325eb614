"""What random models are made of: one function an operator family, each adds nodes whose operands fit."""

from __future__ import annotations

import random

import numpy as np

from tools.fuzz.graphs import FLOATS, Scope, Tensor

INT64 = np.iinfo(np.int64)
EXACT_UNARY = ("Neg", "Abs", "Relu", "Identity", "Floor", "Ceil")
UNARY = (*EXACT_UNARY, "Sigmoid", "Tanh", "Exp", "Reciprocal", "Sqrt")
BINARY = ("Add", "Sub", "Mul", "Add", "Sub", "Mul", "Div")
ANY_TYPE = ("float32", "float64", "int64", "bool")


def chain(scope: Scope, tensor: Tensor, length: int, rng: random.Random | None = None) -> Tensor:
    """Operators that keep dtype and shape, one after the other; the same ones for the same ``rng``."""
    rng = rng or scope.rng
    for _ in range(length):
        tensor = _keeping(scope, tensor, rng)
    return tensor


def _keeping(scope: Scope, tensor: Tensor, rng: random.Random) -> Tensor:
    kind, same = rng.random(), (tensor.dtype, tensor.shape)
    if tensor.dtype == "bool":
        other = _operand(scope, tensor)
        return (
            scope.emit(rng.choice(["And", "Or", "Xor"]), [tensor, other], [same])[0]
            if kind < 0.6
            else scope.emit("Not", [tensor], [same])[0]
        )
    if tensor.dtype.startswith("int"):
        return scope.emit(
            rng.choice(["Add", "Sub", "Mul"]), [tensor, _operand(scope, tensor)], [same]
        )[0]
    if kind < 0.3:
        return scope.emit(rng.choice(EXACT_UNARY), [tensor], [same])[0]
    if kind < 0.7:
        operands = [tensor, _operand(scope, tensor)]
        if rng.random() < 0.3:
            operands.reverse()
        return scope.emit(rng.choice(BINARY), operands, [same])[0]
    if kind < 0.8 and scope.opset >= 9 and tensor.dtype == "float32":
        mask = scope.emit("Less", [tensor, _operand(scope, tensor)], [("bool", tensor.shape)])[0]
        return scope.emit("Where", [mask, tensor, _operand(scope, tensor)], [same])[0]
    if kind < 0.9 and tensor.dtype == "float32":
        return scope.emit(
            rng.choice(["Sigmoid", "Tanh", "LeakyRelu", "Softplus"]), [tensor], [same]
        )[0]
    if tensor.rank >= 2 and tensor.shape[-1] and tensor.dtype == "float32":
        size = tensor.shape[-1]
        return scope.emit(
            "MatMul", [tensor, scope.constant(scope.maker.numbers("float32", (size, size)))], [same]
        )[0]
    return scope.emit("Identity", [tensor], [same])[0]


def a_float(scope: Scope) -> Tensor:
    return scope.find(lambda t: t.dtype == "float32" and t.rank > 0) or scope.constant(
        scope.maker.numbers("float32", (2, 3))
    )


def _operand(scope: Scope, tensor: Tensor) -> Tensor:
    """A tensor of the same dtype that broadcasts into ``tensor``."""
    result = scope.find(lambda t: t.dtype == tensor.dtype and _into(t.shape, tensor.shape))
    if result is not None and scope.rng.random() < 0.8:
        return result
    return scope.constant(
        scope.maker.numbers(tensor.dtype, tensor.shape[scope.rng.randint(0, tensor.rank) :])
    )


def _into(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


# -- families -------------------------------------------------------------------------------------------------------


def elementwise(scope: Scope) -> None:
    """Any operator with broadcasts to either side."""
    rng = scope.rng
    a = scope.find(lambda t: t.dtype in FLOATS) or a_float(scope)
    if rng.random() < 0.35:
        scope.emit(
            rng.choice(UNARY if a.dtype == "float32" else ["Neg", "Abs", "Identity"]),
            [a],
            [(a.dtype, a.shape)],
        )
        return
    b = scope.find(lambda t: t.dtype == a.dtype and _broadcasts(t, a)) or a
    ops = BINARY if scope.opset < 8 else (*BINARY, "Max", "Min")
    scope.emit(rng.choice(ops), [a, b], [(a.dtype, np.broadcast_shapes(a.shape, b.shape))])


def _broadcasts(a: Tensor, b: Tensor) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(a.shape, b.shape))) <= 200
    except ValueError:
        return False


def logic(scope: Scope) -> None:
    rng = scope.rng
    a = a_float(scope)
    b = scope.find(lambda t: t.dtype == "float32" and _broadcasts(t, a)) or a
    mask = scope.emit(
        rng.choice(["Less", "Greater"]), [a, b], [("bool", np.broadcast_shapes(a.shape, b.shape))]
    )[0]
    if rng.random() < 0.5:
        mask = chain(scope, mask, 1)
    if scope.opset >= 9:
        x = scope.find(lambda t: t.dtype == "float32" and _broadcasts(t, mask)) or a
        y = _operand(scope, x)
        scope.emit("Where", [mask, x, y], [("float32", np.broadcast_shapes(mask.shape, x.shape))])


def products(scope: Scope) -> None:
    """MatMul with an addend, or Gemm with and without its third input."""
    rng, maker = scope.rng, scope.maker
    a = scope.find(lambda t: t.dtype == "float32" and t.rank >= 2) or scope.constant(
        maker.numbers("float32", (2, 3))
    )
    width = rng.choice([1, 2, 3])
    b = scope.constant(maker.numbers("float32", (a.shape[-1], width)))
    out = (*a.shape[:-1], width)
    if a.rank > 2 or rng.random() < 0.5:
        product = scope.emit("MatMul", [a, b], [("float32", out)])[0]
        if rng.random() < 0.7:
            addend = scope.constant(maker.numbers("float32", (width,)))
            scope.emit(
                "Add",
                [product, addend] if rng.random() < 0.7 else [addend, product],
                [("float32", out)],
            )
        return
    bias = scope.constant(
        maker.numbers("float32", rng.choice([(width,), (1,), (a.shape[0], width)]))
    )
    inputs = [a, b, bias] if scope.opset < 11 or rng.random() < 0.7 else [a, b]
    scope.emit(
        "Gemm", inputs, [("float32", out)], **rng.choice([{}, {"alpha": 0.5}, {"beta": 2.0}])
    )


def reductions(scope: Scope) -> None:
    rng = scope.rng
    x = a_float(scope)
    axis, keep = rng.randrange(x.rank), rng.random() < 0.5
    if x.shape[axis] == 0 or 0 in x.shape:
        return
    shape = (*x.shape[:axis], *([1] if keep else []), *x.shape[axis + 1 :])
    op = rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"])
    named = axis - x.rank if rng.random() < 0.4 and scope.opset >= 11 else axis
    scope.axes(
        op, [x], [named], 13 if op == "ReduceSum" else 18, 1, ("float32", shape), keepdims=int(keep)
    )


def normalizations(scope: Scope) -> None:
    rng = scope.rng
    x = a_float(scope)
    if 0 in x.shape:
        return
    if scope.opset >= 17 and rng.random() < 0.5:
        scale = scope.constant(scope.maker.numbers("float32", x.shape[-1:]))
        bias = (
            scope.constant(scope.maker.numbers("float32", x.shape[-1:]))
            if rng.random() < 0.6
            else None
        )
        scope.emit(
            "LayerNormalization",
            [x, scale, bias] if bias else [x, scale],
            [("float32", x.shape)],
            axis=-1,
        )
        return
    axis = x.rank - 1 if scope.opset < 11 or rng.random() < 0.5 else -1
    scope.emit(rng.choice(["Softmax", "LogSoftmax"]), [x], [("float32", x.shape)], axis=axis)


def joints(scope: Scope) -> None:
    """Split, or TopK, and something that reads several of the outputs."""
    rng = scope.rng
    x = scope.find(
        lambda t: t.dtype == "float32" and t.rank > 0 and t.shape[-1] >= 2 and 0 not in t.shape
    )
    if x is None:
        return
    axis, size = x.rank - 1, x.shape[-1]
    if rng.random() < 0.3:
        count = rng.randint(1, size)
        kinds = [("float32", (*x.shape[:-1], count)), ("int64", (*x.shape[:-1], count))]
        if scope.opset < 10:
            scope.emit("TopK", [x], kinds, k=count, axis=-1)
        else:
            scope.emit("TopK", [x, scope.constant([count], "int64")], kinds)
        return
    first = rng.randint(1, size - 1)
    sizes = [first, size - first]
    kinds = [("float32", (*x.shape[:-1], part)) for part in sizes]
    if scope.opset < 13:
        parts = scope.emit("Split", [x], kinds, axis=axis, split=sizes)
    else:
        parts = scope.emit("Split", [x, scope.constant(sizes, "int64")], kinds, axis=axis)
    if rng.random() < 0.7:
        joined = [rng.choice(parts) for _ in range(rng.randint(2, 3))]
        width = sum(part.shape[-1] for part in joined)
        scope.emit(
            "Concat",
            joined,
            [("float32", (*x.shape[:-1], width))],
            axis=axis if scope.opset < 11 else -1,
        )


def movements(scope: Scope) -> None:
    """Transpose, Reshape (0, -1, allowzero), Squeeze, Unsqueeze, Flatten."""
    rng = scope.rng
    x = scope.find(lambda t: t.dtype in ANY_TYPE) or a_float(scope)
    kind = rng.random()
    if kind < 0.35 and x.rank:
        order = rng.sample(range(x.rank), x.rank)
        moved = scope.emit(
            "Transpose", [x], [(x.dtype, tuple(x.shape[i] for i in order))], perm=order
        )[0]
        if rng.random() < 0.5:
            back = (
                [order.index(i) for i in range(x.rank)]
                if rng.random() < 0.7
                else rng.sample(range(x.rank), x.rank)
            )
            scope.emit(
                "Transpose", [moved], [(x.dtype, tuple(moved.shape[i] for i in back))], perm=back
            )
    elif kind < 0.6 and x.rank < 4:
        place = rng.randint(0, x.rank)
        named = place - x.rank - 1 if scope.opset >= 11 and rng.random() < 0.4 else place
        shape = (*x.shape[:place], 1, *x.shape[place:])
        widened = scope.axes("Unsqueeze", [x], [named], 13, 1, (x.dtype, shape))
        if rng.random() < 0.5:
            scope.axes("Squeeze", [widened], [place], 13, 1, (x.dtype, x.shape))
    else:
        _reshape(scope, x)


def _reshape(scope: Scope, x: Tensor) -> None:
    rng = scope.rng
    if 0 in x.shape:
        if scope.opset >= 14:
            target = list(reversed(x.shape))
            scope.emit(
                "Reshape",
                [x, scope.constant(target, "int64")],
                [(x.dtype, tuple(target))],
                allowzero=1,
            )
        elif x.rank and x.shape[0] == 0:
            rest = int(np.prod(x.shape[1:]))
            scope.emit("Reshape", [x, scope.constant([0, rest], "int64")], [(x.dtype, (0, rest))])
        return
    count = int(np.prod(x.shape))
    choices: list[tuple[list[int], tuple[int, ...]]] = [
        ([-1], (count,)),
        ([1, -1], (1, count)),
        (list(x.shape), x.shape),
    ]
    if x.rank >= 2:
        choices.append(([0, -1], (x.shape[0], count // x.shape[0])))
        choices.append(([-1, x.shape[-1]], (count // x.shape[-1], x.shape[-1])))
    target, shape = rng.choice(choices)
    flag = {"allowzero": 1} if scope.opset >= 14 and 0 not in target and rng.random() < 0.3 else {}
    scope.emit("Reshape", [x, scope.constant(target, "int64")], [(x.dtype, shape)], **flag)


def slices(scope: Scope) -> None:
    """Slice with bounds far outside and negative steps, which clamp as Python's do."""
    rng = scope.rng
    x = a_float(scope)
    axis = rng.randrange(x.rank)
    step = rng.choice([1, 1, 2, -1, -2]) if scope.opset >= 10 else 1
    start, stop = rng.choice([0, 1, -1, -2]), rng.choice([INT64.max, 2, -1, 1 << 31])
    if step < 0:
        start, stop = (
            rng.choice([-1, INT64.max, 2]),
            rng.choice([INT64.min, INT64.min, 0, -INT64.max]),
        )
    chosen = range(x.shape[axis])[slice(start, stop if stop > -(1 << 40) else None, step)]
    shape = (*x.shape[:axis], len(chosen), *x.shape[axis + 1 :])
    if scope.opset < 10:
        scope.emit("Slice", [x], [("float32", shape)], starts=[start], ends=[stop], axes=[axis])
        return
    bounds = [scope.constant([number], "int64") for number in (start, stop, axis)]
    steps = [scope.constant([step], "int64")] if step != 1 or rng.random() < 0.5 else []
    scope.emit("Slice", [x, *bounds, *steps], [("float32", shape)])


def clips(scope: Scope) -> None:
    rng = scope.rng
    x = a_float(scope)
    low, high = rng.choice([None, -1.0, -np.inf]), rng.choice([None, 0.5, np.inf])
    same = ("float32", x.shape)
    if scope.opset < 11:
        scope.emit(
            "Clip",
            [x],
            [same],
            **{name: value for name, value in (("min", low), ("max", high)) if value is not None},
        )
        return
    bounds = [None if bound is None else scope.constant(bound, "float32") for bound in (low, high)]
    scope.emit(
        "Clip",
        [x, *bounds] if rng.random() < 0.5 else [x, *bounds[: 1 + (high is not None)]],
        [same],
    )


def casts(scope: Scope) -> None:
    """A chain of casts and back; numbers that an integer cannot hold do not reach it."""
    rng = scope.rng
    x = scope.find(lambda t: t.dtype in ("float32", "int64", "bool")) or a_float(scope)
    whole = (
        ["float64", "float16", "float32", "bool"]
        if x.dtype == "float32"
        else ["float32", "float64", "int32", "bool", "int64"]
    )
    here = x
    for dtype in rng.choices(whole, k=rng.randint(1, 3)):
        here = scope.emit("Cast", [here], [(dtype, x.shape)], to=_number(dtype))[0]
    if here.dtype != x.dtype and (x.dtype == "float32" or here.dtype in ("bool", "int32")):
        scope.emit("Cast", [here], [(x.dtype, x.shape)], to=_number(x.dtype))


def _number(dtype: str) -> int:
    return Tensor("", dtype, ()).elem_type


def gathers(scope: Scope) -> None:
    rng = scope.rng
    x = a_float(scope)
    axis = rng.randrange(x.rank)
    size = x.shape[axis]
    if not size:
        return
    if rng.random() < 0.6:
        low = -size if scope.opset >= 11 else 0
        shape = rng.choice([(), (2,), (1, 2)])
        indices = np.array(
            [rng.randint(low, size - 1) for _ in range(int(np.prod(shape)))], np.int64
        ).reshape(shape)
        out = (*x.shape[:axis], *shape, *x.shape[axis + 1 :])
        scope.emit("Gather", [x, scope.constant(indices)], [("float32", out)], axis=axis)
        return
    pads = [rng.randint(0, 1) for _ in range(2 * x.rank)]
    out = tuple(size + pads[i] + pads[i + x.rank] for i, size in enumerate(x.shape))
    if scope.opset < 11:
        scope.emit("Pad", [x], [("float32", out)], pads=pads, value=rng.choice([0.0, 1.5]))
    else:
        value = [scope.constant(1.5, "float32")] if rng.random() < 0.5 else []
        scope.emit("Pad", [x, scope.constant(pads, "int64"), *value], [("float32", out)])


def shapes(scope: Scope) -> None:
    """A shape that is computed, and used."""
    rng = scope.rng
    x, y = a_float(scope), a_float(scope)
    shape = scope.emit("Shape", [x], [("int64", (x.rank,))])[0]
    if 0 not in x.shape and int(np.prod(x.shape)) == int(np.prod(y.shape)):
        scope.emit("Reshape", [y, shape], [("float32", x.shape)])
    elif scope.opset >= 9 and rng.random() < 0.7:
        scope.emit("ConstantOfShape", [shape], [("float32", x.shape)])
    elif scope.opset >= 8 and _broadcasts(x, y):
        scope.emit("Expand", [y, shape], [("float32", np.broadcast_shapes(x.shape, y.shape))])


def dropouts(scope: Scope) -> None:
    rng = scope.rng
    x = a_float(scope)
    mask = ("bool", x.shape) if scope.opset >= 10 and rng.random() < 0.5 else None
    scope.emit(
        "Dropout",
        [x],
        [("float32", x.shape), mask] if mask or rng.random() < 0.1 else [("float32", x.shape)],
    )
