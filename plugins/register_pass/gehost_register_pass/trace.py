"""Trace an author's functions.

Calls them with tensors that stand for those of a match, and records their calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

from gehost import es
from gehost import expressions as ex

from .desc import InputSpec, OpDesc, ParamAttr, Tensor, input_of
from .program import Input, Op, Operand, Pair, Program
from .reference import Ref
from .scope import Call, Scope, author_code, mistake, tracing
from .symbols import expression_of

Specs = Mapping[str, InputSpec | ParamAttr]

_MOST_PAIRS = 10_000
"""Pairs of one function; a generator may have no end."""


def origin_of(function: Callable[..., Any], default: es.Origin) -> es.Origin:
    """Where a function is written."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return default if code is None else es.Origin(code.co_filename, code.co_firstlineno)


def trace_pairs(returned: Any, specs: Specs, where: es.Origin) -> tuple[Pair, ...]:
    """Trace the return value of a registered function.

    It is one pair, or an iterable of pairs.

    Raises:
        PatternError: it returned something else, or a specification is for no argument.
    """
    with author_code(where):  # a generator runs now
        pairs_: list[Any] = (
            [returned]
            if _is_pair(returned)
            else list(islice(cast("Iterable[Any]", returned), _MOST_PAIRS + 1))
            if isinstance(returned, Iterable)
            else []
        )
    if len(pairs_) > _MOST_PAIRS:
        raise mistake(f"a registered function returned more than {_MOST_PAIRS} pairs", where)
    if not pairs_ or not all(map(_is_pair, pairs_)):
        raise mistake(
            (
                "a registered function must return (pattern, replace), or an iterable of such "
                f"pairs, got {returned!r}"
            ),
            where,
        )
    pairs = tuple(_trace_pair(pattern, replace, specs, where) for pattern, replace in pairs_)
    unused = specs.keys() - {input_.name for pair in pairs for input_ in pair.inputs}
    if unused:
        raise mistake(
            f"input_specs: no pattern has an argument {' or '.join(sorted(unused))}", where
        )
    return pairs


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple | list) and [
        callable(entry) for entry in cast("Sequence[Any]", value)
    ] == [True, True]


def _trace_pair(
    pattern: Callable[..., Any], replace: Callable[..., Any], specs: Specs, where: es.Origin
) -> Pair:
    pattern_at, replace_at = origin_of(pattern, where), origin_of(replace, where)
    names = _arguments(pattern, "pattern", pattern_at)
    parameters = _arguments(replace, "replace", replace_at)
    strange = [name for name in parameters if name not in names]
    if strange:
        raise mistake(
            (
                f"replace takes {', '.join(strange)}, which pattern does not; its arguments "
                f"are {', '.join(names)}"
            ),
            replace_at,
        )
    inputs = tuple(input_of(name, specs.get(name)) for name in names)
    scope, source = _trace(Scope("pattern", names), pattern, names=names, where=pattern_at)
    _, target = _trace(Scope("replace", names, pattern=scope), replace, parameters, replace_at)
    if len(source.outputs) != len(target.outputs):
        raise mistake(
            f"replace returns {len(target.outputs)} tensors, pattern {len(source.outputs)}",
            replace_at,
        )
    return _pair(inputs, source, tuple(scope.conditions), target)


def _pair(
    inputs: tuple[Input, ...],
    source: Program,
    conditions: tuple[ex.Condition, ...],
    target: Program,
) -> Pair:
    """Turn attributes that a pattern computes, instead of naming them, into conditions."""
    ops: list[Op] = []
    computed: list[ex.Condition] = []
    for number, op in enumerate(source.ops):
        literal = tuple(
            (name, value) for name, value in op.attributes if isinstance(value, ex.Constant)
        )
        computed += [
            ex.Condition(ex.OpAttr(number, name), "==", value)
            for name, value in op.attributes
            if not isinstance(value, ex.Constant)
        ]
        ops.append(Op(op.type, op.inputs, op.named, literal, op.outputs, op.commutative, op.origin))
    return Pair(
        inputs,
        Program(tuple(ops), source.outputs, source.origin),
        conditions + tuple(computed),
        target,
    )


def _arguments(function: Callable[..., Any], role: str, where: es.Origin) -> list[str]:
    """The arguments that stand for tensors: those without a default."""
    parameters = inspect.signature(function).parameters.values()
    for parameter in parameters:
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
            parameter.POSITIONAL_ONLY,
        ):
            raise mistake(
                (
                    f"{role} must name its arguments, which are matched by name: {parameter} "
                    "is not allowed"
                ),
                where,
            )
    return [parameter.name for parameter in parameters if parameter.default is parameter.empty]


def _trace(
    scope: Scope,
    function: Callable[..., Any],
    names: Sequence[str],
    where: es.Origin,
) -> tuple[Scope, Program]:
    token = tracing.set(scope)
    try:
        with author_code(where):
            returned = function(
                **{name: Tensor(Ref(None, scope.names.index(name)), scope) for name in names}
            )
        results: list[Any] = (
            list(cast("Any", returned)) if isinstance(returned, list | tuple) else [returned]
        )
        if not results or not all(isinstance(tensor, Tensor | OpDesc) for tensor in results):
            raise mistake(f"{scope.role} must return tensors of its own, got {returned!r}", where)
        for returned_op in results:
            if isinstance(returned_op, OpDesc):
                returned_op.refuse_several_outputs(scope.role, where)
        outputs = tuple(_ref(tensor, scope, where) for tensor in results)
        return scope, Program(tuple(_op(desc, scope) for desc in scope.ops), outputs, where)
    finally:
        tracing.reset(token)


def _op(desc: Call, scope: Scope) -> Op:
    return Op(
        desc.type,
        tuple(_operand(operand, scope, desc.origin) for operand in desc.inputs),
        tuple(
            (name, _operand(operand, scope, desc.origin)) for name, operand in desc.named.items()
        ),
        tuple(desc.attributes.items()),
        desc.outputs,
        desc.commutative,
        desc.origin,
    )


def _operand(value: Any, scope: Scope, where: es.Origin) -> Operand:
    if value is None:
        return None
    if isinstance(value, Tensor | OpDesc):
        return _ref(value, scope, where)
    with es.written_at(where):
        operand = expression_of(value)
    if scope.role == "pattern" and not isinstance(operand, ex.Constant):
        raise mistake(
            (
                "an operand of a pattern is a tensor or a number; compare a computed value "
                "with its Attr"
            ),
            where,
        )
    return operand


def _ref(value: Tensor | OpDesc, scope: Scope, where: es.Origin) -> Ref:
    with es.written_at(where):
        tensor = value if isinstance(value, Tensor) else value.Output()
    if tensor.scope is not scope:
        raise mistake(f"{scope.role} uses a tensor that another function was given or made", where)
    return tensor.ref
