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

DumpFormat = Literal["pbtxt", "onnx", "readable"]

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
    pass_paths: Sequence[str | os.PathLike[str]] = ()
    """Files of passes, and directories of them, that belong to no vendor; loaded after the vendors,
    in this order.
    """
    plugins: bool = True
    """Load installed plugins (entry point group ``gehost``)."""
    dump: str | os.PathLike[str] | None = None
    dump_level: int = 2
    """1: with weights, 2: without weight data, 3: structure only."""
    dump_format: DumpFormat | Sequence[DumpFormat] = "pbtxt"
    """``pbtxt`` and ``onnx`` for Netron, ``readable`` for people; several write several files."""
    dump_stages: Sequence[str] = ()
    """Dump only stages whose name contains one of these texts; () dumps all."""
    compile_stat: str | os.PathLike[str] | None = None
    """Directory for ``fusion_result.json``: how often each pass matched and replaced."""
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
    half: bool = False
    """Convert the compiled model to float16; with ``verify``, compare that, too."""
    keep_io_types: bool = False
    """Keep inputs and outputs in float32 (with ``half``)."""
    keep_float32: Sequence[str] = ()
    """Nodes that stay in float32 (with ``half``), by name or operator."""
    fusion_switch_file: str | os.PathLike[str] | None = None
    room: int = 0
    """Bytes that folded constants may add to the model, beside those that the clean-up frees."""
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
            dim: Any = getattr(self, name)
            if dim is not None:
                try:
                    object.__setattr__(self, name, operator.index(dim))  # accepts numpy's
                except TypeError:
                    raise UsageError(f"{name}={dim!r}: wanted an integer") from None
        if self.dump_level not in (1, 2, 3):
            raise UsageError(
                f"dump level {self.dump_level}: wanted 1 (with weights), 2 (without) or 3 "
                "(structure only)"
            )
        for dump_format in self.dump_formats:
            if dump_format not in (entry := get_args(DumpFormat)):
                raise UsageError(f'dump format "{dump_format}": wanted {" or ".join(entry)}')
        for name in (
            "vendors",
            "pass_paths",
            "dump_stages",
            "enable",
            "disable",
            "only",
            "assume",
            "ort_libraries",
            "keep_float32",
        ):
            if isinstance(getattr(self, name), str | os.PathLike):
                raise UsageError(f"{name}={getattr(self, name)!r}: wanted a list")
        if not isinstance(self.settings, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"settings={self.settings!r}: wanted a dict of values by PASS.option")
        if not isinstance(self.dims, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"dims={self.dims!r}: wanted a dict of sizes by name")
        object.__setattr__(
            self, "dims", {name: _size(name, dim) for name, dim in self.dims.items()}
        )
        if self.feeds is not None and not self.verify:
            raise UsageError(f"feeds {os.fspath(self.feeds)}: only used by verify; turn verify on")
        only_verify = {
            "special values are": self.special_values,
            "libraries of operators are": self.ort_libraries,
            "tolerances are": self.rtol is not None or self.atol is not None,
            "a provider is": self.provider != "cpu",
        }
        unused = next((name for name, dim in only_verify.items() if dim), None)
        if unused is not None and not self.verify:
            raise UsageError(f"{unused} only used by verify; turn verify on")
        if not self.half and (self.keep_io_types or self.keep_float32):
            name = "keep_io_types" if self.keep_io_types else "keep_float32"
            raise UsageError(f"{name}: only used by half; turn half on")
        if self.opset is not None and self.opset < 1:
            raise UsageError(f"opset {self.opset}: wanted a number from 1")
        if self.rewrite_limit is not None and self.rewrite_limit < 0:
            raise UsageError(f"rewrite limit {self.rewrite_limit}: wanted a number from 0")

    @property
    def dump_formats(self) -> Sequence[DumpFormat]:
        """The formats of dumps, also where one is given."""
        argument = self.dump_format
        return (argument,) if isinstance(argument, str) else argument

    def rewrites_only(self) -> HostOptions:
        """Return these options without dumps, verification and a limit of rewrites."""
        return replace(
            self,
            dump=None,
            compile_stat=None,
            verify=False,
            half=False,
            keep_io_types=False,
            keep_float32=(),
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


def _size(name: str, argument: Any) -> int:
    try:
        size = -1 if isinstance(argument, bool) else operator.index(argument)  # accepts numpy's
    except TypeError:
        size = -1
    if not 0 <= size < 1 << 63:
        raise UsageError(f"dim {name}={argument!r}: wanted a whole number from 0 to 2**63 - 1")
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


def default_options() -> HostOptions:
    """Return the options of the command in a folder without ``./vendors``."""
    return HostOptions(vendors=shipped_vendors(DEFAULT_GROUP))


def from_environment(
    arguments: Mapping[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    note: Callable[[str], object] | None = None,
) -> HostOptions:
    """Return the command line's options, else the environment's, else the defaults.

    Vendors: ``GEHOST_VENDORS`` (path list), or ``./vendors`` if it exists, or the default vendors
    of installed packages. Further passes: ``ASCEND_GE_PY_PASS_PATH`` (path list). Dumps:
    ``DUMP_GE_GRAPH`` and the variables that ``_dumps`` reads.

    Args:
        arguments: fields of ``HostOptions``; None and () are not given.
        environ: the environment; ``os.environ`` when None.
        note: gets a line where default vendors stand in, where a variable runs further code, and
            where one has no effect.

    Raises:
        UsageError: an option or a variable has an invalid value.
    """
    env = os.environ if environ is None else environ

    def tell(line: str) -> None:
        if note is not None:
            note(line)

    chosen = {name: value for name, value in arguments.items() if value is not None}
    if not chosen.get("vendors"):
        items = [part for part in env.get("GEHOST_VENDORS", "").split(os.pathsep) if part]
        directory = Path("vendors")
        # a link to nothing, too: the host refuses it
        here = ["vendors"] if directory.is_dir() or directory.is_symlink() else []
        chosen["vendors"] = items or here or shipped_vendors(DEFAULT_GROUP)
        if not items and not here and chosen["vendors"]:
            tell(f"no vendors given: using {', '.join(chosen['vendors'])}")
    paths = paths_of_passes(env)
    if paths and not chosen.get("pass_paths"):
        chosen["pass_paths"] = paths
        tell(f"{_PATHS_OF_PASSES}: loading passes of {', '.join(paths)}")
    if not chosen.get("dump_passes"):
        chosen.pop("dump_passes", None)  # a flag that is not given leaves it to the environment
    if chosen.pop("export_compile_stat", 0):
        work = env.get("ASCEND_WORK_PATH")
        chosen["compile_stat"] = f"{work}/FE/{os.getpid()}" if work else "."
    dumps = _dumps(env, chosen.get("dump") is not None, tell)
    if dumps and chosen.get("dump_level"):
        tell("the level of DUMP_GE_GRAPH has no effect beside --dump-level")
    if dumps and env.get("DUMP_GRAPH_FORMAT") and chosen.get("dump_format"):
        tell("DUMP_GRAPH_FORMAT has no effect beside --dump-format")
    return HostOptions(**{**dumps, **chosen})


_PATHS_OF_PASSES = "ASCEND_GE_PY_PASS_PATH"
_ONLY_FOR_DUMPS = ("ASCEND_DUMP_PATH", "NPU_COLLECT_PATH", "DUMP_GRAPH_PATH")
_DUMP_PATHS = (*_ONLY_FOR_DUMPS, "ASCEND_WORK_PATH")
"""GE's variables for the directory of dumps, the first that is set wins."""
_DUMP_FORMATS: Mapping[str, DumpFormat] = {"onnx": "pbtxt", "readable": "readable"}


def paths_of_passes(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the files and directories of passes that ``ASCEND_GE_PY_PASS_PATH`` names."""
    env = os.environ if environ is None else environ
    return [part for part in env.get(_PATHS_OF_PASSES, "").split(os.pathsep) if part.strip()]


def _dumps(
    env: Mapping[str, str], has_place: bool, tell: Callable[[str], object]
) -> dict[str, Any]:
    """Return the options of dumps by GE's variables; an option may give the place.

    ``DUMP_GE_GRAPH`` (1, 2, 3: the level of detail) turns dumps on. Then ``ASCEND_DUMP_PATH``,
    ``NPU_COLLECT_PATH``, ``DUMP_GRAPH_PATH``, ``ASCEND_WORK_PATH`` or the working directory is the
    place, ``DUMP_GRAPH_LEVEL`` the choice of stages, ``DUMP_GRAPH_FORMAT`` that of formats. The
    first four get a directory for the process.
    """
    detail = env.get("DUMP_GE_GRAPH", "")
    if detail not in ("", "0", *_LEVELS):
        raise UsageError(
            f"DUMP_GE_GRAPH={detail}: wanted 1 (with weights), 2 (without), 3 (structure "
            "only) or 0 (no dumps)"
        )
    if detail not in _LEVELS:
        for name in (*_ONLY_FOR_DUMPS, "DUMP_GRAPH_LEVEL", "DUMP_GRAPH_FORMAT"):
            if env.get(name):
                tell(f"{name} has no effect without DUMP_GE_GRAPH=1, 2 or 3")
        return {}
    options: dict[str, Any] = {"dump_level": int(detail)}
    named = next((name for name in _DUMP_PATHS if env.get(name)), None)
    winner = "--dump" if has_place else named
    for name in _ONLY_FOR_DUMPS:
        if env.get(name) and name != winner:
            tell(f"{name} has no effect beside {winner}")
    options["dump"] = f"{env[named]}/pid_{os.getpid()}_deviceid_0" if named is not None else "."
    return options | _stages_of(env.get("DUMP_GRAPH_LEVEL", "")) | _formats_of(env, tell)


def _stages_of(level: str) -> dict[str, Any]:
    """Return the options of ``DUMP_GRAPH_LEVEL``: 1 to 4, or parts of names of stages."""
    choices: dict[str, dict[str, Any]] = {
        "": {},
        "1": {"dump_passes": True},
        "2": {},
        "3": {"dump_stages": ("Build",)},
        "4": {"dump_stages": ("PreRunBegin",)},
    }
    if level in choices:
        return choices[level]
    parts = [part for part in map(str.strip, level.strip('"').split("|")) if part]
    if level.isdecimal() or not parts:
        raise UsageError(
            f"DUMP_GRAPH_LEVEL={level}: wanted 1 (all stages and passes), 2 (all stages), 3 (the "
            "last), 4 (the first) or parts of names, as in PreRunBegin|AfterInfershape"
        )
    return {"dump_stages": tuple(parts)}


def _formats_of(env: Mapping[str, str], tell: Callable[[str], object]) -> dict[str, Any]:
    """Return the options of ``DUMP_GRAPH_FORMAT``: ``ge_proto``, ``onnx``, ``readable``."""
    items = env.get("DUMP_GRAPH_FORMAT", "")
    if not items:
        return {}
    names = [name.strip() for name in items.strip('"').split("|")]
    unknown = [name for name in names if name not in (*_DUMP_FORMATS, "ge_proto")]
    if unknown:
        raise UsageError(
            f"DUMP_GRAPH_FORMAT={items}: wanted onnx, readable or ge_proto, joined by |"
        )
    if "ge_proto" in names:
        tell("DUMP_GRAPH_FORMAT: ge_proto is GE's own file; dumps are onnx and readable")
    formats = tuple(_DUMP_FORMATS[name] for name in names if name in _DUMP_FORMATS)
    return {"dump_format": formats or "pbtxt"}
