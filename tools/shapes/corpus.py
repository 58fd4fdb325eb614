# pyright: basic, reportUnknownMemberType=false
"""Compare the inferred sizes of whole models with those of ONNX Runtime.

``make shapes``: each model runs with each of its feeds (without feeds: zeros), all
tensors are read, and every size and element that inference knows must be the one of the run. The
table counts the sizes of computed tensors: numbers, sizes in the names of the inputs, and others.
Exit code 1 when a size is wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from gehost.infer import infer_model
from gehost.ir.model import Model
from tools.shapes.claims import kinds, wrong

_COLUMNS = ("number", "in names", "unnamed", "no rank", "runs", "wrong")


def feeds_of(path: Path, proto: onnx.ModelProto) -> Iterator[dict[str, Any]]:
    """Yield the feeds beside a model, zeros if it has none and all its sizes are numbers."""
    files = sorted((path.parents[1] / "feeds").glob(f"{path.stem}.*.npz"))
    files += sorted((path.parent / "feeds").glob(f"{path.stem}*.npz"))
    for file in files:
        with np.load(file) as arrays:
            yield dict(arrays)
    contents = {tensor.name for tensor in proto.graph.initializer}
    types = {e.name: e.type.tensor_type for e in proto.graph.input if e.name not in contents}
    shapes = {name: [dim.dim_value for dim in kind.shape.dim] for name, kind in types.items()}
    if not files and all(all(shape) for shape in shapes.values()):
        yield {
            name: np.zeros(shape, helper.tensor_dtype_to_np_dtype(types[name].elem_type))
            for name, shape in shapes.items()
        }


def checked(path: Path) -> tuple[Counter[str], list[str]]:
    """Return a model's row, and what is wrong."""
    proto = onnx.load(path)
    model = Model(onnx.ModelProto.FromString(proto.SerializeToString()))
    infer_model(model)
    counts, bad = kinds(model), list[str]()
    entries = {output.name for output in proto.graph.output}
    proto.graph.output.extend(
        helper.make_empty_tensor_value_info(name)
        for node in proto.graph.node
        for name in node.output
        if name and name not in entries
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, ["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    for feed in feeds_of(path, proto):
        results = feed | dict(zip(names, session.run(names, feed), strict=True))
        sizes = {
            dim.dim_param: size
            for entry in proto.graph.input
            if entry.name in feed
            for dim, size in zip(
                entry.type.tensor_type.shape.dim, feed[entry.name].shape, strict=True
            )
            if dim.dim_param
        }
        bad += wrong(model, sizes, {n: a for n, a in results.items() if hasattr(a, "shape")})
        counts["runs"] += 1
    counts["wrong"] = len(bad)
    return counts, bad


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the sizes of whole models with runs.")
    parser.add_argument("models", nargs="+", type=Path)
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    total: Counter[str] = Counter()
    print(f"{'model':24}", *[f"{column:>9}" for column in _COLUMNS])
    for path in arguments.models:
        counts, bad = checked(path)
        total.update(counts)
        print(f"{path.stem:24}", *[f"{counts[column]:9}" for column in _COLUMNS], flush=True)
        for line in bad[:3]:
            print(f"    {line}")
    print(f"{'all':24}", *[f"{total[column]:9}" for column in _COLUMNS])
    return 1 if total["wrong"] or not total["runs"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
