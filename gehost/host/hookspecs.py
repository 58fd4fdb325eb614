"""Every hook that a plugin or a vendor module may implement, and when it is called.

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

hookspec = pluggy.HookspecMarker("gehost")
hookimpl = pluggy.HookimplMarker("gehost")


@hookspec
def gehost_register_ops(registry: OpRegistry) -> None:
    """Called once for each host, after vendor modules were loaded: add custom operators to
    ``registry``.
    """


@hookspec
def gehost_register_passes(registry: PassRegistry) -> None:
    """Called once for each host, after vendor modules were loaded: add passes to ``registry``.
    They run after the vendors' passes of their stage.
    """


@hookspec
def gehost_register_importers(registry: ImporterRegistry) -> None:
    """Called once for each host, and by commands that read a model without one: add readers for
    further input formats, by file suffix.
    """


@hookspec
def gehost_register_commands(cli: click.Group) -> None:
    """Called when the command line starts, for installed plugins: add commands to ``cli``.

    Import heavy modules inside the commands.
    """


@hookspec
def gehost_register_styles(registry: StyleRegistry) -> None:
    """Called by ``gehost new``, of installed plugins: add styles in which it writes passes."""


@hookspec
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    """Called for each vendor module after it was loaded: add the passes written in your style to
    ``registry``.
    """


@hookspec
def gehost_tune_kinds(registry: KindRegistry) -> None:
    """Called by ``gehost tune``: ``registry.add("name", [passes])`` groups passes that are measured
    as one kind.
    """


@hookspec
def gehost_compile_started(graph: Graph, context: CompileContext) -> None:
    """Called once a compile, when the model is loaded and no pass has run: read only."""


@hookspec
def gehost_before_infershape(graph: Graph, context: CompileContext) -> None:
    """Called after the passes of ``kBeforeInferShape``: may edit; the edits are checked and
    undone like a pass's.
    """


@hookspec
def gehost_after_infershape(graph: Graph, context: CompileContext) -> None:
    """Called after the passes of ``kAfterInferShape``: may edit; the edits are checked and
    undone like a pass's.
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
    """Called once a compile, after the final check and before the model is saved: read only."""


@hookspec
def gehost_before_pass(spec: PassSpec, graph: Graph) -> None:
    """Called before a pass runs on the model: read only."""


@hookspec
def gehost_after_pass(spec: PassSpec, graph: Graph, record: PassRecord) -> None:
    """Called after a pass ran, with its record: read only."""


@hookspec
def gehost_pass_failed(spec: PassSpec | None, graph: Graph, error: GehostError) -> None:
    """Called after a pass (``spec`` None: a stage hook) failed and was undone, before the
    compile ends or goes on: read only.
    """


@hookspec
def gehost_before_rule(record: PassRecord, source: SourcePattern, graph: Graph) -> None:
    """Called before a rule of a pass is tried on a graph, its pattern lowered to the model's
    opset: read only.
    """


@hookspec
def gehost_before_rewrite(rewrite: Rewrite) -> None:
    """Called before a pass replaces a match, which may still be refused: read only."""


@hookspec
def gehost_after_rewrite(rewrite: Rewrite) -> None:
    """Called after a pass replaced a match; ``rewrite.made`` holds the new nodes: read only."""


@hookspec
def gehost_match_refused(record: PassRecord, node: Node, reason: str) -> None:
    """Called when the match at ``node`` is not replaced, with the whole reason: read only."""


@hookspec
def gehost_check_node_support(node: Node | ReplacementNode) -> bool | str | None:
    """Called by ``GeUtils.CheckNodeSupport``. Return False or a reason if the target cannot run
    ``node``; return None or True otherwise.
    """


HOOKS = tuple(name for name in globals() if name.startswith("gehost_"))
"""The names of all hooks, in the order of their definition."""
