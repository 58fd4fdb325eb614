"""Write the file of one choice of passes: prepare, clean, fold, fuse, shrink."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx
from google.protobuf.message import DecodeError

from gehost.errors import ModelError, PassError
from gehost.half import stays
from gehost.host.hookspecs import hookimpl
from gehost.host.host import Host
from gehost.host.in_half import convert, describe
from gehost.host.report import Report
from gehost.ir.files.external import external_tensors, file_names
from gehost.ir.files.pieces import has_unknown_fields
from gehost.ir.files.save import save_model, write_pieces_atomic
from gehost.ir.files.validate import validate
from gehost.ir.inline import inline_functions
from gehost.ir.model import Model
from gehost.optimizing.apart import LARGE, pieces_inside, put_apart, size_inside
from gehost.optimizing.facts import (
    Facts,
    facts_of,
    foreign_nodes,
    has_constant_nodes,
    nodes_of,
    operator_of,
)
from gehost.optimizing.omit import omit
from gehost.optimizing.shrink import shrink
from gehost.optimizing.target import Target
from gehost.options import HostOptions
from gehost.passes.context import PassRecord
from gehost.refusal import Refusal
from gehost.rewrite.provenance import PASS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Feeds = Mapping[str, NDArray[Any]]

_ROOM = 1 << 12
"""Bytes that constants may take of those that the file lost elsewhere, as by shorter notes."""


@dataclass(frozen=True)
class Candidate:
    """A file that may be the result."""

    path: str
    passes: frozenset[str]
    """Those that are on; of the original none."""
    facts: Facts
    report: Report | None = None
    """Of the compile; None for the original, which is not compiled."""
    library: str = ""
    """Of generated kernels for some of its nodes; "" for none."""
    wide: str = ""
    """The compiled file before its conversion to float16; "" if there is none."""
    half: Report | None = None
    """Of the conversion to float16; None if it is not converted."""
    makers: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The passes that made the nodes of an operator."""
    omitted: tuple[str, ...] = ()
    """What is not in the file for its size, as text."""

    @property
    def effective(self) -> list[str]:
        """The passes that rewrote something, in the order in which they ran."""
        records = self.report.passes if self.report is not None else []
        return [record.name for record in records if record.replaced]

    def same_file(self, other: Candidate) -> bool:
        """Whether both files have the same bytes."""
        return Path(self.path).read_bytes() == Path(other.path).read_bytes()


