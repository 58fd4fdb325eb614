"""Random models of float32 with constants, bodies (If, Loop, Scan) and functions, for conversions to float16.

All numbers are of moderate size but for epsilons and the fills of masks, so that the conversion has a right answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSETS = (11, 13, 16, 17, 18, 20, 21, 22)
ROWS, WIDTH = 4, 8
FULL, ROW = (ROWS, WIDTH), (WIDTH,)
FLOAT, INT, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
DEEPEST = 2


@dataclass
class Body:
    """A graph, body or function that is being made; all its floats have one shape."""

    maker: Maker
    shape: tuple[int, ...] = FULL
    outer: Body | None = None
    in_function: bool = False
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    floats: list[str] = field(default_factory=list[str])
    constants: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    flags: list[str] = field(default_factory=list[str])
    counts: list[str] = field(default_factory=list[str])

    @property
    def rng(self) -> random.Random:
        return self.maker.rng

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else self.outer.depth + 1

    def emit(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node; return its first output."""
        names = [self.maker.fresh() for _ in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        if self.rng.random() < 0.5:
            node.name = f"{op} {names[0]}"
        self.nodes.append(node)
        return names[0]

    def value(self) -> str:
        """Return a float of the body's shape, mostly a recent one; seldom a constant."""
        rng = self.rng
        if rng.random() < 0.06:
            return self.constant(self.maker.numbers(self.shape))
        if self.outer is not None and (not self.floats or rng.random() < 0.35):
            outer = self.outer.value()
            if self.outer.shape == self.shape:
                return outer
            return self.emit("Gather", outer, self.constant(np.array(0, np.int64)), axis=0)
        return rng.choice(self.floats[-4:] if self.floats and rng.random() < 0.7 else self.floats)

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        """Return a constant: a node, or an initializer here or of the outermost graph."""
        array = np.asarray(array)
        home, kind = self, self.rng.random()
        if self.in_function or kind < 0.45:
            name = self.emit("Constant", value=numpy_helper.from_array(array))
        elif kind < 0.75:
            home, name = self.maker.root, self.maker.fresh("w")
            home.initializers.append(numpy_helper.from_array(array, name))
        else:
            name = self.maker.fresh()
            self.initializers.append(numpy_helper.from_array(array, name))
        if array.dtype == np.float32 and 1e-3 < np.abs(array).max() < 9:
            home.constants[name] = array.shape
        return name

    def _constants(self) -> dict[str, tuple[int, ...]]:
        return ({} if self.outer is None else self.outer._constants()) | self.constants

    def flag(self) -> str:
        """Return a boolean of one element."""
        if self.flags:
            return self.rng.choice(self.flags)
        if self.outer is not None:
            return self.outer.flag()
        return self.constant(np.array(self.rng.random() < 0.5))

    def number(self) -> str:
        """Return a float constant that broadcasts into the body's shape."""
        rng = self.rng
        shape = rng.choice([(), (1,), ROW, self.shape])
        fitting = [name for name, other in self._constants().items() if shape == other]
        if fitting and rng.random() < 0.4:
            return rng.choice(fitting)
        return self.constant(self.maker.numbers(shape))

    def graph(self, inputs: list[onnx.ValueInfoProto], outputs: list[Any]) -> onnx.GraphProto:
        return helper.make_graph(
            self.nodes, self.maker.fresh("g"), inputs, outputs, self.initializers
        )


def info(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


class Maker:
    """Makes one model from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.draw = np.random.default_rng(seed)
        self.opset = self.rng.choice(OPSETS)
        self.functions: list[onnx.FunctionProto] = []
        self._count = self._roots = 0
        self.root = Body(self)

    def fresh(self, stem: str = "t") -> str:
        if stem != "t":  # seen from several bodies, which may count from the same number
            self._roots += 1
            return f"{stem}{self._roots}"
        self._count += 1
        return f"t{self._count}"

    def numbers(self, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        return self.draw.normal(size=shape).astype(np.float32)

    def beside(self, makes: list[Callable[[], Any]]) -> list[Any]:
        """Make bodies that stand beside each other; half of them have the same names."""
        start, furthest, results = self._count, 0, list[Any]()
        again = self.rng.random() < 0.5
        for make in makes:
            self._count = start if again else self._count
            results.append(make())
            furthest = max(furthest, self._count)
        self._count = furthest
        return results

    def make(self, size: int) -> tuple[onnx.ModelProto, list[dict[str, Any]]]:
        root, rng = self.root, self.rng
        root.floats, root.flags, root.counts = ["x", "y"], ["c"], ["m"]
        fill(root, size)
        made = [name for name in root.floats if name not in ("x", "y")]
        names = list(dict.fromkeys([*rng.sample(made, min(len(made), 2)), made[-1]]))
        inputs = [info("x", shape=FULL), info("y", shape=FULL)]
        inputs += [info("c", BOOL, []), info("m", INT, [WIDTH])]
        graph = root.graph(inputs, [info(name, shape=FULL) for name in names])
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid("my", 1)],
            functions=self.functions,
            ir_version=8 if self.opset < 19 else 10,
        )
        if rng.random() < 0.3:
            model = onnx.shape_inference.infer_shapes(model)
        if self.opset >= 16 and rng.random() < 0.2:  # never runs: the operator's kernel does
            nodes = [helper.make_node("Neg", ["X"], ["Z"])]
            opsets = [helper.make_opsetid("", self.opset)]
            model.functions.append(
                helper.make_function("", "Softmax", ["X"], ["Z"], nodes, opsets, ["axis"])
            )
        return model, [self._feed(flag) for flag in (True, False)]

    def _feed(self, flag: bool) -> dict[str, Any]:
        mask = np.array([1] * 5 + [int(flag)] * 3, np.int64)
        return {
            "x": self.numbers(FULL),
            "y": self.numbers(FULL),
            "c": np.array(flag),
            "m": mask,
        }


def fill(body: Body, size: int) -> None:
    """Add about ``size`` operators."""
    for _ in range(size):
        make = body.rng.choices(OPERATORS, WEIGHTS)[0]
        result = make(body)
        if result:
            body.floats.append(result)


# -- operators ------------------------------------------------------------------------------------


def unary(body: Body) -> str:
    ops = ["Relu", "Tanh", "Sigmoid", "Neg", "Abs", "Identity", "LeakyRelu", "Erf", "Cos", "Sin"]
    ops += ["Softplus", "Gelu"] if body.maker.opset >= 20 else ["Softplus"]
    return body.emit(body.rng.choice(ops), body.value())


def binary(body: Body) -> str:
    operands = [body.value(), body.value() if body.rng.random() < 0.5 else body.number()]
    body.rng.shuffle(operands)
    return body.emit(body.rng.choice(["Add", "Sub", "Mul", "Max", "Min", "Add"]), *operands)


def product(body: Body) -> str:
    weight = body.constant(body.maker.numbers((WIDTH, WIDTH)) / np.float32(3))
    if body.shape == FULL and body.rng.random() < 0.3:
        return body.emit("Gemm", body.value(), weight, body.constant(body.maker.numbers(ROW)))
    return body.emit("MatMul", body.value(), weight)


def norm(body: Body) -> str:
    """A root mean square, a LayerNormalization or a Softmax."""
    kind, x = body.rng.random(), body.value()
    if kind < 0.3:
        return body.emit("Softmax", x, axis=len(body.shape) - 1)
    if kind < 0.6 and body.maker.opset >= 17:
        scale, bias = (body.constant(body.maker.numbers(ROW)) for _ in range(2))
        return body.emit("LayerNormalization", x, scale, bias, axis=-1)
    square = (
        body.emit("Mul", x, x) if kind < 0.8 else body.emit("Pow", x, body.constant(np.float32(2)))
    )
    shifted = body.emit("Add", mean(body, square), body.constant(np.float32(1e-6)))
    return body.emit("Div", x, body.emit("Sqrt", shifted))


def quotient(body: Body) -> str:
    """Divide by a size and an epsilon."""
    x, small = body.value(), body.constant(np.float32(body.rng.choice([1e-8, 1e-12, 3e-6])))
    return body.emit("Div", x, body.emit("Add", mean(body, body.emit("Abs", x)), small))


def mean(body: Body, x: str) -> str:
    axis = len(body.shape) - 1
    if body.maker.opset < 18:
        return body.emit("ReduceMean", x, axes=[axis], keepdims=1)
    return body.emit("ReduceMean", x, body.constant(np.array([axis], np.int64)), keepdims=1)


def clip(body: Body) -> str:
    low, high = np.float32(-body.rng.random()), np.float32(body.rng.random())
    bounds = [body.constant(low) if body.rng.random() < 0.7 else "", body.constant(high)]
    return body.emit("Clip", body.value(), *bounds[: body.rng.randint(1, 2)])


def where(body: Body) -> str:
    mask = body.emit("Less", body.value(), body.number())
    return body.emit("Where", mask, body.value(), body.number())


def layout(body: Body) -> str:
    """Move numbers there and back, or join and cut them."""
    x, kind = body.value(), body.rng.random()
    if kind < 0.4 and body.shape == FULL:
        return body.emit("Transpose", body.emit("Transpose", x, perm=[1, 0]), perm=[1, 0])
    if kind < 0.7:
        flat = body.emit("Reshape", x, body.constant(np.array([-1], np.int64)))
        return body.emit("Reshape", flat, body.constant(np.array(body.shape, np.int64)))
    both = body.emit("Concat", x, body.value(), axis=0)
    indices = np.arange(body.shape[0], dtype=np.int64) + 1
    return body.emit("Gather", both, body.constant(indices), axis=0)


def filled(body: Body) -> str:
    """Add the fill of a computed shape."""
    shape = body.emit("Shape", body.value())
    value = {} if body.rng.random() < 0.3 else {"value": helper.make_tensor("", FLOAT, [1], [0.7])}
    return body.emit("Add", body.value(), body.emit("ConstantOfShape", shape, **value))


def masked(body: Body) -> str:
    """A Softmax over the positions of a mask, made of integers."""
    outermost = body
    while outermost.outer is not None:
        outermost = outermost.outer
    if not outermost.counts:
        return ""
    fill_of = body.constant(np.float32(body.rng.choice([-3.4028235e38, -1e9, -1e4])))
    ones = body.emit("Cast", outermost.counts[0], to=FLOAT)
    free = body.emit("Sub", body.constant(np.float32(1)), ones)
    scores = body.emit("Add", body.value(), body.emit("Mul", free, fill_of))
    return body.emit("Softmax", scores, axis=len(body.shape) - 1)


def there_and_back(body: Body) -> str:
    kind = body.rng.choice([onnx.TensorProto.DOUBLE, FLOAT])
    return body.emit("Cast", body.emit("Cast", body.value(), to=kind), to=FLOAT)


# -- bodies ---------------------------------------------------------------------------------------


def result_of(body: Body) -> str:
    """Return an output of a body, which it makes itself."""
    made = {name for node in body.nodes for name in node.output}
    own_floats = [name for name in body.floats if name in made]
    if own_floats and body.rng.random() < 0.85:
        return own_floats[-1]
    if not body.in_function and body.rng.random() < 0.3:
        return body.emit("Constant", value=numpy_helper.from_array(body.maker.numbers(body.shape)))
    return body.emit("Identity", body.value())


def declared(body: Body, name: str, kind: int = FLOAT, shape: Any = None) -> Any:
    shape = list(shape) if shape is not None and body.rng.random() < 0.6 else None
    if body.rng.random() < (0.3 if body.in_function else 0.1):
        return onnx.ValueInfoProto(name=name)
    return info(name, kind, shape)


def inner(body: Body, shape: tuple[int, ...]) -> Body:
    return Body(body.maker, shape, body, body.in_function)


def branches(body: Body) -> str:
    if body.depth >= DEEPEST:
        return ""
    outputs = body.rng.choice([1, 1, 2])

    def branch() -> onnx.GraphProto:
        item = inner(body, body.shape)
        fill(item, body.rng.randint(0, 3))
        names = [result_of(item)]
        while len(names) < outputs:
            names.append(item.emit("Tanh", item.value()))
        return item.graph([], [declared(item, name, shape=body.shape) for name in names])

    condition = body.flag()
    then, other = body.maker.beside([branch, branch])
    return body.emit("If", condition, then_branch=then, else_branch=other, outputs=outputs)


def loop(body: Body) -> str:
    if body.depth >= DEEPEST:
        return ""
    rng, item = body.rng, inner(body, body.shape)
    step, going, carried = (body.maker.fresh() for _ in range(3))
    item.floats, item.counts = [carried], []
    start = body.value()
    if rng.random() < 0.3:
        item.floats.append(item.emit("Add", carried, item.emit("Cast", step, to=FLOAT)))
    if rng.random() < 0.75:
        fill(item, rng.randint(0, 3))
        result = result_of(item)
    else:  # reads nothing around it
        result = item.emit("Mul", carried, item.constant(np.float32(0.75)))
    again = item.emit("Identity", going)
    outputs = [declared(item, again, BOOL, []), declared(item, result, shape=body.shape)]
    stacks = rng.random() < 0.3
    if stacks:
        outputs.append(declared(item, item.emit("Sigmoid", result), shape=body.shape))
    inputs = [info(step, INT, []), info(going, BOOL, [])]
    inputs.append(info(carried, shape=body.shape))
    graph = item.graph(inputs, outputs)
    count = body.constant(np.array(rng.randint(1, 3), np.int64))
    condition = rng.choice(["", body.constant(np.array(True))])
    final = body.emit("Loop", count, condition, start, body=graph, outputs=len(outputs) - 1)
    if not stacks:
        return final
    stacked = body.nodes[-1].output[1]
    row = body.emit("Gather", stacked, body.constant(np.array(0, np.int64)), axis=0)
    return body.emit("Add", final, row)


def scan(body: Body) -> str:
    if body.depth >= DEEPEST or body.shape != FULL:
        return ""
    item = inner(body, ROW)
    state, row = body.maker.fresh(), body.maker.fresh()
    item.floats = [state, row]
    start, rows = body.constant(body.maker.numbers(ROW)), body.value()
    fill(item, body.rng.randint(1, 3))
    total, result = item.emit("Tanh", item.value()), result_of(item)
    graph = item.graph(
        [info(state, shape=ROW), info(row, shape=ROW)],
        [declared(item, total, shape=ROW), declared(item, result, shape=ROW)],
    )
    body.emit("Scan", start, rows, body=graph, num_scan_inputs=1, outputs=2)
    return body.nodes[-1].output[1]


def call(body: Body) -> str:
    """Call a function, mostly a new one."""
    maker, rng = body.maker, body.rng
    if maker.opset < 16 or body.depth >= DEEPEST or body.shape != FULL:
        return ""
    if maker.functions and rng.random() < 0.4:
        name = rng.choice(maker.functions).name
    else:
        name = maker.fresh("f")
        item = Body(maker, in_function=True)
        item.floats, item.flags = ["X", "Y"], ["C"]
        fill(item, rng.randint(1, 4))
        result = result_of(item)
        opsets = [helper.make_opsetid("", maker.opset), helper.make_opsetid("my", 1)]
        maker.functions.append(
            helper.make_function("my", name, ["X", "Y", "C"], [result], item.nodes, opsets)
        )
    return body.emit(name, body.value(), body.value(), body.flag(), domain="my")


_WEIGHTED: tuple[tuple[Callable[[Body], str], int], ...] = (
    (unary, 10),
    (binary, 12),
    (product, 6),
    (norm, 4),
    (quotient, 2),
    (clip, 2),
    (where, 2),
    (layout, 3),
    (filled, 2),
    (masked, 2),
    (there_and_back, 1),
    (branches, 5),
    (loop, 5),
    (scan, 3),
    (call, 4),
)
OPERATORS = [make for make, _ in _WEIGHTED]
WEIGHTS = [weight for _, weight in _WEIGHTED]
