"""A group from its function body alone, as kernels are made from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from gehost import DataType, Refused
from gehost_linalg.block import Block
from gehost_linalg.control import one_use
from gehost_linalg.driver import Driver
from gehost_linalg.generic import Op, Opaque, Value
from gehost_linalg.groups.body import Body, Signature
from gehost_linalg.groups.grouping import GROUP_COMPANIONS
from gehost_linalg.groups.lowered import MOVEMENT, PARAMETERS
from gehost_linalg.interpret import Rule
from gehost_linalg.lower.nodes import MLIR_DTYPES, Names, OnnxOp
from gehost_linalg.lower.table import lower, lowerings


@dataclass
class DerivedGroup:
    """A function as Generics, from which kernels are made.

    Attributes:
        name: ``<Kernel>_<hash>``.
        inputs: values in the order of the function's inputs.
        outputs: in the order of its outputs.
        unfused: the operations as they are lowered.
        ops: the operations after fusion.
        rules: sizes that are computed from others, by name.
    """

    name: str
    inputs: list[Value]
    outputs: list[Value]
    unfused: list[Op]
    ops: list[Op]
    rules: Mapping[str, Rule]


def derive(body: Body, signature: Sequence[Signature]) -> DerivedGroup:
    """Lower and fuse a body from its inputs' element types and ranks.

    Raises:
        Refused: an operator is not lowered where sizes are unknown.
    """
    names = Names()
    values: dict[int, Value] = {}
    for place, argument in enumerate(signature):
        shape = [1 if axis in argument.ones else names.size() for axis in range(argument.rank)]
        values[place] = Value(
            f"input{place}", MLIR_DTYPES.get(argument.dtype) or argument.dtype.name.lower(), shape
        )
    arrays: dict[int, np.ndarray[Any, Any]] = {}
    for number, array in body.constants.items():
        arrays[number] = array
        dtype = MLIR_DTYPES.get(
            DataType(onnx.helper.np_dtype_to_tensor_dtype(array.dtype)), "unknown"
        )
        shape = [1 if size == 1 else str(size) for size in array.shape]
        values[number] = Value(f"constant{number}", dtype, shape)
        # one number throughout becomes a literal of the loops; by bits, for NaN and -0.0
        if array.size and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size:
            values[number].constant = array.reshape(-1)[:1].reshape((1,) * array.ndim)
    ops: list[Op] = []
    for place, node in enumerate(body.nodes):
        outputs = [
            None if number is None else Value(f"value{number}", "") for number in node.outputs
        ]
        inputs = [None if number is None else values[number] for number in node.inputs]
        # only constants that decide shapes are read; others are operands, whatever their numbers
        constants = {
            slot: arrays[number]
            for slot, number in enumerate(node.inputs)
            if number is not None and number in arrays and slot in PARAMETERS.get(node.op, ())
        }
        attributes = _attributes(node.attributes)
        op = OnnxOp(node.op, body.version, inputs, outputs, attributes, constants, place, names)
        try:
            ops += lower(op, _reshape_in_body if node.op == "Reshape" else None)
        except Refused as refused:
            raise Refused(replace(refused.refusal, subject=place)) from None
        values.update(
            {
                n: v
                for n, v in zip(node.outputs, outputs, strict=True)
                if n is not None and v is not None
            }
        )
    outputs = [values[number] for number in body.outputs]
    block = Block(ops, outputs)
    Driver(block, one_use, "refuse", GROUP_COMPANIONS).run()
    fused = block.ops
    content = [body.key(), *map(str, signature), *[_maps(op) for op in fused]]
    digest = hashlib.sha256("\n".join(content).encode()).hexdigest()[:12]
    return DerivedGroup(
        f"{_kernel(body)}_{digest}",
        [values[n] for n in range(body.inputs)],
        outputs,
        ops,
        fused,
        names.rules,
    )


def _reshape_in_body(op: OnnxOp) -> None:
    """As one operation, unless its target shows that it splits the last axis.

    Other sizes do not show which axes it splits or merges.
    """
    try:
        lowerings()["Reshape"](op)
    except Refused:
        target = op.parameter(1, "shape")
        if target is None or op.attributes.get("allowzero"):
            raise Refused("not-lowered", "Reshape with a zero or without a shape") from None
        out = op.single_output()
        op.assign_type(
            out, [1 if size == 1 else op.names.size() for size in target], op.input(0).dtype
        )
        text = ",".join(map(str, target))
        op.made.append(
            Opaque("tensor.reshape", (op.input(0),), (out,), text, op.label, (op.origin,))
        )


def _attributes(serialized: Iterable[bytes]) -> dict[str, Any]:
    entries = map(onnx.AttributeProto.FromString, serialized)
    decoded = {entry.name: onnx.helper.get_attribute_value(entry) for entry in entries}
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in decoded.items()
    }


def _maps(op: Op) -> str:
    if isinstance(op, Opaque):
        return f"{op.name} {op.attribute}"
    maybe_broadcast = [sorted(axes) for axes in op.maybe_broadcast_axes]
    return f"{' '.join(map(str, op.maps))} {' '.join(op.iterators)} {maybe_broadcast}"


def _kernel(body: Body) -> str:
    """A name that a reader recognizes: at most four operators that compute."""
    ops = [node.op.rpartition("::")[2] for node in body.nodes if node.op not in MOVEMENT] or [
        "Move"
    ]
    return "_".join(ops[:4]) + (f"_and_{len(ops) - 4}" if len(ops) > 4 else "")
