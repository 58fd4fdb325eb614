"""One rewrite, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence

from gehost.errors import PassError
from gehost.es.graph import EsGraph
from gehost.infer.shape_values import is_complete
from gehost.ir.graph import Node, Value
from gehost.ir.region import Region
from gehost.rewrite.cache import LoweredOp, cache_key
from gehost.rewrite.comparison import Comparison
from gehost.rewrite.devices import inherit_devices
from gehost.rewrite.insert import Insertion, Lowering
from gehost.rewrite.lower import Refused
from gehost.rewrite.outputs import Outputs
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
    model, graph = session.model, region.graph
    mark = session.mark()
    try:
        outputs = Outputs(model, region)
        retained = outputs.retained
        removed = region.nodes
        if retained:
            removed = [node for node in region.nodes if node not in retained]
        generation = _next_generation(region, removed)
        insertion = Insertion(session, region, _make_room(region), generation)
        before: Sequence[NodeState] | None = None
        sources: Sequence[Value] = region.outputs

        key = None if retained else cache_key(region, replacement)
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

        if len(insertion.nodes) == len(region.nodes) and _is_unchanged(
            region, before or states_of(region.nodes), insertion.nodes, sources
        ):
            raise Refused("no change: the replacement equals the match")
        if model.has_device_configurations:
            inherit_devices(region, removed, insertion.nodes)
        graph.remove_nodes(removed)
        session.replaced += 1
        return Replaced(insertion.nodes, outputs.rewired)
    except BaseException:
        session.undo(mark)
        raise


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


def _make_room(region: Region) -> Node:
    """Return the node to insert after.

    Early users of the outputs are moved after it.

    Raises:
        Refused: a matched node, or the producer of an input, is among these users.
    """
    anchor = behind = region.anchor
    if all(value.producer is anchor for value in region.outputs):
        return anchor  # its users come later anyway
    cycle = region.cycle()
    if cycle:
        raise Refused(f"cycle: the replacement would make one {cycle}")
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
        region.graph.set_type(value, proof.settle(value, old_type, source, new_type))


def _is_unchanged(
    region: Region,
    before: Sequence[NodeState],
    new_nodes: Sequence[Node],
    sources: Sequence[Value],
) -> bool:
    """Whether the new nodes equal the matched ones, one for one."""
    after = states_of(new_nodes)
    if sorted(state.node.op for state in before) != sorted(state.node.op for state in after):
        return False
    comparison, new = Comparison(before, after), set(new_nodes)
    return all(
        comparison.equal(value, value if value.producer in new else source)
        for value, source in zip(region.outputs, sources, strict=True)
    ) and comparison.covers(before)
