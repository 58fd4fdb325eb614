"""What a host loads once: plugins, vendor files, and all that they register."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

from gehost.errors import VendorError
from gehost.host import ge_style
from gehost.host.compile_stat import CompileStat
from gehost.host.containment import contained, process_state_restored
from gehost.host.dumper import Dumper
from gehost.host.importers import ImporterRegistry
from gehost.host.plugins import Plugins, installed_plugins, may_have_hooks
from gehost.host.registry import PassRegistry, PassSpec, Unregistered
from gehost.host.switches import read_switch_file
from gehost.host.vendors import (
    VendorFile,
    VendorModules,
    broken_links,
    fault_of,
    find_vendor_files,
    modules_of,
)
from gehost.ir.gc_policy import gc_disabled
from gehost.ops import OpRegistry, declares_operators
from gehost.options import HostOptions
from gehost.passes.base import PatternFusionPass
from gehost.rewrite.functions import check_body
from gehost.settings import PassOption
from gehost.spelling import counted

REGISTERS_NOTHING = (
    "it registers no pass; mark the class with REG_FUSION_PASS or REG_DECOMPOSE_PASS, or "
    "install the plugin that claims its style"
)
"""The reason for skipping a vendor file that registers nothing."""

NamedPlugins = Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Loaded:
    """Plugins, vendor files, and what they register; hosts of other options share it."""

    passes: PassRegistry
    ops: OpRegistry
    importers: ImporterRegistry
    plugins: Plugins
    modules: VendorModules
    unregistered: list[Unregistered]
    """Classes that look like passes and are not registered."""
    skipped: list[str]
    """Files below the vendors' directories that are not passes, and why."""
    problems: list[str]
    """Vendor files that could not be loaded (with ``keep_going``)."""
    notes: list[str]
    """Likely mistakes: classes that are not registered, no passes, skipped files."""
    instances: dict[str, PatternFusionPass] = field(default_factory=dict[str, PatternFusionPass])
    """Passes of earlier compiles whose patterns are used again."""

    def with_new_instances(self) -> Loaded:
        """Return the same without the passes of earlier compiles."""
        return replace(self, instances={})

    def with_pass(self, spec: PassSpec, namespace: Mapping[str, Any]) -> Loaded:
        """Return the same with one more pass, and the operators that its file registers.

        Raises:
            VendorError: a pass of this name is loaded, or an operator is declared differently.
        """
        passes, ops = self.passes.copy(), self.ops.copy()
        passes.add(spec)
        ops.add_marked(namespace)
        return replace(self, passes=passes, ops=ops, instances={})

    def only(self, spec: PassSpec, name: str, plugin: Any) -> Loaded:
        """Return the same with one pass and the hooks of one plugin, and all operators."""
        passes = self.passes.copy()
        passes.keep_only(spec)
        return replace(self, passes=passes, plugins=Plugins([(name, plugin)]), instances={})

    def declared_options(self) -> dict[str, Sequence[PassOption]]:
        """Return the options of each pass and importer, by name.

        Raises:
            VendorError: a pass and an importer have the same name.
        """
        declared = {spec.name: spec.options for spec in self.passes}
        for name, options in self.importers.options.items():
            if name in declared:
                raise VendorError(
                    f"importer {name}: a pass of this name is registered",
                    hint="rename the importer",
                )
            declared[name] = options
        return declared


def load(options: HostOptions, plugins: NamedPlugins) -> Loaded:
    """Load the plugins and vendor files that the options name.

    Args:
        options: those that decide what is loaded.
        plugins: further plugins, by name; their hooks are called first.

    Raises:
        UsageError: a directory of vendors does not exist.
        VendorError: a vendor file or plugin cannot be loaded.
    """
    with gc_disabled():  # modules, classes and patterns stay
        return _Loader(options).load(plugins)


