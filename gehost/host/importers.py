"""Readers of input formats, by file suffix; ONNX itself is always there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import onnx

from gehost.errors import GehostError, ModelError, VendorError, deepest_line, described
from gehost.ir.model import Model

Importer: TypeAlias = Callable[[str], onnx.ModelProto]


class ImporterRegistry:
    """Importers of one host."""

    def __init__(self) -> None:
        self._importers: dict[str, Importer] = {}

    def add(self, suffix: str, importer: Importer) -> None:
        """Read files that end in ``suffix`` (with its dot) by ``importer``, which takes the path
        and gives a model.

        Raises:
            VendorError: this is no suffix, or it has an importer already.
        """
        if not suffix.startswith(".") or suffix == ".onnx":
            raise VendorError(
                f'importer {_named(importer)}: "{suffix}" is no suffix that can be given '
                'to an importer, as in ".hlo"'
            )
        known = self._importers.get(suffix)
        if known is not None:
            raise VendorError(
                f'two importers for "{suffix}" files, {_named(known)} and '
                f"{_named(importer)}; take one away"
            )
        self._importers[suffix] = importer

    def find(self, path: str) -> Importer | None:
        """The importer of the longest suffix that fits; None where the file is ONNX."""
        fitting = [suffix for suffix in self._importers if path.endswith(suffix)]
        return self._importers[max(fitting, key=len)] if fitting else None

    def load(self, path: str) -> Model:
        """Read a model file with the importer of its suffix, as ONNX where there is none.

        Raises:
            ModelError: the file cannot be read or is no valid model.
            VendorError: an importer failed in a way of its own.
        """
        importer = self.find(path)
        if importer is None:
            return Model.load(path)
        try:
            proto: Any = importer(path)
            if not isinstance(proto, onnx.ModelProto):
                raise TypeError(f"it must return a ModelProto, got {proto!r}")
        except (GehostError, KeyboardInterrupt):
            raise
        except OSError as error:
            raise ModelError(f"{path}: cannot read the model: {error.strerror or error}") from error
        except BaseException as error:
            where = (
                deepest_line(error, importer.__code__.co_filename)
                if hasattr(importer, "__code__")
                else ""
            )
            raise VendorError(
                f"importer {_named(importer)}{f' ({where})' if where else ''}: {path}: "
                f"{described(error)}"
            ) from error
        return Model(proto, path=path)


def _named(importer: Importer) -> str:
    return f"{getattr(importer, '__module__', '?')}.{getattr(importer, '__qualname__', repr(importer))}"
