"""Errors that GE's Python interface documents, with the author's line."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from gehost import GehostError, es

HERE = str(Path(__file__).parent)


class GeError(RuntimeError):
    """An operation on a graph or a pass failed."""


def origin() -> es.Origin:
    """Return file and line of the nearest caller outside gehost and this package."""
    return es.author_origin(HERE)


def origin_of(function: Callable[..., Any]) -> es.Origin:
    """Return file and line of a function's definition, behind ``partial`` and decorators."""
    plain = plain_function(function)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    return origin() if code is None else es.Origin(code.co_filename, code.co_firstlineno)


def plain_function(function: Any) -> Any:
    """Return the function that a ``functools.partial`` or a decorator wraps."""
    inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
    return function if inner is None else plain_function(inner)


@contextmanager
def ge_errors() -> Generator[None]:
    """Turn the host's errors into ``GeError``, which GE's interface documents."""
    try:
        yield
    except GehostError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise GeError(f"{error.message}{hint}") from error
    except (KeyError, IndexError, ValueError) as error:
        raise GeError(error.args[0] if error.args else str(error)) from error


def checked(value: Any, kinds: type | tuple[type, ...], expected: str) -> Any:
    """Return ``value``; raises ``TypeError`` if it is of none of the ``kinds``."""
    is_flag = isinstance(value, bool) and kinds is int
    if not isinstance(value, kinds) or is_flag:
        raise TypeError(f"expected {expected}, got {value!r}")
    return value


def items_of(value: Any) -> list[Any] | None:
    """Return the items of a list or tuple, None for anything else."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else None
