"""The host: loads vendors and plugins once, then compiles models."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import onnx
from onnx.external_data_helper import load_external_data_for_model

from gehost.errors import (
    ModelError,
    NumbersDifferError,
    OutputError,
    PassError,
    UsageError,
    VendorError,
    described,
)
from gehost.host.containment import contained, exclusive
from gehost.host.context import CompileContext
from gehost.host.executor import Executor
from gehost.host.importers import ImporterRegistry
from gehost.host.kinds import KindRegistry
from gehost.host.loaded import Loaded, load
from gehost.host.needs import name_runtimes
from gehost.host.pipeline import PIPELINE, clean_leftovers
from gehost.host.preparations import PREPARATIONS, with_dims
from gehost.host.registry import PassRegistry, PassSpec, Unregistered
from gehost.host.report import Report, op_counts
from gehost.host.switches import disabled_passes
from gehost.infer.again import drop_false_types
from gehost.infer.declared import declare_results, declare_widths
from gehost.ir.files.validate import checker_finding, deprecated_operators, validate
from gehost.ir.gc_policy import gc_frozen_models, gc_unfrozen
from gehost.ir.model import Model
from gehost.ir.usage import Usage, remove_unused
from gehost.kernels import Target, release_note
from gehost.ops import OpRegistry, declared_in
from gehost.options import HostOptions, default_options
from gehost.passes.context import PassRecord
from gehost.rewrite.functions import inferrer_of
from gehost.settings import GE_PREFIX, PassOption, check_assumptions, check_settings
from gehost.sizes import Scope, is_fact

if TYPE_CHECKING:
    from gehost.verify import Runner

IrModel = TypeVar("IrModel")
"""An ``onnx_ir.Model``."""

_LOADING = ("vendors", "pass_paths", "plugins", "dump", "compile_stat", "fusion_switch_file")
"""First letters of the options that decide what a host loads."""


class Host:
    """Loads vendors and plugins, and compiles models.

    They are those of ``options``; two hosts share nothing.

    Threads may share a host or have one each. Compiles run one at a time, since vendor code uses
    the state of the whole process, and produce the same bytes as in one thread. During a compile
    ``sys.stdout`` is standard error for all threads; afterwards it is restored. A thread that a
    pass starts and waits for must not compile: it would wait for this very compile.

    Examples:
        >>> host = Host(HostOptions(vendors=["vendors"]))  # doctest: +SKIP
        >>> report = host.compile("m.onnx", "out.onnx")  # doctest: +SKIP
    """

    def __init__(
        self,
        options: HostOptions | None = None,
        plugins: Sequence[tuple[str, Any]] = (),
        *,
        own_process: bool = False,
        loaded: Loaded | None = None,
    ) -> None:
        """Load vendors and plugins.

        Args:
            options: None for those of the command where there is no ``./vendors``: the default
                vendors of installed packages, and all else as in ``HostOptions()``.
            plugins: further plugins of the caller's, by name; their hooks are called first.
            own_process: the process serves this host alone. Python's cyclic garbage collector
                then ignores all objects imported so far, which saves a tenth of the time of a
                small compile.
            loaded: of another host, in place of loading.

        Raises:
            UsageError: a directory of vendors, a pass named by a switch or an option named by a
                setting does not exist, or the feeds cannot be read.
            VendorError: a vendor file or plugin cannot be loaded.
        """
        self.options = options or default_options()
        self._extra_plugins, self._own_process = plugins, own_process
        if loaded is None:
            # otherwise the frozen heap would keep files open that another host's vendors left open
            if own_process and gc_unfrozen():
                gc.freeze()
            loaded = load(self.options, plugins)
        self._loaded = loaded
        self._has_bodies_apart = False
        self._apply_options()

    @property
    def passes(self) -> PassRegistry:
        """The passes of plugins and vendor files."""
        return self._loaded.passes

    @property
    def ops(self) -> OpRegistry:
        """The custom operators."""
        return self._loaded.ops

    @property
    def importers(self) -> ImporterRegistry:
        """The readers of other formats."""
        return self._loaded.importers

    @property
    def unregistered(self) -> list[Unregistered]:
        """Classes that look like passes and are not registered."""
        return self._loaded.unregistered

    @property
    def skipped(self) -> list[str]:
        """Files below the vendors' directories that are not passes, and why."""
        return self._loaded.skipped

    @property
    def problems(self) -> list[str]:
        """Vendor files that could not be loaded (with ``keep_going``)."""
        return self._loaded.problems

    @property
    def notes(self) -> list[str]:
        """Likely mistakes: classes that are not registered, no passes, skipped files."""
        return self._loaded.notes

    def __reduce__(self) -> Any:
        """Copying loads the same vendors and plugins again."""
        return Host, (self.options, self._extra_plugins)

    def declared_options(self) -> dict[str, Sequence[PassOption]]:
        """Return the options of each pass and importer, by name.

        Raises:
            VendorError: a pass and an importer have the same name.
        """
        return self._loaded.declared_options()

    def tune_kinds(self) -> KindRegistry:
        """Return the groups of passes that are measured as one.

        Plugins and vendor files name them.

        Raises:
            VendorError: a hook fails, or names a pass that does not exist.
        """
        kinds = KindRegistry(spec.name for spec in self.passes)
        with self._loaded.modules.installed():
            for hook in self._loaded.plugins.each("gehost_tune_kinds"):
                with contained(hook):
                    hook(registry=kinds)
        return kinds

    def with_options(self, **changes: Any) -> Host:
        """Return this host with other options, without loading vendors and plugins again.

        Args:
            changes: fields of ``HostOptions``, except those that decide what is loaded (vendors,
                plugins, dumps, the switch file).

        Raises:
            UsageError: such a field is given, or the new options are not valid.
        """
        # patterns may depend on settings and assumptions
        is_fresh = "settings" in changes or "assume" in changes
        return self._with(changes, self._loaded.with_new_instances() if is_fresh else self._loaded)

    def with_pass_alone(self, spec: PassSpec, namespace: Mapping[str, Any], **changes: Any) -> Host:
        """Return this host with one more pass, and all its own passes off.

        Args:
            spec: the pass; this host does not get it.
            namespace: ``vars(module)`` of its file, for the operators that it registers.
            changes: as for ``with_options``.

        Raises:
            UsageError: as for ``with_options``.
            VendorError: a pass of this name is loaded, or an operator is declared differently.
        """
        changes |= {"disable": self.passes.names()}
        return self._with(changes, self._loaded.with_pass(spec, namespace))

    def watched(self, spec: PassSpec, name: str, plugin: Any, **changes: Any) -> Host:
        """Return this host with one of its passes only, and one plugin's hooks only.

        All operators stay registered.

        Args:
            spec: the pass, which runs also if it is off by default.
            name: of the plugin.
            plugin: has the hooks.
            changes: as for ``with_options``.

        Raises:
            UsageError: as for ``with_options``.
        """
        changes |= {"enable": [spec.name], "disable": [], "only": []}
        return self._with(changes, self._loaded.only(spec, name, plugin))

    def _with(self, changes: dict[str, Any], loaded: Loaded) -> Host:
        refused = sorted(name for name in changes if name.startswith(_LOADING))
        if refused:
            raise UsageError(f"{', '.join(refused)}: only a new Host can change this")
        return Host(
            replace(self.options, **changes),
            self._extra_plugins,
            own_process=self._own_process,
            loaded=loaded,
        )

    def _apply_options(self) -> None:
        """Validate the options that affect no loading, and read the feeds."""
        self._disabled = disabled_passes(
            self.options,
            {spec.name: spec.default for spec in self.passes},
            self.unregistered,
        )
        check_settings(
            self.options.settings,
            self.declared_options(),
            undeclared=(GE_PREFIX, *(f"{spec.name}." for spec in self.passes if spec.any_option)),
        )
        facts = [text for text in self.options.assume if is_fact(text)]
        check_assumptions(
            [name for name in self.options.assume if name not in facts],
            [option for spec in self.passes for option in spec.options],
        )
        Scope().assume_all(facts)  # refuses what is none, or contradicts another one
        Target.of(self.options.target)
        self._feeds: list[dict[str, Any]] | None = None
        if self.options.feeds is not None:
            from gehost.verify import load_feeds

            self._feeds = [load_feeds(self.options.feeds)]

    @contextmanager
    def vendor_code(self) -> Generator[None]:
        """Install vendors' modules and operators as during a compile."""
        with self._loaded.modules.installed(), declared_in(self.ops):
            yield

    def compile(self, model: str | os.PathLike[str], output: str | os.PathLike[str]) -> Report:
        """Compile a model file; write the output whole or not at all.

        With ``verify``, the model is compared with the original before it replaces the output. If
        its numbers differ, it goes to ``<name>.refused.onnx`` beside the output, which stays as it
        was.

        Raises:
            ModelError: the model cannot be read, is not valid, or does not run in ONNX Runtime
                (with ``verify``).
            UsageError: the feeds do not fit the model, or its numbers cannot be compared.
            VendorError: a plugin's hook failed.
            PassError: a pass failed.
            OutputError: the output or a dump cannot be written.
            NumbersDifferError: the compiled model gives other numbers; has the ``report``.
        """
        path, target = _path(model, "model"), _path(output, "output")
        self.importers.check_output(target)
        report = Report(model=path, options=self.options.as_dict())
        with self.compiled(path, report) as compiled:
            difference = self._difference(
                lambda: self.original(path), lambda: self._load(path), compiled, report
            )
            if difference:
                raise _refusal(compiled, path, target, report)
            try:
                result = self._in_half(compiled, report)
            except NumbersDifferError as error:
                half = Model(error.model, path=compiled.path)
                where, cause = _kept(half, path, target)
                error.args = (f"{error.message}; {where}",)
                raise error from cause
            with report.timed("save"):
                result.save(target)
        return report

    @contextmanager
    def compiled(self, path: str, report: Report) -> Generator[Model]:
        """Yield a model file after all stages, not saved.

        It is usable until the block ends.

        Raises:
            GehostError: as ``compile`` does.
        """
        with self._compiled(lambda: self._load(path), report) as model:
            yield model

    def _load(self, path: str) -> Model:
        return self.importers.load(path, self.options.settings)

    def original(
        self, path: str, libraries: Sequence[str | os.PathLike[str]] | None = None
    ) -> Runner:
        """Return a runner of the uncompiled model, the reference for ``verify``.

        The model is the file, or the result of its importer, with the dimensions of ``dims`` fixed.

        Args:
            path: the file.
            libraries: of custom operators; default: those of the options.

        Raises:
            ModelError: it cannot be read or loaded.
            UsageError: a dimension cannot be fixed, or a library cannot be loaded.
        """
        from gehost.verify import Runner

        settings, dims = self.options.settings, self.options.dims
        chosen = self.options.ort_libraries if libraries is None else libraries
        if not dims:
            return Runner(self.importers.original(path, settings), libraries=chosen, widens=True)
        model = self.importers.load(path, settings)
        fixed = with_dims(model, dims).flush()
        return Runner(fixed, base_dir=model.base_dir, libraries=chosen, widens=True)

    @overload
    def run(
        self, model: onnx.ModelProto | str | os.PathLike[str]
    ) -> tuple[onnx.ModelProto, Report]: ...

    @overload
    def run(self, model: IrModel) -> tuple[IrModel, Report]: ...

    def run(self, model: Any) -> tuple[Any, Report]:
        """Compile a model and return the result in memory.

        The given model stays as it is.

        Args:
            model: an ``onnx.ModelProto`` or an ``onnx_ir.Model``, whose type the result has; or a
                file, whose result is an ``onnx.ModelProto`` with all weights in it.

        Raises:
            UsageError: ``model`` is something else.
            ModelError: the model is not valid.
            VendorError: a plugin's hook failed.
            PassError: a pass failed.
            OutputError: a dump cannot be written.
            NumbersDifferError: with ``verify``, the compiled model gives other numbers; has the
                ``report`` and, as ``ModelProto``, the ``model``.
        """
        if isinstance(model, str | os.PathLike):
            path = os.fspath(cast("str | os.PathLike[str]", model))
            report = Report(model=path, options=self.options.as_dict())
            with self.compiled(path, report) as compiled:
                difference = self._difference(
                    lambda: self.original(path), lambda: self._load(path), compiled, report
                )
                result = self._in_half(compiled, report, differs=bool(difference)).flush()
                load_external_data_for_model(result, compiled.base_dir or "")
            return self._finished(result, report, difference, path)
        if isinstance(model, onnx.ModelProto):
            return self._run_proto(model)
        onnx_ir = sys.modules.get("onnx_ir")  # it is there where a caller has one of its models
        if onnx_ir is not None and isinstance(model, onnx_ir.Model):
            result, report = self._run_proto(onnx_ir.to_proto(model))
            return onnx_ir.from_proto(result), report
        raise UsageError(
            f"Host.run wants a path, an onnx.ModelProto or an onnx_ir.Model, got "
            f"{type(model).__name__}"
        )

    def _run_proto(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, Report]:
        report = Report(model=model.graph.name, options=self.options.as_dict())

        def load() -> Model:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            return Model(copy)

        with self._compiled(load, report) as compiled:

            def original() -> onnx.ModelProto:
                dims = self.options.dims
                return with_dims(load(), dims).flush() if dims else model

            difference = self._difference(original, load, compiled, report)
            result = self._in_half(compiled, report, differs=bool(difference)).flush()
        return self._finished(result, report, difference, compiled)

    def _finished(
        self, result: onnx.ModelProto, report: Report, difference: str, where: object
    ) -> tuple[onnx.ModelProto, Report]:
        """Return the result, or raise ``NumbersDifferError`` where there is a difference."""
        if difference:
            error = NumbersDifferError(
                f"the compiled model gives other numbers: {difference}", where=where
            )
            error.report, error.model = report, result
            raise error
        return result, report

    @contextmanager
    def _compiled(self, load: Callable[[], Model], report: Report) -> Generator[Model]:
        """Yield a model after all stages, closed when the block ends."""
        with ExitStack() as stack:
            stack.enter_context(exclusive())
            with self._loaded.modules.installed():
                spare = stack.enter_context(gc_frozen_models(own_process=self._own_process))
                with report.timed("load"):
                    model = load()
                spare(model)
                with report.timed("check"):
                    validate(model)
                used = Usage.of(model)
                for step in PREPARATIONS:
                    if step.applies(self.options, model):
                        with report.timed(step.label):
                            model = step.run(model, self.options, report)
                        spare(model)
                stack.callback(model.close)
                model.has_bodies_apart = self._has_bodies_apart
                self._compile(model, report, used)
            yield model

    def _difference(
        self,
        original: Callable[[], onnx.ModelProto | Runner],
        load: Callable[[], Model],
        compiled: Model,
        report: Report,
    ) -> str:
        """Return how a compiled model's numbers differ, "" if equal or unverified."""
        if not self.options.verify:
            return ""
        from gehost.verify import Baseline, Runner

        with report.timed("verify"):
            source, options = original(), self.options
            runner = (
                source
                if isinstance(source, Runner)
                else Runner(source, libraries=options.ort_libraries, widens=True)
            )
            baseline = Baseline.of(
                runner,
                self._feeds,
                special_values=options.special_values,
                rtol=options.rtol,
                atol=options.atol,
                provider=options.provider,
            )
            bodiless = [] if options.ort_libraries else self._bodiless(compiled)

            def of_widened(model: onnx.ModelProto) -> onnx.ModelProto:
                again = self._another(has_bodies_apart=bool(bodiless), dims={}, opset=None)
                return again.run(model)[0]

            with ExitStack() as stack:
                if bodiless:
                    report.notes.append(
                        f"{bodiless[0]}: verified by its bodies, as its runtime is not here"
                    )
                    again = self._another(has_bodies_apart=True)
                    block = again._compiled(load, Report(report.model))  # noqa: SLF001
                    compiled = stack.enter_context(block)
                result = baseline.against(
                    compiled.flush(), base_dir=compiled.base_dir, of_widened=of_widened
                )
            report.verify = result.as_dict()
        return "" if result.equal else result.summary()

    def _in_half(self, compiled: Model, report: Report, *, differs: bool = False) -> Model:
        """Return a compiled model in float16 where the options say so, else itself."""
        if not self.options.half or differs:
            return compiled
        from gehost.host.in_half import in_half  # with the comparison of numbers behind it

        return in_half(compiled, self.options, self._feeds, report)

    def _bodiless(self, compiled: Model) -> list[str]:
        """Return operators of other runtimes that need several bodies, so that none is written."""
        from gehost.verify import is_onnx_runtime

        called = {op for graph in compiled.graphs for op in graph.by_op}
        definitions = [self.ops.get(op) for op in sorted(compiled.withheld & called)]
        return [
            definition.name
            for definition in definitions
            if definition is not None and not is_onnx_runtime(definition.provided_by)
        ]

    def _another(self, *, has_bodies_apart: bool, **changes: Any) -> Host:
        """Return a host for a compile with the same options, not verified."""
        options = self.options
        again = replace(options.rewrites_only(), rewrite_limit=options.rewrite_limit, **changes)
        host = Host(again, self._extra_plugins)
        host._has_bodies_apart = has_bodies_apart
        return host

    def _compile(self, model: Model, report: Report, used: Usage) -> None:
        report.notes.extend(self.notes)
        note = release_note(Target.of(self.options.target))
        report.notes.extend([note] if note else [])
        if self.options.half:
            from gehost.half import stays  # with the comparison of numbers behind it

            why = stays(model.flush())
            report.half = not why
            report.notes.extend([why] if why else [])
        report.notes.extend(
            f"{owner} is off, so its settings have no effect; turn it on (--enable {owner})"
            for owner in sorted(self._disabled)
            if any(key.startswith(f"{owner}.") for key in self.options.settings)
        )
        report.notes.extend(
            f"{op} is deprecated; it is left as it is" for op in deprecated_operators(model)
        )
        for problem in self.problems:
            report.keep_going(problem, VendorError.exit_code)
        counts = op_counts(model)
        report.op_types_before, report.nodes_before = counts, sum(counts.values())
        context = CompileContext(
            model, self.options, self.ops, inferrer_of(model, self.ops), report
        )
        loaded = self._loaded
        executor = Executor(
            context, loaded.plugins, loaded.passes, self._disabled, loaded.instances
        )
        start = model.mark()
        executor.notify("gehost_compile_started", context=context)
        for row in PIPELINE:
            if row.before is not None:
                row.before.run(context)
            before = executor.seconds_notifying
            try:
                with report.timed("passes"):
                    executor.run_stage(row)
            finally:
                report.seconds["passes"] -= executor.seconds_notifying - before
        if self.options.cleanup:
            clean_leftovers(context)
            with report.timed("cleanup"):
                remove_unused(model, used)
        with report.timed("check"):
            if model.mark() > start:
                drop_false_types(model)
                declare_widths(model)
                declare_results(model, [op.name for op in self.ops if op.provided_by])
            _final_check(model, report)
        if self.options.assume:
            model.set_metadata("gehost.assumed", ", ".join(sorted(set(self.options.assume))))
        name_runtimes(model, self.options.target, report)
        counts = op_counts(model)
        report.op_types_after, report.nodes_after = counts, sum(counts.values())
        executor.notify("gehost_compile_finished", context=context)
        report.notes.extend(
            f"{op} has no body in the model, as its calls need several: it runs in "
            f"{definition.provided_by} alone"
            for op in sorted(model.withheld & counts.keys())
            if (definition := self.ops.get(op)) is not None
        )
        if executor.seconds_notifying:
            report.seconds["hooks"] = executor.seconds_notifying


