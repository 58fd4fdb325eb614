"""Resolve an author's operator and its arguments at the model's opset."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, cast

import numpy as np
import onnx

from gehost.errors import PatternError
from gehost.es import schemas
from gehost.es.functions import Bind
from gehost.es.graph import EsConst, EsNode, EsTensor, in_dtype
from gehost.ir.effective import as_lacking, may_be_left_out, newest_spelling, says_lacking
from gehost.ir.graph import op_name, split_op
from gehost.ir.types import DataType
from gehost.ops import OpRegistry
from gehost.refusal import Refused
from gehost.spelling import hint

_INDICES = frozenset({DataType.INT64, DataType.INT32})


def resolve_op(name: str, registry: OpRegistry, where: object, *, bare: bool = False) -> str:
    """Return the full name of an operator that an author wrote.

    A name without a domain is ONNX's, or that of the registered operator of this type.

    Args:
        name: as the author wrote it.
        registry: the custom operators.
        where: the author's line.
        bare: written ``es.Name``, which may also mean a registered operator.

    Raises:
        PatternError: there is no such operator, or several fit.
    """
    domain, op_type = split_op(name)
    if domain:
        full = op_name(domain, op_type)
        if registry.get(full) is None and schemas.operator(domain, op_type) is None:
            _refuse_unknown(full, domain, op_type, registry, where)
        return full
    if schemas.first_version("", op_type) is not None:
        if bare and (own := registry.own_namesakes(op_type, where)):
            raise PatternError(
                f"es.{op_type} is ONNX's or {own[0].name} ({own[0].origin}): write "
                f'es.op("{op_type}") or es.op("{own[0].name}")',
                where=where,
            )
        return op_type
    result = registry.resolve(op_type, where)
    if result is not None:
        return result
    several = registry.namesakes(op_type)
    if several:
        raise PatternError(
            f"""{op_type} may be {" or ".join(several)}: write es.op("{several[0]}")""", where=where
        )
    entries = [*schemas.operator_names(), *(definition.name for definition in registry)]
    raise PatternError(
        f"neither ONNX nor a vendor file has an operator {op_type}{hint(op_type, entries)}",
        where=where,
    )


def _refuse_unknown(
    full: str, domain: str, op_type: str, registry: OpRegistry, where: object
) -> None:
    """Refuse a misspelled operator name.

    It resembles a registered operator, or an ONNX domain lacks it.

    Raises:
        PatternError: names the operator that was probably meant.
    """
    near = registry.meant_by(full, where)
    if near is not None:
        raise PatternError(
            f"no operator {full} is registered",
            where=where,
            hint=f"did you mean {near.name} ({near.origin})? Register {full} too if it is "
            "another one",
        )
    if domain.startswith("ai.onnx."):
        raise PatternError(
            f"domain {domain} has no operator "
            f"{op_type}{hint(op_type, schemas.operator_names(domain))}",
            where=where,
        )


def signature_at(op: str, version: int | None) -> schemas.Signature:
    """Return the signature of an operator that ONNX defines.

    Raises:
        Refused: the opset lacks the operator, or the model does not import its domain
            (``version`` None).
    """
    if version is None:
        raise Refused("not applicable", f"{op} needs a domain that the model does not import")
    domain, op_type = split_op(op)
    result = schemas.signature(domain, op_type, version)
    if result is None:
        first = schemas.first_version(domain, op_type)
        if first is not None and first > version:
            raise Refused("not applicable", f"{op} needs opset {first}, the model has {version}")
        raise Refused("not applicable", f"opset {version} has no {op}")
    return result


def arguments_at(
    node: EsNode, op: str, signature: schemas.Signature, version: int | None
) -> tuple[list[EsTensor | None], dict[str, Any]]:
    """Return the operands and the parameters at this opset.

    Literals that are attributes at this opset are among the parameters.

    Raises:
        Refused: the opset lacks an input, or a parameter whose value is not its default.
    """
    operands, params = list(node.inputs), dict(node.params)
    if op == "Split":
        params.pop("num_outputs", None)  # the number of outputs is in the node
    domain, op_type = split_op(op)
    schema = schemas.operator(domain, op_type)
    assert schema is not None
    while len(operands) > len(signature.inputs) and not signature.variadic:
        tensor = operands.pop()
        if tensor is None:
            continue
        name = schema.inputs[len(operands)] if len(operands) < len(schema.inputs) else ""
        producer = tensor.producer
        if (
            not isinstance(producer, EsConst)
            or not producer.literal
            or name not in schema.migrating
            or signature.attribute_of(name) is None
            or name in params
        ):
            raise Refused("not applicable", f"{op} of opset {version} has no input {len(operands)}")
        params[name] = producer.array.tolist()
    for name, arguments in list(params.items()):
        if name not in signature.parameters and signature.attribute_of(name) is None:
            refuse_lacking(op, name, arguments, version, node.count)
            del params[name]
    return operands, params


def refuse_lacking(op: str, name: str, argument: Any, version: int | None, outputs: int) -> None:
    """Refuse a parameter that an opset lacks, unless the operator does there what it says.

    A function or a variable is for the matcher to try, if anything says what the operator does.

    Raises:
        Refused: the operator does another thing.
    """
    if argument is None:
        return
    domain, op_type = split_op(op)
    if callable(argument) or isinstance(argument, Bind):
        fits = says_lacking(domain, op_type, name, version or 0)
    else:
        lacking = as_lacking(domain, op_type, name, version or 0, outputs)
        fits = same_parameter(newest_spelling(op, name, argument), lacking) or may_be_left_out(
            op, name, argument
        )
    if not fits:
        raise Refused("not applicable", f"{op} of opset {version} has no parameter {name}")


_INT, _INTS = onnx.AttributeProto.INT, onnx.AttributeProto.INTS
_WANTED = MappingProxyType(
    {
        _INT: ("an integer", "biu"),
        _INTS: ("integers", "biu"),
        onnx.AttributeProto.FLOAT: ("a number", "biuf"),
        onnx.AttributeProto.FLOATS: ("numbers", "biuf"),
        onnx.AttributeProto.STRING: ("a text", "US"),
    }
)
"""Kind of an attribute → its name for authors, and the kinds of numpy's dtypes that are values."""


