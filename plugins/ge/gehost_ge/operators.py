"""Operators of ``ge.es`` as functions: what each becomes is in ``forms``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from dis import opname
from functools import cache
from typing import Any, Self, cast

from gehost import EsTensor, es
from gehost_ge.builder import GraphBuilder, TensorHolder, builder_of
from gehost_ge.building import in_pattern
from gehost_ge.errors import GeError, items_of, origin
from gehost_ge.form import FORMS, Form
from gehost_ge.forms import REFUSED, refusal


class Operator:
    """An operator as a function: inputs, then attributes by position or name."""

    def __init__(self, name: str, form: Form) -> None:
        self.__name__ = name
        self._form = form
        self.__signature__ = form.signature
        parameters = self.__signature__.parameters.values()
        self._inputs = {parameter.name for parameter in parameters if form.is_input(parameter)}

    def __repr__(self) -> str:
        return f"<operator {self.__name__}>"

    def __call__(self, *operands: Any, **named: Any) -> Any:
        """Add the operator; return its output, or an object that has its outputs by name.

        Raises:
            TypeError: no tensor is among the inputs, or an argument is unknown or missing.
            ValueError: two builders' tensors are among them.
        """
        builder = builder_of(*operands, *named.values())
        with es.written_at(origin()):
            try:
                call = self.__signature__.bind(*operands, **named)
            except TypeError as error:
                published = f"{self.__name__}({self._form.published})"
                raise TypeError(f"{self.__name__}: {error}; it is {published}") from None
            value: Any
            for name, value in call.arguments.items():
                parameter = self.__signature__.parameters[name]
                if parameter.kind is parameter.VAR_POSITIONAL:
                    call.arguments[name] = [
                        self._operand(builder, name, item) for item in _spread(value)
                    ]
                elif parameter.kind is parameter.VAR_KEYWORD:
                    call.arguments[name] = {
                        key: _owned(builder, item) for key, item in value.items()
                    }
                else:
                    call.arguments[name] = self._operand(builder, name, value)
            nodes = builder.built.graph.nodes
            count = len(nodes)
            call.apply_defaults()
            holders = self._holders(builder, self._form.call(*call.args, **call.kwargs))
            form = self._form.as_called(call.arguments)
            op = form.onnx.rpartition("::")[2]
            own = [node for node in nodes[count:] if node.GetType() == op]
            builder.draft.forms.update(dict.fromkeys(own or nodes[-1:], form))
            for node in nodes[count:]:
                if node not in own and (other := form.of_other(node.GetType())):
                    builder.draft.forms[node] = other
            return holders

    def _operand(self, builder: GraphBuilder, name: str, value: Any) -> Any:
        """Return an argument as the host takes it; a number of a pattern is any constant."""
        owned = _owned(builder, value)
        is_absent = value is None or (isinstance(value, tuple) and not value)
        if owned is not value or name not in self._inputs or not in_pattern() or is_absent:
            return owned
        return builder.operand(value)

    def _holders(self, builder: GraphBuilder, result: Any) -> Any:
        if isinstance(result, EsTensor):
            return self._holder(builder, result)
        if isinstance(result, list):
            return [self._holder(builder, tensor) for tensor in cast("list[EsTensor]", result)]
        return Outputs({name: self._holder(builder, tensor) for name, tensor in result.items()})

    def _holder(self, builder: GraphBuilder, tensor: EsTensor) -> TensorHolder:
        for name, value in getattr(tensor.producer, "params", {}).items():
            if isinstance(value, EsTensor):
                raise TypeError(f"{self.__name__}: {name} is an attribute and takes no tensor")
        return builder.holder(tensor)


def _spread(operands: Sequence[Any]) -> list[Any]:
    """Return variable inputs one by one; they may be given as one list."""
    spread: list[Any] = []
    for operand in operands:
        items = items_of(operand)
        spread += items if items and TensorHolder in map(type, items) else [operand]
    return spread


def _owned(builder: GraphBuilder, value: Any) -> Any:
    """Return a tensor as the host takes it, also inside lists; other arguments stay."""
    if isinstance(value, TensorHolder):
        return builder.own(value)
    items = items_of(value)
    if items is None or TensorHolder not in map(type, items):
        return value
    return [builder.operand(item) for item in items]


class Outputs(tuple[TensorHolder, ...]):
    """Several outputs of one operator, by position and by name."""

    _names: dict[str, TensorHolder]

    def __new__(cls, names: dict[str, TensorHolder]) -> Self:
        outputs = super().__new__(cls, names.values())
        outputs._names = names
        return outputs

    def __getattr__(self, name: str) -> TensorHolder:
        if name not in self._names:
            raise AttributeError(f"there is no output {name!r}; there are {', '.join(self._names)}")
        return self._names[name]


@cache
def operator(name: str) -> Operator:
    """Return the operator of a name.

    Raises:
        AttributeError: neither GE's form nor ONNX has it.
    """
    if name in FORMS:
        return Operator(name, FORMS[name])
    if name in REFUSED:
        return Refused(name)
    if not name[:1].isupper() or name not in es.operator_names(""):  # imports ask for __path__
        raise AttributeError(_unknown(name))
    return Operator(name, OnnxForm(es.op(name)))


class Refused(Operator):
    """An operator of GE without an equal; a call names what to use."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *operands: Any, **named: Any) -> Any:
        del operands, named
        raise GeError(refusal(self.__name__))


