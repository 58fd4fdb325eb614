"""An author's pattern as written: named tensors, and operators between them.

Nothing is looked up here; ``rule.py`` checks the whole and makes an ordinary pattern of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from msgspec import Struct

from gehost import PatternError, es
from gehost_drr.constants import FILLS, ConstantSource, check_constant
from gehost_drr.expressions import FIELDS, HERE, Expression, Field
from gehost_drr.matched import MatchContext

NativeCall: TypeAlias = Callable[[MatchContext], Any]


class NoneTensor(Struct, frozen=True):
    """An input or output that is absent."""


class Const(Struct, frozen=True):
    """A constant (number, list or array) that the result computes."""

    compute: NativeCall


class Native(Struct, frozen=True):
    """A value for an attribute of the result, computed from the match."""

    compute: NativeCall


class Tensor(Struct, frozen=True):
    """A tensor of one pattern, by name; ``dtype``, ``shape``, ``rank``, ``is_constant`` and
    ``op_type`` are expressions.
    """

    graph: PatternGraph
    given_name: str

    @property
    def name(self) -> str:
        """The current name.

        An operator's output may be named after it was created.
        """
        return self.graph.renamed.get(self.given_name, self.given_name)

    def __repr__(self) -> str:
        return f'tensor "{self.name}"'

    def Assign(self, source: Tensor | Const) -> None:
        """Give an operator's output this name; in a result, also forward tensors and constants."""
        self.graph.bind(self.name, source)

    def __getattr__(self, name: str) -> Field:
        if name not in FIELDS:
            raise AttributeError(
                f"a tensor of a pattern has no {name!r}; it has {', '.join(FIELDS)}"
            )
        return Field(self.name, name)


Operand: TypeAlias = "Tensor | NoneTensor | Const | Any"


@dataclass(eq=False)
class Application:
    """An operator with its inputs and outputs.

    An input that is neither tensor, constant nor None is a literal.
    """

    ops: tuple[str, ...]
    attributes: Mapping[str, Any]
    inputs: list[Operand]
    outputs: list[str]
    """Names; "" for one that is absent."""
    origin: es.Origin
    commutative: bool = False

    def __str__(self) -> str:
        read = ", ".join(map(_text, self.inputs))
        attributes = ", ".join(f"{name}: {_text(value)}" for name, value in self.attributes.items())
        result = ", ".join(name or "none" for name in self.outputs)
        order = " in any order" if self.commutative else ""
        return (
            f"{result} = "
            f"{'|'.join(self.ops)}({read}){f' {{{attributes}}}' if attributes else ''}{order}"
        )

    @cached_property
    def function(self) -> es.OpFunction:
        """Builds it."""
        return es.AnyOf(*self.ops)

    @property
    def is_fill(self) -> bool:
        """Whether it makes a constant of the result."""
        return not self.inputs and self.ops[0] in FILLS

    @cached_property
    def operands(self) -> list[tuple[Operand, str | None]]:
        """The inputs, each with its name if it is a tensor.

        They are read only when the rule is complete and no name changes any more.
        """
        return [
            (operand, operand.name if isinstance(operand, Tensor) else None)
            for operand in self.inputs
        ]

    @property
    def constants(self) -> list[Const]:
        """The inputs that are computed from the match."""
        return [operand for operand in self.inputs if isinstance(operand, Const)]

    @cached_property
    def reads(self) -> list[str]:
        """The names of the tensors that it reads.

        They are read only when the rule is complete, like the operands.
        """
        return [name for _, name in self.operands if name is not None]


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return value.name
    if isinstance(value, NoneTensor) or value is None:
        return "none"
    if isinstance(value, Native | Const) or callable(value):
        code = getattr(
            value.compute if isinstance(value, Native | Const) else value, "__code__", None
        )
        return f"<function at line {code.co_firstlineno}>" if code is not None else "<function>"
    return str(value) if isinstance(value, Expression) else repr(value)


class Condition(Struct, frozen=True):
    """A condition on a match: an expression, or a function (native call)."""

    test: Expression | NativeCall
    origin: es.Origin
    reason: str = ""

    def __str__(self) -> str:
        return (
            str(self.test) if isinstance(self.test, Expression) else f"native call at {self.origin}"
        )


