"""Styles (this package's and plugins' templates) for ``gehost new --from``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gehost.errors import VendorError


class Style(NamedTuple):
    """How a pass is written."""

    template: str
    """Jinja2, for nodes of a model; "" if the style writes first passes alone."""
    by_function: bool
    """The pass has the name of its function, which is that of its file; else of a class."""
    first: str
    """A first pass with ``${pass_name}``; "" if the style takes nodes of a model alone."""


class StyleRegistry:
    """Styles by name."""

    def __init__(self) -> None:
        self._styles: dict[str, Style] = {}

    def add(self, name: str, template: str, *, by_function: bool = False, first: str = "") -> None:
        """Add a style.

        Args:
            name: as ``--style`` takes it.
            template: Jinja2 that writes the file of the pass. It gets ``place`` (with ``inputs``,
                ``constants``, ``operands``, ``operators``, ``outputs`` and ``picture``), the names
                ``stem``, ``pass_name``, ``op``, ``stage`` and ``origin``, ``body()`` (the
                declaration of the operator) and ``refuse(text)``. Operators and attributes have
                any names: write them by the filters ``quoted``, ``docstring``, ``call``,
                ``keywords`` and ``entries``. Templates of the plugins that come with gehost are
                examples.
            by_function: the pass is called ``stem``, as its function is.
            first: the file of a first pass, for ``gehost new`` without a model: ``Abs(Neg(x))``
                becomes ``Abs(x)`` for floats, others are refused under the key ``dtype``.
                ``${pass_name}`` is its name.

        Raises:
            VendorError: there is a style of this name.
        """
        if name in self._styles:
            raise VendorError(f"there is a style {name} already; choose another name")
        self._styles[name] = Style(template, by_function, first)

    def get(self, name: str) -> Style | None:
        return self._styles.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._styles)
