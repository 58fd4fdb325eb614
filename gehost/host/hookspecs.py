"""Hooks that a plugin or a vendor module may implement.

The docstring of each begins with the time of its call.

Mark an implementation with ``gehost.hookimpl``. Arguments may be left out. Calls run in the order
of loading: the host's own plugins, installed plugins by name, vendor modules in lexical order;
``tryfirst`` and ``trylast`` work, wrappers do not. An exception in a hook ends the compile and
names the plugin; with ``keep_going`` it is reported and the compile goes on.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    from gehost.errors import GehostError
    from gehost.host.context import CompileContext
    from gehost.host.importers import ImporterRegistry
    from gehost.host.kinds import KindRegistry
    from gehost.host.new_pass_styles import StyleRegistry
    from gehost.host.registry import PassRegistry, PassSpec
    from gehost.ir.graph import Graph, Node
    from gehost.ops import OpRegistry
    from gehost.passes.context import PassRecord, Rewrite
    from gehost.passes.ge_utils import ReplacementNode
    from gehost.pattern.source import SourcePattern
    from gehost.refusal import Refusal

hookspec = pluggy.HookspecMarker("gehost")
hookimpl = pluggy.HookimplMarker("gehost")


@hookspec
def gehost_import_path() -> str | None:
    """Called once for each host, before vendor files load: add a directory to import from.

    While vendor code runs, modules of this directory stand before installed ones of the same
    names. Only installed plugins are called.
    """


@hookspec
def gehost_register_ops(registry: OpRegistry) -> None:
    """Called once for each host: add custom operators to ``registry``.

    Vendor modules are loaded by then.
    """


@hookspec
def gehost_register_passes(registry: PassRegistry) -> None:
    """Called once for each host: add passes to ``registry``.

    Vendor modules are loaded by then. The passes run after the vendors' passes of their stage.
    """


@hookspec
def gehost_register_importers(registry: ImporterRegistry) -> None:
    """Called once for each host: add readers for further input formats.

    They are found by file suffix. Commands that read a model without a host call it, too.
    """


@hookspec
def gehost_register_commands(cli: click.Group) -> None:
    """Called when the command line starts: add commands to ``cli``.

    Only installed plugins are called.

    Import heavy modules inside the commands.
    """


@hookspec
def gehost_register_styles(registry: StyleRegistry) -> None:
    """Called by ``gehost new``: add styles in which it writes passes.

    Only installed plugins are called.
    """


@hookspec
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Called for each loaded vendor module: add passes to ``registry``.

    They are the passes that the module writes in your style.
    """


@hookspec
def gehost_tune_kinds(registry: KindRegistry) -> None:
    """Called by ``gehost tune``: ``registry.add("name", [passes])`` groups passes that are measured
    as one kind.
    """


@hookspec
def gehost_compile_started(graph: Graph, context: CompileContext) -> None:
    """Called once a compile, before any pass runs: read only.

    The model is loaded.
    """


@hookspec
def gehost_before_infershape(graph: Graph, context: CompileContext) -> None:
    """Called after the passes of ``kBeforeInferShape``: may edit.

    The edits are checked and undone like a pass's.
    """


@hookspec
def gehost_after_infershape(graph: Graph, context: CompileContext) -> None:
    """Called after the passes of ``kAfterInferShape``: may edit.

    The edits are checked and undone like a pass's.
    """


@hookspec
def gehost_after_builtin_fusion_pass(graph: Graph, context: CompileContext) -> None:
    """Called after the passes of ``kAfterBuiltinFusionPass``: may edit; the edits are checked
    and undone like a pass's.
    """


@hookspec
def gehost_after_origin_graph_optimize(graph: Graph, context: CompileContext) -> None:
    """Called after the passes of ``kAfterOriginGraphOptimize``: may edit; the edits are checked
    and undone like a pass's.
    """


@hookspec
def gehost_stage_finished(graph: Graph, context: CompileContext) -> None:
    """Called after each stage (``context.stage``), its passes and its hook: read only."""


@hookspec
def gehost_compile_finished(graph: Graph, context: CompileContext) -> None:
    """Called once a compile, after the final check: read only.

    The model is not saved yet.
    """


@hookspec
def gehost_before_pass(spec: PassSpec, graph: Graph) -> None:
    """Called before a pass runs on the model: read only."""


@hookspec
def gehost_after_pass(spec: PassSpec, graph: Graph, record: PassRecord) -> None:
    """Called after a pass ran, with its record: read only."""


@hookspec
def gehost_pass_failed(spec: PassSpec | None, graph: Graph, error: GehostError) -> None:
    """Called after a pass failed and was undone: read only.

    The compile ends or goes on after it. ``spec`` is None for a stage hook.
    """


@hookspec
def gehost_before_rule(record: PassRecord, source: SourcePattern, graph: Graph) -> None:
    """Called before a rule of a pass is tried: read only.

    Its pattern is lowered to the model's opset.
    """


@hookspec
def gehost_before_rewrite(rewrite: Rewrite) -> None:
    """Called before a pass replaces a match: read only.

    The match may still be refused.
    """


@hookspec
def gehost_after_rewrite(rewrite: Rewrite) -> None:
    """Called after a pass replaced a match: read only.

    ``rewrite.made`` holds the new nodes.
    """


@hookspec
def gehost_match_refused(record: PassRecord, node: Node, reason: str, refusal: Refusal) -> None:
    """Called when a match is not replaced: read only.

    ``node`` is the match's, ``reason`` the text of ``refusal``.
    """


@hookspec
def gehost_check_node_support(node: Node | ReplacementNode) -> bool | str | None:
    """Called by ``GeUtils.CheckNodeSupport``; returns whether the target runs ``node``.

    Return False or a reason if the target cannot run it; return None or True otherwise.
    """


HOOKS = tuple(name for name in globals() if name.startswith("gehost_"))
"""The names of all hooks, in the order of their definition."""
