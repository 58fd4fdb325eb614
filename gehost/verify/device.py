"""Run a model on an execution provider: bound to the device, synchronised, and watched.

ONNX Runtime puts a node that the provider has no kernel for on the CPU and copies tensors to and
fro without a word, so the first run is profiled, and the nodes elsewhere are counted.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.helper

from gehost.errors import ModelError, UsageError, one_line
from gehost.spelling import counted, nearest
from gehost.verify.onnx_runtime import onnx_runtime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

CPU = "cpu"
_PACKAGES = MappingProxyType(
    {
        "cuda": "onnxruntime-gpu",
        "tensorrt": "onnxruntime-gpu",
        "openvino": "onnxruntime-openvino",
        "dml": "onnxruntime-directml",
        "qnn": "onnxruntime-qnn",
        "migraphx": "onnxruntime-migraphx",
    }
)
_DEVICES = MappingProxyType({"cuda": "cuda", "tensorrt": "cuda", "dml": "dml"})
"""Where the tensors of a provider are; of others in the CPU's memory."""
_SUFFIX = "ExecutionProvider"


def check_provider(name: str) -> str:
    """Return ONNX Runtime's name of a provider: ``cuda`` is ``CUDAExecutionProvider``.

    Raises:
        UsageError: ONNX Runtime is not installed, or was built without it.
    """
    try:
        runtime = onnx_runtime()
    except ImportError as error:
        raise UsageError(f"provider {name!r} needs ONNX Runtime, which is not installed") from error
    available: list[str] = runtime.get_available_providers()
    short = {full.removesuffix(_SUFFIX).lower(): full for full in available}
    cached = short.get(name.removesuffix(_SUFFIX).lower())
    if cached is None:
        raise UsageError(
            f"provider {name!r}: ONNX Runtime {runtime.__version__} here has "
            f"{', '.join(sorted(short))}",
            hint=_way_to(name.removesuffix(_SUFFIX).lower(), short),
        )
    return cached


def _way_to(name: str, available: Collection[str]) -> str:
    """Return what to install for a provider, or which one may be meant."""
    near = name if name in _PACKAGES else next(iter(nearest(name, {*available, *_PACKAGES})), "")
    near = "cuda" if name == "gpu" else near
    if near in available:
        return f"did you mean {near}?"
    package = _PACKAGES.get(near, "")
    if not package:
        others = ", ".join(f"{other} in {where}" for other, where in sorted(_PACKAGES.items()))
        return f"other packages have others: {others}"
    asked = "" if near == name else f"did you mean {near}? "
    return f"{asked}install the package {package} in place of onnxruntime"


@dataclass(frozen=True)
class Placement:
    """Where the nodes of a session run."""

    nodes: int
    elsewhere: tuple[tuple[str, str], ...]
    """Operator and name of each node that another provider runs."""
    copies: int
    """Of tensors between devices, in one run."""

    def __str__(self) -> str:
        if not self.elsewhere and not self.copies:
            return f"all {counted(self.nodes, 'node')}"
        ops = Counter(op for op, _ in self.elsewhere)
        named = ", ".join(f"{count} {op}" for op, count in sorted(ops.items()))
        return (
            f"{self.nodes - len(self.elsewhere)} of {counted(self.nodes, 'node')}, elsewhere "
            f"{named or 'none'}; {'1 copy' if self.copies == 1 else f'{self.copies} copies'}"
        )


class DeviceSession:
    """A session on a provider, optimized as it would be served.

    Args:
        model: A file, or a serialized model.
        provider: Its short name, as ``cuda``.
        providers: The list for ``InferenceSession``.
        options: ``SessionOptions``.

    Raises:
        UsageError: The provider does not start.
    """

    def __init__(
        self, model: str | bytes, provider: str, providers: Sequence[Any], options: Any
    ) -> None:
        self._runtime: Any = onnx_runtime()
        self._device = _DEVICES.get(provider, CPU)
        self.session: Any = self._runtime.InferenceSession(
            model, options, providers=list(providers)
        )
        # a provider whose libraries do not load is left out with a warning only
        if check_provider(provider) not in self.session.get_providers():
            raise UsageError(
                f"provider {provider!r} does not start: ONNX Runtime left it out",
                hint="install its libraries in the versions that ONNX Runtime needs (CUDA, cuDNN)",
            )

    def bound(self, feeds: Mapping[str, Array]) -> Callable[[], list[Any]]:
        """Return a function that runs on inputs that are already on the device.

        It returns the outputs there, at the same addresses each time, once they are computed.
        """
        inputs: dict[str, Any] = {}
        for name, array in feeds.items():
            inputs[name] = array
            if array.dtype.kind not in "OUS":
                inputs[name] = self._runtime.OrtValue.ortvalue_from_numpy(
                    np.ascontiguousarray(array), self._device, 0
                )
        first = self._binding(inputs)
        for output in self.session.get_outputs():
            first.bind_output(output.name, self._device)
        self._run(first)
        values = first.get_outputs()
        binding = self._binding(inputs)
        for output, value in zip(self.session.get_outputs(), values, strict=True):
            binding.bind_ortvalue_output(output.name, value)

        def run(_owner: Any = first) -> list[Any]:  # ONNX Runtime 1.21.1: it owns the values
            self._run(binding)
            return values

        return run

    def _binding(self, inputs: Mapping[str, Any]) -> Any:
        binding = self.session.io_binding()
        for name, value in inputs.items():
            if isinstance(value, np.ndarray):
                binding.bind_cpu_input(name, value)
            else:
                binding.bind_ortvalue_input(name, value)
        return binding

    def _run(self, binding: Any) -> None:
        binding.synchronize_inputs()
        self.session.run_with_iobinding(binding)
        binding.synchronize_outputs()


