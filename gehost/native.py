"""Attributes of classes for mypyc, which compiles gehost-native (tools/native)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

_C = TypeVar("_C")

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**attributes: bool) -> Callable[[_C], _C]:
        """Leave a class as it is.

        mypyc reads the decorator in the source and drops it.

        ``serializable=True`` lets ``copy`` and ``pickle`` make objects without ``__init__``; mypyc
        2.4 then leaves ``__init__`` out of calls from Python, too, unless
        ``allow_interpreted_subclasses=True`` stands beside it.
        """
        del attributes
        return lambda cls: cls


__all__ = ["mypyc_attr"]
