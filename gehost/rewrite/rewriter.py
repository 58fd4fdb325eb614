"""The one transaction that changes a graph on behalf of a rule: build, infer, compare, commit, or leave all as it was."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from gehost.errors import PassError, PatternError
from gehost.es.graph import EsChoice, EsConst, EsGraph, EsInput, EsNode, EsTensor
from gehost.infer.contents import REFINED
from gehost.infer.local import InferenceFailed, Inferrer, array_type, deciding_array
from gehost.ir.attributes import encode_attribute
from gehost.ir.graph import Graph, Node, Value
from gehost.ir.model import Model
from gehost.ir.region import Region, SubgraphBoundary
from gehost.ir.types import ValueType
from gehost.ops import OpRegistry
from gehost.rewrite.bodies import add_function, function_of_region, op_with_body, region_key
from gehost.rewrite.comparison import Comparison
from gehost.rewrite.lower import LoweredNode, Refused, lower_node
from gehost.rewrite.prepare import TOO_MUCH, UNKNOWN, Key, Prepared, constant_key, key_of
from gehost.rewrite.proof import Step, TypeProof
from gehost.rewrite.provenance import Author, provenance

MAX_GENERATIONS = 100


class Rewriter:
    """Replaces parts of one model's graphs."""

    def __init__(self, model: Model, registry: OpRegistry, author: Author, inferrer: Inferrer | None = None) -> None:
        self.model = model
        self.registry = registry
        self.author = author
        self.shape_proven = False
        """The rule at hand vouches for output sizes that cannot be compared."""
        self.inferrer = inferrer or Inferrer(model, registry)
        self.replaced = 0
        self.rewired = False
        """Whether the last rewrite made old nodes read other old tensors than before."""
        self.prepared: dict[Key, Prepared] = {}
        self.bodies: dict[Hashable, tuple[str, onnx.FunctionProto | None]] = {}
        """Bodies that were made from matches, with the names under which they were offered."""

    def replace_boundary(
        self, boundary: SubgraphBoundary, replacement: EsGraph, replace: Callable[[Region, EsGraph], list[Node]] | None = None
    ) -> list[Node]:
        """Replace what lies inside ``boundary``; returns the new nodes.

        Args:
            boundary: what is to go.
            replacement: what is to come.
            replace: does it; ``replace`` of this rewriter unless given.

        Raises:
            PassError: the boundary is not closed, or the rewrite may not be done; the graph is as it was.
        """
        try:
            region = boundary.region()
            if region.closes_cycle():
                raise Refused("cycle: the replacement would make one")
            return (replace or self.replace)(region, replacement)
        except Refused as refusal:
            raise PassError(f"SubgraphRewriter.Replace: {refusal}") from refusal

    def replace(self, region: Region, replacement: EsGraph) -> list[Node]:
        """Replace a region that is closed and makes no cycle; returns the new nodes.

        Raises:
            Refused: types that disagree or cannot be proven, an operator that the opset lacks, …; nothing was changed.
            PassError: the replacement does not fit the region, or rewrites feed each other without end.
        """
        if len(replacement.outputs) != len(region.outputs):
            raise PassError(f"the replacement has {len(replacement.outputs)} outputs, the pattern {len(region.outputs)}")
        if len(replacement.inputs) > len(region.inputs):
            raise PassError(f"the replacement has {len(replacement.inputs)} inputs, the pattern {len(region.inputs)}")
        self.rewired = False
        mark = self.model.mark()
        try:
            made = _Transaction(self, region, replacement).run()
            self.replaced += 1
            return made
        except BaseException:
            self.model.undo(mark)
            raise


