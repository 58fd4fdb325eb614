"""What authors describe a pattern and a replacement with, in the published spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import onnx

from gehost import DataType

from .expressions import TENSOR_ATTRIBUTES, OpAttr, Ref, TensorAttr
from .program import Input, operator_problem
from .scope import Scope, current, mistake, origin
from .symbols import Symbol, Untold, dtype_name, expression_of


class InputSpec:
    """The shape (None or -1: any size) and dtype that an argument of a pattern asks of its
    tensor.
    """

    def __init__(
        self,
        shape: Sequence[int | None] | None = None,
        dtype: str | DataType | None = None,
        name: str = "",
    ) -> None:
        """Raises ``PatternError`` for a shape or dtype that no tensor has."""
        self.shape = None if shape is None else _sizes(shape)
        self.dtype = None if dtype is None else dtype_name(dtype)
        self.name = name


def _sizes(shape: Any) -> tuple[int | None, ...]:
    """A shape that an author gave."""
    sizes: list[Any] = (
        list(cast("Sequence[Any]", shape)) if isinstance(shape, Sequence) else ["no size"]
    )
    known = [None if size in (None, -1) else size for size in sizes]
    if not all(size is None or (type(size) is int and size >= 0) for size in known):
        raise mistake(f"InputSpec: a shape holds sizes, or None for any, got {shape!r}")
    return tuple(known)


class ParamAttr:
    """Says that an argument of a pattern is a weight: a constant that no caller of the model can
    override.
    """


class Traced(Untold):
    """A tensor, or an operator that stands for its first output; one is not compared with
    another.
    """

    _advice = (
        "a tensor has no value while it is traced; ask for what is known of it: x.shape, "
        "x.dtype, add.Attr(…)"
    )

    def __eq__(self, other: object) -> bool:
        raise mistake(self._advice)

    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Tensor(Traced):
    """An argument of a traced function, or an output of an operator in it."""

    ref: Ref
    scope: Scope

    def Attr(self, name: str) -> Symbol:
        """What a match knows of the tensor: ``"shape"`` (a list), ``"dtype"``, or ``"value"`` (a
        flat list) of a constant.
        """
        if name not in TENSOR_ATTRIBUTES:
            raise mistake(
                f'a tensor has no attribute "{name}"; it has shape, dtype and, if it is '
                "constant, value"
            )
        if self.scope.role == "replace" and self.ref.op is not None:
            raise mistake(
                "what the replacement makes is not there when it is built; ask the arguments"
            )
        if self.scope.matched is not current("Attr").matched:
            raise mistake("what another pattern matches is not known here")
        return Symbol(TensorAttr(self.ref, name))

    @property
    def shape(self) -> Symbol:
        return self.Attr("shape")

    @property
    def dtype(self) -> Symbol:
        return self.Attr("dtype")


Given: TypeAlias = "Tensor | OpDesc | Symbol | float | Sequence[Any] | None"
"""An operand as an author gives it."""


class OpAttribute(Symbol):
    """An attribute of an operator: read it in a pattern, or let a replacement take it from what
    matched.
    """

    def __init__(self, op: OpDesc, name: str) -> None:
        self._op = op
        self._name = name

    @property
    def expression(self) -> OpAttr:
        """Raises ``PatternError`` unless the operator is one of the pattern at hand, and
        applied.
        """
        number = self._op.number
        if self._op.scope is not current("Attr").matched:
            raise mistake(
                f"{self._op.type} is no operator of the pattern; MappedPattern(…) asks "
                "those that are"
            )
        return OpAttr(number, self._name)

    def MappedPattern(
        self, op: str = "", index: int = 0, name: str = "", element_index: int | None = None
    ) -> None:
        """Give the attribute the value that the pattern's operator has; see the function
        ``MappedPattern``.
        """
        self._op.SetAttr(
            self._name, MappedPattern(op or self._op.type, index, name or self._name, element_index)
        )


class OpDesc(Traced):
    """An operator of a traced function. As an operand it means its first output."""

    def __init__(self, type_: str) -> None:
        """Raises ``PatternError`` for an operator that ONNX has not, and that names no domain."""
        if problem := operator_problem(type_):
            raise mistake(problem)
        self.type = type_
        self.inputs: tuple[Given, ...] = ()
        self.named: dict[str, Given] = {}
        self.attributes: dict[str, Any] = {}
        self.outputs: int | None = None
        self.commutative = False
        self.origin = origin()
        self.scope: Scope | None = None
        self._number = -1

    def __call__(self, *inputs: Given, num_outputs: int | None = None, **named: Any) -> OpDesc:
        """Apply the operator.

        Args:
            inputs: by position: tensors, numbers (in the dtype of the tensor beside them), None
                for an absent one.
            num_outputs: how many outputs, where the operator leaves it open.
            named: inputs by ONNX's name (``A=x``), and attributes.

        Raises:
            PatternError: it was applied before.
        """
        if self.scope is not None:
            raise mistake(
                f"this {self.type} was applied at {self.origin} already; "
                f"PassDesc.OP.{self.type} makes another one"
            )
        if problem := operator_problem(self.type, num_outputs):
            raise mistake(problem)
        self.scope = current(self.type)
        self.origin = origin()
        self.inputs, self.outputs = inputs, num_outputs
        for name, given in named.items():
            if isinstance(given, Tensor | OpDesc):
                self.named[name] = given
            else:
                self.SetAttr(name, given)
        self._number = len(self.scope.ops)
        self.scope.ops.append(self)
        return self

    @property
    def number(self) -> int:
        if self.scope is None:
            raise mistake(f"{self.type} is not applied to its inputs yet")
        return self._number

    def SetAttr(self, name: str, value: Any) -> OpDesc:
        """In a pattern: ask for a value, which a symbol may compute. In a replacement: give it.
        Returns the operator.
        """
        self._may_change("SetAttr")
        self.attributes[name] = expression_of(value)
        return self

    def Attr(self, name: str) -> OpAttribute:
        """An attribute; also one that the model's opset has as a constant input (``axes``)."""
        return OpAttribute(self, name)

    def Output(self, which: int | str = 0) -> Tensor:
        """An output, by position or by ONNX's name.

        Raises:
            PatternError: ONNX knows no output of that name, or it is no position.
        """
        number = self.number
        assert self.scope is not None
        if isinstance(which, str):
            names = _output_names(self.type)
            if which not in names:
                raise mistake(
                    f'{self.type} has no output "{which}"; it has '
                    f"{', '.join(names) or 'none that ONNX names'}"
                )
            which = names.index(which)
        if type(which) is not int or which < 0:
            raise mistake(
                f"an output of {self.type} is told by its position from 0 or its name, got "
                f"{which!r}"
            )
        return Tensor(Ref(number, which), self.scope)

    def Commutative(self) -> OpDesc:
        """Let the operands match in any order; returns the operator."""
        self._may_change("Commutative")
        self.commutative = True
        return self

    def _may_change(self, call: str) -> None:
        scope = current(call)
        if self.scope not in (None, scope):
            raise mistake(
                f"{call}: this {self.type} was applied in another function, at {self.origin}"
            )
        if call == "Commutative" and scope.role == "replace":
            raise mistake(
                "Commutative belongs into the pattern function: a replacement has one order"
            )


