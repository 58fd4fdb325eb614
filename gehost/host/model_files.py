"""Read any model file with the importers of the installed plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from gehost.host.containment import process_state_restored
from gehost.host.importers import ImporterRegistry
from gehost.host.plugins import Plugins, installed_plugins
from gehost.ir.model import Model
from gehost.settings import NO_OPTIONS, check_settings


def installed_importers(settings: Mapping[str, Any] = NO_OPTIONS) -> ImporterRegistry:
    """Return the importers of the installed plugins.

    Args:
        settings: options of importers, by ``NAME.option``.

    Raises:
        UsageError: a setting names no option of an importer.
        VendorError: a plugin cannot be loaded or fails.
    """
    registry = ImporterRegistry()
    with process_state_restored(), redirect_stdout(sys.stderr):
        Plugins(installed_plugins()).call("gehost_register_importers", registry=registry)
    check_settings(settings, registry.options, owners="importer")
    return registry


def read_model(path: str | os.PathLike[str], settings: Mapping[str, Any] | None = None) -> Model:
    """Read a model file with its suffix's installed importer, else as ONNX.

    The model is indexed but not validated, as ``Host.compile`` does. Vendor files are not loaded.

    Args:
        path: the file.
        settings: options of importers, by ``NAME.option``, as in ``{"hlo.constants": "c.npz"}``.

    Raises:
        ModelError: the file cannot be read or is not a valid model.
        UsageError: a setting names no option of an importer, or does not have its type.
        VendorError: a plugin cannot be loaded, or an importer failed with an error that is not
            gehost's.
    """
    name = os.fspath(path)
    if name.endswith(".onnx") and not settings:
        return Model.load(name)
    chosen = settings or NO_OPTIONS
    registry = installed_importers(chosen)
    with process_state_restored(), redirect_stdout(sys.stderr):
        return registry.load(name, chosen)
