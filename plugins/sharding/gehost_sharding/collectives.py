"""Collectives as ONNX nodes, in three dialects, written and read.

``gehost``: domain ``gehost.collective``; AllReduce(reduction), AllGather(axis),
ReduceScatter(axis, reduction), AllToAll(split_axis, concat_axis), each with ``groups`` (all ranks,
group by group) and ``group_size``.
``tensorrt``: TensorRT's DistCollective in ONNX's own domain; works on axis 0 only, so that
Transposes surround it.
``onnxruntime``: com.microsoft AllReduce, AllGather and AllToAll; the whole world is the one group.
There is no ReduceScatter: AllToAll and a ReduceSum do the same with the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from gehost import UsageError
from gehost_sharding.redistribution import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLLECTIVES,
    REDUCE_SCATTER,
)
from gehost_sharding.sharding import Shape

DIALECTS = ("gehost", "tensorrt", "onnxruntime")
GEHOST_DOMAIN = "gehost.collective"
ORT_DOMAIN = "com.microsoft"

_GEHOST_OPS = {
    ALL_REDUCE: "AllReduce",
    ALL_GATHER: "AllGather",
    REDUCE_SCATTER: "ReduceScatter",
    ALL_TO_ALL: "AllToAll",
}

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Collective:
    """One collective of one rank."""

    kind: str
    groups: Groups
    reduction: str = "sum"
    """sum, max, min or prod; for all_reduce and reduce_scatter."""
    split_axis: int = 0
    """Axis that is cut: reduce_scatter, all_to_all."""
    concat_axis: int = 0
    """Axis along which pieces are joined: all_gather, all_to_all."""

    @property
    def group_size(self) -> int:
        return len(self.groups[0])


@dataclass
class Writer:
    """Writes the collectives of one rank's graph."""

    dialect: str
    rank: int
    opset: int
    fresh: Callable[[str], str]
    """A tensor name like the given one that is not in use."""
    add_constant: Callable[[NDArray[Any], str], str]

    def write(
        self, collective: Collective, operand: str, result: str, shape: Shape
    ) -> list[onnx.NodeProto]:
        """Nodes that compute ``result`` from ``operand``, a local tensor of ``shape``.

        Raises:
            UsageError: the dialect cannot express the collective.
        """
        if self.dialect == "gehost":
            return [self._gehost(collective, operand, result)]
        if self.dialect == "tensorrt":
            return self._tensorrt(collective, operand, result, shape)
        return self._onnxruntime(collective, operand, result, shape)

    def _gehost(self, collective: Collective, operand: str, result: str) -> onnx.NodeProto:
        attributes: dict[str, Any] = {
            "groups": [rank for group in collective.groups for rank in group],
            "group_size": collective.group_size,
        }
        if collective.kind in {ALL_REDUCE, REDUCE_SCATTER}:
            attributes["reduction"] = collective.reduction
        if collective.kind == ALL_GATHER:
            attributes["axis"] = collective.concat_axis
        if collective.kind == REDUCE_SCATTER:
            attributes["axis"] = collective.split_axis
        if collective.kind == ALL_TO_ALL:
            attributes["split_axis"] = collective.split_axis
            attributes["concat_axis"] = collective.concat_axis
        op = _GEHOST_OPS[collective.kind]
        return helper.make_node(
            op, [operand], [result], name=result, domain=GEHOST_DOMAIN, **attributes
        )

    def _tensorrt(
        self, collective: Collective, operand: str, result: str, shape: Shape
    ) -> list[onnx.NodeProto]:
        own = next(group for group in collective.groups if self.rank in group)

        def node(source: str, target: str) -> onnx.NodeProto:
            reduces = collective.kind in {ALL_REDUCE, REDUCE_SCATTER}
            return helper.make_node(
                "DistCollective",
                [source],
                [target],
                name=result,
                collective_operation=collective.kind,
                reduce_op=collective.reduction if reduces else "none",
                nb_rank=collective.group_size,
                group_size=collective.group_size,
                groups=list(own),
                root=-1,
            )

        return self._on_axis_0(collective, operand, result, shape, node)

    def _onnxruntime(
        self, collective: Collective, operand: str, result: str, shape: Shape
    ) -> list[onnx.NodeProto]:
        if len(collective.groups) > 1:
            raise UsageError(
                f"{collective.kind} of {result} runs in {len(collective.groups)} groups; "
                "com.microsoft has the whole world as the one group: plan for a mesh with "
                "one axis, or use --collectives gehost",
                subject="collectives onnxruntime",
            )
        reduces = collective.kind in {ALL_REDUCE, REDUCE_SCATTER}
        if reduces and collective.reduction != "sum":
            raise UsageError(
                f"{result} reduces by {collective.reduction}; com.microsoft::AllReduce sums "
                "only: use --collectives gehost",
                subject="collectives onnxruntime",
            )
        size = collective.group_size
        if collective.kind == ALL_REDUCE:
            return [
                helper.make_node("AllReduce", [operand], [result], name=result, domain=ORT_DOMAIN)
            ]
        if collective.kind == ALL_GATHER:
            return [
                helper.make_node(
                    "AllGather",
                    [operand],
                    [result],
                    name=result,
                    domain=ORT_DOMAIN,
                    axis=collective.concat_axis,
                    group_size=size,
                )
            ]

        def node(source: str, target: str) -> onnx.NodeProto:
            return helper.make_node(
                "AllToAll", [source], [target], name=result, domain=ORT_DOMAIN, group_size=size
            )

        return self._on_axis_0(collective, operand, result, shape, node)

    def _on_axis_0(
        self,
        collective: Collective,
        operand: str,
        result: str,
        shape: Shape,
        node: Callable[[str, str], onnx.NodeProto],
    ) -> list[onnx.NodeProto]:
        """Surround a collective that works on axis 0 with Transposes and Reshapes."""
        size, kind = collective.group_size, collective.kind
        if kind == ALL_REDUCE:
            return [node(operand, result)]
        nodes: list[onnx.NodeProto] = []
        if kind == ALL_GATHER or (kind == REDUCE_SCATTER and self.dialect == "tensorrt"):
            axis = collective.concat_axis if kind == ALL_GATHER else collective.split_axis
            order = [axis, *(dim for dim in range(len(shape)) if dim != axis)]
            before = self._transposed(operand, order, nodes)
            if axis == 0:
                return [node(operand, result)]
            after = self.fresh(f"{result}/moved")
            nodes.append(node(before, after))
            back = [order.index(dim) for dim in range(len(shape))]
            nodes.append(helper.make_node("Transpose", [after], [result], perm=back))
            return nodes
        # all_to_all: n pieces of the split axis first, exchanged, then joined
        split = collective.split_axis
        cut = (*shape[:split], size, shape[split] // size, *shape[split + 1 :])
        pieces = self._reshaped(operand, cut, nodes)
        rest = [dim for dim in range(len(cut)) if dim != split]
        sent = self._transposed(pieces, [split, *rest], nodes)
        received = self.fresh(f"{result}/received")
        nodes.append(node(sent, received))
        if kind == REDUCE_SCATTER:
            nodes.append(self._sum_first(received, result))
            return nodes
        # (n, local shape) -> n in front of the concat axis -> joined with it
        concat = collective.concat_axis
        order = [*range(1, concat + 1), 0, *range(concat + 1, len(cut))]
        placed = self._transposed(received, order, nodes)
        local = list(shape)
        local[split] //= size
        local[concat] *= size
        target = self.add_constant(np.array(local, np.int64), f"{result}/shape")
        nodes.append(helper.make_node("Reshape", [placed, target], [result]))
        return nodes

    def _transposed(self, source: str, order: Sequence[int], nodes: list[onnx.NodeProto]) -> str:
        if list(order) == sorted(order):
            return source
        name = self.fresh(f"{source}/moved")
        nodes.append(helper.make_node("Transpose", [source], [name], perm=list(order)))
        return name

    def _reshaped(self, source: str, shape: Shape, nodes: list[onnx.NodeProto]) -> str:
        name = self.fresh(f"{source}/pieces")
        target = self.add_constant(np.array(shape, np.int64), f"{name}/shape")
        nodes.append(helper.make_node("Reshape", [source, target], [name]))
        return name

    def _sum_first(self, source: str, result: str) -> onnx.NodeProto:
        if self.opset >= 13:
            axes = self.add_constant(np.array([0], np.int64), f"{result}/axes")
            return helper.make_node("ReduceSum", [source, axes], [result], keepdims=0)
        return helper.make_node("ReduceSum", [source], [result], axes=[0], keepdims=0)


def read_collective(node: onnx.NodeProto, world: int) -> Collective | None:
    """Read a node in any dialect; None if it is no collective.

    Raises:
        UsageError: a collective that ``run`` does not know.
    """
    attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
    if node.domain == GEHOST_DOMAIN:
        kind = next((kind for kind, op in _GEHOST_OPS.items() if op == node.op_type), None)
        if kind is None:
            raise UsageError(f'{node.op_type} "{node.name}": no collective of {GEHOST_DOMAIN}')
        size, flat = attributes["group_size"], attributes["groups"]
        groups = tuple(tuple(flat[start : start + size]) for start in range(0, len(flat), size))
        axis = attributes.get("axis", 0)
        return Collective(
            kind,
            groups,
            _text(attributes.get("reduction", b"sum")),
            attributes.get("split_axis", axis),
            attributes.get("concat_axis", axis),
        )
    if not node.domain and node.op_type == "DistCollective":
        kind = _text(attributes["collective_operation"]).lower()
        if kind not in COLLECTIVES:
            raise UsageError(f"{kind} is not run here", subject=f'DistCollective "{node.name}"')
        own = tuple(attributes.get("groups") or range(world))
        return Collective(kind, (own,), _text(attributes.get("reduce_op", b"sum")).lower())
    if node.domain == ORT_DOMAIN and node.op_type in {"AllReduce", "AllGather", "AllToAll"}:
        kind = next(kind for kind, op in _GEHOST_OPS.items() if op == node.op_type)
        axis = attributes.get("axis", 0)
        return Collective(kind, (tuple(range(world)),), "sum", 0, axis)
    return None


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
