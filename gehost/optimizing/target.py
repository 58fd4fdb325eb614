"""What a file is optimized for: a runtime, what it loads, and how it runs there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from gehost.errors import GehostError, UsageError, VendorError, described, one_line
from gehost.optimizing.facts import foreign_operators
from gehost.spelling import hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]

GROUP = "gehost.targets"
_AROUND = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|Fatal error: "
    r"|Exception from \S+:\d+: |Check '.*?' failed at \S+: |FrontEnd API failed with .*Summary: -- "
)
"""What runtimes write around the reason of an error: their own files, and the model's."""


def reason_of(error: Exception) -> str:
    """Return why a runtime refuses a model, in one line."""
    return _AROUND.sub("", one_line(str(error)))


def original_wanted(foreign: Sequence[str], target: str, most: int = 4) -> str:
    """Return operators of the input from another target, and what to do."""
    more = f" and {len(foreign) - most} more" if len(foreign) > most else ""
    return (
        f"{', '.join(foreign[:most])}{more}; where gehost wrote the input, optimize its "
        f"original model --for {target}"
    )


def name_model(error: GehostError, place: str, name: str) -> None:
    """Name the model in an error in place of files that are there for the time of a run."""
    if str(error.where).startswith(place):
        error.where = name or None
    file = re.compile(re.escape(place) + r"[\w. -]*?\.onnx")
    error.args = tuple(file.sub(lambda _: name or "the model", str(part)) for part in error.args)


@dataclass(frozen=True)
class Switch:
    """A setting of a session, which cannot travel in the file."""

    name: str
    python: str
    """The lines that create the session; ``{path}`` stands for the file."""
    options: Callable[[], Any]
    """Creates the session's options."""


class Target:
    """A runtime to optimize for; packages name theirs in the entry point group ``gehost.targets``.

    An entry point is a function without parameters that returns a target.
    """

    name: str = ""
    vendors: tuple[str, ...] = ()
    """Vendors whose passes run, in an order in which none takes another's operators."""
    passes: tuple[str, ...] = ()
    """Passes that are off by default and that this target has kernels for."""
    kernels: str = ""
    """``HostOptions.target``: the provider whose kernels passes may use."""
    provider: str = "cpu"
    """``HostOptions.provider``: where numbers are compared besides the plain run."""
    domains: tuple[str, ...] = ()
    """Domains whose operators it has kernels for: functions of these are not inlined."""
    standard: bool = False
    """Whether the file has ONNX's own operators alone: no functions, no other domains."""
    operators: tuple[str, ...] = ()
    """Operators of other domains that it loads all the same, as ``domain::Type``."""

    next: str = ""
    """What a user may try next, for the last line."""

    def missing(self) -> str:
        """Return how to install what is missing, "" if the target can run."""
        raise NotImplementedError

    def slower_here(self) -> tuple[str, ...]:
        """Return those of ``passes`` that cost time with the release that is installed."""
        return ()

    def title(self) -> str:
        """Return runtime and version."""
        raise NotImplementedError

    def load(self, path: str, libraries: tuple[str, ...] = ()) -> None:
        """Load a file as a user does, once; raises what the runtime raises."""
        raise NotImplementedError

    def runner(
        self,
        path: str,
        feeds: Feeds,
        *,
        threads: int = 1,
        libraries: tuple[str, ...] = (),
    ) -> Callable[[], Callable[[], object]]:
        """Return a function that creates a session; it returns one that runs it once."""
        raise NotImplementedError

    def clock(self, threads: int) -> Callable[[], float] | None:
        """Return the clock of a run in seconds; None: CPU time of the thread, or wall time."""
        del threads
        return None

    def loaded(self, path: str) -> Callable[[Feeds], dict[str, NDArray[Any]]] | None:
        """Load a file there; None where the comparison of numbers runs it itself."""
        del path
        return None

    def with_library(self, library: str) -> Switch | None:
        """Return how a session loads a library of generated kernels; None: it takes none."""
        del library


def targets() -> dict[str, Target]:
    """Return all targets of installed packages by name.

    Raises:
        VendorError: an entry point cannot be loaded.
    """
    results: dict[str, Target] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            target: Any = entry.load()()
        except Exception as error:
            raise VendorError(
                f"the target {entry.name} ({entry.value}) cannot be loaded: {described(error)}"
            ) from error
        results[entry.name] = target
    return results


def find_target(name: str = "") -> Target:
    """Return a target by name; "": the first that is installed here, of those that name an order.

    Raises:
        UsageError: there is no such target, or its runtime is not installed.
    """
    entry = targets()
    if not name:
        order = [item for item in ("cuda", "cpu", "any") if item in entry]
        return next(entry[item] for item in order if not entry[item].missing() or item == "any")
    if name not in entry:
        raise UsageError(
            f"--for {name}: no such target"
            + (hint(name, entry) or f"; there are {', '.join(entry)}")
        )
    missing = entry[name].missing()
    if missing:
        raise UsageError(f"--for {name}: {missing}")
    return entry[name]


def other_model(path: str, target: Target) -> str:
    """Return what to do with a model that a target does not load."""
    foreign = foreign_operators(path) if target.standard else []
    if foreign:
        return f"it has {original_wanted(foreign, target.name)}"
    return "a newer one may load it; gehost compile runs no model"
