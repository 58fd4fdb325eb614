"""Write names.md: each public name with its parameters and the first line of its docstring.

Run ``python docs/reference/make_names.py`` after a change of a public name; a test compares.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import gehost

PAGE = Path(__file__).parent / "names.md"
MODULES = (
    "gehost",
    "gehost.es",
    "gehost.ops",
    "gehost.kernels",
    "gehost.shapes",
    "gehost.sizes",
    "gehost.testing",
    "gehost_drr",
    "gehost_register_pass",
)
INTRODUCTION = """# Names

Every public name with its parameters and the first line of its docstring. More of it:

- `python -c "help('gehost.Pattern')"` prints the whole docstring;
- `python -c "import inspect; from gehost import es; print(inspect.signature(es.Conv))"` prints
  an operator's inputs and attributes;
- `gehost COMMAND --help` prints the options of a command;
- `make docs` builds all of these as a site in `build/docs`.
"""


def text() -> str:
    """Return the page."""
    parts = [INTRODUCTION]
    for name in MODULES:
        module = _module(name)
        parts += [f"\n## {name}\n\n{_first_line(module)}\n\n", *_lines_of_module(module)]
    return "".join(parts)


def _module(name: str) -> ModuleType:
    package, _, attribute = name.partition(".")
    module = importlib.import_module(package)
    if attribute == "testing":  # no attribute of gehost
        return importlib.import_module(name)
    return getattr(module, attribute) if attribute else module


def _lines_of_module(module: ModuleType) -> Iterator[str]:
    names = getattr(module, "__all__", None) or [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == module.__name__
    ]
    for name in sorted(names, key=str.lower):
        thing = getattr(module, name)
        if isinstance(thing, ModuleType):
            continue
        if inspect.isclass(thing) and thing.__name__ != name:
            yield f"- `{name}`: another name of `{thing.__name__}`\n"
            continue
        yield f"- `{name}{_parameters(thing)}`{_first_line(thing, ': ')}\n"
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            plain = not issubclass(thing, enum.Enum)
            if plain and (fields := _fields(thing)):
                yield f"    - {', '.join(f'`.{field}`' for field in fields)}\n"
            for member, value in _members(thing):
                if not plain and not isinstance(value, property | cached_property):
                    continue
                if not member.startswith("_") and (line := _member(member, value)):
                    yield f"    - {line}\n"


def _owners(thing: type) -> list[type]:
    """Return a class after those of its bases that are not public themselves."""
    return [
        owner
        for owner in reversed(thing.__mro__)
        if owner is thing
        or (owner.__module__.startswith("gehost.") and not hasattr(gehost, owner.__name__))
    ]


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    for owner in _owners(thing):
        yield from vars(owner).items()


def _fields(cls: type) -> list[str]:
    """The public data attributes of a class."""
    own = {
        name
        for owner in _owners(cls)
        for name in (*inspect.get_annotations(owner), *vars(owner).get("__slots__", ()))
    }
    return sorted(name for name in own if not name.startswith("_"))


def _member(name: str, value: Any) -> str:
    if isinstance(value, property | cached_property):
        getter = value.fget if isinstance(value, property) else value.func
        return f"`.{name}`{_first_line(getter, ': ')}"
    value = getattr(value, "__func__", value)  # of a class method or static method
    if not isinstance(value, FunctionType):
        return ""
    return f"`.{name}{_parameters(value, method=True)}`{_first_line(value, ': ')}"


def _parameters(thing: Any, *, method: bool = False) -> str:
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, enum.Enum)):
        return ""
    if inspect.isclass(thing):
        if "__init__" not in vars(thing):
            return "()"
        thing, method = thing.__init__, True
    plain = [
        parameter.replace(annotation=parameter.empty, default=_Default.of(parameter.default))
        for parameter in list(inspect.signature(thing).parameters.values())[1 if method else 0 :]
    ]
    return str(inspect.Signature(plain))


class _Default:
    """Prints a default value: short, and equal in all versions of Python."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    @classmethod
    def of(cls, value: Any) -> Any:
        if value in (inspect.Parameter.empty, None) or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, enum.Enum):
            return cls(value.name)
        return cls("()" if value == () else "…")


def _first_line(thing: Any, before: str = "") -> str:
    line = (inspect.getdoc(thing) or "").partition("\n")[0].replace("``", "`")
    return before + line if line else ""


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
