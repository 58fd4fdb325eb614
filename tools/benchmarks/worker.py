"""One task in a process of its own: ``python -m tools.benchmarks.worker TASK MODEL OUT RESULT.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.benchmarks.measured import status


def main() -> None:
    name, model, out, result = sys.argv[1:]
    tool, _, task = name.partition(".")
    if tool == "gehost":
        from tools.benchmarks.gehost_tasks import TASKS

        measured = TASKS[task](model, out)
    else:
        from tools.benchmarks.peer_tasks import TASKS as PEERS

        measured = PEERS[name](model, out)
    figures = {"seconds": measured.seconds, "rewrites": measured.rewrites}
    Path(result).write_text(
        json.dumps({**figures, "peak": status("VmHWM"), "resident": measured.resident}),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
