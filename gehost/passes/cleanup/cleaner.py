"""The clean-up as a whole: one walk through the model in topological order, then whatever the
edits touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from gehost.infer.local import Inferrer
from gehost.ir.gc_policy import gc_disabled
from gehost.ir.graph import Node
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import dead
from gehost.passes.cleanup.fold import Folded, Folder
from gehost.passes.cleanup.identity import eliminate
from gehost.passes.cleanup.merge import Merger
from gehost.passes.cleanup.refine import refine
from gehost.passes.cleanup.shapes import KnownShapes
from gehost.passes.cleanup.state import State

GROWTH_LIMIT = 1 << 20
GROWN = "gehost.grown"
"""Metadata of a model: the bytes by which folding has grown it, where more would be folded else."""


@dataclass(frozen=True, slots=True)
class CleanUpResult:
    """How much a clean-up changed, each node and initializer counted once, under the reason for
    which it went.
    """

    dead_nodes: int = 0
    dead_initializers: int = 0
    identities: int = 0
    folded: int = 0
    merged: int = 0
    grown: int = 0
    """Bytes of constants that folding added to the model, of ``growth_limit``."""

    @property
    def total(self) -> int:
        """0 exactly if nothing was changed."""
        return (
            self.dead_nodes + self.dead_initializers + self.identities + self.folded + self.merged
        )


def clean_up(
    model: Model,
    registry: OpRegistry,
    inferrer: Inferrer,
    growth_limit: int = GROWTH_LIMIT,
    *,
    is_edited: bool = False,
) -> CleanUpResult:
    """Remove dead nodes and initializers, identities and repeated computations, and compute
    constants.

    Holds before and after: the graph's inputs and outputs, the outputs' numbers, topological order.
    Works on the root and on the bodies of If, Loop and Scan, until nothing more is found; time is
    linear in the graph. All edits are journalled. A model with training information or a
    ``Gradient`` is left alone: those refer to its tensors by name.

    Args:
        model: its values carry the types that inference found.
        registry: says which custom operators are stateful or random.
        inferrer: infers what becomes known on the way.
        growth_limit: bytes by which folding may grow the model, in all the times that it is
            cleaned: what is left undone for that alone, the model's metadata holds what was grown.
        is_edited: edits since inference may have made more known, so that types that are not
            whole are inferred again.
    """
    if _is_trained(model):
        return CleanUpResult()
    with gc_disabled():
        state = State(model, registry, inferrer)
        dead.sweep(state)
        if is_edited:
            state.stale.update(state.initial)
        _Cleaner(state, growth_limit).run()
    return CleanUpResult(**asdict(state.counts))


def remove_leftovers(model: Model, registry: OpRegistry, inferrer: Inferrer) -> CleanUpResult:
    """Remove what edits since ``clean_up`` left behind: dead nodes and initializers, and constants
    equal to others. Nothing is computed or merged otherwise.

    Args:
        model: ``clean_up`` came before.
        registry: as above.
        inferrer: as above.
    """
    if _is_trained(model):
        return CleanUpResult()
    with gc_disabled():
        state = State(model, registry, inferrer)
        dead.sweep(state)
        Merger(state).merge_constants()
    return CleanUpResult(**asdict(state.counts))


def _is_trained(model: Model) -> bool:
    """Whether training information or a ``Gradient`` refers to tensors by name."""
    return bool(model.proto.training_info) or any(
        graph.by_op.get("ai.onnx.preview.training::Gradient") for graph in model.graphs
    )


class _Cleaner:
    def __init__(self, state: State, growth_limit: int) -> None:
        self._state = state
        self._grown = _number(state.model.metadata(GROWN))
        self._folder = Folder(state, growth_limit, self._grown)
        self._merger = Merger(state)
        self._shapes = KnownShapes(state)

    def run(self) -> None:
        self._merger.merge_initializers()
        for present in self._state.initial:
            self._state.push(present)
        while True:
            while (node := self._state.pop()) is not None:
                self._visit(node)
            made = self._folder.fold_waiting()
            if made is None:
                break
            self._unify(made)
        if self._folder.is_starved and self._state.counts.grown:
            self._state.model.set_metadata(GROWN, str(self._grown + self._state.counts.grown))

    def _unify(self, made: Sequence[Folded]) -> None:
        for folded in made:
            if self._merger.merge_constant(folded.value):
                self._folder.give_back(folded)

    def _visit(self, node: Node) -> None:
        state = self._state
        if not state.is_pure(node):
            return
        if node in state.stale:
            state.stale.discard(node)
            refine(state, node)
        if eliminate(state, node):
            return
        constant = self._shapes.use(node)
        if constant is not None:
            self._merger.merge_constant(constant)
        made = self._folder.fold(node)
        if made:
            self._unify(made)
        else:
            self._merger.merge(node)


def _number(text: str | None) -> int:
    """A number from 0 that the metadata of a model holds; 0 where there is none."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0
