"""Notes in a model's metadata on numbers that a pass did not keep to the last place.

``gehost.constants`` has exact values in place of constants that the original has rounded to half,
by tensor; ``gehost.folded_weights`` has tensors from which a pass computed new weights in half.
``gehost verify`` judges such a rewrite as equal within rounding.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from gehost.ir.types import DataType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gehost.ir.graph import Value
    from gehost.ir.model import Model

CONSTANTS, FOLDED_WEIGHTS = "gehost.constants", "gehost.folded_weights"
_HALF = (DataType.FLOAT16, DataType.BFLOAT16)


def note_constant(model: Model, value: Value, exact: float) -> None:
    """Note that a constant became ``exact``; only one in half is rounded enough to matter."""
    if value.dtype in _HALF:
        constants = constants_of({CONSTANTS: model.metadata(CONSTANTS) or ""})
        if constants.get(value.name) != exact:
            model.set_metadata(CONSTANTS, json.dumps({**constants, value.name: exact}))


def note_weight(model: Model, value: Value) -> None:
    """Note that new weights in half were computed from a tensor."""
    if value.dtype in _HALF:
        weights = folded_of({FOLDED_WEIGHTS: model.metadata(FOLDED_WEIGHTS) or ""})
        if value.name not in weights:
            model.set_metadata(FOLDED_WEIGHTS, json.dumps([*weights, value.name]))


def constants_of(metadata: Mapping[str, str]) -> dict[str, float]:
    """Return the exact values by tensor; none where the text is not gehost's."""
    read = _read(metadata.get(CONSTANTS, ""))
    entries = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    return {name: float(exact) for name, exact in entries.items() if isinstance(exact, int | float)}


def folded_of(metadata: Mapping[str, str]) -> list[str]:
    """Return the tensors from which weights were computed."""
    read = _read(metadata.get(FOLDED_WEIGHTS, ""))
    entries = cast("list[Any]", read) if isinstance(read, list) else []
    return [name for name in entries if isinstance(name, str)]


def _read(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):  # not written by gehost
        return None
