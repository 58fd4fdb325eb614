"""Raise one-node models of all opsets to all newer ones: ``python -m tools.opset [FILTER]``.

They are those of ``cases.py``, and those of ONNX's backend tests at each opset and in each element type of float at
which they are valid. Each result passes the full check, loads in ONNX Runtime where its source does, and gives equal
numbers, or the conversion is refused. Prints what is wrong and what is refused; exits with 1 if anything is wrong.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import onnx

from tools.backend.cases import load, names
from tools.opset.cases import CHANGED
from tools.opset.grid import NEWEST, TARGETS, outcome

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


def of_backend() -> Iterator[tuple[str, int, onnx.ModelProto]]:
    """One case for each operator, set of attributes, and types."""
    visited: set[object] = set()
    for name in names():
        model = load(name).model if name.startswith("node/") else None
        if model is None or len(model.graph.node) != 1 or model.graph.node[0].domain:
            continue
        node = model.graph.node[0]
        types = [
            entry.type.tensor_type.elem_type for entry in (*model.graph.input, *model.graph.output)
        ]
        key = (
            node.op_type,
            *types,
            *sorted(item.name for item in node.attribute),
            *map(bool, node.input),
            *map(bool, node.output),
        )
        if key in visited:
            continue
        visited.add(key)
        for dtype in _FLOATS if _FLOATS[0] in types else (0,):
            for opset in range(7, NEWEST):
                copy = onnx.ModelProto()
                copy.CopyFrom(model)
                copy.ir_version = 10
                del copy.opset_import[:]
                copy.opset_import.add(version=opset)
                for entry in (*copy.graph.input, *copy.graph.output):
                    if entry.type.tensor_type.elem_type == _FLOATS[0]:
                        entry.type.tensor_type.elem_type = dtype
                yield f"{name} | {dtype}", opset, copy


def main(text: str = "") -> int:
    counts: Counter[str] = Counter()
    findings: dict[tuple[str, str], list[tuple[int, int]]] = {}
    models = (item for case in CHANGED for item in case.models())
    for source in (models, of_backend()):
        for name, opset, model in source:
            if text not in name:
                continue
            for target in TARGETS:
                result = outcome(model, target) if target > opset else ""
                if result == "unusable":
                    counts[result] += 1
                    break
                if result:
                    counts[result.partition(":")[0]] += 1
                if ":" in result:
                    findings.setdefault(
                        (name, result.replace(f"opset {target}", "opset N")), []
                    ).append((opset, target))
    for (name, result), places in sorted(findings.items(), key=lambda item: item[0][1][0] != "W"):
        print(f"{result} | {name} | {len(places)} × from {places[0][0]} to {places[0][1]}")
    print(dict(counts))
    return any(result.startswith("WRONG") for _, result in findings)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
