"""Operators, tensors and attributes of patterns and replacements, in the published spelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import onnx

from gehost import DataType, es
from gehost import expressions as ex

from .program import Input, count_outputs, operator_problem, schema_of
from .reference import Ref
from .scope import Scope, current, mistake, origin
from .symbols import Symbol, Untold, dtype_name, expression_of

TENSOR_ATTRIBUTES: Final = ("shape", "dtype", "value")
"""Properties of a tensor in this style."""


class InputSpec:
    """An argument's required shape (None or -1: any size) and dtype."""

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
    dims = [None if size in (None, -1) else size for size in sizes]
    if not all(size is None or (type(size) is int and size >= 0) for size in dims):
        raise mistake(f"InputSpec: a shape holds sizes, or None for any, got {shape!r}")
    return tuple(dims)


@dataclass(frozen=True)
class ParamAttr:
    """Mark an argument of a pattern as a weight.

    A weight is a constant that no caller of the model can override. Its name is Paddle's and plays
    no part in a match.
    """

    name: str | None = None


class Traced(Untold):
    """A tensor, or an operator that stands for its first output.

    One is not compared with another.
    """

    _advice = (
        "a tensor has no value while it is traced; use its known properties: x.shape, "
        "x.dtype, add.Attr(…)"
    )

    def __eq__(self, other: object) -> bool:
        raise mistake(self._advice)

    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Tensor(Traced):
    """An argument of a traced function, or an operator's output in it."""

    ref: Ref
    scope: Scope

    def __str__(self) -> str:
        if self.ref.op is None:
            return self.scope.names[self.ref.index]
        return self.scope.ops[self.ref.op].output_text(self.ref.index)

    __repr__ = __str__

    def Attr(self, name: str) -> Symbol:
        """Return a property of the matched tensor.

        It is ``"shape"`` (a list), ``"dtype"``, or ``"value"`` (a flat list) of a constant.
        """
        if name not in TENSOR_ATTRIBUTES:
            raise mistake(
                f'a tensor has no attribute "{name}"; it has shape, dtype and, if it is '
                "constant, value"
            )
        if self.scope.role == "replace" and self.ref.op is not None:
            raise mistake(
                "tensors of the replacement have no Attr yet when it is built; use the arguments"
            )
        if self.scope.matched is not current("Attr").matched:
            raise mistake("a match of another pattern is not known here")
        return Symbol(ex.TensorAttr(self.ref, name))

    @property
    def shape(self) -> Symbol:
        return self.Attr("shape")

    @property
    def dtype(self) -> Symbol:
        return self.Attr("dtype")


Given: TypeAlias = "Tensor | OpDesc | Symbol | float | Sequence[Any] | None"
"""An operand as an author gives it."""


class OpAttribute(Symbol):
    """An attribute of an operator.

    Read it in a pattern, or let a replacement take it from the match.
    """

    def __init__(self, op: OpDesc, name: str) -> None:
        self._op = op
        self._name = name

    @property
    def expression(self) -> ex.OpAttr:
        """Raise ``PatternError`` unless the operator can be read here.

        It is one of the pattern at hand, and applied.
        """
        number = self._op.number
        if self._op.scope is not current("Attr").matched:
            raise mistake(
                f"{self._op.type} is no operator of the pattern; MappedPattern(…) asks "
                "those that are"
            )
        return ex.OpAttr(number, self._name)

    def MappedPattern(
        self,
        op: str = "",
        index: int = 0,
        name: str = "",
        element_index: int | None = None,
        *,
        var: str = "",
    ) -> None:
        """Give the attribute the value of the pattern's operator or argument ``var``.

        See the function ``MappedPattern``.
        """
        source = op or ("" if var else self._op.type)
        self._op.SetAttr(
            self._name, MappedPattern(source, index, name or self._name, element_index, var=var)
        )


