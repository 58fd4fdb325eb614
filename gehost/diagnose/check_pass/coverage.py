"""Which forms of a pattern's operators were tried.

A form is an attribute, present or not, an optional input or output, or a version of the operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import onnx

from gehost.es import schemas
from gehost.ir.attributes import attribute_value
from gehost.ir.graph import op_name, split_op
from gehost.ir.schemas import schema_at
from gehost.ops import OpRegistry

_ONES = ("dilations", "strides")
_NEUTRAL = {**dict.fromkeys(_ONES, 1), "pads": 0, "output_padding": 0}
"""Lists that, if all their elements are this, are what an absent attribute means."""
_MEANINGLESS = {
    op: {"kernel_shape"} for op in ("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")
}
"""Attributes that can only repeat the shape of an input."""
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional


class Form(NamedTuple):
    """One form of an operator: ``("Conv", 11, "auto_pad", "VALID")``."""

    op: str
    since: int
    """The first opset of its version; 0 for an operator that ONNX lacks."""
    feature: str
    value: str


class Coverage:
    """The forms of operators in the models that a pass was tried on."""

    def __init__(self, registry: OpRegistry) -> None:
        self._registry = registry
        self.ops: set[str] = set()
        """Operators of the good instances."""
        self._forms: set[Form] = set()
        self._values: dict[tuple[str, str], set[str]] = {}
        """The values of each feature, over all versions of its operator."""
        self._decided: set[tuple[str, str]] = set()
        """Attributes and optional inputs that the pass was tried with where they matter."""
        self._refused: set[tuple[str, str]] = set()
        """Those with which only the type of its result refused the pass."""

    def add(self, model: onnx.ModelProto, *, instance: bool = False) -> None:
        """Record a model that the pass was tried on."""
        opsets = opsets_of(model)
        for node in model.graph.node:
            op = op_name(node.domain, node.op_type, node.overload)
            op = next(
                (entry.value for entry in node.metadata_props if entry.key == "gehost.op"), op
            )
            if instance:
                self.ops.add(op)
            if op in self.ops:
                for form in self._of(op, node, opsets):
                    self._forms.add(form)
                    self._values.setdefault((form.op, form.feature), set()).add(form.value)

    def decide(self, op: str, feature: str) -> None:
        """Record that the pass was tried where an attribute or optional input matters."""
        self._decided.add((op, feature))

    def refuse_by_types(self, op: str, feature: str) -> None:
        """Record that only the type of its result refused the pass."""
        self._refused.add((op, feature))

    def is_open(self, op: str, feature: str) -> bool:
        """Whether an attribute or optional input was not seen to matter so far."""
        return (op, feature) not in self._decided

    def news(self, form: Form, parts: Sequence[str] = ()) -> int:
        """Return how new a form is, 0 for one that is known.

        3 is a new feature, 2 a form of parts that the pass was not tried with where they matter, 1
        a new value or version.
        """
        values = self._values.get((form.op, form.feature), set())
        if form not in self._forms and len(values) < 2 and form.value not in values:
            return 3
        if any(self.is_open(form.op, part) for part in parts):
            return 2
        return int(form not in self._forms)

    def new_versions(self, ops: Iterable[str], opset: int) -> int:
        """Return how many operators have a version at an opset that was not tried."""
        tried = {(form.op, form.since) for form in self._forms}
        versions = ((op, version_of(op, opset)) for op in ops)
        return sum(version is not None and (op, version) not in tried for op, version in versions)

    def missing(self, least_opset: int, most_opset: int) -> list[str]:
        """Return the forms that were not tried, a text for each operator."""
        missing_: list[str] = []
        for op in sorted(self.ops):
            versions = {
                version_of(op, opset) for opset in range(max(least_opset, 7), most_opset + 1)
            } - {None}
            tried = {form.since for form in self._forms if form.op == op}
            gone = sorted(version for version in versions - tried if version)
            features = [
                text
                for name in sorted(self._features(op, versions | tried))
                if (text := self._open_text(op, name))
            ]
            if gone:
                features.append(f"opset {', '.join(map(str, gone))}")
            if features:
                missing_.append(f"{op} ({'; '.join(features)})")
        return missing_

    def _open_text(self, op: str, feature: str) -> str:
        """Return a text for a feature that was not varied, "" for one that was."""
        shown = len(self._values.get((op, feature), ())) > 1
        if self._registry.get(op) is not None or feature.startswith("output "):
            return "" if shown else feature
        if (op, feature) in self._decided:
            return ""
        if (op, feature) in self._refused:
            return f"{feature}, which only the types refuse"
        return f"{feature}, without effect" if shown else feature

    def _features(self, op: str, versions: set[int | None]) -> set[str]:
        definition = self._registry.get(op)
        if definition is not None:
            return set(definition.attributes)
        features: set[str] = set()
        for version in versions:
            schema = schema_at(*split_op(op), version) if version else None
            if schema is None:
                continue
            features.update(schema.attributes.keys() - _MEANINGLESS.get(op, set()))
            features.update(f"input {name}" for name in _optional(schema.inputs))
            features.update(f"output {name}" for name in _optional(schema.outputs))
        return features

    def _of(self, op: str, node: onnx.NodeProto, opsets: Mapping[str, int]) -> Iterator[Form]:
        """Yield the forms of a node."""
        attributes = {entry.name: attribute_value(entry) for entry in node.attribute}
        definition = self._registry.get(op)
        if definition is not None:
            for name, default in definition.attributes.items():
                yield Form(op, 0, name, value_text(name, attributes.get(name, default), default))
            return
        domain = split_op(op)[0]
        schema = schema_at(*split_op(op), opsets.get(domain, 1))
        if schema is None:
            return
        since = schema.since_version
        yield Form(op, since, "", "")
        signature = schemas.signature(*split_op(op), opsets.get(domain, 1))
        assert signature is not None
        for name, default in signature.attributes.items():
            yield Form(op, since, name, value_text(name, attributes.get(name, default), default))
        for role, names, parameters in (
            ("input", node.input, schema.inputs),
            ("output", node.output, schema.outputs),
        ):
            for slot, parameter in enumerate(parameters):
                if parameter.option == _OPTIONAL:
                    present = slot < len(names) and bool(names[slot])
                    yield Form(
                        op, since, f"{role} {parameter.name}", "present" if present else "absent"
                    )


def opsets_of(model: onnx.ModelProto) -> dict[str, int]:
    """Return the opset of each domain of a model."""
    return {
        "" if entry.domain == "ai.onnx" else entry.domain: entry.version
        for entry in model.opset_import
    }


def version_of(op: str, opset: int) -> int | None:
    """Return the first opset of the version of ONNX's operator, None if it has none."""
    domain, op_type = split_op(op)
    schema = schema_at(domain, op_type, opset) if domain == "" else None
    return None if schema is None else schema.since_version


def value_text(name: str, value: Any, default: Any) -> str:
    """Return a text for the value of an attribute: itself if it is a flag or text.

    Numbers and lists only count as the default's or another one.
    """
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    neutral = _NEUTRAL.get(name)
    if value is None or value == default:
        return "default"
    if neutral is not None and isinstance(value, list) and set(value) == {neutral}:  # pyright: ignore[reportUnknownArgumentType] - of numbers
        return "default"
    return "other"


def _optional(parameters: Any) -> Iterator[str]:
    return (entry.name for entry in parameters if entry.option == _OPTIONAL)
