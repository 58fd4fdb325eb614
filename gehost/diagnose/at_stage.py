"""Look at a model as a stage's first pass meets it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import TypeVar

from gehost.errors import GehostError, UsageError
from gehost.host.hookspecs import hookimpl
from gehost.host.host import Host
from gehost.host.pipeline import PIPELINE
from gehost.host.registry import PassSpec
from gehost.ir.graph import Graph
from gehost.ir.model import Model
from gehost.options import HostOptions
from gehost.spelling import hint

_Seen = TypeVar("_Seen")


class _Reached(GehostError):  # noqa: N818 - it ends a compile and is no error
    """Ends the compile at the stage."""


def at_stage(model: str, options: HostOptions, stage: str, look: Callable[[Model], _Seen]) -> _Seen:
    """Compile a file up to the passes of a stage.

    Returns the result of ``look`` on it.

    Args:
        model: the file.
        options: of the compile.
        stage: its name.
        look: gets the model as the first pass of the stage meets it, which is closed afterwards.

    Raises:
        UsageError: there is no such stage.
        ModelError: the model cannot be read.
    """
    row = next((row for row in PIPELINE if row.stage.name == stage), None)
    if row is None:
        stages = [row.stage.name for row in PIPELINE]
        advice = hint(stage, stages) or f"; stages: {', '.join(stages)}"
        raise UsageError(f"there is no stage {stage}{advice}", where="--stage")
    seen_graphs: list[_Seen] = []
    failures: list[GehostError] = []

    def see(graph: Graph) -> None:
        try:
            seen_graphs.append(look(graph.model))
        except GehostError as error:  # of ``look``; the compile would blame a plugin for it
            failures.append(error)

    def before_pass(spec: PassSpec, graph: Graph) -> None:
        if spec.stage is row.stage:
            see(graph)
            raise _Reached

    def stage_finished() -> None:
        if seen_graphs or failures:
            raise _Reached

    watch = SimpleNamespace(
        **{
            "gehost_before_pass": hookimpl(tryfirst=True)(before_pass),
            row.hook: hookimpl(tryfirst=True)(see),  # where no pass runs at the stage
            "gehost_stage_finished": hookimpl(tryfirst=True)(stage_finished),
        }
    )
    host = Host(options.rewrites_only(), plugins=[("at_stage", watch)])
    with suppress(_Reached):
        host.compile(model, os.devnull)  # ends before anything is written
    if failures:
        raise failures[0]
    return seen_graphs[0]
