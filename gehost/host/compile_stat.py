"""A plugin that writes ``fusion_result.json``: how often each pass matched and replaced.

Source: GE's documentation of ``--export_compile_stat``.
"""

from __future__ import annotations

import json
from pathlib import Path

from gehost.errors import OutputError
from gehost.host.context import CompileContext
from gehost.host.hookspecs import hookimpl
from gehost.ir.files.save import write_bytes_atomic


class CompileStat:
    """Writes GE's statistics of one compile; passes that are off are absent."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)

    @hookimpl(trylast=True)
    def gehost_compile_finished(self, context: CompileContext) -> None:
        """Write the file.

        Raises:
            OutputError: it cannot be written.
        """
        fusions = {
            record.name: {
                "effect_times": str(record.replaced),
                "match_times": str(record.matched),
            }
            for record in context.report.passes
            if record.status != "disabled"
        }
        content = {"session_and_graph_id_0_0": {"graph_fusion": fusions, "ub_fusion": {}}}
        path = self._directory / "fusion_result.json"
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"cannot make the directory: {error.strerror}", where=self._directory
            ) from error
        write_bytes_atomic(path, (json.dumps(content, indent=2) + "\n").encode())
