"""Makes a module of HLO of the operations of a StableHLO text.

A function becomes a computation, and so does each region. Computations capture nothing: values
that a region reads from outside become further parameters, constants are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from gehost_hlo.module import HloComputation, HloInstruction, HloModule, Shape
from gehost_hlo.stablehlo.builder import Builder, Names, free_values
from gehost_hlo.stablehlo.operations import convert_operation
from gehost_hlo.stablehlo.pretty import PrettyReader
from gehost_mlir.operations import Block, Operation, OperationReader
from gehost_mlir.scanner import MlirError

_RETURNS = frozenset({"return", "func.return", "stablehlo.return", "sdy.return", "chlo.return"})


class ModuleConverter:
    """A module while it is built."""

    def __init__(self, reader: PrettyReader) -> None:
        self.reader: OperationReader = reader
        self.computations: list[HloComputation] = []
        self.places: dict[tuple[str, str], int] = {}
        self.meshes: dict[str, str] = {}
        self.names = Names()
        self._functions: dict[str, Operation] = {}
        self._of_function: dict[str, HloComputation] = {}
        self._active: list[str] = []

    def module(self) -> HloModule:
        """Read the text, and convert it from its entry."""
        operations = self.reader.operations()
        name = ""
        if len(operations) == 1 and operations[0].name in {"module", "builtin.module"}:
            name = operations[0].attributes.get("sym_name", "").strip('"')
            regions = operations[0].regions
            operations = regions[0].operations if regions else []
        for operation in operations:
            symbol = operation.attributes.get("sym_name", "").strip('"')
            if operation.name == "func.func" and operation.regions:
                if symbol in self._functions:
                    raise self.reader.error(
                        f"a second function is called @{symbol}", operation.position
                    )
                self._functions[symbol] = operation
            elif operation.name == "sdy.mesh":
                mesh = operation.attributes.get("mesh", "")
                self.meshes[symbol] = mesh.removeprefix("#sdy.mesh<").removesuffix(">")
            elif operation.name not in {"func.func", "module", "builtin.module"}:
                raise self.reader.error(
                    f"{operation.name} outside of a function", operation.position
                )
        if not self._functions:
            raise self.reader.error("the text has no function with a body", 0)
        entry = self._entry()
        for function in self._functions:
            self.names.taken.add(function)
        for function in self._functions:
            self.function(function, self._functions[function].position)
        computations = tuple(self.computations)
        for computation in computations:
            computation.is_entry = computation.name == entry
        rows = [f"{mesh} = #sdy.mesh<{axes}>" for mesh, axes in self.meshes.items()]
        meshes = (
            {"frontend_attributes": f"{{xla.sdy.meshes={{{', '.join(rows)}}}}}"} if rows else {}
        )
        return HloModule(name or entry, computations, meshes)

    def _entry(self) -> str:
        if "main" in self._functions:
            return "main"
        for name, operation in self._functions.items():
            if operation.attributes.get("sym_visibility", "") != '"private"':
                return name
        return next(iter(self._functions))

    def function(self, name: str, position: int) -> HloComputation:
        """The computation of a function."""
        if name in self._of_function:
            return self._of_function[name]
        operation = self._functions.get(name)
        if operation is None:
            raise self.reader.error(f"no function is called @{name}", position)
        if name in self._active:
            raise self.reader.error(f"@{name} calls itself", position)
        self._active.append(name)
        b = Builder(self.reader, name)
        b.operation = operation
        block = operation.regions[0]
        for argument, kind in block.arguments:
            b.values[argument] = b.parameter(argument, b.shape(kind))
        results = self.block(b, block)
        root = results[0] if len(results) == 1 else b.tuple(results)
        self._active.pop()
        self._of_function[name] = self.finish(b, root)
        return self._of_function[name]

    def finish(self, b: Builder, root: HloInstruction) -> HloComputation:
        computation = b.finish(root)
        self.computations.append(computation)
        self.places |= {(computation.name, name): place for name, place in b.places.items()}
        return computation

    def block(self, b: Builder, block: Block) -> list[HloInstruction]:
        """Convert the operations of a region; returns its results."""
        for operation in block.operations:
            b.operation = operation
            if operation.name in _RETURNS:
                return [b.value(name) for name in operation.operands]
            self.operation(b, operation)
        position = block.operations[-1].position if block.operations else b.operation.position
        raise self.reader.error("the region does not end with a return", position)

    def operation(self, b: Builder, operation: Operation) -> None:
        """Convert one operation, and note its results."""
        try:
            result = convert_operation(self, b, operation)
        except MlirError:
            raise
        except (ValueError, IndexError) as error:
            problem = "its attributes or operands" if isinstance(error, IndexError) else str(error)
            raise self.reader.error(f"{operation.name}: {problem}", operation.position) from None
        shapes = [b.shape(kind) for kind in operation.result_types]
        if len(result) != len(shapes):
            raise self.reader.error(
                f"{operation.name} has {len(result)} results, {len(shapes)} types",
                operation.position,
            )
        for name, instruction, shape in zip(operation.results, result, shapes, strict=False):
            if instruction.shape is None or not instruction.shape.compatible(shape):
                raise self.reader.error(
                    f"the result of {operation.name} is {instruction.shape}, its type is {shape}",
                    operation.position,
                )
            b.values[name] = instruction
            b.definitions[name] = operation

    # Regions

    def captures(self, b: Builder, blocks: Sequence[Block]) -> list[str]:
        """The values from outside that the regions get as parameters."""
        result = dict.fromkeys(name for block in blocks for name in free_values(block))
        return [name for name in result if b.cheap(name) is None]

    def region(
        self, outer: Builder, block: Block, title: str, captured: Sequence[str], *, packed: bool
    ) -> HloComputation:
        """The computation of a region.

        Args:
            outer: the computation around it.
            block: its operations.
            title: of the computation.
            captured: values that are parameters behind the block's own.
            packed: whether all parameters are in one tuple.
        """
        b = Builder(self.reader, self.names.choose(title))
        b.operation = outer.operation
        names = [*(name for name, _ in block.arguments), *captured]
        shapes = [*(b.shape(kind) for _, kind in block.arguments)]
        for name in captured:
            shape = outer.value(name).shape
            assert shape is not None
            shapes.append(shape)
        if packed:
            whole = b.parameter("arg_tuple", Shape("tuple", elements=tuple(shapes)))
            for index, name in enumerate(names):
                b.values[name] = b.element(whole, index, name)
        else:
            for name, shape in zip(names, shapes, strict=True):
                b.values[name] = b.parameter(name, shape)
        for name in free_values(block):
            if name not in b.values:
                self._repeat(outer, b, name)
        results = self.block(b, block)
        retained = (
            [b.value(name) for name in captured] if packed and title.endswith(".body") else []
        )
        if packed and title.endswith(".body"):
            return self.finish(b, b.tuple([*results, *retained]))
        return self.finish(b, results[0] if len(results) == 1 else b.tuple(results))

    def _repeat(self, outer: Builder, inner: Builder, name: str) -> None:
        """Convert the operation of a constant from outside once more."""
        operation = outer.cheap(name)
        if operation is None:
            outer.value(name)
            raise self.reader.error(
                f"a region of {outer.operation.name} reads %{name}, which is no constant outside",
                outer.operation.position,
            )
        for operand in operation.operands:
            if operand not in inner.values:
                self._repeat(outer, inner, operand)
        inner.operation = operation
        self.operation(inner, operation)
