"""Random models that are full of what the shipped vendors and the clean-up take: each block feeds another."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import pi, sqrt
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZE = 4
"""All tensors between blocks are [SIZE, SIZE] or, where the model states it, [N, SIZE]."""
OPSETS = (11, 13, 17, 18, 20, 23)
IR_VERSIONS = {11: 6, 13: 7, 17: 8, 18: 8, 20: 9, 23: 11}
AXES_ARE_AN_INPUT = 13
REDUCED_AXES_ARE_AN_INPUT = 18


class Fusable:
    """Makes one model from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.opset = self.rng.choice(OPSETS)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self.names = 0
        self.tensors: list[str] = []

    def model(self, blocks: int) -> onnx.ModelProto:
        rows = self.rng.choice([SIZE, "N"])
        self.tensors = ["x", "z"]
        for _ in range(blocks):
            self.block(self.rng.choice(BLOCKS))
        read = {name for node in self.nodes for name in node.input}
        loose = [name for name in self.tensors[2:] if name not in read]
        outputs = dict.fromkeys([self.tensors[-1], *self.rng.sample(loose, min(2, len(loose)))])
        if self.rng.random() < 0.3:
            outputs[self.rng.choice(self.tensors[2:])] = None
        if self.rng.random() < 0.2:
            self.constant(np.arange(3.0))  # that nobody reads
        kind = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "fusable",
            [helper.make_tensor_value_info(name, kind, [rows, SIZE]) for name in ("x", "z")],
            [helper.make_tensor_value_info(name, kind, [None, None]) for name in outputs],
            self.initializers,
        )
        imports = [helper.make_opsetid("", self.opset)]
        if b"AddCustom" in graph.SerializeToString():
            imports.append(helper.make_opsetid("ge", 1))
        if self.functions:
            imports.append(helper.make_opsetid("local", 1))
        return helper.make_model(
            graph,
            opset_imports=imports,
            ir_version=IR_VERSIONS[self.opset],
            functions=self.functions,
        )

    def block(self, block: Callable[[Fusable], str]) -> None:
        """Add a block, or (sometimes) an If that holds it in both branches."""
        if self.rng.random() > 0.12:
            self.tensors.append(block(self))
            return
        outside = self.nodes, self.initializers, self.tensors
        branches: list[onnx.GraphProto] = []
        for place in range(2):
            self.nodes, self.initializers, self.tensors = [], [], list(outside[2])
            output = self.emit("Identity", block(self)) if place else block(self)
            if not any(output in node.output for node in self.nodes):
                output = self.emit("Neg", output)
            result = helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [None, None])
            branches.append(
                helper.make_graph(self.nodes, f"b{place}", [], [result], self.initializers)
            )
        self.nodes, self.initializers, self.tensors = outside
        condition = self.constant(np.array(True))
        self.tensors.append(
            self.emit("If", condition, then_branch=branches[0], else_branch=branches[1])
        )

    def some(self) -> str:
        return self.rng.choice(self.tensors[-4:] if self.rng.random() < 0.8 else self.tensors)

    def fresh(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def emit(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        result = self.fresh("t")
        self.nodes.append(helper.make_node(op, list(inputs), [result], domain=domain, **attributes))
        if self.rng.random() < 0.08:
            return self.emit("Identity", result)
        return result

    def constant(self, argument: Any, dtype: Any = np.float32) -> str:
        array = (
            np.asarray(argument)
            if isinstance(argument, np.ndarray) and argument.dtype.kind in "bi"
            else np.asarray(argument, dtype)
        )
        name, drawing = self.fresh("c"), self.rng.random()
        if drawing < 0.6:
            self.initializers.append(numpy_helper.from_array(array, name))
        elif drawing < 0.9 or array.dtype.kind != "f":
            self.nodes.append(
                helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))
            )
        else:
            half = self.constant(array / 2, dtype)
            self.nodes.append(helper.make_node("Add", [half, half], [name]))
        return name

    def numbers(self, *shape: int) -> str:
        return self.constant(np.random.default_rng(self.rng.randrange(3)).standard_normal(shape))

    def axes(self, op: str, x: str, axes: list[int], since: int, **more: Any) -> str:
        if self.opset < since:
            return self.emit(op, x, axes=axes, **more)
        return self.emit(op, x, self.constant(np.array(axes)), **more)

    def mean(self, x: str) -> str:
        return self.axes("ReduceMean", x, [-1], REDUCED_AXES_ARE_AN_INPUT, keepdims=1)

    def either(self, op: str, one: str, other: str) -> str:
        return self.emit(op, *((one, other) if self.rng.random() < 0.5 else (other, one)))


