"""Find unseeded random operators: any rewrite may change the values they draw.

ONNX Runtime seeds them by the node's position among all nodes, and ``Dropout`` with a new seed in
each session. A ``seed`` attribute overrides both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx.numpy_helper

from gehost.ir.schemas import RANDOM

_TRAINING_MODE = 2
"""The index of the input of ``Dropout`` that turns dropping on."""


def unseeded(model: onnx.ModelProto) -> str | None:
    """Return the first operator that draws without a seed, or None.

    Searches the graph, its bodies and the functions called.
    """
    return next(_Finder(model).found(model.graph.node, _false_tensors(model.graph)), None)


class _Finder:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}

    def found(self, nodes: Iterable[onnx.NodeProto], off: frozenset[str]) -> Iterator[str]:
        """Describe those among ``nodes``.

        ``off`` are the tensors that are known to be false.
        """
        for node in nodes:
            # pop: each function is searched once
            function = self._functions.pop((node.domain, node.op_type, node.overload), None)
            if function is not None:
                yield from self.found(function.node, _false_tensors(function))
            if node.domain in ("", "ai.onnx") and all(
                attribute.name != "seed" for attribute in node.attribute
            ):
                who = (
                    f'{node.op_type} "{node.name}"'
                    if node.name
                    else f'{node.op_type} that gives "{next(iter(node.output), "")}"'
                )
                if node.op_type in RANDOM:
                    yield f"{who} draws random numbers without a seed"
                elif (
                    node.op_type == "Dropout"
                    and len(node.input) > _TRAINING_MODE
                    and node.input[_TRAINING_MODE] not in off
                ):
                    yield f"{who} drops at random without a seed, where its training_mode is true"
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    yield from self.found(body.node, off | _false_tensors(body))


def _false_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> frozenset[str]:
    """Return the tensors that are constant and false, and "" (absent inputs)."""
    tensors = (
        []
        if isinstance(graph, onnx.FunctionProto)
        else [(tensor.name, tensor) for tensor in graph.initializer]
    )
    constants = (node for node in graph.node if node.op_type == "Constant")
    tensors += [
        (node.output[0], attribute.t)
        for node in constants
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    false = (
        name
        for name, tensor in tensors
        if tensor.data_type == onnx.TensorProto.BOOL
        and tensor.data_location != onnx.TensorProto.EXTERNAL
        and not onnx.numpy_helper.to_array(tensor).any()
    )
    return frozenset(["", *false])
