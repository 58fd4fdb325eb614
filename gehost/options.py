"""The options of a host; only this module reads the environment."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

from gehost.errors import UsageError
from gehost.shipped import DEFAULT_GROUP, shipped_vendors

DumpFormat = Literal["pbtxt", "onnx"]

_LEVELS = ("1", "2", "3")


@dataclass(frozen=True)
class HostOptions:
    """All options that influence a compile.

    Equal options and model give equal files.
    """

    vendors: Sequence[str | os.PathLike[str]] = ()
    """Directories that hold ``<vendor>/custom_fusion_passes/``, or vendors that a package ships
    (``gehost:onnx``), in the order in which they are loaded.
    """
    plugins: bool = True
    """Load installed plugins (entry point group ``gehost``)."""
    dump: str | os.PathLike[str] | None = None
    dump_level: int = 2
    """1: with weights, 2: without weight data, 3: structure only."""
    dump_format: DumpFormat = "pbtxt"
    dump_passes: bool = False
    """Also dump the graph after each pass that changed it."""
    enable: Sequence[str] = ()
    disable: Sequence[str] = ()
    only: Sequence[str] = ()
    """Run only these passes, even if off by default; () runs all that are on."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of passes and importers by ``PASS.option``; values or their texts."""
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes for open dimensions of the inputs, by symbol or ``INPUT:AXIS``."""
    opset: int | None = None
    """Raise the model's opset to this one before the passes."""
    assume: Sequence[str] = ()
    """Properties of the model that passes cannot prove and that the caller answers for, by name;
    the compiled model's metadata has them as ``gehost.assumed``.
    """
    target: str = ""
    """What the file is for, as ``PROVIDER`` or ``PROVIDER:VERSION`` of the runtime (``cuda``,
    ``cpu:1.24``): passes use kernels that it has. "": the CPU.
    """
    fusion_switch_file: str | os.PathLike[str] | None = None
    cleanup: bool = True
    verify: bool = False
    """Compare the numbers with the original's before the model is saved."""
    feeds: str | os.PathLike[str] | None = None
    """An ``.npz`` file of inputs to verify with, instead of seeded ones."""
    special_values: bool = False
    """Also verify on inputs with NaN, infinities, denormals and others."""
    ort_libraries: Sequence[str | os.PathLike[str]] = ()
    """Shared libraries of custom operators that ONNX Runtime needs for ``verify``."""
    rtol: float | None = None
    """Relative tolerance of ``verify``, in place of its rules."""
    atol: float | None = None
    """Absolute tolerance, likewise."""
    provider: str = "cpu"
    """Where ``verify`` also runs both models: an execution provider of ONNX Runtime."""
    keep_going: bool = False
    """Skip a vendor file that cannot be loaded, undo a pass that fails; both are reported."""
    rewrite_limit: int | None = None
    """Stop rewriting after this many rewrites."""
    inline_functions: bool = False
    """Inline the model's local functions before anything else."""

    def __post_init__(self) -> None:
        for name in ("dump_level", "rewrite_limit", "opset"):
            given: Any = getattr(self, name)
            if given is not None:
                try:
                    object.__setattr__(self, name, operator.index(given))  # accepts numpy's
                except TypeError:
                    raise UsageError(f"{name}={given!r}: wanted an integer") from None
        if self.dump_level not in (1, 2, 3):
            raise UsageError(
                f"dump level {self.dump_level}: wanted 1 (with weights), 2 (without) or 3 "
                "(structure only)"
            )
        if self.dump_format not in (known := get_args(DumpFormat)):
            raise UsageError(f'dump format "{self.dump_format}": wanted {" or ".join(known)}')
        for name in ("vendors", "enable", "disable", "only", "assume", "ort_libraries"):
            if isinstance(getattr(self, name), str | os.PathLike):
                raise UsageError(f"{name}={getattr(self, name)!r}: wanted a list")
        if not isinstance(self.settings, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"settings={self.settings!r}: wanted a dict of values by PASS.option")
        if not isinstance(self.dims, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"dims={self.dims!r}: wanted a dict of sizes by name")
        object.__setattr__(
            self, "dims", {name: _size(name, given) for name, given in self.dims.items()}
        )
        if self.feeds is not None and not self.verify:
            raise UsageError(f"feeds {os.fspath(self.feeds)}: only used by verify; turn verify on")
        only_verify = {
            "special values are": self.special_values,
            "libraries of operators are": self.ort_libraries,
            "tolerances are": self.rtol is not None or self.atol is not None,
            "a provider is": self.provider != "cpu",
        }
        unused = next((name for name, given in only_verify.items() if given), None)
        if unused is not None and not self.verify:
            raise UsageError(f"{unused} only used by verify; turn verify on")
        if self.opset is not None and self.opset < 1:
            raise UsageError(f"opset {self.opset}: wanted a number from 1")
        if self.rewrite_limit is not None and self.rewrite_limit < 0:
            raise UsageError(f"rewrite limit {self.rewrite_limit}: wanted a number from 0")

    def rewrites_only(self) -> HostOptions:
        """Return these options without dumps, verification and a limit of rewrites."""
        return replace(
            self,
            dump=None,
            verify=False,
            feeds=None,
            special_values=False,
            ort_libraries=(),
            rtol=None,
            atol=None,
            provider="cpu",
            rewrite_limit=None,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the options as JSON data."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _size(name: str, given: Any) -> int:
    try:
        size = -1 if isinstance(given, bool) else operator.index(given)  # accepts numpy's
    except TypeError:
        size = -1
    if not 0 <= size < 1 << 63:
        raise UsageError(f"dim {name}={given!r}: wanted a whole number from 0 to 2**63 - 1")
    return size


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fsdecode(cast("os.PathLike[str]", value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in cast("Sequence[Any]", value)]
    return value


def let_idle_threads_sleep() -> None:
    """Let the threads of numpy's OpenBLAS, one per core, sleep while idle.

    To be called before numpy is imported. By default each spins for 2**26 cycles after its start, a
    good part of the time of a small compile. With 2**16 cycles, calls in quick succession still
    find them awake. A value set in the environment wins.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")


def leave_telemetry_off() -> None:
    """Keep ONNX Runtime 1.29 and newer from sending telemetry, which is on by default on Linux.

    To be called before onnxruntime is imported; child processes inherit it. A value set in the
    environment wins.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def from_environment(
    given: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    note: Callable[[str], object] | None = None,
) -> HostOptions:
    """Return the command line's options, else the environment's, else the defaults.

    Vendors: ``GEHOST_VENDORS`` (path list), or ``./vendors`` if it exists, or the default vendors
    of installed packages. Dumps: ``DUMP_GRAPH_PATH``, or the working directory if
    ``DUMP_GE_GRAPH`` is 1, 2 or 3; that is also the level of dumps unless one is given.

    Args:
        given: fields of ``HostOptions``; None and () are not given.
        environ: the environment; ``os.environ`` when None.
        note: gets a line where default vendors stand in.

    Raises:
        UsageError: an option or a variable has an invalid value.
    """
    env = os.environ if environ is None else environ
    chosen = dict(given)
    if not chosen.get("vendors"):
        listed = [part for part in env.get("GEHOST_VENDORS", "").split(os.pathsep) if part]
        here = ["vendors"] if Path("vendors").is_dir() else []
        chosen["vendors"] = listed or here or shipped_vendors(DEFAULT_GROUP)
        if not listed and not here and chosen["vendors"] and note is not None:
            note(f"no vendors given: using {', '.join(chosen['vendors'])}")
    level = env.get("DUMP_GE_GRAPH", "")
    if level not in ("", "0", *_LEVELS):
        raise UsageError(
            f"DUMP_GE_GRAPH={level}: wanted 1 (with weights), 2 (without), 3 (structure "
            "only) or 0 (no dumps)"
        )
    if chosen.get("dump") is None:
        chosen["dump"] = env.get("DUMP_GRAPH_PATH") or ("." if level in _LEVELS else None)
    if chosen.get("dump_level") is None and level in _LEVELS:
        chosen["dump_level"] = int(level)
    return HostOptions(**{key: value for key, value in chosen.items() if value is not None})
