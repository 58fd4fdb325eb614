"""The author's interface to a rule: patterns, operators, attribute variables.

``Op``, ``Tensor`` and ``Attr`` are the published spelling. ``pat.Relu(pat.x)`` is short for them: a
capital begins an operator, a small letter a tensor, and ``pat.y = …`` names an operator's output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from msgspec import Struct

from gehost import PatternError, es
from gehost_drr.constants import CONSTANT_OPS, FILLS
from gehost_drr.expressions import HERE, Expression, Variable, as_condition
from gehost_drr.graph import (
    Condition,
    Const,
    Native,
    NativeCall,
    NoneTensor,
    Operand,
    PatternGraph,
    Tensor,
)


class Op(Struct, frozen=True):
    """An operator to apply, as ``op(x, y)`` or ``op([x, y], [z])``.

    The second form names the outputs.
    """

    graph: PatternGraph
    ops: tuple[str, ...]
    attributes: Mapping[str, Any]
    origin: es.Origin

    def __call__(self, *arguments: Any) -> Tensor:
        """Returns the first tensor that it makes.

        Raises:
            PatternError: an argument cannot be an operand, or belongs to another pattern; an
                output's name is taken by another operator.
        """
        outputs: Sequence[Tensor | NoneTensor] = ()
        inputs: Sequence[Operand] = arguments
        if len(arguments) == 2 and all(isinstance(operand, list | tuple) for operand in arguments):
            first, second = arguments
            if second and all(isinstance(entry, Tensor | NoneTensor) for entry in second):
                inputs, outputs = first, second
        if not inputs and not self.graph.is_result and self.ops[0] in CONSTANT_OPS:
            return self.graph.add_constant(self.ops[0], self.attributes, outputs, self.origin)
        if not inputs and self.graph.is_result and self.ops[0] in FILLS:
            return self.graph.fill(self.ops[0], self.attributes, outputs, self.origin)
        for position, operand in enumerate(inputs):
            if not _is_operand(operand, in_result=self.graph.is_result):
                message = (
                    f"input {position} of {self.ops[0]}: wanted a tensor, a number or a list "
                    f"of numbers, got {operand!r}"
                )
                hint = (
                    "; outputs by name are a second list: op([x], [y])"
                    if isinstance(operand, list | tuple)
                    else ""
                )
                raise PatternError(f"{message}{hint}", where=self.origin)
        return self.graph.apply(self.ops, self.attributes, inputs, outputs, self.origin)

    def __repr__(self) -> str:
        return f"operator {self.ops[0]}, which is applied to nothing"


def _is_operand(argument: Any, *, in_result: bool) -> bool:
    if (
        argument is None
        or isinstance(argument, Tensor | NoneTensor)
        or (in_result and isinstance(argument, Const))
    ):
        return True
    return not isinstance(argument, str | bytes) and _is_plain(argument)


def _is_plain(argument: Any) -> bool:
    """Whether it is a number, text, array, or list of these."""
    if isinstance(argument, list | tuple):
        return all(map(_is_plain, cast("Iterable[Any]", argument)))
    return isinstance(argument, int | float | str | bytes | np.generic | np.ndarray)


class _Capital:
    """``pat.Transpose``: attributes make it an ``Op``, tensors apply it at once."""

    __slots__ = ("_op", "_pattern")

    def __init__(self, pattern: DrrPattern, op: str) -> None:
        self._pattern = pattern
        self._op = op

    def __call__(self, *inputs: Operand, **attributes: Any) -> Any:
        op = self._pattern.Op(self._op, attributes)
        return op(*inputs) if inputs else op

    def __repr__(self) -> str:
        return (
            f"operator {self._op}, which is applied to nothing (a tensor's name does not begin "
            "with a capital)"
        )


def _attribute(value: Any, name: str, op: str, origin: es.Origin) -> Any:
    """Check an attribute's value: plain, an expression, or computed.

    Texts may be written as bytes, too.
    """
    if isinstance(value, bytes):
        return value.decode()
    if value is None or isinstance(value, Expression | Native) or _is_plain(value):
        return value
    if isinstance(value, Tensor | NoneTensor | Const | Op | _Capital) or not callable(value):
        raise PatternError(
            f'attribute "{name}" of {op}: wanted a value, a variable or a function, got {value!r}',
            where=origin,
        )
    return value


def _name(argument: Any, what: str) -> str:
    if not isinstance(argument, str) or not argument:
        raise PatternError(f"{what} wants a name, got {argument!r}", where=es.author_origin(HERE))
    return argument


def _reason(argument: Any) -> str:
    if not isinstance(argument, str):
        raise PatternError(f"a reason is a text, got {argument!r}", where=es.author_origin(HERE))
    return argument


def _function(argument: Any, what: str, instead: str) -> Any:
    if isinstance(argument, Expression) or not callable(argument):
        raise PatternError(
            f"{what} wants a function of the match, got {argument!r}; {instead}",
            where=es.author_origin(HERE),
        )
    return argument


class DrrPattern:
    """The part that source and result patterns have in common."""

    __slots__ = ("_graph",)
    _graph: PatternGraph

    def __init__(self, graph: PatternGraph) -> None:
        object.__setattr__(self, "_graph", graph)

    def Op(self, op: str | Sequence[str], attributes: Mapping[str, Any] | None = None) -> Op:
        """Name an operator; ``domain::Type`` outside ONNX's own domain.

        A source pattern may name several, any of which matches.

        Raises:
            PatternError: the operator's name or an attribute is invalid.
        """
        origin = es.author_origin(HERE)
        ops = (op,) if isinstance(op, str) else tuple(op) if isinstance(op, list | tuple) else ()
        if not ops or not all(name and isinstance(name, str) for name in ops):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PatternError(
                f"Op wants the name of an operator, or a list of names, got {op!r}", where=origin
            )
        argument: Any = {} if attributes is None else attributes
        if not isinstance(argument, Mapping) or not all(
            isinstance(name, str) for name in cast("Mapping[Any, Any]", argument)
        ):
            raise PatternError(
                f"the attributes of {ops[0]} must be a mapping by name, got {attributes!r}",
                where=origin,
            )
        named = cast("Mapping[str, Any]", argument)
        read = {name: _attribute(value, name, ops[0], origin) for name, value in named.items()}
        return Op(self._graph, ops, read, origin)

    def Tensor(self, name: str) -> Tensor:
        """A tensor by name; raises ``PatternError`` where that is no text."""
        return Tensor(self._graph, _name(name, "Tensor"))

    def NoneTensor(self) -> NoneTensor:
        return NoneTensor()

    def InputNoneTensor(self) -> NoneTensor:
        return NoneTensor()

    def OutputNoneTensor(self) -> NoneTensor:
        return NoneTensor()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Capital(self, name) if name[0].isupper() else Tensor(self._graph, name)

    def __setattr__(self, name: str, argument: Any) -> None:
        origin = es.author_origin(HERE)
        if name.startswith("_") or name[0].isupper() or hasattr(type(self), name):
            raise PatternError(
                f'a tensor cannot be called "{name}" so',
                where=origin,
                hint=f'write Tensor("{name}").Assign(…)',
            )
        self._graph.bind(name, argument)


class SourcePattern(DrrPattern):
    """What to look for, and under which conditions."""

    __slots__ = ("_result",)
    _result: ResultPattern

    def __init__(self, graph: PatternGraph, result: ResultPattern) -> None:
        super().__init__(graph)
        object.__setattr__(self, "_result", result)

    def Attr(self, name: str) -> Variable:
        """Return a variable for an attribute's value, equal wherever it stands."""
        return Variable(_name(name, "Attr"))

    def RequireNativeCall(self, test: NativeCall, reason: str = "") -> None:
        """Ask a function of the match whether to replace it.

        It returns True, False, or ``m.reject("key: text")``.

        Args:
            test: the function.
            reason: ``key: text`` for the report, where it returns False.

        Raises:
            PatternError: it is no function.
        """
        _function(test, "RequireNativeCall", "an expression is asked by where")
        origin = es.author_origin(HERE)
        message = _reason(reason) or f"native call: the one at {origin} returned False"
        self._graph.conditions.append(Condition(test, origin, message))

    def where(self, test: Expression, reason: str = "") -> None:
        """Require an expression; it must be known to be true.

        Args:
            test: over tensors and attribute variables of this pattern: ``pat.x.dtype ==
                pat.y.dtype``.
            reason: ``key: text`` for the report, where it is not; default: the expression
                itself.

        Raises:
            PatternError: it is no expression, or one that is neither true nor false.
        """
        origin = es.author_origin(HERE)
        if not isinstance(test, Expression):  # pyright: ignore[reportUnnecessaryIsInstance] - an author may give anything
            raise PatternError(
                f"where wants an expression over tensors of the pattern, got {test!r}", where=origin
            )
        self._graph.conditions.append(Condition(as_condition(test), origin, _reason(reason)))

    def Commutative(self, result: Tensor) -> Tensor:
        """Let a tensor's operator match operands in any order; return the tensor.

        Raises:
            PatternError: no operator of this pattern makes it.
        """
        mine = isinstance(result, Tensor) and result.graph is self._graph  # pyright: ignore[reportUnnecessaryIsInstance]
        maker = self._graph.makers.get(result.name) if mine else None
        if maker is None:
            raise PatternError(
                f"no operator makes {result!r}, so that none can commute",
                where=es.author_origin(HERE),
            )
        maker.commutative = True
        return result

    def ResultPattern(self) -> ResultPattern:
        """The result pattern, which replaces a match."""
        return self._result


