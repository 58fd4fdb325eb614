"""One type for every "no": why a match, region, operator or rewrite is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gehost.errors import PassError


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a match, region, operator or rewrite is refused; its text is ``key: message``.

    It is falsy, so that it can be returned in place of ``False``.

    Attributes:
        key: a stable word or two; refusals are counted by it.
        message: the details; "" if the key is enough.
        where: the author's line that it is about, if there is one.
        subject: the operator, node or tensor that it is about.
    """

    key: str
    message: str = ""
    where: object | None = None
    subject: object | None = None

    @classmethod
    def of(cls, text: str) -> Refusal:
        """Return the refusal of a text, ``key: message`` or ``key``."""
        key, _, message = text.partition(":")
        return cls(key.strip() or "unspecified", message.strip())

    @property
    def reason(self) -> str:
        """The text."""
        return str(self)

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.message else self.key


class Refused(Exception):  # noqa: N818 - no error: it is counted, and the pass goes on
    """Raises a refusal where it cannot be returned; the graph is unchanged."""

    def __init__(
        self,
        key: str | Refusal,
        message: str = "",
        *,
        where: object | None = None,
        subject: object | None = None,
    ) -> None:
        refusal = key if isinstance(key, Refusal) else Refusal(key, message, where, subject)
        super().__init__(refusal)
        self.refusal = refusal

    @property
    def message(self) -> str:
        """The details without the key."""
        return self.refusal.message


def refusal_by(reason: Any, method: str) -> Refusal:
    """Return the refusal that an author states in a call of ``method``.

    Raises:
        PassError: the reason is no text; names the ``method``.
    """
    if not isinstance(reason, str):
        raise PassError(f'{method} wants a reason as text, "key: text", got {reason!r}')
    return Refusal.of(reason)