class Builder:
    """Builds candidates of one model for one target.

    Attributes:
        original: the model as a file, its open sizes fixed where the user fixed them.
        passes: what may run.
        failed: passes that ended with an error, with its line.
        foreign: passes whose operators the target does not load.
        reasons: why passes left their candidates.
        half: whether candidates are converted to float16.
        stays: why they are not, where that was asked for.
    """

    def __init__(
        self,
        model: str,
        place: str,
        target: Target,
        options: HostOptions,
        *,
        keep_metadata: bool = False,
        half: bool = False,
    ) -> None:
        """Read and prepare the model.

        Args:
            model: the file.
            place: what the paths of candidates begin with; beside the model, they refer to its
                weights in other files instead of copying them.
            target: what to build for.
            options: vendors, switches and settings.
            keep_metadata: keep the notes of exporters.
            half: convert candidates to float16; inputs and outputs keep their types.

        Raises:
            ModelError: it cannot be read, or is not valid.
            UsageError: an option does not fit the model.
        """
        self._source = model
        self._place, self._target, self._keep_metadata = place, target, keep_metadata
        self.feeds: Sequence[Feeds] = ()
        """Inputs on which numbers out of half's range are looked for."""
        self.cautious = False
        """Whether conversions keep float32 in bodies and close to the end of half's range."""
        self.reasons = Reasons()
        loaded = replace(options, dims={}, enable=(), disable=(), only=())
        self.host = Host(loaded, plugins=[("reasons", self.reasons)])
        self._names = [spec.name for spec in self.host.passes]
        reader = self.host.with_options(
            dims=options.dims, enable=options.enable, disable=options.disable, only=options.only
        )  # which finds names that no pass has
        path = model
        reader.importers.load(path, options.settings).close()  # a ModelError before all else
        runner_source = (
            reader.original(path).source
            if options.dims
            else reader.importers.original(path, options.settings)
        )
        if isinstance(runner_source, onnx.ModelProto):
            path = f"{place}original.onnx"
            save_model(runner_source, path, os.path.dirname(os.path.abspath(model)))
        path, facts = os.fspath(path), facts_of(path)
        self._is_apart = False
        if os.stat(path).st_size >= LARGE and not weight_files(path):
            parsed = onnx.ModelProto.FromString(Path(path).read_bytes())
            self._is_apart = not has_unknown_fields(parsed)
            if self._is_apart:
                path = f"{place}original.onnx"
                put_apart(parsed, place)
                save_model(parsed, path, os.path.dirname(path))
            del parsed
        self.original = Candidate(path, frozenset(), facts)
        self.stays = stays(onnx.ModelProto.FromString(Path(path).read_bytes())) if half else ""
        self.half = half and not self.stays
        self.prepared = self._prepare(self.original.path)
        self._lighter: dict[str, Candidate] = {}
        off = set(options.disable)
        chosen = {spec.name for spec in self.host.passes if spec.default}
        paying = set(target.passes).difference(target.slower_here()).intersection(self._names)
        chosen |= paying | set(options.enable)
        self.passes = frozenset(options.only or chosen - off)
        self.failed: dict[str, str] = {}
        self.foreign: set[str] = set()
        self._built: dict[tuple[frozenset[str], bool], Candidate] = {}
        self._files = 0

    @property
    def inlines(self) -> bool:
        """Whether functions of the model are inlined before the passes."""
        return self.prepared != self.original.path

    def keep_float32(self, why: str) -> None:
        """Convert no candidates from here on."""
        self.half, self.stays = False, why
        self._built.clear()

    def infer_original(self) -> None:
        """Infer the types of the original alone.

        Raises:
            ModelError: types meet that no runtime loads; it names the node, and what to do.
        """
        with self.host.with_options(disable=self._names, cleanup=False).compiled(
            self.original.path, Report()
        ):
            pass

    def _prepare(self, path: str) -> str:
        """Inline the model's functions, but those that the runtime has kernels for."""
        model = onnx.ModelProto.FromString(Path(path).read_bytes())
        keep = self._target.domains
        if all(function.domain in keep for function in model.functions):
            return path
        prepared = f"{self._place}prepared.onnx"
        try:
            inlined = inline_functions(model, keep=lambda function: function.domain in keep)
            save_model(inlined, prepared, os.path.dirname(path))
            validate(result := Model.load(prepared))
            result.close()
        except (ModelError, RuntimeError):
            return path  # what it computes with other operators' forms stays a function
        return prepared

    def build(self, passes: Collection[str]) -> Candidate:
        """Return the file that these passes give; those that fail are left out.

        Raises:
            GehostError: the clean-up fails, or the file cannot be written.
        """
        chosen = frozenset(passes).difference(self.failed, self.foreign)
        while (chosen, self.cautious) not in self._built:
            try:
                self._built[chosen, self.cautious] = self._compile(chosen)
            except PassError as error:
                name = next((item for item in chosen if item in str(error)), "")
                if not name:
                    raise
                self.failed[name] = str(error)
                chosen -= {name}
            except _ForeignError as error:
                self.foreign |= error.passes
                chosen -= error.passes
        return self._built[chosen, self.cautious]

    def _compile(self, passes: frozenset[str]) -> Candidate:
        path = f"{self._place}{self._files}.onnx"
        self._files += 1
        off = [name for name in self._names if name not in passes]
        half = self.half
        host = self.host.with_options(
            enable=sorted(passes), disable=off, half=half, keep_io_types=half
        )
        report = Report(model=self._source, options=host.options.as_dict())
        makers, converted = self._write(host, self.prepared, report, path)
        facts = self._facts_of(path)
        room = min(self.original.facts.size - facts.size, _ROOM)
        if room > 0 and not half and has_constant_nodes(path):
            host = self.host.with_options(disable=self._names, room=room)
            self._write(host, path, Report(model=path), path)
            facts = self._facts_of(path)
        wide = _wide(path) if half else ""
        return Candidate(path, passes, facts, report, wide=wide, half=converted, makers=makers)

    def lightest(self, candidate: Candidate) -> Candidate:
        """Return a file of the same nodes that is not larger than the original, if there is one.

        What the target does not read goes, but only where the file would be too large: function
        bodies of operators that it has kernels for, notes, names of new nodes. Another runtime
        may need the bodies, and readers like the names.
        """
        excess = candidate.facts.size - self.original.facts.size
        if excess <= 0:
            return candidate
        if candidate.path not in self._lighter:
            path = f"{candidate.path.removesuffix('.onnx')}.light.onnx"
            model = onnx.ModelProto.FromString(Path(candidate.path).read_bytes())
            original = onnx.ModelProto.FromString(Path(self.original.path).read_bytes())
            omitted = omit(model, original, excess, self._target.domains, candidate.path)
            save_model(model, path, os.path.dirname(os.path.abspath(path)))
            self._lighter[candidate.path] = replace(
                candidate, path=path, facts=self._facts_of(path), wide="", omitted=tuple(omitted)
            )
        return self._lighter[candidate.path]

    def _write(
        self, host: Host, source: str, report: Report, path: str
    ) -> tuple[dict[str, frozenset[str]], Report | None]:
        """Write a compiled file.

        Returns:
            The passes that made the nodes of each operator; the report of its conversion, if it is
            converted.
        """
        half = None
        with host.compiled(source, report) as model:
            proto = model.flush()
            makers = _makers(proto)
            if self._target.standard:
                _refuse_foreign(proto, self._target.operators)
            if self.half:
                save_model(proto, _wide(path), model.base_dir)
                proto, half = self._converted(model)
                report.needs, report.kept_float32 = half.needs, half.kept_float32
            if not self._keep_metadata:
                shrink(proto)
            save_model(proto, path, model.base_dir)
        return makers, half

    def _converted(self, model: Model) -> tuple[onnx.ModelProto, Report]:
        """Return a model in float16 inside, and the report of its conversion."""
        options = replace(self.host.options, half=True, keep_io_types=True)
        conversion = convert(model, options, self.feeds, cautious=self.cautious)
        return describe(model, conversion, options, report := Report()).flush(), report

    def reference(self) -> Candidate:
        """Return the original in float16, which the rounding of candidates is compared with."""
        path = f"{self._place}half{' cautious' if self.cautious else ''}.onnx"
        model = Model.load(self.prepared)  # bodies of functions are kept as one
        proto, half = self._converted(model)
        save_model(proto, path, model.base_dir)
        return Candidate(path, frozenset(), self._facts_of(path), half=half)

    def groups(self, candidate: Candidate) -> list[tuple[str, tuple[str, ...]]]:
        """Return the groups of passes that rewrote something, with most rewrites first."""
        report = candidate.report
        counts = {record.name: record.replaced for record in report.passes} if report else {}
        results = [
            (name, passes)
            for name, passes in self.host.tune_kinds()
            if any(counts.get(one) for one in passes)
        ]
        return sorted(results, key=lambda group: -sum(counts.get(one, 0) for one in group[1]))

    def shrunk(self) -> Candidate:
        """Return the original without notes and equal weights, not compiled.

        With ``half`` it is converted, too, as what it is compared with.
        """
        path = f"{self._place}shrunk.onnx"
        source = self.prepared if self.half else self.original.path
        directory = os.path.dirname(os.path.abspath(source))
        model, half = onnx.ModelProto.FromString(Path(source).read_bytes()), None
        if self.half:
            model, half = self._converted(Model(model, path=source))
        if not self._keep_metadata:
            shrink(model)
        save_model(model, path, directory)
        return Candidate(path, frozenset(), self._facts_of(path), half=half)

    def _facts_of(self, path: str) -> Facts:
        """Return the facts of a candidate, with weights that were put apart inside."""
        facts = facts_of(path)
        if not self._is_apart:
            return facts
        model = onnx.ModelProto.FromString(Path(path).read_bytes())
        return replace(facts, size=size_inside(model))

    def write(self, candidate: Candidate, output: str) -> None:
        """Write a candidate; weights in another file stay where they are beside the input.

        Raises:
            OutputError: it cannot be written.
        """
        self.host.importers.check_output(output)
        model = onnx.ModelProto.FromString(Path(candidate.path).read_bytes())
        if self._is_apart:
            write_pieces_atomic(output, pieces_inside(model, self._place))
        else:
            save_model(model, output, os.path.dirname(candidate.path))


