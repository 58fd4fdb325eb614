"""Shape computations in terms of the graph's inputs; reshapes that change nothing.

``x → … → h → Shape → Gather 0 → Unsqueeze → b;  b, …, -1, 16 → Concat``
``==>   x → Shape → Gather [0] → b;  …``

Exporters ask an inner tensor for its size and build the same shape again in every layer. A size
that is proven to be a size of an input is read there, and equal shapes are built once. A number
computed from a known size becomes a constant, as the scale 1/√H of TorchScript's
``scaled_dot_product_attention``, without which its attention is not fused (0 of 2 layers of
distilbert, albert and xlm-roberta, then 2 of 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gehost import REG_FUSION_PASS, CustomPassStage, DataType, FusionBasePass, TensorType

from ._instances import instance
from ._shapes import Size, Sizes, all_same, elements_of, remove_dead, shape_of, sources_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import onnx

    from gehost import CustomPassContext, Graph, Node, Value

_Key = tuple[int, tuple[Size, ...]]

_COMPUTED: dict[str, Callable[..., Any]] = {
    "Cast": np.float32,
    "Div": np.divide,
    "Mul": np.multiply,
    "Reciprocal": np.reciprocal,
    "Sqrt": np.sqrt,
}
"""Operators on float32 numbers; a Cast of an integer makes one."""


@REG_FUSION_PASS(stage=CustomPassStage.kAfterBuiltinFusionPass, default=False)
class OrtSizesPass(FusionBasePass):
    """Read sizes from the graph's inputs, share equal shapes, drop useless reshapes.

    Forms: computed sizes that inference knows, of int64, in the root graph; Cast, Div, Mul,
    Reciprocal and Sqrt of one constant number, in float32.
    Keeps: the value of every shape, and every tensor.
    Refuses: nothing; unproven sizes stay as they are.
    """

    def Run(self, graph: Graph, context: CustomPassContext) -> None:
        if graph.depth:
            return
        shared = _Shared(graph)
        for node in list(graph.nodes):
            shared.visit(node)
        _compute_numbers(graph)
        for node in graph.nodes_of("Reshape", "Expand"):
            argument, output = node.inputs[0], node.outputs[0]
            if argument is None or output is None or output.is_graph_output:
                continue
            if all_same(shape_of(argument), shape_of(output)):
                graph.redirect(output, argument)
        remove_dead(graph)

    def Instances(self) -> Iterator[onnx.ModelProto]:
        """Yield models with a size of an inner tensor, equal shapes, and a useless Reshape."""
        rows = "{0}s = Shape ({0}) {0}n = Slice ({0}s, start, stop) "
        shape = "{0}t = Concat <axis = 0> ({0}n, minus, eight) "
        constants = """int64[1] start = {0}, int64[1] stop = {1}, int64[1] minus = {-1},
            int64[1] eight = {8}"""
        yield instance(
            "float[B, S, 8] x",
            f"""h = Relu (x) {(rows + shape).format("h")} j = Neg (h) {(rows + shape).format("j")}
            a = Reshape (h, ht) b = Reshape (j, jt) y = Mul (a, b)""",
            constants=constants,
        )
        yield instance(
            "float[B, S, 8] x",
            f"h = Exp (x) {rows.format('h')} t = Concat <axis = 0> (hn, minus) y = Reshape (h, t)",
            result="float[B, R] y",
            constants=constants,
        )


def _compute_numbers(graph: Graph) -> None:
    """Compute a float32 number of constant ones, where a size that is now constant made it."""
    for node in graph.nodes_of(*_COMPUTED):
        output = node.outputs[0]
        arrays = [value.array if value and value.is_constant else None for value in node.inputs]
        if output is None or output.is_graph_output or output.dtype != DataType.FLOAT:
            continue
        arguments = [
            one for one in arrays if one is not None and one.size == 1 and one.dtype.kind in "fi"
        ]
        if len(arguments) < len(arrays) or any(one.dtype == np.float64 for one in arguments):
            continue
        with np.errstate(all="ignore"):
            number = np.asarray(_COMPUTED[node.op](*arguments), np.float32)
        name = graph.model.fresh_name("OrtSizesPass_c")
        graph.redirect(output, graph.add_initializer(number, name))


class _Shared:
    """One value for each content of a shape tensor."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._sources = graph, sources_of(graph)
        self._first: dict[_Key, Value] = {}
        self._pure: set[str] = {value.name for value in graph.inputs}
        """Values computed from sizes of the graph's inputs and constants alone."""
        self._shapes: dict[str, Value] = {}

    def visit(self, node: Node) -> None:
        """Replace the shape that a node makes, unless only other shapes read it."""
        output = node.outputs[0] if node.outputs else None
        entry = elements_of(output)
        if output is None or output.is_constant or output.dtype != DataType.INT64:
            return
        if entry is None or not self._is_readable(entry):
            return
        key = (output.rank or 0, entry)
        pure = all(
            value is None or value.is_constant or value.name in self._pure for value in node.inputs
        )
        if pure:
            self._pure.add(output.name)
            if key not in self._first:
                self._first[key] = output
                return
        if all(
            self._is_readable(elements_of(reader.outputs[0])) for reader, _ in output.consumers()
        ):
            return  # read by other shapes alone, which are replaced themselves
        if not output.is_graph_output:
            self._graph.redirect(output, self._value(key))

    def _is_readable(self, elements: Sizes | None) -> bool:
        """Whether each element is a number or the size of an input."""
        return elements is not None and all(
            isinstance(size, int) or size in self._sources for size in elements
        )

    def _value(self, key: _Key) -> Value:
        """Return a value with these contents, before all that may read it."""
        if key not in self._first:
            rank, sizes = key
            numbers = [size for size in sizes if isinstance(size, int)]
            if len(numbers) == len(sizes):
                result = self._constant(np.array(numbers if rank else numbers[0], np.int64))
            elif rank and (whole := self._input_of(sizes)) is not None:
                result = self._shape(whole)
            elif len(sizes) == 1:
                result = self._read(str(sizes[0]), rank)
            else:
                parts = [self._value((1, (size,))) for size in sizes]
                result = self._added("Concat", parts, len(sizes), {"axis": 0})
            self._first[key] = result
        return self._first[key]

    def _read(self, symbol: str, rank: int) -> Value:
        source, axis = self._sources[symbol]
        index = self._constant(np.array([axis] if rank else axis, np.int64))
        return self._added("Gather", [self._shape(source), index], 1 if rank else None, {})

    def _input_of(self, sizes: tuple[Size, ...]) -> Value | None:
        """Return an input of these sizes."""
        symbol = next(size for size in sizes if not isinstance(size, int))
        source, _ = self._sources[str(symbol)]
        return source if all_same(shape_of(source), sizes) else None

    def _shape(self, source: Value) -> Value:
        if source.name not in self._shapes:
            count = len(shape_of(source) or ())
            self._shapes[source.name] = self._added("Shape", [source], count, {})
        return self._shapes[source.name]

    def _added(
        self, op: str, inputs: list[Value], count: int | None, attributes: dict[str, int]
    ) -> Value:
        name = self._graph.model.fresh_name(f"OrtSizesPass_{op}")
        producers = [value.producer for value in inputs if value.producer is not None]
        after = max(producers, key=lambda node: node.order, default=None)
        node = self._graph.add_node(op, inputs, [name], attributes, name=name, after=after)
        output = node.outputs[0]
        assert output is not None
        self._graph.set_type(output, TensorType(DataType.INT64, () if count is None else (count,)))
        return output

    def _constant(self, array: np.ndarray) -> Value:
        return self._graph.add_initializer(array, self._graph.model.fresh_name("OrtSizesPass_c"))
