"""The table of stages agrees with the stages, the hooks, docs/tools.md and what a compile does."""

import re
from pathlib import Path
from typing import Any

from gehost import hookimpl
from gehost.host.hookspecs import HOOKS
from gehost.host.pipeline import CLEAN_UP, PIPELINE, SHAPE_INFERENCE, stages_before
from gehost.stages import RUN_STAGES
from gehost.testing import parse

ROOT = Path(__file__).parents[2]
MODEL = (
    """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) { y = Relu(x) }"""
)


def test_each_stage_has_one_row_in_order():
    assert tuple(row.stage for row in PIPELINE) == RUN_STAGES


def test_each_stage_has_a_hook_of_its_own_and_a_dump_of_its_own():
    assert [row.hook for row in PIPELINE] == [
        hook for hook in HOOKS if hook in {row.hook for row in PIPELINE}
    ]
    assert len({row.dump for row in PIPELINE}) == len(PIPELINE)


def test_the_page_of_tools_draws_the_table():
    text = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    actual = re.search(r"^load → `PreRunBegin` → (.*?) → leftovers", text, re.MULTILINE | re.DOTALL)
    assert actual is not None
    stages = re.sub(r" \([^)]*\)", "", " ".join(actual[1].split())).split(" → ")
    assert stages == [
        part
        for row in PIPELINE
        for part in (*([row.before.name] if row.before else []), f"**`{row.stage.name}`**")
    ]


def test_built_in_work_runs_before_its_stage():
    assert [stage.name for stage in stages_before(SHAPE_INFERENCE)] == ["kBeforeInferShape"]
    assert [stage.name for stage in stages_before(CLEAN_UP)] == [
        "kBeforeInferShape",
        "kAfterInferShape",
    ]


def test_the_context_names_the_stage_hooks_that_edited(vendors: Any):
    class Looks:
        @hookimpl
        def gehost_before_infershape(self, graph: Any) -> None:
            assert graph.nodes_of("Relu")

    class Edits:
        @hookimpl
        def gehost_after_infershape(self, graph: Any) -> None:
            graph.set_metadata(next(graph.nodes), "edited", "yes")

        @hookimpl
        def gehost_compile_finished(self, context: Any) -> None:
            edits.extend(context.hook_edits)

    edits: list[tuple[str, str]] = []
    vendors.host(plugins=[("looks", Looks()), ("edits", Edits())]).run(parse(MODEL))
    assert edits == [("gehost_after_infershape", "edits")]