def _wide(path: str) -> str:
    """Return where a file is before its conversion."""
    return path.removesuffix(".onnx") + ".wide.onnx"


def _makers(model: onnx.ModelProto) -> dict[str, frozenset[str]]:
    """Return the passes that made the nodes of each operator."""
    results: dict[str, set[str]] = defaultdict(set)
    for node in nodes_of(model):
        for entry in node.metadata_props:
            if entry.key == PASS:
                results[operator_of(node)].add(entry.value)
    return {op: frozenset(passes) for op, passes in results.items()}


class Reasons:
    """The first text for each key of a pass's refusals, of all compiles."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}

    @hookimpl
    def gehost_match_refused(self, record: PassRecord, refusal: Refusal) -> None:
        self.texts.setdefault((record.name, refusal.key), refusal.message)


class _ForeignError(Exception):
    def __init__(self, passes: Iterable[str]) -> None:
        super().__init__()
        self.passes = set(passes)


def _refuse_foreign(model: onnx.ModelProto, operators: Collection[str]) -> None:
    """Raise the passes that made operators which a target does not load.

    It loads those of ``operators`` by itself: their functions are removed.
    """
    for number, function in reversed([*enumerate(model.functions)]):
        if f"{function.domain}::{function.name}" in operators:
            del model.functions[number]
    makers = {
        entry.value
        for node in foreign_nodes(model, operators)
        for entry in node.metadata_props
        if entry.key == PASS
    }
    if makers:
        raise _ForeignError(makers)


def weight_files(model: str) -> list[str]:
    """Return the other files that hold weights of a model, relative to it."""
    with suppress(OSError, ValueError, DecodeError):
        proto = onnx.ModelProto.FromString(Path(model).read_bytes())
        return list(file_names(list(external_tensors(proto))))
    return []  # its load names the error