@dataclass(slots=True, eq=False)
class PatternGraph:
    """The operators of a source or result pattern, as written."""

    is_result: bool
    applications: list[Application] = field(default_factory=list[Application])
    makers: dict[str, Application] = field(default_factory=dict[str, Application])
    """Who makes a tensor, by its name; ``%0`` (``%r0`` in a result) where the author gave it
    none.
    """
    forwards: dict[str, tuple[str, es.Origin]] = field(
        default_factory=dict[str, tuple[str, es.Origin]]
    )
    """Names under which a result hands on another tensor."""
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    conditions: list[Condition] = field(default_factory=list[Condition])
    constants: list[ConstantSource] = field(default_factory=list[ConstantSource])

    def add_constant(
        self,
        op: str,
        attributes: Mapping[str, Any],
        outputs: Sequence[Tensor | NoneTensor],
        origin: es.Origin,
    ) -> Tensor:
        """Add a source operator without inputs; return its tensor.

        The tensor is an input of the match.

        Raises:
            PatternError: an attribute that constants lack, or an output of another pattern.
        """
        check_constant(op, attributes, origin)
        result = next((output for output in outputs if isinstance(output, Tensor)), None)
        if result is None:
            result = Tensor(self, f"%constant{len(self.constants)}")
        if result.graph is not self:
            raise PatternError(f'"{result.name}" is a tensor of another pattern', where=origin)
        self._refuse_second_maker(result.name, origin)
        self.constants.append(ConstantSource(result.name, op, attributes, origin))
        return result

    def apply(
        self,
        ops: tuple[str, ...],
        attributes: Mapping[str, Any],
        inputs: Sequence[Operand],
        outputs: Sequence[Tensor | NoneTensor],
        origin: es.Origin,
    ) -> Tensor:
        """Add an operator; returns the first tensor that it makes.

        Raises:
            PatternError: an operand of another pattern, or a name that is made already.
        """
        for operand in (*inputs, *outputs):
            if isinstance(operand, Tensor) and operand.graph is not self:
                raise PatternError(
                    f'"{operand.name}" of {ops[0]} is a tensor of another pattern', where=origin
                )
        names = [output.name if isinstance(output, Tensor) else "" for output in outputs] or [
            self._fresh()
        ]
        added = Application(ops, attributes, list(inputs), names, origin)
        for name in filter(None, names):
            self._refuse_second_maker(name, origin)
            self.makers[name] = added
        self.applications.append(added)
        return Tensor(self, names[0])

    def fill(
        self,
        op: str,
        attributes: Mapping[str, Any],
        outputs: Sequence[Tensor | NoneTensor],
        origin: es.Origin,
    ) -> Tensor:
        """Add a constant of the result; return its tensor.

        Raises:
            PatternError: it has no value, or an attribute that constants lack.
        """
        check_constant(op, attributes, origin)
        if attributes.get("value") is None:
            raise PatternError(f"{op} needs a value", where=origin)
        return self.apply((op,), attributes, (), outputs, origin)

    def _fresh(self) -> str:
        """A name unused by the author and the rule's other pattern."""
        return f"%{'r' if self.is_result else ''}{len(self.applications)}"

    def bind(self, name: str, source: Tensor | Const) -> None:
        """Name a tensor that an operator makes.

        In a result, forward a tensor that has a name, or make a computed constant.

        Raises:
            PatternError: it is none, is of another pattern, has a name already, or the name is
                another's.
        """
        origin = es.author_origin(HERE)
        if self.is_result and isinstance(source, Const):
            self.fill("full", {"value": source}, [Tensor(self, name)], origin)
            return
        if not isinstance(source, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance] - an author may give anything
            raise PatternError(
                f'"{name}" must be a tensor that an operator makes, got {source!r}', where=origin
            )
        if source.graph is not self:
            raise PatternError(
                f'"{name}" cannot be "{source.name}", which is a tensor of another pattern',
                where=origin,
            )
        old = source.name
        if old == name and old in self.makers:
            return
        self._refuse_second_maker(name, origin)
        if old.startswith("%") and old in self.makers:
            maker = self.makers[name] = self.makers.pop(old)
            maker.outputs[maker.outputs.index(old)] = name
            self.renamed[old] = name
        elif self.is_result:
            self.forwards[name] = old, origin
        else:
            raise PatternError(
                f'"{name}" is "{old}" already; a tensor of a source pattern has one name',
                where=origin,
            )

    def _refuse_second_maker(self, name: str, origin: es.Origin) -> None:
        maker = self.makers.get(name)
        if maker is not None:
            raise PatternError(
                f'"{name}" is made by {maker.ops[0]} at {maker.origin} already', where=origin
            )
        if name in self.forwards:
            raise PatternError(
                f'"{name}" was forwarded at {self.forwards[name][1]} already', where=origin
            )

    def in_order(self) -> list[Application]:
        """The operators in topological order; otherwise in the order of their definition.

        Raises:
            PatternError: they read each other in a circle.
        """
        ordered: list[Application] = []
        waiting = list(self.applications)
        unmade = set(self.makers)
        while waiting:
            ready = next((item for item in waiting if unmade.isdisjoint(item.reads)), None)
            if ready is None:
                raise PatternError(
                    f"{waiting[0].ops[0]} reads a tensor that depends on its own result",
                    where=waiting[0].origin,
                )
            ordered.append(ready)
            waiting.remove(ready)
            unmade.difference_update(ready.outputs)
        return ordered
