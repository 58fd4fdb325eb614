# pyright: basic, reportUnknownMemberType=false
"""Compare inferred sizes of random shape programs with those of ONNX Runtime.

``make shapes``: each program computes shapes from the sizes of its inputs and reshapes, expands,
slices and joins tensors with them. It runs with several sizes of the open dimensions, 0 and 1 among
them. Every size that inference gives, and every element that it knows, must be the one of the run:
numbers as they are, expressions from the sizes of the inputs, and a name that inference gave the
same size wherever it stands. Exit code 1 when one is not.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    RuntimeException,
)

from gehost.infer import infer_model
from gehost.ir.model import Model
from tools.shapes.claims import kinds, wrong

_FAILURES = (Fail, InvalidArgument, InvalidGraph, RuntimeException)

NAMES = {"A": 2, "B": 3, "C": 5}
SIZES = (0, 0, 1, 1, 2, 3, 4, 6)
ASSIGNMENTS = 8


class Program:
    """A program while it is built: what its tensors are with the sizes of ``NAMES``."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.dims: dict[str, list[str | int]] = {}
        self.tensors: dict[str, tuple[int, ...]] = {}
        """Shapes of tensors of floats."""
        self.vectors: dict[str, list[int]] = {}
        """Elements of vectors of integers."""
        for number in range(rng.randrange(1, 4)):
            dims = [rng.choice([*NAMES, 4, 12]) for _ in range(rng.randrange(1, 5))]
            name = f"x{number}"
            self.dims[name] = dims
            shown = [None if rng.random() < 0.15 else dim for dim in dims]
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shown))
            self.tensors[name] = tuple([NAMES.get(str(dim), dim) for dim in dims])  # type: ignore[misc]

    def constant(self, numbers: list[int] | int) -> str:
        name = f"c{len(self.constants)}"
        array = np.array(numbers, np.int64)
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def tensor(self) -> str:
        return self.rng.choice(list(self.tensors))

    def vector(self) -> str:
        return self.rng.choice(list(self.vectors))

    def size(self) -> tuple[str, int]:
        """A vector of one size of some tensor."""
        name = self.tensor()
        shape = self.tensors[name]
        if not shape:
            return self.constant([1]), 1
        axis = self.rng.randrange(len(shape))
        read = self.add("Shape", [name])
        self.vectors[read] = list(shape)
        if self.rng.random() < 0.5:
            result = self.add("Gather", [read, self.constant([axis])], axis=0)
        else:
            result = self.add(
                "Slice",
                [read, self.constant([axis]), self.constant([axis + 1]), self.constant([0])],
            )
        self.vectors[result] = [shape[axis]]
        return result, shape[axis]

    def entry(self, expected: int) -> str:
        """A vector of one element that is ``expected`` in this run, computed if it can be."""
        for _ in range(4):
            name, size = self.size()
            if size == expected:
                return name
            if size and expected % size == 0 and self.rng.random() < 0.7:
                factor = self.constant([expected // size])
                result = self.add("Mul", [name, factor])
                self.vectors[result] = [expected]
                return result
            other, more = self.size()
            if more * size == expected:
                result = self.add("Mul", [name, other])
            elif more + size == expected:
                result = self.add("Add", [name, other])
            elif size - more == expected:
                result = self.add("Sub", [name, other])
            elif more and size // more == expected:
                result = self.add("Div", [name, other])
            else:
                continue
            self.vectors[result] = [expected]
            return result
        return self.constant([expected])

    def step(self) -> None:
        kind = self.rng.choice(
            ["reshape"] * 5
            + [
                "expand",
                "slice",
                "transpose",
                "concat",
                "flatten",
                "tile",
                "range",
                "fill",
                "where",
            ]
            + ["broadcast"] * 3
            + ["matmul", "reduce", "unsqueeze", "pad", "resize"]
            + ["windows"] * 2
        )
        getattr(self, f"_{kind}")()

    def _target(self, shape: list[int], copied: tuple[int, ...]) -> str:
        parts: list[str] = []
        inferred = self.rng.randrange(len(shape)) if shape and self.rng.random() < 0.4 else -1
        for place, size in enumerate(shape):
            if place == inferred:
                parts.append(self.constant([-1]))
            elif place < len(copied) and copied[place] == size and self.rng.random() < 0.25:
                parts.append(self.constant([0]))
            elif self.rng.random() < 0.75:
                parts.append(self.entry(size))
            else:
                parts.append(self.constant([size]))
        if not parts:
            return self.constant([])
        return self.add("Concat", parts, axis=0)

    def _reshape(self) -> None:
        name = self.tensor()
        shape = list(self.tensors[name])
        for _ in range(self.rng.randrange(1, 3)):
            place = self.rng.randrange(len(shape)) if shape else 0
            if len(shape) > 1 and place + 1 < len(shape) and self.rng.random() < 0.5:
                shape[place : place + 2] = [shape[place] * shape[place + 1]]
            elif shape and len(shape) < 6:
                parts = [n for n in (2, 3, 4) if shape[place] and shape[place] % n == 0] or [1]
                part = self.rng.choice(parts)
                shape[place : place + 1] = [shape[place] // part, part]
        target = self._target(shape, self.tensors[name])
        zero = {"allowzero": 1} if self.rng.random() < 0.3 else {}
        result = self.add("Reshape", [name, target], **zero)
        self.tensors[result] = tuple(shape)

    def _expand(self) -> None:
        name = self.tensor()
        shape = list(self.tensors[name])
        expected = [size if self.rng.random() < 0.6 else 1 for size in shape]
        if len(expected) < 5 and self.rng.random() < 0.3:
            expected.insert(0, self.rng.choice([2, 3, 5]))
        if not expected:
            return
        for place in range(len(expected)):
            old = shape[place - len(expected)] if len(expected) - place <= len(shape) else 1
            if old == 1 and self.rng.random() < 0.5:
                expected[place] = self.rng.choice([2, 3, 5])
        target = self.add("Concat", [self.entry(size) for size in expected], axis=0)
        result = self.add("Expand", [name, target])
        self.tensors[result] = np.broadcast_shapes(tuple(shape), tuple(expected))

    def _slice(self) -> None:
        name = self.tensor()
        shape = list(self.tensors[name])
        if not shape:
            return
        axis = self.rng.randrange(len(shape))
        start, end = sorted(self.rng.choices(range(shape[axis] + 3), k=2))
        begin = self.rng.choice([start, 0, 0, -1])
        stop = self.rng.choice([end, -1, 2**31 - 1, 2**63 - 1])
        step = self.rng.choice([1, 1, 1, 2])
        where = (
            self.constant([begin]) if self.rng.random() < 0.6 or begin < 0 else self.entry(begin)
        )
        to = self.constant([stop]) if stop < 0 or stop > 99 else self.entry(stop)
        inputs = [name, where, to, self.constant([axis])]
        if step != 1:
            inputs.append(self.constant([step]))
        result = self.add("Slice", inputs)
        size = len(range(shape[axis])[slice(begin, stop, step)])
        self.tensors[result] = (*shape[:axis], size, *shape[axis + 1 :])

    def _transpose(self) -> None:
        name = self.tensor()
        order = list(range(len(self.tensors[name])))
        if not order:
            return
        self.rng.shuffle(order)
        result = self.add("Transpose", [name], perm=order)
        self.tensors[result] = tuple([self.tensors[name][axis] for axis in order])

    def _concat(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        if not shape:
            return
        axis = self.rng.randrange(len(shape))
        rest = (*shape[:axis], *shape[axis + 1 :])
        others = [
            other
            for other, tensor in self.tensors.items()
            if len(tensor) == len(shape) and (*tensor[:axis], *tensor[axis + 1 :]) == rest
        ]
        chosen = [name, self.rng.choice(others)]
        result = self.add("Concat", chosen, axis=axis)
        size = sum(self.tensors[item][axis] for item in chosen)
        self.tensors[result] = (*shape[:axis], size, *shape[axis + 1 :])

    def _flatten(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        axis = self.rng.randrange(-len(shape), len(shape) + 1)
        result = self.add("Flatten", [name], axis=axis)
        at = axis + len(shape) if axis < 0 else axis
        self.tensors[result] = (int(np.prod(shape[:at])), int(np.prod(shape[at:])))

    def _tile(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        counts = [self.rng.choice([1, 1, 2]) for _ in shape]
        if not shape or np.prod(shape) * np.prod(counts) > 5000:
            return
        target = self.add("Concat", [self.entry(count) for count in counts], axis=0)
        result = self.add("Tile", [name, target])
        self.tensors[result] = tuple([a * b for a, b in zip(shape, counts, strict=True)])

    def _range(self) -> None:
        name, size = self.size()
        more, start = self.size()
        scalars = [self.add("Squeeze", [item, self.constant([0])]) for item in (name, more)]
        limit, begin, length = scalars[0], self.constant(0), size
        if self.rng.random() < 0.5:
            limit = self.add("Add", scalars)
            if self.rng.random() < 0.6:
                begin = scalars[1]
            else:
                length = size + start
        result = self.add("Range", [begin, limit, self.constant(1)])
        cast = self.add("Cast", [result], to=TensorProto.FLOAT)
        self.tensors[cast] = (length,)

    def _fill(self) -> None:
        sizes = [self.rng.choice([1, 2, 3, 4, 5]) for _ in range(self.rng.randrange(1, 4))]
        target = self.add("Concat", [self.entry(size) for size in sizes], axis=0)
        self.tensors[self.add("ConstantOfShape", [target])] = tuple(sizes)

    def _where(self) -> None:
        if not self.vectors:
            return
        name = self.vector()
        result = self.vectors[name]
        number = self.rng.choice([*result, -1])
        test = self.add("Equal", [name, self.constant([number])])
        output = self.add("Where", [test, self.constant([7]), name])
        self.vectors[output] = [7 if entry == number else entry for entry in result]

    def _broadcast(self) -> None:
        one, other = self.tensor(), self.tensor()
        try:
            shape = np.broadcast_shapes(self.tensors[one], self.tensors[other])
        except ValueError:
            return
        if np.prod(shape) > 5000:
            return
        result = self.add(self.rng.choice(["Add", "Mul"]), [one, other])
        self.tensors[result] = shape

    def _matmul(self) -> None:
        one, other = self.tensor(), self.tensor()
        a, b = self.tensors[one], self.tensors[other]
        try:
            shape = np.matmul(np.zeros(a), np.zeros(b)).shape
        except ValueError:
            return
        if np.prod(shape) > 5000:
            return
        self.tensors[self.add("MatMul", [one, other])] = shape

    def _reduce(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        if not shape:
            return
        axis, retained = self.rng.randrange(len(shape)), self.rng.randrange(2)
        result = self.add("ReduceSum", [name, self.constant([axis])], keepdims=retained)
        self.tensors[result] = (*shape[:axis], *((1,) if retained else ()), *shape[axis + 1 :])

    def _pad(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        if not shape or np.prod(shape) > 5000:
            return
        around = [self.rng.choice([0, 0, 1, 2, -1]) for _ in range(2 * len(shape))]
        half = [max(0, around[a] + around[a + len(shape)] + d) for a, d in enumerate(shape)]
        parts = [self.entry(n) if n > 0 else self.constant([n]) for n in around]
        self.tensors[self.add("Pad", [name, self.add("Concat", parts, axis=0)])] = tuple(half)

    def _resize(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        if not shape or np.prod(shape) > 2000:
            return
        scales = [self.rng.choice([1.0, 1.0, 2.0, 0.5]) for _ in shape]
        constant = f"c{len(self.constants)}"
        array = np.array(scales, np.float32)
        self.constants.append(onnx.numpy_helper.from_array(array, constant))
        result = self.add("Resize", [name, "", constant], mode="nearest")
        self.tensors[result] = tuple([int(d * s) for d, s in zip(shape, scales, strict=True)])

    def _windows(self) -> None:
        """A pooling or convolution, of every axis but the first two."""
        name = self.tensor()
        shape, r = self.tensors[name], self.rng
        if not 3 <= len(shape) <= 5 or 0 in shape or np.prod(shape) > 5000:
            return
        count = len(shape) - 2
        kernel = [r.choice([1, 2, 3]) for _ in range(count)]
        strides = [r.choice([1, 2, 3]) for _ in range(count)]
        attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides}
        op = r.choice(["Conv", "Conv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose"])
        if r.random() < 0.2:
            attributes["auto_pad"] = r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif r.random() < 0.6:
            attributes["pads"] = [min(k - 1, r.choice([0, 1])) for k in kernel * 2]
        if op in ("Conv", "ConvTranspose", "MaxPool") and r.random() < 0.2:
            attributes["dilations"] = [r.choice([1, 2]) for _ in range(count)]
        if "Pool" in op and op != "LpPool" and r.random() < 0.2:
            attributes["ceil_mode"] = 1
        read = [name]
        if "Conv" in op:
            weights = (2, shape[1], *kernel) if op == "Conv" else (shape[1], 2, *kernel)
            read.append(f"c{len(self.constants)}")
            array = np.ones(weights, np.float32)
            self.constants.append(onnx.numpy_helper.from_array(array, read[1]))
        node = helper.make_node(op, read, ["y"], **attributes)
        try:
            results = onnx.reference.ReferenceEvaluator(node).run(
                None,
                {name: np.ones(shape, np.float32), **dict.fromkeys(read[1:], array)}
                if "Conv" in op
                else {name: np.ones(shape, np.float32)},
            )
        except Exception:  # noqa: BLE001 - a window that does not fit
            return
        self.tensors[self.add(op, read, **attributes)] = np.shape(results[0])

    def _unsqueeze(self) -> None:
        name = self.tensor()
        shape = self.tensors[name]
        axis = self.rng.randrange(len(shape) + 1)
        if len(shape) < 6:
            result = self.add("Unsqueeze", [name, self.constant([axis])])
            self.tensors[result] = (*shape[:axis], 1, *shape[axis:])

    def model(self) -> onnx.ModelProto:
        outputs = [
            helper.make_empty_tensor_value_info(name) for node in self.nodes for name in node.output
        ]
        graph = helper.make_graph(self.nodes, "shapes", self.inputs, outputs, self.constants)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare inferred sizes with runs.")
    parser.add_argument("--programs", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    argument = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    counts: Counter[str] = Counter()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    for number in range(argument.programs):
        rng = random.Random(argument.seed * 1_000_003 + number)
        program = Program(rng)
        program.size()
        while len(program.nodes) < 24:
            program.step()
        proto = program.model()
        model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
        infer_model(model)
        counts["programs"] += 1
        try:
            session = onnxruntime.InferenceSession(
                proto.SerializeToString(), options, ["CPUExecutionProvider"]
            )
        except _FAILURES:
            counts["refused"] += 1
            continue
        outputs = [output.name for output in session.get_outputs()]
        for trial in range(ASSIGNMENTS):
            sizes = dict(NAMES) if not trial else {name: rng.choice(SIZES) for name in NAMES}
            feeds = {
                name: np.ones([int(sizes.get(str(dim), dim)) for dim in dims], np.float32)
                for name, dims in program.dims.items()
            }
            try:
                results = feeds | dict(zip(outputs, session.run(outputs, feeds), strict=True))
            except _FAILURES:
                counts["failed runs"] += 1
                continue
            counts["runs"] += 1
            counts["runs with a 0"] += 0 in sizes.values()
            if not trial:
                counts.update({f"sizes: {kind}": n for kind, n in kinds(model).items()})
            result = wrong(model, sizes, results)
            if result:
                counts["wrong"] += 1
                if counts["wrong"] < 6:
                    print(
                        number,
                        result[:2],
                        onnx.printer.to_text(proto) if counts["wrong"] < 2 else "",
                        sep="\n",
                        flush=True,
                    )
                break
    print(json.dumps(counts, indent=1))
    return 1 if counts["wrong"] or not counts["runs"] else 0


raise SystemExit(main())
