"""One peer on one file: ``python tool.py PEER SOURCE TARGET``, in the environment of the peers.

It imports nothing of gehost, so that a peer runs beside the packages that it wants. ``versions``
in place of a peer prints those of all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

MODEL_TYPES = {"gpt2": "gpt2", "vit": "vit", "t5": "t5", "whisper": "bart", "swin": "swin"}
"""What onnxruntime.transformers calls them; all others are optimized as bert."""
_NARROW = ("bert_pool", "modernbert", "whisper")
"""Models of width 32; all others have 64, and 4 heads, which a user states to that optimizer."""
PACKAGES = ("onnx", "onnxruntime", "onnxslim", "onnxsim", "onnxscript", "torch")


def _onnxslim(source: str, target: str) -> None:
    import onnxslim  # type: ignore[import-not-found]

    onnxslim.slim(source, target)


def _onnxsim(source: str, target: str) -> None:
    import onnx
    import onnxsim  # type: ignore[import-not-found]

    onnx.save(onnxsim.simplify(source)[0], target)


def _runtime(level: str) -> Callable[[str, str], None]:
    def optimize(source: str, target: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.optimized_model_filepath = 4, target
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return optimize


def _transformers(source: str, target: str) -> None:
    from onnxruntime.transformers import optimizer  # type: ignore[import-untyped]

    name = Path(source).name
    kind = next((MODEL_TYPES[item] for item in MODEL_TYPES if name.startswith(item)), "bert")
    hidden = 32 if name.startswith(_NARROW) else 64
    result = optimizer.optimize_model(
        source, model_type=kind, num_heads=4, hidden_size=hidden, only_onnxruntime=False
    )
    result.save_model_to_file(target)


def _ort_fusions(source: str, target: str) -> None:
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    result = optimize_for_ort(onnx_ir.load(source))
    onnx_ir.save(result[0] if isinstance(result, tuple) else result, target)


PEERS: dict[str, Callable[[str, str], None]] = {
    "onnxslim": _onnxslim,
    "onnxsim": _onnxsim,
    "ORT basic": _runtime("ORT_ENABLE_BASIC"),
    "ORT extended": _runtime("ORT_ENABLE_EXTENDED"),
    "transformers.optimizer": _transformers,
    "ort_fusions": _ort_fusions,
}


if __name__ == "__main__":
    if sys.argv[1] == "versions":
        print(json.dumps({name: version(name) for name in PACKAGES}))
    else:
        PEERS[sys.argv[1]](*sys.argv[2:])