def wrong_kind(op: str, name: str, argument: Any, signature: schemas.Signature) -> str:
    """Return why no node can have a parameter's value, "" if possible.

    A number is a list of one, as for ``same_parameter``.
    """
    attribute = signature.attribute_of(name)
    parameter = signature.parameters.get(name)
    if attribute is not None:
        kind = signature.kinds[attribute]
    elif parameter is not None and parameter.dtypes <= _INDICES:
        kind = _INTS
    else:
        return ""
    if kind not in _WANTED:
        return ""
    expected, kinds = _WANTED[kind]
    try:
        array = np.asarray(argument)
    except ValueError:
        array = np.asarray(None)
    is_list = expected.endswith("s")
    if (array.dtype.kind in kinds or (is_list and not array.size)) and (
        array.ndim <= 1 if is_list else array.size == 1
    ):
        return ""
    floats = array.dtype.kind == "f" and "f" not in kinds and array.ndim <= 1
    integers = in_dtype(array, np.dtype(np.int64)) if floats else None
    nearest = "" if integers is None else f"; write {integers.tolist()}"
    return f"{op}: {name} must be {expected}, got {argument!r}{nearest}"


def same_parameter(left: Any, right: Any) -> bool:
    """Compare parameters, floats as float32, numbers as lists of one."""
    if left is None or right is None:
        return left is right
    if type(left) is type(right) is int or (_is_ints(left) and _is_ints(right)):
        return left == right
    if isinstance(left, str | bytes) or isinstance(right, str | bytes):
        return left == right
    try:
        a, b = np.atleast_1d(left), np.atleast_1d(right)
    except ValueError:
        return False
    if a.shape != b.shape:
        return False
    if "f" not in (a.dtype.kind, b.dtype.kind):
        return bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        return bool(np.array_equal(a.astype(np.float32), b.astype(np.float32), equal_nan=True))


def _is_ints(value: Any) -> bool:
    if type(value) is not list:
        return False
    for entry in cast("list[object]", value):  # noqa: SIM110 - lists of one or two, for which a generator costs too much
        if type(entry) is not int:
            return False
    return True
