"""What every call of a kernel has: the replaced nodes, input tensors, and a body by default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gehost import (
    DataType,
    EsGraph,
    EsGraphBuilder,
    EsTensor,
    PassError,
    PassOption,
    Refusal,
    Refused,
    Region,
    Value,
    ops,
)
from gehost import Node as GraphNode

HALVES = frozenset((DataType.FLOAT16, DataType.BFLOAT16))
Known: TypeAlias = Mapping[str, ops.OpDef | None]
"""The operators of a compile by name; None for those whose body came with the model."""


NO_EMPTY_INPUTS = PassOption(
    "no_empty_inputs",
    bool,
    False,  # noqa: FBT003 - the default
    "batch, lengths and images have sizes of at least 1",
    assumption=True,
)


def is_rounded(number: float, dtype: DataType | None) -> bool:
    """Whether half holds another number; a kernel has it as a float, and so has its body."""
    if dtype is None or dtype not in HALVES:
        return False
    return float(np.asarray(number).astype(dtype.numpy)) != number


def empty_problem(sizes: Mapping[str, object], *, assumed: bool) -> str:
    """Return why a kernel that takes no empty tensor is refused, or "".

    Args:
        sizes: by what they are.
        assumed: those that may be 0 are not: the option ``NO_EMPTY_INPUTS``.
    """
    for name, size in sizes.items():
        if size == 0:
            return f"{name}: it is 0, and the kernel takes none such"
    may_be = [f"{name} {size}" for name, size in sizes.items() if not isinstance(size, int)]
    if assumed or not may_be:
        return ""
    return (
        f"empty: {', '.join(may_be)} may be 0, and the kernel takes none such; "
        "--assume no-empty-inputs takes it for granted, --dim fixes a size"
    )


class number(property):  # noqa: N801 - a decorator
    """A number that a kernel must get: the call notes that its author read it."""

    def __get__(self, instance: Any, owner: type | None = None, /) -> Any:
        """Return the number, and note its name."""
        if isinstance(instance, KernelCall) and self.fget is not None:
            instance.reads.add(self.fget.__name__)
        return super().__get__(instance, owner)


class KernelCall:
    """A part of a graph as a kernel takes it.

    All is readable from ``MeetRequirements`` on.
    """

    title: ClassVar[str]
    """The formula, for the body of an operator that nothing registers."""
    operands: ClassVar[Collection[str]]
    """The tensors that the formula needs, by the names of their properties."""
    outputs: tuple[str, ...] = ("output",)
    """The names of what the formula gives."""
    example: ClassVar[str]
    """What ``Replacement`` may return."""

    def __init__(self, name: str, opset: int, takes: Collection[str]) -> None:
        self.takes = frozenset(takes)
        """The features that the kernel has."""
        self.opset = opset
        self.region: Region | None = None
        self.shared: tuple[Value, ...] = ()
        """Tensors inside that others use, too, so that what computes them stays."""
        self.reads: set[str] = set()
        """The numbers that the author read, by name."""
        self._builder = EsGraphBuilder(name)
        self._tensors: dict[str, EsTensor | None] = {}
        """What the author asked for, by name."""
        self._inputs: dict[Value, EsTensor] = {}

    @property
    def builder(self) -> EsGraphBuilder:
        """The builder of the replacement, for constants: ``call.builder.CreateVector([0])``."""
        return self._builder

    def reject(self, reason: str) -> Refusal:
        """Return a refusal, as ``key: text``."""
        return Refusal.of(reason)

    # defined by each kind of call

    def refusal(self) -> str:
        """Return the first feature that the kernel lacks, with the reason; "" if there is none."""
        return ""

    def begin(self) -> None:
        """Choose the replaced nodes, where they are known before ``Replacement``."""

    def needs(self) -> Collection[str]:
        """Return the tensors that the kernel must get, by name."""
        return self.operands

    def numbers(self) -> Collection[str]:
        """Return the numbers without which the kernel is another one, by name."""
        return ()

    def finish(self, output: Any, known: Known) -> EsGraph:
        """Return the replacement as a graph, with bodies of operators that have none.

        Raises:
            PassError: ``Replacement`` returned something else than a tensor.
        """
        raise NotImplementedError

    def formula(self, of: Mapping[str, EsTensor]) -> EsTensor | Sequence[EsTensor]:
        """Return the result, computed from tensors by name."""
        raise NotImplementedError

    # shared

    def _once(self, name: str, make: Callable[[], EsTensor]) -> EsTensor:
        """Return a tensor that the author asks for, the same one each time."""
        cached = self._tensors.get(name)
        if cached is None:
            cached = self._tensors[name] = make()
        return cached

    def _values(self) -> Mapping[str, Value]:
        """Return the tensors of the graph that the kernel may get, by name."""
        return {}

    def _source(self, name: str) -> EsTensor | None:
        """Return one of the sources; None where there is none of the name."""
        value = self._values().get(name)
        return None if value is None else self._once(name, lambda: self._inputs[value])

    def _begin(self, results: Sequence[Value], sources: Sequence[Value]) -> None:
        region, first = region_between(results, sources), results[0]
        if region is None:
            if len(results) > 1:
                raise Refused("results", "the nodes between them cannot be replaced as one")
            # a size of an inner tensor leads back inside: clean-up removes the other nodes
            last = first.producer
            assert last is not None
            region = Region(first.graph, list(last.inputs), [first], [last])
        else:
            self.shared = shared_by(region, results)
            apart = set(region.outputs) - set(results)
            if apart and not self.shared:  # casts that others read stay
                region = region_between(results, [*sources, *apart]) or region
        items = list(dict.fromkeys([*region.inputs, *sources]))
        self.region = Region(region.graph, items, list(results), region.nodes)
        tensors = self._builder.CreateInputs(len(items))
        for value, tensor in zip(items, tensors, strict=True):
            if value is not None:
                self._inputs[value] = tensor

    def _check_use(self, results: Sequence[EsTensor]) -> None:
        """Refuse a replacement whose kernel does not get a tensor or number of the call."""
        nodes = results[0].graph.delivering(results).reachable()
        read = {
            (id(tensor.producer), tensor.index)
            for tensor in (*results, *(item for node in nodes for item in node.inputs))
            if tensor is not None
        }
        for name in self.needs():
            tensor = self._tensors.get(name)
            if tensor is None or (id(tensor.producer), tensor.index) not in read:
                raise Refused(name, "Replacement does not use it")
        for name in self.numbers():
            if name not in self.reads:
                raise Refused(name, "neither Replacement nor MeetRequirements reads it")

    def _input(self, value: Value) -> EsTensor:
        """Return a tensor of the graph, as an input of the replacement."""
        if value not in self._inputs:
            self._inputs[value] = self._builder.CreateInput(len(self._inputs))
        return self._inputs[value]

    def _cover(self, results: Sequence[Value], inner: Collection[Value] = ()) -> None:
        """Choose the nodes from the inputs to the results, or from ``inner`` tensors on.

        Where a size of a tensor between leads back inside, clean-up removes the other nodes.
        """
        for stops in (self._inputs, [*self._inputs, *inner]):
            region = Region.of_nodes(nodes_between(results, stops))
            if not isinstance(region, Refusal) and results[0] in region.outputs:
                break
        else:
            if len(results) > 1:
                raise Refused("results", "the nodes between them cannot be replaced as one")
            last = results[0].producer
            assert last is not None
            region = Region(last.graph, list(last.inputs), [*results], [last])
        items = list(dict.fromkeys([*self._inputs, *region.inputs]))
        self.region = Region(region.graph, items, list(results), region.nodes)

    def _number(self, number: float, dtype: DataType) -> EsTensor:
        return self._builder.CreateScalar(number, dtype)

    def _result(self, result: Any) -> EsTensor:
        if isinstance(result, EsGraph) or not isinstance(result, EsTensor):
            raise PassError(
                "Replacement must return the kernel's result, a tensor, "
                f"got {type(result).__name__}",
                hint=f"as in {self.example}",
            )
        return result

    def _define(self, graph: EsGraph, known: Known) -> None:
        """Define operators without a body by the formula of what the call holds."""
        names = {
            (id(tensor.producer), tensor.index): name.removeprefix("full ")
            for name, tensor in self._tensors.items()
            if tensor is not None
        }
        for node in graph.nodes:
            op = node.ops[0]
            registered = known.get(op)
            has_body = op in known and (registered is None or registered.body is not None)
            if "::" not in op or has_body or op.startswith("ai.onnx"):
                continue
            roles = [
                None if tensor is None else names.get((id(tensor.producer), tensor.index))
                for tensor in node.inputs
            ]
            present = [name for name in roles if name is not None]
            if not set(self.operands) <= set(present) or len(set(present)) < len(present):
                continue
            absent = [tensor is None for tensor in node.inputs]
            if len(present) + sum(absent) < len(roles):
                continue
            inputs = tuple(name or f"absent_{place}" for place, name in enumerate(roles))
            outputs = self.outputs[: node.count]
            attributes: dict[str, Any] = {
                name: None if value is None else inspect.Parameter.empty
                for name, value in node.params.items()
            }
            if registered is None:
                registered = ops.OpDef(
                    op, 1, (), 0, (), {}, None, None, frozenset(), str(node.origin)
                )
            elif registered.inputs:
                inputs, outputs = registered.inputs, registered.outputs
            if not node.count <= len(outputs) <= len(self.outputs):
                continue
            graph.definitions[op] = replace(
                registered,
                inputs=inputs,
                required=roles.index(None) if None in roles else len(roles),
                outputs=outputs,
                attributes=registered.attributes or attributes,
                body=_Body(self, roles, len(outputs)),
            )


class _Body:
    """The formula of a call as the body of an operator."""

    def __init__(self, call: KernelCall, roles: Sequence[str | None], count: int) -> None:
        self._call = call
        self._roles = roles
        self._count = count
        self.__doc__ = call.title
        self.__signature__ = inspect.Signature()

    def __call__(self, *operands: EsTensor | None, **attributes: Any) -> Any:
        del attributes
        pairs = zip(self._roles, operands, strict=False)  # the operator may have further inputs
        of = {name: item for name, item in pairs if name is not None and item is not None}
        result = self._call.formula(of)
        return result if isinstance(result, EsTensor) else result[: self._count]


def region_between(results: Sequence[Value], sources: Collection[Value]) -> Region | None:
    """Return the nodes from the sources to the results, if others can take their place."""
    nodes = nodes_between(results, sources)
    region = Region.of_nodes(nodes)
    if isinstance(region, Refusal):
        region = Region.of_nodes(_with_ways_back(nodes))
    is_region = not isinstance(region, Refusal) and set(results) <= set(region.outputs)
    return region if isinstance(region, Region) and is_region else None


def shared_by(region: Region, results: Collection[Value]) -> tuple[Value, ...]:
    """Return the tensors inside that others use, but for casts."""
    return tuple(
        value
        for value in region.outputs
        if value not in results and value.producer and value.producer.op != "Cast"
    )


def nodes_between(results: Sequence[Value], sources: Collection[Value]) -> list[GraphNode]:
    """Return the nodes from the sources to the results, but not those of shapes."""
    graph = results[0].graph
    stops, result = set(sources), dict[GraphNode, None]()
    todo = list(results)
    while todo:
        value = todo.pop()
        node = value.producer
        if value in stops or node is None or node in result or node.graph is not graph:
            continue
        if value.is_constant or (value.dtype is not None and not _is_data(value.dtype)):
            continue
        result[node] = None
        todo.extend(read for read in node.inputs if read is not None)
    return list(result)


def _with_ways_back(nodes: list[GraphNode]) -> list[GraphNode]:
    """Return nodes with those between them, such as the Shape of a sum that a Reshape reads."""
    graph, end = nodes[0].graph, max(node.order for node in nodes)
    behind = set[GraphNode]()
    todo = [reader for node in nodes for value in node.outputs if value for reader in value.readers]
    while todo:
        reader = todo.pop()
        if not isinstance(reader, GraphNode) or reader.graph is not graph or reader in behind:
            continue
        if reader.order < end:
            behind.add(reader)
            todo += [user for value in reader.outputs if value for user in value.readers]
    results, waiting = dict.fromkeys(nodes), list(nodes)
    while waiting:
        for value in waiting.pop().inputs:
            node = None if value is None else value.producer
            if node is not None and node in behind and node not in results:
                results[node] = None
                waiting.append(node)
    return list(results)


def _is_data(dtype: DataType) -> bool:
    return dtype.is_float or dtype is DataType.BOOL
