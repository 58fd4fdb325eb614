"""Rules as JSON and back.

A Python function is written as its import path, and nothing is imported unless that is allowed.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from operator import attrgetter
from types import UnionType
from typing import Any, Final, cast, get_args, get_origin, get_type_hints

from msgspec import Struct

from gehost import CustomPassStage, es
from gehost import expressions as ex

from .program import Input, Op, Pair, Program, Rule
from .reference import Ref
from .register import RegisteredPass
from .scope import calling_module, mistake, origin

FORMAT: Final = "gehost_register_pass/1"

_KINDS: Final = {
    kind.__name__: kind
    for kind in (
        *(
            ex.Binary,
            ex.Condition,
            ex.Constant,
            ex.Item,
            ex.Listed,
            ex.Native,
            ex.OpAttr,
            Ref,
            ex.Size,
            ex.TensorAttr,
        ),
        *(Input, Op, Pair, Program, Rule),
    )
}
"""The types that a file may contain, by their names there."""
_TYPES: Final[dict[tuple[type, str], Any]] = {
    (ex.TensorAttr, "tensor"): Ref,
    (ex.OpAttr, "op"): int,
    (ex.Item, "index"): int,
}
"""Types of fields in this style where those of ``gehost.expressions`` are wider."""


def to_json(registered: RegisteredPass) -> str:
    """Return a registered rule as JSON.

    ``"native"`` is true if it names Python functions.

    Raises:
        PatternError: it calls a function that has no import path: a lambda, or one inside
            another function.
    """
    rule = registered.rule
    for pair in rule.pairs:
        for expression in pair.expressions:
            if isinstance(expression, ex.Native) and "<" in expression.path:
                raise mistake(
                    (
                        f"{rule.name} calls {expression.path}, which cannot be imported; write "
                        "it at the top of a module"
                    ),
                    rule.origin,
                )
    return json.dumps(
        {"format": FORMAT, "native": rule.is_native, "rule": _encoded(rule)}, indent=1
    )


def from_json(text: str, *, allow_native: bool = False, source: str = "JSON") -> RegisteredPass:
    """Read a rule that ``to_json`` wrote.

    It is as if the calling module had registered it.

    Args:
        text: JSON.
        allow_native: whether modules may be imported for the functions that the rule names,
            which runs their code.
        source: its name in errors.

    Raises:
        PatternError: it is no rule, or a native one that is not allowed or cannot be imported.
    """
    where = origin()
    try:
        read = json.loads(text)
        if read["format"] != FORMAT:
            raise mistake(f"{source}: its format is {read['format']!r}, wanted {FORMAT!r}", where)
        rule = _Decoder(allow_native, source, where).decoded(read["rule"])
        if not isinstance(rule, Rule) or not rule.name or not rule.pairs:
            raise mistake(f"{source}: it holds no rule with a name and a pair", where)
        registered = RegisteredPass(rule.name, calling_module(), rule.origin, lambda: rule)
        _ = registered.rule
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        AssertionError,
    ) as error:
        raise mistake(f"{source}: not a rule: {type(error).__name__}: {error}", where) from error
    return registered


def _encoded(value: Any) -> Any:
    if isinstance(value, es.Origin):
        return {"is": "Origin", "path": value.path, "line": value.line}
    if isinstance(value, CustomPassStage):
        return {"is": "Stage", "name": value.name}
    if isinstance(value, tuple):
        return list(map(_encoded, cast("tuple[Any, ...]", value)))
    if isinstance(value, Struct):
        fields = [name for name in value.__struct_fields__ if name != "function"]
        return {
            "is": type(value).__name__,
            **{name: _encoded(getattr(value, name)) for name in fields},
        }
    return value


class _Decoder:
    def __init__(self, allow_native: bool, source: str, where: es.Origin) -> None:
        self._allow_native = allow_native
        self._source = source
        self._where = where

    def decoded(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self.decoded, cast("list[Any]", value)))
        if not isinstance(value, dict):
            return value
        fields = {
            name: self.decoded(entry) for name, entry in cast("dict[str, Any]", value).items()
        }
        kind = fields.pop("is")
        if kind == "Origin":
            return es.Origin(str(fields["path"]), int(fields["line"]))
        if kind == "Stage":
            return CustomPassStage[fields["name"]]
        if kind == "Native":
            fields["function"] = self._function(fields["path"])
        decoded = _KINDS[kind](**fields)
        for name, type_ in get_type_hints(type(decoded)).items():
            if not _is(getattr(decoded, name), _TYPES.get((type(decoded), name), type_)):
                raise TypeError(f"{name} of {kind} cannot be {getattr(decoded, name)!r}")
        return decoded

    def _function(self, path: str) -> Callable[..., Any]:
        if not self._allow_native:
            raise mistake(
                (
                    f"{self._source}: the rule calls {path}; allow_native=True imports it, "
                    "which runs its code"
                ),
                self._where,
            )
        module, _, name = path.partition(":")
        try:
            function = attrgetter(name)(importlib.import_module(module))
        except (Exception, SystemExit) as error:
            raise mistake(
                f"{self._source}: {path} cannot be imported: {error}", self._where
            ) from error
        return getattr(function, "__wrapped__", function)


def _is(value: Any, type_: Any) -> bool:
    """Whether a value has the type of a field.

    ``Any`` stands for a number, a text, or tuples of them.
    """
    kind, parts = get_origin(type_), get_args(type_)
    if kind is UnionType:
        return any(_is(value, part) for part in parts)
    if kind is Callable:
        return callable(value)
    if kind is None and type_ is not Any:
        return type(value) is type_
    if not isinstance(value, tuple):
        return type_ is Any and type(value) in (bool, int, float, str)
    entries = cast("tuple[Any, ...]", value)
    kinds = (
        [type_ if type_ is Any else parts[0]] * len(entries)
        if type_ is Any or parts[-1] is ...
        else parts
    )
    return len(entries) == len(kinds) and all(map(_is, entries, kinds))
