"""The scope of the function being traced, which collects its calls."""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gehost import GehostError, PatternError, es
from gehost import expressions as ex

_OURS = os.path.dirname(__file__) + os.sep


def origin() -> es.Origin:
    """File and line of the author's call at hand."""
    return es.author_origin(_OURS)


def calling_module() -> str:
    """Return the module of the author's current call.

    It is the one that registers the result of the call.
    """
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(
        __package__ or ""
    ):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


class RegisterPassError(PatternError, ValueError, NotImplementedError):
    """A pair or description is wrong, or not supported; published code catches the last two."""


def mistake(problem: str, where: es.Origin | None = None) -> PatternError:
    """Build an author's error at a place, by default the current call."""
    return RegisterPassError(problem, where=where or origin())


@contextmanager
def author_code(where: es.Origin) -> Generator[None]:
    """Turn any exception of an author's function into a ``PatternError``.

    The error has the deepest line of its file.
    """
    try:
        yield
    except GehostError:
        raise
    except (Exception, SystemExit) as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == where.path
        ]
        at = es.Origin(where.path, lines[-1] or where.line) if lines else where
        text = " ".join(str(error).split())
        raise mistake(
            f"{type(error).__name__}: {text}" if text else type(error).__name__, at
        ) from error


class Call(Protocol):
    """An operator that a traced function applied: ``OpDesc``."""

    type: str
    inputs: tuple[Any, ...]
    named: dict[str, Any]
    attributes: dict[str, Any]
    outputs: int | None
    commutative: bool
    origin: es.Origin

    @property
    def number(self) -> int: ...

    def output_text(self, index: int) -> str: ...


@dataclass(eq=False)
class Scope:
    """One call of a pattern or replace function.

    Attributes:
        role: which of them it is.
        names: the arguments of the pattern function.
        ops: its operators in the order of their calls.
        conditions: the conditions that it states.
        pattern: the scope of the pattern function, for a replace function.
    """

    role: Literal["pattern", "replace"]
    names: Sequence[str] = ()
    ops: list[Call] = field(default_factory=list[Call])
    conditions: list[ex.Condition] = field(default_factory=list[ex.Condition])
    pattern: Scope | None = None

    @property
    def matched(self) -> Scope:
        """The pattern function's scope, whose numbers identify the values of a match."""
        return self.pattern or self


tracing: ContextVar[Scope | None] = ContextVar("gehost_register_pass_tracing", default=None)


def current(what: str) -> Scope:
    """Raises ``PatternError`` when no function is being traced."""
    scope = tracing.get()
    if scope is None:
        raise mistake(f"{what} works only inside a pattern or replace function, while it is traced")
    return scope
