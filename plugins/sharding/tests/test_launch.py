"""Split models in real processes, with collectives over MPI."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import UsageError
from gehost_sharding import launch
from gehost_sharding.assignment import Assignment
from gehost_sharding.launch import RankError, read_manifest, run_split
from gehost_sharding.mesh import Mesh
from gehost_sharding.partition import write_split
from gehost_sharding.plan import Plan, Planner
from gehost_sharding.rank import ALIVE
from gehost_sharding.rules.table import RuleTable

from .conftest import SLOW, assert_equal, differs, feeds_of, graph_of, reread, whole_run
from .models import block

pytest.importorskip("mpi4py")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Planner(block(), Mesh.parse("data=2,model=2"), SLOW, RuleTable()).plan()


@pytest.fixture
def split(plan: Plan, tmp_path: Path) -> Path:
    write_split(reread(plan.assignment), str(tmp_path / "split"), table=RuleTable())
    return tmp_path / "split"


def test_four_processes_compute_the_model_and_send_the_predicted_bytes(
    plan: Plan, split: Path
) -> None:
    graph = plan.assignment.graph
    feeds = feeds_of(graph)
    result = run_split(str(split), feeds, timeout=120)
    assert_equal(whole_run(graph, feeds), result.outputs)
    assert [rank["bytes"] for rank in result.ranks] == [plan.solved.wire_bytes] * 4
    assert [rank["output_bytes"] for rank in result.ranks] == [plan.solved.output_bytes] * 4
    assert plan.solved.wire_bytes > 0


@pytest.mark.parametrize("dialect", ["tensorrt", "onnxruntime"])
def test_the_other_dialects_run_in_processes(dialect: str, tmp_path: Path) -> None:
    plan = Planner(block(), Mesh.parse("x=2"), SLOW, RuleTable()).plan()
    write_split(plan.assignment, str(tmp_path / "s"), dialect=dialect, table=RuleTable())
    feeds = feeds_of(plan.assignment.graph)
    result = run_split(str(tmp_path / "s"), feeds, timeout=120)
    assert_equal(whole_run(plan.assignment.graph, feeds), result.outputs)
    assert result.bytes == plan.solved.wire_bytes


def test_two_swapped_ranks_give_wrong_numbers(plan: Plan, split: Path) -> None:
    one, two = (split / "rank1.onnx", split / "rank2.onnx")
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    graph = plan.assignment.graph
    feeds = feeds_of(graph)
    assert differs(whole_run(graph, feeds), run_split(str(split), feeds, timeout=120).outputs)


def test_a_rank_that_dies_ends_the_run_with_its_number_and_error(plan: Plan, split: Path) -> None:
    model = onnx.load(split / "rank2.onnx")
    node = next(node for node in model.graph.node if node.op_type == "Softmax")
    node.attribute[0].i = 7
    onnx.save(model, split / "rank2.onnx")
    with pytest.raises(RankError, match="rank 2: ModelError: .*segment") as error:
        run_split(str(split), feeds_of(plan.assignment.graph), timeout=120)
    assert error.value.exit_code == 7


def test_a_run_ends_at_its_timeout(plan: Plan, split: Path) -> None:
    started = time.monotonic()
    with pytest.raises(RankError, match=r"did not finish in 0\.05 s") as error:
        run_split(str(split), feeds_of(plan.assignment.graph), timeout=0.05)
    assert error.value.exit_code == 7
    assert time.monotonic() - started < 60


def test_the_first_error_is_the_cause_whatever_mpiexec_prints(tmp_path: Path) -> None:
    """An aborted rank's last lines may be lost, and others may fail as it ends."""
    for number, (name, text) in enumerate([("3", ""), ("2", "rank 2: why"), ("0", "rank 0: too")]):
        file = tmp_path / f"{name}.error"
        file.write_text(text)
        os.utime(file, ns=(number, number))
    assert launch._cause("Traceback (most recent call last):", str(tmp_path)) == "rank 2: why"


def test_a_rank_that_is_killed_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "die.py"
    script.write_text(
        "import os, pathlib, time\n"
        "from mpi4py import MPI\n"
        "rank = MPI.COMM_WORLD.Get_rank()\n"
        f"pathlib.Path({str(tmp_path)!r}, str(os.getpid())).write_text(str(rank))\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "if rank == 1: os.kill(os.getpid(), 9)\n"
        "time.sleep(60)\n"
    )
    command = [launch._mpiexec(), "-n", "2", sys.executable, str(script)]
    expected = r"rank [01], or another that mpiexec does not name, died: Killed"
    with pytest.raises(RankError, match=expected):
        launch._wait(command, "DIR", 50, str(tmp_path))