class OpDesc(Traced):
    """An operator of a traced function.

    As an operand it means its first output.
    """

    def __init__(self, type_: str) -> None:
        """Raise ``PatternError`` for an operator without domain that ONNX lacks."""
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

    def __str__(self) -> str:
        if self.scope is None:
            return self.type
        named = [f"{name}={_text(default)}" for name, default in self.named.items()]
        attributes = [f"{name}={_text(value)}" for name, value in self.attributes.items()]
        return f"{self.type}({', '.join([*map(_text, self.inputs), *named, *attributes])})"

    def __repr__(self) -> str:
        return f"<{self} at {self.origin}>"

    def output_text(self, index: int) -> str:
        """Return an output as text.

        It is the operator, with the output's name where there are several.
        """
        names = _output_names(self.type)
        if index == 0 and len(names) < 2:
            return str(self)
        return f"{self}.{names[index] if index < len(names) else index}"

    def __call__(self, *inputs: Given, num_outputs: int | None = None, **named: Any) -> OpDesc:
        """Apply the operator.

        Args:
            inputs: by position: tensors, numbers (in the dtype of the tensor beside them), None
                for an absent one.
            num_outputs: how many outputs, where the operator leaves it open.
            named: inputs by ONNX's name (``A=x``), a list of tensors for a variadic input
                (``X=[x, y]``), and attributes.

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
        for name, value in named.items():
            if isinstance(value, Tensor | OpDesc):
                schema = schema_of(self.type)
                if schema is not None and len(schema.inputs) == 1 and _is_variadic(self.type):
                    self.inputs = self._variadic(name, [value])
                else:
                    self.named[name] = value
            elif _holds_tensors(value):
                self.inputs = self._variadic(name, value)
            else:
                self.SetAttr(name, value)
        self._number = len(self.scope.ops)
        self.scope.ops.append(self)
        return self

    def _variadic(self, name: str, values: Sequence[Given]) -> tuple[Given, ...]:
        """Return the inputs behind those by position, of a variadic list.

        Raises:
            PatternError: the operator has no variadic input, or it is given twice.
        """
        if not _is_variadic(self.type):
            raise mistake(
                f"{name}={list(values)!r}: {self.type} has no input that takes several tensors"
            )
        if self.inputs:
            raise mistake(
                f"{self.type}: the tensors are given by position and as {name}; give them once"
            )
        return tuple(values)

    def refuse_several_outputs(self, role: str, where: es.Origin) -> None:
        """Refuse an operator with several outputs as a returned tensor.

        Raises:
            PatternError: lists the outputs to choose from.
        """
        count = count_outputs(self.type, self.outputs)
        if count > 1:
            names = _output_names(self.type)
            choices = ", ".join(names[:count] if len(names) >= count else map(str, range(count)))
            first = f'"{names[0]}"' if len(names) >= count else "0"
            raise mistake(
                f"{role} returns the whole of {self.type}, which has {count} outputs ({choices}); "
                f"return some: .Output({first}), or all of them: .Outputs()",
                where,
            )

    def Outputs(self) -> list[Tensor]:
        """Return all outputs: those required, or as many as ``num_outputs``."""
        return [self.Output(index) for index in range(count_outputs(self.type, self.outputs))]

    @property
    def number(self) -> int:
        if self.scope is None:
            raise mistake(f"{self.type} is not applied to its inputs yet")
        return self._number

    def SetAttr(self, name: str, value: Any) -> OpDesc:
        """Require a value in a pattern; give it in a replacement.

        A symbol may compute it. Returns the operator.
        """
        self._may_change("SetAttr")
        self.attributes[name] = expression_of(value)
        return self

    def Attr(self, name: str) -> OpAttribute:
        """Return an attribute.

        It may be one that the model's opset has as a constant input (``axes``).
        """
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
                f"an output of {self.type} is given by its position from 0 or its name, got "
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


def _text(value: Any) -> str:
    if isinstance(value, ex.Constant):
        return repr(value.value)
    return str(value)


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(
        isinstance(item, Tensor | OpDesc) for item in cast("Sequence[Any]", value)
    )


def _is_variadic(type_: str) -> bool:
    """Whether an operator takes any number of tensors.

    One of another domain may.
    """
    schema = schema_of(type_)
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return schema is None or any(parameter.option == variadic for parameter in schema.inputs)


def _output_names(type_: str) -> list[str]:
    schema = schema_of(type_)
    return [] if schema is None else [output.name for output in schema.outputs]


def MappedPattern(
    op: str = "",
    index: int = 0,
    name: str = "",
    element_index: int | None = None,
    *,
    var: str = "",
) -> Symbol:
    """Return an attribute of a matched operator or argument, for a replacement.

    Args:
        op: the operator's type.
        index: which of the pattern's operators of that type, in the order of their calls.
        name: of the attribute; of a tensor: shape, dtype or value.
        element_index: an element of it, if it is a list.
        var: the argument of the pattern function, instead of an operator.

    Raises:
        PatternError: the pattern has no such operator or argument, ``element_index`` is no
            number, or both ``op`` and ``var`` are given; a ``ValueError``, too.
    """
    if var and op:
        raise mistake(f'MappedPattern takes op="{op}" or var="{var}", and not both')
    scope = current("MappedPattern")
    if scope.pattern is None:
        raise mistake(
            "MappedPattern belongs into the replace function; in a pattern, ask the "
            "operator: add.Attr(…)"
        )
    if var:
        attribute = _attribute_of_argument(var, name, scope.pattern)
        return attribute if element_index is None else attribute[element_index]
    numbers = [other.number for other in scope.pattern.ops if other.type == op]
    if not 0 <= index < len(numbers):
        types = ", ".join(other.type for other in scope.pattern.ops)
        raise mistake(f"the pattern has no {op} number {index}; its operators are {types}")
    attribute = Symbol(ex.OpAttr(numbers[index], name))
    return attribute if element_index is None else attribute[element_index]


def _attribute_of_argument(var: str, name: str, pattern: Scope) -> Symbol:
    if var not in pattern.names:
        raise mistake(
            f'the pattern has no argument "{var}"; its arguments are {", ".join(pattern.names)}'
        )
    if name not in TENSOR_ATTRIBUTES:
        raise mistake(
            f'argument "{var}" has no attribute "{name}"; name one of '
            f"{', '.join(TENSOR_ATTRIBUTES)}"
        )
    return Symbol(ex.TensorAttr(Ref(None, pattern.names.index(var)), name))


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
    """The requirements on an argument, from its specification."""
    if isinstance(spec, InputSpec):
        return Input(name, shape=spec.shape, dtype=spec.dtype)
    return Input(name, constant=isinstance(spec, ParamAttr))
