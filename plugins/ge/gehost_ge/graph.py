"""``Node`` and ``Graph`` with GE's Python names, over the host's index.

Source: the documented Python interface of GE (Node, Graph).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

import gehost
from gehost import Value, es, readable, write_bytes_atomic
from gehost_ge.attributes import Attribute
from gehost_ge.drafts import Draft, DraftNode, DraftTensor
from gehost_ge.errors import GeError, checked, ge_errors
from gehost_ge.form import FORMS, Form
from gehost_ge.types import DataType, DumpFormat, Tensor, TensorDesc


@dataclass(frozen=True)
class NodeIo:
    """Output ``index`` of a node; of an input of a subgraph, input ``index`` of its user."""

    node: Node
    index: int = 0


class Node:
    """An operator of a model; ``Const`` and ``Data`` stand for constants and graph inputs.

    Its attributes are those of GE's operator ``type``, and ONNX's where GE has none of the name.
    """

    def __init__(self, inner: Any, forms: Mapping[Any, Form] = MappingProxyType({})) -> None:
        """Wrap a node of the host; ``forms`` are the operators as the pass calls them, by node."""
        self.inner = inner
        self._forms = forms

    @property
    def form(self) -> Form | None:
        """GE's operator: the one that the pass calls, else GE's of the same name."""
        if isinstance(self.inner, DraftNode):
            return self.inner.draft.forms.get(self.inner.producer)
        if self.inner in self._forms:
            return self._forms[self.inner]
        form = FORMS.get(self.inner.op)
        return form if form is not None and form.stands_for(self.inner) else None

    def __repr__(self) -> str:
        return f"<Node {self.type} {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.inner == other.inner

    def __hash__(self) -> int:
        return hash(self.inner)

    @property
    def name(self) -> str:
        return self.inner.label

    @property
    def type(self) -> str:
        """The operator as the pattern or ``op_types`` calls it, else ONNX's name."""
        if self.inner in self._forms:
            return self._forms[self.inner].name
        return "Const" if self.inner.op == "Constant" else self.inner.op_type

    def get_inputs_size(self) -> int:
        return len(self.inner.inputs)

    def get_outputs_size(self) -> int:
        return len(self.inner.outputs)

    def get_in_data_nodes_and_port_indexes(self, index: int) -> tuple[Node, int]:
        """Return the node that produces input ``index``, and the number of its output."""
        value = self._input(index)
        if isinstance(value, DraftTensor):
            return Node(value.node), value.index
        io = gehost.NodeIo.of(value)
        return Node(io.node, self._forms), io.index

    def get_out_data_nodes_and_port_indexes(self, index: int) -> list[tuple[Node, int]]:
        """Return the users of output ``index``, each with the number of its input."""
        users = self.output_value(index).consumers()
        return [(Node(user, self._forms), slot) for user, slot in users]

    def has_attr(self, name: str) -> bool:
        checked(name, str, "the name of an attribute")
        return name in self._attributes or name in self.inner.attrs

    @property
    def _attributes(self) -> Mapping[str, Attribute]:
        form = self.form
        return {} if form is None else form.attributes

    def get_attr(self, name: str) -> Any:
        """Return an attribute: a number, text or list; the ``value`` of a constant as ``Tensor``.

        Raises:
            GeError: the node has no such attribute.
        """
        checked(name, str, "the name of an attribute")
        if self.type == "Const" and name == "value":
            value = self.output_value(0)
            array = value.array
            if array is None:
                raise GeError(f'the numbers of "{self.name}" are not loaded')
            return Tensor.of(array)
        if name in self._attributes:
            return self._attributes[name].read(self.inner)
        if name not in self.inner.attrs:
            raise GeError(f'{self.type} "{self.name}" has no attribute "{name}"')
        return self.inner.attrs[name]

    def set_attr(self, name: str, value: Any) -> None:
        """Set an attribute.

        Raises:
            TypeError: no attribute holds such a value.
            ValueError: ONNX's operator has no such value.
            GeError: ONNX's operator has it as an input.
        """
        checked(name, str, "the name of an attribute")
        form = self.form
        if form is None or name not in form.attributes:
            self._set({name: value})
        elif form.attributes[name].read(self.inner) != value:
            self._set(form.write(name, value))

    def _set(self, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            if isinstance(self.inner, DraftNode):
                self.inner.attrs[name] = value
                continue
            node = self._editable()
            if name in _INPUTS and name not in node.attrs and len(node.inputs) > 1:
                raise GeError(f'{name} of {self.type} "{self.name}" is an input; replace the node')
            node.graph.set_attribute(node, name, value)
            other = _INSTEAD.get(name, "")
            if other in node.attrs:
                node.graph.set_attribute(node, other, None)

    def get_input_desc(self, index: int) -> TensorDesc:
        return TensorDesc.of(self._input(index))

    def get_output_desc(self, index: int) -> TensorDesc:
        return TensorDesc.of(self.output_value(index))

    def update_input_desc(self, index: int, desc: TensorDesc) -> None:
        """Check that ``desc`` is the tensor's: the host infers types itself.

        Raises:
            GeError: its element type or a known size differs.
        """
        agree(self._input(index), desc)

    def update_output_desc(self, index: int, desc: TensorDesc) -> None:
        """As ``update_input_desc``, of an output."""
        agree(self.output_value(index), desc)

    def get_input_attr(self, name: str, index: int) -> Any:
        raise GeError(f'input {index} has no attribute "{name}": ONNX has attributes of nodes only')

    def set_input_attr(self, name: str, index: int, value: Any) -> None:
        del value
        self.get_input_attr(name, index)

    def get_output_attr(self, name: str, index: int) -> Any:
        raise GeError(
            f'output {index} has no attribute "{name}": ONNX has attributes of nodes only'
        )

    def set_output_attr(self, name: str, index: int, value: Any) -> None:
        del value
        self.get_output_attr(name, index)

    def output_value(self, index: int) -> Value:
        """Return the tensor of an output."""
        return self._port(self.inner.outputs, index, "output")

    def _input(self, index: int) -> Value:
        return self._port(self.inner.inputs, index, "input")

    def _port(self, values: Sequence[Value | None], index: int, what: str) -> Value:
        checked(index, int, f"the number of an {what}")
        value = values[index] if 0 <= index < len(values) else None
        if value is None:
            raise GeError(f'{self.type} "{self.name}" has no {what} {index}')
        return value

    def _editable(self) -> gehost.Node:
        if not isinstance(self.inner, gehost.Node):
            raise GeError(f'"{self.name}" is no operator and cannot be changed')
        return self.inner


def agree(value: Value | DraftTensor, desc: TensorDesc) -> None:
    """Check that ``desc`` does not contradict what is known of a tensor.

    Raises:
        GeError: its element type, rank or a known size differs.
    """
    checked(desc, TensorDesc, "a TensorDesc")
    own = TensorDesc.of(value)
    ranks = {own.shape.get_dim_num(), desc.shape.get_dim_num()} - {-1}
    sizes = zip(own.shape, desc.shape, strict=False)
    if (
        len({own.data_type, desc.data_type} - {DataType.DT_UNDEFINED}) > 1
        or len(ranks) > 1
        or any(size >= 0 and other >= 0 and size != other for size, other in sizes)
    ):
        raise GeError(f'"{value.name}" is {own}, not {desc}')


_INSTEAD = {"auto_pad": "pads", "pads": "auto_pad"}
"""Attributes of which a node has one."""
_INPUTS = frozenset({"axes"})
"""Numbers that are an attribute of ONNX's operators below some opset."""


class Graph:
    """A graph of a model, or one that ``GraphBuilder`` built."""

    def __init__(self, inner: gehost.Graph | Draft) -> None:
        """Wrap a graph of the host."""
        self._inner = inner

    def __repr__(self) -> str:
        return f"<Graph {self.name}>"

    def __str__(self) -> str:
        return readable(cast("Any", self._inner))

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def draft(self) -> Draft:
        """The graph of a builder; raises ``TypeError`` for one of a model."""
        return checked(self._inner, Draft, "a graph that GraphBuilder built")

    @property
    def built(self) -> es.EsGraph:
        """As ``draft``, in the host's form."""
        return self.draft.graph

    @property
    def model_graph(self) -> gehost.Graph:
        """The graph of a model.

        Raises:
            GeError: it is one of a builder, which has no nodes of a model.
        """
        if not isinstance(self._inner, gehost.Graph):
            raise GeError(f'"{self.name}" is no graph of a model: GraphBuilder built it')
        return self._inner

    def get_direct_nodes(self) -> list[Node]:
        """Return the nodes of this graph, in topological order."""
        return [Node(node) for node in self._inner.nodes]

    def get_all_nodes(self) -> list[Node]:
        """Return the nodes of this graph and of all bodies."""
        graphs = [self, *self.get_all_subgraphs()]
        return [node for graph in graphs for node in graph.get_direct_nodes()]

    def find_node_by_name(self, name: str) -> Node:
        """Return a node of this graph; raises ``GeError`` if none has the name."""
        checked(name, str, "the name of a node")
        for node in self.get_direct_nodes():
            if node.name == name:
                return node
        raise GeError(f'graph "{self.name}" has no node "{name}"')

    def remove_node(self, node: Node) -> None:
        """Remove a node; raises ``GeError`` while its results have users."""
        checked(node, Node, "a Node")
        with ge_errors():
            self.model_graph.remove_node(node.inner)

    def add_data_edge(self, src: Node, src_port: int, dst: Node, dst_port: int) -> None:
        """Let input ``dst_port`` of ``dst`` read output ``src_port`` of ``src``."""
        checked(src, Node, "a Node")
        checked(dst, Node, "a Node")
        with ge_errors():
            self.model_graph.set_input(dst.inner, dst_port, src.output_value(src_port))

    def remove_edge(self, src: Node, src_port: int, dst: Node, dst_port: int) -> None:
        """Leave input ``dst_port`` of ``dst`` absent.

        Raises:
            GeError: it does not read output ``src_port`` of ``src``.
        """
        checked(src, Node, "a Node")
        checked(dst, Node, "a Node")
        inputs = dst.inner.inputs
        reads = inputs[dst_port] if 0 <= dst_port < len(inputs) else None
        if reads is None or reads is not src.output_value(src_port):
            raise GeError(f"{dst.name} does not read output {src_port} of {src.name}")
        with ge_errors():
            self.model_graph.set_input(dst.inner, dst_port, None)

    def get_all_subgraphs(self) -> list[Graph]:
        """Return the bodies of all nodes, also nested ones."""
        if isinstance(self._inner, Draft):
            return []
        return [Graph(graph) for graph in self._inner.subgraphs()]

    def get_subgraph(self, name: str) -> Graph | None:
        """Return the body of a name, or None."""
        return next((graph for graph in self.get_all_subgraphs() if graph.name == name), None)

    def dump_to_file(
        self,
        format: DumpFormat = DumpFormat.kReadable,  # noqa: A002 - GE's name
        suffix: str = "",
    ) -> None:
        """Write ``ge_readable<suffix>.txt`` or ``ge_onnx<suffix>.pbtxt`` to the working directory.

        Raises:
            GeError: the format is ``kTxt``, GE's own protobuf.
        """
        checked(format, DumpFormat, "a DumpFormat")
        checked(suffix, str, "a suffix as text")
        if format is DumpFormat.kTxt:
            raise GeError("DumpFormat.kTxt is GE's own protobuf; use kOnnx or kReadable")
        if format is DumpFormat.kReadable:
            write_bytes_atomic(Path(f"ge_readable{suffix}.txt"), str(self).encode())
            return
        from google.protobuf import text_format

        self.model_graph.flush()
        text = text_format.MessageToString(self.model_graph.model.proto)
        write_bytes_atomic(Path(f"ge_onnx{suffix}.pbtxt"), text.encode())

    def dump_to_stream(
        self,
        format: DumpFormat = DumpFormat.kReadable,  # noqa: A002 - GE's name
        stream: Any = None,
    ) -> None:
        """Write the readable text to a stream, standard error by default."""
        import sys

        checked(format, DumpFormat, "a DumpFormat")
        (stream or sys.stderr).write(str(self))

    def get_attr(self, name: str) -> Any:
        """Return an entry of the graph's metadata; raises ``GeError`` if it has none."""
        for entry in self.model_graph.proto.metadata_props:
            if entry.key == name:
                return entry.value
        raise GeError(f'graph "{self.name}" has no attribute "{name}"')

    def set_attr(self, name: str, value: Any) -> None:
        """Not offered; raises ``GeError``."""
        del name, value
        raise GeError("Graph.set_attr: ONNX has no attributes of graphs")

    def add_control_edge(self, src: Node, dst: Node) -> None:
        """Not offered; raises ``GeError``."""
        del src, dst
        raise GeError("Graph.add_control_edge: ONNX has no control edges")

    def add_subgraph(self, graph: Graph) -> None:
        """Not offered; raises ``GeError``."""
        del graph
        raise GeError("Graph.add_subgraph: a body belongs to its node; replace the node")

    def remove_subgraph(self, name: str) -> None:
        """Not offered; raises ``GeError``."""
        del name
        raise GeError("Graph.remove_subgraph: a body belongs to its node; replace the node")

    def save_to_air(self, path: str) -> None:
        """Not offered; raises ``GeError``."""
        del path
        raise GeError("Graph.save_to_air: AIR is GE's own file format; use dump_to_file(kOnnx)")

    def load_from_air(self, path: str) -> None:
        """Not offered; raises ``GeError``."""
        del path
        raise GeError("Graph.load_from_air: AIR is GE's own file format; compile an ONNX model")


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Return the numbers of a ``Tensor``, a number or nested lists."""
    return value.array if isinstance(value, Tensor) else np.asarray(value)
