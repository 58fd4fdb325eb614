"""Sizes and elements that inference knows, against those of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gehost.ir.model import Model
from gehost.sizes import Size
from gehost.sizes.texts import symbols_in

Results = Mapping[str, "np.ndarray[Any, Any]"]


def wrong(model: Model, sizes: Mapping[str, int], results: Results) -> list[str]:
    """Return the sizes and elements of the main graph that are not those of a run.

    Args:
        model: an inferred one.
        sizes: those of the names of its inputs.
        results: tensors of the run, by name.
    """
    scope, bad = model.sizes, list[str]()
    claims = list[tuple[str, int | Size, int]]()
    for name, value in model.graph.values.items():
        array = results.get(name)
        if array is None:
            continue
        if value.shape is not None:
            if len(value.shape) != array.ndim:
                return [f"{name}: {value.shape} is {array.shape}"]
            dims = scope.parse_all(value.shape)
            claims += _claims(f"{name}.shape", dims, array.shape)
        elements = value.elements
        if elements is not None and array.dtype.kind in "ib" and array.ndim < 2:
            if len(elements) != array.size:
                return [f"{name}: elements {elements} are {array}"]
            parsed = scope.parse_all(elements)
            claims += _claims(f"{name}.elements", parsed, array.ravel().tolist())
    numbers = dict(sizes)
    for where, claim, actual in claims:  # an unnamed size has one value wherever it stands
        if isinstance(claim, Size) and str(claim).startswith("?") and ".shape" in where:
            for atom in symbols_in(scope, claim):
                if atom.name == str(claim):
                    numbers.setdefault(atom.name, actual)
    for where, claim, actual in claims:
        try:
            computed = scope.value(claim, numbers)
        except KeyError:
            continue
        except ZeroDivisionError:
            bad.append(f"{where}: {claim} has a quotient by 0 with {numbers}")
            continue
        if computed != actual:
            bad.append(f"{where}: {claim} with {numbers} is {computed}, not {actual}")
    return bad


def _claims(where: str, dims: Any, actual: Any) -> Iterator[tuple[str, Any, int]]:
    for dim, size in zip(dims, actual, strict=True):
        if dim is not None:
            yield where, dim, int(size)


def kinds(model: Model) -> Counter[str]:
    """Return how many sizes of computed tensors are numbers, in the inputs' names, or open."""
    scope, counts = model.sizes, Counter[str]()
    for value in model.graph.values.values():
        if value.producer is None or value.is_constant:
            continue
        if value.shape is None:
            counts["no rank"] += 1
        for dim in value.shape or ():
            if isinstance(dim, int):
                counts["number"] += 1
            elif dim is None or any(name.startswith("?") for name in scope.names_in(dim)):
                counts["unnamed"] += 1
            else:
                counts["in names"] += 1
    return counts