def _names() -> list[str]:
    return sorted({*FORMS, *REFUSED, *es.operator_names("")})


def _unknown(name: str) -> str:
    near = get_close_matches(name, _names(), 3) if name[:1].isupper() else []
    also = f"; near: {', '.join(near)}" if near else ""
    return (
        f"no operator {name}: neither ONNX nor the table in docs/differences/ge.md has it{also}; "
        f"one that a vendor file registers is ge.es.custom.{name}"
    )


def exported(name: str) -> Any:
    """Return the operator of a name, or all names for ``from ge.es.math import *``.

    Raises:
        ImportError: ``from … import`` asks for a name that does not exist, which published files
            catch; Python would leave the reason out.
        AttributeError: as for other uses.
    """
    if name == "__all__":
        return _names()
    try:
        return operator(name)
    except AttributeError as error:
        here = inspect.currentframe()  # no other way to tell both uses apart
        caller = None if here is None else here.f_back
        if caller and opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM":
            raise ImportError(str(error)) from None
        raise


@cache
def custom_operator(name: str) -> Operator:
    """Return an operator that a vendor file registers, or ONNX's in its own form.

    The host checks it when it is used.
    """
    if not name[:1].isupper():
        raise AttributeError(f"no operator {name}")
    return Operator(name, OnnxForm(getattr(es, name)))


class OnnxForm(Form):
    """An operator with its own inputs and attributes."""

    def __init__(self, function: es.OpFunction) -> None:
        op = function.ops[0]
        super().__init__(op.rpartition("::")[2], _onnx_form(function), op)
        signature = function.__signature__
        positional = [p.name for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
        object.__setattr__(self, "_inputs", frozenset(positional))

    _inputs: frozenset[str]

    def is_input(self, parameter: inspect.Parameter) -> bool:
        return parameter.kind is parameter.VAR_POSITIONAL or parameter.name in self._inputs


def _onnx_form(function: es.OpFunction) -> Callable[..., Any]:
    """Return ONNX's operator."""
    signature = function.__signature__

    def form(*operands: Any, **attributes: Any) -> Any:
        result = function(*operands, **attributes)
        if isinstance(result, EsTensor):
            return result
        return dict(result.by_name) or list(result)

    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return form
    # attributes by position, as GE's documentation writes them
    parameters = [
        parameter.replace(kind=parameter.POSITIONAL_OR_KEYWORD, default=None)
        if parameter.kind is parameter.KEYWORD_ONLY
        else parameter
        for parameter in signature.parameters.values()
        if parameter.name != "num_outputs"
    ]
    names = [parameter.name for parameter in parameters]
    inputs = sum(p.kind is not p.KEYWORD_ONLY for p in signature.parameters.values())

    def by_position(*arguments: Any, **attributes: Any) -> Any:
        attributes |= dict(zip(names[inputs:], arguments[inputs:], strict=False))
        return form(
            *arguments[:inputs],
            **{name: value for name, value in attributes.items() if value is not None},
        )

    by_position.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return by_position
