"""Readers of input formats, by file suffix; ONNX needs none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import onnx

from gehost.errors import (
    GehostError,
    ModelError,
    OutputError,
    PluginError,
    VendorError,
    deepest_line,
    described,
)
from gehost.ir.model import Model
from gehost.products import reader_of
from gehost.settings import (
    NO_OPTIONS,
    PassOption,
    check_options,
    option_values,
)

Importer: TypeAlias = Callable[[str, Mapping[str, Any]], onnx.ModelProto]
"""Takes a path and the values of the importer's options by name; returns the model."""


class _Entry(NamedTuple):
    importer: Importer
    name: str
    options: Sequence[PassOption]
    command: str


class ImporterRegistry:
    """Importers of one host."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def add(
        self,
        suffix: str,
        importer: Importer,
        *,
        options: Sequence[PassOption] = (),
        name: str = "",
        command: str = "",
    ) -> None:
        """Read files that end in ``suffix`` (with its dot) with ``importer``.

        Args:
            suffix: as in ``.hlo``; if several fit, the longest wins.
            importer: called with the path and the values of ``options``; returns a ModelProto.
            options: settable with ``--set NAME.option=value``.
            name: of the importer in settings; default: the suffix without its dot.
            command: a command that reads the same files, as in ``gehost hlo import``; errors of
                the importer refer to it.

        Raises:
            VendorError: the suffix is not valid or has an importer already; another importer of
                this name has different options.
        """
        if not suffix.startswith(".") or suffix.endswith(".onnx"):
            raise VendorError(
                f'suffix "{suffix}" cannot be registered',
                subject=f"importer {_named(importer)}",
                hint='wanted a dot and a name other than onnx, as in ".hlo"',
            )
        other = self._entries.get(suffix)
        if other is not None:
            raise VendorError(
                f'two importers for "{suffix}" files, {_named(other.importer)} and '
                f"{_named(importer)}",
                hint="remove one",
            )
        entry = _Entry(importer, name or suffix.lstrip("."), tuple(options), command)
        check_options(entry.options, f"importer {_named(importer)}")
        for other in self._entries.values():
            if other.name == entry.name and other.options != entry.options:
                raise VendorError(
                    f"two importers are called {entry.name} and have different options, "
                    f"{_named(other.importer)} and {_named(importer)}",
                    hint="rename one",
                )
        self._entries[suffix] = entry

    @property
    def options(self) -> dict[str, Sequence[PassOption]]:
        """The declared options of each importer, by its name."""
        return {entry.name: entry.options for entry in self._entries.values()}

    def find(self, path: str) -> Importer | None:
        """Return the importer of the longest fitting suffix, None for ONNX."""
        entry = self._find(path)
        return None if entry is None else entry.importer

    def _find(self, path: str) -> _Entry | None:
        fitting = [suffix for suffix in self._entries if path.endswith(suffix)]
        return self._entries[max(fitting, key=len)] if fitting else None

    def check_output(self, path: str) -> None:
        """Refuse to write a model over a file that an importer reads.

        Raises:
            OutputError: an importer has the suffix of ``path``.
        """
        entry = self._find(path)
        if entry is not None:
            raise OutputError(
                f"cannot write {path!r}: its name is that of {entry.name} files, the model is ONNX",
                hint="name it .onnx",
            )

    def load(self, path: str, settings: Mapping[str, Any] = NO_OPTIONS) -> Model:
        """Read a model file with its suffix's importer, else as ONNX.

        Args:
            path: the file.
            settings: options of importers, by ``NAME.option``; others are ignored.

        Raises:
            ModelError: the file cannot be read or is not a valid model.
            UsageError: a setting does not have the type of its option.
            PluginError: an importer failed with an error that is not gehost's.
        """
        entry = self._find(path)
        if entry is None:
            if product := reader_of(path):
                raise ModelError("no installed plugin reads such files", where=path, hint=product)
            return Model.load(path)
        importer = entry.importer
        hint = f"see `{entry.command} --help`" if entry.command else ""
        values = option_values(entry.name, entry.options, settings)
        try:
            proto: Any = importer(path, values)
            if not isinstance(proto, onnx.ModelProto):
                raise TypeError(f"it must return a ModelProto, got {proto!r}")
        except KeyboardInterrupt:
            raise
        except GehostError as error:
            if entry.command not in str(error):
                error.hint = "; ".join(filter(None, [error.hint, hint]))
            raise
        except OSError as error:
            raise ModelError(
                f"cannot read the model: {error.strerror or error}", where=path
            ) from error
        except BaseException as error:
            where = (
                deepest_line(error, importer.__code__.co_filename)
                if hasattr(importer, "__code__")
                else None
            )
            raise PluginError(
                f"{path}: {described(error, context=where)}",
                where=where,
                subject=f"importer {_named(importer)}",
                hint=hint,
            ) from error
        return Model(proto, path=path)

    def original(
        self, path: str, settings: Mapping[str, Any] = NO_OPTIONS
    ) -> onnx.ModelProto | str:
        """Return the model of a file with an importer, else its path.

        A file without an importer is ONNX.

        Raises:
            GehostError: as ``load`` does.
        """
        return path if self._find(path) is None else self.load(path, settings).flush()


def _named(importer: Importer) -> str:
    name = getattr(importer, "__qualname__", repr(importer))
    return f"{getattr(importer, '__module__', '?')}.{name}"
