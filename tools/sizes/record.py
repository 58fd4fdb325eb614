"""Writes what ``make sizes`` measured: gehost's list of doubts, and the witnesses."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from tools.sizes.cases import Case
from tools.sizes.fit import Rule, table
from tools.sizes.sweep import Seen
from tools.sizes.witnesses import Shapes, actual_shapes

LIST = Path(__file__).parents[2] / "gehost/infer/doubtful_sizes.py"
WITNESSES = Path(__file__).parent / "witnesses.jsonl"
PACKAGES = ("onnx", "onnxruntime")
_EACH = 4
"""Witnesses of one rule."""
_LONGEST = 10_000
"""Characters of a witness that is one of many."""

_HEAD = '''"""Sizes in doubt by operator.

``make sizes`` measured them and writes this file.

Before each: cases in doubt with a wrong size, cases in doubt whose sizes were right by both
witnesses, and by one that runs them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gehost.infer.doubts import Doubt

'''


def versions() -> dict[str, str]:
    """The installed versions that decide sizes."""
    return {name: version(name) for name in PACKAGES}


def write_list(rules: Sequence[Rule], path: Path = LIST) -> None:
    """Write gehost's list."""
    visited = {(rule.op, rule.doubt): rule for rule in rules}
    lines = [_HEAD, f"VERSIONS: Mapping[str, str] = MappingProxyType({versions()!r})\n"]
    lines.append('"""The versions that were measured."""\n\n')
    lines.append("DOUBTS: Mapping[str, Sequence[Doubt]] = MappingProxyType({\n")
    for op, doubts in sorted(table(rules).items()):
        lines.append(f"{op!r}: (\n")
        for doubt in doubts:
            rule = visited[op, doubt]
            values = (
                f"{doubt.first}, {doubt.last}, {doubt.when!r}, {doubt.certain}, {doubt.differs!r}"
            )
            half = f", {rule.half_seen} by one" if rule.half_seen else ""
            counts = f"{len(rule.wrong)} wrong, {rule.right} right{half}"
            lines.append(f"# {counts}\nDoubt({values}),\n")
        lines.append("),\n")
    lines.append("})\n")
    path.write_text("".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "format", "--quiet", str(path)]
    subprocess.run(command, check=True)


def write_witnesses(rules: Sequence[Rule], visited: Sequence[Seen], right: Sequence[Seen]) -> None:
    """Keep a few cases of each rule, smallest first, and some whose sizes are known."""
    by_number = {item.number: item for item in visited}
    lines = [json.dumps({"versions": versions()})]
    for rule in rules:
        wrong = sorted((by_number[number] for number in rule.wrong), key=_weight)
        lines += [_line(item, wrong=True) for item in wrong[:_EACH]]
    retained = (_line(item, wrong=False) for item in sorted(right, key=_weight))
    lines += [line for line in retained if len(line) <= _LONGEST and _replays(line)]
    WITNESSES.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _replays(line: str) -> bool:
    """Whether a witness runs as before on other floats."""
    _, case, _, actual = _read(line)
    return actual_shapes(case, case.model())[0] == actual


def _weight(visited: Seen) -> tuple[int, int]:
    assert visited.case is not None
    return sum(np.size(array) for array in visited.case.arrays if array is not None), visited.number


def _line(visited: Seen, *, wrong: bool) -> str:
    case = visited.case
    assert case is not None
    entry: dict[str, Any] = {
        "about": f"{visited.op} {visited.opset}: {onnx.helper.printable_node(case.node)}",
        "wrong": wrong,
        "opset": visited.opset,
        "node": _text(case.node.SerializeToString()),
        "before": [_text(node.SerializeToString()) for node in case.before],
        "inputs": [_input(array, slot in case.constant) for slot, array in enumerate(case.arrays)],
        "constant": sorted(case.constant),
        "dims": {str(slot): dims for slot, dims in case.dims.items()},
        "inferred": visited.inferred,
        "actual": visited.actual,
    }
    return json.dumps(entry)


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _input(array: Any, constant: bool) -> str | list[Any] | None:
    """An input: whole if its elements may decide a size, else its type and shape."""
    if array is None:
        return None
    if not constant and array.dtype.kind == "f":
        return [array.dtype.name, *array.shape]
    return _text(onnx.numpy_helper.from_array(np.asarray(array)).SerializeToString())


def read_witnesses() -> list[tuple[dict[str, Any], Case, Shapes, dict[str, Shapes]]]:
    """Each witness with its case, the sizes inferred without doubts, and the actual ones."""
    return [_read(line) for line in WITNESSES.read_text(encoding="utf-8").splitlines()[1:]]


def _read(line: str) -> tuple[dict[str, Any], Case, Shapes, dict[str, Shapes]]:
    entry = json.loads(line)
    case = Case(
        onnx.NodeProto.FromString(base64.b64decode(entry["node"])),
        entry["opset"],
        [_array(text) for text in entry["inputs"]],
        frozenset(entry["constant"]),
        {int(slot): tuple(dims) for slot, dims in entry["dims"].items()},
        [onnx.NodeProto.FromString(base64.b64decode(node)) for node in entry["before"]],
    )
    actual = {name: _shapes(shapes) for name, shapes in entry["actual"].items()}
    return entry, case, _shapes(entry["inferred"]), actual


def _array(text: str | list[Any] | None) -> Any:
    if text is None:
        return None
    if isinstance(text, list):
        dtype, *shape = text
        return np.random.default_rng(0).normal(size=shape).astype(dtype)
    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(base64.b64decode(text)))


def _shapes(shapes: list[list[Any] | None]) -> Shapes:
    return [None if shape is None else tuple(shape) for shape in shapes]
