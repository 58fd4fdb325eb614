"""Errors of an author's hooks as ``PassError``, with pass, file and line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from gehost.errors import PassError, deepest_line, described
from gehost.ir.graph import Node
from gehost.location import SourceLocation
from gehost.passes.context import CustomPassContext


@contextmanager
def author_errors(context: CustomPassContext, hook: str, *, edits: bool = True) -> Generator[None]:
    """Turn whatever an author's hook raises into one ``PassError`` with pass, file and line.

    Interrupts go through. Without ``edits`` the hook must not edit the graph itself, which is an
    error too.
    """
    mark = context.model.mark()
    try:
        yield
        if not edits and context.model.mark() != mark:
            raise edited_by_hook()
    except BaseException as error:
        blamed = blamed_on(context, hook, None, error)
        if blamed is error:
            raise
        raise blamed from blamed.__cause__


def edited_by_hook() -> PassError:
    return PassError("it edited the graph; only what Replacement returns may change it")


def blamed_on(
    context: CustomPassContext, hook: str, node: Node | None, error: BaseException
) -> BaseException:
    """What an author's hook raised as one ``PassError`` that names pass, file, line and node;
    interrupts as they are.
    """
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, PassError) and error.named):
        return error
    at = f' at node "{node.label}" ({node.op})' if node is not None else ""
    record = context.record
    where = deepest_line(error, SourceLocation.parse(record.origin).path) or record.origin
    message = f"{hook}{at}: {described(error, known=where)}"
    failure = PassError(message, where=where, subject=record.name)
    failure.named = True
    failure.__cause__ = error  # as machine code leaves out what follows "from"
    return failure
