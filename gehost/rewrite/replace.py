"""One rewrite: build, infer, compare, commit. Whoever runs it takes it back where it fails."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx

from gehost.errors import PassError, PatternError
from gehost.es.graph import EsChoice, EsConst, EsGraph, EsInput, EsNode, EsTensor
from gehost.infer.contents import REFINED
from gehost.infer.local import ELEMENTS_DO_NOT_MATTER, InferenceFailed, array_type
from gehost.ir.attributes import encode_attribute
from gehost.ir.graph import Graph, Node, Value, op_name
from gehost.ir.region import Region
from gehost.ir.types import ValueType
from gehost.rewrite.cache import Key, Plan, PlannedNode, Plans, Read, as_plan, inputs_read, key_of
from gehost.rewrite.comparison import Comparison
from gehost.rewrite.devices import check_not_specified, inherit_devices
from gehost.rewrite.functions import add_function, function_of_region, op_with_body, region_key
from gehost.rewrite.lower import LoweredNode, Operand, Refused, lower_node
from gehost.rewrite.provenance import HISTORY, provenance
from gehost.rewrite.shape_proof import NodeState, TypeProof, is_whole

if TYPE_CHECKING:
    from gehost.rewrite.session import Rewriter

MAX_GENERATIONS = 100


class Transaction:
    """Replaces one region of a graph."""

    def __init__(self, rewriter: Rewriter, region: Region, replacement: EsGraph) -> None:
        self.rewriter = rewriter
        self.model = rewriter.model
        self.region = region
        self.graph: Graph = region.graph
        self.replacement = replacement
        self.values: dict[_Key, Value] = {}
        self.taken: dict[_Key, int] = {}
        """Which replaced value a new tensor becomes, by its position."""
        self.new_types: dict[Value, ValueType | None] = {}
        """Types of the new tensors that became replaced values, which keep their old type until
        it is settled.
        """
        self.kept = _still_needed(region)
        """Matched nodes that stay, because another output of theirs is read outside."""
        self.made: list[Node] = []
        self.planned: dict[EsNode, tuple[int, PlannedNode]] = {}
        """Where each operator stands among ``made``, and how it is written."""
        self.is_like_others = not self.kept
        """Whether what was made out holds for every match with the same keys."""
        self.from_match = False
        """Whether a body was made from the matched nodes."""
        self.constants: dict[int, Value] = {}
        """By the identity of their arrays, which the replacement or the plan holds: one for all
        readers of one constant.
        """
        self._steps: list[NodeState] | None = None
        self.position: Node | None = None
        self.provenance = provenance(region.nodes)
        nodes = region.nodes
        if self.kept:
            nodes = [node for node in nodes if node not in self.kept] or nodes
        # The least: rewrites that remove an original node end when there are none left.
        self.generation = 1 + min([node.generation for node in nodes])

    def run(self) -> list[Node]:
        """Do it; returns the new nodes."""
        if self.generation > MAX_GENERATIONS:
            last = self.region.last
            depth = f"{last.label} ({last.op}) is {self.generation} generations deep"
            raise PassError(f"rewrites feed each other without end: {depth}")
        self._make_room()
        nodes = self.region.nodes
        key = None if self.kept else key_of(self.region, self.replacement)
        plans = None if key is None else self.rewriter.plans.get(key)
        plan = None if plans is None else plans.get(self._match_key(plans.from_match), self.region)
        if plan is not None and self._holds(plan):
            self._follow(plan)
        else:
            self._make_out()
            if (
                key is not None
                and self.is_like_others
                and len(self.taken) == len(self.region.outputs)
            ):
                self._keep(key)
        if len(self.made) == len(nodes) and self._nothing_changed():
            raise Refused("no change: the replacement equals what it replaces")
        removed = [node for node in nodes if node not in self.kept] if self.kept else nodes
        if self.model.has_device_configurations:
            inherit_devices(self.region, removed, self.made)
        self.graph.remove_nodes(removed)
        return self.made

    def _make_out(self) -> None:
        """Build the replacement, comparing its types with what was there."""
        if self.kept or any(
            type(tensor.producer) is not EsNode for tensor in self.replacement.outputs
        ):
            self._old()  # what follows edits matched nodes
        for tensor, value in zip(self.replacement.inputs, self.region.inputs, strict=False):
            if value is not None:
                self.values[tensor.producer, 0] = value
        self._choose_outputs()
        for node in self.replacement.reachable():
            self._build(node)
        self._settle_outputs()
        if self.constants:
            self._drop_unread_constants()

    def _keep(self, key: Key) -> None:
        """Keep what was made out for matches that are alike."""
        match = self._match_key(self.from_match)
        if match is None:
            return
        known = self.rewriter.plans
        plans = known.get(key)
        if plans is None or plans.from_match is not self.from_match:
            plans = known[key] = Plans(from_match=self.from_match)
        plan = as_plan([planned for _, planned in self.planned.values()])
        blind = all(self._is_blind(node.original or node.op, node.body) for node in plan)
        plans.put(match, self.region, plan, blind=blind)

    def _match_key(self, from_match: bool) -> Hashable | None:
        """All that a body which is made from the match depends on; None: not to be kept."""
        if not from_match:
            return ()
        read = inputs_read(self.replacement)
        region = self.region
        # of a constant that the new node does not take, the body gets the elements
        inputs = [value if slot in read else None for slot, value in enumerate(region.inputs)]
        return region_key(region, self._old(), inputs, region.outputs, ())

    def _is_blind(self, op: str, body: onnx.FunctionProto | None) -> bool:
        """Whether inference of an operator looks at no elements, in its body neither."""
        definition = self.rewriter.registry.get(op)
        if definition is not None and definition.shape is not None:
            return True  # the author's function is given types
        if body is None:
            return op in ELEMENTS_DO_NOT_MATTER
        for node in body.node:
            inner = op_name(node.domain, node.op_type, node.overload)
            if inner != "Constant" and not self._is_blind(inner, self.model.function(inner)):
                return False
        return True

    def _holds(self, plan: Plan) -> bool:
        """Whether the operators that a plan calls have the bodies that they had."""
        return all(
            planned.body is None or self.model.function(planned.op) is planned.body
            for planned in plan
        )

    def _old(self) -> Sequence[NodeState]:
        """The matched nodes as they were; called before any of them is edited, or when none is."""
        if self._steps is None:
            self._steps = list(map(NodeState.of, self.region.nodes))
        return self._steps

    # -- where the new nodes go
    # -------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Put the new nodes behind the last matched one, and behind them whatever reads an
        output but stands earlier.
        """
        last = behind = self.region.last
        self.position = last
        if all(value.producer is last for value in self.region.outputs):
            return  # whoever reads it stands behind it
        for reader in self.region.readers_before(last.order + 1):
            if self.region.holds(reader):
                raise Refused("cycle: the replacement would make one")
            self.graph.move_after(reader, behind)
            behind = reader

    # -- building
    # ---------------------------------------------------------------------------------------------------

    def _choose_outputs(self) -> None:
        """Decide which new tensors take over a replaced value, and take those from matched nodes
        that stay.
        """
        for place, tensor in enumerate(self.replacement.outputs):
            if isinstance(tensor.producer, EsNode):
                self.taken.setdefault(_key(tensor), place)
        for place in self.taken.values():
            self._take_over(self.region.outputs[place])

    def _take_over(self, value: Value) -> None:
        """Free a replaced value for a new producer; matched nodes that stay go on reading what
        the old one makes.
        """
        if value.producer not in self.kept:
            return
        readers = [
            (reader, slot)
            for reader, slot in value.uses
            if self.graph.reading_node(reader) in self.kept
        ]
        self.rewriter.rewired = True
        self._check_devices(value)
        spare = self.graph.release(value)
        for reader, slot in readers:
            if not isinstance(reader, Node):
                raise Refused(
                    f'nested: a body of a matched node that stays hands on "{value.name}"'
                )
            self.graph.set_input(reader, slot, spare)

    def _follow(self, plan: Plan) -> None:
        """Put in the nodes of a replacement whose like was made out before."""
        region_inputs, made = self.region.inputs, self.made
        for planned in plan:
            inputs: list[Value | None] = []
            for read in planned.reads:
                if isinstance(read, int):
                    inputs.append(region_inputs[read])
                elif isinstance(read, tuple):
                    inputs.append(made[read[0]].outputs[read[1]])
                elif read is not None:
                    inputs.append(self._constant(read))
                else:
                    inputs.append(None)
            outputs = self._add(planned, inputs).outputs
            for slot, place in enumerate(planned.replaces):
                value = outputs[slot]
                if place is None and value is not None:
                    self.graph.set_type(value, planned.types[slot])

    def _build(self, node: EsNode) -> None:
        """Make out one operator and put it in."""
        rewriter = self.rewriter
        lowered = lower_node(node, self.model, rewriter.registry, self._type_of)
        inputs: list[Value | None] = []
        for operand in lowered.inputs:
            if isinstance(operand, np.ndarray):
                inputs.append(self._constant(operand))
            else:
                inputs.append(None if operand is None else self._value(operand))
        types = [None if value is None else self._value_type(value) for value in inputs]
        op, of_match = self._with_body(node, lowered, inputs, types)
        definition = rewriter.registry.get(lowered.op)
        planned = PlannedNode(
            op,
            [encode_attribute(name, value) for name, value in lowered.attributes.items()],
            lowered.op if op != lowered.op else "",
            "" if definition is None else definition.provided_by,
            self.model.function(op),
            list(map(self._read, lowered.inputs)),
            [self.taken.get(_key(tensor)) for tensor in node.outputs],
        )
        made = self._add(planned, inputs)
        try:
            planned.types = rewriter.inferrer.inferred(made, types)
        except InferenceFailed as error:
            raise Refused(f"types: {error}") from error
        self.planned[node] = len(self.made) - 1, planned
        self.from_match = self.from_match or of_match
        if made.op in REFINED:
            self.is_like_others = False
        self._deliver(node, made, rewriter.inferrer.refined(made, types, planned.types))

    def _read(self, operand: Operand) -> Read:
        """What an operand is in every rewrite of this kind."""
        if operand is None or isinstance(operand, np.ndarray):
            return operand
        producer = operand.producer
        if isinstance(producer, EsInput):
            return producer.index
        assert isinstance(producer, EsNode)  # lowering makes arrays of constants
        return self.planned[producer][0], operand.index

    def _add(self, planned: PlannedNode, inputs: Sequence[Value | None]) -> Node:
        """Put a new node into the graph; it takes over the replaced values that it is to make."""
        names, author = self.model.names, self.rewriter.author
        stem = planned.stem(author)
        name = names.fresh(stem)
        outputs: list[Value | str | None] = []
        for place in planned.replaces:
            outputs.append(
                self.region.outputs[place]
                if place is not None
                else names.fresh(stem)
                if outputs
                else name
            )
        came = self.provenance
        template = planned.template(author, came.origin_types)
        made = self.graph.add_like(
            template, inputs, outputs, name=name, after=self.position, text=came.origin_nodes
        )
        if came.history:
            self.graph.set_metadata(made, HISTORY, came.history)
        made.generation = self.generation
        self.position = made
        self.made.append(made)
        return made

    def _deliver(self, node: EsNode, made: Node, types: Sequence[ValueType | None]) -> None:
        """Note what the outputs of ``node`` are in the model."""
        for tensor, value, known in zip(node.outputs, made.outputs, types, strict=True):
            assert value is not None
            key = tensor.producer, tensor.index
            self.values[key] = value
            if key in self.taken:
                self.new_types[value] = known
            else:
                self.graph.set_type(value, known)

    def _with_body(
        self,
        node: EsNode,
        lowered: LoweredNode,
        inputs: Sequence[Value | None],
        types: Sequence[ValueType | None],
    ) -> tuple[str, bool]:
        """The operator name to write, and whether its body was made from this match; offers the
        body to the model.
        """
        op, attributes = lowered.op, lowered.attributes
        model, rewriter = self.model, self.rewriter
        if op.startswith("ai.onnx.") or "::" not in op:
            return op, False
        present = [value is not None for value in inputs]
        named = op_with_body(
            op, types, attributes, model, rewriter.registry, rewriter.inferrer, present
        )
        came = op in model.original_ops or (op in model.functions and op not in model.new_functions)
        if named is not None or came:
            return named or op, False
        outputs = self._outputs_of(node, op)
        key = (op, region_key(self.region, self._old(), inputs, outputs, attributes))
        known, body = rewriter.bodies.get(key, ("", None))
        if body is None or model.function(known) is not body:
            known = add_function(
                op, function_of_region(self.region, self._old(), inputs, outputs, attributes), model
            )
            if key[1] is not None:
                rewriter.bodies[key] = (known, model.function(known))
        return known, True

    def _outputs_of(self, node: EsNode, op: str) -> list[Value]:
        """The replaced values by position of the outputs of ``node``, which alone stands for the
        whole match.
        """
        if len(self.replacement.reachable()) > 1:
            raise Refused(
                f"needs a function body: {op} has none, and the replacement is more than this node"
            )
        delivered = {
            _key(t): value
            for t, value in zip(self.replacement.outputs, self.region.outputs, strict=True)
        }
        outputs = [delivered.get(_key(tensor)) for tensor in node.outputs]
        found = [value for value in outputs if value is not None]
        if len(found) < len(outputs) or len(found) < len(self.region.outputs):
            raise Refused(
                f"needs a function body: {op} has none, and its outputs are not those of the match"
            )
        return found

    def _value(self, tensor: EsTensor) -> Value:
        """What a tensor of the replacement is in the model: an input, a constant, or what a new
        node makes.
        """
        found = self.values.get((tensor.producer, tensor.index))
        if found is None:
            producer = tensor.producer
            if isinstance(producer, EsInput):
                raise PassError(
                    f"{producer.origin}: the replacement uses input {producer.index}, "
                    "which is absent here"
                )
            if isinstance(producer, EsChoice):
                raise PatternError(f"{producer.origin}: Alternatives stand in patterns only")
            if not isinstance(producer, EsConst):
                raise PassError(
                    f"{producer.origin}: the replacement uses a tensor that it does not make"
                )
            found = self.values[_key(tensor)] = self._constant(producer.array)
        return found

    def _constant(self, array: np.ndarray[Any, Any]) -> Value:
        known = self.constants.get(id(array))
        if known is not None:
            return known
        if not self.graph.takes_constant(array.dtype):
            raise Refused(
                f"not applicable: a new constant of {array.dtype} needs IR version 4 or opset 9"
            )
        name = self.model.fresh_name(f"{self.rewriter.author.name}_Constant")
        made = self.constants[id(array)] = self.graph.add_initializer(array, name)
        return made

    def _value_type(self, value: Value) -> ValueType | None:
        if value in self.new_types:
            return self.new_types[value]
        return value.type

    def _type_of(self, tensor: EsTensor) -> ValueType | None:
        value = self.values.get(_key(tensor))
        if value is not None:
            return self._value_type(value)
        return array_type(tensor.producer.array) if isinstance(tensor.producer, EsConst) else None

    # -- delivering
    # -------------------------------------------------------------------------------------------------

    def _settle_outputs(self) -> None:
        """Compare the types of the replaced values with those of the new ones, and hand on the
        forwarded ones.
        """
        proof, built = None, None
        for tensor, value in zip(self.replacement.outputs, self.region.outputs, strict=True):
            new = self._value(tensor)
            old_type, new_type = value.type, self._value_type(new)
            if old_type != new_type or not is_whole(old_type):
                self.is_like_others = False
                if proof is None or built is None:
                    rewriter = self.rewriter
                    proof = TypeProof(
                        self.region.inputs,
                        self._old,
                        rewriter.inferrer,
                        shape_proven=rewriter.shape_proven,
                    )
                    built = list(map(NodeState.of, self.made))
                self.graph.set_type(value, proof.settle(value, old_type, new, new_type, built))
            if new is not value:
                self._forward(new, value)

    def _forward(self, source: Value, value: Value) -> None:
        """Make the readers of ``value`` read ``source``; a graph output keeps its name behind an
        ``Identity``.
        """
        self.rewriter.rewired = True
        if not value.is_graph_output:
            self._check_devices(value)
            for reader, slot in value.uses:
                if isinstance(reader, Node) and self.graph.level_of(reader) not in self.kept:
                    if reader.graph.find(source.name) is not source:
                        raise Refused(
                            f'nested: a body that reads "{value.name}" has a '
                            f'"{source.name}" of its own'
                        )
                    self.graph.set_input(reader, slot, source)
            return
        self._take_over(value)
        author = self.rewriter.author
        name = self.model.fresh_name(f"{author.name}_Identity")
        metadata = author.metadata(self.provenance)
        node = self.graph.add_node(
            "Identity", [source], [value], name=name, after=self.position, metadata=metadata
        )
        node.generation = self.generation
        self.made.append(node)

    def _check_devices(self, value: Value) -> None:
        """Refuse to take a tensor from nodes that have a sharding spec of it."""
        if self.model.has_device_configurations:
            nodes = [found for found in value.readers if isinstance(found, Node)]
            if value.producer in self.kept:
                nodes.append(value.producer)
            check_not_specified(value, [node for node in nodes if self._stays(node)])

    def _stays(self, node: Node) -> bool:
        return node in self.kept or not self.region.holds(node)

    def _drop_unread_constants(self) -> None:
        """Take back constants that stand for a tensor which nobody read."""
        for value in self.constants.values():
            if value.readers:
                continue
            self.is_like_others = False
            if value.producer is None:
                self.graph.remove_initializer(value)
            else:
                self.graph.remove_node(value.producer)

    # -- finishing
    # --------------------------------------------------------------------------------------------------

    def _nothing_changed(self) -> bool:
        """Whether the outputs are computed by the same nodes again, one for one."""
        old, new = self._old(), list(map(NodeState.of, self.made))
        if sorted(step.node.op for step in old) != sorted(step.node.op for step in new):
            return False
        comparison = Comparison(old, new)
        made = set(self.made)
        # what now stands for a replaced value: itself when a new node makes it
        return all(
            comparison.equal(value, value if value.producer in made else self._value(tensor))
            for value, tensor in zip(self.region.outputs, self.replacement.outputs, strict=True)
        ) and comparison.covers(old)


