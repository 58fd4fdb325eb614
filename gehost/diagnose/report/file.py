"""Write reports as JSON or an HTML page, by the name's suffix."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from gehost.host.report import Report
from gehost.ir.files.save import write_bytes_atomic

ENDINGS = (".json", ".html")


def write_report(path: str, report: Report, command: str = "compile") -> None:
    """Write the report of a command, in its suffix's format, whole or not at all.

    Raises:
        OutputError: the file cannot be written.
    """
    if path.endswith(".html"):
        from gehost.page.page import render

        text = render(report, command)
    else:
        text = report.to_json()
    write_bytes_atomic(path, text.encode())


def versions(own: str) -> dict[str, str]:
    """Return the versions on which numbers and times depend; ``own`` is gehost's."""
    rows = {"gehost": own, "python": platform.python_version()}
    for package in ("onnx", "onnxruntime", "numpy"):
        try:
            rows[package] = version(package)
        except PackageNotFoundError:
            continue
    return {**rows, "system": f"{platform.system()} {platform.machine()}"}
