"""The patterns of a pass at one opset.

A decompose pass gets a pattern for each form of its operators that ONNX allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import onnx

from gehost.diagnose.check_pass.instances import empty_model
from gehost.errors import PassError, described
from gehost.es import schemas
from gehost.es.graph import EsGraphBuilder
from gehost.es.opset import resolve_op
from gehost.host.host import Host
from gehost.host.registry import PassSpec
from gehost.ir.graph import split_op
from gehost.ops import OpRegistry
from gehost.passes.base import DecomposePass, PatternFusionPass
from gehost.passes.driver import listed_patterns
from gehost.pattern.lower import LoweredPattern
from gehost.pattern.pattern import Pattern, PatternMatcherConfig, VariadicPattern
from gehost.pattern.source import SourcePattern
from gehost.refusal import Refused

_MOST_VARIANTS = 64
"""Largest number of variants of a pattern from which instances are drawn."""
_MOST_OPERANDS = 3
"""Largest number of inputs of a variadic operator."""


def has_sources(spec: PassSpec, host: Host) -> bool:
    """Whether a pass has patterns.

    One that walks the graph itself has none.
    """
    with host.vendor_code():
        return isinstance(spec.factory(), PatternFusionPass | DecomposePass)


def instances_of(spec: PassSpec, host: Host) -> list[onnx.ModelProto]:
    """Return the models that a pass or rule offers, or none.

    Its method ``Instances`` offers them.

    Raises:
        PassError: they are not models.
    """
    with host.vendor_code():
        offer: Any = getattr(spec.factory(), "Instances", None)
        try:
            offered: list[Any] = [] if offer is None else list(offer())
        except Exception as error:  # an author's code may raise anything
            raise PassError(
                f"{spec.name} ({spec.origin}): Instances: {described(error)}"
            ) from error
    wrong = next((model for model in offered if not isinstance(model, onnx.ModelProto)), None)
    if wrong is not None:
        raise PassError(
            f"{spec.name} ({spec.origin}): Instances must give models (onnx.ModelProto), "
            f"got {type(wrong).__name__}"
        )
    return offered


_NUMBERS = (1, 2, 3, 5)
"""For which a variadic pattern is checked."""


def sources_at(spec: PassSpec, host: Host, opset: int) -> list[list[SourcePattern]]:
    """Return the variants of each pattern at an opset.

    There are none if the opset cannot express the pattern.

    The host has already run the pass at this opset, so errors of its author are known.
    """
    with host.vendor_code():
        owner: Any = spec.factory()
        patterns: Sequence[Pattern | VariadicPattern]
        if isinstance(owner, DecomposePass):
            patterns = list(_single_operators(owner.replaced_ops, host.ops))
            config = PatternMatcherConfig()
        else:
            assert isinstance(owner, PatternFusionPass)
            patterns, config = listed_patterns(owner.Patterns()), owner.matcher_config
        groups: list[list[SourcePattern]] = []
        for pattern in patterns:
            variants: list[SourcePattern] = []
            for variant in _expanded(pattern):
                try:
                    source = LoweredPattern(variant, config, empty_model(opset), host.ops).source
                except Refused:
                    continue
                several = source.variants() if source.has_choices else (source,)
                variants.extend(islice(several, _MOST_VARIANTS))
            groups.append(variants)
        return groups


def _expanded(pattern: Pattern | VariadicPattern) -> list[Pattern]:
    """Return the pattern, or a variadic one for some numbers."""
    if isinstance(pattern, Pattern):
        return [pattern]
    return [pattern.of(number) for number in _NUMBERS if number >= pattern.least]


def _single_operators(ops: Sequence[str], registry: OpRegistry) -> Iterator[Pattern]:
    """Yield each operator with each possible number of inputs.

    Inputs that are attributes in some opset are left out.
    """
    for name in ops:
        op = resolve_op(name, registry, "")
        signature = schemas.operator(*split_op(op))
        if signature is not None:
            # inputs that were attributes once, and those after them, are drawn as parameters
            names = [
                *signature.inputs,
                *signature.inputs[-1:]
                * (_MOST_OPERANDS if signature.max_inputs > len(signature.inputs) else 0),
            ]
            movable = [slot for slot, name in enumerate(names) if name in signature.migrating]
            most = min(movable, default=len(names))
            counts = range(min(signature.min_inputs, most), most + 1)
            outputs = signature.default_outputs if op != "Split" else 2
        else:
            definition = registry.get(op)
            counts = (
                range(definition.required, len(definition.inputs) + 1)
                if definition is not None
                else range(1, 3)
            )
            outputs = len(definition.outputs) if definition is not None else 1
        for count in counts:
            if count:
                builder = EsGraphBuilder(op)
                operands = builder.CreateInputs(count)
                results = operands[0].graph.add_node((op,), operands, {}, outputs)
                yield Pattern(builder.BuildAndReset(results))
