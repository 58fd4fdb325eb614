"""while becomes Loop, conditional becomes If.

A tuple is a list of values; bodies read only values from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gehost import Refused
from gehost_hlo.attributes import called
from gehost_hlo.context import Context, Translator, array_shape
from gehost_hlo.emit import Nested, Tensor, Value, leaves
from gehost_hlo.literals import is_float
from gehost_hlo.module import HloComputation, HloInstruction, Shape
from gehost_hlo.translate.trips import trip_count


def packed(shape: Shape, tensors: Sequence[Tensor]) -> Value:
    """Return the tensors as a value of a shape."""
    rest = list(tensors)

    def take(part: Shape) -> Value:
        if part.elements is None:
            return rest.pop(0)
        return tuple(take(element) for element in part.elements)

    return take(shape)


def results_of(i: HloInstruction) -> list[Shape]:
    """Return the arrays that an instruction makes."""
    if i.shape is None:
        raise Refused("missing", "its shape is not written")
    return [array_shape(leaf) for leaf in i.shape.leaves()]


def check_value(value: Value, shapes: Sequence[Shape], subject: str) -> list[Tensor]:
    parts = leaves(value)
    if [(part.type, part.dims) for part in parts] != [
        (shape.type, shape.dimensions) for shape in shapes
    ]:
        raise Refused("invalid", f"{subject} has another shape than its result")
    return parts


def _while(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Compute the condition before the loop and after each iteration.

    In the body it is computed on the new values.
    """
    shapes = results_of(i)
    condition, body = (
        c.find(i.attributes.get("condition", "")),
        c.find(i.attributes.get("body", "")),
    )
    if len(args) != 1:
        raise Refused("invalid", f"it has {len(args)} operands, expected 1")
    state = check_value(args[0], shapes, "its operand")
    name = c.body.instruction
    if c.settings.unroll:
        count = trip_count(c, condition, body, args[0], c.settings.unroll)
        if count is not None:
            return _unrolled(c, body, args[0], shapes, count)
    first = condition_of(c, condition, args[0], f"{name}/condition")
    names = [c.body.full(tensor) for tensor in state]
    initial = c.body.full(first)
    inner = c.nested(f"{name}/body")
    iteration = inner.body.names.choose(f"{name}/iteration", "")
    going = inner.body.names.choose(f"{name}/going", "")
    inputs = [Tensor(iteration, "s64", (), ()), Tensor(going, "pred", (), ())]
    carried = [
        Tensor(
            inner.body.names.choose(f"{name}/in.{k}", ""),
            shape.type,
            shape.dimensions,
            shape.dimensions,
        )
        for k, shape in enumerate(shapes)
    ]
    assert i.shape is not None
    after = c.call(inner, body, [packed(i.shape, carried)], f"{name}/body", None)
    new = check_value(after, shapes, f"body {body.name}")
    again = condition_of(inner, condition, after, f"{name}/again")
    outputs = finish(inner, [again, *new], [*inputs, *carried])
    loop = Nested(f"{name}/body", inner.body, [*inputs, *carried], outputs)
    values = c.body.op("Loop", ["", initial, *names], outputs=max(1, len(shapes)), body=loop)
    results = [
        Tensor(result, s.type, s.dimensions, s.dimensions)
        for result, s in zip(values, shapes, strict=False)
    ]
    return packed(i.shape, results)


def _unrolled(
    c: Context, body: HloComputation, value: Value, shapes: Sequence[Shape], count: int
) -> Value:
    """The iterations of a loop one behind the other."""
    name = c.body.instruction
    for number in range(count):
        value = c.call(c, body, [value], f"{name}/{number}", None)
        check_value(value, shapes, f"body {body.name}")
    return value


def condition_of(c: Context, computation: HloComputation, value: Value, scope: str) -> Tensor:
    (flag,) = leaves(c.call(c, computation, [value], scope, None)) or [None]
    if flag is None or flag.type != "pred" or flag.dims != ():
        raise Refused("invalid", f"its condition {computation.name} does not make a pred[]")
    return flag


def finish(c: Context, results: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Make each result a tensor of the body itself.

    All have different names; unneeded nodes are removed.
    """
    own = {c.body.names.resolve(output) for op in c.body.ops for output in op.outputs}
    names = {tensor.name for tensor in inputs}
    outputs: list[Tensor] = []
    for result in results:
        name = c.body.names.resolve(c.body.full(result))
        if name in names or name not in own:
            (name,) = c.body.op("Identity", [name])
        names.add(name)
        own.add(name)
        outputs.append(Tensor(name, result.type, result.dims, result.dims))
    c.body.prune(tensor.name for tensor in outputs)
    return outputs


def _conditional(c: Context, i: HloInstruction, args: list[Value]) -> Value:
    """Choose by pred, or by an index.

    An index outside the branches chooses the last one.
    """
    shapes = results_of(i)
    selector = args[0] if args else ()
    if not isinstance(selector, Tensor) or selector.dims != () or is_float(selector.type):
        raise Refused("invalid", "its first operand is no scalar of pred or integers")
    attributes = i.attributes
    if selector.type == "pred":
        named = [attributes.get("true_computation", ""), attributes.get("false_computation", "")]
    else:
        named = [name for attribute, name in called(i) if attribute == "branch_computations"]
    branches = [c.find(name) for name in named]
    if len(branches) != len(args) - 1 or not branches:
        raise Refused("invalid", f"it has {len(branches)} branches and {len(args)} operands")
    name = c.body.instruction

    def branch(number: int) -> Callable[[Context], Value]:
        return lambda inner: c.call(
            inner, branches[number], [args[number + 1]], f"{name}/{branches[number].name}", None
        )

    if selector.type == "pred":
        results = _if(c, selector, branch(0), branch(1), shapes, name)
    else:
        results = _switch(
            c, selector, [branch(number) for number in range(len(branches))], shapes, name, 0
        )
    assert i.shape is not None
    return packed(i.shape, results)


def _switch(
    c: Context,
    index: Tensor,
    branches: list[Callable[[Context], Value]],
    shapes: list[Shape],
    name: str,
    number: int,
) -> list[Tensor]:
    """Return nested Ifs: branch 0 for index 0, and so on.

    All other indices choose the last branch.
    """
    if len(branches) == number + 1:
        return check_value(branches[number](c), shapes, "a branch")
    here = c.apply("Equal", [index, c.number(number, index.type)], "pred")

    def others(inner: Context) -> Value:
        return tuple(_switch(inner, index, branches, shapes, name, number + 1))

    return _if(c, here, branches[number], others, shapes, name)


def _if(
    c: Context,
    condition: Tensor,
    yes: Callable[[Context], Value],
    no: Callable[[Context], Value],
    shapes: list[Shape],
    name: str,
) -> list[Tensor]:
    if not shapes:
        return []
    chosen = c.body.full(condition)
    position = c.body.position()
    bodies: list[Nested] = []
    for title, build in (("then", yes), ("else", no)):
        inner = c.nested(f"{name}/{title}")
        inner.body.resume(position)
        outputs = finish(inner, check_value(build(inner), shapes, "a branch"), [])
        bodies.append(Nested(f"{name}/{title}", inner.body, [], outputs))
    results = c.body.op(
        "If", [chosen], outputs=len(shapes), then_branch=bodies[0], else_branch=bodies[1]
    )
    return [
        Tensor(result, s.type, s.dimensions, s.dimensions)
        for result, s in zip(results, shapes, strict=True)
    ]


TABLE: dict[str, Translator] = {"while": _while, "conditional": _conditional}
