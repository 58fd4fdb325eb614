"""The benchmarks measure what they say: valid graphs with the promised sites, and rules that find all of them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost.verify import compare
from tools.benchmarks.comparison import Graph, compared, growth
from tools.benchmarks.figures import EXPLAINED, FIGURES, WIDE, Goal
from tools.benchmarks.gehost_tasks import TASKS
from tools.benchmarks.generate import BLOCK, GROUP, decoder, external, siblings, write
from tools.benchmarks.near_misses import chains
from tools.benchmarks.processes import Outcome, medians, run
from tools.benchmarks.style_models import EXPORTS, agreement
from tools.benchmarks.style_rules import RULES

NODES = 200
OWN = {figure.own.removeprefix("gehost."): figure for figure in FIGURES}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("benchmarks")
    for kind in ("decoder", "siblings", "mirrored", "styles", *WIDE):
        write(kind, NODES, folder / f"{kind}.onnx")
    return {path.stem: path for path in folder.glob("*.onnx")}


def _sites(model: Path) -> dict[str, int]:
    return json.loads(Path(f"{model}.json").read_text(encoding="utf-8"))["sites"]


def test_the_decoder_graph_is_valid_and_has_the_promised_sites() -> None:
    model, sites = decoder(1000)
    onnx.checker.check_model(model, full_check=True)
    ops = [node.op_type for node in model.graph.node]
    assert len(ops) == 59 * BLOCK
    assert set(sites.values()) == {59}
    assert (ops.count("MatMul"), ops.count("Sqrt"), ops.count("Erf")) == (59, 59, 59)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    weights = [
        onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.dims
    ]
    assert len({array.tobytes() for array in weights}) == len(weights)


@pytest.mark.parametrize("mirrored", [False, True])
def test_the_sibling_graph_is_valid_and_each_tensor_has_64_readers(mirrored: bool) -> None:
    model, sites = siblings(3 * GROUP, mirrored=mirrored)
    onnx.checker.check_model(model, full_check=True)
    readers = [node.input[0] for node in model.graph.node if node.op_type == "MatMul"]
    assert len(model.graph.node) == 3 * GROUP
    assert {readers.count(name) for name in readers} == {64}
    assert sites == {"siblings": 3 * 32}


def test_external_weights_have_their_full_size_in_a_file_beside_the_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    sites = external(path, 1 / 1024, layers=2)
    onnx.checker.check_model(path, full_check=True)
    assert sites == {"matmul_add": 2}
    assert Path(f"{path}.data").stat().st_size == pytest.approx(2**20, rel=0.01)
    assert path.stat().st_size < 2**14


def test_near_misses_are_different_and_of_2_to_9_operators() -> None:
    actual = chains(97)
    assert len(set(actual)) == 97
    assert {len(chain) for chain in actual} == set(range(2, 10))


@pytest.mark.parametrize("name", EXPLAINED)
def test_a_pass_rewrites_the_same_sites_by_itself_and_explained(
    name: str, models: dict[str, Path], tmp_path: Path
) -> None:
    result = [
        TASKS[f"{how}.{name}"](str(models["decoder"]), str(tmp_path / "out.onnx"))
        for how in ("plain", "explained")
    ]
    assert [measured.rewrites for measured in result] == [
        _sites(models["decoder"])[EXPLAINED[name]]
    ] * 2
    assert all(measured.seconds > 0 for measured in result)


@pytest.mark.parametrize(
    "task", [task for task in TASKS if task.partition(".")[0] not in ("plain", "explained")]
)
def test_each_task_rewrites_every_site_and_keeps_the_numbers(
    task: str, models: dict[str, Path], tmp_path: Path
) -> None:
    figure = OWN[task]
    model, out = models[figure.graph], tmp_path / "out.onnx"
    measured = TASKS[task](str(model), str(out))
    expected = sum(_sites(model)[site] for site in figure.sites)
    assert measured.rewrites in ((None,) if task in ("load", "infer", "save") else (expected,))
    assert measured.seconds > 0
    if out.exists():
        result = compare(
            model, out, [{"x": np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)}]
        )
        assert result.equal, result.summary()


@pytest.mark.parametrize(
    ("other", "ratio", "met"),
    [
        (Outcome(10.0, rewrites=5), 0.1, True),
        (Outcome(2.0, rewrites=5), 0.5, False),
        (Outcome(10.0, rewrites=4), None, None),
        (Outcome(failure="> 120 s"), None, None),
    ],
    ids=["met", "not met", "other rewrites", "no end"],
)
def test_a_ratio_is_given_only_where_both_rewrote_every_site(
    other: Outcome, ratio: float | None, met: bool | None
) -> None:
    figure = OWN["matmul_add"]
    assert figure.goal == Goal(5, faster=True)
    tasks = {figure.own: Outcome(1.0, rewrites=5), figure.peers[0]: other}
    (row,) = compared({("decoder", 100_000): Graph(100, {"matmul_add": 5}, tasks)}, ["graph"])
    assert (row.ratio, row.met) == (ratio, met)


@pytest.mark.parametrize(
    ("rule", "file"),
    [
        ("transposes", "bert.raw18"),
        ("add_zero", "bert.raw18"),
        ("casts", "llama.ts17"),
        ("linear", "if"),
    ],
)
def test_styles_are_told_apart_where_they_do_not_do_the_same(
    rule: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.load(EXPORTS / f"{file}.onnx")
    actual = agreement(rule, model)
    assert actual.equal
    assert actual.replaced == actual.matched > 0
    monkeypatch.setitem(RULES, rule, replace(RULES[rule], drr=RULES["layer_norm"].drr))
    assert agreement(rule, model) == replace(actual, equal=False)


def test_a_sum_of_peers_wants_all_of_them() -> None:
    graph = Graph(
        100,
        dict.fromkeys(("matmul_add", "layer_norm", "gelu"), 1),
        {"gehost.compile": Outcome(1.0), "onnx.load": Outcome(1.0)},
    )
    rows = compared({("decoder", 100_000): graph}, ["graph"])
    assert [(row.title, row.ratio) for row in rows] == [("whole compile", None)]


def test_growth_is_that_of_the_cost_a_node() -> None:
    small = Graph(10, {}, {"gehost.load": Outcome(1.0, peak=20, resident=10)})
    large = Graph(100, {}, {"gehost.load": Outcome(20.0, peak=110, resident=10)})
    rows = growth({("decoder", 10_000): small, ("decoder", 300_000): large})
    assert [(row["what"], row["growth"], row["met"]) for row in rows] == [
        ("time", 2.0, False),
        ("memory", 1.0, True),
    ]


def test_a_process_that_takes_too_long_is_stopped_and_not_repeated() -> None:
    calls: list[str] = []

    def endless(name: str) -> Outcome:
        calls.append(name)
        return run([sys.executable, "-c", "while True: pass"], limit=0)

    assert medians(["endless"], endless, repeat=3)["endless"].failure == "> 0 s"
    assert calls == ["endless"]


def test_a_process_that_fails_says_how() -> None:
    assert (
        run([sys.executable, "-c", "raise SystemExit('no such model')"], limit=60).failure
        == "exit 1: no such model"
    )