def _still_needed(region: Region) -> set[Node]:
    """The region's nodes that must stay: one of their tensors is read outside but replaced by
    nothing, or enters again.
    """
    kept: set[Node] = set()
    if region.closed and not _enters_again(region):
        return kept
    inside, graph = set(region.nodes), region.graph
    inputs, outputs = set(region.inputs), set(region.outputs)
    for node in reversed(region.nodes):
        for value in node.outputs:
            if value is None:
                continue
            replaced = value in outputs
            if not replaced and value in inputs:
                kept.add(node)
                continue
            for found in value.readers:
                # A body's reads are those of the node that holds it.
                reader = found if found in inside else graph.reading_node(found)
                if reader in kept or not (replaced or reader in inside):
                    kept.add(node)
                    break
    return kept


def _enters_again(region: Region) -> bool:
    """Whether a matched node makes an input of its own match; most inputs are made before the
    first of them.
    """
    first = region.nodes[0].order
    for value in region.inputs:
        if (
            value is not None
            and value.producer is not None
            and value.producer.order >= first
            and region.holds(value.producer)
        ):
            return True
    return False


_Key: TypeAlias = tuple[object, int]


def _key(tensor: EsTensor) -> _Key:
    """One key for all ``EsTensor`` objects of one output."""
    return tensor.producer, tensor.index
