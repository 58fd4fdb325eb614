"""The C of each row of the table of operations, compiled, beside its numpy."""

from __future__ import annotations

import ctypes
import subprocess
from typing import Any

import numpy as np
import pytest

from gehost_linalg.kernels import math_c
from gehost_linalg.kernels.build import FLAGS
from gehost_linalg.kernels.c import template
from gehost_linalg.operations import NUMPY, OPERATIONS

C_TYPES: dict[str, tuple[str, Any]] = {
    "f32": ("float", ctypes.c_float),
    "f64": ("double", ctypes.c_double),
    "i32": ("int32_t", ctypes.c_int32),
    "i64": ("int64_t", ctypes.c_int64),
}
ROWS = [
    (name, dtype)
    for name, row in OPERATIONS.items()
    if row.c and row.form == "plain"
    for dtype in (("f32", "f64") if row.types == "float" else ("i32", "i64"))
]


@pytest.fixture(scope="module")
def library(cc: str, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A function for each row and type."""
    folder = tmp_path_factory.mktemp("rows")
    parts = [math_c.PRELUDE, *math_c.FUNCTIONS.values(), math_c.COMMON]
    for name, dtype in ROWS:
        c, _ = C_TYPES[dtype]
        names = [f"x{place}" for place in range(OPERATIONS[name].operands)]
        expression = template(name, dtype, "")[0].format(*names)
        arguments = ", ".join(f"{c} {x}" for x in names)
        parts.append(f"{c} {function(name, dtype)}({arguments}) {{ return {expression}; }}\n")
    (folder / "rows.c").write_text("".join(parts))
    command = [*cc.split(), *FLAGS, "-shared", folder / "rows.c", "-lm", "-o", folder / "rows.so"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "rows.so"))


def function(name: str, dtype: str) -> str:
    return f"row_{name.replace('.', '_')}_{dtype}"


@pytest.mark.parametrize(("name", "dtype"), ROWS)
def test_c_computes_what_numpy_does(library: ctypes.CDLL, name: str, dtype: str) -> None:
    row = OPERATIONS[name]
    rng = np.random.default_rng(0)
    shape = (300, row.operands)
    numbers = rng.normal(size=shape) * 2 if row.types == "float" else rng.integers(-9, 9, shape)
    if name in ("arith.divsi", "arith.remsi"):
        numbers[:, 1] += numbers[:, 1] == 0
    operands = numbers.astype(NUMPY[dtype])
    _, number = C_TYPES[dtype]
    call = getattr(library, function(name, dtype))
    call.restype, call.argtypes = number, [number] * row.operands
    with np.errstate(all="ignore"):
        expected = np.array([row.numpy(*line) for line in operands], NUMPY[dtype])
    actual = np.array([call(*line.tolist()) for line in operands], NUMPY[dtype])
    np.testing.assert_allclose(actual, expected, rtol=2e-6 if dtype == "f32" else 1e-14)
