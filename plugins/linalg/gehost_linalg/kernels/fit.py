"""Fit the coefficients that ``math_c.py`` uses: ``python -m gehost_linalg.kernels.fit``.

Each fit minimizes the largest relative error, by least squares with Lawson's weights. It needs
numpy alone and takes seconds. The errors of the compiled functions are measured by the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_POINTS = 4000
_ROUNDS = 200


def polynomial(target: Callable[[Array], Array], low: float, high: float, degree: int) -> Array:
    """Coefficients of a polynomial near ``target`` on an interval, the constant first."""
    return rational(target, low, high, degree, 0)[0]


def rational(
    target: Callable[[Array], Array], low: float, high: float, above: int, below: int
) -> tuple[Array, Array]:
    """Coefficients of P and Q with P / Q near ``target``."""
    nodes = np.cos(np.linspace(math.pi, 0.0, _POINTS))
    x = (low + high) / 2 + (high - low) / 2 * nodes
    expected = target(x)
    scale = max(abs(low), abs(high))
    powers = (x / scale)[:, None] ** np.arange(max(above, below) + 1)
    weights, bottom = np.ones(_POINTS), np.ones(_POINTS)
    best, result = math.inf, np.zeros(above + 1 + below)
    for _ in range(_ROUNDS):
        rows = np.hstack([powers[:, : above + 1], -expected[:, None] * powers[:, 1 : below + 1]])
        factor = np.sqrt(weights) / np.abs(expected * bottom)
        solved: Any = np.linalg.lstsq(rows * factor[:, None], expected * factor, rcond=None)[0]
        bottom = 1 + powers[:, 1 : below + 1] @ solved[above + 1 :]
        error = np.abs(powers[:, : above + 1] @ solved[: above + 1] / bottom / expected - 1)
        if float(error.max()) < best:
            best, result = float(error.max()), solved
        weights = weights * (error + 1e-3 * float(error.max()))
        weights /= weights.sum()
    top = result[: above + 1] / scale ** np.arange(above + 1)
    rest = result[above + 1 :] / scale ** np.arange(1, below + 1)
    return top, np.concatenate([[1.0], rest])


def _exp_rest(r: Array) -> Array:
    """(exp(r) - 1 - r) / r², by its series near 0."""
    series = sum((r**k / math.factorial(k + 2) for k in range(14)), np.zeros_like(r))
    return np.where(np.abs(r) < 0.1, series, (np.expm1(r) - r) / np.where(r == 0, 1, r) ** 2)


def _log_rest(f: Array) -> Array:
    """(log(1 + f) - f + f²/2) / f³, by its series near 0."""
    series = sum(((-f) ** k / (k + 3) for k in range(24)), np.zeros_like(f))
    near = np.abs(f) < 0.1
    exact = (np.log1p(f) - f + f * f / 2) / np.where(near, 1, f) ** 3
    return np.where(near, series, exact)


def _over_root(function: Callable[[float], float], at_zero: float) -> Callable[[Array], Array]:
    """f(x) / x as a function of x²."""

    def target(u: Array) -> Array:
        return np.array(
            [function(math.sqrt(v)) / math.sqrt(v) if v > 1e-12 else at_zero for v in u]
        )

    return target


def fits() -> dict[str, Sequence[float]]:
    """All coefficients by name, the constant first."""
    half = math.log(2) / 2 * 1.01
    tanh = rational(_over_root(math.tanh, 1.0), 0.0, 9.0**2, 6, 4)
    erf = rational(_over_root(math.erf, 2 / math.sqrt(math.pi)), 0.0, 4.0**2, 6, 5)
    return {
        "exp": polynomial(_exp_rest, -half, half, 4).tolist(),
        "log": polynomial(_log_rest, math.sqrt(0.5) - 1, math.sqrt(2) - 1, 8).tolist(),
        "tanh_top": tanh[0].tolist(),
        "tanh_bottom": tanh[1].tolist(),
        "erf_top": erf[0].tolist(),
        "erf_bottom": erf[1].tolist(),
    }


if __name__ == "__main__":
    for name, coefficients in fits().items():
        click.echo(f"{name}: {', '.join(f'{np.float32(each)!s}f' for each in coefficients)}")
