"""The passes of one host, in the order in which they run."""

from __future__ import annotations

import heapq
import inspect
import operator
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gehost.errors import VendorError
from gehost.ir.graph import Graph
from gehost.location import SourceLocation
from gehost.passes.base import misspelled_hook
from gehost.passes.context import CustomPassContext
from gehost.passes.registration import check_stage
from gehost.settings import PassOption, check_options
from gehost.stages import CustomPassStage


class RunnablePass(Protocol):
    """What a registered factory makes: one object a compile."""

    def Run(self, graph: Graph, context: CustomPassContext) -> Any: ...


@dataclass(frozen=True)
class PassSpec:
    """A registered pass, whatever style it is written in."""

    name: str
    stage: CustomPassStage
    origin: str
    """``file:line`` of its registration."""
    kind: str
    factory: Callable[[], RunnablePass]
    """Called once a compile."""
    vendor: str = ""
    min_opset: int | None = None
    max_opset: int | None = None
    benefit: int = 1
    labels: frozenset[str] = field(default_factory=frozenset[str])
    trusted: bool = False
    """Changes the graph through rule transactions alone, which prove themselves."""
    from_plugin: bool = False
    """Registered by a plugin's hook, not by a vendor file."""
    default: bool = True
    """Whether the pass runs without a switch; else ``--enable``, or its name in a switch file,
    turns it on.
    """
    options: Sequence[PassOption] = ()
    """What ``--set NAME.option=value`` may set; ``context.options`` has the values."""

    def __post_init__(self) -> None:
        """Take numpy's integers, too."""
        for name in ("min_opset", "max_opset", "benefit"):
            given = getattr(self, name)
            if given is not None:
                try:
                    object.__setattr__(self, name, operator.index(given))
                except TypeError:
                    raise VendorError(
                        f"{self.name}: {name} must be an integer, got {given!r}", where=self.origin
                    ) from None


class PassRegistry:
    """Passes by name, in load order."""

    def __init__(self) -> None:
        self._specs: dict[str, PassSpec] = {}
        self._vendor, self._from_plugin = "", False
        self._suspects: dict[type, str] = {}

    @contextmanager
    def loading(self, vendor: str, *, from_plugin: bool = False) -> Generator[None]:
        """What is added is ``vendor``'s; after an error, nothing was added."""
        before = dict(self._specs)
        self._vendor, self._from_plugin = vendor, from_plugin
        try:
            yield
        except BaseException:
            self._specs = before
            raise
        finally:
            self._vendor, self._from_plugin = "", False

    def add(self, spec: PassSpec) -> None:
        """Register a pass; one that names no vendor is that of the file being loaded.

        Raises:
            VendorError: its name is taken (both files are named), its stage is one at which
                graphs are fixed, or two of its options have one name.
        """
        check_stage(spec.stage, spec.origin, spec.name)
        check_options(spec.options, f"{spec.origin}: {spec.name}")
        known = self._specs.get(spec.name)
        if known is not None:
            raise VendorError(
                f"a pass called {spec.name} is registered already at {known.origin}",
                where=spec.origin,
                hint="rename one",
            )
        self._specs[spec.name] = (
            spec
            if spec.vendor
            else replace(spec, vendor=self._vendor, from_plugin=self._from_plugin)
        )

    def check_hooks(
        self, cls: type, bases: Sequence[type], not_hooks: Collection[str], origin: object
    ) -> None:
        """Refuse a class with a public name that most likely misspells a hook of ``bases``.

        Args:
            cls: the class.
            bases: of the style; what they define are hooks, unless it is in ``not_hooks``.
            not_hooks: names that are not for authors to define.
            origin: of the class.

        Raises:
            VendorError: names the hook that is meant.
        """
        problem = misspelled_hook(cls, bases, not_hooks)
        if problem is not None:
            raise VendorError(problem, where=origin)

    def suspect(self, cls: type, advice: str) -> None:
        """Report a class that is a whole pass and not registered, unless it is a helper.

        Args:
            cls: the class; one with a ``_`` in front of its name, or with subclasses, is a helper.
            advice: what to do.
        """
        self._suspects[cls] = advice

    def unregistered(self) -> list[str]:
        """A line on each class that looks like a pass that its author forgot to register."""
        known = {spec.factory for spec in self}
        names = {spec.name for spec in self}
        return [
            f"{_place(cls)}: {cls.__name__} is not registered; {advice}"
            for cls, advice in self._suspects.items()
            if not cls.__name__.startswith("_")
            and not cls.__subclasses__()
            and cls not in known
            and cls.__name__ not in names
        ]

    def arrange(self, batches: Sequence[Sequence[str]]) -> None:
        """Bring what several styles added of one file into the file's order, by line; the order
        within a style stays.
        """
        specs = [[self._specs.pop(name) for name in batch] for batch in batches]
        for spec in heapq.merge(*specs, key=_line):
            self._specs[spec.name] = spec

    def __iter__(self) -> Iterator[PassSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def get(self, name: str) -> PassSpec | None:
        return self._specs.get(name)

    def names(self) -> list[str]:
        return list(self._specs)

    def at(self, stage: CustomPassStage) -> list[PassSpec]:
        """The passes of a stage in load order."""
        return [spec for spec in self._specs.values() if spec.stage is stage]


def _place(cls: type) -> str:
    """File and line of a class, as far as Python knows them."""
    try:
        path = inspect.getsourcefile(cls) or cls.__module__
        return f"{path}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return cls.__module__


def _line(spec: PassSpec) -> int:
    return SourceLocation.parse(spec.origin).line
