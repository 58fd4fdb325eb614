"""The host: loads vendors and plugins once, then compiles models."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from types import ModuleType
from typing import Any

import onnx
import onnx.checker
import onnx.inliner

from gehost.errors import PassError, VendorError
from gehost.host import ge_style
from gehost.host.context import CompileContext
from gehost.host.dumper import Dumper
from gehost.host.executor import Executor
from gehost.host.importers import ImporterRegistry
from gehost.host.plugins import Plugins, installed_plugins
from gehost.host.registry import PassRegistry
from gehost.host.report import Report, op_counts
from gehost.host.switches import disabled_passes
from gehost.host.vendors import VendorModules, find_vendor_files
from gehost.infer import Inferrer, infer_model
from gehost.ir.model import Model, collector_spared
from gehost.ir.skeleton import skeleton
from gehost.ops import OpRegistry
from gehost.options import HostOptions
from gehost.passes.cleanup import clean_up
from gehost.stages import RUN_STAGES, CustomPassStage


class Host:
    """Loads what ``options`` name and compiles models with it; two hosts share nothing.

    Example:
        >>> report = Host(HostOptions(vendors=["vendors"])).compile("m.onnx", "out.onnx")  # doctest: +SKIP
    """

    def __init__(self, options: HostOptions | None = None, plugins: Sequence[tuple[str, Any]] = ()) -> None:
        """Load vendors and plugins.

        Args:
            options: all defaults when None.
            plugins: further plugins of the caller's, by name; their hooks are called first.

        Raises:
            UsageError: a directory of vendors that does not exist, a switch for a pass that does not exist.
            VendorError: a vendor file or plugin that cannot be loaded.
        """
        self.options = options or HostOptions()
        self.passes = PassRegistry()
        self.ops = OpRegistry()
        self.importers = ImporterRegistry()
        self.skipped: list[str] = []
        """Files below the vendors that are no passes, and why."""
        self.problems: list[str] = []
        """Vendor files that could not be loaded, where the host keeps going."""
        self._modules = VendorModules()
        with self._modules.installed():
            own = [*plugins, *self._own_plugins()]
            self._plugins = Plugins([*own, *self._load_vendors(Plugins(own))])
            self._register("gehost_register_ops", self.ops)
            self._register("gehost_register_importers", self.importers)
        self._disabled = disabled_passes(self.options, self.passes.names())

    def _own_plugins(self) -> list[tuple[str, Any]]:
        options = self.options
        found: list[tuple[str, Any]] = [("ge_style", ge_style)]
        if options.dump is not None:
            dumper = Dumper(os.fspath(options.dump), options.dump_level, options.dump_format, each_pass=options.dump_passes)
            found.append(("dumper", dumper))
        return [*found, *installed_plugins()] if options.plugins else found

    def _register(self, name: str, registry: OpRegistry | ImporterRegistry) -> None:
        for hook in self._plugins.each(name):
            try:
                with hook.blamed():
                    hook(registry=registry)
            except VendorError as error:
                self._go_on_or_raise(error)

    def _go_on_or_raise(self, error: VendorError) -> None:
        if not self.options.keep_going:
            raise error
        self.problems.append(str(error))

    def _load_vendors(self, collectors: Plugins) -> list[tuple[str, ModuleType]]:
        files, self.skipped = find_vendor_files(self.options.vendors)
        loaded: list[tuple[str, ModuleType]] = []
        for file in files:
            try:
                with self.passes.loading(file.vendor):
                    plugin = (file.plugin_name, self._modules.load(file))
                    Plugins([plugin])  # proves its hooks, while it can still be left out
                    collectors.call("gehost_collect_passes", module=plugin[1], registry=self.passes)
                    self._add_ops([*loaded, plugin])
            except VendorError as error:
                self._add_ops(loaded)
                named = str(file.directory) in str(error)
                self._go_on_or_raise(error if named else VendorError(f"{file.path}: {error}"))
            else:
                loaded.append(plugin)
        return loaded

    def _add_ops(self, modules: Sequence[tuple[str, ModuleType]]) -> None:
        self.ops = OpRegistry()
        for _, module in modules:
            self.ops.add_marked(vars(module))

    def compile(self, model: str | os.PathLike[str], output: str | os.PathLike[str]) -> Report:
        """Compile a model file; the output is written whole or not at all.

        Raises:
            ModelError: the model cannot be read or is not valid.
            VendorError: a plugin's hook failed.
            PassError: a pass failed.
            OutputError: the output or a dump cannot be written.
        """
        path = os.fspath(model)
        report = Report(model=path)
        with self._compiled(lambda: self.importers.load(path), report) as compiled, self._timed(report, "save"):
            compiled.save(output)
        if self.options.verify:
            original = path if self.importers.find(path) is None else self.importers.load(path).flush()
            self._verify(original, os.fspath(output), report)
        return report

    def run(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, Report]:
        """Compile a model in memory; ``model`` itself is left as it is.

        Raises:
            ModelError: the model is not valid.
            VendorError: a plugin's hook failed.
            PassError: a pass failed.
            OutputError: a dump cannot be written.
        """
        report = Report(model=model.graph.name)
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        with self._compiled(lambda: Model(copy), report) as compiled:
            result = compiled.flush()
        if self.options.verify:
            self._verify(model, result, report)
        return result, report

    @contextmanager
    def _compiled(self, load: Callable[[], Model], report: Report) -> Generator[Model]:
        """A model after all stages, until the block ends."""
        with ExitStack() as stack:
            with self._modules.installed():
                with self._timed(report, "load"):
                    model = self._inlined(load(), report)
                stack.callback(model.close)
                stack.enter_context(collector_spared())
                self._compile(model, report)
            yield model

    def _verify(self, before: onnx.ModelProto | str, after: onnx.ModelProto | str, report: Report) -> None:
        from gehost.verify import compare

        with self._timed(report, "verify"):
            report.verify = compare(before, after).as_dict()

    def _inlined(self, model: Model, report: Report) -> Model:
        if not self.options.inline_functions or not model.functions:
            return model
        model.close()
        inlined = Model(onnx.inliner.inline_local_functions(model.proto), path=model.path)
        if inlined.functions:
            left = ", ".join(inlined.functions)
            report.problems.append(f"not inlined, as they import another opset than the model: {left}")
        return inlined

    def _compile(self, model: Model, report: Report) -> None:
        report.problems.extend(self.problems)
        counts = op_counts(model)
        report.op_types_before, report.nodes_before = counts, sum(counts.values())
        with self._timed(report, "check"):
            findings = _findings(model)
        context = CompileContext(model, self.options, self.ops, Inferrer(model, self.ops), report)
        executor = Executor(context, self._plugins, self.passes, self._disabled)
        executor.look("gehost_compile_started", context=context)
        for stage in RUN_STAGES:
            if stage is CustomPassStage.kAfterInferShape:
                with self._timed(report, "infer_shape"):
                    failure = infer_model(model, context.inferrer)
                if failure:
                    report.problems.append(f"shape inference gave up: {failure}")
            if stage is CustomPassStage.kAfterBuiltinFusionPass and self.options.cleanup:
                with self._timed(report, "cleanup"):
                    report.cleanup = asdict(clean_up(model, self.ops, context.inferrer))
                    model.commit()
            with self._timed(report, "passes"):
                executor.run_stage(stage)
        with self._timed(report, "check"):
            _final_check(model, findings, report)
        counts = op_counts(model)
        report.op_types_after, report.nodes_after = counts, sum(counts.values())
        executor.look("gehost_compile_finished", context=context)

    @staticmethod
    @contextmanager
    def _timed(report: Report, what: str) -> Generator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            report.seconds[what] = report.seconds.get(what, 0.0) + time.perf_counter() - start


def _findings(model: Model) -> str:
    """What ``onnx.checker`` says of a model, "" when it is content; weights are not looked at."""
    copy = skeleton(model.flush(), lambda _: False)
    stated = {info.name for info in copy.graph.input}
    for tensor in copy.graph.initializer:
        if tensor.name not in stated:
            copy.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    del copy.graph.initializer[:]
    try:
        onnx.checker.check_model(copy)  # pyright: ignore[reportUnknownMemberType] - onnx leaves PathLike's parameter open
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        return " ".join(str(error).split())
    return ""


def _final_check(model: Model, before: str, report: Report) -> None:
    """Prove the index, and that ``onnx.checker`` finds nothing where it found nothing in the input.

    Raises:
        PassError: it does; names the passes that changed something.
    """
    model.check()
    after = _findings(model)
    if after and not before:
        changed = [record.name for record in report.passes if record.status == "done"]
        raise PassError(f"the model is not valid after {', '.join(changed) or 'clean-up and hooks'}: {after}")
