# The part of distributed that gehost_zoo uses, so that types are checked without the extra `zoo`.

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

class KilledWorker(Exception): ...

class WorkerState:
    nthreads: int

class Worker:
    name: Any
    state: WorkerState
    def log_event(self, topic: str, msg: Any) -> None: ...

class Client:
    def __init__(self, address: str, *, timeout: float, set_as_default: bool) -> None: ...
    def scheduler_info(self, n_workers: int) -> dict[str, Any]: ...
    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        workers: Sequence[str] | None = ...,
        on_error: str = ...,
    ) -> dict[str, Any]: ...
    def get_executor(self, **kwargs: Any) -> Executor: ...
    def subscribe_topic(self, topic: str, handler: Callable[[Any], None]) -> None: ...
    def close(self) -> None: ...

def get_worker() -> Worker: ...
