"""One rewrite, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from gehost.errors import PassError
from gehost.es.graph import EsGraph
from gehost.infer.refined import is_complete
from gehost.ir.graph import Node, Value
from gehost.ir.model import Model
from gehost.ir.region import Region
from gehost.refusal import Refused
from gehost.rewrite.cache import LoweredOp, cache_key
from gehost.rewrite.comparison import Comparison
from gehost.rewrite.devices import check_not_specified, inherit_devices
from gehost.rewrite.insert import Insertion, Lowering
from gehost.rewrite.session import RewriteSession
from gehost.rewrite.shape_proof import NodeState, TypeProof, states_of

MAX_GENERATIONS = 100


class Replaced:
    """The result of a rewrite.

    Attributes:
        nodes: the new nodes; none if inputs are forwarded.
        rewired: whether old nodes read other old tensors than before.
    """

    __slots__ = ("nodes", "rewired")

    def __init__(self, nodes: list[Node], rewired: bool) -> None:
        self.nodes = nodes
        self.rewired = rewired


def replace_region(
    session: RewriteSession,
    region: Region,
    replacement: EsGraph,
    *,
    shape_proven: bool = False,
) -> Replaced:
    """Replace a closed region without making a cycle.

    On any error the model is unchanged.

    Args:
        session: the model and the author.
        region: the matched nodes, their inputs and outputs.
        replacement: its inputs are the region's by index (it may use fewer), its outputs the
            region's.
        shape_proven: the author vouches for output sizes that cannot be compared.

    Raises:
        Refused: types that disagree or cannot be proven, an operator that the opset lacks, ….
        PassError: the replacement does not fit the region, or rewrites feed each other without end.
    """
    _check_sizes(region, replacement)
    journal = session.model.journal
    mark = journal.mark()
    try:
        return _replace(session, region, replacement, shape_proven=shape_proven)
    except BaseException:
        journal.undo(mark)
        raise


def _replace(
    session: RewriteSession, region: Region, replacement: EsGraph, *, shape_proven: bool
) -> Replaced:
    """Replace the region; the caller undoes what an error leaves.

    Apart from the caller's ``try``, because an interrupt inside a comprehension leaves its function
    without the handlers there (Python 3.12 in traces, 3.13 always).
    """
    model, graph = session.model, region.graph
    outputs = Outputs(model, region)
    retained = outputs.retained
    removed = region.nodes
    if retained:
        removed = [node for node in region.nodes if node not in retained]
    generation = _next_generation(region, removed)
    insertion = Insertion(session, region, _move_early_users(region), generation)
    before: Sequence[NodeState] | None = None
    sources: Sequence[Value] = region.outputs

    is_plain = not retained and not replacement.definitions
    key = cache_key(region, replacement) if is_plain else None
    cached = session.cache.get(key, region, replacement)
    if cached is not None:
        insertion.insert_cached(cached)  # leaves the matched nodes as they are
    else:
        before = states_of(region.nodes)
        lowering = Lowering(session, region, replacement, insertion, before)
        for place in lowering.replaced_slots.values():
            outputs.release(region.outputs[place])
        lowering.insert_all()
        sources = [lowering.value(tensor) for tensor in replacement.outputs]
        _prove_types(session, region, lowering, sources, before, shape_proven)
        for place, (value, source) in enumerate(zip(region.outputs, sources, strict=True)):
            if source is not value and outputs.forward(value, source):
                insertion.insert(LoweredOp.identity(place), [source])
        if insertion.drop_unread_constants():
            lowering.cacheable = False
        if lowering.cacheable and len(lowering.replaced_slots) == len(region.outputs):
            session.cache.put(
                key, region, replacement, before, lowering.ops, from_match=lowering.from_match
            )

    if _is_unchanged(region, before, insertion.nodes, sources):
        raise Refused("no change", "the replacement equals the match")
    if model.has_device_configurations:
        inherit_devices(region, removed, insertion.nodes)
    graph.remove_nodes(removed)
    return Replaced(insertion.nodes, outputs.rewired)


def _check_sizes(region: Region, replacement: EsGraph) -> None:
    """Raise ``PassError`` unless the replacement fits the region's inputs and outputs."""
    if len(replacement.outputs) != len(region.outputs):
        raise PassError(
            f"the replacement has {len(replacement.outputs)} outputs, the pattern "
            f"{len(region.outputs)}"
        )
    if len(replacement.inputs) > len(region.inputs):
        raise PassError(
            f"the replacement has {len(replacement.inputs)} inputs, the pattern "
            f"{len(region.inputs)}"
        )


def _next_generation(region: Region, removed: Sequence[Node]) -> int:
    """Return the number of rewrites that led to the new nodes.

    The minimum over the removed nodes counts: rewrites that remove an original node are finite.

    Raises:
        PassError: the number exceeds ``MAX_GENERATIONS``.
    """
    generation = MAX_GENERATIONS
    for node in removed or region.nodes:
        generation = min(generation, node.generation)
    generation += 1
    if generation > MAX_GENERATIONS:
        last = region.last
        depth = f"{last.label} ({last.op}) is {generation} generations deep"
        raise PassError(f"rewrites feed each other without end: {depth}")
    return generation


