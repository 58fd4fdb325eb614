"""Search for inputs on which a model runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from gehost.errors import ModelError
from gehost.verify.difference import finite
from gehost.verify.feeds import FeedMaker, InputTooLargeError, is_float, with_special_values
from gehost.verify.sizes import UNITS, Dims, Ties, tie_plans

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Feeds = Mapping[str, Array]
    Outputs = dict[str, Array]

_MAX_TRIES = 250
_MOST_ELEMENTS = 1 << 22
"""Largest number of elements of all inputs together when sizes beyond the small ones are tried."""


class Runs(Protocol):
    """A model that runs."""

    @property
    def name(self) -> str:
        """For messages."""
        ...

    def proto(self) -> onnx.ModelProto:
        """The model."""
        ...

    def run(self, feeds: Feeds) -> Outputs:
        """Compute the outputs; raises ``ModelError`` where the model fails."""
        ...


def find_feeds(model: Runs, seed: int = 0) -> list[tuple[Feeds, Outputs]]:
    """Generate up to three inputs of different sizes, with the model's outputs.

    A signature may hide that two dimensions must be equal, or how large one must be. So up to 250
    combinations of sizes and equalities are tried, until the model runs with a finite result.

    Raises:
        ModelError: The model runs on none of them.
        UsageError: Inputs cannot be generated for the model.
    """
    maker = FeedMaker(model.proto())
    blank: tuple[Ties, int, Feeds, Outputs] | None = None
    first_error = None
    for ties, variant in itertools.islice(_attempts(maker.shapes), _MAX_TRIES):
        if variant >= 3 and maker.elements(variant, ties) > _MOST_ELEMENTS:
            continue
        feeds = maker.make(seed, variant, ties)
        try:
            outputs = model.run(feeds)
        except ModelError as error:
            first_error = first_error or error
            continue
        result = ties, variant, feeds, outputs
        if not outputs or any(finite(array).any() for array in outputs.values()):
            break
        blank = blank or result
    else:
        if blank is None:
            raise ModelError(
                f"{first_error} (on the inputs that were generated for it; give --feeds)"
            ) from first_error
        result = blank
    ties, variant, feeds, outputs = result
    runs = {variant: (feeds, outputs)}
    start = variant - variant % 3
    for other in range(start, start + 3 if maker.shapes else start):
        if other == variant or (other >= 3 and maker.elements(other, ties) > _MOST_ELEMENTS):
            continue
        try:
            feeds = maker.make(seed, other, ties)
            runs[other] = feeds, model.run(feeds)
        # too small or large, or a value that the model refuses: use the others
        except (ModelError, InputTooLargeError):
            continue
    return [runs[number] for number in sorted(runs)]


def special_runs(model: Runs, feeds: Feeds, seed: int) -> list[tuple[Feeds, Outputs]]:
    """Run the model on inputs with special values.

    Those on which it fails are left out; a model without a float input has none.

    Raises:
        ModelError: The model runs on none of them.
    """
    if not any(is_float(array) for array in feeds.values()):
        return []
    runs: list[tuple[Feeds, Outputs]] = []
    failure = None
    for special in with_special_values(feeds, seed):
        try:
            runs.append((special, model.run(special)))
        except ModelError as error:
            failure = error
    if not runs and failure is not None:
        raise ModelError(f"{failure} (on inputs with special values)") from failure
    return runs


def _attempts(shapes: Sequence[Dims]) -> Iterator[tuple[Ties, int]]:
    """Combine ties with sizes, the likely first.

    Without symbolic dimensions only values vary.
    """
    likely = list(tie_plans(shapes, changes=1))
    yield from ((ties, 3 * scale) for scale in range(len(UNITS)) for ties in likely)
    yield from (({}, variant) for variant in (1, 2))
    yield from ((ties, 0) for ties in tie_plans(shapes, changes=2) if ties not in likely)