def _output_names(type_: str) -> list[str]:
    domain, _, name = type_.rpartition("::")
    try:
        return [output.name for output in onnx.defs.get_schema(name, domain).outputs]
    except onnx.defs.SchemaError:
        return []


def MappedPattern(
    op: str, index: int = 0, name: str = "", element_index: int | None = None
) -> Symbol:
    """In a replacement: an attribute of the node that one operator of the pattern matched.

    Args:
        op: its type.
        index: which of the pattern's operators of that type, in the order of their calls.
        name: of the attribute.
        element_index: an element of it, if it is a list.

    Raises:
        PatternError: the pattern has no such operator, or ``element_index`` is no number.
    """
    scope = current("MappedPattern")
    if scope.pattern is None:
        raise mistake(
            "MappedPattern belongs into the replace function; in a pattern, ask the "
            "operator: add.Attr(…)"
        )
    found = [other.number for other in scope.pattern.ops if other.type == op]
    if not 0 <= index < len(found):
        known = ", ".join(other.type for other in scope.pattern.ops)
        raise mistake(f"the pattern has no {op} number {index}; its operators are {known}")
    attribute = Symbol(OpAttr(found[index], name))
    return attribute if element_index is None else attribute[element_index]


class Operators:
    """``op.Add`` is a new ``Add``; ``op("acme::Gate")`` one of another domain."""

    def __getattr__(self, type_: str) -> OpDesc:
        if not type_[:1].isupper():
            raise AttributeError(f"no operator is called {type_!r}")
        return OpDesc(type_)

    def __call__(self, type_: str) -> OpDesc:
        return OpDesc(type_)


class PassDesc:
    """The published name of where operators come from: ``PassDesc.OP.Add(A=x, B=y)``."""

    OP: Final = Operators()


op: Final = PassDesc.OP
"""The short form: ``op.Add(x, y)``."""


def input_of(name: str, spec: InputSpec | ParamAttr | None) -> Input:
    """What an argument and its specification ask."""
    if isinstance(spec, InputSpec):
        return Input(name, shape=spec.shape, dtype=spec.dtype)
    return Input(name, constant=isinstance(spec, ParamAttr))