class _Loader:
    """Fills the registries."""

    def __init__(self, options: HostOptions) -> None:
        self._options = options
        self._passes, self._ops, self._importers = PassRegistry(), OpRegistry(), ImporterRegistry()
        self._problems: list[str] = []

    def load(self, plugins: NamedPlugins) -> Loaded:
        own = [*plugins, *self._own_plugins()]
        collectors = Plugins(own)
        self._modules = VendorModules(_import_paths(collectors))
        with self._modules.installed():
            hooked = self._load_vendors(collectors)
            self._plugins = Plugins([*own, *hooked]) if hooked else collectors
            self._register("gehost_register_ops", self._ops)
            self._register_passes()
            self._register("gehost_register_importers", self._importers)
            unregistered = self._passes.unregistered()
        return Loaded(
            self._passes,
            self._ops,
            self._importers,
            self._plugins,
            self._modules,
            unregistered,
            self._skipped,
            self._problems,
            [*self._broken_links, *map(str, unregistered), *self._summary(), *self._switch_notes()],
        )

    def _own_plugins(self) -> list[tuple[str, Any]]:
        options = self._options
        results: list[tuple[str, Any]] = [("ge_style", ge_style)]
        if options.dump is not None:
            results.append(("dumper", Dumper(os.fspath(options.dump), options)))
        if options.compile_stat is not None:
            results.append(("compile_stat", CompileStat(os.fspath(options.compile_stat))))
        return [*results, *installed_plugins()] if options.plugins else results

    def _register(self, name: str, registry: OpRegistry | ImporterRegistry) -> None:
        for hook in self._plugins.each(name):
            try:
                with contained(hook):
                    before = len(self._ops)
                    hook(registry=registry)
                    for definition in list(self._ops)[before:]:
                        check_body(definition)
            except VendorError as error:
                self._go_on_or_raise(error)

    def _register_passes(self) -> None:
        """Let each plugin add its passes; its name is their vendor."""
        for hook in self._plugins.each("gehost_register_passes"):
            try:
                with (
                    contained(hook),
                    self._passes.loading(hook.plugin.partition("/")[0], from_plugin=True),
                ):
                    hook(registry=self._passes)
            except VendorError as error:
                self._go_on_or_raise(error)

    def _go_on_or_raise(self, error: VendorError) -> None:
        if not self._options.keep_going:
            raise error
        self._problems.append(str(error))

    def _load_vendors(self, collectors: Plugins) -> list[tuple[str, ModuleType]]:
        """Load the vendor files; returns those that have hooks."""
        result = find_vendor_files(self._options.vendors, self._options.pass_paths)
        files, self._skipped = result.files, result.skipped
        self._broken_links = broken_links(result.skipped)
        self._vendors, self._unexpected = result.vendors, result.unexpected
        self._used: list[VendorFile] = []
        hooked: list[tuple[str, ModuleType]] = []
        declared: set[int] = set()
        """Ids of the namespaces whose operators are declared: a helper belongs to several files."""
        for file in files:
            before = self._ops
            try:
                with self._passes.loading(file.vendor), process_state_restored():
                    plugin = (file.plugin_name, self._modules.load(file))
                    # validates the hooks while the file can still be skipped
                    hooks = may_have_hooks(plugin[1]) and Plugins([plugin])
                    passes = len(self._passes)
                    self._collect_passes(plugin[1], collectors)
                    namespaces = {id(part): part for part in _namespaces(plugin[1])}
                    self._ops = before.copy()
                    for key, namespace in namespaces.items():
                        if key not in declared:
                            self._ops.add_marked(namespace)
                    for definition in list(self._ops)[len(before) :]:
                        check_body(definition)
                is_library = bool(hooks) or any(map(declares_operators, namespaces.values()))
                if not is_library and passes == len(self._passes):
                    self._skipped.append(f"{file.path}: {REGISTERS_NOTHING}")
                    self._unexpected += 1
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # noqa: BLE001 - inspecting a module may raise anything
                self._ops = before
                self._go_on_or_raise(fault_of(error, file))
            else:
                declared |= namespaces.keys()
                if is_library:
                    self._used.append(file)
                if hooks:
                    hooked.append(plugin)
        return hooked

    def _summary(self) -> list[str]:
        """Return a line if there are unexpectedly few passes."""
        passes = [spec for spec in self._passes if spec.default or not spec.from_plugin]
        if not self._options.vendors and not passes:
            return ["0 passes: no vendors given, so only the clean-up runs; name some (--vendors)"]
        used = {spec.vendor for spec in passes} | {file.vendor for file in self._used}
        idle = [vendor for vendor in dict.fromkeys(self._vendors) if vendor not in used]
        if not idle and not self._unexpected and passes:
            return []
        line = (
            f"{counted(len(passes), 'pass', 'passes')} of {counted(len(self._vendors), 'vendor')}"
        )
        if idle and used:
            line += f", none of {', '.join(idle)}"
        if self._skipped:
            line += f"; {counted(len(self._skipped), 'file')} skipped (-v lists them)"
        return [line]

    def _collect_passes(self, module: ModuleType, collectors: Plugins) -> None:
        batches: list[list[str]] = []
        for collect in collectors.each("gehost_collect_passes"):
            before = len(self._passes)
            with collect.blamed():
                collect(module=module, registry=self._passes)
            batches.append(self._passes.names()[before:])
        self._passes.arrange(batches)

    def _switch_notes(self) -> list[str]:
        """Return what the switch file names and this host does not have, and foreign evidence."""
        if self._options.fusion_switch_file is None:
            return []
        path = os.fspath(self._options.fusion_switch_file)
        switches = read_switch_file(path)
        foreign = [f"warning: {path}: {line}; run gehost tune again" for line in switches.foreign()]
        return [*foreign, *switches.unknown(self._passes.names(), path)]


def _namespaces(module: ModuleType) -> Iterator[dict[str, Any]]:
    """Yield the namespaces in which a vendor file and its helpers register operators."""
    for part in modules_of(module):
        yield vars(part)
    # helpers that sys.path finds are not in the vendor's package
    directory = os.path.join(os.path.dirname(module.__file__ or ""), "")
    for value in list(vars(module).values()):
        if type(value) is ModuleType:
            namespace = vars(value)
        elif type(value) is FunctionType:
            namespace = value.__globals__
        else:
            continue
        if str(namespace.get("__file__", "")).startswith(directory):
            yield namespace


def _import_paths(plugins: Plugins) -> list[str]:
    """Return the directories from which vendor files import plugins' modules."""
    paths: list[str] = []
    for hook in plugins.each("gehost_import_path"):
        with contained(hook):
            path: str | None = hook()
        if path is not None:
            paths.append(path)
    return paths
