"""Decide which passes run: by option, fusion-switch file, or default."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from gehost.errors import UsageError
from gehost.host.registry import Unregistered
from gehost.options import HostOptions
from gehost.shipped import shipped_passes
from gehost.spelling import nearest, nearest_by_words

_EXAMPLE = '{"Switch": {"GraphFusion": {"PassName": "off", "ALL": "on"}}}'
_RUNTIME = {"level": str, "disabled_optimizers": list, "libraries": list}


@dataclass(frozen=True)
class SwitchFile:
    """A fusion-switch file.

    ``gehost tune`` writes all parts; GE's files have only the passes.
    """

    passes: Mapping[str, bool]
    """On or off by name; ``ALL`` stands for passes that are not named."""
    runtime: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """``level``, ``disabled_optimizers``, ``libraries``: for the session that runs the model."""
    evidence: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The measurements, with the machine and versions they were made on."""

    def foreign(self) -> list[str]:
        """Return a line for each version or CPU that differs here."""
        measured = {**self.evidence.get("versions", {}), "cpu": self.evidence.get("cpu")}
        here = machine(name for name in measured if name != "cpu")
        return [
            f"the evidence is from {name} {there}, this is {here.get(name) or 'not installed'}"
            for name, there in measured.items()
            if there is not None and there != here.get(name)
        ]

    def unknown(self, names: Sequence[str], path: str) -> list[str]:
        """Return a line about switches of passes that are not among ``names``, or none."""
        others = [name for name in self.passes if name not in names and name != "ALL"]
        if not others:
            return []
        near = dict.fromkeys(
            intended for name in others for intended in nearest_by_words(name, names, 1)
        )
        intended = f"; did you mean {', '.join(near)}?" if near else ""
        return [f"{path}: no pass of this name is loaded: {', '.join(others)}{intended}"]


