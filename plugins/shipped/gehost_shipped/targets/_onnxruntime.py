"""What the targets of ONNX Runtime share: how it loads and runs a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gehost import UsageError, optimizing, tune, verify

VENDORS = ("gehost:onnx", "gehost:onnxruntime")


class OnnxRuntimeTarget(optimizing.Target):
    """ONNX Runtime with one of its execution providers."""

    vendors = VENDORS
    domains = ("com.microsoft", "", "ai.onnx", "ai.onnx.ml")
    least = "CPUExecutionProvider"
    """The provider that must be there."""
    package = "onnxruntime>=1.21.1"

    def missing(self) -> str:
        try:
            runtime = verify.onnx_runtime()
        except ImportError:
            return f"ONNX Runtime is not installed: pip install '{self.package}'"
        if self.least not in runtime.get_available_providers():
            return f"no {self.least} here: pip install '{self.package}'"
        return ""

    def title(self) -> str:
        return f"ONNX Runtime {verify.onnx_runtime().__version__}"

    def load(self, path: str, libraries: tuple[str, ...] = ()) -> None:
        self._runtime(libraries).session(path, 1)

    def runner(
        self,
        path: str,
        feeds: Mapping[str, Any],
        *,
        threads: int = 1,
        libraries: tuple[str, ...] = (),
    ) -> Callable[[], Callable[[], object]]:
        return self._runtime(libraries).runner(path, feeds, threads)

    def _runtime(self, libraries: tuple[str, ...]) -> tune.Runtime:
        return tune.Runtime(libraries=libraries, provider=self.provider)


def starts(provider: str) -> bool:
    """Whether a session with a provider starts on this machine."""
    import numpy as np
    import onnx.parser

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    )
    try:
        verify.run_on_device(model, None, provider, [{"x": np.zeros(1, np.float32)}])
    except (UsageError, Exception):  # noqa: BLE001 - drivers fail in many ways
        return False
    return True
