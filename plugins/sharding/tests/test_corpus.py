"""Transformers of the corpus, planned, annotated, split from the annotations and run."""

from __future__ import annotations

import pytest

from gehost_sharding.launch import run_split
from gehost_sharding.mesh import Mesh
from gehost_sharding.partition import write_split
from gehost_sharding.plan import Planner
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, assert_equal, reread, split_run, whole_run
from .corpus import corpus, fixed_model

pytestmark = pytest.mark.corpus

MESH = Mesh(("data", "model"), (2, 2))


@pytest.mark.parametrize("name", ["bert.ts", "gpt2.dynopt", "llama.dynopt", "mobilenetv2.ts"])
def test_a_split_model_is_equal_and_sends_the_predicted_bytes(name: str, tmp_path: object) -> None:
    entries = [entry for entry in corpus() if entry["name"] == name]
    if not entries:
        pytest.skip("no corpus")
    graph, feeds = fixed_model(entries[0])
    solved = Planner(graph, MESH, SLOW, RuleTable()).plan().solved
    assert solved.minimum.is_proven
    actual, lock_step = split_run(reread(solved.assignment), feeds)
    assert_equal(whole_run(graph, feeds), actual)
    assert lock_step.sent == [solved.wire_bytes] * 4
    assert solved.wire_bytes > 0
    if name == "bert.ts":
        pytest.importorskip("mpi4py")
        write_split(solved.assignment, f"{tmp_path}/split", table=RuleTable())
        result = run_split(f"{tmp_path}/split", feeds, timeout=300)
        assert_equal(whole_run(graph, feeds), result.outputs)
        assert result.bytes == solved.wire_bytes
        assert result.output_bytes == solved.output_bytes == 6528
