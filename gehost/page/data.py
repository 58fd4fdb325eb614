"""The data of a compile's report."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from gehost.passes.context import PassRecord


@dataclass(repr=False)
class ReportData:
    """The fields of a report, and their JSON form."""

    model: str = ""
    nodes_before: int = 0
    nodes_after: int = 0
    op_types_before: dict[str, int] = field(default_factory=dict[str, int])
    op_types_after: dict[str, int] = field(default_factory=dict[str, int])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    dumps: list[str] = field(default_factory=list[str])
    verify: dict[str, Any] = field(default_factory=dict[str, Any])
    passes: list[PassRecord] = field(default_factory=list[PassRecord])
    cleanup: dict[str, int] = field(default_factory=dict[str, int])
    problems: list[str] = field(default_factory=list[str])
    """Failures that did not end the compile: skipped vendor files, failed passes, incomplete
    inference.
    """
    warnings: list[str] = field(default_factory=list[str])
    """About the input: inconsistent types, which ``onnx.checker`` with full checks refuses."""
    needs: list[str] = field(default_factory=list[str])
    """Runtimes that have the kernels of the compiled model, as ``onnxruntime>=1.21.1``."""
    half: bool = False
    """Whether the compiled model becomes float16, as the option asks and its types allow."""
    kept_float32: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Nodes that compute in float32 then, by reason."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """The ``HostOptions``, paths as text."""
    versions: dict[str, str] = field(default_factory=dict[str, str])
    """Of gehost, Python, packages and the system; filled in when the report is written."""
    notes: list[str] = field(default_factory=list[str])
    """Likely mistakes of the user: no passes, files that register nothing."""
    exit_code: int = 0
    """Exit code of the first failure after which the compile went on (``keep_going``)."""
    error: str = ""
    """The error that ended the compile; fields that were not known yet are empty."""

    def keep_going(self, problem: str, exit_code: int) -> None:
        """Record a failure that does not end the compile."""
        self.problems.append(problem)
        self.exit_code = self.exit_code or exit_code

    @contextmanager
    def timed(self, what: str) -> Generator[None]:
        """Add the time of a block to ``seconds[what]``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        plain = asdict(self)
        for row, record in zip(plain["passes"], self.passes, strict=True):
            row["rejected"] = dict(record.rejected)
        return plain

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=2) + "\n"
