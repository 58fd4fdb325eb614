"""ONNX Runtime sessions with the switches under ``Runtime``.

They serve for measuring and for users.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gehost.errors import UsageError
from gehost.host.switches import read_switch_file
from gehost.ops import PROVIDER
from gehost.verify.device import CPU, DeviceSession, check_provider
from gehost.verify.onnx_runtime import INSTALL, onnx_runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


@dataclass(frozen=True)
class Runtime:
    """The entries under ``Runtime`` in a switch file."""

    level: str = "all"
    """Level of graph optimizations: none, basic, extended, all."""
    disabled_optimizers: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    """Shared libraries of custom operators."""
    provider: str = CPU
    """Execution provider: cpu, cuda, …"""
    cuda_graph: bool = False
    """Whether the runs of one size are captured as a CUDA graph."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any], source: str) -> Runtime:
        """Read the entries of a switch file.

        Raises:
            UsageError: the level does not exist.
        """
        level = arguments.get("level", "all")
        if level not in LEVELS:
            raise UsageError(f'{source}: level "{level}": wanted {", ".join(LEVELS)}')
        optimizers, libraries = (
            tuple(arguments.get(name, ())) for name in ("disabled_optimizers", "libraries")
        )
        provider, graph = arguments.get("provider", CPU), arguments.get("cuda_graph", False)
        return cls(level, optimizers, libraries, str(provider), bool(graph))

    def as_dict(self) -> dict[str, Any]:
        """Return the entries of a switch file."""
        entries: dict[str, Any] = {
            "level": self.level,
            "disabled_optimizers": list(self.disabled_optimizers),
            "libraries": list(self.libraries),
        }
        if self.provider != CPU:
            entries |= {"provider": self.provider, "cuda_graph": self.cuda_graph}
        return entries

    def providers(self) -> list[Any]:
        """Return the ``providers`` of an ``InferenceSession``.

        Raises:
            UsageError: ONNX Runtime here lacks the provider.
        """
        settings = {"enable_cuda_graph": "1"} if self.cuda_graph else {}
        others = [] if self.provider == CPU else ["CPUExecutionProvider"]
        return [(check_provider(self.provider), settings), *others]

    def without(self, optimizer: str) -> Runtime:
        """Return a copy with an optimizer of the runtime off."""
        return replace(self, disabled_optimizers=(*self.disabled_optimizers, optimizer))

    def options(self, threads: int | None = None) -> Any:
        """Create the ``SessionOptions``; ``threads`` per operator, None for the runtime's choice.

        Raises:
            UsageError: a library cannot be loaded.
        """
        runtime = onnxruntime()
        options = runtime.SessionOptions()
        options.graph_optimization_level = getattr(
            runtime.GraphOptimizationLevel, LEVELS[self.level]
        )
        if self.disabled_optimizers:
            options.add_session_config_entry(
                "optimization.disable_specified_optimizers", ";".join(self.disabled_optimizers)
            )
        if threads is not None:
            options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        for library in self.libraries:
            try:
                options.register_custom_ops_library(library)
            except Exception as error:  # of the library or its loader, of any type
                raise UsageError(f"library {library} cannot be loaded: {error}") from error
        return options

    def session(self, path: str, threads: int, optimized: str | None = None) -> Any:
        """Load a model file.

        ``optimized`` is where the runtime writes its optimized graph.
        """
        options = self.options(threads)
        options.log_severity_level = 4
        if optimized is not None:
            options.optimized_model_filepath = optimized
        return onnxruntime().InferenceSession(path, options, providers=self.providers())

    def runner(
        self, path: str, feeds: Mapping[str, Array], threads: int
    ) -> Callable[[], Callable[[], object]]:
        """Return a function that creates a session, as ``measure_pairs`` needs it.

        On a device the inputs are there already, and a run ends when the outputs are computed.
        """

        def make() -> Callable[[], object]:
            if self.provider != CPU:
                options = self.options(threads)
                options.log_severity_level = 4
                return DeviceSession(path, self.provider, self.providers(), options).bound(feeds)
            session = self.session(path, threads)
            return lambda: session.run(None, feeds)

        return make


def onnxruntime() -> Any:
    """Import ONNX Runtime.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return onnx_runtime()
    except ImportError as error:
        raise UsageError(f"ONNX Runtime is not installed: {INSTALL}") from error


def runtime_options(path: str | os.PathLike[str]) -> Any:
    """Return the ``onnxruntime.SessionOptions`` for a switch file of ``gehost tune``.

    Warns (``UserWarning``) if the evidence is from other versions or another CPU.

    Args:
        path: the file that the model was compiled with (``--fusion-switch-file``).

    Raises:
        UsageError: the file cannot be read, ONNX Runtime is not installed, or its version is not
            one for which the kept passes are exact.
    """
    name = os.fspath(path)
    file = read_switch_file(name)
    runtime = onnxruntime()
    for needed in file.evidence.get("requires", ()):
        if not isinstance(needed, str) or not PROVIDER.fullmatch(needed):
            raise UsageError(
                f"Evidence.requires: {needed!r}; wanted a runtime with versions, as in "
                '"onnxruntime>=1.31"',
                where=name,
            )
        if not satisfies(runtime.__version__, needed):
            raise UsageError(
                f"{name}: its passes are exact with {needed}, this is {runtime.__version__}; "
                "run gehost tune again"
            )
    for line in file.foreign():
        warnings.warn(f"{name}: {line}; run gehost tune again", stacklevel=2)
    return Runtime.of(file.runtime, name).options()


def runtime_providers(path: str | os.PathLike[str]) -> list[Any]:
    """Return the ``providers`` of an ``InferenceSession`` for a switch file of ``gehost tune``.

    Args:
        path: the file that the model was compiled with (``--fusion-switch-file``).

    Raises:
        UsageError: the file cannot be read, or ONNX Runtime here lacks the provider.
    """
    name = os.fspath(path)
    return Runtime.of(read_switch_file(name).runtime, name).providers()


def satisfies(installed: str, needed: str) -> bool:
    """Whether a version is in a range: ``satisfies("1.31.1", "onnxruntime>=1.31,<2")``."""
    mine = _numbers(installed)
    for relation, expected in re.findall(r"(>=|<=|==|!=|<|>)([\d.]+)", needed):
        other = _numbers(expected)
        order = (mine > other) - (mine < other)
        fits = {
            ">=": order >= 0,
            "<=": order <= 0,
            "==": order == 0,
            "!=": order != 0,
            "<": order < 0,
            ">": order > 0,
        }
        if not fits[relation]:
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    results = [int(part) for part in re.findall(r"\d+", text)[:4]]
    while results and not results[-1]:  # 1.31 is 1.31.0
        results.pop()
    return tuple(results)


def optimized_bytes(
    path: str, runtime: Runtime, threads: int, directory: str | os.PathLike[str]
) -> bytes:
    """Return the graph into which the runtime optimizes a model file."""
    target = Path(directory) / "optimized.onnx"
    runtime.session(path, threads, os.fspath(target))
    content = target.read_bytes()
    target.unlink()
    return content


def outputs_of(session: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a session; return outputs by name."""
    names: Sequence[str] = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))
