"""Nodes that ONNX Runtime fuses better."""

from __future__ import annotations

from collections.abc import Callable

from gehost import Node, TensorType
from gehost import Value as Tensor
from gehost_linalg.groups.lowered import MOVEMENT, small_array
from gehost_linalg.lower.table import lowerings

_AFTER_CONV = frozenset(
    {
        "Add",
        "Sum",
        "Relu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "LeakyRelu",
        "HardSigmoid",
        "BatchNormalization",
    }
)

FEW_ELEMENTS = 4096
"""Below, a kernel's gain is the call of a node that it saves."""


def left_to_runtime() -> Callable[[Node], str | None]:
    """Why a node is left to ONNX Runtime."""
    after_conv: set[Node] = set()

    def reason(node: Node) -> str | None:
        if node.op in _AFTER_CONV:
            makers = [
                value.producer
                for value in node.inputs
                if value is not None and value.producer is not None
            ]
            if any(
                maker.op in {"Conv", "ConvTranspose"} or maker in after_conv for maker in makers
            ):
                if node.op in {"Add", "Sum", "BatchNormalization"}:
                    after_conv.add(node)
                return f"conv-epilogue: ONNX Runtime fuses {node.op} into the convolution"
        if any(out is not None and out.elements is not None for out in node.outputs):
            return "shape: it computes sizes, through which inference would not see in a function"
        if node.op in {"Mul", "Div"} and _scales_matmul(node):
            return f"matmul-scale: ONNX Runtime folds {node.op} into the matrix product"
        if node.op == "Transpose" and _is_transposed_operand(node):
            return "matmul-transpose: ONNX Runtime folds Transpose into the matrix product"
        if node.op == "Transpose" and _makes_short_rows(node):
            return "short-rows: Transpose makes rows of a few elements, each from another place"
        if node.op in {"Unsqueeze", "Squeeze"} and _ends_in_view(node):
            return f"view: only nodes outside of groups read it, and {node.op} moves no data"
        if node.op == "Reshape" and _is_read_outside(node):
            return "view: a node outside of groups reads it, and Reshape moves no data"
        return None

    return reason


def _scales_matmul(node: Node) -> bool:
    """Whether a node scales a MatMul's operand or result by a constant."""
    if len(node.inputs) != 2 or not node.outputs:
        return False
    scalars = [
        value is not None and value.is_constant and _is_single(value) for value in node.inputs
    ]
    if not any(scalars) or (node.op == "Div" and not scalars[1]):
        return False
    other = node.inputs[1 if scalars[0] else 0]
    out = node.outputs[0]
    made_by = other.producer if other is not None else None
    if (
        made_by is not None
        and made_by.op == "MatMul"
        and other is not None
        and len(other.readers) == 1
    ):
        return True
    reader = None if out is None else _only_reader(out)
    if reader is None or reader.op != "MatMul":
        return False
    if made_by is None or made_by.op in MOVEMENT or made_by.op not in lowerings():
        return True
    # Behind a product, an Add is its bias, which ONNX Runtime folds, too. What a group computes
    # otherwise, it scales at no cost.
    return any(
        value is not None and value.producer is not None and value.producer.op == "MatMul"
        for value in made_by.inputs
    )


def _is_single(value: Tensor) -> bool:
    value_type = value.type
    return isinstance(value_type, TensorType) and value_type.size == 1


def _only_reader(value: Tensor) -> Node | None:
    readers = list(value.readers)
    return readers[0] if len(readers) == 1 and isinstance(readers[0], Node) else None


def _ends_in_view(node: Node) -> bool:
    """Whether no group reads the result; another rank would keep its rows apart from theirs."""
    out = node.outputs[0] if node.outputs else None
    if out is None or out.is_graph_output or not out.readers:
        return False
    for reader in out.readers:
        if not isinstance(reader, Node):
            return False
        of_shape = reader.op in {"Expand", "Reshape"} and small_array(reader.input(1)) is None
        if reader.op in lowerings() and not of_shape:
            return False
    return True


def _is_read_outside(node: Node) -> bool:
    """Whether the result is an output, or read by a node that is not lowered."""
    out = node.outputs[0] if node.outputs else None
    return (
        out is None
        or out.is_graph_output
        or not all(isinstance(reader, Node) and reader.op in lowerings() for reader in out.readers)
    )


def _is_transposed_operand(node: Node) -> bool:
    """Whether a Transpose of the last two axes feeds a product alone, scaled or not."""
    perm, out = node.attrs.get("perm"), node.outputs[0] if node.outputs else None
    reader = None if out is None else _only_reader(out)
    if out is None or reader is None:
        return False
    scaled = reader.op in {"Mul", "Div"} and _scales_matmul(reader)
    if not scaled and reader.op != "MatMul" and (reader.op != "Gemm" or reader.input(2) is out):
        return False
    axes = list(perm) if perm is not None else [1, 0] if out.rank == 2 else []
    rank = len(axes)
    return rank >= 2 and axes == [*range(rank - 2), rank - 1, rank - 2]


def _makes_short_rows(node: Node) -> bool:
    """Whether a Transpose moves another axis to the end that is known to be short.

    Kernels transpose 16 x 16 elements at once; shorter rows are gathered element by element,
    which is slower unless there are few.
    """
    out, perm = node.outputs[0] if node.outputs else None, node.attrs.get("perm")
    value_type = None if out is None else out.type
    if not isinstance(value_type, TensorType) or not value_type.shape:
        return False
    last = value_type.shape[-1]
    if not isinstance(last, int) or not 1 < last < 16:
        return False
    moved = perm is None or perm[-1] != len(value_type.shape) - 1
    return moved and (value_type.size is None or value_type.size >= FEW_ELEMENTS)
