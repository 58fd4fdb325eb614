"""One node while its operator is raised to a newer opset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx

from gehost.errors import ModelError
from gehost.ir import tensors
from gehost.ir.attributes import attribute_value, encode_attribute
from gehost.ir.graph import Value
from gehost.ir.types import DataType, TensorType

CAST_LIKE_SINCE: Final = 15
"""The opset from which a number can take the element type of a tensor whose own is unknown."""
_ANY_CONSTANT_SINCE: Final = 9
_AXES_AS_INPUT_SINCE: Final = 13
_START_OF_SHAPE_SINCE: Final = 15


class Operation:
    """A node, the nodes that go before and after it, and what inference knows.

    ``node`` is the model's own and is edited in place; an edit of the operator's type, inputs and
    attributes keeps its name and annotations. Nodes that are added have the form of ``target``.
    """

    def __init__(
        self,
        node: onnx.NodeProto,
        target: int,
        find: Callable[[str], Value | None],
        new_name: Callable[[str], str],
    ) -> None:
        self.node = node
        self.target: Final = target
        self.before: list[onnx.NodeProto] = []
        self.after: list[onnx.NodeProto] = []
        self._find = find
        self._new_name = new_name

    def refuse(self, why: str) -> ModelError:
        """Return the error that names the node."""
        return ModelError(
            f"cannot convert node {label(self.node)} ({self.node.op_type}) to opset "
            f"{self.target}: {why}"
        )

    # what is known

    def value(self, slot: int) -> Value | None:
        """Return the tensor at an input; None if absent or made by the conversion."""
        name = self.node.input[slot] if slot < len(self.node.input) else ""
        return self._find(name) if name else None

    def has_input(self, slot: int) -> bool:
        return slot < len(self.node.input) and self.node.input[slot] != ""

    def dtype(self, slot: int = 0) -> DataType | None:
        value = self.value(slot)
        return None if value is None else value.dtype

    def rank(self, slot: int = 0) -> int | None:
        value = self.value(slot)
        return None if value is None else value.rank

    def array(self, slot: int) -> np.ndarray[Any, Any] | None:
        value = self.value(slot)
        return None if value is None else value.array

    def output_is_read(self, slot: int) -> bool:
        """Whether an output is there and something reads it."""
        name = self.node.output[slot] if slot < len(self.node.output) else ""
        value = self._find(name) if name else None
        return bool(name) and (value is None or bool(value.readers))

    def has_several_outputs(self) -> bool:
        return any(self.output_is_read(slot) for slot in range(1, len(self.node.output)))

    # attributes

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value.

        Raises:
            ModelError: each call of the function around it gives another value.
        """
        entry = next((item for item in self.node.attribute if item.name == name), None)
        if entry is None:
            return default
        if entry.ref_attr_name:
            raise self.refuse(
                f"its {name} is an attribute of the function around it; inline functions "
                "(--inline-functions)"
            )
        return attribute_value(entry)

    def take(self, name: str, default: Any = None) -> Any:
        """Return an attribute's value after removing it from the node."""
        value = self.attribute(name, default)
        remaining = [entry for entry in self.node.attribute if entry.name != name]
        if len(remaining) < len(self.node.attribute):
            del self.node.attribute[:]
            self.node.attribute.extend(remaining)
        return value

    def put(self, **attributes: Any) -> None:
        """Set attributes, replacing those of the same names."""
        for name, value in attributes.items():
            self.take(name)
            self.node.attribute.append(encode_attribute(name, value))

    # inputs and nodes

    def set_input(self, slot: int, name: str) -> None:
        """Read another tensor, "" for none; absent inputs at the end are left out."""
        inputs = list(self.node.input)
        inputs += [""] * (slot + 1 - len(inputs))
        inputs[slot] = name
        while inputs and not inputs[-1]:
            inputs.pop()
        self.node.input[:] = inputs

    def add(self, op: str, inputs: Sequence[str], role: str, **attributes: Any) -> str:
        """Compute a tensor before the node; return its name."""
        output = self._new_name(f"{first_output(self.node) or self.node.op_type}_{role}")
        self.before.append(onnx.NodeProto(op_type=op, input=inputs, output=[output]))
        self.before[-1].attribute.extend(
            [encode_attribute(name, value) for name, value in attributes.items()]
        )
        return output

    def constant(self, array: np.ndarray[Any, Any], role: str) -> str:
        """Return the name of a new constant.

        Raises:
            ModelError: it is no float, and the opset has constants of floats alone.
        """
        if self.target < _ANY_CONSTANT_SINCE and array.dtype.kind != "f":
            raise self.refuse(
                f"it needs a constant of {array.dtype}, which an opset below "
                f"{_ANY_CONSTANT_SINCE} lacks"
            )
        return self.add("Constant", [], role, value=tensors.from_numpy(array, ""))

    def integers(self, values: Sequence[int], role: str) -> str:
        """Return the name of a new constant vector of int64."""
        return self.constant(np.array(values, np.int64), role)

    def number(self, value: float, role: str) -> str:
        """Return the name of a new constant scalar in the element type of input 0.

        Raises:
            ModelError: that type is not known, and the opset cannot ask for it.
        """
        dtype = self.dtype()
        if dtype:
            with np.errstate(over="ignore"):
                return self.constant(np.array(value, np.float32).astype(dtype.numpy), role)
        if self.target < CAST_LIKE_SINCE:
            raise self.refuse(
                f'the element type of "{self.node.input[0]}" is not known (from opset '
                f"{CAST_LIKE_SINCE} on it can be converted)"
            )
        plain = self.constant(np.array(value, np.float32), f"{role}_float")
        return self.add("CastLike", [plain, self.node.input[0]], role)

    def unsqueezed(self, name: str, axes: Sequence[int]) -> str:
        """Return a tensor with new dimensions of size 1."""
        if self.target < _AXES_AS_INPUT_SINCE:
            return self.add("Unsqueeze", [name], "unsqueezed", axes=list(axes))
        return self.add("Unsqueeze", [name, self.integers(axes, "axes")], "unsqueezed")

    def shape_of(self, name: str, start: int | None = None, end: int | None = None) -> str:
        """Return a tensor's shape, or dimensions ``start`` to ``end`` of it."""
        if start is None and end is None:
            return self.add("Shape", [name], "shape")
        assert self.target >= _START_OF_SHAPE_SINCE
        part = {"start": start or 0} | ({} if end is None else {"end": end})
        return self.add("Shape", [name], "shape", **part)

    def result_through(self, op: str, further: Sequence[str] = (), **attributes: Any) -> None:
        """Compute output 0 by a new node from what this node computes.

        The new node has the name and the annotations.
        """
        result = self.node.output[0]
        self.node.output[0] = self._new_name(f"{result}_before")
        last = onnx.NodeProto(op_type=op, input=[self.node.output[0], *further], output=[result])
        last.attribute.extend([encode_attribute(name, value) for name, value in attributes.items()])
        for field in ("name", "doc_string"):
            setattr(last, field, getattr(self.node, field))
            self.node.ClearField(field)
        for field in ("metadata_props", "device_configurations"):
            getattr(last, field).extend(getattr(self.node, field))
            self.node.ClearField(field)
        self.after.append(last)


def has_static_shape(value: Value | None) -> bool:
    """Whether every size is a number, and none is zero."""
    value_type = None if value is None else value.type
    return (
        isinstance(value_type, TensorType)
        and value_type.shape is not None
        and all(isinstance(size, int) and size for size in value_type.shape)
    )


def first_output(node: onnx.NodeProto) -> str:
    return next(iter(filter(None, node.output)), "")


def label(node: onnx.NodeProto) -> str:
    return f'"{node.name or first_output(node)}"'


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
