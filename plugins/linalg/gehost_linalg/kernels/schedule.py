"""Which loop along the row computes which step, and where its result is stored.

A stage is one loop over a row; a reduction is read in a later stage. ``checks.py`` refuses what no
stage can compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gehost_linalg.generic import Arg, Literal, Payload, Ref, Res, Value
from gehost_linalg.kernels.sizes import Sizes
from gehost_linalg.kernels.steps import Edge, Step, Steps


class Piece(NamedTuple):
    """A result that goes into a concatenation.

    Attributes:
        whole: the concatenation.
        lengths: sizes of the rows before it, by number.
        ones: how many single elements are before it.
    """

    whole: Step
    lengths: tuple[int, ...]
    ones: int


class Schedule:
    """The stages of some outputs of a group.

    Attributes:
        order: the steps that the outputs need.
        stages: the row of each, by the number of its size; -1 for the first, which has no loop.
        stage_of: the stage of each result.
        widths: the rows, by number.
        readers: the edges that read each result.
        pieces: the results that go into concatenations.
        padded: the stages that walk a short row up to a whole vector.
        flat: any piece of a row can be computed on its own.
    """

    def __init__(self, steps: Steps, sizes: Sizes, outputs: Sequence[Value]) -> None:
        self.steps = steps
        self.sizes = sizes
        self.outputs = list(dict.fromkeys(outputs))
        self.order = self._needed()
        self.readers: dict[Value, list[tuple[Step, Edge]]] = {}
        for step in self.order:
            for edge in step.edges:
                if isinstance(edge, Edge):
                    self.readers.setdefault(edge.value, []).append((step, edge))
        self.stages = [-1]
        self.stage_of: dict[Value, int] = {}
        self.widths: dict[int, None] = {}
        for step in self.order:
            self._schedule(step)
        self.flat = True
        self.lengths: dict[int, None] = {}
        self.pieces: dict[Value, Piece] = {}
        for step in list(self.order):
            if step.payload is None:
                self._place_pieces(step)
        self.padded = self._padded_stages()

    def _needed(self) -> list[Step]:
        needed = set(self.outputs)
        for step in reversed(self.steps.made_by.values()):
            if step.result in needed:
                needed |= {edge.value for edge in step.edges if isinstance(edge, Edge)}
        return [step for value, step in self.steps.made_by.items() if value in needed]

    # -- stages

    def _schedule(self, step: Step) -> None:
        """The earliest stage over its row in which all that it reads is computed."""
        computed = [
            edge
            for edge in step.edges
            if isinstance(edge, Edge) and edge.value in self.steps.made_by
        ]
        if step.payload is None or (step.per_row and not step.reduces):
            self.stage_of[step.result] = max(
                [self.stage_of[edge.value] for edge in computed], default=0
            )
            if step.payload is None:
                self.widths[self.sizes.number(step.extents[-1])] = None
            return
        row, earliest = self.sizes.number(step.extents[-1]), 1
        self.widths[row] = None
        for edge in computed:
            stage = self.stage_of[edge.value]
            source = self.steps.made_by[edge.value]
            same = (
                source.payload is not None
                and not source.per_row
                and edge.axes[-1].whole
                and self.stages[stage] == row
            )
            earliest = max(earliest, stage if same else stage + 1)
        for number in range(earliest, len(self.stages)):
            if self.stages[number] == row:
                self.stage_of[step.result] = number
                return
        self.stages.append(row)
        self.stage_of[step.result] = len(self.stages) - 1

    def _place_pieces(self, whole: Step) -> None:
        """Give each piece of a concatenation its place; a row that is only moved has it, too."""
        self.flat = False
        before: list[int] = []
        ones = 0
        for edge in whole.edges:
            assert isinstance(edge, Edge)
            piece = self.steps.made_by[edge.value]
            self.pieces[edge.value] = Piece(whole, tuple(before), ones)
            source = piece.edges[0]
            if isinstance(source, Edge) and self._is_moved(source, piece):
                self.pieces[source.value] = self.pieces.pop(edge.value)
                self.order = [step for step in self.order if step is not piece]
            if piece.per_row:
                ones += 1
            else:
                before.append(self.sizes.number(piece.extents[-1]))
                self.lengths[before[-1]] = None

    def _is_moved(self, source: Edge, piece: Step) -> bool:
        """Whether a computed row goes into a concatenation and nowhere else."""
        result = self.steps.made_by.get(source.value)
        return (
            result is not None and result.payload is not None
            and not result.per_row and not piece.per_row
            and source.value not in self.outputs and len(self.readers[source.value]) == 1
            and source.axes[-1].whole
            and self._same_sizes(result, piece)
        )  # fmt: skip

    def _same_sizes(self, one: Step, other: Step) -> bool:
        pairs = zip(one.extents, other.extents, strict=True)
        return all(self.sizes.key(a) == self.sizes.key(b) for a, b in pairs)

    def _padded_stages(self) -> set[int]:
        """The stages that may walk a short row up to a whole vector.

        They have the row of the first reduction, write no output, and read elements of which a
        vector can be read in part, which excludes bytes.
        """
        first = next((step for step in self.order if step.reduces), None)
        if first is None:
            return set()
        row = self.stages[self.stage_of[first.result]]
        padded = {number for number, stage in enumerate(self.stages) if stage == row}
        for step in self.order:
            reads_bytes = any(isinstance(e, Edge) and e.value.dtype == "i1" for e in step.edges)
            is_written = step.result in self.pieces or step.result in self.outputs
            if reads_bytes or (is_written and not step.per_row):
                padded.discard(self.stage_of[step.result])
        return padded

    # -- how results are read

    def reads_stored(self, reader: Step, edge: Edge, number: int) -> bool:
        """Whether an edge reads a row of stage ``number`` from memory."""
        if reader.payload is None:
            return False
        return self.stage_of[reader.result] != number or not edge.axes[-1].whole

    def along_row(self, edge: Edge, step: Step) -> bool:
        """Whether what an edge reads varies along the row."""
        loops = {loop for read in edge.axes for loop, _ in read.terms}
        return step.extents[-1] != 1 and self.steps.loops - 1 in loops


def dtype_of(ref: Ref, step: Step, payload: Payload) -> str:
    """The element type of a scalar of a step."""
    if isinstance(ref, Arg):
        edge = step.edges[ref.index]
        return edge.dtype if isinstance(edge, Literal) else edge.value.dtype
    return payload.ops[ref.index].dtype if isinstance(ref, Res) else ref.dtype
