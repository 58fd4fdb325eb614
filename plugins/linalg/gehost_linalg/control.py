"""Control functions: which legal fusions are done."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Literal as OneOf
from typing import TypeAlias

from gehost_linalg.affine import Const, Dim
from gehost_linalg.fusability import OpOperand, fused_map
from gehost_linalg.generic import INDEX
from gehost_linalg.operations import OPERATIONS

Control: TypeAlias = Callable[[OpOperand], "bool | str"]
"""Gets the operand (producer, consumer, index); returns True, or the reason for not fusing."""

MultiUse: TypeAlias = OneOf["refuse", "duplicate", "share"]
MULTI_USES: tuple[MultiUse, ...] = ("refuse", "duplicate", "share")

TRANSCENDENTAL = frozenset({name for name, row in OPERATIONS.items() if row.is_costly})
"""Operations that cost more than a load."""


class ControlError(ValueError):
    """A control function that does not exist, or its wrong number."""


def one_use(operand: OpOperand) -> bool | str:
    """The producer has one use over all its results."""
    return operand.uses == 1 or f"the producer has {operand.uses} uses"


def always(operand: OpOperand) -> bool | str:
    """Every legal fusion."""
    del operand
    return True


def no_recompute(operand: OpOperand) -> bool | str:
    """Fuse where the consumer reads each element once.

    Its map of the operand is a permutation.
    """
    _, consumer = operand.generics()
    map_ = consumer.maps[operand.index]
    return map_.is_permutation or f"reading by {map_.body()} computes elements again"


def cost(operand: OpOperand) -> bool | str:
    """No exp, tanh, … computed again, no stride in the innermost loop."""
    producer, consumer = operand.generics()
    expensive = next((op.name for op in producer.payload.ops if op.name in TRANSCENDENTAL), None)
    if expensive is not None and (
        not consumer.maps[operand.index].is_permutation or operand.uses > 1
    ):
        return f"{expensive} would be computed again"
    inner = consumer.loops - 1
    for position, value in enumerate(producer.ins):
        before, after = producer.maps[position], fused_map(operand, position)
        if _is_strided(after.results, inner) and not _is_strided(
            before.results, producer.loops - 1
        ):
            return f"{value.name} would be read with a stride in loop d{inner}"
    return True


def _is_strided(results: tuple[object, ...], inner: int) -> bool:
    """Whether the innermost loop walks in steps, or along another axis.

    The other axis is any but the last.
    """
    walked = [
        place
        for place, result in enumerate(results)
        if not isinstance(result, Const) and result != Dim(inner)
    ]
    last = len(results) - 1
    if Dim(inner) in results[:last]:
        return True
    return last in walked and not isinstance(results[last], Dim)


def _max_operands(most: int) -> Control:
    def max_operands(operand: OpOperand) -> bool | str:
        producer, consumer = operand.generics()
        distinct = {
            *producer.ins,
            *consumer.ins[: operand.index],
            *consumer.ins[operand.index + 1 :],
        }
        return len(distinct) <= most or f"{len(distinct)} operands, at most {most}"

    return max_operands


def _max_body_ops(most: int) -> Control:
    def max_body_ops(operand: OpOperand) -> bool | str:
        producer, _ = operand.generics()
        count = sum(op.name != INDEX for op in producer.payload.ops)
        if operand.uses != 1:
            return one_use(operand)
        return count <= most or f"the producer has {count} operations, at most {most}"

    return max_body_ops


def _max_live(most: int) -> Control:
    def max_live(operand: OpOperand) -> bool | str:
        producer, consumer = operand.generics()
        count = len(producer.ins) + len(consumer.ins)
        return count <= most or f"{count} live values, at most {most}"

    return max_live


CONTROLS: Mapping[str, Control] = {
    "one-use": one_use,
    "always": always,
    "no-recompute": no_recompute,
    "cost": cost,
}
NUMBERED: Mapping[str, Callable[[int], Control]] = {
    "max-operands": _max_operands,
    "max-body-ops": _max_body_ops,
    "max-live": _max_live,
}


def control_named(text: str, more: Mapping[str, Control] | None = None) -> Control:
    """The control function of a name, ``max-operands=8`` with its number.

    Args:
        text: the name.
        more: further functions by name.

    Raises:
        ControlError: no function has that name (the nearest are listed), or its number is missing
            or not positive.
    """
    name, equals, number = text.partition("=")
    entries = {**CONTROLS, **(more or {})}
    if name in entries and not equals:
        return entries[name]
    if name in NUMBERED:
        if not re.fullmatch("0*[1-9][0-9]{0,8}", number, re.ASCII):
            raise ControlError(f"control {name} needs a number from 1 to 999999999: {name}=8")
        return NUMBERED[name](int(number))
    if name in entries:
        raise ControlError(f"control {name} takes no number, got {text!r}")
    if name == "measured":
        raise ControlError("control measured belongs to gehost kernels --measure")
    raise ControlError(unknown("control", name, [*entries, *[f"{item}=N" for item in NUMBERED]]))


def multi_use_named(text: str) -> MultiUse:
    """``refuse``, ``duplicate`` or ``share``.

    Raises:
        ControlError: it is none of them.
    """
    for item in MULTI_USES:
        if item == text:
            return item
    raise ControlError(unknown("multi-use", text, MULTI_USES))


def unknown(what: str, name: str, names: list[str] | tuple[str, ...]) -> str:
    """The message about an unknown name, with the nearest ones."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.4) or sorted(names)
    return f"no {what} is called {name!r}; nearest: {', '.join(near)}"


def asked(control: Control, operand: OpOperand) -> str | None:
    """Why ``control`` refuses an operand, None if it accepts.

    Raises:
        ControlError: it raises an exception, or returns neither True nor a text.
    """
    try:
        answer = control(operand)
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"
        raise ControlError(f"control {_place(control)} raised {shown}") from error
    if answer is True:
        return None
    if isinstance(answer, str) and answer:
        return answer
    if answer is False:
        return "refused"
    raise ControlError(f"control {_place(control)} returned {answer!r}; wanted True or a reason")


def _place(control: Control) -> str:
    """The name of a function, with its file and line."""
    code = getattr(control, "__code__", None)
    name = getattr(control, "__name__", repr(control))
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