def machine(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of ``packages`` and the CPU's name.

    Measured times depend on them.
    """
    results: dict[str, str] = {}
    for name in packages:
        try:
            results[name] = version(name)
        except PackageNotFoundError:
            continue
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    results["cpu"] = named[1].strip() if named else platform.processor() or platform.machine()
    return results


def disabled_passes(
    options: HostOptions,
    defaults: Mapping[str, bool],
    unregistered: Sequence[Unregistered] = (),
) -> set[str]:
    """Return the names of the passes that must not run.

    ``only`` turns all others off. ``disable`` and ``enable`` win over a named entry of the switch
    file, which wins over the file's ``ALL``, which wins over "on". ``ALL`` does not turn on a pass
    that is off by default.

    Args:
        options: of the host.
        defaults: whether each pass is on by default.
        unregistered: classes that a switch may mean.

    Raises:
        UsageError: a switch names no known pass, a pass is both enabled and disabled, ``only`` is
            used with ``enable`` or ``disable``, or the file cannot be read.
    """
    entries = list(defaults)
    switched = [*options.enable, *options.disable]
    check_names(switched, entries, "--enable/--disable", unregistered)
    check_names(options.only, entries, "--only", unregistered)
    if options.only:
        if switched:
            raise UsageError(
                f"--only and {switched[0]} by --enable or --disable contradict each other",
                hint="give --only alone, once for each pass",
            )
        return {name for name in entries if name not in options.only}
    both = sorted(set(options.enable) & set(options.disable))
    if both:
        raise UsageError(f"pass {both[0]} is both enabled and disabled", hint="give one")
    switches: Mapping[str, bool] = {}
    if options.fusion_switch_file is not None:
        switches = read_switch_file(str(options.fusion_switch_file)).passes
    everything = switches.get("ALL", True)  # "on" does not turn on what is off by default
    chosen = {name: switches.get(name, everything and on) for name, on in defaults.items()}
    chosen.update(dict.fromkeys(options.enable, True))
    chosen.update(dict.fromkeys(options.disable, False))
    return {name for name, on in chosen.items() if not on}


def read_switch_file(path: str) -> SwitchFile:
    """Read a file like ``{"Switch": {"GraphFusion": {"PassName": "off", "ALL": "on"}}}``.

    Lines ``PassName:off`` are the same. A section ``UBFusion`` is of GE's alone and has no effect.

    Raises:
        UsageError: the file cannot be read, has an unknown key, or a value of the wrong type.
    """
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        content: Any = json.loads(text) if text.lstrip().startswith("{") else _of_lines(text, path)
        sections = content["Switch"]
        ge_only: dict[str, str] | None = {} if "UBFusion" in sections else None
        entries = sections.get("GraphFusion", ge_only)  # None: AttributeError
        results = {str(name): str(state).lower() for name, state in entries.items()}
        runtime = {**sections.get("Runtime", {})}
        evidence = {**content.get("Evidence", {})}
    except OSError as error:
        raise UsageError(
            f"cannot read the fusion-switch file: {error.strerror}", where=path
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 0
        where = f"{path}:{line}" if line else _place(path, text, "Switch", "GraphFusion")
        raise _no_switch_file(where) from error

    def at(*keys: str) -> str:
        return _place(path, text, *keys)

    _check_keys(content, ("Switch", "Evidence"), at)
    _check_keys(content["Switch"], ("GraphFusion", "UBFusion", "Runtime"), at, "Switch")
    _check_keys(runtime, tuple(_RUNTIME), at, "Switch", "Runtime")
    for name, state in results.items():
        if state not in ("on", "off"):
            where = at("Switch", "GraphFusion", name)
            raise UsageError(f'switch "{name}" is "{state}"', where=where, hint="wanted on or off")
    for name, argument in runtime.items():
        texts = cast("list[Any]", argument) if _RUNTIME[name] is list else [argument]
        if not isinstance(argument, _RUNTIME[name]) or not all(isinstance(t, str) for t in texts):
            expected = "a list of texts" if _RUNTIME[name] is list else "a text"
            where = at("Switch", "Runtime", name)
            raise UsageError(
                f"Runtime: {name} is {argument!r}", where=where, hint=f"wanted {expected}"
            )
    if not isinstance(evidence.get("versions", {}), dict):
        where = at("Evidence", "versions")
        raise UsageError("Evidence: versions must be versions by package", where=where)
    if not isinstance(evidence.get("kinds", {}), dict):
        where = at("Evidence", "kinds")
        raise UsageError("Evidence: kinds must be measurements by name", where=where)
    return SwitchFile({name: state == "on" for name, state in results.items()}, runtime, evidence)


def _of_lines(text: str, path: str) -> dict[str, Any]:
    """Return lines ``PassName:off`` as the content of a file.

    Raises:
        ValueError: the file is empty.
        UsageError: a line is another one.
    """
    switches: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, state = line.rpartition(":")
        if not colon or not name.strip():
            raise _no_switch_file(f"{path}:{number}")
        switches[name.strip()] = state.strip()
    if not switches:
        raise ValueError("empty")
    return {"Switch": {"GraphFusion": switches}}


def _no_switch_file(where: str) -> UsageError:
    hint = f"wanted {_EXAMPLE}, or lines PassName:off"
    return UsageError("not a fusion-switch file", where=where, hint=hint)


def _place(path: str, text: str, *keys: str) -> str:
    """Return the file and the line of a key in its text.

    ``keys`` are those that hold it, then itself; lines ``PassName:off`` have the last one alone.
    The line is that of the last one that is there.
    """
    start, line = 0, 1
    for key in keys:
        quoted = re.escape(json.dumps(key, ensure_ascii=False))
        match = re.compile(rf"{quoted}\s*:|^[ \t]*{re.escape(key)}[ \t]*:", re.MULTILINE).search(
            text, start
        )
        if match is not None:
            start, line = match.end(), text.count("\n", 0, match.start()) + 1
    return f"{path}:{line}" if text.strip() else path


def _check_keys(
    arguments: Mapping[str, Any], names: Sequence[str], at: Callable[..., str], *holders: str
) -> None:
    for name in arguments:
        if name not in names:
            near = nearest(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            raise UsageError(
                f'there is no key "{name}"',
                where=at(*holders, name),
                subject=holders[-1] if holders else None,
                hint=hint,
            )


def check_names(
    names: Iterable[str],
    known_names: Sequence[str],
    source: str,
    unregistered: Sequence[Unregistered] = (),
) -> None:
    """Raise ``UsageError`` if one of ``names`` is not ``known_names``.

    The error has the nearest names, or how to register a class of this name.

    ``source`` is the option or file that has the names.
    """
    for name in names:
        if name not in known_names:
            for item in unregistered:
                if item.name == name:
                    raise UsageError(str(item))
            shipped = shipped_passes()
            near = nearest_by_words(name, known_names)
            for best in nearest_by_words(name, dict.fromkeys([*known_names, *shipped]), 1):
                if best not in known_names:
                    vendor = shipped[best][0]
                    near.insert(0, f"{best} of {vendor} (--vendors {vendor})")
            if name in shipped:
                hint = f"{' and '.join(shipped[name])} has it: --vendors {shipped[name][0]}"
            elif near:
                hint = f"did you mean {' or '.join(near)}?"
            else:
                hint = "`gehost passes` lists them"
            raise UsageError(f"there is no pass {name}", where=source, hint=hint)
