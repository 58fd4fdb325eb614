"""``make kernels``: a column of the table of kernels, by sessions of the installed runtime.

Each operator of the table gets a model of one node in each type, which is loaded without optimizations; the graph
that the runtime then has shows whether a kernel of the type, casts or the function's body run. Exit code 1 where
a row differs. An operator without a row for the provider must not load. Types in rows of other providers must
at least be declared by the operator of the installed release. ``--provider cuda`` checks the column of a GPU:
fallback to the CPU is off there, so that a node without a kernel does not load, and ``parts`` reads as ``own`` of the parts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from gehost import DataType, kernels

X, W = (2, 4, 16), (16,)
TYPES = {"float32": 1, "float16": 10, "bfloat16": 16, "float64": 11}
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
NUMBERS = {**TYPES, "int32": 6, "int64": 7, "uint8": 2}
"""ONNX's numbers of types."""


class _Call:
    """A call of an operator: shapes of its inputs (None: absent), or type and shape where that is fixed."""

    def __init__(self, *inputs: Any, opset: int = 17, outputs: int = 1, **attributes: Any) -> None:
        self.inputs, self.opset, self.outputs, self.attributes = inputs, opset, outputs, attributes


_NORM = _Call(X, X, W, W, outputs=4, epsilon=1e-5)
_GROUPS = {"groups": 4, "activation": 0, "channels_last": 1}
_IMAGE = (2, 4, 4, 16)
CALLS = {
    "com.microsoft::MultiHeadAttention": _Call(
        X, X, X, (48,), None, (2, 1, 4, 4), num_heads=2, scale=0.5
    ),
    "com.microsoft::Attention": _Call(
        X, (16, 48), (48,), None, None, (2, 1, 4, 4), num_heads=2, scale=0.5
    ),
    "com.microsoft::GroupQueryAttention": _Call(
        *(X, X, X, None, None, ("int32", (2,)), ("int32", ())),
        outputs=3,
        num_heads=2,
        kv_num_heads=2,
        scale=0.5,
    ),
    "com.microsoft::PackedMultiHeadAttention": _Call(
        *((8, 16), (8, 16), (8, 16), None, ("int32", (2, 4)), ("int32", (3,))), num_heads=2
    ),
    "Attention": _Call(X, X, X, opset=23, q_num_heads=2, kv_num_heads=2),
    "com.microsoft::SkipLayerNormalization": _NORM,
    "com.microsoft::SkipSimplifiedLayerNormalization": _NORM,
    "LayerNormalization": _Call(X, W, W),
    "SimplifiedLayerNormalization": _Call(X, W),
    "RMSNormalization": _Call(X, W, opset=23),
    "com.microsoft::RotaryEmbedding": _Call(X, ("int64", (1,)), (8, 4), (8, 4), num_heads=2),
    "RotaryEmbedding": _Call(X, (8, 4), (8, 4), ("int64", (2, 4)), opset=23, num_heads=2),
    "com.microsoft::FastGelu": _Call(X, W),
    "com.microsoft::BiasGelu": _Call(X, W),
    "com.microsoft::QuickGelu": _Call(X),
    "com.microsoft::Gelu": _Call(X),
    "Gelu": _Call(X, opset=20),
    "com.microsoft::BiasSplitGelu": _Call((2, 4, 2560), (2560,)),
    "com.microsoft::GroupNorm": _Call(_IMAGE, ("float32", W), ("float32", W), **_GROUPS),
    "com.microsoft::SkipGroupNorm": _Call(
        _IMAGE, ("float32", W), ("float32", W), _IMAGE, **_GROUPS
    ),
    "com.microsoft::FusedConv": _Call((2, 3, 4, 4), (2, 3, 1, 1), activation="Relu"),
    "com.microsoft::FusedMatMul": _Call(X, (16, 16), alpha=2.0),
    "com.microsoft::MatMulNBits": _Call(
        (2, 4, 32), ("uint8", (16, 1, 16)), (16,), K=32, N=16, bits=4, block_size=32
    ),
    "com.microsoft::QAttention": _Call(
        *(("uint8", X), ("uint8", (16, 48)), (48,), (), (), None, ("uint8", ()), ("uint8", ())),
        num_heads=2,
    ),
    "MatMul": _Call(X, (16, 16)),
    "Softmax": _Call(X),
}