def linear(to: Fusable) -> str:
    x = to.some()
    product = to.emit("MatMul", x, to.numbers(SIZE, SIZE))
    if to.rng.random() < 0.2:
        product = to.either("Mul", product, to.constant(0.25))
    total = to.either("Add", product, to.rng.choice([to.numbers(SIZE), to.numbers(1), to.some()]))
    return to.rng.choice([lambda: total, lambda: to.emit("Relu", total)])()


def transposed_linear(to: Fusable) -> str:
    weight = to.emit("Transpose", to.numbers(SIZE, SIZE), perm=[1, 0])
    scaled = to.either("Mul", to.emit("MatMul", to.some(), weight), to.constant(0.25))
    return to.either("Add", scaled, to.numbers(SIZE))


def stacked_linear(to: Fusable) -> str:
    x = to.axes("Unsqueeze", to.some(), [0], AXES_ARE_AN_INPUT)
    total = to.either("Add", to.emit("MatMul", x, to.numbers(SIZE, SIZE)), to.numbers(SIZE))
    return to.axes("Squeeze", total, [0], AXES_ARE_AN_INPUT)


def concat(to: Fusable) -> str:
    inner = to.emit("Concat", to.some(), to.some(), axis=1)
    relu = to.emit("Relu", to.emit("Concat", inner, to.some(), axis=1))
    starts, ends, axes = (to.constant(np.array([n])) for n in (0, SIZE, 1))
    return to.emit("Slice", relu, starts, ends, axes)


def transposes(to: Fusable) -> str:
    x = to.some()
    for _ in range(2):
        x = to.emit("Transpose", x, **to.rng.choice([{}, {"perm": [1, 0]}]))
    return x


def casts(to: Fusable) -> str:
    x = to.some()
    for kind in to.rng.choice([(1,), (11, 1), (11, 11, 1), (10, 1)]):
        x = to.emit("Cast", x, to=kind)
    return x


def reshapes(to: Fusable) -> str:
    x = to.emit("Reshape", to.some(), to.constant(np.array([-1])))
    return to.emit("Reshape", x, to.constant(np.array([-1, SIZE])))


def own_shape(to: Fusable) -> str:
    x = to.some()
    shape = to.emit("Shape", to.some())
    if to.rng.random() < 0.5:
        parts = [to.emit("Gather", shape, to.constant(np.array([n])), axis=0) for n in range(2)]
        shape = to.emit("Concat", *parts, axis=0)
    return to.emit("Reshape", x, shape)


def squeezed(to: Fusable) -> str:
    x = to.axes("Unsqueeze", to.some(), [1], AXES_ARE_AN_INPUT)
    return to.axes("Squeeze", x, [1], AXES_ARE_AN_INPUT)


def dropout(to: Fusable) -> str:
    return to.emit("Dropout", to.some())


def add_zero(to: Fusable) -> str:
    zero = to.constant(to.rng.choice([0.0, [0.0] * SIZE, [[0.0]]]))
    if to.rng.random() < 0.3:
        one = to.numbers(SIZE)
        zero = to.emit("Sub", one, one)
    return to.either("Add", to.some(), zero)


def add_custom(to: Fusable) -> str:
    pair = to.some(), to.constant(0.0)
    return to.emit("AddCustom", *(pair if to.rng.random() < 0.5 else pair[::-1]), domain="ge")


