"""Random valid models with everything in them that breaks rewriters; each runs in ONNX Runtime.

Every tensor has its size for the sizes that are fed in the end, whatever the model declares, so that each operator can
be given operands that fit.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSETS = (7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24)
_COMMON = (9, 11, 13, 17, 18, 21)
IR_VERSIONS = {
    7: 3,
    8: 3,
    9: 4,
    10: 5,
    11: 6,
    12: 7,
    13: 7,
    14: 7,
    15: 8,
    16: 8,
    17: 8,
    18: 8,
    19: 9,
    20: 9,
    21: 10,
    22: 10,
}
FLOATS = ("float32", "float64")
ODD_FLOATS = (np.nan, np.inf, -np.inf, -0.0, 0.0)


@dataclass(frozen=True)
class Tensor:
    """A tensor of the model being made, with the size that it has when the model runs."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elem_type(self) -> int:
        return (
            onnx.TensorProto.STRING
            if self.dtype == "object"
            else helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        )


@dataclass(frozen=True)
class RandomModel:
    """A model, the inputs that it is run on, and the sizes of its symbolic dimensions."""

    seed: int
    proto: onnx.ModelProto
    feeds: tuple[dict[str, np.ndarray], ...]
    other_sizes: dict[str, np.ndarray] | None
    """Inputs of other sizes, where sizes are symbolic; the model may not take them."""