class _Transaction:
    def __init__(self, rewriter: Rewriter, region: Region, replacement: EsGraph) -> None:
        self.rewriter = rewriter
        self.model = rewriter.model
        self.region = region
        self.graph: Graph = region.graph
        self.replacement = replacement
        self.values: dict[_Key, Value] = {
            _key(tensor): value for tensor, value in zip(replacement.inputs, region.inputs, strict=False) if value is not None
        }
        self.taken: dict[_Key, Value] = {}
        """Which replaced value a new tensor becomes."""
        self.new_types: dict[Value, ValueType | None] = {}
        """Types of the new tensors that became replaced values, which keep their old type until it is settled."""
        self.kept = _still_needed(region)
        """Matched nodes that stay, because another output of theirs is read outside."""
        self.made: list[Node] = []
        self.constants: list[Value] = []
        self._steps: list[Step] | None = None
        self.position: Node | None = None
        self.metadata = provenance(rewriter.author, region.nodes)
        self.generation = max((node.generation for node in region.nodes), default=0) + 1

    def run(self) -> list[Node]:
        if self.generation > MAX_GENERATIONS:
            last = self.region.nodes[-1]
            depth = f"{last.label} ({last.op}) is {self.generation} generations deep"
            raise PassError(f"rewrites feed each other without end: {depth}")
        rewriter = self.rewriter
        if self.kept or any(not isinstance(tensor.producer, EsNode) for tensor in self.replacement.outputs):
            self._old()  # what follows edits matched nodes
        proof = TypeProof(self.region.inputs, self._old, rewriter.inferrer, shape_proven=rewriter.shape_proven)
        self._make_room()
        self._choose_outputs()
        for node in self.replacement.reachable():
            self._build(node)
        built = list(map(Step.of, self.made))
        for tensor, value in zip(self.replacement.outputs, self.region.outputs, strict=True):
            new = self._value(tensor)
            self.graph.set_type(value, proof.settle(value, value.type, new, self._value_type(new), built))
            if new is not value:
                self._forward(new, value)
        self._drop_unread_constants()
        if self._nothing_changed():
            raise Refused("no change: the replacement equals what it replaces")
        self.graph.remove_nodes([node for node in self.region.nodes if node not in self.kept])
        return self.made

    def _old(self) -> Sequence[Step]:
        """The matched nodes as they were; called before any of them is edited, or when none is."""
        if self._steps is None:
            self._steps = list(map(Step.of, self.region.nodes))
        return self._steps

    # -- where the new nodes go -------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Put the new nodes behind the last matched one, and behind them whatever reads an output but stands earlier."""
        last = behind = self.region.last
        self.position = last
        if all(value.producer is last for value in self.region.outputs):
            return  # whoever reads them stands behind it
        for reader in self.region.readers_before(last.order + 1):
            if reader in self.region.nodes:
                raise Refused("cycle: the replacement would make one")
            self.graph.move_after(reader, behind)
            behind = reader

    # -- building ---------------------------------------------------------------------------------------------------

    def _choose_outputs(self) -> None:
        """Decide which new tensors take over a replaced value, and take those from matched nodes that stay."""
        for tensor, value in zip(self.replacement.outputs, self.region.outputs, strict=True):
            if isinstance(tensor.producer, EsNode):
                self.taken.setdefault(_key(tensor), value)
        for value in self.taken.values():
            self._take_over(value)

    def _take_over(self, value: Value) -> None:
        """Free a replaced value for a new producer; matched nodes that stay go on reading what the old one makes."""
        if value.producer not in self.kept:
            return
        readers = [(reader, slot) for reader, slot in value.uses if self.graph.reading_node(reader) in self.kept]
        self.rewriter.rewired = True
        spare = self.graph.release(value)
        for reader, slot in readers:
            if not isinstance(reader, Node):
                raise Refused(f'nested: a body of a matched node that stays hands on "{value.name}"')
            self.graph.set_input(reader, slot, spare)

    def _build(self, node: EsNode) -> None:
        rewriter = self.rewriter
        given = [None if tensor is None else self.values.get((tensor.producer, tensor.index)) for tensor in node.inputs]
        key = key_of(node, [self._operand_key(node, slot, value) for slot, value in enumerate(given)])
        prepared = rewriter.prepared.get(key) if key is not None else None
        if prepared is None or (prepared.body is not None and self.model.function(prepared.op) is not prepared.body):
            self._build_anew(node, key)
            return
        inputs: list[Value | None] = []
        for slot, literal in enumerate(prepared.literals):
            if literal is not None:
                inputs.append(self._constant(literal))
                continue
            tensor, value = (node.inputs[slot], given[slot]) if slot < len(given) else (None, None)
            inputs.append(self._value(tensor) if value is None and tensor is not None else value)
        made = self._add(node, prepared.op, inputs, prepared.attributes, prepared.original)
        types = prepared.types
        if made.op in REFINED:
            types = rewriter.inferrer.refined(
                made, [None if value is None else self._value_type(value) for value in inputs], types
            )
        self._deliver(node, made, types)

    def _operand_key(self, node: EsNode, slot: int, value: Value | None) -> Hashable:
        """What lowering, a body and inference may look at of an operand."""
        if value is None:
            tensor = node.inputs[slot]
            if tensor is None:
                return None
            return constant_key(tensor.producer) if isinstance(tensor.producer, EsConst) else TOO_MUCH
        known = self._value_type(value) or UNKNOWN
        array = deciding_array(node.ops[0], value)
        return known if array is None else (known, array.dtype, array.shape, array.tobytes())

    def _build_anew(self, node: EsNode, key: Key | None) -> None:
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
        attributes = [encode_attribute(name, value) for name, value in lowered.attributes.items()]
        original = lowered.op if op != lowered.op else ""
        made = self._add(node, op, inputs, attributes, original)
        try:
            inferred = rewriter.inferrer.inferred(made, types)
        except InferenceFailed as error:
            raise Refused(f"types: {error}") from error
        if key is not None and not of_match:
            literals = [operand if isinstance(operand, np.ndarray) else None for operand in lowered.inputs]
            rewriter.prepared[key] = Prepared(op, literals, attributes, original, self.model.function(op), inferred)
        self._deliver(node, made, rewriter.inferrer.refined(made, types, inferred))

    def _add(
        self, node: EsNode, op: str, inputs: Sequence[Value | None], attributes: Sequence[onnx.AttributeProto], original: str
    ) -> Node:
        """Put a new node into the graph; it takes over the replaced values that it is to make."""
        model = self.model
        stem = f"{self.rewriter.author.name}_{(original or op).rpartition('::')[2]}"
        name = model.fresh_name(stem)
        outputs: list[Value | str | None] = []
        for position, tensor in enumerate(node.outputs):
            old = self.taken.get(_key(tensor))
            outputs.append(old if old is not None else name if position == 0 else model.fresh_name(stem))
        metadata = {**self.metadata, "gehost.op": original} if original else self.metadata
        made = self.graph.add_node(op, inputs, outputs, attributes, name=name, after=self.position, metadata=metadata)
        made.generation = self.generation
        self.position = made
        self.made.append(made)
        return made

    def _deliver(self, node: EsNode, made: Node, types: Sequence[ValueType | None]) -> None:
        """Note what the outputs of ``node`` are in the model."""
        for tensor, value, known in zip(node.outputs, made.outputs, types, strict=True):
            assert value is not None
            self.values[_key(tensor)] = value
            if _key(tensor) in self.taken:
                self.new_types[value] = known
            else:
                self.graph.set_type(value, known)

    def _with_body(
        self, node: EsNode, lowered: LoweredNode, inputs: Sequence[Value | None], types: Sequence[ValueType | None]
    ) -> tuple[str, bool]:
        """The operator name to write, and whether its body was made from this match; offers the body to the model."""
        op, attributes = lowered.op, lowered.attributes
        model, rewriter = self.model, self.rewriter
        if op.startswith("ai.onnx.") or "::" not in op:
            return op, False
        present = [value is not None for value in inputs]
        named = op_with_body(op, types, attributes, model, rewriter.registry, rewriter.inferrer, present)
        came = op in model.original_ops or (op in model.functions and op not in model.new_functions)
        if named is not None or came:
            return named or op, False
        outputs = self._outputs_of(node, op)
        key = (op, region_key(self.region, self._old(), inputs, outputs, attributes))
        known, body = rewriter.bodies.get(key, ("", None))
        if body is None or model.function(known) is not body:
            known = add_function(op, function_of_region(self.region, self._old(), inputs, outputs, attributes), model)
            if key[1] is not None:
                rewriter.bodies[key] = (known, model.function(known))
        return known, True

    def _outputs_of(self, node: EsNode, op: str) -> list[Value]:
        """The replaced values by position of the outputs of ``node``, which alone stands for the whole match."""
        if len(self.replacement.reachable()) > 1:
            raise Refused(f"needs a function body: {op} has none, and the replacement is more than this node")
        delivered = {_key(t): value for t, value in zip(self.replacement.outputs, self.region.outputs, strict=True)}
        outputs = [delivered.get(_key(tensor)) for tensor in node.outputs]
        found = [value for value in outputs if value is not None]
        if len(found) < len(outputs) or len(found) < len(self.region.outputs):
            raise Refused(f"needs a function body: {op} has none, and its outputs are not those of the match")
        return found

    def _value(self, tensor: EsTensor) -> Value:
        """What a tensor of the replacement is in the model: an input, a constant, or what a new node makes."""
        found = self.values.get(_key(tensor))
        if found is None:
            producer = tensor.producer
            if isinstance(producer, EsInput):
                raise PassError(f"{producer.origin}: the replacement uses input {producer.index}, which is absent here")
            if isinstance(producer, EsChoice):
                raise PatternError(f"{producer.origin}: Alternatives stand in patterns only")
            if not isinstance(producer, EsConst):
                raise PassError(f"{producer.origin}: the replacement uses a tensor that it does not make")
            found = self.values[_key(tensor)] = self._constant(producer.array)
        return found

    def _constant(self, array: np.ndarray[Any, Any]) -> Value:
        if not self.graph.takes_constant(array.dtype):
            raise Refused(f"not applicable: a new constant of {array.dtype} needs IR version 4 or opset 9")
        made = self.graph.add_initializer(array, self.model.fresh_name(f"{self.rewriter.author.name}_Constant"))
        self.constants.append(made)
        return made

    def _value_type(self, value: Value) -> ValueType | None:
        return self.new_types.get(value, value.type)

    def _type_of(self, tensor: EsTensor) -> ValueType | None:
        value = self.values.get(_key(tensor))
        if value is not None:
            return self._value_type(value)
        return array_type(tensor.producer.array) if isinstance(tensor.producer, EsConst) else None

    # -- delivering -------------------------------------------------------------------------------------------------

    def _forward(self, source: Value, value: Value) -> None:
        """Make the readers of ``value`` read ``source``; a graph output keeps its name behind an ``Identity``."""
        self.rewriter.rewired = True
        if not value.is_graph_output:
            for reader, slot in list(value.uses):
                if isinstance(reader, Node) and self.graph.level_of(reader) not in self.kept:
                    if reader.graph.find(source.name) is not source:
                        raise Refused(f'nested: a body that reads "{value.name}" has a "{source.name}" of its own')
                    self.graph.set_input(reader, slot, source)
            return
        self._take_over(value)
        name = self.model.fresh_name(f"{self.rewriter.author.name}_Identity")
        node = self.graph.add_node("Identity", [source], [value], name=name, after=self.position, metadata=self.metadata)
        node.generation = self.generation
        self.made.append(node)

    def _drop_unread_constants(self) -> None:
        """Take back constants that stand for a tensor which nobody read."""
        for value in self.constants:
            if value.uses:
                continue
            if value.producer is None:
                self.graph.remove_initializer(value)
            else:
                self.graph.remove_node(value.producer)

    # -- finishing --------------------------------------------------------------------------------------------------

    def _nothing_changed(self) -> bool:
        """Whether the outputs are computed by the same nodes again, one for one."""
        if len(self.made) != len(self.region.nodes):
            return False
        old, new = self._old(), list(map(Step.of, self.made))
        if sorted(step.node.op for step in old) != sorted(step.node.op for step in new):
            return False
        comparison = Comparison(old, new)
        pairs = zip(self.region.outputs, self.replacement.outputs, strict=True)
        return all(comparison.equal(value, self._delivered(value, tensor)) for value, tensor in pairs) and comparison.covers(old)

    def _delivered(self, value: Value, tensor: EsTensor) -> Value:
        """What now stands for a replaced value: itself when a new node makes it, else what was forwarded."""
        return value if value.producer in self.made else self._value(tensor)


def _still_needed(region: Region) -> set[Node]:
    """The region's nodes that must stay: one of their tensors is read outside but replaced by nothing, or enters again."""
    kept: set[Node] = set()
    inside, graph = set(region.nodes), region.graph
    if region.closed and not any(value is not None and value.producer in inside for value in region.inputs):
        return kept
    for node in reversed(region.nodes):
        for value in node.outputs:
            if value is None:
                continue
            replaced = value in region.outputs
            if not replaced and value in region.inputs:
                kept.add(node)
                continue
            for reader, _ in value.uses:
                if reader not in inside:
                    reader = graph.reading_node(reader)  # a body's reads are those of the node that holds it
                if reader in kept or not (replaced or reader in inside):
                    kept.add(node)
                    break
    return kept


_Key: TypeAlias = tuple[object, int]


def _key(tensor: EsTensor) -> _Key:
    """One key for all ``EsTensor`` objects of one output."""
    return tensor.producer, tensor.index