class ResultPattern(DrrPattern):
    """The replacement of a match.

    Tensors that it does not define are those at the inputs of the source pattern.
    """

    __slots__ = ()

    def Attr(self, compute: NativeCall) -> Native:
        """Return an attribute value computed from the match; None leaves it out.

        Raises:
            PatternError: it is no function.
        """
        return Native(_function(compute, "Attr of a result", "a value or variable stands as it is"))

    def Const(self, compute: NativeCall) -> Const:
        """Return a constant that is computed from the match.

        It is an array, or a number or list in its partner's dtype.

        Raises:
            PatternError: it is no function.
        """
        return Const(_function(compute, "Const", "a number or array stands as it is"))


class DrrPatternContext:
    """The argument of a rule: creates the source pattern.

    The patterns are then in ``source`` and ``result``.
    """

    def __init__(self) -> None:
        self.source = PatternGraph(is_result=False)
        self.result = PatternGraph(is_result=True)

    def SourcePattern(self) -> SourcePattern:
        return SourcePattern(self.source, ResultPattern(self.result))


class Attributes:
    """``attr.perm`` is the attribute variable ``perm``."""

    def __getattr__(self, name: str) -> Variable:
        if name.startswith("_"):
            raise AttributeError(name)
        return Variable(name)


attr = Attributes()
