"""HLO text, and a tree, of a module."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gehost_hlo.module import HloComputation, HloInstruction, HloModule, Operand, Shape


def to_text(module: HloModule) -> str:
    """Print a module as it was read.

    The text equals the parsed one but for white space and comments.
    """
    printer = _Printer()
    parts: list[str] = []
    if module.name:
        parts.append(f"HloModule {module.name}{_attributes(module.attributes)}\n")
    for table in module.tables:
        parts.append(
            "\n".join([table.name, *(f"{number} {entry}" for number, entry in table.entries)])
            + "\n"
        )
    parts += [
        printer.computation(computation, entry=module.entry_marked)
        for computation in module.computations
    ]
    return "\n".join(parts)


def computation_text(computation: HloComputation, *, entry: bool = True) -> str:
    """Print one computation; with ``entry``, the entry gets its keyword."""
    return _Printer().computation(computation, entry=entry)


def instruction_text(instruction: HloInstruction) -> str:
    """Print one instruction without ``ROOT``."""
    return _Printer().instruction(instruction)


class _Printer:
    """Prints parts, each distinct shape once."""

    def __init__(self) -> None:
        self._shapes: dict[int, str] = {}

    def shape(self, shape: Shape) -> str:
        text = self._shapes.get(id(shape))
        if text is None:
            text = self._shapes[id(shape)] = str(shape)
        return text

    def computation(self, computation: HloComputation, *, entry: bool) -> str:
        head = "ENTRY " if computation.is_entry and entry else ""
        head += f"{'%' if computation.percent else ''}{computation.name} "
        if computation.signature is not None:
            inside = ", ".join(
                f"{'%' if parameter.percent else ''}{parameter.name}: {parameter.shape}"
                for parameter in computation.signature
            )
            head += f"({inside}) -> {computation.result} "
        lines = [
            f"  {'ROOT ' if instruction.is_root and computation.root_marked else ''}"
            f"{self.instruction(instruction)}\n"
            for instruction in computation.instructions
        ]
        return f"{head}{{\n{''.join(lines)}}}{_attributes(computation.attributes)}\n"

    def instruction(self, instruction: HloInstruction) -> str:
        shape = "" if instruction.shape is None else f"{self.shape(instruction.shape)} "
        inside = ", ".join([self.operand(operand) for operand in instruction.operands])
        text = f"{shape}{instruction.opcode}({inside}){_attributes(instruction.attributes)}"
        return (
            f"{'%' if instruction.percent else ''}{instruction.name} = {text}"
            if instruction.name
            else text
        )

    def operand(self, operand: Operand) -> str:
        if operand.literal is not None:
            return operand.literal.text
        if operand.instruction is not None:
            return self.instruction(operand.instruction)
        name = f"%{operand.name}" if operand.percent else operand.name
        return name if operand.shape is None else f"{self.shape(operand.shape)} {name}"


def _attributes(attributes: Mapping[str, str]) -> str:
    return "".join([f", {name}={value}" for name, value in attributes.items()])


def as_tree(module: HloModule) -> dict[str, Any]:
    """Return a module as plain values for JSON."""
    return {
        "name": module.name,
        "attributes": module.attributes,
        "computations": [*map(computation_tree, module.computations)],
    }


def computation_tree(computation: HloComputation) -> dict[str, Any]:
    """Return a computation as plain values.

    Parameters and results come from the signature, else from the instructions.
    """
    if computation.signature is not None:
        parameters = [(parameter.name, parameter.shape) for parameter in computation.signature]
    else:
        parameters = [(parameter.name, parameter.shape) for parameter in computation.parameters]
    result = computation.result if computation.result is not None else computation.root.shape
    results = (
        []
        if result is None
        else list(result.elements)
        if result.is_tuple and result.elements is not None
        else [result]
    )
    return {
        "name": computation.name,
        "is_entry": computation.is_entry,
        "parameters": [{"name": name, "shape": _shape_tree(shape)} for name, shape in parameters],
        "result_shapes": [_shape_tree(shape) for shape in results],
        "attributes": computation.attributes,
        "instructions": [
            _instruction_tree(instruction) for instruction in computation.instructions
        ],
    }


def _instruction_tree(instruction: HloInstruction) -> dict[str, Any]:
    return {
        "name": instruction.name,
        "is_root": instruction.is_root,
        "shape": _shape_tree(instruction.shape),
        "opcode": instruction.opcode,
        "operands": [_operand_tree(operand) for operand in instruction.operands],
        "attributes": instruction.attributes,
    }


def _operand_tree(operand: Operand) -> dict[str, Any]:
    if operand.literal is not None:
        return {"shape": None, "literal": operand.literal.text}
    if operand.instruction is not None:
        return {
            "shape": _shape_tree(operand.instruction.shape),
            "instruction": _instruction_tree(operand.instruction),
        }
    return {"shape": _shape_tree(operand.shape), "name": operand.name}


def _shape_tree(shape: Shape | None) -> Any:
    if shape is None:
        return None
    if shape.elements is not None:
        return {
            "type": shape.type,
            "elements": [_shape_tree(element) for element in shape.elements],
        }
    tree: dict[str, Any] = {
        "type": shape.type,
        "dimensions": list(shape.dimensions),
        "layout": None,
    }
    if shape.layout is not None:
        tree["layout"] = {
            "minor_to_major": list(shape.layout.minor_to_major),
            "rest": shape.layout.rest,
        }
    if shape.dynamic:
        tree["dynamic"] = list(shape.dynamic)
    return tree


def as_lines(module: HloModule, computations: Iterable[HloComputation]) -> str:
    """Return computations as indented lines: module, computation, instruction, operand."""
    lines = [f"module {module.name or '(without a header)'}"]
    for computation in computations:
        tree = computation_tree(computation)
        lines.append(f"  computation {computation.name}{' entry' if computation.is_entry else ''}")
        lines += [
            f"    parameter {parameter['name']} {_shape_line(parameter['shape'])}"
            for parameter in tree["parameters"]
        ]
        lines += [f"    result {_shape_line(shape)}" for shape in tree["result_shapes"]]
        for instruction in computation.instructions:
            lines += _instruction_lines(instruction, "    ")
    return "\n".join(lines) + "\n"


def _instruction_lines(instruction: HloInstruction, indent: str) -> list[str]:
    root = " root" if instruction.is_root else ""
    lines = [
        (
            f"{indent}instruction {instruction.name}{root} {instruction.opcode} "
            f"{_shape_line(_shape_tree(instruction.shape))}"
        )
    ]
    for operand in instruction.operands:
        if operand.literal is not None:
            lines.append(f"{indent}  literal {operand.literal.text}")
        elif operand.instruction is not None:
            lines += _instruction_lines(operand.instruction, f"{indent}  ")
        else:
            lines.append(
                f"{indent}  operand "
                f"{operand.name}{'' if operand.shape is None else f' {operand.shape}'}"
            )
    return lines + [f"{indent}  {name} {value}" for name, value in instruction.attributes.items()]


def _shape_line(tree: Any) -> str:
    if tree is None:
        return "(no shape)"
    if "elements" in tree:
        return f"{tree['type']}({', '.join(_shape_line(element) for element in tree['elements'])})"
    layout = "" if tree["layout"] is None else f" layout={tree['layout']['minor_to_major']}"
    rest = (
        ""
        if tree["layout"] is None or tree["layout"]["rest"] is None
        else f":{tree['layout']['rest']}"
    )
    return f"{tree['type']} dimensions={tree['dimensions']}{layout}{rest}"
