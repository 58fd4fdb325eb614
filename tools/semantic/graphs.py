"""Random attention graphs with layout operators put in at random, and near misses of them.

An axis is a list of letters: batch, heads, groups, queries, keys, head size, value size.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NEAR_MISSES = ("axis", "changed", "scramble")
"""The Softmax is over the queries; probabilities are changed; axes of a reshape are exchanged."""


@dataclass
class RandomGraph:
    """A graph under construction."""

    random: random.Random
    sizes: dict[str, str | int] = field(
        default_factory=lambda: {"b": "b", "s": "s", "t": "t", "h": 2, "g": 3, "d": 4, "v": 5}
    )
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    sources: dict[str, tuple[str, int]] = field(default_factory=dict)
    """An input and an axis with the size of a letter."""
    scrambles: bool = False

    def name(self) -> str:
        return f"x{len(self.nodes) + len(self.constants)}"

    def constant(self, numbers: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(numbers), name))
        return name

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def input(self, name: str, letters: Sequence[str], *, merges: bool = False) -> list[list[str]]:
        """Add an input with the letters in a random order."""
        shuffled = list(letters)
        self.random.shuffle(shuffled)
        axes = [[letter] for letter in shuffled]
        if merges and self.random.random() < 0.5:
            fixed = [x for x in shuffled if isinstance(self.sizes[x], int)]
            axes = [[x] for x in shuffled if x not in fixed] + [fixed]
            self.random.shuffle(axes)
        return self.declare(name, axes)

    def declare(self, name: str, axes: Sequence[Sequence[str]], kind: int = 1) -> list[list[str]]:
        shape: list[str | int] = []
        for place, axis in enumerate(axes):
            only = self.sizes[axis[0]] if len(axis) == 1 else None
            if isinstance(only, str):
                self.sources.setdefault(axis[0], (name, place))
                shape.append(only)
            else:
                shape.append(math.prod(int(self.sizes[letter]) for letter in axis))
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return [list(axis) for axis in axes]

    def size(self, letter: str) -> str:
        """Return a size as a vector: a constant, or read from an input."""
        size = self.sizes[letter]
        if isinstance(size, int):
            return self.constant([size])
        tensor, place = self.sources[letter]
        shape = self.op("Shape", tensor)
        if self.random.random() < 0.5:
            return self.op("Slice", shape, self.constant([place]), self.constant([place + 1]))
        scalar = self.op("Gather", shape, self.constant(place))
        return self.op("Unsqueeze", scalar, self.constant([0]))

    def reshape(
        self, tensor: str, axes: Sequence[Sequence[str]], target: Sequence[Sequence[str]]
    ) -> str:
        rest = self.random.randrange(len(target)) if self.random.random() < 0.4 else None
        parts: list[str] = []
        for place, axis in enumerate(target):
            is_copied = place < len(axes) and list(axes[place]) == list(axis) and axis
            if place == rest:
                parts.append(self.constant([-1]))
            elif is_copied and self.random.random() < 0.3:
                parts.append(self.constant([0]))
            elif not axis:
                parts.append(self.constant([1]))
            else:
                size = self.size(axis[0])
                for letter in axis[1:]:
                    size = self.op("Mul", size, self.size(letter))
                parts.append(size)
        return self.op("Reshape", tensor, self.op("Concat", *parts, axis=0))

    def wander(
        self, tensor: str, axes: Sequence[Sequence[str]], target: Sequence[Sequence[str]]
    ) -> str:
        """Apply random layout operators, then those to ``target``."""
        now = [list(axis) for axis in axes]
        for _ in range(self.random.randrange(4)):
            tensor, now = self._step(tensor, now)
        goal = [list(axis) for axis in target]
        if now == goal:
            return tensor
        flat = [[letter] for axis in now for letter in axis]
        if now != flat:
            tensor = self.reshape(tensor, now, flat)
        order = [[letter] for axis in goal for letter in axis]
        if self.scrambles and self.random.random() < 0.4:
            return self.reshape(tensor, flat, goal)  # wrong on purpose
        if order != flat:
            tensor = self.op("Transpose", tensor, perm=[flat.index(axis) for axis in order])
        return tensor if order == goal else self.reshape(tensor, order, goal)

    def _step(self, tensor: str, now: list[list[str]]) -> tuple[str, list[list[str]]]:
        choice, count = self.random.random(), len(now)
        split = [place for place, axis in enumerate(now) if len(axis) > 1]
        if choice < 0.4 and count > 1:
            order = self.random.sample(range(count), count)
            return self.op("Transpose", tensor, perm=order), [now[place] for place in order]
        if choice < 0.6 and count > 1:
            place = self.random.randrange(count - 1)
            new = [*now[:place], now[place] + now[place + 1], *now[place + 2 :]]
            return self.reshape(tensor, now, new), new
        if choice < 0.8 and split:
            place = self.random.choice(split)
            at = self.random.randrange(1, len(now[place]))
            new = [*now[:place], now[place][:at], now[place][at:], *now[place + 1 :]]
            return self.reshape(tensor, now, new), new
        if choice < 0.9:
            place = self.random.randrange(count + 1)
            wide = self.op("Unsqueeze", tensor, self.constant([place]))
            return wide, [*now[:place], [], *now[place:]]
        return self.op("Identity", tensor), now


def axes_of(text: str) -> list[list[str]]:
    """Return axes of a text as in ``b hg s d``; ``1`` is an axis without letters."""
    return [[] if word == "1" else list(word) for word in text.split()]


def attention(seed: int) -> tuple[onnx.ModelProto, str]:
    """Return a random attention, and the kind of its near miss ("" for none)."""
    chosen = random.Random(seed)
    graph = RandomGraph(chosen)
    kind = chosen.choice(["", "", "", "", "", "", "axis", "changed", "scramble", "scramble"])
    graph.scrambles = kind == "scramble"
    sharing = chosen.choice(["none", "none", "expand", "broadcast"])
    if sharing == "none" and chosen.random() < 0.3:
        operands = _packed(graph)
    else:
        letters = "bhgtd" if sharing == "none" else "bhtd"
        operands = [
            (name, graph.input(name, item, merges=True))
            for name, item in (("q", "bhgsd"), ("k", letters), ("v", letters.replace("d", "v")))
        ]
    if sharing == "expand":
        operands[1:] = [
            (_repeated(graph, tensor, axes, f"b h t {size}"), axes_of(f"b h g t {size}"))
            for (tensor, axes), size in zip(operands[1:], "dv", strict=True)
        ]
    leads = ["b h g"] if sharing == "broadcast" else ["b h g", "b hg", "bhg", "bh g"]
    lead = chosen.choice(leads)
    scores, axes = _scores(graph, operands, lead, "b h 1" if sharing == "broadcast" else lead)
    masked, axes = _masked(graph, scores, axes, lead)
    axis = len(axes) - 1
    if kind == "axis":
        axis -= 1
    elif not kind and chosen.random() < 0.2:
        order = chosen.sample(range(len(axes)), len(axes))
        masked = graph.op("Transpose", masked, perm=order)
        axes = [axes[place] for place in order]
        axis = axes.index(["t"])
    probabilities = graph.op("Softmax", masked, axis=axis)
    if kind == "changed":
        first = graph.op(
            "Slice", probabilities, graph.constant([0]), graph.constant([1]),
            graph.constant([len(axes) - 1]),
        )  # fmt: skip
        probabilities = graph.op("Expand", first, graph.op("Shape", masked))
    keys = "b h 1" if sharing == "broadcast" else lead
    if chosen.random() < 0.25:
        p = graph.wander(probabilities, axes, axes_of(f"{lead} t s"))
        v = graph.wander(*operands[2], axes_of(f"{keys} v t"))
        result, axes = graph.op("MatMul", v, p), axes_of(f"{lead} v s")
    else:
        p = graph.wander(probabilities, axes, axes_of(f"{lead} s t"))
        v = graph.wander(*operands[2], axes_of(f"{keys} t v"))
        result, axes = graph.op("MatMul", p, v), axes_of(f"{lead} s v")
    goals = ["b s hgv", "s b hgv", "b h g s v", "bs hgv", "b hgv s"]
    result = graph.wander(result, axes, axes_of(chosen.choice(goals)))
    graph.nodes.append(helper.make_node("Identity", [result], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    proto = helper.make_graph(graph.nodes, "random", graph.inputs, [output], graph.constants)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(proto, opset_imports=opsets, ir_version=9), kind


def _packed(graph: RandomGraph) -> list[tuple[str, list[list[str]]]]:
    """q, k and v are parts of one tensor."""
    chosen = graph.random
    graph.sizes.update(t="s", v=4)
    graph.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", 72]))
    graph.sources.update(b=("x", 0), s=("x", 1), t=("x", 1))
    axis = chosen.choice([2, 2, 3])
    shape = [0, 0, 3, 6, 4] if axis == 2 else [0, 0, 6, 3, 4]
    wide = graph.op("Reshape", "x", graph.constant(shape))
    way = chosen.choice(["gather", "split", "slice", "flat"])
    if way == "flat":
        bounds = [(graph.constant([24 * n]), graph.constant([24 * n + 24])) for n in range(3)]
        cuts = [graph.op("Slice", "x", *bound, graph.constant([2])) for bound in bounds]
        parts = [graph.op("Reshape", bound, graph.constant([0, 0, 6, 4])) for bound in cuts]
    elif way == "gather":
        parts = [graph.op("Gather", wide, graph.constant(n), axis=axis) for n in range(3)]
    else:
        if way == "slice":
            bounds = [(graph.constant([n]), graph.constant([n + 1])) for n in range(3)]
            cuts = [graph.op("Slice", wide, *bound, graph.constant([axis])) for bound in bounds]
        else:
            cuts = ["part0", "part1", "part2"]
            graph.nodes.append(helper.make_node("Split", [wide], cuts, axis=axis, num_outputs=3))
        parts = [graph.op("Squeeze", bound, graph.constant([axis])) for bound in cuts]
    layouts = ["b s hg d", "b t hg d", "b t hg v"]
    return [(part, axes_of(layout)) for part, layout in zip(parts, layouts, strict=True)]


def _repeated(graph: RandomGraph, tensor: str, axes: list[list[str]], target: str) -> str:
    """Repeat k or v for the groups of heads."""
    tensor = graph.wander(tensor, axes, axes_of(target))
    way, (size,) = graph.random.random(), target[-1:]
    if way < 0.3:
        many = graph.op("Gather", tensor, graph.constant([0, 0, 0, 1, 1, 1]), axis=1)
        return graph.reshape(many, axes_of(f"b hg t {size}"), axes_of(f"b h g t {size}"))
    wide = graph.op("Unsqueeze", tensor, graph.constant([2]))
    return graph.op("Tile" if way < 0.6 else "Expand", wide, graph.constant([1, 1, 3, 1, 1]))


def _scores(
    graph: RandomGraph, operands: Sequence[tuple[str, list[list[str]]]], lead: str, keys: str
) -> tuple[str, list[list[str]]]:
    chosen = graph.random
    is_turned = chosen.random() < 0.3
    q = graph.wander(*operands[0], axes_of(f"{lead} {'d s' if is_turned else 's d'}"))
    k = graph.wander(*operands[1], axes_of(f"{keys} {'t d' if is_turned else 'd t'}"))
    scaled = chosen.choice(["q", "k", "scores", "divided", ""])
    if scaled == "q":
        q = graph.op("Mul", q, graph.constant(np.float32(0.3)))
    if scaled == "k":
        k = graph.op("Mul", graph.constant(np.array([0.3], np.float32)), k)
    if keys == lead and not is_turned and chosen.random() < 0.3:
        outer = "xyz"[: len(lead.split())]
        equation = f"{outer}sd,{outer}dt->{outer}st"
        scores = graph.op("Einsum", q, k, equation=equation)
    else:
        scores = graph.op("MatMul", *((k, q) if is_turned else (q, k)))
    if scaled == "scores":
        scores = graph.op("Mul", scores, graph.constant(np.float32(0.3)))
    if scaled == "divided":
        scores = graph.op("Div", scores, graph.constant(np.float32(3)))
    if chosen.random() < 0.2:
        halved = graph.op("Div", scores, graph.constant(np.float32(2)))
        scores = graph.op("Mul", graph.op("Tanh", halved), graph.constant(np.float32(2)))
    target = axes_of(chosen.choice([f"{lead} s t", "b h g s t", "b hg s t"]))
    axes = axes_of(f"{lead} {'t s' if is_turned else 's t'}")
    return graph.wander(scores, axes, target), target


def _masked(
    graph: RandomGraph, scores: str, axes: list[list[str]], lead: str
) -> tuple[str, list[list[str]]]:
    chosen = graph.random
    del lead
    for number in range(chosen.choice([0, 1, 1, 2])):
        name, kind = f"m{number}", chosen.choice(["bt", "st", "bst", "hgst", "bool"])
        heads = axes[1:2] == [["h", "g"]] or axes[1:3] == [["h"], ["g"]]
        if axes[0] != ["b"] or (kind == "hgst" and not heads):
            kind = "st"
        if kind == "bool":
            graph.declare(name, axes_of("b t"), TensorProto.BOOL)
            places = list(range(1, len(axes) - 1))
            wide = graph.op("Unsqueeze", name, graph.constant(places))
            scores = graph.op("Where", wide, scores, graph.constant(np.float32(-1e9)))
            continue
        own = graph.declare(name, [[letter] for letter in kind])
        mask = name
        if kind == "hgst" and ["h", "g"] in axes:
            mask = graph.reshape(mask, own, axes_of("hg s t"))
        elif kind != "hgst" and own[0] == ["b"]:
            places = [place for place, axis in enumerate(axes) if axis not in own]
            mask = graph.op("Unsqueeze", mask, graph.constant(places))
        scores = graph.op("Add", *chosen.sample([scores, mask], 2))
    return scores, axes
