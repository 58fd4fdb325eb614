"""Imports the texts of ``record_cases.py``, runs them, and compares with jax's numbers.

    python compare_cases.py DIR [--form stablehlo.mlir]... [--only NAME]... [--processes N]

Prints, for each form of the texts, what is not imported and what differs, by cause. A program is
equal if its integers are, and its floats are within a share of the largest number of the output:
2e-5, 2e-3 of f16, 2e-2 of bf16.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from recorded import difference, run

from gehost_hlo import import_file

FORMS = ("stablehlo.mlir", "generic.mlir", "before.hlo", "after.hlo")
_LIMITS = {"bf16": 2e-2, "f16": 2e-3}


def outcome(form: str, path: Path) -> tuple[str, str]:
    """(name, cause); the cause of an equal program is ""."""
    name = path.name.removesuffix(f".{form}")
    try:
        model = import_file(path, fusions="inline")
    except Exception as error:  # noqa: BLE001
        return name, f"not imported: {cause(str(error).splitlines()[0])}"
    try:
        with np.load(path.with_name(f"{name}.npz")) as arrays:
            inputs, expected = (
                [arrays[f"{start}{k}"] for k in range(sum(key.startswith(start) for key in arrays))]
                for start in ("in", "out")
            )
        worst = difference(run(model, inputs), expected)
    except Exception as error:  # noqa: BLE001
        text = " ".join(str(error).split())
        return name, f"not run: {type(error).__name__}: {text[:160]}"
    text = path.read_text()
    kinds = [kind for kind in _LIMITS if re.search(rf"\b{kind}\b|x{kind}>", text)]
    limit = max([_LIMITS[kind] for kind in kinds], default=2e-5)
    return name, "" if worst <= limit else "differs"


def cause(message: str) -> str:
    """An error without names and places."""
    message = message.rpartition("no translation to ONNX: ")[2]
    message = re.sub(r"^.*?\.(?:mlir|hlo):[0-9]+:[0-9]+: ", "", message)
    message = re.sub(r"[\w.-]+ of [\w.-]+ \(line [0-9]+\)(?:, )?", "", message)
    return message.split("; ")[0].strip(": ")[:140]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--form", action="append", default=[], choices=FORMS)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with multiprocessing.Pool(options.processes) as pool:
        for form in options.form or FORMS:
            paths = [
                path
                for path in sorted(options.directory.glob(f"*.{form}"))
                if not options.only or path.name.removesuffix(f".{form}") in options.only
            ]
            rows = pool.map(functools.partial(outcome, form), paths, chunksize=8)
            report(form, rows)


def report(form: str, rows: list[tuple[str, Any]]) -> None:
    equal = sum(not problem for _, problem in rows)
    print(f"{form}: {equal} of {len(rows)} equal")
    for problem, count in Counter(problem for _, problem in rows if problem).most_common():
        names = ", ".join(name for name, item in rows if item == problem)
        print(f"  {count} {problem}: {names}")


if __name__ == "__main__":
    main()
