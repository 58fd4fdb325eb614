"""A group as a kernel: ``Steps`` → ``Schedule`` → ``Nest`` → C.

A kernel is a C function that walks along rows (the last loop), in stages: a stage is one loop over
the row, and a reduction is read in a later stage. Sizes, outer loops, broadcasting and tasks are
described by tables and done by the runtime of ``ort.py``. A group without such a description raises
``Refused`` before any text exists, and its body runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gehost import Refused
from gehost_linalg.generic import Value
from gehost_linalg.groups.body import Body
from gehost_linalg.groups.derive import DerivedGroup
from gehost_linalg.kernels.c import Kernel, Plan, write
from gehost_linalg.kernels.checks import check
from gehost_linalg.kernels.nest import Builder
from gehost_linalg.kernels.schedule import Schedule
from gehost_linalg.kernels.sizes import Key, Sizes
from gehost_linalg.kernels.steps import ELEMENTS, MOST_VIEWS, Steps, check_type


def emit(group: DerivedGroup, body: Body, number: int) -> Kernel:
    """The kernel of a group.

    Args:
        group: as ``derive`` gives it; its name is that of the node.
        body: for the comment.
        number: of the kernel in its file.

    Raises:
        Refused: with the reason; the body computes the node then.
    """
    if not re.fullmatch(r"\w+", group.name, re.ASCII):
        raise Refused("not-emitted", "a name that is none in C")
    steps = Steps(group, body)
    sizes = Sizes(steps)
    for value in group.outputs:
        if value not in steps.made_by:
            raise Refused("not-emitted", f"output {value.name} is no result")
    parts = [_part(steps, sizes, outputs) for outputs in _partition(steps, sizes)]
    tensors = [*group.inputs, *group.outputs]
    if len(tensors) > MOST_VIEWS:
        raise Refused("not-emitted", f"{len(tensors)} inputs and outputs")
    for value in tensors:
        check_type(value.dtype)
    shapes = [[sizes.number(size) for size in value.shape or ()] for value in group.outputs]
    nests = [part.nest() for part in parts]
    plan = Plan(
        name=group.name,
        number=number,
        body=body,
        types=[ELEMENTS[value.dtype].onnx for value in tensors],
        ranks=[value.rank or 0 for value in tensors],
        shapes=shapes,
        sizes=sizes.rows,
        loops=steps.loops,
        parts=nests,
    )
    return write(plan)


def _part(steps: Steps, sizes: Sizes, outputs: Sequence[Value]) -> Builder:
    schedule = Schedule(steps, sizes, outputs)
    check(schedule)
    return Builder(schedule)


def _partition(steps: Steps, sizes: Sizes) -> list[list[Value]]:
    """All outputs together; if sizes may differ, also those of equal sizes."""
    parts: dict[tuple[Key, ...], list[Value]] = {}
    for value in dict.fromkeys(steps.group.outputs):
        parts.setdefault(
            tuple([sizes.key(size) for size in steps.made_by[value].extents[:-1]]), []
        ).append(value)
    items = list(parts.values())
    return items if len(items) == 1 else [[value for item in items for value in item], *items]
