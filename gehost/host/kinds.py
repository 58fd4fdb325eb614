"""Kinds of fusion, measured as one, whose passes pay only together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gehost.errors import VendorError


class KindRegistry:
    """Kinds by name, in the order in which they are measured.

    Args:
        passes: the names of the registered passes; one that is in no group is a kind of its own.
    """

    def __init__(self, passes: Iterable[str]) -> None:
        self._passes = dict.fromkeys(passes, "")
        self._kinds: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, passes: Sequence[str]) -> None:
        """Measure some passes as one kind.

        Args:
            name: of the kind.
            passes: their names; a pass can be in one kind only.

        Raises:
            VendorError: the name is taken, a pass is not registered, or is in another kind.
        """
        if name in self._kinds or (name in self._passes and list(passes) != [name]):
            raise VendorError(f"kind {name}: a kind or a pass has this name; choose another one")
        if isinstance(passes, str) or not passes:
            raise VendorError(f"kind {name}: wanted a list of passes, got {passes!r}")
        for one in passes:
            if one not in self._passes:
                raise VendorError(f"kind {name}: there is no pass {one}")
            if self._passes[one]:
                raise VendorError(f"kind {name}: pass {one} is in kind {self._passes[one]} already")
            self._passes[one] = name
        self._kinds[name] = tuple(passes)

    @property
    def grouped(self) -> set[str]:
        """The passes in named kinds, measured even if off by default."""
        return {one for one, kind in self._passes.items() if kind}

    def __iter__(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield kinds with their passes; then each pass that is in none."""
        yield from self._kinds.items()
        yield from ((name, (name,)) for name, kind in self._passes.items() if not kind)
