"""Inputs to measure with: sizes as a model is served, values as a user would feed.

Each open size has a role by its name, else by the input that has it. A role has sizes to try, the
largest first; one that the model does not run at is replaced by the next.

| role | sizes | with values |
|---|---|---|
| batch | 1 | |
| sequence | 128, and 16 | tokens below the table's rows; masks of ones, the last eighth 0 |
| past, with a sequence of 1 | 512, and 16 | positions count up |
| height, width | 224 | channels of the first Conv |
| frames, samples of audio | 1500, 16000 | |
| other | 1 for axis 0, else 64 | |
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from gehost.errors import ModelError, UsageError
from gehost.spelling import hint
from gehost.verify.feeds import FeedMaker
from gehost.verify.search import find_feeds
from gehost.verify.sizes import Dims, Ties, tie_plans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gehost.verify import Runner

    Feeds = dict[str, NDArray[Any]]

_SEQUENCE, _PAST, _TOTAL, _BATCH, _CHANNELS = "sequence", "past", "total", "batch", "channels"
_SIZES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        _BATCH: (1,),
        _SEQUENCE: (128, 64, 48, 32, 16, 8),
        _PAST: (512, 256, 128, 64, 48, 32, 16, 8),
        _CHANNELS: (3, 1, 4),
        "image": (224, 256, 384, 512, 112, 64, 32),
        "frames": (1500, 3000, 1000, 100),
        "samples": (16000, 8000, 400),
        "other": (64, 32, 16, 8, 4, 2, 1),
    }
)
_SMALL = 16
"""Of a sequence or of its past, where a fusion should not cost either."""
_NAMES = (
    (_TOTAL, r"total|past.*(\+|plus|and)|(\+|plus).*past"),
    (_PAST, r"past|cache"),
    (_BATCH, r"(^|_)(batch|bs|b|n)(_|\d|$)|batch"),
    ("samples", r"sampl|audio|wav"),
    ("frames", r"frame|mel"),
    (_CHANNELS, r"chan"),
    ("image", r"height|width|(^|_)[hw](_|\d|$)|pixel|image"),
    (_SEQUENCE, r"seq|len|token|time|(^|_)t(_|\d|$)"),
)
_TEXTS = r"ids|mask|token|position|label"
_MOST_TIES = 10
"""Guesses of equal sizes that are tried at each size."""


@dataclass(frozen=True)
class Inputs:
    """Inputs of growing sizes, the last one of the size that counts."""

    feeds: tuple[Feeds, ...]
    notes: tuple[str, ...] = ()
    """Sizes that the model did not run at, and what stands in for them."""

    @property
    def largest(self) -> Feeds:
        """The inputs of the size that counts."""
        return self.feeds[-1]

    @property
    def smallest(self) -> Feeds:
        """The inputs at which overhead shows."""
        return self.feeds[0]


def describe_sizes(feeds: Mapping[str, NDArray[Any]], most: int = 2) -> str:
    """Return sizes as text: ``input_ids 1 × 128``."""
    shown = [
        f"{name} {' × '.join(map(str, array.shape)) or 'scalar'}" for name, array in feeds.items()
    ]
    more = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more if shown else "no inputs"


def realistic_inputs(
    runner: Runner, measure: Mapping[str, Sequence[int]] | None = None, seed: int = 0
) -> Inputs:
    """Choose sizes to measure a model with, and make inputs of these sizes.

    Args:
        runner: of the model; it is closed afterwards.
        measure: sizes by symbol or ``INPUT:AXIS``, in place of those of the role.
        seed: of the values.

    Raises:
        UsageError: ``measure`` names no open size, or the model does not run at its sizes.
        ModelError: the model runs on none of the inputs that were tried.
    """
    signature = _Signature(runner.proto())
    arguments = dict(
        zip(signature.symbols_of(measure or {}), (measure or {}).values(), strict=True)
    )
    chosen = signature.sizes_of(arguments)
    try:
        attempts = [
            (sizes, ties)
            for sizes, ties in _attempts(signature, chosen)
            if ties.keys().isdisjoint(arguments)
        ]
        largest, first_try = _first_that_runs(runner, signature, attempts, seed)
        if largest is None:
            if measure:
                raise UsageError(
                    f"{runner.name} does not run at the sizes to measure with: {first_try}"
                )
            first = attempts[0][0].items() if attempts else ()
            tried = ", ".join(f"{name}={size}" for name, size in first)
            note = f"does not run at {tried} and the like: --measure NAME=SIZE gives sizes"
            note = note if tried else "does not run on likely values: --feeds gives inputs"
            return Inputs((dict(find_feeds(runner, seed)[-1][0]),), (note,))
        sizes, ties, feeds = largest
        results = [feeds]
        for smaller in _other_sizes(signature, arguments, sizes):
            other = _first_that_runs(runner, signature, [(smaller, ties)], seed)[0]
            if other is not None:
                results.append(other[2])
        notes = [
            f"{symbol} {size} in place of {attempts[0][0][symbol]}, at which it does not run"
            for symbol, size in sizes.items()
            if size != attempts[0][0][symbol]
        ]
        results.sort(key=lambda feeds: sum(array.size for array in feeds.values()))
        return Inputs(tuple(results), tuple(notes))
    finally:
        runner.close()


class _Signature:
    """The inputs of a model, with the role of each open size."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.maker = FeedMaker(model)
        self.shapes = self.maker.shapes
        self._channels = _channels_of(model)
        places: dict[str, tuple[str, int, Dims]] = {}
        for name, dims in zip(self.maker.names, self.shapes, strict=True):
            for axis, dim in enumerate(dims):
                if isinstance(dim, str):
                    places.setdefault(dim, (name, axis, dims))
        self._places = places
        self.roles = {symbol: _role(symbol, *place) for symbol, place in places.items()}

    def symbols_of(self, names: Iterable[str]) -> list[str]:
        """Return the symbols of names, which may be ``INPUT:AXIS``.

        Raises:
            UsageError: the model has no such open size.
        """
        places = {f"{name}:{axis}": symbol for symbol, (name, axis, _) in self._places.items()}
        results: list[str] = []
        for name in names:
            symbol = name if name in self.roles else places.get(name)
            if symbol is None:
                raise UsageError(
                    f"size of {name}: the model has no such open size"
                    + (hint(name, self.roles) or f"; there are {', '.join(self.roles) or 'none'}")
                )
            results.append(symbol)
        return results

    def sizes_of(self, arguments: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Return the sizes to try for each symbol, the likely first; those given alone."""
        chosen = {symbol: tuple(sizes[:1]) for symbol, sizes in arguments.items()}
        cached = _PAST in self.roles.values()
        for symbol, role in self.roles.items():
            if symbol in chosen:
                continue
            sizes = _SIZES.get(role, _SIZES["other"])
            if role == _SEQUENCE and cached:
                sizes = (1,)
            elif role == _CHANNELS and self._channels:
                sizes = (self._channels,)
            elif role == _TOTAL:
                sizes = tuple(size + cached for size in _SIZES[_PAST if cached else _SEQUENCE])
            chosen[symbol] = sizes
        return chosen


def _role(symbol: str, name: str, axis: int, dims: Dims) -> str:
    text = "" if symbol == f"{name}:{axis}" else symbol.lower()
    for role, pattern in _NAMES:
        if text and re.search(pattern, text):
            return role
    name, rank = name.lower(), len(dims)
    if axis == 0:
        return _BATCH
    if re.search("past|cache", name) and rank == 4 and axis == 2:
        return _PAST
    if re.search("audio|wave|input_values", name):
        return "samples"
    if rank == 4:
        return _CHANNELS if axis == 1 else "image"
    return _SEQUENCE if re.search(_TEXTS, name) else "other"


def _channels_of(model: onnx.ModelProto) -> int:
    """Return the channels that the first Conv reads, 0 if there is none."""
    weights = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Conv" and len(node.input) > 1 and node.input[1] in weights:
            groups = next((item.i for item in node.attribute if item.name == "group"), 1)
            return weights[node.input[1]][1] * groups
    return 0


def _attempts(
    signature: _Signature, chosen: Mapping[str, Sequence[int]]
) -> Iterator[tuple[dict[str, int], Ties]]:
    """Yield sizes of all symbols with guesses which are equal, the likely first."""
    totals: Ties = {
        symbol: (past, sequence)
        for symbol, role in signature.roles.items()
        if role == _TOTAL
        for past in signature.roles
        if signature.roles[past] == _PAST
        for sequence in signature.roles
        if signature.roles[sequence] == _SEQUENCE
    }
    plans: list[Ties] = [totals] if totals else []
    plans += itertools.islice(tie_plans(signature.shapes, changes=1), _MOST_TIES)
    levels = range(max(map(len, chosen.values()), default=1))
    for ties in plans:
        for level in levels:
            yield {s: item[min(level, len(item) - 1)] for s, item in chosen.items()}, dict(ties)


def _other_sizes(
    signature: _Signature, arguments: Mapping[str, Sequence[int]], sizes: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Yield the sizes to measure besides the first: those of the user, else a small sequence."""
    if arguments:
        for number in range(1, max(map(len, arguments.values()))):
            yield {
                **sizes,
                **{s: item[min(number, len(item) - 1)] for s, item in arguments.items()},
            }
        return
    small = {
        symbol: _SMALL
        for symbol, role in signature.roles.items()
        if role in (_SEQUENCE, _PAST, _TOTAL) and sizes[symbol] > _SMALL
    }
    if small:
        yield {**sizes, **small}


def _first_that_runs(
    runner: Runner,
    signature: _Signature,
    attempts: Sequence[tuple[dict[str, int], Ties]],
    seed: int,
) -> tuple[tuple[dict[str, int], Ties, Feeds] | None, str]:
    """Return the first sizes at which the model runs, with inputs; else the first failure."""
    failure = ""
    for sizes, ties in attempts:
        try:
            feeds = _with_likely_values(signature.maker.make_sized(sizes, seed, ties))
            runner.run(feeds)
        except (ModelError, UsageError) as error:
            failure = failure or str(error)
            continue
        return (sizes, ties, feeds), failure
    return None, failure


def _with_likely_values(feeds: Feeds) -> Feeds:
    """Return the feeds with masks that are mostly 1, and positions that count up."""
    results = dict(feeds)
    for name, array in feeds.items():
        if not array.ndim or array.dtype.kind not in "biuf":
            continue
        if "mask" in name.lower() and array.ndim == 2:
            mask = np.ones(array.shape, array.dtype)
            length = array.shape[-1]
            mask[:, length - length // 8 :] = 0
            results[name] = mask
        elif "position" in name.lower() and array.dtype.kind in "iu":
            counted = np.arange(array.shape[-1], dtype=array.dtype)
            results[name] = np.broadcast_to(counted, array.shape).copy()
    return results
