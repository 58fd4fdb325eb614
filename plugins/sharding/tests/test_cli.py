"""The commands, as a user types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from gehost import GehostError
from gehost.testing import parse
from gehost_sharding.cli import shard

from .conftest import FUSED, feeds_of, model_of
from .models import BLOCK, block, block_weights
from .rule_cases import TODAY

HARDWARE = """
flops = 2e9
memory_bandwidth = 1e9
latency = 0.0
[link_bandwidth]
default = 1e9
model = 2e9
"""


def shard_command(*arguments: str) -> str:
    """Output of a command that succeeds."""
    result = CliRunner().invoke(shard, arguments, catch_exceptions=True)
    if result.exception is not None:
        raise result.exception
    return result.output


def refused(*arguments: str) -> GehostError:
    with pytest.raises(GehostError) as error:
        shard_command(*arguments)
    return error.value


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    onnx.save(parse(FUSED), "fused.onnx")
    onnx.save(model_of(BLOCK, block_weights()), "block.onnx")
    Path("slow.toml").write_text(HARDWARE)
    return tmp_path


def test_propagate_lists_the_solutions(work: Path) -> None:
    lines = shard_command("propagate", "fused.onnx", "--all").splitlines()
    assert lines[-1] == "4 solutions"
    assert lines[-2].startswith("4 searches, ")
    assert "30 operators, at most 4 strategies each" in lines[0]
    lines = shard_command("propagate", "fused.onnx", "--mesh", "x=2", "--all").splitlines()
    assert lines[-1] == "2 solutions"
    lines = shard_command("propagate", "fused.onnx", "--pin", "p14=1:x").splitlines()
    assert lines[-1] == "1 solution"
    assert "1:x: p0, p1, p4, p5, p7, p8, p9, p13, p14; replicated: p2" in lines[1]


@pytest.mark.parametrize("suffix", ["dot", "json"])
def test_propagate_draws_the_graph_of_strategies(work: Path, suffix: str) -> None:
    out = shard_command("propagate", "fused.onnx", "--graph", f"g.{suffix}")
    text = Path(f"g.{suffix}").read_text()
    if suffix == "json":
        data = json.loads(text)
        assert f"{len(data['nodes'])} nodes, {len(data['edges'])} edges" in out
    else:
        assert text.startswith("graph strategies {")
        assert text.count(" -- ") == int(out.split(" nodes, ")[1].split()[0])
        assert len({line.split("color=")[1] for line in text.splitlines() if " -- " in line}) == 4


def test_propagate_needs_something_to_start_from(work: Path) -> None:
    assert "give --pin, or --all" in str(refused("propagate", "fused.onnx"))
    assert refused("propagate", "fused.onnx").exit_code == 2


def planned(*more: str) -> str:
    return shard_command(
        "plan", "block.onnx", "--mesh", "data=2,model=2", "-o", "out.onnx", "--hardware",
        "slow.toml", *more,
    )  # fmt: skip


def test_plan_writes_annotations_and_a_report(work: Path) -> None:
    out = planned(
        "--report", "plan.json", "--dot", "plan.dot", "--mesh-dot", "mesh.dot", "--compare",
        "rows=w1=0:model",
    )  # fmt: skip
    assert "proven optimal" in out
    assert "2e+09 flop/s" in out
    assert "link of mesh axis model: 2e+09 B/s" in out
    assert "data parallelism over data, model" in out
    assert "IR version raised from 10 to 11" in out
    report: dict[str, Any] = json.loads(Path("plan.json").read_text())
    assert report["ir_version"] == {"before": 10, "after": 11}
    assert report["search"]["is_proven"]
    assert report["search"]["objective"] == pytest.approx(report["search"]["objective_recomputed"])
    assert set(report["compared"]) == {
        "data parallelism over data",
        "data parallelism over data, model",
        "rows",
    }
    sent = sum(row["bytes"] for row in report["redistributions"])
    assert sent == report["costs"]["wire_bytes"]
    assert sent == sum(row["bytes"] for row in report["costs"]["by_collective"].values())
    weighted = report["costs"]["weighted"]
    assert weighted["value"] == pytest.approx(
        report["costs"]["memory_cost"] + report["costs"]["communication_cost"]
    )
    for component in report["components"]:
        removed = [row["vertex"] for row in component["eliminations"] if row["kind"] != "edge"]
        assert [row["vertex"] for row in component["recovery"]] == removed[::-1]
        entries = component["last_graph"]["entries"]
        chosen = [entry["cost"] for entry in entries if entry["chosen"]]
        assert chosen == [min(entry["cost"] for entry in entries)]
    assert len(report["operators"]) == len(block().operators)
    assert Path("plan.dot").read_text().startswith("digraph costs {")
    lines = Path("mesh.dot").read_text().splitlines()
    assert '  3 [label="3 (1, 1)"];' in lines
    assert [line[:8] + line.split('"')[1] for line in lines if "--" in line] == [
        "  0 -- 2data",
        "  0 -- 1model",
        "  1 -- 3data",
        "  2 -- 3model",
    ]


def test_plan_check_split_and_run(work: Path) -> None:
    pytest.importorskip("mpi4py")
    from gehost.verify import save_feeds

    planned()
    assert "annotated on mesh data=2,model=2: no findings" in shard_command("check", "out.onnx")
    assert "wrote 4 ranks to ranks: " in shard_command("split", "out.onnx", "-o", "ranks")
    Path("feeds.npz").write_bytes(save_feeds(feeds_of(block())))
    out = shard_command("run", "ranks", "--feeds", "feeds.npz", "--verify", "-o", "y.npz")
    (line,) = [line for line in out.splitlines() if line.startswith("sent per device")]
    predicted, counted = line.split("predicted ")[1].split(";")[0].split(", counted ")
    assert predicted == counted != "0 B"
    assert "equal to " in out
    assert "2 outputs" in out
    assert Path("y.npz").exists()


def test_split_counts_collectives_of_empty_tensors(work: Path) -> None:
    text = "(float[0,16] x, float[16,8] w) => (float[0,8] y) { y = MatMul (x, w) }"
    onnx.save(model_of(text), "empty.onnx")
    pins = ["--pin", "w=0:x", "--pin", "x=1:x"]
    shard_command("plan", "empty.onnx", "--mesh", "x=2", "-o", "out.onnx", *pins)
    out = shard_command("split", "out.onnx", "-o", "ranks")
    nodes = onnx.load("ranks/rank0.onnx").graph.node
    count = sum(node.domain == "gehost.collective" for node in nodes)
    assert count == 1
    assert "wrote 2 ranks to ranks: 1 collective, 0 B per device" in out


def test_run_finds_wrong_numbers(work: Path) -> None:
    pytest.importorskip("mpi4py")
    planned()
    shard_command("split", "out.onnx", "-o", "ranks")
    one, two = Path("ranks/rank1.onnx"), Path("ranks/rank2.onnx")
    first = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(first)
    error = refused("run", "ranks", "--verify")
    assert error.exit_code == 6
    assert "the numbers differ from those of" in str(error)


def test_run_refuses_feeds_without_an_input(work: Path) -> None:
    from gehost.verify import save_feeds

    planned()
    shard_command("split", "out.onnx", "-o", "ranks")
    Path("feeds.npz").write_bytes(save_feeds(feeds_of(block()) | {"w1": np.ones(2)}))
    error = refused("run", "ranks", "--feeds", "feeds.npz")
    assert error.exit_code == 2
    assert "the split has no input 'w1'; its inputs are 'x', 'ids'" in str(error)


def test_run_refuses_a_model_that_changed(work: Path) -> None:
    planned()
    shard_command("split", "out.onnx", "-o", "ranks")
    shard_command("plan", "block.onnx", "--mesh", "x=2", "-o", "out.onnx")
    assert "has changed" in str(refused("run", "ranks", "--verify"))


def test_check_lists_every_finding(work: Path) -> None:
    planned()
    model = onnx.load("out.onnx")
    model.ir_version = 10
    model.graph.node[0].device_configurations[0].pipeline_stage = 1
    onnx.save(model, "bad.onnx")
    result = CliRunner().invoke(shard, ["check", "bad.onnx"])
    assert isinstance(result.exception, GehostError)
    assert result.exception.exit_code == 3
    assert len(result.output.splitlines()) == 2
    assert "2 findings" in str(result.exception)
    assert "pipeline stage 1" in str(refused("split", "bad.onnx", "-o", "ranks"))
    assert not Path("ranks").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["--mesh", "data=0"], 2, "axis data has size 0"),
        (["--mesh", "data=7"], 2, "axis data of size 7 divides no dimension"),
        (["--mesh", "x=2", "--pin", "w11=0:x"], 2, 'no tensor "w11"; the nearest: w1'),
        (
            ["--mesh", "x=2", "--memory", "1KiB"],
            3,
            "the least found is 6776 bytes, of which 4728 are",
        ),
        (["--mesh", "x=2", "--memory", "much"], 2, 'size "much"'),
        (["--mesh", "x=2", "--hardware", "none.toml"], 2, "cannot read the hardware file"),
        (["--mesh", "x=2", "--dim", "seq=4"], 2, "no input of block.onnx has that open dimension"),
        (["--mesh", "x=2", "--alpha", "-1"], 2, "--alpha -1.0: wanted a number from 0"),
        (["--mesh", "x=2", "--compare", "w1=0"], 2, "no tensor|wanted"),
    ],
)
def test_bad_input_to_plan(work: Path, arguments: list[str], code: int, reason: str) -> None:
    error = refused("plan", "block.onnx", "-o", "out.onnx", *arguments)
    assert error.exit_code == code
    import re

    assert re.search(reason, str(error)), str(error)
    assert not Path("out.onnx").exists()


def test_a_compared_plan_that_cannot_be_has_a_line_of_its_own(work: Path) -> None:
    one = "main (float[4,8] x) => (float[4,8] y) { y = Relu (x) }"
    onnx.save(parse(f'<ir_version: 10, opset_import: ["": 20]> {one}'), "one.onnx")
    compared = ("--compare", "both=x=0:x,x=1:x", "--compare", "rows=x=0:x")
    lines = shard_command("plan", "one.onnx", "--mesh", "x=2", "-o", "out.onnx", *compared)
    assert "1 operator, 2 vertices, 1 edge, width" in lines
    assert max(len(line) for line in lines.splitlines() if line.startswith(("plan", "---"))) < 110
    (row,) = [line for line in lines.splitlines() if "contradict" in line]
    assert row.startswith("no plan for both: one.onnx: pin ")


def test_no_command_is_one_short_line(work: Path) -> None:
    assert CliRunner().invoke(shard, []).output.endswith("Error: Missing command.\n")


def test_a_mixture_that_one_operator_computes_names_what_to_use(work: Path) -> None:
    _, text = TODAY["quantized_experts"]
    onnx.save(model_of(text), "mixture.onnx")
    error = refused("plan", "mixture.onnx", "-o", "o.onnx", "--mesh", "m=3", "--pin", "v=0:m")
    assert error.exit_code == 2
    assert "no strategy of com.microsoft::QMoE z is left; it chooses among all" in str(error)
    assert "split by experts where the model has the dispatch and the sum as Einsums" in str(error)


def test_contradicting_pins_have_one_exit_code(work: Path) -> None:
    arguments = ("fused.onnx", "--mesh", "x=5", "--pin", "p0=1:x", "--pin", "p0=-1:x")
    for error in (refused("plan", *arguments, "-o", "out.onnx"), refused("propagate", *arguments)):
        assert error.exit_code == 2
        assert "p0=1:x" in str(error)
        assert "p0=-1:x" in str(error)
        assert "contradict each other" in str(error)


def test_open_dimensions_are_fixed_by_dim(work: Path) -> None:
    text = '(float["n",8] x) => (float["n",8] z) { z = Softmax (x) }'
    onnx.save(model_of(text), "open.onnx")
    arguments = ["plan", "open.onnx", "--mesh", "x=2", "-o", "out.onnx"]
    message = str(refused(*arguments))
    assert 'input "x" has an open dimension 0 (n)' in message
    assert "--dim n=SIZE" in message
    shard_command(*arguments, "--dim", "n=4")
    shard_command(*arguments, "--dim", "x:0=4")
    shapes = [entry.type.tensor_type.shape for entry in onnx.load("out.onnx").graph.input]
    assert [dim.dim_value for dim in shapes[0].dim] == [4, 8]


def test_control_flow_is_refused(work: Path) -> None:
    text = """(bool c, float[4] x) => (float[4] z) {
        z = If (c) <then_branch = a () => (float[4] p) { p = Neg (x) },
                    else_branch = b () => (float[4] q) { q = Abs (x) }>
    }"""
    onnx.save(model_of(text), "flow.onnx")
    error = refused("plan", "flow.onnx", "--mesh", "x=2", "-o", "out.onnx")
    assert error.exit_code == 3
    assert "is control flow" in str(error)


def test_random_numbers_are_refused(work: Path) -> None:
    text = "(float[4] x) => (float[4] z) { r = RandomNormalLike (x) z = Add (x, r) }"
    onnx.save(model_of(text), "random.onnx")
    assert "draws random numbers" in str(
        refused("plan", "random.onnx", "--mesh", "x=2", "-o", "out.onnx")
    )


def test_the_model_is_not_overwritten_by_its_plan(work: Path) -> None:
    before = Path("block.onnx").read_bytes()
    assert "is the model itself" in str(
        refused("plan", "block.onnx", "--mesh", "x=2", "-o", "block.onnx")
    )
    assert Path("block.onnx").read_bytes() == before


def test_a_vendor_file_adds_a_rule(work: Path) -> None:
    folder = work / "vendors" / "acme" / "custom_fusion_passes"
    folder.mkdir(parents=True)
    (folder / "rules.py").write_text(
        "from gehost_sharding import Factors, Instance, Rule, sharding_rule\n\n\n"
        "@sharding_rule('MeanVarianceNormalization')\n"
        "def normalization(instance: Instance) -> Rule:\n"
        "    factors = Factors()\n"
        "    data = tuple(\n"
        "        factors.add(size, 'need' if dim == 1 else 'pass')\n"
        "        for dim, size in enumerate(instance.shape(0))\n"
        "    )\n"
        "    return factors.rule([data], [data], 1)\n"
    )
    text = "(float[4,8] x) => (float[4,8] z) { z = MeanVarianceNormalization <axes = [1]> (x) }"
    onnx.save(model_of(text), "norm.onnx")
    arguments = ["propagate", "norm.onnx", "--mesh", "x=2", "--all"]
    without = shard_command(*arguments)
    assert "operators without a rule, replicated: MeanVarianceNormalization (1)" in without
    assert without.splitlines()[-1] == "1 solution"
    assert shard_command(*arguments, "--vendors", "vendors").splitlines()[-1] == "2 solutions"