def sums(to: Fusable) -> str:
    x = to.some()
    for _ in range(to.rng.randint(2, 4)):
        x = to.either("Add", x, to.some())
    return x


def mixed(to: Fusable) -> str:
    return to.emit(to.rng.choice(["Relu", "Neg", "Sigmoid", "Identity"]), to.some())


def gelu(to: Fusable) -> str:
    x = to.some()
    part = to.either(
        "Add", to.emit("Erf", to.emit("Div", x, to.constant(sqrt(2)))), to.constant(1.0)
    )
    return to.either("Mul", to.either("Mul", x, part), to.constant(0.5))


def gelu_tanh(to: Fusable) -> str:
    x = to.some()
    cube = to.either("Mul", to.emit("Pow", x, to.constant(3.0)), to.constant(0.044715))
    inner = to.either("Mul", to.either("Add", x, cube), to.constant(sqrt(2 / pi)))
    part = to.either("Add", to.emit("Tanh", inner), to.constant(1.0))
    return to.either("Mul", to.either("Mul", x, to.constant(0.5)), part)


def normalization(to: Fusable) -> str:
    x = to.some()
    part = x if to.rng.random() < 0.4 else to.emit("Sub", x, to.mean(x))
    square = (
        to.emit("Pow", part, to.constant(2.0))
        if to.rng.random() < 0.5
        else to.emit("Mul", part, part)
    )
    root = to.emit("Sqrt", to.either("Add", to.mean(square), to.constant(1e-5)))
    scaled = to.either("Mul", to.emit("Div", part, root), to.numbers(SIZE))
    return to.either("Add", scaled, to.numbers(SIZE)) if to.rng.random() < 0.7 else scaled


def expanded(to: Fusable) -> str:
    filled = to.emit(
        "Expand", to.constant(to.rng.choice([0.0, 1.0, [2.0]])), to.constant(np.array([1, SIZE]))
    )
    return to.either("Add", to.some(), filled)


def convolution(to: Fusable) -> str:
    image = to.emit("Reshape", to.some(), to.constant(np.array([-1, SIZE, 1, 1])))
    kernel, bias = to.numbers(SIZE, 2, 1, 1), to.numbers(SIZE)
    result = to.emit("Conv", image, kernel, bias, group=2, kernel_shape=[1, 1])
    return to.emit("Reshape", result, to.constant(np.array([-1, SIZE])))


def other_layout(to: Fusable) -> str:
    image = to.emit("Reshape", to.some(), to.constant(np.array([-1, 1, 1, SIZE])))
    result = to.emit(
        "Conv", to.emit("Transpose", image, perm=[0, 3, 1, 2]), to.numbers(SIZE, SIZE, 1, 1)
    )
    return to.emit(
        "Reshape",
        to.emit("Transpose", result, perm=[0, 2, 3, 1]),
        to.constant(np.array([-1, SIZE])),
    )


def local(to: Fusable) -> str:
    name = to.rng.choice(["Twice", "Zeroed"])
    if all(function.name != name for function in to.functions):
        body = [helper.make_node("Add", ["i", "i"], ["o"])]
        if name == "Zeroed":
            body = [
                helper.make_node("Sub", ["i", "i"], ["n"]),
                helper.make_node("Add", ["i", "n"], ["o"]),
            ]
        to.functions.append(
            helper.make_function(
                "local", name, ["i"], ["o"], body, [helper.make_opsetid("", to.opset)]
            )
        )
    result = to.emit(name, to.some(), domain="local")
    return to.some() if to.rng.random() < 0.2 else result  # or a call that nobody reads


BLOCKS = (
    linear, linear, transposed_linear, stacked_linear, concat, transposes, casts, reshapes, own_shape, squeezed,
    dropout, add_zero, add_custom, sums, sums, mixed, mixed, gelu, gelu_tanh, normalization, expanded, convolution,
    other_layout, local,
)  # fmt: skip


def fusable(seed: int) -> onnx.ModelProto:
    """The model of a seed."""
    return Fusable(seed).model(random.Random(~seed).randint(2, 9))
