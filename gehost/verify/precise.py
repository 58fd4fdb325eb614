"""The precise form of a model: float64, with casts around operators without such a kernel.

ONNX Runtime names, when it loads a model, the first operator that has no kernel of float64; that
operator computes in float32, and the model is loaded again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import onnx
import onnx.defs
import onnx.helper

from gehost.errors import ModelError
from gehost.ir.bodies import graphs_of, unique_names
from gehost.ir.inline import inline_functions
from gehost.verify.double_conv import decompose_convolutions
from gehost.verify.retype import TO_DOUBLE, element_types, replace_noop_casts, retyped

_SINGLE = frozenset(
    (
        *("AveragePool", "Conv", "ConvTranspose", "Erf", "GRU", "Gelu", "GlobalAveragePool"),
        *("LSTM", "Resize"),
    )
)
"""Operators of ONNX for which the first try casts; GRU and LSTM load in float64 and do not run."""
_NAMED = (
    re.compile(r"find an implementation for (?:[\w.]+:)?(\w+)\("),
    re.compile(r"parameter \([^)]*\) of operator \((?:[\w.]+:)?(\w+)\) in node"),
    re.compile(r"has no kernel of (?:[\w.]+::)?(\w+) on a CPU"),
    re.compile(r"of Optype \((\w+)\) bound to different types"),
)
_MOST_TRIES = 60

_Loaded = TypeVar("_Loaded")


def load_precise(
    wide: onnx.ModelProto,
    load: Callable[[onnx.ModelProto], _Loaded],
    base_dir: str | None = None,
    folder: Path | None = None,
) -> _Loaded:
    """Load the precise form of a widened model.

    Args:
        wide: the widened model, or a model of float32.
        load: creates a session; raises ``ModelError``.
        base_dir: of the model's external data.
        folder: where initializers go instead of memory.

    Raises:
        ModelError: it does not load for another reason than a kernel of float64.
    """
    model = unique_names(inline_functions(wide) if wide.functions else wide)
    types = element_types(model)
    doubles = {name for name, kind in types.items() if kind in TO_DOUBLE}
    exact = replace_noop_casts(retyped(model, TO_DOUBLE, base_dir, folder))
    decompose_convolutions(exact, str(folder) if folder is not None else base_dir)
    _compute_in_single(exact, _SINGLE, doubles)
    for _ in range(_MOST_TRIES):
        try:
            return load(exact)
        except ModelError as error:
            op = next((match[1] for item in _NAMED if (match := item.search(str(error)))), "")
            # where no node of the model has that operator, it is in the body of another operator
            if not (
                _compute_in_single(exact, frozenset((op,)), doubles)
                or _compute_in_single(exact, _with_bodies(exact), doubles)
            ):
                raise
    raise ModelError("no float64 form of the model loads")


def _with_bodies(model: onnx.ModelProto) -> frozenset[str]:
    """Return the operators of the model that ONNX defines by others."""
    ops = {node.op_type for graph in graphs_of(model) for node in graph.node}
    schemas: dict[str, Any] = {op: onnx.defs.get_schema(op) for op in ops if onnx.defs.has(op)}
    return frozenset(
        op
        for op, schema in schemas.items()
        if schema.has_function or schema.has_context_dependent_function
    )


def _compute_in_single(model: onnx.ModelProto, ops: frozenset[str], doubles: set[str]) -> bool:
    """Put casts around the nodes of ``ops``, as far as they compute in float64; whether any did."""
    changed = False
    for graph in graphs_of(model):
        if not any(node.op_type in ops for node in graph.node):
            continue
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            around = [node]
            if node.op_type in ops:
                around = _with_casts(node, doubles)
                changed |= len(around) > 1
            for item in around:
                copy = onnx.NodeProto()
                copy.CopyFrom(item)
                nodes.append(copy)
        del graph.node[:]
        graph.node.extend(nodes)
    return changed


def _with_casts(node: onnx.NodeProto, doubles: set[str]) -> list[onnx.NodeProto]:
    before: list[onnx.NodeProto] = []
    after: list[onnx.NodeProto] = []
    label = node.output[0] or node.name
    for slot, name in enumerate(node.input):
        if name in doubles:
            node.input[slot] = f"{name} (single, for {label}, {slot})"
            before.append(_cast(name, node.input[slot], onnx.TensorProto.FLOAT))
    for slot, name in enumerate(node.output):
        if name in doubles:
            node.output[slot] = f"{name} (single)"
            after.append(_cast(node.output[slot], name, onnx.TensorProto.DOUBLE))
    return [*before, node, *after]


def _cast(name: str, target: str, kind: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [name], [target], to=kind)
