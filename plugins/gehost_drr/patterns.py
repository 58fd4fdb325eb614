"""What the author of a rule meets: the two patterns, their operators, and attribute variables.

``Op``, ``Tensor`` and ``Attr`` are the published spelling. ``pat.Relu(pat.x)`` is short for them: a capital begins an
operator, a small letter a tensor, and ``pat.y = …`` names what an operator makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gehost import PatternError, es
from gehost_drr.expressions import HERE, Expression, Variable
from gehost_drr.graph import Condition, Const, Native, NativeCall, NoneTensor, Operand, PatternGraph, Tensor


@dataclass(frozen=True, slots=True)
class Op:
    """An operator, to be applied: ``op(x, y)``, or ``op([x, y], [z])`` to name what it makes."""

    graph: PatternGraph
    ops: tuple[str, ...]
    attributes: Mapping[str, Any]
    origin: es.Origin

    def __call__(self, *arguments: Any) -> Tensor:
        """Returns the first tensor that it makes.

        Raises:
            PatternError: an operand of another pattern, or a name that another operator makes already.
        """
        outputs: Sequence[Tensor | NoneTensor] = ()
        inputs: Sequence[Operand] = arguments
        if len(arguments) == 2 and all(isinstance(given, list | tuple) for given in arguments):
            first, second = arguments
            if second and all(isinstance(entry, Tensor | NoneTensor) for entry in second):
                inputs, outputs = first, second
        return self.graph.apply(self.ops, self.attributes, inputs, outputs, self.origin)


class _Capital:
    """``pat.Transpose``: attributes make it an ``Op``, tensors apply it at once."""

    __slots__ = ("_op", "_pattern")

    def __init__(self, pattern: DrrPattern, op: str) -> None:
        self._pattern = pattern
        self._op = op

    def __call__(self, *inputs: Operand, **attributes: Any) -> Any:
        op = self._pattern.Op(self._op, attributes)
        return op(*inputs) if inputs else op


class DrrPattern:
    """What source and result patterns have in common."""

    __slots__ = ("_graph",)
    _graph: PatternGraph

    def __init__(self, graph: PatternGraph) -> None:
        object.__setattr__(self, "_graph", graph)

    def Op(self, op: str | Sequence[str], attributes: Mapping[str, Any] | None = None) -> Op:
        """An operator, or several of which a source pattern takes any; ``domain::Type`` outside ONNX's own domain."""
        ops = (op,) if isinstance(op, str) else tuple(op)
        return Op(self._graph, ops, dict(attributes or {}), es.author_origin(HERE))

    def Tensor(self, name: str) -> Tensor:
        return Tensor(self._graph, name)

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

    def __setattr__(self, name: str, given: Any) -> None:
        origin = es.author_origin(HERE)
        if name.startswith("_") or name[0].isupper() or hasattr(type(self), name):
            raise PatternError(f'{origin}: a tensor cannot be called "{name}" so; write Tensor("{name}").Assign(…)')
        if not isinstance(given, Tensor):
            raise PatternError(f'{origin}: "{name}" must be a tensor that an operator makes, got {given!r}')
        self._graph.bind(name, given)


class SourcePattern(DrrPattern):
    """What to look for, and under which conditions."""

    __slots__ = ("_result",)
    _result: ResultPattern

    def __init__(self, graph: PatternGraph, result: ResultPattern) -> None:
        super().__init__(graph)
        object.__setattr__(self, "_result", result)

    def Attr(self, name: str) -> Variable:
        """A variable for an attribute's value, which must be equal wherever the variable stands."""
        return Variable(name)

    def RequireNativeCall(self, test: NativeCall, reason: str = "") -> None:
        """Ask a function of the match; it returns whether the match may be replaced, or ``m.reject("key: text")``.

        Args:
            test: the function.
            reason: ``key: text`` for the report, where it returns False.
        """
        self._graph.conditions.append(Condition(test, es.author_origin(HERE), reason))

    def where(self, test: Expression, reason: str = "") -> None:
        """Ask what an expression says, which must be known to be true.

        Args:
            test: over tensors and attribute variables of this pattern: ``pat.x.dtype == pat.y.dtype``.
            reason: ``key: text`` for the report, where it is not; the expression itself unless said.

        Raises:
            PatternError: it is no expression.
        """
        origin = es.author_origin(HERE)
        if not isinstance(test, Expression):  # pyright: ignore[reportUnnecessaryIsInstance] - an author may give anything
            raise PatternError(f"{origin}: where wants an expression over tensors of the pattern, got {test!r}")
        self._graph.conditions.append(Condition(test, origin, reason))

    def Commutative(self, made: Tensor) -> Tensor:
        """Let the operator that makes a tensor match with its operands in any order; returns the tensor.

        Raises:
            PatternError: no operator makes it.
        """
        maker = self._graph.makers.get(made.name)
        if maker is None:
            raise PatternError(f'{es.author_origin(HERE)}: no operator makes "{made.name}", so that none can commute')
        maker.commutative = True
        return made

    def ResultPattern(self) -> ResultPattern:
        """What shall stand there instead."""
        return self._result


class ResultPattern(DrrPattern):
    """What stands in place of a match. Tensors that it does not make are those at the inputs of the source pattern."""

    __slots__ = ()

    def Attr(self, compute: NativeCall) -> Native:
        """A value for an attribute, computed from the match; None leaves the attribute out."""
        return Native(compute)

    def Const(self, compute: NativeCall) -> Const:
        """A constant that is computed from the match: a number, list or array."""
        return Const(compute)


class DrrPatternContext:
    """Given to a rule, to get the source pattern from; what the rule then says stands in ``source`` and ``result``."""

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
