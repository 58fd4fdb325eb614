"""Options that several commands take, each defined once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gehost.cli.completion import complete_passes, complete_vendors
from gehost.cli.output import print_notes
from gehost.errors import UsageError

if TYPE_CHECKING:
    from gehost.options import HostOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])

vendors_option = click.option(
    "--vendors",
    multiple=True,
    type=click.Path(),
    shell_complete=complete_vendors,
    metavar="DIR",
    help=(
        "Directory that holds VENDOR/custom_fusion_passes/, or a vendor of an installed package, "
        "as gehost:onnx; repeatable. Default: GEHOST_VENDORS, or ./vendors, or gehost:onnx."
    ),
)
keep_going_option = click.option(
    "--keep-going",
    is_flag=True,
    help="Undo a pass that fails, skip a vendor file that does not load, and go on.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _tolerance(
    _context: click.Context, _option: click.Parameter, value: float | None
) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise click.BadParameter(f"{value} is not a tolerance; wanted a number from 0")
    return value


def _settings(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str]:
    """Read ``KEY=VALUE`` texts; a key may be given once."""
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f'"{text}": wanted {option.metavar}')
        if settings.setdefault(key, value) != value:
            raise click.BadParameter(f"{key} is given twice, {settings[key]} and {value}; give one")
    return settings


_MOST_DIGITS = 99
"""Longest size that is read; ``HostOptions`` has the limit of its value."""


def _dims(
    _context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int]:
    """Read ``NAME=SIZE`` texts; a name may contain ``=``."""
    dims: dict[str, int] = {}
    for text in texts:
        name, separator, size = text.rpartition("=")
        if not separator or not name or not size.strip().isdecimal() or len(size) > _MOST_DIGITS:
            raise click.BadParameter(f'"{text}": wanted {option.metavar}, a whole number from 0')
        if dims.setdefault(name, int(size)) != int(size):
            raise click.BadParameter(f"{name} is given twice, {dims[name]} and {size}; give one")
    return dims


settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PASS.OPTION=VALUE",
    callback=_settings,
    help="Set an option of a pass or importer; `gehost passes -v` lists them; repeatable.",
)
importer_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="IMPORTER.OPTION=VALUE",
    callback=_settings,
    help="Set an option of an importer; `gehost passes -v` lists them; repeatable.",
)


def options_of(choices: dict[str, Any], *, quiet: bool = False) -> HostOptions:
    """Build a host's options from a command's and the environment.

    With ``quiet``, prints no notes about them: the command compiles nothing.
    """
    from gehost.options import from_environment

    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}",
            hint="change into another one",
        ) from error
    for flag in ("cleanup", "plugins"):
        if f"no_{flag}" in choices:
            choices[flag] = not choices.pop(f"no_{flag}")
    return from_environment(choices, note=lambda line: print_notes([] if quiet else [line]))


enable_option = click.option(
    "--enable",
    multiple=True,
    shell_complete=complete_passes,
    metavar="PASS",
    help="Run a pass that is off by default or by the switch file; repeatable.",
)
disable_option = click.option(
    "--disable",
    multiple=True,
    shell_complete=complete_passes,
    metavar="PASS",
    help="Do not run a pass; repeatable.",
)
dim_option = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=SIZE",
    callback=_dims,
    help="Fix an open dimension, also as INPUT:AXIS=SIZE, before the compile; repeatable.",
)
opset_option = click.option(
    "--opset",
    type=click.IntRange(min=1),
    metavar="N",
    help="Raise the model's opset before the passes.",
)
assume_option = click.option(
    "--assume",
    multiple=True,
    metavar="NAME|FACT",
    help=(
        "Take a property of the model for granted that passes cannot prove, as `gehost passes -v` "
        'lists them, or a fact about sizes: "total == past + seq", "seq <= 4096"; repeatable.'
    ),
)
library_option = click.option(
    "--ort-library",
    "ort_libraries",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Shared library of custom operators for ONNX Runtime; repeatable.",
)
_COMPILE_OPTIONS = (
    vendors_option,
    enable_option,
    disable_option,
    click.option(
        "--only",
        multiple=True,
        shell_complete=complete_passes,
        metavar="PASS",
        help="Run only this pass; repeatable.",
    ),
    click.option("--no-plugins", is_flag=True, help="Load no passes and hooks of plugins."),
    settings_option,
    click.option(
        "--fusion-switch-file",
        type=click.Path(),
        metavar="FILE",
        help="JSON file of switches, as in GE.",
    ),
    dim_option,
    opset_option,
    assume_option,
    click.option(
        "--target",
        metavar="PROVIDER[:VERSION]",
        help="What the file is for, as cpu (default), cuda, cuda:1.24: passes use its kernels.",
    ),
    click.option("--no-cleanup", is_flag=True, help="Do not run the built-in clean-up."),
    click.option(
        "--inline-functions", is_flag=True, help="Inline the model's local functions first."
    ),
)
provider_option = click.option(
    "--provider",
    default="cpu",
    show_default=True,
    metavar="NAME",
    help="Execution provider of ONNX Runtime that runs the models: cpu, cuda, …",
)
_TOLERANCES = (
    click.option(
        "--rtol",
        type=float,
        callback=_tolerance,
        help="Relative tolerance, in place of the original's own error.",
    ),
    click.option("--atol", type=float, callback=_tolerance, help="Absolute tolerance, likewise."),
)
_NUMBER_OPTIONS = (
    *_TOLERANCES,
    provider_option,
    library_option,
    click.option(
        "--special-values",
        is_flag=True,
        help="Compare also on inputs with NaN, infinities, -0.0, denormals, ±88.5 and ±1e38.",
    ),
)
_COMPARE_OPTIONS = (
    click.option(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the inputs."
    ),
    click.option(
        "--feeds",
        type=click.Path(),
        metavar="FILE.npz",
        help="Inputs to use instead of seeded ones.",
    ),
    *_NUMBER_OPTIONS,
)


def compile_options(command: _Command) -> _Command:
    """Add the options of every command that compiles."""
    return _with(_COMPILE_OPTIONS, command)


def tolerances(command: _Command) -> _Command:
    """Add ``--rtol`` and ``--atol``."""
    return _with(_TOLERANCES, command)


def number_options(command: _Command) -> _Command:
    """Add the options of every command that has ``--verify``."""
    return _with(_NUMBER_OPTIONS, command)


def compare_options(command: _Command) -> _Command:
    """Add the options of every command that compares numbers."""
    return _with(_COMPARE_OPTIONS, command)


def _with(options: Sequence[Callable[[_Command], _Command]], command: _Command) -> _Command:
    for option in reversed(options):
        command = option(command)
    return command