def _refusal(model: Model, path: str, output: str, report: Report) -> NumbersDifferError:
    """Save a model whose numbers differ; return the error naming it."""
    if any(record.replaced for record in report.passes):
        advice = "gehost bisect finds the rewrite"
    else:
        opset = report.options["opset"]
        converted = "" if opset is None else f"the conversion to opset {opset} or "
        advice = f"no pass rewrote anything: {converted}the clean-up did it (try --no-cleanup)"
    where, cause = _kept(model, path, output)
    error = NumbersDifferError(
        f"the numbers differ from those of {path}: {report.verify['summary']}; {where}; {advice}",
        where=output,
    )
    error.report, error.__cause__ = report, cause
    return error


def _kept(model: Model, path: str, output: str) -> tuple[str, OutputError | ModelError | None]:
    """Save a refused model beside the output.

    Returns:
        Where it is, as text; why it is nowhere, or None.
    """
    refused = f"{output.removesuffix('.onnx')}.refused.onnx"
    while os.path.exists(refused) and os.path.samefile(refused, path):
        refused = f"{refused.removesuffix('.onnx')}.refused.onnx"
    try:
        model.save(refused)
    except (OutputError, ModelError) as failure:
        return f"the refused model was not kept: {failure}", failure
    return f"the refused model is {refused}", None


def _path(path: Any, what: str) -> str:
    """Return a path as text.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(path, str | os.PathLike):
        advice = "; Host.run takes models" if isinstance(path, onnx.ModelProto) else ""
        raise UsageError(
            f"Host.compile wants the path of a file as {what}, got {type(path).__name__}{advice}"
        )
    return os.fspath(cast("str | os.PathLike[str]", path))


def _final_check(model: Model, report: Report) -> None:
    """Check the index and, if the input passed it, by ``onnx.checker``.

    Raises:
        PassError: a check failed; names the passes that changed something.
    """
    try:
        model.check()
    except (
        Exception
    ) as error:  # the input was valid when it was loaded: a pass bypassed the Graph's methods
        ran = [record for record in report.passes if record.status in ("done", "not changed")]
        raise PassError(
            f"the graph is not sound after {_listed(ran) or 'hooks'}: {described(error)}"
        ) from error
    finding = checker_finding(model)
    if finding:
        changed = [record for record in report.passes if record.status == "done"]
        raise PassError(
            f"the model is not valid after {_listed(changed) or 'clean-up and hooks'}: {finding}"
        )


def _listed(records: Sequence[PassRecord]) -> str:
    return ", ".join(f"{record.name} ({record.origin})" for record in records)
