"""Whether a part of a node, an attribute or an optional input, matters in a model.

A pass that forgets a part shows nothing where the results are the same without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import onnx

from gehost.diagnose.check_pass.coverage import opsets_of, value_text
from gehost.diagnose.check_pass.mutations import Mutation, typed
from gehost.diagnose.check_pass.trial import Outcome, Reference, Trial
from gehost.errors import GehostError, ModelError
from gehost.es import schemas
from gehost.ir.attributes import attribute_value

_BY_TYPES = re.compile(r"types: |(dtype|rank|shape|type|unproven): .*\bwould\b")
"""The host's refusals of a result of another type, or that no operator accepts."""


def refused_by_types(outcome: Outcome) -> bool:
    """Whether a pass was refused only since its result has another type than the original."""
    refusals = outcome.refusals
    return not outcome.replaced and bool(refusals) and all(map(_BY_TYPES.match, refusals))


def decides(
    trial: Trial,
    seed: int,
    changed: onnx.ModelProto,
    outcome: Outcome,
    mutation: Mutation,
    original: onnx.NodeProto,
) -> bool:
    """Whether a pass rewrote or refused a model in which parts of a node matter for what they are.

    Args:
        trial: the pass.
        seed: of the inputs.
        changed: the model, with the mutation.
        outcome: of the pass on it.
        mutation: names the node and its parts.
        original: the node without the mutation.
    """
    for other in _others(changed, outcome, mutation, original):
        inferred = typed(other)
        if not _differ(changed, inferred, seed, trial):
            continue
        if outcome.replaced or inferred is None:
            return True
        try:
            if trial.run(inferred).replaced:
                return True
        except GehostError:
            continue
    return False


def _others(
    changed: onnx.ModelProto, outcome: Outcome, mutation: Mutation, original: onnx.NodeProto
) -> Iterator[onnx.ModelProto]:
    """Yield the model without the parts, or else with those of the original."""
    node, parts = changed.graph.node[mutation.node], mutation.parts
    bare = _with_parts(changed, mutation.node, parts, None)
    needed = _needed(changed, node)
    removable = bare.graph.node[mutation.node] != node and not needed.intersection(parts)
    if removable:
        yield bare
    if not (removable and outcome.replaced):
        restored = _with_parts(changed, mutation.node, parts, original)
        if restored.graph.node[mutation.node] != node:
            yield restored


def _needed(model: onnx.ModelProto, node: onnx.NodeProto) -> frozenset[str]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    signature = schemas.signature(domain, node.op_type, opsets_of(model).get(domain, 1))
    return frozenset() if signature is None else signature.needed


def _with_parts(
    model: onnx.ModelProto, number: int, parts: Sequence[str], source: onnx.NodeProto | None
) -> onnx.ModelProto:
    """Return a copy of a model in which a node has another's parts, or lacks them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    node = copy.graph.node[number]
    entries = [entry for entry in node.attribute if entry.name not in parts]
    if source is not None:
        entries += [entry for entry in source.attribute if entry.name in parts]
    kept = [onnx.AttributeProto.FromString(entry.SerializeToString()) for entry in entries]
    del node.attribute[:]
    node.attribute.extend(kept)
    for slot in _slots(model, node, parts):
        name = source.input[slot] if source is not None and slot < len(source.input) else ""
        node.input.extend("" for _ in range(slot + 1 - len(node.input)))
        node.input[slot] = name
    while node.input and not node.input[-1]:
        del node.input[-1]
    return copy


def _slots(model: onnx.ModelProto, node: onnx.NodeProto, parts: Sequence[str]) -> list[int]:
    """Return the slots of the inputs among parts."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    signature = schemas.signature(domain, node.op_type, opsets_of(model).get(domain, 1))
    inputs = () if signature is None else signature.inputs
    return [slot for slot, name in enumerate(inputs) if f"input {name}" in parts]


def _differ(model: onnx.ModelProto, other: onnx.ModelProto | None, seed: int, trial: Trial) -> bool:
    """Whether two models have results of other types or numbers; None is no valid model."""
    if other is None or _output_types(model) != _output_types(other):
        return True
    try:
        return bool(Reference(model, seed, trial.comparing).compare(other).difference)
    except ModelError:
        return False


def _output_types(model: onnx.ModelProto) -> list[tuple[object, ...]]:
    """Return the element type and sizes of each output, None for an unknown size."""
    types: list[tuple[object, ...]] = []
    for value in model.graph.output:
        tensor = value.type.tensor_type
        sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
        types.append((tensor.elem_type, *sizes))
    return types


def parts_of(model: onnx.ModelProto) -> Iterator[tuple[int, str]]:
    """Yield the nodes with an attribute that is not its default, or an optional input."""
    for number, node in enumerate(model.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        signature = schemas.signature(domain, node.op_type, opsets_of(model).get(domain, 1))
        if signature is None:
            continue
        for entry in node.attribute:
            default = signature.attributes.get(entry.name)
            value = attribute_value(entry)
            if entry.name not in signature.needed and (
                value_text(entry.name, value, default) != value_text(entry.name, default, default)
            ):
                yield number, entry.name
        for slot, name in enumerate(signature.inputs):
            if signature.required <= slot < len(node.input) and node.input[slot]:
                yield number, f"input {name}"
