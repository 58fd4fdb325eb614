"""The passes of one host, in the order in which they run."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gehost.errors import VendorError
from gehost.ir.graph import Graph
from gehost.passes.context import CustomPassContext
from gehost.passes.mark import check_stage
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


class PassRegistry:
    """Passes by name, in load order."""

    def __init__(self) -> None:
        self._specs: dict[str, PassSpec] = {}
        self._vendor, self._from_plugin = "", False

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
                f"{spec.origin}: a pass called {spec.name} is registered already at "
                f"{known.origin}; rename one"
            )
        self._specs[spec.name] = (
            spec
            if spec.vendor
            else replace(spec, vendor=self._vendor, from_plugin=self._from_plugin)
        )

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


def _line(spec: PassSpec) -> int:
    line = spec.origin.rpartition(":")[2]
    return int(line) if line.isdigit() else 0
