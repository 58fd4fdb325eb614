"""The passes of one host, in the order in which they run."""

from __future__ import annotations

import heapq
import inspect
import operator
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from gehost.errors import VendorError
from gehost.ir.graph import Graph
from gehost.location import SourceLocation
from gehost.passes.base import method_problem
from gehost.passes.context import CustomPassContext
from gehost.passes.registration import check_stage
from gehost.settings import PassOption, check_options
from gehost.stages import CustomPassStage


class Unregistered(NamedTuple):
    """A class that looks like a pass and is not registered."""

    name: str
    origin: str
    """``file:line``, or the module's name."""
    advice: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.name} is not registered; {self.advice}"


class RunnablePass(Protocol):
    """A pass object, created by the registered factory."""

    def Run(self, graph: Graph, context: CustomPassContext) -> Any: ...


@dataclass(frozen=True)
class PassSpec:
    """A registered pass of any style."""

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
    """Edits the graph only through rules, whose rewrites are checked one by one."""
    from_plugin: bool = False
    """Registered by a plugin's hook, not by a vendor file."""
    default: bool = True
    """Whether the pass runs without a switch; if not, ``--enable`` or its name in a switch file
    turns it on.
    """
    options: Sequence[PassOption] = ()
    """Settable with ``--set NAME.option=value``; ``context.options`` has the values."""
    any_option: bool = False
    """Whether the pass takes options of any name, as texts, without a declaration."""
    method_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """The author's names of ``Run``, ``Patterns``, ``MeetRequirements`` and ``Replacement``, for
    messages, where this style has others.
    """
    author: type | None = None
    """The class that the author wrote, where ``factory`` returns an object of another one."""

    def __post_init__(self) -> None:
        """Convert numpy's integers to Python's."""
        for name in ("min_opset", "max_opset", "benefit"):
            argument = getattr(self, name)
            if argument is not None:
                try:
                    object.__setattr__(self, name, operator.index(argument))
                except TypeError:
                    raise VendorError(
                        f"{name} must be an integer, got {argument!r}",
                        where=self.origin,
                        subject=self.name,
                    ) from None


class PassRegistry:
    """Passes by name, in load order."""

    def __init__(self) -> None:
        self._specs: dict[str, PassSpec] = {}
        self._vendor, self._from_plugin = "", False
        self._suspects: dict[type, str] = {}

    def copy(self) -> PassRegistry:
        """Return a registry of its own with the same entries."""
        other = PassRegistry()
        other._specs, other._suspects = dict(self._specs), dict(self._suspects)
        return other

    @contextmanager
    def loading(self, vendor: str, *, from_plugin: bool = False) -> Generator[None]:
        """Register the block's passes as ``vendor``'s, none after an error."""
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
        """Register a pass.

        Its vendor is that of the file being loaded unless it names one.

        Raises:
            VendorError: its name is in use (the message has both files), its graph is fixed at
                this stage, or two of its options have the same name.
        """
        check_stage(spec.stage, spec.origin, spec.name)
        check_options(spec.options, spec.name, spec.origin)
        other = self._specs.get(spec.name)
        if other is not None:
            raise VendorError(
                f"a pass called {spec.name} is registered already at {other.origin}",
                where=spec.origin,
                hint="rename one",
            )
        self._specs[spec.name] = (
            spec
            if spec.vendor
            else replace(spec, vendor=self._vendor, from_plugin=self._from_plugin)
        )

    def check_method_names(
        self, cls: type, bases: Sequence[type], reserved: Collection[str], origin: object
    ) -> None:
        """Refuse a class with async methods, or a public name close to ``bases``' methods.

        Args:
            cls: the class.
            bases: of the style; their attributes are the methods to define, except ``reserved``.
            reserved: attributes that authors must not define.
            origin: source location of the class.

        Raises:
            VendorError: names the async method, or the method that was probably meant.
        """
        problem = method_problem(cls, bases, reserved)
        if problem is not None:
            raise VendorError(problem, where=origin)

    def suspect(self, cls: type, advice: str) -> None:
        """Note a complete pass class, not a helper, that is not registered.

        Args:
            cls: the class; a ``_`` in front of its name, or subclasses, make it a helper.
            advice: what to do.
        """
        self._suspects[cls] = advice

    def unregistered(self) -> list[Unregistered]:
        """Return the classes that are probably meant to be registered."""
        entries = {spec.factory for spec in self}
        names = {spec.name for spec in self}
        return [
            Unregistered(cls.__name__, _place(cls), advice)
            for cls, advice in self._suspects.items()
            if not cls.__name__.startswith("_")
            and not cls.__subclasses__()
            and cls not in entries
            and cls.__name__ not in names
        ]

    def arrange(self, batches: Sequence[Sequence[str]]) -> None:
        """Put the passes of one file in the order of their lines.

        They were collected style by style.

        The order within a style stays.
        """
        specs = [[self._specs.pop(name) for name in batch] for batch in batches]
        for spec in heapq.merge(*specs, key=lambda spec: SourceLocation.parse(spec.origin).line):
            self._specs[spec.name] = spec

    def __iter__(self) -> Iterator[PassSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)

    def get(self, name: str) -> PassSpec | None:
        return self._specs.get(name)

    def names(self) -> list[str]:
        return list(self._specs)

    def keep_only(self, spec: PassSpec) -> None:
        """Leave one pass, and that as it is given."""
        self._specs = {spec.name: spec}

    def at(self, stage: CustomPassStage) -> list[PassSpec]:
        """Return the passes of a stage in load order."""
        return [spec for spec in self._specs.values() if spec.stage is stage]


def _place(cls: type) -> str:
    """Return a class's file and line, its module's name if unknown."""
    try:
        path = inspect.getsourcefile(cls) or cls.__module__
        return f"{path}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return cls.__module__
