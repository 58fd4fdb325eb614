"""Where the reference evaluator is known to compute other numbers than ONNX Runtime.

``make reference`` compared the two for every operator and version, and wrote the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version

import onnx

from gehost.ir.attributes import attribute_value
from gehost.ir.schemas import schema_at
from gehost.verify.reference_table import TABLE


@cache
def engine_version(engine: str) -> str:
    """Return the version of an engine: ``onnxruntime``, or ``reference``."""
    return version("onnx" if engine == "reference" else engine)


def reference_faults(model: onnx.ModelProto) -> list[str]:
    """Return the operators of a model that ``onnx.reference`` is known to compute wrongly.

    Each with its version: ``BatchNormalization of opset 9``. Without one its numbers can be trusted
    as far as they were compared; where it fails it says so itself.
    """
    results: dict[str, None] = {}
    graphs = [(model.opset_import, model.graph.node)]
    graphs += [(function.opset_import, function.node) for function in model.functions]
    for imports, nodes in graphs:
        opset = {entry.domain: entry.version for entry in imports}
        own = opset.get("", opset.get("ai.onnx", 1))
        for node in _all(nodes):
            fault = _fault(node, own)
            if fault:
                results[fault] = None
    return list(results)


ENOUGH = 20
"""Equal cases of an operator's version from which on its numbers count as equal."""


def equals_runtime(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ``onnx.reference`` computed the operator as ONNX Runtime did, in enough cases."""
    versions, schema = TABLE.get(node.op_type), schema_at("", node.op_type, opset)
    if versions is None or schema is None:
        return False
    compared = versions.get(schema.since_version)
    return compared is not None and compared.equal >= ENOUGH and not _fault(node, opset)


def _fault(node: onnx.NodeProto, opset: int) -> str:
    """Return the operator that is computed wrongly; "" if nothing is known against it."""
    versions = TABLE.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    schema = schema_at("", node.op_type, opset) if versions else None
    if versions is None or schema is None:
        return ""
    compared = versions.get(schema.since_version)
    if compared is None or not compared.wrong or not _holds(compared.when, node, schema):
        return ""
    when = f" with {compared.when}" if compared.when else ""
    return f"{node.op_type} of opset {schema.since_version}{when}"


def _holds(when: str, node: onnx.NodeProto, schema: onnx.defs.OpSchema) -> bool:
    """Whether a node has the attribute of a condition, given or by default."""
    name, _, value = when.partition("=")
    entry = next((entry for entry in node.attribute if entry.name == name), None)
    if not when or (entry is not None and entry.ref_attr_name):
        return True
    if entry is None and name in schema.attributes:
        entry = schema.attributes[name].default_value
    return entry is not None and bool(entry.type) and str(attribute_value(entry)) == value


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes and those of their bodies."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _all(body.node)
