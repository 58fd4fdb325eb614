"""The whole clean-up: one topological walk, then nodes that edits touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType

from gehost.infer.local import Inferrer
from gehost.ir.gc_policy import gc_disabled
from gehost.ir.graph import Node, Value
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.passes.cleanup import dead, identity, pairs
from gehost.passes.cleanup.branch import Branches
from gehost.passes.cleanup.fold import Folder
from gehost.passes.cleanup.merge import Merger
from gehost.passes.cleanup.refine import refine
from gehost.passes.cleanup.shapes import KnownShapes
from gehost.passes.cleanup.state import State
from gehost.passes.cleanup.transpose import keep_leading_axes


@dataclass(frozen=True, slots=True)
class CleanUpResult:
    """The changes of a clean-up.

    Each removed node and initializer counts once, by reason.
    """

    dead_nodes: int = 0
    dead_initializers: int = 0
    identities: int = 0
    folded: int = 0
    merged: int = 0
    grown: int = 0
    """Bytes of constants that folding added to the model, of those that the clean-up freed."""

    @property
    def total(self) -> int:
        """The number of changes; 0 exactly if nothing was changed."""
        return (
            self.dead_nodes + self.dead_initializers + self.identities + self.folded + self.merged
        )


def clean_up(
    model: Model,
    registry: OpRegistry,
    inferrer: Inferrer,
    *,
    is_edited: bool = False,
    room: int = 0,
) -> CleanUpResult:
    """Remove dead nodes, identities, repeated computations, branches not taken; fold constants.

    Preserves the graph's inputs and outputs, the outputs' numbers and topological order. Works on
    the root and on the bodies of If, Loop and Scan, until nothing more is found; time is linear in
    the graph. All edits are journalled. A model with training information or a ``Gradient`` is left
    alone: those refer to its tensors by name.

    Args:
        model: its values have inferred types.
        registry: has the traits of custom operators (stateful, random).
        inferrer: infers types that become known on the way.
        is_edited: edits since inference may make more types known, so incomplete types are
            inferred again.
        room: bytes that folding may add to the model, beside those that are freed on the way.
    """
    if _is_trained(model):
        return CleanUpResult()
    with gc_disabled():
        state = State(model, registry, inferrer)
        state.freed = room
        dead.sweep(state)
        if is_edited:
            state.stale.update(state.initial)
        _Cleaner(state).run()
    return CleanUpResult(**asdict(state.counts))


def take_branches(model: Model, registry: OpRegistry, inferrer: Inferrer) -> None:
    """Inline the branch of each ``If`` whose condition is a constant already.

    Before fusion, so that patterns find what is in it. ``clean_up`` does the others.
    """
    if _is_trained(model) or not any(graph.by_op.get("If") for graph in model.graphs):
        return
    with gc_disabled():
        state = State(model, registry, inferrer)
        branches = Branches(state)
        for initial in state.initial:
            state.push(initial)
        while (node := state.pop()) is not None:
            if node.op == "If":
                branches.inline(node)


def _simplify(state: State, node: Node) -> bool:
    """Remove a node, or merge it with those before it; returns False if it stays as it is."""
    for rule in _SIMPLIFIERS.get(node.op, ()):  # noqa: SIM110 - for each node: a generator costs
        if rule(state, node):
            return True
    return False


_SIMPLIFIERS: Mapping[str, Sequence[Callable[[State, Node], bool]]] = MappingProxyType(
    {
        op: [
            rule
            for rule, operators in (
                (identity.eliminate, identity.OPERATORS),
                (pairs.merge_with_first, pairs.OPERATORS),
                (keep_leading_axes, ("Reshape",)),
            )
            if op in operators
        ]
        for op in identity.OPERATORS | pairs.OPERATORS
    }
)
"""Operator → what may simplify its nodes."""


def _is_trained(model: Model) -> bool:
    """Whether training information or a ``Gradient`` refers to tensors by name."""
    return bool(model.proto.training_info) or any(
        graph.by_op.get("ai.onnx.preview.training::Gradient") for graph in model.graphs
    )


class _Cleaner:
    def __init__(self, state: State) -> None:
        self._state = state
        self._folder = Folder(state)
        self._merger = Merger(state)
        self._branches = Branches(state)
        self._shapes = KnownShapes(state)

    def run(self) -> None:
        self._merger.merge_initializers()
        for initial in self._state.initial:
            self._state.push(initial)
        while True:
            while (node := self._state.pop()) is not None:
                self._visit(node)
            result = self._folder.fold_waiting()
            if result is None:
                break
            self._unify(result)

    def _unify(self, results: Sequence[Value]) -> None:
        for value in results:
            self._merger.merge_result(value)

    def _visit(self, node: Node) -> None:
        state = self._state
        constants = self._branches.inline(node) if node.op == "If" else None
        if constants is not None:
            for value in constants:
                self._merger.merge_constant(value)
            return
        if not state.is_pure(node):
            return
        if node in state.stale:
            state.stale.discard(node)
            refine(state, node)
        if _simplify(state, node):
            self._merger.merge_added()
            return
        if self._shapes.use(node):
            self._merger.merge_added()
        result = self._folder.fold(node)
        if result:
            self._unify(result)
        else:
            self._merger.merge(node)
