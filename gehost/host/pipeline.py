"""The stages of a compile: one row each, in order.

A new stage needs a row here, its hook in ``hookspecs.py`` and its name in ``CustomPassStage``. The
host gives the executor one row after the other; the dumper and the commands that show or bisect a
stage look theirs up. docs/architecture.md lists the pages and tests that name stages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Final, NamedTuple

from gehost.errors import ModelError, VendorError
from gehost.host.context import CompileContext
from gehost.infer import infer_model
from gehost.infer.findings import type_findings, unloadable
from gehost.passes.cleanup import clean_up, take_branches
from gehost.stages import CustomPassStage


class BuiltIn(NamedTuple):
    """Built-in work of the host between two stages."""

    name: str
    run: Callable[[CompileContext], None]


class StageRow(NamedTuple):
    """One stage: passes in load order, then its hook, then a dump."""

    stage: CustomPassStage
    hook: str
    dump: str
    """The stage's part of a dump's file name."""
    before: BuiltIn | None = None
    """Runs before the stage's passes."""


def _infer_types(context: CompileContext) -> None:
    """Infer the types of the whole model, of each branch that is surely taken as its own."""
    if context.options.cleanup:
        take_branches(context.model, context.ops, context.inferrer)
    with context.report.timed("infer_shape"):
        try:
            infer_model(context.model, context.inferrer)
            why, hint = unloadable(context.model, context.inferrer)
            if why:
                raise ModelError(why, where=context.model, hint=hint)
            context.report.warnings.extend(type_findings(context.model, context.inferrer))
        except VendorError as error:  # the shape function or the body of a custom operator
            if not context.options.keep_going:
                raise
            context.report.keep_going(f"shape inference gave up: {error}", error.exit_code)
        context.inferred_at = context.model.mark()


def _clean_up(context: CompileContext) -> None:
    """Remove dead nodes, identities and common sub-expressions; fold constants."""
    if context.options.cleanup:
        is_edited = context.model.mark() > context.inferred_at
        _clean(context, is_edited=is_edited, room=context.options.room)


def clean_leftovers(context: CompileContext) -> None:
    """Clean up what later stages added or made dead, as a second compile would."""
    if context.cleaned_at is not None and context.model.mark() > context.cleaned_at:
        _clean(context, is_edited=False, room=0)


def _clean(context: CompileContext, *, is_edited: bool, room: int) -> None:
    model, report = context.model, context.report
    with report.timed("cleanup"):
        mark = model.mark()
        # what passes added takes the room that the weights that they replaced leave
        room -= max(0, context.added)
        try:
            result = clean_up(model, context.ops, context.inferrer, is_edited=is_edited, room=room)
            counts = asdict(result)
            report.cleanup = {what: n + report.cleanup.get(what, 0) for what, n in counts.items()}
            context.cleaned_at, context.added = model.mark(), 0
        except VendorError as error:  # as above
            if not context.options.keep_going:
                raise
            model.undo(mark)
            report.keep_going(f"clean-up gave up: {error}", error.exit_code)
        model.commit()


SHAPE_INFERENCE: Final = BuiltIn("shape inference", _infer_types)
CLEAN_UP: Final = BuiltIn("clean-up", _clean_up)

PIPELINE: Final = (
    StageRow(
        CustomPassStage.kBeforeInferShape,
        hook="gehost_before_infershape",
        dump="RunCustomPassBeforeInfershape",
    ),
    StageRow(
        CustomPassStage.kAfterInferShape,
        hook="gehost_after_infershape",
        dump="RunCustomPass_AfterInferShape",
        before=SHAPE_INFERENCE,
    ),
    StageRow(
        CustomPassStage.kAfterBuiltinFusionPass,
        hook="gehost_after_builtin_fusion_pass",
        dump="RunCustomPassAfterBuiltinFusionPass",
        before=CLEAN_UP,
    ),
    StageRow(
        CustomPassStage.kAfterOriginGraphOptimize,
        hook="gehost_after_origin_graph_optimize",
        dump="RunCustomPassAfterOriginGraphOptimize",
    ),
)


def stages_before(work: BuiltIn) -> list[CustomPassStage]:
    """Return the stages that run before some built-in work."""
    position = next(index for index, row in enumerate(PIPELINE) if row.before is work)
    return [row.stage for row in PIPELINE[:position]]