def model_of(operator: str, call: _Call, dtype: str) -> onnx.ModelProto:
    """A model of one node, which computes in a type."""
    domain, _, name = operator.rpartition("::")
    values: list[onnx.ValueInfoProto] = []
    names: list[str] = []
    for place, operand in enumerate(call.inputs):
        named = operand and isinstance(operand[0], str)
        kind, shape = operand if named else (dtype, operand)
        names.append("" if operand is None else f"i{place}")
        if operand is not None:
            values.append(onnx.helper.make_tensor_value_info(names[-1], NUMBERS[kind], shape))
    outputs = [f"o{place}" for place in range(call.outputs)]
    node = onnx.helper.make_node(name, names, outputs, domain=domain, **call.attributes)
    result = onnx.helper.make_tensor_value_info("o0", TYPES[dtype], None)
    imports = {"": call.opset, "com.microsoft": 1}
    return onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", values, [result]),
        opset_imports=[onnx.helper.make_opsetid(*import_) for import_ in imports.items()],
        ir_version=10,
    )


def found(operator: str, call: _Call, dtype: str, directory: str, provider: str = "cpu") -> str:
    """``own``, ``casts`` or ``parts``, as in the table; "" where the model does not load."""
    model = model_of(operator, call, dtype)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(Path(directory, "loaded.onnx"))
    if provider != "cpu":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=[PROVIDERS[provider]]
        )
    except Exception:  # noqa: BLE001 - the runtime's errors have no common class
        return ""
    loaded = [one.op_type for one in onnx.load(options.optimized_model_filepath).graph.node]
    if operator.rpartition("::")[2] not in loaded:
        return "parts"
    return "casts" if "Cast" in loaded else "own"


def undeclared(version: str) -> list[str]:
    """Types in rows of any provider that the operators of the installed release do not declare.

    A session without a kernel says NOT_IMPLEMENTED; one of a type that the operator lacks fails before.
    """
    lines: list[str] = []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for row in kernels.kernels():
        if (
            kernels.find(
                row.operator,
                DataType(TYPES[next(iter(row.types))]),
                runtime=row.runtime,
                provider=row.provider,
                version=version,
            )
            is not row
        ):
            continue  # of another release
        for dtype in row.types:
            model = model_of(row.operator, CALLS[row.operator], dtype).SerializeToString()
            try:
                onnxruntime.InferenceSession(model, options, providers=[PROVIDERS["cpu"]])
            except Exception as error:  # noqa: BLE001 - the runtime's errors have no common class
                if "NOT_IMPLEMENTED" not in str(error):
                    lines.append(f"{row.operator} {dtype}, {row.provider}: {error}")
    return lines


def differences(version: str, provider: str = "cpu") -> list[str]:
    """How the runtime differs from a provider's rows of its release."""
    rows = kernels.kernels()
    missing = sorted({row.operator for row in rows} - set(CALLS))
    lines = [f"{operator}: this program has no call of it" for operator in missing]
    with tempfile.TemporaryDirectory() as directory:
        for operator, call in CALLS.items():
            entries = [
                row.since for row in rows if row.operator == operator and row.provider == provider
            ]
            if entries and all(map(kernels.release(version).__lt__, map(kernels.release, entries))):
                continue  # the passes use no release so old
            for dtype in TYPES:
                row = kernels.find(
                    operator,
                    DataType(TYPES[dtype]),
                    runtime="onnxruntime",
                    provider=provider,
                    version=version,
                )
                expected, actual = (
                    "" if row is None else row.types[dtype],
                    found(operator, call, dtype, directory, provider),
                )
                if actual != expected:
                    declared = expected or "no row"
                    lines.append(
                        f"{operator} {dtype}: {actual or 'does not load'}, in the table {declared}"
                    )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", choices=PROVIDERS, default="cpu")
    provider: str = parser.parse_args().provider
    if PROVIDERS[provider] not in onnxruntime.get_available_providers():
        print(
            f"no {PROVIDERS[provider]}: this onnxruntime has {onnxruntime.get_available_providers()}"
        )
        return 2
    version = onnxruntime.__version__
    lines = differences(version, provider) + undeclared(version)
    for line in lines:
        print(line)
    print(
        f"onnxruntime {version}, {provider}: {len(CALLS)} operators, {len(lines)} differences from the table"
    )
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
