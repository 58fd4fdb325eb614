"""Which models a run is about: files, directories, globs, and manifests of JSON lines."""

from __future__ import annotations

import codecs
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gehost import HostOptions, UsageError


class LineOptions(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Options of one model in a manifest, named as in ``HostOptions``; they replace the run's."""

    enable: list[str] | None = None
    disable: list[str] | None = None
    only: list[str] | None = None
    settings: dict[str, Any] | None = None
    opset: int | None = None
    assume: list[str] | None = None
    cleanup: bool | None = None
    inline_functions: bool | None = None
    special_values: bool | None = None
    rewrite_limit: int | None = None
    keep_going: bool | None = None


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line of a manifest; paths are relative to the manifest's directory."""

    model: str
    name: str | None = None
    feeds: str | None = None
    dims: dict[str, int] = {}
    options: LineOptions = msgspec.field(default_factory=LineOptions)


_LONGEST_NAME = 255 - len(f".refused.onnx.{0:032}.data")
"""Bytes of a name in a folder, so that outputs can be named after it on common file systems."""


@dataclass(frozen=True)
class Entry:
    """A model to compile."""

    name: str
    """The path as it was found, unless a manifest names it; unique in a run."""
    path: str
    feeds: str | None = None
    dims: dict[str, int] = field(default_factory=dict[str, int])
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def output(self) -> str:
        """Where its result goes, relative to the directory of the run."""
        parts = os.path.normpath(self.name).replace("\\", "/").split("/")
        path = "/".join("up" if part == ".." else part for part in parts if part)
        return path if path.endswith(".onnx") else f"{path}.onnx"

    @property
    def fault(self) -> str:
        """Why outputs cannot have this name; "" where they can."""
        if os.path.basename(os.path.normpath(self.name)) in ("", ".", ".."):
            return f'"{self.name}" names no file'
        parts = self.output.removesuffix(".onnx").encode(errors="surrogateescape").split(b"/")
        if "\0" in self.name or max(map(len, parts)) > _LONGEST_NAME:
            return f"outputs cannot have this name: more than {_LONGEST_NAME} bytes, or a null byte"
        return ""


@dataclass(frozen=True)
class Zoo:
    """The models of a run, each once, and the faults of the list."""

    entries: list[Entry]
    invalid: list[str]
    """Lines of manifests, and files, that cannot be used."""
    duplicates: list[str]


def find_models(arguments: Sequence[str], is_model: Callable[[str], bool], *, outside: str) -> Zoo:
    """Find the models that the arguments of a command mean, in their order.

    Args:
        arguments: files, directories (searched at every depth), globs, manifests (``*.jsonl``).
        is_model: whether a file of a directory is a model, by its path.
        outside: a directory whose files are none of them, the output's.

    Raises:
        UsageError: an argument means no model, or a manifest cannot be read.
    """
    invalid: list[str] = []
    duplicates: list[str] = []
    entries: list[Entry] = []
    places: dict[str, tuple[str, str]] = {}  # of outputs and files: who has it, its real path
    skipped = os.path.join(os.path.realpath(outside), "")
    for argument in arguments:
        count = 0
        for where, entry in _meant(argument, is_model, invalid):
            if os.path.realpath(entry.path).startswith(skipped):
                continue
            count += 1
            if entry.fault:
                invalid.append(f"{where}: {entry.fault}")
                continue
            real = os.path.realpath(entry.path)
            output = entry.output.removesuffix(".onnx")
            keys = [f"output {output}", f"output {output}.refused"]
            keys += [f"file {real}"] if entry.name == entry.path else []
            duplicate = next((places[key] for key in keys if key in places), None)
            if duplicate is None:
                places.update(dict.fromkeys(keys, (where, real)))
                entries.append(entry)
            elif duplicate[1] == real:
                duplicates.append(
                    f"{where}: {entry.name} is the model of {duplicate[0]}, which runs;"
                    ' a manifest can compile it in another way under another "name"'
                )
            else:
                invalid.append(
                    f"{where}: its outputs would have the names of those of {duplicate[0]};"
                    ' give it another "name" in a manifest'
                )
        if not count and not argument.endswith(".jsonl"):
            raise UsageError("no model there", where=argument)
    if not entries and not invalid:
        raise UsageError("no model there", subject=" ".join(arguments))
    return Zoo(entries, invalid, duplicates)


def _meant(
    argument: str, is_model: Callable[[str], bool], invalid: list[str]
) -> Iterator[tuple[str, Entry]]:
    """The models of one argument, each with the place that names it."""
    if os.path.isdir(argument):
        for path in _files_below(argument):
            if is_model(path):
                yield path, Entry(path, path)
    elif argument.endswith(".jsonl"):
        yield from _read_manifest(argument, invalid)
    elif os.path.lexists(argument):
        path = os.path.normpath(argument)
        yield path, Entry(path, path)
    elif glob.has_magic(argument):
        for match in sorted(glob.glob(argument, recursive=True)):
            yield from _meant(match, is_model, invalid)
    else:
        raise UsageError("no such file, directory or glob", where=argument)


def _files_below(directory: str) -> Iterator[str]:
    """The files below a directory and its links; a folder that two links lead to is read once."""

    def refuse(error: OSError) -> None:
        raise UsageError(f"cannot be read: {error.strerror}", where=error.filename) from error

    visited: set[str] = set()
    for folder, folders, names in os.walk(directory, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        if real in visited:
            folders.clear()
            continue
        visited.add(real)
        folders.sort()
        for name in sorted(names):
            yield os.path.normpath(os.path.join(folder, name))


def _read_manifest(path: str, invalid: list[str]) -> Iterator[tuple[str, Entry]]:
    try:
        with open(path, "rb") as file:
            lines = file.read().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as error:
        raise UsageError(f"cannot read the manifest: {error.strerror}", where=path) from error
    folder = os.path.dirname(path)

    def beside(name: str) -> str:
        return os.path.normpath(os.path.join(folder, name))

    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        where = f"{path}:{number}"
        try:
            line = msgspec.json.decode(text, type=Line)
            if not line.model or line.name == "":
                raise msgspec.ValidationError('"model" and "name" must not be empty')
            options = msgspec.to_builtins(line.options)
            HostOptions(**options, dims=line.dims, verify=True)
            model = beside(line.model)
            feeds = None if line.feeds is None else beside(line.feeds)
            for file in filter(None, (model, feeds)):
                if not os.path.isfile(file):
                    raise UsageError("no such file", where=file)
        except (msgspec.MsgspecError, UnicodeDecodeError, UsageError) as error:
            invalid.append(f"{where}: {error}")
            continue
        yield where, Entry(line.name or model, model, feeds, line.dims, options)
