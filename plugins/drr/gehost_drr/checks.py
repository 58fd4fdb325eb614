"""Check once, at a rule's definition, that source and result fit."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from gehost import PatternError, es, expressions
from gehost_drr.constants import FILLS
from gehost_drr.expressions import Expression, Variable, parts
from gehost_drr.graph import Application, Native, PatternGraph


def check(name: str, origin: es.Origin, source: PatternGraph, result: PatternGraph) -> None:
    """Check a rule as a whole.

    Raises:
        PatternError: with the file and line at fault: an empty or unconnected source; an
            unknown operator; an attribute variable, tensor or output that the source does not
            bind; a result with tensors that are never used.
    """
    if not source.applications:
        raise PatternError("the source pattern has no operator", where=origin, subject=name)
    for application in (*source.applications, *result.applications):
        _check_operators(application)
    for pattern in (source, result):
        pattern.in_order()
    _check_connected(name, source)
    tensors, variables = _bound(source)
    _check_conditions(source, tensors, variables)
    _check_result(name, origin, source, result, variables)


def check_options(name: str, origin: es.Origin, options: Mapping[str, Any]) -> None:
    """Check the options of a rule.

    Raises:
        PatternError: an option is of the wrong type; names the rule's file and line.
    """
    labels: Any = options["labels"]
    items = (
        list(cast("Iterable[Any]", labels))
        if isinstance(labels, Iterable) and not isinstance(labels, str)
        else [None]
    )
    said: dict[str, tuple[Any, str, bool]] = {
        "name": (name, "a text", isinstance(name, str) and bool(name)),  # pyright: ignore[reportUnnecessaryIsInstance]
        "labels": (labels, "a list of texts", all(isinstance(item, str) for item in items)),
        "benefit": (
            options["benefit"],
            "a number",
            isinstance(options["benefit"], int | np.integer)
            and not isinstance(options["benefit"], bool),
        ),
        "min_opset": (
            options["min_opset"],
            "a number or None",
            isinstance(options["min_opset"], int | np.integer | None),
        ),
        "max_opset": (
            options["max_opset"],
            "a number or None",
            isinstance(options["max_opset"], int | np.integer | None),
        ),
        "shape_proven": (
            options["shape_proven"],
            "True or False",
            isinstance(options["shape_proven"], bool),
        ),
        "default": (options["default"], "True or False", isinstance(options["default"], bool)),
        "instances": (
            options["instances"],
            "a function that returns models",
            options["instances"] is None or callable(options["instances"]),
        ),
    }
    for option, (argument, expected, right) in said.items():
        if not right:
            raise PatternError(
                f"{option} must be {expected}, got {argument!r}", where=origin, subject=name
            )
    least, most = options["min_opset"], options["max_opset"]
    if least is not None and most is not None and least > most:
        raise PatternError(
            f"no opset is {least} or newer and {most} or older", where=origin, subject=name
        )


def _check_operators(application: Application) -> None:
    for op in application.ops:
        if op in FILLS and not application.inputs:
            continue
        if "::" not in op and es.first_version("", op) is None:
            near = difflib.get_close_matches(op, sorted(es.operator_names()), 1)
            hint = (
                f"did you mean {near[0]}?" if near else 'write "domain::Type" for one of your own'
            )
            raise PatternError(f"ONNX has no operator {op}; {hint}", where=application.origin)


def _check_connected(name: str, source: PatternGraph) -> None:
    """Parts that share no tensor would match in every combination."""
    reached, waiting = set(source.applications[0].outputs), source.applications
    while waiting:
        apart: list[Application] = []
        for item in waiting:
            tensors = {*item.reads, *filter(None, item.outputs)}
            if reached.isdisjoint(tensors):
                apart.append(item)
            else:
                reached |= tensors
        if len(apart) == len(waiting):
            raise PatternError(
                f"{apart[0].ops[0]} shares no tensor with the rest of {name}", where=apart[0].origin
            )
        waiting = apart


def _bound(source: PatternGraph) -> tuple[set[str], set[str]]:
    """The tensors and the attribute variables of a source pattern."""
    tensors = {
        *source.makers,
        *source.renamed,
        *(read for item in source.applications for read in item.reads),
    }
    variables: set[str] = set()
    for application in (*source.applications, *source.constants):
        for name, value in application.attributes.items():
            if isinstance(value, Variable):
                variables.add(value.name)
            elif isinstance(value, Expression | Native):
                wrong = (
                    f'attribute "{name}" of a source pattern must be a value, a variable or a '
                    "function of the value"
                )
                raise PatternError(wrong, where=application.origin, hint="ask more with where")
    return tensors, variables


def _check_conditions(source: PatternGraph, tensors: set[str], variables: set[str]) -> None:
    for condition in source.conditions:
        if isinstance(condition.test, Expression):
            _check_expression(condition.test, condition.origin, tensors, variables)


def _check_expression(
    expression: Expression, origin: es.Origin, tensors: set[str], variables: set[str]
) -> None:
    for part in parts(expression):
        is_variable = isinstance(part, expressions.OpAttr)
        name = part.name if is_variable else part.tensor
        if name not in (variables if is_variable else tensors):
            raise PatternError(
                _unknown(name, variables if is_variable else tensors, is_variable), where=origin
            )


def _unknown(name: str, names: Iterable[str], is_variable: bool) -> str:
    near = difflib.get_close_matches(name, sorted(names), 1)
    what = "attribute variable" if is_variable else "tensor"
    return (
        f'the source pattern has no {what} "{name}"{f"; did you mean {near[0]}?" if near else ""}'
    )


def _check_result(
    name: str, origin: es.Origin, source: PatternGraph, result: PatternGraph, variables: set[str]
) -> None:
    output = result.makers.keys() | result.forwards.keys()
    read = {tensor for item in result.applications for tensor in item.reads}
    inputs = {
        tensor for item in source.applications for tensor in item.reads
    } - source.makers.keys()
    if not output & source.makers.keys():
        raise PatternError(
            "the result makes no tensor of the source pattern, so that nothing is replaced",
            where=origin,
            subject=name,
        )
    for application in result.applications:
        for tensor in application.reads:
            _check_read(tensor, application.origin, result, inputs, source)
        for value in application.attributes.values():
            if isinstance(value, Expression):
                _check_expression(
                    value, application.origin, inputs | source.makers.keys(), variables
                )
        if not read.union(
            source.makers, (tensor for tensor, _ in result.forwards.values())
        ).intersection(application.outputs):
            raise PatternError(
                f"what {application.ops[0]} of the result makes is neither read nor replaced",
                where=application.origin,
            )
        for tensor in inputs.intersection(application.outputs):
            raise PatternError(
                f'the result makes "{tensor}", which the source pattern does not make',
                where=application.origin,
            )
    for target, (tensor, where) in result.forwards.items():
        if target not in source.makers:
            raise PatternError(
                f"{_unknown(target, source.makers, is_variable=False)} that could be replaced",
                where=where,
            )
        _check_read(tensor, where, result, inputs, source)


def _check_read(
    tensor: str, origin: es.Origin, result: PatternGraph, inputs: set[str], source: PatternGraph
) -> None:
    if tensor in result.makers or tensor in inputs:
        return
    if tensor in result.forwards:
        raise PatternError(
            f'"{tensor}" only stands for "{result.forwards[tensor][0]}"',
            where=origin,
            hint="read that one",
        )
    if tensor in source.makers:
        raise PatternError(
            f'the result reads "{tensor}", which a matched operator makes that goes with the match',
            where=origin,
        )
    raise PatternError(
        f"{_unknown(tensor, inputs, is_variable=False)}, so that the result cannot read it",
        where=origin,
    )
