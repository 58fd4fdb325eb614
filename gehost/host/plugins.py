"""A host's plugins: its own, installed ones by name, then vendor modules."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

import pluggy

from gehost.errors import GehostError, PluginError, VendorError, deepest_line, described
from gehost.host import hookspecs
from gehost.location import SourceLocation
from gehost.spelling import is_misspelled, nearest_functions

GROUP = "gehost"

_SIGNS_OF_HOOKS = frozenset({*hookspecs.HOOKS, "__getattr__", "__dir__"})


class Hook:
    """One plugin's implementation of a hook."""

    __slots__ = ("implementation", "name")

    def __init__(self, name: str, implementation: pluggy.HookImpl) -> None:
        self.name = name
        self.implementation = implementation

    @property
    def plugin(self) -> str:
        return self.implementation.plugin_name

    @property
    def own(self) -> bool:
        """Whether it is gehost's own, which does not change the process."""
        module: str = getattr(self.implementation.function, "__module__", None) or ""
        return module.startswith("gehost.")

    def __call__(self, **arguments: Any) -> Any:
        """Call it with the arguments that it declares; exceptions pass through."""
        return self.implementation.function(
            *[arguments[name] for name in self.implementation.argnames]
        )

    @property
    def subject(self) -> str:
        return f"plugin {self.plugin}"

    @property
    def origin(self) -> SourceLocation | None:
        """The line of its function, None for a callable without one."""
        code = getattr(self.implementation.function, "__code__", None)
        return None if code is None else SourceLocation(code.co_filename, code.co_firstlineno)

    def failure(self, error: BaseException) -> PluginError:
        """Return the error for a call's exception, at the line that raised it."""
        origin = self.origin
        where = deepest_line(error, origin.path) if origin is not None else None
        return PluginError(
            f"{self.name}: {described(error, context=where)}", where=where, subject=self.subject
        )

    def edited(self) -> PluginError:
        """Return the error for an edit of the graph by a hook that may only read it."""
        return PluginError(
            f"{self.name} edited the graph",
            where=self.origin,
            subject=self.subject,
            hint="this hook is read-only",
        )

    @contextmanager
    def blamed(self) -> Generator[None]:
        """Turn foreign exceptions into a ``PluginError`` that names the plugin.

        Exceptions of gehost pass unchanged.
        """
        try:
            yield
        except (GehostError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.failure(error) from error


class _Manager(pluggy.PluginManager):
    """A plugin manager that skips unmarked members; marked functions are hooks.

    pluggy inspects every member, which is slow and may raise.
    """

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        if isinstance(plugin, ModuleType) and not _is_marked(vars(plugin).get(name)):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def _is_marked(result: Any) -> bool:
    return inspect.isroutine(result) and hasattr(result, f"{GROUP}_impl")


def may_have_hooks(module: ModuleType) -> bool:
    """Whether a module may have hooks.

    It has a marked one, a name close to one, or its own ``__getattr__``.
    """
    return any(
        name in _SIGNS_OF_HOOKS or _is_marked(var) for name, var in vars(module).items()
    ) or any(_is_like_hook(name) for name, _ in _functions_of(module))


class Plugins:
    """A list of plugins, their hooks called one by one in order."""

    def __init__(self, plugins: Sequence[tuple[str, Any]]) -> None:
        """Register plugins by name.

        Raises:
            VendorError: two have the same name; a hook does not exist, asks for an unknown
                argument, wraps other hooks, or is not marked.
        """
        self._manager = _Manager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        for name, plugin in reversed(plugins):  # pluggy calls the last registered first
            self._register(name, plugin)

    def _register(self, name: str, plugin: Any) -> None:
        manager = self._manager
        path: str | None = (
            getattr(plugin, "__file__", None) if isinstance(plugin, ModuleType) else None
        )
        subject = f"plugin {name}"
        if manager.has_plugin(name) or manager.is_registered(plugin):
            raise VendorError(
                "two plugins have this name, or one was given twice",
                where=path,
                subject=subject,
                hint="remove one",
            )
        try:
            manager.register(plugin, name)
            manager.check_pending()
        except pluggy.PluginValidationError as error:
            raise VendorError(
                f"{' '.join(str(error).split())}{_did_you_mean(plugin)}; gehost/host/hookspecs.py "
                "lists the hooks",
                where=path,
                subject=subject,
            ) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pluggy inspects every member of the plugin
            raise VendorError(described(error), where=path, subject=subject) from error
        for caller in manager.get_hookcallers(plugin) or ():
            if any(
                hookimpl.wrapper or hookimpl.hookwrapper
                for hookimpl in caller.get_hookimpls()
                if hookimpl.plugin is plugin
            ):
                raise VendorError(
                    f"{caller.name} is a hook wrapper, which gehost does not support; write a "
                    "plain hook",
                    where=path,
                    subject=subject,
                )
        for hook in hookspecs.HOOKS:
            if (
                inspect.isroutine(getattr(plugin, hook, None))
                and manager.parse_hookimpl_opts(plugin, hook) is None
            ):
                raise VendorError(
                    f"{hook} is not marked",
                    where=path,
                    subject=subject,
                    hint="put @gehost.hookimpl above it",
                )

        for argument, hookimpl in _functions_of(plugin):
            if _is_like_hook(argument):
                raise VendorError(
                    f"there is no hook {argument}",
                    where=SourceLocation(
                        hookimpl.__code__.co_filename, hookimpl.__code__.co_firstlineno
                    ),
                    subject=subject,
                    hint=f"did you mean {_hooks_meant(argument)[0]}?",
                )

    def __bool__(self) -> bool:
        """Whether any plugin implements a hook."""
        return any(self._manager.get_hookcallers(plugin) for plugin in self._manager.get_plugins())

    def each(self, hook: str) -> Iterator[Hook]:
        """Yield the implementations of a hook in the order of their plugins."""
        for implementation in reversed(getattr(self._manager.hook, hook).get_hookimpls()):
            yield Hook(hook, implementation)

    def call(self, hook: str, **arguments: Any) -> list[Any]:
        """Call every implementation; return the results that are not None.

        Raises:
            GehostError: raised by a plugin; other exceptions become a ``PluginError`` that names
                the plugin.
        """
        answers: list[Any] = []
        for implementation in self.each(hook):
            with implementation.blamed():
                answers.append(implementation(**arguments))
        return [answer for answer in answers if answer is not None]


def _functions_of(plugin: Any) -> list[tuple[str, Any]]:
    """Return the functions that a plugin defines itself, by name."""
    if isinstance(plugin, ModuleType):
        return [
            (name, var)
            for name, var in vars(plugin).items()
            if inspect.isfunction(var) and var.__module__ == plugin.__name__
        ]
    return [
        (name, var)
        for base in type(plugin).__mro__
        for name, var in vars(base).items()
        if inspect.isfunction(var)
    ]


def _hooks_meant(name: str) -> list[str]:
    """Return the hooks that a misspelled name most likely means, best first."""
    full = f"{GROUP}_{name}"
    return [full] if full in hookspecs.HOOKS else nearest_functions(name, hookspecs.HOOKS)


def _is_like_hook(name: str) -> bool:
    """Whether a name misspells a hook; ``register_ops``, without the prefix, does not."""
    return (
        name not in hookspecs.HOOKS
        and is_misspelled(f"{name.partition('_')[0]}_", GROUP)
        and bool(_hooks_meant(name))
    )


def _did_you_mean(plugin: Any) -> str:
    """Return "did you mean …" for a plugin's misspelled hooks, or ""."""
    near = {
        intended: None
        for name, result in _functions_of(plugin)
        if _is_marked(result) and name not in hookspecs.HOOKS
        for intended in _hooks_meant(name)[:1]
    }
    return f"; did you mean {' and '.join(near)}?" if near else ""


_REINSTALL = (
    "its files have moved or are gone; install the package again, in a clone by "
    "`rm .venv/installed; make .venv/installed`"
)


def installed_plugins() -> list[tuple[str, Any]]:
    """Return the plugins of the entry point group ``gehost``, by name.

    Raises:
        VendorError: a plugin cannot be imported.
    """
    results: list[tuple[str, Any]] = []
    for entry in _entries(tuple((place, _mtime(place)) for place in sys.path)):
        try:
            results.append((entry.name, entry.load()))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            moved = isinstance(error, ModuleNotFoundError) and error.name == entry.module
            raise VendorError(
                f"plugin {entry.name} ({entry.value}) cannot be loaded: {described(error)}",
                hint=_REINSTALL if moved else "",
            ) from error
    return results


@lru_cache(maxsize=4)
def _entries(places: tuple[tuple[str, int], ...]) -> list[EntryPoint]:  # noqa: ARG001 - the key
    """Return the entry points of the group by name, each once.

    Finding them reads a file of each installed distribution. ``places`` is ``sys.path`` with the
    times of change, so that a plugin installed since is found.
    """
    results = {(entry.name, entry.value): entry for entry in entry_points(group=GROUP)}
    return [entry for _, entry in sorted(results.items())]


def _mtime(place: str) -> int:
    try:
        return os.stat(place or ".").st_mtime_ns
    except OSError:  # no such directory
        return 0