def _move_early_users(region: Region) -> Node:
    """Move early users of the outputs after the insertion point; return it.

    Raises:
        Refused: a matched node, or the producer of an input, is among these users.
    """
    anchor = behind = region.anchor
    if all(value.producer is anchor for value in region.outputs):
        return anchor  # its users come later anyway
    cycle = region.cycle()
    if cycle:
        raise Refused("cycle", f"the replacement would make one {cycle}")
    for reader in region.readers_before(anchor.order + 1):
        region.graph.move_after(reader, behind)
        behind = reader
    return anchor


def _prove_types(
    session: RewriteSession,
    region: Region,
    lowering: Lowering,
    sources: Sequence[Value],
    before: Sequence[NodeState],
    shape_proven: bool,
) -> None:
    """Prove that each source has its replaced output's type, and set that.

    Raises:
        Refused: the types disagree, or cannot be proven to agree.
    """
    proof: TypeProof | None = None
    for value, source in zip(region.outputs, sources, strict=True):
        old_type, new_type = value.type, lowering.type_of_value(source)
        if old_type == new_type and is_complete(old_type):
            continue
        lowering.cacheable = False
        if proof is None:
            after = states_of(lowering.insertion.nodes)
            proof = TypeProof(
                region.inputs, before, after, session.inferrer, shape_proven=shape_proven
            )
        region.graph.set_type(value, proof.unify(value, old_type, source, new_type))


def _is_unchanged(
    region: Region,
    before: Sequence[NodeState] | None,
    new_nodes: Sequence[Node],
    sources: Sequence[Value],
) -> bool:
    """Whether the new nodes equal the matched ones, one for one.

    ``before``: the matched nodes before the rewrite; None if they are as they were.
    """
    if len(new_nodes) != len(region.nodes) or sorted([node.op for node in new_nodes]) != sorted(
        [node.op for node in region.nodes]
    ):
        return False
    old = states_of(region.nodes) if before is None else before
    comparison, new = Comparison(old, states_of(new_nodes)), set(new_nodes)
    return all(
        comparison.equal(value, value if value.producer in new else source)
        for value, source in zip(region.outputs, sources, strict=True)
    ) and comparison.covers(old)


class Outputs:
    """The outcome for each replaced tensor of one region: reused, released or forwarded.

    The new node that computes a replaced tensor becomes its producer, and it keeps its name. If the
    matched node that produced it must stay, the tensor is released first. If the replacement
    returns an input or a constant, users of the replaced tensor read that instead.

    Attributes:
        retained: matched nodes that stay, as another output of theirs is used outside.
        rewired: whether old nodes read other old tensors than before.
    """

    def __init__(self, model: Model, region: Region) -> None:
        self._model = model
        self._region = region
        self.retained = retained_nodes(region)
        self.rewired = False

    def release(self, value: Value) -> None:
        """Free a replaced tensor for a new producer.

        Retained nodes keep reading the old result.

        Raises:
            Refused: a body of a retained node returns it, or a node has a sharding spec of it.
        """
        if value.producer not in self.retained:
            return
        graph = self._region.graph
        readers = [
            (reader, slot)
            for reader, slot in value.uses
            if graph.reading_node(reader) in self.retained
        ]
        self.rewired = True
        self._check_devices(value)
        substitute = graph.release(value)
        for reader, slot in readers:
            if not isinstance(reader, Node):
                raise Refused(
                    "nested", f'a body of a matched node that stays returns "{value.name}"'
                )
            graph.set_input(reader, slot, substitute)

    def forward(self, value: Value, source: Value) -> bool:
        """Make the users of a replaced tensor read ``source``.

        Returns:
            True for a graph output, which needs an ``Identity`` to keep its name; its users are
            not changed.

        Raises:
            Refused: a body has a tensor named like ``source``, or a node has a sharding spec.
        """
        self.rewired = True
        if value.is_graph_output:
            self.release(value)
            return True
        self._check_devices(value)
        graph = self._region.graph
        for reader, slot in value.uses:
            if isinstance(reader, Node) and graph.level_of(reader) not in self.retained:
                if reader.graph.find(source.name) is not source:
                    raise Refused(
                        "nested", f'a body that reads "{value.name}" has its own "{source.name}"'
                    )
                graph.set_input(reader, slot, source)
        return False

    def _check_devices(self, value: Value) -> None:
        """Refuse to change a tensor that has a sharding spec."""
        if self._model.has_device_configurations:
            nodes = [reader for reader in value.readers if isinstance(reader, Node)]
            if value.producer in self.retained:
                nodes.append(value.producer)
            staying = [n for n in nodes if n in self.retained or not self._region.holds(n)]
            check_not_specified(value, staying)


def retained_nodes(region: Region) -> set[Node]:
    """Return the matched nodes that must stay.

    A tensor of theirs is used outside without being an output, or is an input of the region.
    """
    retained: set[Node] = set()
    first = region.nodes[0].order  # most inputs come before it
    if region.closed and not any(
        value is not None
        and value.producer is not None
        and value.producer.order >= first
        and region.holds(value.producer)
        for value in region.inputs
    ):
        return retained
    inside, graph = set(region.nodes), region.graph
    inputs, outputs = set(region.inputs), set(region.outputs)
    for node in reversed(region.nodes):
        for value in node.outputs:
            if value is None:
                continue
            replaced = value in outputs
            if not replaced and value in inputs:
                retained.add(node)
                continue
            for user in value.readers:
                # A body's use counts as one of the node that holds it.
                reader = user if user in inside else graph.reading_node(user)
                if reader in retained or not (replaced or reader in inside):
                    retained.add(node)
                    break
    return retained
