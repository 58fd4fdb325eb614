"""Function bodies: the nodes of a group without names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import onnx

from gehost import DataType, Node, TensorType
from gehost import Value as Tensor

DOMAIN = "gehost.linalg"


class BodyNode(NamedTuple):
    """One node of a body: values are numbered, the inputs first."""

    op: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: tuple[bytes, ...]


@dataclass
class Body:
    """The nodes of a function, without names.

    Attributes:
        inputs: how many.
        nodes: in order.
        outputs: numbers of values.
        constants: the elements of values that the body itself holds.
        version: the opset.
    """

    inputs: int
    nodes: list[BodyNode]
    outputs: list[int]
    constants: dict[int, np.ndarray[Any, Any]]
    version: int

    @classmethod
    def of_nodes(
        cls, nodes: Sequence[Node], inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Body:
        """The body that the host writes for a region.

        It holds the constants that are no inputs.
        """
        numbers: dict[Tensor, int] = {value: place for place, value in enumerate(inputs)}
        constants: dict[int, np.ndarray[Any, Any]] = {}
        items: list[BodyNode] = []
        for node in nodes:
            read: list[int | None] = []
            for value in node.inputs:
                if value is not None and value not in numbers:
                    numbers[value] = len(numbers)
                    constants[numbers[value]] = value.numpy()
                read.append(None if value is None else numbers[value])
            results: list[int | None] = []
            for value in node.outputs:
                if value is not None:
                    numbers[value] = len(numbers)
                results.append(None if value is None else numbers[value])
            attributes = tuple(
                sorted(
                    entry.SerializeToString(deterministic=True) for entry in node.proto.attribute
                )
            )
            items.append(BodyNode(node.op, tuple(read), tuple(results), attributes))
        version = nodes[0].graph.model.opset() or 0
        return cls(len(inputs), items, [numbers[value] for value in outputs], constants, version)

    @classmethod
    def of_function(cls, function: onnx.FunctionProto) -> Body:
        """The body of a function that was read from a file.

        Raises:
            ValueError: it reads a tensor that nothing makes, or holds a constant in a form that the
                host does not write.
        """
        numbers = {name: place for place, name in enumerate(function.input)}
        constants: dict[int, np.ndarray[Any, Any]] = {}
        tensors: dict[str, onnx.TensorProto] = {}
        items: list[BodyNode] = []
        for node in function.node:
            op = (
                f"{node.domain}::{node.op_type}"
                if node.domain not in {"", "ai.onnx"}
                else node.op_type
            )
            if op == "Constant":
                # the host writes constants as tensors; any other form is another tool's
                contents = [
                    entry.t
                    for entry in node.attribute
                    if entry.name == "value" and entry.type == onnx.AttributeProto.TENSOR
                ]
                if len(contents) != 1:
                    raise ValueError(f"function {function.name}: a constant without a value")
                tensors[node.output[0]] = contents[0]
                continue
            for name in node.input:
                if name and name not in numbers:
                    if name not in tensors:
                        raise ValueError(f'function {function.name}: nothing makes "{name}"')
                    numbers[name] = len(numbers)
                    constants[numbers[name]] = onnx.numpy_helper.to_array(tensors[name])
            for name in node.output:
                if name:
                    numbers[name] = len(numbers)
            attributes = tuple(
                sorted(entry.SerializeToString(deterministic=True) for entry in node.attribute)
            )
            read = tuple([numbers[name] if name else None for name in node.input])
            items.append(
                BodyNode(
                    op,
                    read,
                    tuple([numbers[name] if name else None for name in node.output]),
                    attributes,
                )
            )
        version = next(
            (entry.version for entry in function.opset_import if entry.domain in {"", "ai.onnx"}), 0
        )
        missing = [name for name in function.output if name not in numbers]
        if missing:
            raise ValueError(f'function {function.name}: nothing makes output "{missing[0]}"')
        return cls(
            len(function.input),
            items,
            [numbers[name] for name in function.output],
            constants,
            version,
        )

    def key(self) -> str:
        """Everything but sizes, as a text."""
        lines = [f"{self.version} {self.inputs} {self.outputs}"]
        for node in self.nodes:
            attributes = [attribute.hex() for attribute in node.attributes]
            lines.append(f"{node.op} {node.inputs} {node.outputs} {attributes}")
        lines += [
            f"{n} {a.dtype} {a.shape} {a.tobytes().hex()}"
            for n, a in sorted(self.constants.items())
        ]
        return "\n".join(lines)


class Signature(NamedTuple):
    """One input of a body: element type, rank, static axes of 1."""

    dtype: DataType
    rank: int
    ones: tuple[int, ...]

    @classmethod
    def of(cls, entry: object) -> Signature | None:
        """From a tensor's type; None where the rank is unknown."""
        if not isinstance(entry, TensorType) or entry.shape is None:
            return None
        return cls(
            entry.dtype,
            len(entry.shape),
            tuple(axis for axis, size in enumerate(entry.shape) if size == 1),
        )