@dataclass
class Scope:
    """One graph under construction."""

    maker: Maker
    outer: Scope | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    made: list[Tensor] = field(default_factory=list)
    """What nodes make, without constants."""

    @property
    def rng(self) -> random.Random:
        return self.maker.rng

    @property
    def opset(self) -> int:
        return self.maker.opset

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else self.outer.depth + 1

    def visible(self) -> list[Tensor]:
        return ([] if self.outer is None else self.outer.visible()) + self.tensors

    def find(self, fits: Callable[[Tensor], bool] = lambda _: True) -> Tensor | None:
        """A tensor that fits: mostly a recent one."""
        fitting = [tensor for tensor in self.visible() if fits(tensor)]
        return (
            self.rng.choice(fitting[-6:] if self.rng.random() < 0.7 else fitting)
            if fitting
            else None
        )

    def emit(
        self,
        op: str,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[tuple[str, tuple[int, ...]] | None],
        **attributes: Any,
    ) -> list[Tensor]:
        """Add a node whose outputs have these dtypes and shapes (None: left out); returns the tensors that are there."""
        maker = self.maker
        results = [None if kind is None else Tensor(maker.fresh("t"), *kind) for kind in outputs]
        names = ["" if tensor is None else tensor.name for tensor in inputs]
        node = helper.make_node(
            op, names, ["" if tensor is None else tensor.name for tensor in results], **attributes
        )
        if self.rng.random() < 0.6:
            node.name = maker.fresh(op.lower())
        self.nodes.append(node)
        present = [tensor for tensor in results if tensor is not None]
        self.tensors.extend(present)
        self.made.extend(present)
        return present

    def constant(self, array: Any, dtype: str = "") -> Tensor:
        """A constant: an initializer, shared or in an outer graph or a graph input too, or a ``Constant`` node."""
        rng, maker = self.rng, self.maker
        array = np.asarray(array, dtype or None)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key in maker.shared and rng.random() < 0.6:
            return maker.shared[key]
        tensor = Tensor(maker.fresh("c"), array.dtype.name, array.shape)
        as_node = self.opset >= 9 or array.dtype.kind == "f"  # earlier a Constant holds floats only
        home = self
        if as_node and (rng.random() < 0.25 or (self.outer is not None and maker.ir_version < 4)):
            self.nodes.append(
                helper.make_node(
                    "Constant", [], [tensor.name], value=numpy_helper.from_array(array)
                )
            )
        else:
            home = maker.root if rng.random() < 0.3 or maker.ir_version < 4 else self
            if home is not self:
                tensor = replace(tensor, name=f"g{len(home.initializers)}{tensor.name}")
            home.initializers.append(numpy_helper.from_array(array, tensor.name))
        if not _is_extreme(array):
            home.tensors.append(tensor)
        if home is maker.root:
            maker.shared[key] = tensor
        return tensor

    def axes(
        self,
        op: str,
        inputs: list[Tensor | None],
        axes: Sequence[int],
        since: int,
        slot: int,
        out: Any,
        **more: Any,
    ) -> Tensor:
        """A node whose ``axes`` are an attribute before opset ``since``, then an input."""
        if self.opset < since:
            return self.emit(op, inputs, [out], axes=list(axes), **more)[0]
        padded = [*inputs, *[None] * (slot - len(inputs)), self.constant(list(axes), "int64")]
        return self.emit(op, padded, [out], **more)[0]

    def graph(
        self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> onnx.GraphProto:
        """This scope as the body of a node."""

        def declared(tensors: Sequence[Tensor]) -> list[onnx.ValueInfoProto]:
            return [
                helper.make_tensor_value_info(tensor.name, tensor.elem_type, [None] * tensor.rank)
                for tensor in tensors
            ]

        return helper.make_graph(
            self.nodes, name, declared(inputs), declared(outputs), self.initializers
        )


class Maker:
    """Makes one model from one seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.opset = self.rng.choice(_COMMON if self.rng.random() < 0.6 else OPSETS)
        self.ir_version = IR_VERSIONS.get(
            self.opset, 11 if self.opset == 23 else 12 if self.opset >= 24 else 10
        )
        self.shared: dict[Any, Tensor] = {}
        self.symbolic = self.rng.random() < 0.35
        self.empty = self.rng.random() < 0.06
        self.sizes = [self.rng.choice([1, 2, 2, 3, 4]) for _ in range(3)]
        if self.empty:
            self.sizes[self.rng.randrange(3)] = 0
        self.root = Scope(self)
        self.inputs: list[Tensor] = []
        self._count = itertools.count(1)
        self._used: set[str] = set()

    def fresh(self, stem: str) -> str:
        """A name; seldom one that a pass would choose."""
        if self.rng.random() < 0.02:
            selected = f"P{self.rng.randint(0, 3)}_{self.rng.choice(['Add', 'Mul', 'Identity', 'Constant'])}_{self.rng.randint(0, 2)}"
            if selected not in self._used:
                self._used.add(selected)
                return selected
        return f"{stem}{next(self._count)}"

    @contextmanager
    def same_names(self, *, again: bool) -> Generator[Callable[[], None]]:
        """Let bodies that stand beside each other have the same names: what is given counts from here with each call."""
        start, furthest = next(self._count), 0

        def restart() -> None:
            nonlocal furthest
            if again:
                furthest = max(furthest, next(self._count))
                self._count = itertools.count(start)

        yield restart
        self._count = itertools.count(max(furthest, next(self._count)))

    def full_shape(self) -> tuple[int, ...]:
        """The shape that most tensors have, with some of its leading dimensions."""
        return tuple(self.sizes[self.rng.choice([0, 0, 1, 1, 2]) :])

    def small_shape(self) -> tuple[int, ...]:
        """A shape that broadcasts into the full one."""
        shape = [size if self.rng.random() < 0.6 else 1 for size in self.sizes]
        return tuple(shape[self.rng.randint(0, 3) :])

    def numbers(self, dtype: str, shape: Sequence[int], *, odd: float = 0.0) -> np.ndarray:
        """Random elements; a share of ``odd`` of the floating-point ones are NaN, infinite or a zero."""
        count = int(np.prod(shape))
        if dtype == "bool":
            items: list[Any] = [self.rng.random() < 0.5 for _ in range(count)]
        elif dtype.startswith("int"):
            items = [self.rng.randint(-3, 3) for _ in range(count)]
        else:
            items = [
                self.rng.choice(ODD_FLOATS) if self.rng.random() < odd else self.rng.gauss(0, 1)
                for _ in range(count)
            ]
        return np.array(items, dtype).reshape(tuple(shape))

    def make(self, size: int, fill: Callable[[Scope, int], None]) -> RandomModel:
        """A model of about ``size`` nodes that ``fill`` adds."""
        rng, root = self.rng, self.root
        for dtype in (
            "float32",
            *rng.choices(["float32", "float32", "int64", "bool", "float64"], k=rng.randint(1, 3)),
        ):
            self._input(dtype, self.full_shape())
        self._input("bool", ())
        for _ in range(rng.randint(1, 3)):
            root.constant(self.numbers("float32", self.small_shape(), odd=rng.choice([0, 0, 0.2])))
        fill(root, size)
        declared = self._declared_inputs()
        graph = helper.make_graph(
            root.nodes, "fuzzed", declared, self._outputs(), root.initializers
        )
        opset = helper.make_opsetid("", self.opset)
        proto = helper.make_model(
            graph, opset_imports=[opset], ir_version=self.ir_version, producer_name="fuzz"
        )
        if rng.random() < 0.3:
            proto = onnx.shape_inference.infer_shapes(proto, data_prop=rng.random() < 0.5)
        feeds = tuple(self._feed(odd) for odd in (0.0, 0.3, 0.05))
        return RandomModel(
            self.seed, proto, feeds, self._resized(declared) if self.symbolic else None
        )

    def _input(self, dtype: str, shape: tuple[int, ...]) -> None:
        tensor = Tensor(self.fresh("x"), dtype, shape)
        self.inputs.append(tensor)
        self.root.tensors.append(tensor)

    def _declared_inputs(self) -> list[onnx.ValueInfoProto]:
        results = []
        for tensor in self.inputs:
            dims = [
                self._dim(place + 3 - tensor.rank, size) for place, size in enumerate(tensor.shape)
            ]
            results.append(helper.make_tensor_value_info(tensor.name, tensor.elem_type, dims))
        for constant in self.root.initializers:
            if self.ir_version < 4 or self.rng.random() < 0.05:
                results.append(
                    helper.make_tensor_value_info(
                        constant.name, constant.data_type, list(constant.dims)
                    )
                )
        return results

    def _dim(self, place: int, size: int) -> int | str | None:
        if not self.symbolic or self.rng.random() < 0.2:
            return size
        return None if self.rng.random() < 0.2 else f"d{place}"

    def _outputs(self) -> list[onnx.ValueInfoProto]:
        """What nobody reads, mostly, and some of the rest."""
        root, rng = self.root, self.rng
        read = {name for node in root.nodes for name in _read(node)}
        unread = [tensor for tensor in root.made if tensor.name not in read]
        chosen = [
            tensor
            for tensor in root.made
            if (tensor in unread and rng.random() < 0.9) or rng.random() < 0.12
        ]
        chosen = chosen or root.made[-1:]
        rng.shuffle(chosen)
        if (
            rng.random() < 0.05 and self.ir_version >= 4
        ):  # an input or initializer that goes straight through
            chosen.append(
                rng.choice([tensor for tensor in root.tensors if tensor not in root.made])
            )
        return [
            helper.make_tensor_value_info(
                tensor.name,
                tensor.elem_type,
                [None] * tensor.rank if self.symbolic else tensor.shape,
            )
            for tensor in chosen
        ]

    def _feed(self, odd: float) -> dict[str, np.ndarray]:
        return {
            tensor.name: self.numbers(tensor.dtype, tensor.shape, odd=odd) for tensor in self.inputs
        }

    def _resized(self, infos: Sequence[onnx.ValueInfoProto]) -> dict[str, np.ndarray]:
        """Inputs whose symbolic dimensions are one larger."""
        declared = {info.name: info.type.tensor_type.shape.dim for info in infos}
        return {
            tensor.name: self.numbers(
                tensor.dtype,
                [
                    size if dim.HasField("dim_value") else size + 1
                    for size, dim in zip(tensor.shape, declared[tensor.name], strict=True)
                ],
            )
            for tensor in self.inputs
        }


def _is_extreme(array: np.ndarray) -> bool:
    """Whether nothing is to be computed of a constant: what a Cast makes of numbers that are too large is not defined."""
    return array.dtype == np.int64 and any(
        abs(number) > 1 << 30 for number in array.ravel().tolist()
    )


def _read(node: onnx.NodeProto) -> list[str]:
    """What a node reads, itself and in its bodies."""
    results = list(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            results.extend(info.name for info in attribute.g.output)
            results.extend(name for inner in attribute.g.node for name in _read(inner))
    return results
