"""Models of fused nodes, each from the text of its body; what they compute with and without a library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from gehost import Model
from gehost_linalg.groups.body import DOMAIN, Body, Signature
from gehost_linalg.groups.derive import derive

Array = np.ndarray[Any, Any]


@dataclass
class Case:
    """One fused node.

    ``inputs`` as ``"float[N, 4] x, bool[N, 1] m"``; ``body`` makes ``outputs``, whose types are stated in the same way.
    """

    inputs: str
    body: str
    outputs: str = "float[…] y"
    opset: int = 20


def _named(text: str) -> list[str]:
    return re.findall(r"(\w+)\s*(?:,|$)", re.sub(r"\[[^\]]*\]", "", text))


def fused_model(cases: Sequence[Case]) -> onnx.ModelProto:
    """A model with one fused node for each case; inputs of equal text are one input."""
    whole = onnx.ModelProto(ir_version=10)
    whole.opset_import.add(domain="", version=20)
    whole.opset_import.add(domain=DOMAIN, version=1)
    whole.graph.name = "fused"
    for number, case in enumerate(cases):
        outputs = case.outputs.replace("[…]", "")
        text = f'<ir_version: 10, opset_import: ["" : {case.opset}]>\nmain ({case.inputs}) => ({outputs}) {{\n{case.body}\n}}'
        single = onnx.parser.parse_model(text)
        assert list(single.graph.input), text
        function = onnx.FunctionProto(
            domain=DOMAIN,
            input=[value.name for value in single.graph.input],
            output=[value.name for value in single.graph.output],
        )
        function.opset_import.extend(single.opset_import)
        function.node.extend(single.graph.node)
        entry = Model(onnx.ModelProto.FromString(single.SerializeToString())).graph.inputs
        signature = [Signature.of(value.type) for value in entry]
        assert None not in signature
        function.name = derive(
            Body.of_function(function), [item for item in signature if item]
        ).name
        if function.name not in {item.name for item in whole.functions}:
            whole.functions.append(function)
        present = {value.name: value for value in whole.graph.input}
        names = []
        for value in single.graph.input:
            same = next(
                (
                    name
                    for name, other in present.items()
                    if other.type == value.type and name.startswith(value.name)
                ),
                None,
            )
            if same is None:
                same = f"{value.name}_{number}"
                whole.graph.input.append(onnx.ValueInfoProto(name=same, type=value.type))
            names.append(same)
        results = [f"{value.name}_{number}" for value in single.graph.output]
        whole.graph.node.append(
            onnx.helper.make_node(
                function.name, names, results, domain=DOMAIN, name=f"node{number}"
            )
        )
        for value, name in zip(single.graph.output, results, strict=True):
            whole.graph.output.append(onnx.ValueInfoProto(name=name, type=value.type))
    return whole


def session(
    model: onnx.ModelProto | str | Path, library: str | Path | None = None, threads: int = 1
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # each tensor on its own, so that a sanitizer sees its end
    if library is not None:
        options.register_custom_ops_library(str(library))
    content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run(result: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = [value.name for value in result.get_outputs()]
    return dict(zip(names, result.run(None, dict(feeds)), strict=True))
