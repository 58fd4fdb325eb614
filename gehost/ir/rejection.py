"""Why a match, node or region is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gehost.errors import PassError
from gehost.native import mypyc_attr


@mypyc_attr(serializable=True, allow_interpreted_subclasses=True)
@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why a match or region is refused, as ``key: text``.

    It is falsy, so that it can be returned in place of ``False``.
    """

    reason: str

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> Any:
        return Rejection, (self.reason,)


# Any: the type is checked here, with an error of ours; mypyc would check a declared type first
def rejection(reason: str | Any, method: str) -> Rejection:
    """Return a rejection for a method that an author calls.

    Raises:
        PassError: the reason is no text; names the ``method``.
    """
    if not isinstance(reason, str):
        raise PassError(f'{method} wants a reason as text, "key: text", got {reason!r}')
    return Rejection(reason)
