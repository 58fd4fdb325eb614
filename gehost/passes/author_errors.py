"""Turn errors of a pass's methods into ``PassError``, with pass, file and line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from gehost.errors import GehostError, PassError, deepest_line, described
from gehost.ir.graph import Node
from gehost.location import SourceLocation
from gehost.passes.context import CustomPassContext


@contextmanager
def author_errors(
    context: CustomPassContext, method: str, node: Node | None = None, *, edits: bool = True
) -> Generator[None]:
    """Turn exceptions of a pass's method, at a node, into ``PassError`` with its line.

    Interrupts pass through. Without ``edits``, a method that edits the graph itself is an error,
    too.
    """
    mark = context.model.mark()
    try:
        yield
        if not edits and context.model.mark() != mark:
            raise direct_edit(context)
    except BaseException as error:
        blamed = blamed_on(context, method, node, error)
        if blamed is error:
            raise
        raise blamed from blamed.__cause__


def direct_edit(context: CustomPassContext) -> PassError:
    """Return the error for a method that edited the graph without leave."""
    name = context.method_names.get("Replacement", "Replacement")
    return PassError(f"it edited the graph; only the graph returned by {name} may change it")


def blamed_on(
    context: CustomPassContext, method: str, node: Node | None, error: BaseException
) -> BaseException:
    """Return the ``PassError`` for an exception of a pass's method.

    It names the pass, the file with the line, the method and the node. The line is that of the
    author's code that failed, else that of the method's definition, else that of the registration.

    Interrupts and errors that name the pass are returned unchanged.
    """
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, PassError) and error.named):
        return error
    at = f' at node "{node.label}" ({node.op})' if node is not None else ""
    record = context.record
    file = SourceLocation.parse(record.origin).path
    host_name, _, inside = method.partition(" ")
    name = context.method_names.get(host_name, host_name)
    where = (
        deepest_line(error, file)
        or _line_of(error, file)
        or _definition(context.author, name, file)
        or record.origin
    )
    message = f"{name}{f' {inside}' if inside else ''}{at}: {described(error, context=where)}"
    failure = PassError(message, where=where, subject=record.name)
    failure.named = True
    failure.__cause__ = error  # machine code ignores "raise … from"
    return failure


def _line_of(error: BaseException, file: str) -> SourceLocation | None:
    """Return the line that an error of gehost names, if it is in ``file``."""
    if not isinstance(error, GehostError) or error.where is None:
        return None
    line = SourceLocation.parse(str(error.where))
    return line if line.path == file and line.line else None


def _definition(author: type | None, method: str, file: str) -> SourceLocation | None:
    """Return the line at which a class defines a method, if it is in ``file``."""
    code: Any = getattr(getattr(author, method, None), "__code__", None)
    return (
        None
        if code is None or code.co_filename != file
        else SourceLocation(file, code.co_firstlineno)
    )
