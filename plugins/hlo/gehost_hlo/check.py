"""Conditions on text that follows the grammar.

A problem is a text, "" where there is none.
"""

from __future__ import annotations

from collections.abc import Mapping

from gehost_hlo.module import HloComputation, HloInstruction, Shape


def check_instruction(instruction: HloInstruction, defined: Mapping[str, HloInstruction]) -> str:
    """Check one instruction whose operands are defined.

    Checked are numbers of parameters, sizes of a reshape, and shardings.
    """
    if instruction.opcode == "parameter":
        number = instruction.literal
        if not (number.isascii() and number.isdigit() and len(number) < 9):
            return f'expected the number of the parameter, found "{number}"'
    elif instruction.opcode == "reshape" and len(instruction.operands) == 1:
        source, result = _operand_shape(instruction, defined), instruction.shape
        if source is not None and result is not None and _sizes_differ(source, result):
            return f"{source} cannot be reshaped to {result}: the number of elements differs"
    sharding = instruction.attributes.get("sharding")
    if (
        sharding is not None
        and "last_tile_dims" in sharding
        and "last_tile_dim_replicate" in sharding
    ):
        return "sharding: last_tile_dims and last_tile_dim_replicate exclude each other"
    return ""


def check_computation(computation: HloComputation) -> str:
    """Check the parameters and the signature of a computation.

    Parameters are numbered from 0 without gaps; a signature agrees with them and with the root.
    """
    parameters = computation.parameters
    for number, parameter in enumerate(parameters):
        position = int(parameter.literal)
        if position > number:
            return f'"{parameter.name}" is parameter {position}, but there is no parameter {number}'
        if position < number:
            return f'"{parameter.name}" is a second parameter {position}'
    if computation.signature is None:
        return ""
    if len(computation.signature) != len(parameters):
        return (
            f"the signature has {len(computation.signature)} parameters, "
            f"the instructions have {len(parameters)}"
        )
    for declared, parameter in zip(computation.signature, parameters, strict=True):
        if parameter.shape is not None and not declared.shape.compatible(parameter.shape):
            return (
                f'parameter "{declared.name}" is {declared.shape} in the signature, '
                f"{parameter.shape} as an instruction"
            )
    root, result = computation.root.shape, computation.result
    if root is not None and result is not None and not root.compatible(result):
        return f'the signature returns {result}, the root "{computation.root.name}" is {root}'
    return ""


def _operand_shape(
    instruction: HloInstruction, defined: Mapping[str, HloInstruction]
) -> Shape | None:
    operand = instruction.operands[0]
    if operand.instruction is not None:
        return operand.instruction.shape
    return defined[operand.name].shape if operand.name in defined else operand.shape


def _sizes_differ(source: Shape, result: Shape) -> bool:
    is_static = (
        source.elements is None
        and result.elements is None
        and not source.dynamic
        and not result.dynamic
    )
    return (
        is_static
        and -1 not in (*source.dimensions, *result.dimensions)
        and source.size != result.size
    )
