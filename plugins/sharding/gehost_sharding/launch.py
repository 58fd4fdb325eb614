"""Run a split model: start one process per rank, wait, compare."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

from numpy.typing import NDArray

from gehost import GehostError, UsageError, verify
from gehost_sharding.mesh import Mesh
from gehost_sharding.rank import ALIVE, ERROR, MANIFEST

Array = NDArray[Any]

_KEYS: Final = frozenset(["inputs", "mesh", "model", "model_sha256", "outputs", "predicted"])
_PID = re.compile(r"PID (\d+) RUNNING")
_REASON = re.compile(r"EXIT STRING: (.+)")


class RankError(GehostError):
    """A rank died, or the ranks did not finish in time."""

    exit_code = 7


@dataclass(frozen=True)
class RunResult:
    """The ranks' outputs and traffic."""

    outputs: dict[str, Array]
    ranks: list[dict[str, Any]]
    """Per rank: bytes, output_bytes, collectives, segments, load_seconds, run_seconds."""

    @property
    def bytes(self) -> int:
        """Most bytes that a rank sent while the model ran."""
        return max(rank["bytes"] for rank in self.ranks)

    @property
    def output_bytes(self) -> int:
        return max(rank["output_bytes"] for rank in self.ranks)


def read_manifest(directory: str) -> dict[str, Any]:
    """Read ``split.json``.

    Raises:
        UsageError: the directory is no split.
    """
    try:
        manifest: Any = json.loads((Path(directory) / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no split (no readable {MANIFEST}); gehost shard split writes one", where=directory
        ) from error
    if not isinstance(manifest, dict) or not manifest.keys() >= _KEYS:
        raise UsageError(
            f"no split ({MANIFEST} lacks {', '.join(sorted(_KEYS))})",
            where=directory,
            hint="gehost shard split writes one",
        )
    return cast("dict[str, Any]", manifest)


def run_split(directory: str, feeds: Mapping[str, Array], *, timeout: float = 300.0) -> RunResult:
    """Run all ranks on this machine.

    Args:
        directory: the one that ``write_split`` wrote.
        feeds: whole inputs by name.
        timeout: seconds until the run is ended.

    Raises:
        UsageError: no split there, or the extra ``sharding`` is not installed.
        RankError: a rank died, with its number and error; or the time is over.
    """
    manifest = read_manifest(directory)
    sizes = tuple(manifest["mesh"]["sizes"])
    devices = Mesh(tuple(manifest["mesh"]["axes"]), sizes).devices
    with tempfile.TemporaryDirectory(prefix="gehost-shard-") as scratch:
        paths = {name: os.path.join(scratch, name) for name in ("feeds.npz", "out.npz", "report")}
        Path(paths["feeds.npz"]).write_bytes(verify.save_feeds(feeds))
        command = [
            _mpiexec(),
            "-n",
            str(devices),
            sys.executable,
            "-P",  # no modules of the current directory
            "-m",
            "gehost_sharding.rank",
            directory,
            "--feeds",
            paths["feeds.npz"],
            "--out",
            paths["out.npz"],
            "--report",
            paths["report"],
            "--pids",
            scratch,
        ]
        with (Path(scratch) / ALIVE).open("wb") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)  # until this process ends: ranks look at it
            _wait(command, directory, timeout, scratch)
        loaded = verify.load_feeds(paths["out.npz"])
        outputs = {name: loaded[name] for name in manifest["outputs"]}
        ranks = json.loads(Path(paths["report"]).read_text(encoding="utf-8"))
    return RunResult(outputs, ranks)


def _mpiexec() -> str:
    if find_spec("mpi4py") is None:
        raise UsageError("running ranks needs mpi4py and mpich: pip install mpi4py mpich")
    beside = Path(sys.executable).parent / "mpiexec"
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    if program is None:
        raise UsageError("no mpiexec on the path: pip install mpi4py mpich")
    return program


def _wait(command: list[str], directory: str, timeout: float, pids: str) -> None:
    environment = dict(os.environ)
    # ranks that wait for others give up their core, of which there may be fewer than ranks
    environment.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    process = subprocess.Popen(  # noqa: S603 - mpiexec with this interpreter
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    try:
        printed, messages = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        raise RankError(
            f"the ranks did not finish in {timeout:g} s and were ended",
            where=directory,
            hint="give more --timeout, or look for a rank that waits",
        ) from None
    except BaseException:
        _end(process)
        raise
    if process.returncode:
        cause = _cause(printed + messages, pids)
        raise RankError(f"{cause} (exit status {process.returncode})", where=directory)


def _cause(messages: str, pids: str) -> str:
    """Find which rank died first, and why: by its own file, else by the launcher's words."""
    files = sorted(Path(pids).glob(f"*{ERROR}"), key=lambda file: file.stat().st_mtime_ns)
    own = [text for file in files if (text := file.read_text(encoding="utf-8"))]
    if own:
        return own[0]
    pid = _PID.search(messages)
    file = Path(pids) / pid[1] if pid else None
    reason = _REASON.search(messages)
    if file is not None and file.exists():
        rank = file.read_text(encoding="ascii")
        why = reason[1].strip() if reason else "no message"
        # mpiexec kills the others, and may name one of them
        unsure = ", or another that mpiexec does not name," if "signal 9" in why else ""
        return f"rank {rank}{unsure} died: {why}"
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    return " ".join(lines[-3:]) or "no message"


def _end(process: subprocess.Popen[str]) -> None:
    """End the launcher and the ranks; mpiexec ends its ranks when it is asked to."""
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
