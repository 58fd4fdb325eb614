"""``gehost compile --reproducer DIR``: files that replay a failed pass.

They are the model as it was before the pass, with the types known then, the vendors' files, a
switch file that turns all other passes off, and the command line. The model contains the work of
earlier passes, so the failure is the first and only one.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gehost.diagnose.directory import fresh_directory
from gehost.errors import GehostError, PassError, one_line
from gehost.host.context import CompileContext
from gehost.host.dumper import dump_proto
from gehost.host.hookspecs import hookimpl
from gehost.host.pipeline import SHAPE_INFERENCE, stages_before
from gehost.host.registry import PassSpec
from gehost.host.vendors import PASSES_DIR, find_vendor_files, vendor_directories
from gehost.ir.files.external import external_tensors, nbytes
from gehost.ir.files.save import save_model
from gehost.ir.graph import Graph
from gehost.options import HostOptions
from gehost.settings import GE_PREFIX, NO_OPTIONS

_LARGEST = 1 << 24
"""Largest size in bytes of a file beside a vendor's passes that is copied."""


class FailureKeeper:
    """A plugin that writes a reproducer of the first failure.

    The failure is that of a pass or a stage hook.
    """

    def __init__(self, directory: str, options: HostOptions) -> None:
        self._directory = directory
        self._options = options
        self._loaded: set[str] = set()
        self._problems: list[str] = []
        self.message = ""
        """A line about the files, or why there are none; "" if nothing failed."""

    @hookimpl(trylast=True)
    def gehost_collect_passes(self, module: ModuleType) -> None:
        self._loaded.add(module.__name__)

    @hookimpl
    def gehost_compile_started(self, context: CompileContext) -> None:
        self._problems = list(context.report.problems)

    @hookimpl(tryfirst=True)
    def gehost_pass_failed(self, spec: PassSpec | None, graph: Graph, error: PassError) -> None:
        if self.message:
            return
        try:
            self._write(spec, graph, error)
        except GehostError as problem:  # the failure of the pass matters more
            self.message = f"no reproducer: {problem}"

    def _write(self, spec: PassSpec | None, graph: Graph, error: PassError) -> None:
        model = graph.model
        typed = spec is not None and spec.stage not in stages_before(SHAPE_INFERENCE)
        proto = dump_proto(graph, 1) if typed else model.flush()
        outside = sum(map(nbytes, external_tensors(proto)))
        with fresh_directory(self._directory) as home:
            save_model(proto, home / "model.onnx", model.base_dir)
            unloaded = {
                str(file.path.parent if file.is_package else file.path)
                for file in find_vendor_files(self._options.vendors).files
                if file.module_name not in self._loaded
                or any(line.startswith(f"{file.path}:") for line in self._problems)
            }
            roots, large = _copy_vendors(self._options.vendors, home, unloaded)
            left_out = [(path, "did not load") for path in sorted(unloaded)] + [
                (path, "is large") for path in large
            ]
            switches = {"ALL": "off"} if spec is None else {"ALL": "off", spec.name: "on"}
            text = json.dumps({"Switch": {"GraphFusion": switches}}, indent=2)
            (home / "fusion_switch.json").write_text(text + "\n", encoding="utf-8")
            notes = [f"Not copied, as it {why}: `{one_line(path)}`" for path, why in left_out]
            hooks = [line for line in self._problems if line.startswith("plugin ")]
            notes += [
                (
                    "This failed too, and ends the replay before the pass; remove it first: "
                    f"`{one_line(line)}`"
                )
                for line in hooks
            ]
            # only the settings of the failed pass, and GE's own, have an effect
            starts = (GE_PREFIX,) if spec is None else (GE_PREFIX, f"{spec.name}.")
            settings = self._options.settings
            chosen = {key: value for key, value in settings.items() if key.startswith(starts)}
            command = replay_command(roots, chosen)
            (home / "README.md").write_text(_readme(str(error), command, notes), encoding="utf-8")
        weights = f", with {outside / (1 << 20):.1f} MiB of weights beside it" if outside else ""
        self.message = (
            f"{self._directory} holds the model before it{weights}, the vendors' files and the "
            "command that replays it"
        )


def replay_command(roots: Sequence[str], settings: Mapping[str, Any] = NO_OPTIONS) -> str:
    """Return the command line that replays a failure inside the reproducer's directory."""
    vendors = [word for root in roots for word in ("--vendors", root)]
    switches = ["--fusion-switch-file", "fusion_switch.json", "--no-cleanup"]
    chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = ["gehost", "compile", "model.onnx", "-o", "out.onnx", *vendors, *switches, *chosen]
    return shlex.join(words)


def _copy_vendors(
    roots: Sequence[str | os.PathLike[str]], home: Path, unloaded: Collection[str]
) -> tuple[list[str], list[str]]:
    """Copy each vendor's passes; return vendors' directories and files left out.

    Left out are files that are too large; files in ``unloaded`` are not copied either.
    """
    copied: list[str] = []
    left_out: list[str] = []

    def ignored(directory: str, names: list[str]) -> list[str]:
        large = [
            n for n in names if (p := Path(directory, n)).is_file() and p.stat().st_size > _LARGEST
        ]
        left_out.extend(str(Path(directory, name)) for name in large)
        return [
            *large,
            *(
                n
                for n in names
                if n == "__pycache__" or os.path.abspath(os.path.join(directory, n)) in unloaded
            ),
        ]

    for number, root in enumerate(roots, start=1):
        name = "vendors" if number == 1 else f"vendors-{number}"
        (home / name).mkdir()
        copied.append(name)
        for vendor in vendor_directories(root, []):
            shutil.copytree(
                vendor / PASSES_DIR, home / name / vendor.name / PASSES_DIR, ignore=ignored
            )
    return copied, left_out


def _readme(error: str, command: str, notes: Sequence[str]) -> str:
    lines = [
        "# A pass that fails\n",
        f"    {one_line(error)}\n",
        "Run this in the directory to see the failure again:\n",
        f"    {command}",
        (
            f"\nThe directories `{PASSES_DIR}` of the vendors are copied. Files that a pass "
            "reads from other places are not copied, nor are"
        ),
        "installed plugins: if the failure depends on them, provide them, too.",
    ]
    lines += [f"\n{note}" for note in notes]
    return "\n".join(lines) + "\n"
