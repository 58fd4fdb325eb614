"""Random graphs with attention: how exporters write it, and sizes that are rare."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LOWEST = float(np.finfo(np.float32).min)
FILLS = (-math.inf, LOWEST, -3.4028e38, -1e30, -1e4)
Size = int | str


@dataclass
class AttentionGraph:
    """A model, and sizes and shapes of its inputs, from which feeds are drawn."""

    proto: onnx.ModelProto
    sizes: dict[str, tuple[int, ...]]
    """What each open size may be; a fixed one is no entry."""
    shapes: dict[str, list[Size]]
    features: list[str]

    def feeds(self, seed: int, count: int) -> list[dict[str, np.ndarray]]:
        """Return feeds of several choices of the open sizes."""
        rng, numbers = random.Random(seed), np.random.default_rng(seed)
        drawing: list[dict[str, np.ndarray]] = []
        for _ in range(count):
            chosen = {name: rng.choice(several) for name, several in self.sizes.items()}
            drawing.append(
                {
                    name: self._draw(name, [_number(one, chosen) for one in shape], numbers)
                    for name, shape in self.shapes.items()
                }
            )
        return drawing

    def _draw(self, name: str, shape: list[int], numbers: np.random.Generator) -> np.ndarray:
        if name.startswith("keep"):
            return numbers.random(shape) < 0.7
        if name.startswith("mask"):
            fill = numbers.choice([-1e4, LOWEST]) if name.endswith("low") else -1.0
            return np.where(numbers.random(shape) < 0.7, 0, fill).astype(np.float32)
        return numbers.standard_normal(shape).astype(np.float32)


def _number(size: Size, chosen: dict[str, int]) -> int:
    """A number, or a symbol, or a sum of both."""
    if isinstance(size, int):
        return size
    return sum(int(one) if one.isdigit() else chosen[one] for one in size.split("+"))


@dataclass
class _Maker:
    rng: random.Random
    numbers: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    inputs: dict[str, tuple[int, list[Size]]] = field(
        default_factory=dict[str, tuple[int, list[Size]]]
    )
    outputs: list[str] = field(default_factory=list[str])
    features: list[str] = field(default_factory=list[str])

    def op(self, op_type: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{place}" for place in range(count)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names if count > 1 else names[0]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.numbers.standard_normal(shape) / 3, np.float32)

    def feed(self, name: str, shape: list[Size], dtype: int = TensorProto.FLOAT) -> str:
        self.inputs[name] = dtype, shape
        return name

    def choose(self, feature: str, *choices: Any) -> Any:
        """One of several; its name is a feature of the graph."""
        chosen = self.rng.choice(choices)
        self.features.append(f"{feature}: {chosen}")
        return chosen

    def turned(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=list(perm))

    def axes(self, op_type: str, x: str, *axes: int) -> str:
        return self.op(op_type, x, self.constant(list(axes)))

    def size(self, x: str, axis: int) -> str:
        """A size of a tensor as a vector."""
        return self.op("Gather", self.op("Shape", x), self.constant([axis]), axis=0)

    def view(self, x: str, *sizes: Any) -> str:
        """Reshape; a size is a number, or the (tensor, axis) that it is read from."""
        if all(isinstance(one, int) for one in sizes):
            return self.op("Reshape", x, self.constant(list(sizes)))
        parts = [self.constant([one]) if isinstance(one, int) else self.size(*one) for one in sizes]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def linear(self, x: str, width: int, columns: int) -> str:
        result = self.op("MatMul", x, self.weight(width, columns))
        if self.rng.random() < 0.7:
            bias = self.weight(columns)
            result = self.op("Add", *self.rng.sample([result, bias], 2))
        return result


def attention_graph(seed: int) -> AttentionGraph:
    """Return the graph of a seed."""
    rng = random.Random(seed)
    maker = _Maker(rng, np.random.default_rng(seed), rng.choice((*range(13, 23), *(23, 24) * 3)))
    maker.features.append(f"opset: {maker.opset}")
    return _Layer(maker).build()


class _Layer:
    """One attention with what is before and behind it."""

    def __init__(self, maker: _Maker) -> None:
        self.m = maker
        rng = maker.rng
        self.heads = rng.choice((1, 2, 4))
        self.groups = rng.choice([n for n in (1, 2, 4) if self.heads % n == 0])
        if rng.random() < 0.6:
            self.groups = self.heads
        self.head = rng.choice((3, 4, 8, 16))
        self.values = self.head if rng.random() < 0.6 else rng.choice((2, 4, 8))
        self.decodes = rng.random() < 0.15
        """Whether it has what GroupQueryAttention asks for: sizes, a causal mask, no cross keys."""
        self.has_softcap = rng.random() < (0.5 if self.decodes else 0.2)
        if self.decodes:
            maker.features.append("decoder")
            self.head = self.values = rng.choice((8, 16))
        self.width = rng.choice((self.heads * self.head, 6))
        self.sizes: dict[str, tuple[int, ...]] = {}
        forms = ("heads", "heads", "heads", "folded", "rows first", "given apart")
        self.form = maker.choose("form", *forms)
        # without rows, a target [-1, 0, H] copies the count of heads of [B, N, 0, H]
        lengths = (1, 5, 13) if self.form == "folded" else (0, 1, 13)
        if self.decodes or (self.has_softcap and rng.random() < 0.5):
            # kernels with a softcap take no empty tensor, and after a past one row or one batch
            self.batch, self.rows = rng.choice(((1, 13), (1, 5), (3, 1), (3, 13)))
        else:
            self.batch = self._size("B", (0, 1, 3))
            self.rows = self._size("S", lengths)
        keys = ("self", "self", "self", "self" if self.decodes else "cross")
        self.is_cross = maker.choose("keys", *keys) == "cross"
        self.columns = self._size("T", lengths) if self.is_cross else self.rows
        maker.features.append("groups" if self.groups != self.heads else "heads")
        maker.features.append("V != H" if self.values != self.head else "V == H")

    def _size(self, name: str, choices: tuple[int, ...]) -> Size:
        if self.m.rng.random() < 0.25:
            return self.m.rng.choice(choices)
        self.sizes[name] = choices
        return name

    def build(self) -> AttentionGraph:
        m = self.m
        x = m.feed("x", [self.batch, self.rows, self.width])
        source = m.feed("xk", [self.batch, self.columns, self.width]) if self.is_cross else x
        q, k, v = self._heads(x, source)
        k, v = self._past(k, v)
        k, v = self._repeated(k, 0), self._repeated(v, 1)
        mixed = self._mixed(q, k, v)
        joined = self._joined(mixed, x)
        self._behind(joined, x)
        return self._graph()

    def _heads(self, x: str, source: str) -> tuple[str, str, str]:
        """q, k and v as [B, N, S, H]."""
        m = self.m
        expected = (
            (x, self.heads, self.head, self.rows),
            (source, self.groups, self.head, self.columns),
            (source, self.groups, self.values, self.columns),
        )
        if self.form == "given apart":
            return tuple(  # pyright: ignore[reportReturnType]
                m.feed(name, [self.batch, heads, length, size])
                for name, (_, heads, size, length) in zip("qkv", expected, strict=True)
            )
        packing = m.choose("projections", "separate", "packed", "none")
        if packing == "packed" and not self.is_cross:
            whole = m.linear(x, self.width, sum(n * size for _, n, size, _ in expected))
            parts = m.constant([n * size for _, n, size, _ in expected])
            flat = m.op("Split", whole, parts, count=3, axis=m.rng.choice((2, -1)))
        elif packing == "none":
            flat = [
                m.feed(f"{name}_in", [self.batch, length, heads * size])
                for name, (_, heads, size, length) in zip("qkv", expected, strict=True)
            ]
        else:
            flat = [m.linear(argument, self.width, n * size) for argument, n, size, _ in expected]
        shape = m.choose("shape", "zeros", "rest", "computed")
        heads = [
            self._split(one, n, size, shape)
            for one, (_, n, size, _) in zip(flat, expected, strict=True)
        ]
        if (
            self.form == "rows first"
        ):  # an operator between, as a rotation or a normalization of heads
            heads = [m.op("Neg", one) for one in heads]
        q, k, v = (m.turned(one, 0, 2, 1, 3) for one in heads)
        return (m.op("Tanh", q), m.op("Tanh", k), v) if m.rng.random() < 0.2 else (q, k, v)

    def _split(self, x: str, heads: int, size: int, shape: str) -> str:
        m = self.m
        if shape == "computed":
            return m.view(x, (x, 0), (x, 1), heads, size)
        if shape == "rest":
            return m.view(x, 0, -1, heads, size)
        return m.view(x, 0, 0, heads, size)

    def _past(self, k: str, v: str) -> tuple[str, str]:
        m = self.m
        if self.is_cross or m.rng.random() < 0.75:
            return k, v
        m.features.append("past")
        past = self._size("P", (0, 1, 4))
        both: list[str] = []
        for name, new, size in (("past_k", k, self.head), ("past_v", v, self.values)):
            argument = m.feed(name, [self.batch, self.groups, past, size])
            both.append(m.op("Concat", argument, new, axis=2))
        if m.rng.random() < 0.5:
            m.outputs += both
        self.columns = f"{past}+{self.rows}"
        return both[0], both[1]

    def _repeated(self, x: str, slot: int) -> str:
        m, times = self.m, self.heads // self.groups
        if times == 1:
            return x
        wide = m.op("Expand", m.axes("Unsqueeze", x, 2), m.constant([1, 1, times, 1, 1]))
        size = (self.head, self.values)[slot]
        return m.view(wide, 0, self.heads, -1, size)

    def _mixed(self, q: str, k: str, v: str) -> str:
        m = self.m
        scale = m.choose("scale", "none", "Mul", "Div", "Mul q", "Div q", "roots", "Mul kt")
        number = m.rng.choice((0.5, 1.0, 1 / math.sqrt(self.head)))
        factor = m.constant(number, np.float32)
        inverse = m.constant(1 / number, np.float32)
        root = m.constant(math.sqrt(number), np.float32)
        if scale in ("Mul q", "Div q"):
            q = m.op(scale[:3], q, factor if scale == "Mul q" else inverse)
        folded = self.form == "folded"
        if folded:
            apart = (q, 0)
            q, k, v = (m.view(one, -1, (one, 2), size) for one, size in self._three(q, k, v))
            kt = m.turned(k, 0, 2, 1)
        else:
            apart = ("", 0)
            kt = self._turned_keys(k)
        if scale == "roots":
            q, kt = m.op("Mul", q, root), m.op("Mul", root, kt)
        if scale == "Mul kt":
            kt = m.op("Mul", kt, factor)
        scores = m.op("MatMul", q, kt)
        if scale in ("Mul", "Div"):
            scores = m.op(scale, scores, factor if scale == "Mul" else inverse)
        scores = self._capped(scores)
        if folded:
            rows, columns = (scores, 1), (scores, 2)
            scores = m.view(scores, apart, self.heads, rows, columns)
        scores = self._masked(scores)
        shares = m.op("Softmax", scores, axis=m.rng.choice((3, -1)))
        if m.rng.random() < 0.3:
            m.features.append("guard")
            shares = m.op("Where", m.op("IsNaN", shares), m.constant(0, np.float32), shares)
        if m.rng.random() < 0.05:
            m.outputs.append(shares)
        if not folded:
            return m.op("MatMul", shares, v)
        shares = m.view(shares, -1, (shares, 2), (shares, 3))
        mixed = m.op("MatMul", shares, v)
        return m.view(mixed, apart, self.heads, (mixed, 1), self.values)

    def _capped(self, scores: str) -> str:
        """``c · tanh(scores / c)``; of one negative factor it is no cap that a kernel has."""
        m = self.m
        if not self.has_softcap:
            return scores
        cap = m.rng.choice((0.5, 2.0, 5.0))
        forms = ("Mul", "Div", "Tanh alone", "two negative", "one negative")
        form = m.choose("softcap", *forms)
        if form == "Tanh alone":
            return m.op("Tanh", scores)
        inner, outer = {
            "two negative": (-1 / cap, -cap),
            "one negative": m.rng.choice(((-1 / cap, cap), (1 / cap, -cap))),
        }.get(form, (1 / cap, cap))
        if form == "Div":
            scores = m.op("Div", scores, m.constant(cap, np.float32))
        else:
            scores = m.op("Mul", *m.rng.sample([scores, m.constant(inner, np.float32)], 2))
        capped = m.op("Tanh", scores)
        return m.op("Mul", *m.rng.sample([capped, m.constant(outer, np.float32)], 2))

    def _three(self, q: str, k: str, v: str) -> list[tuple[str, int]]:
        return [(q, self.head), (k, self.head), (v, self.values)]

    def _turned_keys(self, k: str) -> str:
        m = self.m
        how = m.choose("turn", "last", "last", "reshapes")
        if how == "reshapes":
            flat = m.view(k, -1, (k, 2), self.head)
            return m.view(m.turned(flat, 0, 2, 1), (k, 0), self.heads, self.head, (k, 2))
        producer = next((node for node in m.nodes if k in node.output), None)
        straight = producer is not None and producer.op_type == "Transpose"
        if straight and m.rng.random() < 0.4:  # with the heads, at once
            return m.turned(producer.input[0], 0, 2, 3, 1)
        return m.turned(k, 0, 1, 3, 2)

    def _masked(self, scores: str) -> str:
        m = self.m
        kinds = ("none", "none", "added", "added", "Where", "masked_fill", "causal")
        kind = m.choose("mask", *(kinds[-1:] if self.decodes else kinds))
        if kind == "none":
            return scores
        shape: list[Size] = m.rng.choice(
            (
                [self.batch, 1, self.rows, self.columns],
                [1, 1, self.rows, self.columns],
                [self.batch, 1, 1, self.columns],
                [self.batch, self.heads, self.rows, self.columns],
                [self.rows, self.columns],
                [1, self.rows, self.columns],
            )
        )
        fill = m.constant(m.choose("fill", *FILLS), np.float32)
        zero = m.constant(0, np.float32)
        if kind == "added":
            mask = m.feed(m.rng.choice(("mask", "mask_low")), shape)
        elif kind == "causal":
            mask = self._causal(scores, fill, zero)
        else:
            keep = m.feed("keep", shape, TensorProto.BOOL)
            if kind == "masked_fill":
                no = m.op("Not", keep)
                return m.op("Where", no, fill, scores)
            mask = m.op("Where", keep, zero, fill)
        return m.op("Add", *m.rng.sample([scores, mask], 2))

    def _causal(self, scores: str, fill: str, zero: str) -> str:
        """A mask made from the sizes of the scores; rows may begin behind a past."""
        m = self.m
        sizes = m.size(scores, 2), m.size(scores, 3)
        rows, columns = (m.op("Squeeze", one, m.constant([0])) for one in sizes)
        start, step = m.constant(0), m.constant(1)
        first = m.op("Sub", columns, rows) if self.decodes or m.rng.random() < 0.3 else start
        if m.opset >= 14 and m.rng.random() < 0.5:
            fills = m.op("Expand", fill, m.op("Concat", *sizes, axis=0))
            return m.op("Trilu", fills, m.op("Add", first, step), upper=1)
        row = m.op("Range", first, m.op("Add", first, rows), step)
        row, column = m.axes("Unsqueeze", row, 1), m.op("Range", start, columns, step)
        hidden = m.op("Less", row, column)
        if m.rng.random() < 0.3:
            m.features.append("window")
            distance = m.op("Sub", row, column)
            far = m.op("Less", m.constant(m.rng.choice((0, 2, 5))), distance)
            hidden = m.op("Or", hidden, far)
        return m.op("Where", hidden, fill, zero)

    def _joined(self, mixed: str, x: str) -> str:
        m = self.m
        turned, width = m.turned(mixed, 0, 2, 1, 3), self.heads * self.values
        how = m.choose("join", "zeros", "rest", "computed")
        if how == "computed":
            return m.view(turned, (x, 0), (x, 1), width)
        return m.view(turned, 0, 0, -1 if how == "rest" else width)

    def _behind(self, joined: str, x: str) -> None:
        m = self.m
        kind = m.choose("behind", "nothing", "linear", "residual", "residual")
        if kind == "nothing":
            m.outputs.append(joined)
            return
        result = m.linear(joined, self.heads * self.values, self.width)
        if kind == "linear":
            m.outputs.append(result)
            return
        total = m.op("Add", *m.rng.sample([result, x], 2))
        if m.opset >= 17 and m.rng.random() < 0.5:
            scale, bias = m.weight(self.width), m.weight(self.width)
            m.outputs.append(m.op("LayerNormalization", total, scale, bias, axis=-1))
            return
        square = m.op("Mul", total, total)
        mean = (
            m.op("ReduceMean", square, m.constant([-1]))
            if m.opset >= 18
            else m.op("ReduceMean", square, axes=[-1])
        )
        spread = m.op("Sqrt", m.op("Add", mean, m.constant(0.5, np.float32)))
        m.outputs.append(m.op("Mul", m.op("Div", total, spread), m.weight(self.width)))

    def _graph(self) -> AttentionGraph:
        m = self.m
        named = m.rng.random() < 0.8  # or without a name, equal to nothing
        infos = [
            helper.make_tensor_value_info(
                name, dtype, [one if named or isinstance(one, int) else None for one in shape]
            )
            for name, (dtype, shape) in m.inputs.items()
        ]
        read = {name for node in m.nodes for name in node.input}
        infos = [info for info in infos if info.name in read]
        ranks = dict.fromkeys(m.outputs[-1:], 3)
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * ranks.get(name, 4))
            for name in dict.fromkeys(m.outputs)
        ]
        graph = helper.make_graph(m.nodes, "attention", infos, results, m.constants)
        imports = [helper.make_opsetid("", m.opset)]
        proto = helper.make_model(graph, opset_imports=imports, ir_version=10)
        shapes = {info.name: m.inputs[info.name][1] for info in infos}
        return AttentionGraph(proto, self.sizes, shapes, m.features)