def run_on_device(
    model: onnx.ModelProto | Path,
    base_dir: str | None,
    provider: str,
    feeds: Sequence[Mapping[str, Array]],
    libraries: Sequence[str] = (),
) -> tuple[list[dict[str, Array]], Placement]:
    """Run a model on all feeds; return the outputs, and where its nodes ran.

    Raises:
        UsageError: The provider does not exist here.
        ModelError: The model does not load or run there.
    """
    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    for library in libraries:
        options.register_custom_ops_library(library)
    with tempfile.TemporaryDirectory(prefix="gehost-profile-") as folder:
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "run"))
        try:
            content, kinds = _with_float_interface(model)
            if base_dir is not None and isinstance(content, bytes):
                options.add_session_config_entry(
                    "session.model_external_initializers_file_folder_path", base_dir
                )
            full = check_provider(provider)
            others = [] if provider == CPU else ["CPUExecutionProvider"]
            session = DeviceSession(content, provider, [full, *others], options)
            names = [output.name for output in session.session.get_outputs()]
            results: list[dict[str, Array]] = []
            placement = Placement(0, (), 0)
            for number, feed in enumerate(feeds):
                arguments = {n: a.astype(kinds[n]) if n in kinds else a for n, a in feed.items()}
                values = session.bound(arguments)()
                if number == 0:
                    profile = Path(session.session.end_profiling())
                    placement = placement_of(profile.read_text(encoding="utf-8"), provider)
                # copies, as the next run may write to the same place
                results.append({n: np.array(v.numpy()) for n, v in zip(names, values, strict=True)})
        except (UsageError, ModelError):
            raise
        except Exception as error:  # the runtime raises exceptions of many types
            raise ModelError(f"does not run on {provider}: {one_line(str(error))}") from error
    return results, placement


def placement_of(profile: str, provider: str) -> Placement:
    """Read where nodes ran from a profile of ONNX Runtime."""
    full = check_provider(provider)
    ran: dict[str, tuple[str, str]] = {}
    copies: set[str] = set()
    for event in json.loads(profile):
        if event.get("cat") != "Node" or not str(event.get("name", "")).endswith("_kernel_time"):
            continue
        op, where = event["args"].get("op_name", ""), event["args"].get("provider", "")
        name = str(event["name"]).removesuffix("_kernel_time")
        if op.startswith("Memcpy"):
            copies.add(name)
        else:
            ran[name] = op, where
    elsewhere = tuple((op, name) for name, (op, where) in ran.items() if where != full)
    return Placement(len(ran), elsewhere, len(copies))


def _with_float_interface(
    model: onnx.ModelProto | Path,
) -> tuple[str | bytes, dict[str, np.dtype[Any]]]:
    """Return a model without bfloat16 at its interface, which numpy lacks, and changed inputs."""
    proto = onnx.ModelProto.FromString(model.read_bytes()) if isinstance(model, Path) else model
    brain = onnx.TensorProto.BFLOAT16
    values = [
        value
        for value in (*proto.graph.input, *proto.graph.output)
        if value.type.tensor_type.elem_type == brain
    ]
    if not values:
        return (str(model) if isinstance(model, Path) else proto.SerializeToString()), {}
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    graph, kinds = copy.graph, dict[str, np.dtype[Any]]()
    for value in graph.input:
        if value.type.tensor_type.elem_type == brain:
            kinds[value.name] = np.dtype(np.float32)
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            inner = f"{value.name} (bfloat16)"
            for node in graph.node:
                node.input[:] = [inner if name == value.name else name for name in node.input]
            cast = onnx.helper.make_node("Cast", [value.name], [inner], to=brain)
            graph.node.insert(0, cast)
    for value in graph.output:
        if value.type.tensor_type.elem_type == brain:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            inner = f"{value.name} (bfloat16)"
            for node in graph.node:
                node.input[:] = [inner if name == value.name else name for name in node.input]
                node.output[:] = [inner if name == value.name else name for name in node.output]
            graph.node.append(
                onnx.helper.make_node("Cast", [inner], [value.name], to=onnx.TensorProto.FLOAT)
            )
    return copy.SerializeToString(), kinds
