# The part of pebble that gehost_zoo uses, so that types are checked without the extra `zoo`.

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

_T = TypeVar("_T")

class ProcessExpired(OSError):
    exitcode: int
    pid: int | None

class ProcessPool:
    def __init__(self, max_workers: int = ..., *, context: BaseContext = ...) -> None: ...
    def schedule(
        self, function: Callable[..., _T], args: Iterable[Any] = ..., *, timeout: float | None = ...
    ) -> Future[_T]: ...
    def stop(self) -> None: ...
    def join(self) -> None: ...
