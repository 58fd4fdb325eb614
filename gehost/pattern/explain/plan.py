"""The order in which the reference matcher binds operators, with cached checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from gehost.pattern.fits import (
    counted_ops,
    equal_operands,
    no_more_inputs,
    required_operands,
)
from gehost.pattern.source import ANY, Chosen, Link, OpPattern, SourcePattern, TensorPattern

Steps: TypeAlias = Sequence[tuple[OpPattern, Link]]
"""Operators, each with the tensor through which it is reached."""


class Step:
    """An operator of a plan, and cached properties.

    Attributes:
        asks: whether its parameters are constrained.
        outputs: slot and tensor of each output, and whether it must be present.
        count: number of inputs of the operator.
        required: number of inputs that must be present.
        equals: of operands in any order, which may change places (``equal_operands``).
        maker: the next operator, if it produces the operand ``made``.
    """

    def __init__(
        self,
        op: OpPattern,
        link: Link,
        following: tuple[OpPattern, Link] | None,
        source: SourcePattern,
    ) -> None:
        needed = source.needed
        self.op = op
        self.link = link
        self.asks = bool(op.constraints) or op.exact_attributes is not None
        self.outputs = [
            (tensor.slot, tensor.index, tensor.index in needed) for tensor in op.outputs
        ]
        self.count = len(op.inputs)
        self.required = required_operands(op)
        self.equals = equal_operands(op, source) if op.commutative else []
        self.no_more = no_more_inputs(op)
        self.counted = counted_ops(op)
        self.made: Link = None
        if (
            following is not None
            and following[1] is not None
            and following[1].producer == following[0].index
        ):
            self.maker, self.made = following


class Plan:
    """The order of binding operators, for a pattern without open choices.

    Attributes:
        source: a variant of the pattern; where a choice is open, it accepts any tensor.
        choice: that choice.
        part: the optional part that each operator belongs to, by its index; "" for none.
    """

    def __init__(
        self,
        source: SourcePattern,
        steps: Steps,
        choice: TensorPattern | None = None,
        parts: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.source = source
        self.choice = choice
        self.parts = parts
        after = [*steps[1:], None]
        self.steps = [
            Step(op, link, next_one, source)
            for (op, link), next_one in zip(steps, after, strict=True)
        ]


def parts_of(source: SourcePattern, chosen: Chosen) -> dict[int, str]:
    """Return the optional part of each operator of a variant.

    Keys are indices in the variant.
    """
    parts: dict[int, str] = {}
    before: dict[int, int] = {}
    for index, selected in chosen.items():
        choice = source.tensors[index]
        reached = [
            set(source.reached({**before, index: option})[0])
            for option in range(len(choice.options))
        ]
        before[index] = selected
        kind = "optional part" if choice.name == "Optional" else f"alternative {selected + 1}"
        own = reached[selected] - set[int].intersection(*reached)
        parts.update(dict.fromkeys(own, f"{kind} of {choice.origin}"))
    return {new: parts[old] for new, old in enumerate(source.reached(chosen)[0]) if old in parts}


def steps_from(source: SourcePattern, root: OpPattern) -> Steps:
    """Return all operators, ``root`` first.

    Each comes with a tensor through which it is reached.

    Producers are preferred to users.
    """
    plan: list[tuple[OpPattern, Link]] = [(root, None)]
    while len(plan) < len(source.ops):
        placed = {op.index for op, _ in plan}
        touched = [
            t for op, _ in plan for t in (*op.inputs, *op.outputs) if t is not None and t is not ANY
        ]
        bound = {tensor.index for tensor in touched if tensor.constant is None}
        makers = [
            (source.ops[t.producer], t)
            for t in touched
            if t.producer is not None and t.producer not in placed
        ]
        waiting = [op for op in source.ops if op.index not in placed]
        readers = [
            (op, t) for op in waiting for t in op.inputs if t is not None and t.index in bound
        ]
        # a placeholder may have any number of users
        readers.sort(key=lambda reading: reading[1].is_input)
        plan.append(next(iter([*makers, *readers]), (waiting[0], None)))
    return plan
