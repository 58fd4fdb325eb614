"""Options that passes and importers declare, and settings that give values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from gehost.errors import UsageError, VendorError
from gehost.spelling import hint, nearest

NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})

_SWITCH = MappingProxyType(
    {
        **dict.fromkeys(("true", "on", "yes", "1"), True),
        **dict.fromkeys(("false", "off", "no", "0"), False),
    }
)
_WANTED = MappingProxyType(
    {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
)


@dataclass(frozen=True)
class PassOption:
    """An option of a pass or an importer, set by ``--set OWNER.name=value``.

    Attributes:
        name: a Python identifier.
        type: ``str``, ``int``, ``float`` or ``bool``; values are converted to it.
        default: the value if nothing sets the option; of ``type``, or None.
        help: one line for ``gehost passes -v``.

    Raises:
        VendorError: the name, the type or the default is not valid.
    """

    name: str
    type: type[Any]
    default: Any
    help: str = ""
    assumption: bool = False
    """Whether it is a property of the model that ``--assume name`` takes for granted in all passes
    that declare it, with dashes for underscores; ``type`` is bool, ``default`` False.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise VendorError(f"option {self.name!r}: its name must be a Python identifier")
        if self.type not in _WANTED:
            raise VendorError(
                f"option {self.name}: its type must be str, int, float or bool, got {self.type!r}"
            )
        if self.assumption and (self.type is not bool or self.default is not False):
            raise VendorError(f"option {self.name}: an assumption is a bool, False by default")
        if self.default is not None:
            try:
                object.__setattr__(self, "default", self.convert(self.default))
            except ValueError as error:
                raise VendorError(
                    f"option {self.name}: its default is {self.default!r}, {error}"
                ) from error

    def convert(self, argument: Any) -> Any:
        """Convert a value, or its text, to ``type``.

        Raises:
            ValueError: the conversion fails; the message names the wanted type.
        """
        if isinstance(argument, np.generic):
            argument = cast("np.generic[Any]", argument).item()
        try:
            if isinstance(argument, str):
                if self.type is bool:
                    return _SWITCH[argument.strip().lower()]
                converted = self.type(argument)
                if self.type is not float or math.isfinite(converted):
                    return converted
            elif type(argument) is self.type:
                return argument
            elif self.type is float and type(argument) is int:
                return float(argument)
        except (KeyError, ValueError, OverflowError):
            pass
        raise ValueError(f"wanted {_WANTED[self.type]}")


def check_options(options: Sequence[PassOption], owner: str, where: object | None = None) -> None:
    """Check the declared options of a pass or an importer.

    Raises:
        VendorError: an entry is not a ``PassOption``, or two have the same name; about ``owner``
            at ``where``.
    """
    names: set[str] = set()
    for option in options:
        if not isinstance(option, PassOption):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise VendorError(
                f"options must be PassOption objects, got {option!r}", where=where, subject=owner
            )
        if option.name in names:
            raise VendorError(
                f"two options are called {option.name}",
                where=where,
                subject=owner,
                hint="rename one",
            )
        names.add(option.name)


GE_PREFIX = "ge."
"""Start of the names of GE's own options, such as ``ge.socVersion``; any pass may read them."""


def check_settings(
    settings: Mapping[str, Any],
    declared: Mapping[str, Sequence[PassOption]],
    owners: str = "pass or importer",
    undeclared: tuple[str, ...] = (),
) -> None:
    """Check that every setting names an option and has its type.

    Args:
        settings: values by ``OWNER.option``.
        declared: the options of each owner.
        owners: word for the owners in messages.
        undeclared: starts of names that are options without a declaration.

    Raises:
        UsageError: a setting does not; the message has the nearest names.
    """
    for key in settings:
        if undeclared and key.startswith(undeclared) and key not in undeclared:
            continue
        owner, dot, name = key.rpartition(".")
        if not dot:
            raise UsageError(f"setting {key}: wanted NAME.option=value, the name of a {owners}")
        if owner not in declared:
            near = nearest(owner, declared, 3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`gehost passes -v` lists them"
            raise UsageError(f"setting {key}: there is no {owners} {owner}; {hint}")
        names = [option.name for option in declared[owner]]
        if name not in names:
            near = nearest(name, names, 3)
            listing = f"its options are {', '.join(names)}" if names else "it has none"
            hint = f"did you mean {' or '.join(near)}?" if near else listing
            raise UsageError(f"setting {key}: {owner} has no option {name}; {hint}")
        if any(option.assumption for option in declared[owner] if option.name == name):
            raise UsageError(
                f"setting {key}: an assumption, for all passes: --assume {assumed_name(name)}"
            )
        option_values(owner, declared[owner], settings)


def assumed_name(option: str) -> str:
    """Return the name of an assumption on the command line: ``no-empty-rows``."""
    return option.replace("_", "-")


def check_assumptions(assumed: Sequence[str], options: Sequence[PassOption]) -> None:
    """Check that an option of some pass declares each assumption.

    Raises:
        UsageError: none does; the message has the nearest names, or all.
    """
    entries = {assumed_name(option.name) for option in options if option.assumption}
    for name in assumed:
        if name not in entries:
            listing = f"; known: {', '.join(sorted(entries))}" if entries else "; no pass has one"
            raise UsageError(
                f"assume {name}: no pass has this assumption{hint(name, entries) or listing}"
            )


def option_values(
    owner: str,
    options: Sequence[PassOption],
    settings: Mapping[str, Any],
    assumed: Sequence[str] = (),
    *,
    any_name: bool = False,
) -> Mapping[str, Any]:
    """Return the options of one pass or importer by name.

    An option has its set value or its default; an assumption is true if it is in ``assumed``.
    With ``any_name``, all settings of the owner are its options, as texts.

    Raises:
        UsageError: a value is not of the option's type.
    """
    values: dict[str, Any] = {}
    if any_name:
        start = f"{owner}."
        values = {
            key.removeprefix(start): str(value)
            for key, value in settings.items()
            if key.startswith(start)
        }
    for option in options:
        if option.assumption:
            values[option.name] = assumed_name(option.name) in assumed
            continue
        key = f"{owner}.{option.name}"
        try:
            values[option.name] = (
                option.convert(settings[key]) if key in settings else option.default
            )
        except ValueError as error:
            raise UsageError(f"setting {key}={settings[key]!r}: {error}") from error
    return MappingProxyType(values) if values else NO_OPTIONS
