"""Kernels on more than 2**31 elements: ``python -m plugins.linalg.tools.large [CASE…]``; needs 10 GiB of memory.

Tensors of bool, of a byte each, against numpy: flat, with rows and a broadcast column, and one reduced row longer than 2**31.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx

from gehost_linalg.kernels.library import write_library

from ..tests.kernels.fused_models import Array, Case, fused_model, run, session

MANY = 2**31 + 3


def pattern(*shape: int) -> Array:
    """True at places that no period of a power of two gives, and at the very end."""
    result = np.zeros(shape, np.bool_)
    result.reshape(-1)[::1021] = True
    result.reshape(-1)[-1] = True
    return result


def last_alone(length: int) -> Array:
    result = np.zeros((1, length), np.bool_)
    result[0, -1] = True
    return result


CASES = {
    "flat": (
        Case("bool[N] a, bool[1] c", "n = Not(a)\ny = And(n, c)", "bool[N] y"),
        lambda: [pattern(MANY), np.array([True])],
        lambda a, c: np.logical_not(a),
    ),
    "rows": (
        Case("bool[R, N] a, bool[R, 1] c", "n = Not(a)\ny = Xor(n, c)", "bool[R, N] y"),
        lambda: [pattern(3, MANY // 3 + 1), np.array([[True], [False], [True]])],
        lambda a, c: np.logical_xor(np.logical_not(a), c),
    ),
    "one row, reduced": (
        Case("bool[R, N] a", "f = Cast<to = 1>(a)\nm = ReduceMax<axes = [-1]>(f)\ny = Neg(m)", "float[R, 1] y", 17),
        lambda: [last_alone(MANY)],
        lambda a: np.array([[-1]], np.float32),
    ),
}  # fmt: skip


def main() -> int:
    failed = False
    for name in sys.argv[1:] or CASES:
        case, feeds, expected = CASES[name]
        model = fused_model([case])
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(model, Path(folder, "m.onnx"))
            library = Path(folder, "k.so")
            write_library(str(Path(folder, "m.onnx")), str(library))
            result = session(model, library)
            arrays = feeds()
            begin = time.process_time()
            (argument,) = run(
                result, dict(zip([item.name for item in model.graph.input], arrays, strict=True))
            ).values()
            seconds = time.process_time() - begin
            equal = np.array_equal(argument, expected(*arrays))
        failed |= not equal
        print(
            f"{name}: {arrays[0].shape}, {arrays[0].size - 2**31:+} elements over 2**31: {'equal' if equal else 'DIFFERENT'}, {seconds:.1f} s of CPU",
            flush=True,
        )
        del argument, arrays
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