def test_no_rank_is_left_after_a_timeout(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, str(os.getpid())).write_text('')\n"
        "time.sleep(600)\n"
    )
    command = [launch._mpiexec(), "-n", "2", sys.executable, str(script)]
    with pytest.raises(RankError, match="did not finish in 5 s"):
        launch._wait(command, "DIR", 5, str(tmp_path))
    pids = [int(entry.name) for entry in tmp_path.iterdir() if entry.name.isdigit()]
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("victim", ["launcher", "proxy"])
def test_no_rank_is_left_when_what_started_it_is_killed(victim: str, tmp_path: Path) -> None:
    rank = tmp_path / "rank.py"
    rank.write_text(
        "import os, pathlib, time\n"
        "from gehost_sharding.rank import end_with_launcher\n"
        f"end_with_launcher({str(tmp_path)!r}, 0.1)\n"
        "from mpi4py import MPI\n"
        "rank = MPI.COMM_WORLD.Get_rank()\n"
        f"pathlib.Path({str(tmp_path)!r}, str(os.getpid())).write_text(str(os.getppid()))\n"
        "if rank == 1: time.sleep(600)\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    launcher = tmp_path / "launcher.py"
    launcher.write_text(
        "import fcntl, sys\n"
        "from gehost_sharding import launch\n"
        f"with open({str(tmp_path / ALIVE)!r}, 'wb') as alive:\n"
        "    fcntl.flock(alive, fcntl.LOCK_EX)\n"
        f"    command = [launch._mpiexec(), '-n', '2', sys.executable, {str(rank)!r}]\n"
        f"    launch._wait(command, 'DIR', 300, {str(tmp_path)!r})\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(launcher)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    pids: list[Path] = []
    deadline = time.monotonic() + 60
    while len(pids) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        pids = [file for file in tmp_path.iterdir() if file.name.isdigit() and file.read_text()]
    assert len(pids) == 2
    os.kill(process.pid if victim == "launcher" else int(pids[0].read_text()), signal.SIGKILL)
    while any(Path(f"/proc/{pid.name}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [int(pid.name) for pid in pids if Path(f"/proc/{pid.name}").exists()]
    for pid in [*left, process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert not left


MIXED = """(float16[4,8] x, bool[4,8] m, int64[4,8] n)
      => (float16[4,4] z, bool[1,8] any, int64[1,8] least, float16[4,8] y) {
    z = MatMul (x, w)
    zero = Constant <value = int64[1] {0}> ()
    any = ReduceMax (m, zero)
    least = ReduceMin (n, zero)
    y = Softmax <axis = 0> (x)
}"""


def test_small_floats_bool_and_integers_are_exchanged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((8, 4)).astype(np.float16)}
    graph = graph_of(MIXED, weights)
    mesh = Mesh.parse("x=2")
    planner = Planner(graph, mesh, SLOW, RuleTable())
    chosen = [
        next(
            (n for n, strategy in enumerate(planner.strategies[op].choices) if strategy.is_partial),
            len(planner.strategies[op]) - 1,
        )
        for op in graph.operators
    ]
    specs = dict.fromkeys(graph.producer, (-1,))
    assignment = Assignment(graph, mesh, planner.strategies, chosen, specs)
    write_split(assignment, str(tmp_path / "s"), table=RuleTable())
    feeds = feeds_of(graph)
    result = run_split(str(tmp_path / "s"), feeds, timeout=120)
    expected = whole_run(graph, feeds)
    assert {name: value.dtype for name, value in result.outputs.items()} == {
        name: value.dtype for name, value in expected.items()
    }
    assert_equal(expected, result.outputs)
    assert result.ranks[0]["collectives"] == {"all_reduce": 3, "all_gather": 1}


def test_a_directory_without_a_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no split \(no readable split.json\)"):
        read_manifest(str(tmp_path))
    (tmp_path / "split.json").write_text("{}")
    with pytest.raises(UsageError, match=r"no split \(split.json lacks inputs, mesh, model"):
        read_manifest(str(tmp_path))


def test_feeds_of_another_shape_are_refused(plan: Plan, split: Path) -> None:
    feeds = {name: np.concatenate([value] * 2) for name, value in feeds_of(block()).items()}
    with pytest.raises(RankError, match=r"has shape \[2, 8, 16\]; the split is for \[1, 8, 16\]"):
        run_split(str(split), feeds, timeout=120)


def test_the_manifest_predicts(plan: Plan, split: Path) -> None:
    manifest = json.loads((split / "split.json").read_text())
    assert manifest["predicted"] == {
        "bytes": plan.solved.wire_bytes,
        "output_bytes": plan.solved.output_bytes,
    }
