"""Which passes are switched off: by option, by the fusion-switch file, by default none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gehost.errors import UsageError
from gehost.options import HostOptions
from gehost.spelling import nearest

_EXAMPLE = '{"Switch": {"GraphFusion": {"PassName": "off", "ALL": "on"}}}'


def disabled_passes(options: HostOptions, defaults: Mapping[str, bool]) -> set[str]:
    """Return the names of the passes that must not run.

    ``disable``/``enable`` beats a named entry of the switch file, which beats the file's ``ALL``,
    which beats "on". ``ALL`` does not turn on a pass that is off by default.

    Args:
        options: of the host.
        defaults: whether each pass is on by default.

    Raises:
        UsageError: a switch names no known pass, a pass is both enabled and disabled, or the
            file cannot be read.
    """
    known = list(defaults)
    check_names([*options.enable, *options.disable], known, "--enable/--disable")
    both = sorted(set(options.enable) & set(options.disable))
    if both:
        raise UsageError(f"pass {both[0]} is both enabled and disabled; give one")
    switches: dict[str, bool] = {}
    if options.fusion_switch_file is not None:
        switches = read_switch_file(str(options.fusion_switch_file))
        check_names(
            (name for name in switches if name != "ALL"), known, str(options.fusion_switch_file)
        )
    everything = switches.get("ALL", True)
    chosen = {name: switches.get(name, everything and on) for name, on in defaults.items()}
    chosen.update(dict.fromkeys(options.enable, True))
    chosen.update(dict.fromkeys(options.disable, False))
    return {name for name, on in chosen.items() if not on}


def read_switch_file(path: str) -> dict[str, bool]:
    """The entries of a file like ``{"Switch": {"GraphFusion": {"PassName": "off", "ALL": "on"}}}``.

    Raises:
        UsageError: the file cannot be read, or says something else.
    """
    try:
        content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
        entries = content["Switch"]["GraphFusion"]
        found = {str(name): str(state).lower() for name, state in entries.items()}
    except OSError as error:
        raise UsageError(f"{path}: cannot read the fusion-switch file: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a fusion-switch file; wanted {_EXAMPLE}") from error
    for name, state in found.items():
        if state not in ("on", "off"):
            raise UsageError(f'{path}: switch "{name}" is "{state}"; wanted on or off')
    return {name: state == "on" for name, state in found.items()}


def check_names(names: Iterable[str], known: Sequence[str], source: str) -> None:
    """Raise ``UsageError`` with the nearest names when one of ``names`` is not ``known``;
    ``source`` says who gave it.
    """
    for name in names:
        if name not in known:
            near = nearest(name, known, 3)
            hint = (
                f"; did you mean {' or '.join(near)}?" if near else "; `gehost passes` lists them"
            )
            raise UsageError(f"{source}: there is no pass {name}{hint}")
