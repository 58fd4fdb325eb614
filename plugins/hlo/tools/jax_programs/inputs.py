"""What a program is, and numbers to run it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = tuple[Callable[..., Any], list[Any]]


def draw(seed: int, *shape: int, scale: float = 1.0, dtype: Any = np.float32) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def ints(seed: int, *shape: int, low: int = -20, high: int = 20, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def odd() -> Any:
    """Numbers at the corners of float32: nan, both infinities and zeros, large and small ones."""
    nan, inf = np.float32(np.nan), np.float32(np.inf)
    rows = [
        [nan, 1, -inf, 0, -0.0, 3],
        [2, nan, inf, -2, 0.5, -0.5],
        [1e30, -1e30, 1e-30, -1e-30, 2.5, 3.5],
    ]
    return np.array(rows, np.float32)


def large_unsigned() -> Any:
    """Odd integers of all of uint32."""
    halves = ints(5, 4, 6, low=0, high=2**31 - 1).astype(np.uint32)
    return halves * np.uint32(2) + np.uint32(1)
