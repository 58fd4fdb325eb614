"""The steps of optimize, on small models and on times that are given instead of measured."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir
import pytest

import gehost
from gehost import GehostError, ModelError, OutputError, UsageError
from gehost.cli import run as command
from gehost.optimizing import run as optimizing
from gehost.optimizing.facts import foreign_nodes
from gehost.optimizing.target import find_target
from gehost.testing import parse
from gehost.tune import Comparison

pytest.importorskip("onnxruntime")

MODELS = Path(__file__).parents[1] / "models"
BERT = MODELS / "bert.ts17.onnx"
SAME, FASTER, SLOWER = (
    Comparison(ratios, 0.002, 0.001, 9)
    for ratios in ((1.0, 1.001, 0.999), (1.3, 1.31, 1.32), (0.7, 0.71, 0.72))
)
SMALL = """<ir_version: 8, opset_import: ["" : 17]>
m (float[2] x) => (float[2] y) {
    zero = Constant<value_float = 0.0>()
    z = Identity(x)
    a = Relu(z)
    b = Abs(a)
    y = Softplus(b)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(parse(SMALL), path)
    return path


@pytest.fixture(autouse=True)
def pairs(monkeypatch: pytest.MonkeyPatch) -> list[Comparison]:
    """Stands for measuring: comparisons in order, the last one for all that follow."""
    arguments = [SAME]

    def measure(_first: Any, _second: Any, **_options: Any) -> Comparison:
        return arguments.pop(0) if len(arguments) > 1 else arguments[0]

    monkeypatch.setattr(optimizing, "measure_pairs", measure)
    return arguments


def ops(path: str | Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_one_command_writes_a_file_beside_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pairs: list[Comparison]
) -> None:
    path = tmp_path / "bert.onnx"
    path.write_bytes(BERT.read_bytes())
    pairs[:] = [SAME, FASTER]
    assert command(["optimize", str(path), "--for", "cpu"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.replace(str(tmp_path), "").splitlines())) <= 80
    assert "bert.onnx: 2 attention layers, opset 17, " in out
    assert re.search(r"  Attention +2   softmax\(q·kᵀ·scale \+ mask\)·v", out)
    assert re.search(
        r"  after +\d+ +\S+ kB +1.0 ms   1.31 × \[1.\d\d, 1.\d\d\], small 1.31 ×\n", out
    )
    text = " ".join(out.split())
    assert f"wrote {tmp_path / 'bert.opt.onnx'}: any plain session of ONNX Runtime runs it" in text
    result = tmp_path / "bert.opt.onnx"
    assert result.stat().st_size < path.stat().st_size
    assert "Attention" in ops(result)
    assert not any(node.metadata_props for node in onnx.load(result).graph.node)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["bert.onnx", "bert.opt.onnx"]


def test_quiet_prints_a_line_and_json_the_data(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["optimize", str(model), "-q", "--no-measure"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(f"m.opt.onnx: not measured, 4 → 3 nodes, {line.split(', ')[-1]}")
    report = model.with_name("r.json")
    assert command(["optimize", str(model), "--json", "--for", "any", "--report", str(report)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["target"] == "any"
    assert data["pays"] is False
    assert data["gain"]["large"]["interval"][0] < 1
    assert json.loads(report.read_text())["output"] == data["output"]


def test_the_pass_of_each_fusion_is_named() -> None:
    report = gehost.optimize(onnx.load(BERT), "cpu", measured=False).report
    assert report.as_dict()["passes"]["OrtPackedAttentionPass"] == ["com.microsoft::Attention"]
    text = " ".join(" ".join(report.lines()).split())
    assert "passes (--disable PASS): " in text
    assert "OrtBiasGeluPass (BiasGelu)" in text
    disabled = gehost.optimize(onnx.load(BERT), "cpu", measured=False, disable=[*report.passes])
    assert not disabled.report.fused.keys() & {
        "com.microsoft::Attention",
        "com.microsoft::BiasGelu",
    }


@pytest.mark.parametrize("result", ["optimized", "cleaned"])
def test_a_wide_interval_is_not_measured_well(
    model: Path, tmp_path: Path, pairs: list[Comparison], result: str
) -> None:
    """1.12 × [0.81, 1.67] is neither as fast as the original nor faster."""
    vague = Comparison((0.85, 1.12, 1.5), 0.002, 0.002, 9)
    pairs[:] = [SAME, SAME, vague] if result == "optimized" else [SAME, vague]
    source = shutil.copy(BERT, tmp_path) if result == "optimized" else model
    report = gehost.optimize(source, "cpu").report
    assert report.result == result
    assert report.gain is not None
    text = " ".join(" ".join(report.lines()).split())
    assert re.search(r"not measured well: \d\.\d\d–\d\.\d\d ×; a longer --budget helps", text)
    assert "as fast as" not in text
    assert "nothing pays" not in text
    assert "not measured well (" in report.headline()
    assert report.as_dict()["measured_well"] is False


def test_a_model_in_memory_has_no_path(vendors: Any) -> None:
    """It is in a file for the time of the call alone."""
    report = gehost.optimize(parse(SMALL), "cpu", measured=False).report
    assert report.model == ""
    assert report.compile is not None
    assert report.compile.model == ""
    assert report.lines()[0].startswith("the model: 4 nodes, ")
    foreign = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
        "m (float[2] x) => (float[2] y) { y = own.Nothing(x) }"
    )
    with pytest.raises(ModelError, match=r"^it does not load in ONNX Runtime \S+: own:Nothing"):
        gehost.optimize(foreign, "cpu")


def test_a_page_is_written(tmp_path: Path) -> None:
    path = tmp_path / "bert.onnx"
    path.write_bytes(BERT.read_bytes())
    page = tmp_path / "r.html"
    assert command(["optimize", str(path), "--no-measure", "--report", str(page), "-q"]) == 0
    assert "OrtPackedAttentionPass (Attention)" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [(), ("--dim", "batch=1")])
def test_head_and_text_of_a_page_agree(tmp_path: Path, size: tuple[str, ...]) -> None:
    """The compile of the chosen passes begins with another number of nodes than the model."""
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    m (float["batch", 2] x) => (float["batch", 2] y) {
        c = Constant<value_float = 2.0>()
        z = own.twice(x)
        y = Mul(z, c)
    }
    <domain: "own", opset_import: ["" : 17]>
    twice (a) => (b) {
        d = Add(a, a)
        e = Relu(d)
        b = Abs(e)
    }"""
    onnx.save(parse(text), path := tmp_path / "m.onnx")
    page = tmp_path / "r.html"
    assert command(["optimize", str(path), "--no-measure", "--report", str(page), *size]) == 0
    shown = re.sub(r"<(style|svg).*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    words = " ".join(re.sub(r"<[^>]*>", " ", shown).split())
    assert "gehost · optimize report" in words
    before, after = (
        re.findall(rf"\b{name} (\d+) +\d+ B", words)[0] for name in ("before", "after")
    )
    assert f"Nodes {before} → {after} " in words
    assert "Numbers equal on " in words
    assert "numbers: equal to the bit" in words
    assert "not verified" not in words
    assert "not compared" not in words


def test_where_nothing_pays_the_cleaned_model_is_written(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["optimize", str(model), "--for", "cpu"]) == 0
    assert "nothing pays here (1.00–1.00 ×); wrote the cleaned model" in capsys.readouterr().out
    assert ops(model.with_name("m.opt.onnx")) == ["Relu", "Abs", "Softplus"]


def test_fusions_that_are_slower_in_all_are_not_written(
    tmp_path: Path, pairs: list[Comparison]
) -> None:
    path = tmp_path / "bert.onnx"
    path.write_bytes(BERT.read_bytes())
    pairs[:] = [SAME, FASTER, FASTER, SLOWER, SLOWER, SAME]  # itself, one group, all, cleaned
    disable = ["OrtResidualSumPass", "OrtSkipNormPass", "OrtBiasGeluPass", "GeluFusionPass"]
    result = gehost.optimize(path, "cpu", disable=disable)
    assert result.report.result == "cleaned"
    assert any(line.startswith("nothing pays here") for line in result.report.lines())
    assert any(line.startswith("not used: all fusions (0.71 ×") for line in result.report.lines())
    assert "Attention" not in ops(result.model)


def test_where_even_the_clean_up_is_slower_the_model_is_written(
    model: Path, pairs: list[Comparison]
) -> None:
    pairs[:] = [SAME, SLOWER]
    result = gehost.optimize(model, "cpu")
    assert result.report.result == "original"
    assert ops(result.model) == ops(model)


@pytest.mark.parametrize(
    ("ratios", "result"), [((0.6, 0.95, 1.4), "original"), ((0.6, 0.99, 1.4), "cleaned")]
)
def test_noise_excuses_no_clean_up_that_seems_slower(
    model: Path, pairs: list[Comparison], ratios: tuple[float, ...], result: str
) -> None:
    """The interval is wide, the median counts; 2 % are allowed."""
    pairs[:] = [SAME, Comparison(ratios, 0.002, 0.002, 9)]
    assert gehost.optimize(model, "cpu").report.result == result


@pytest.mark.parametrize(("second", "result"), [(0.985, "original"), (1.005, "cleaned")])
def test_what_is_slower_by_a_little_twice_is_not_written(
    model: Path, pairs: list[Comparison], second: float, result: str
) -> None:
    """0.98 to 0.99 lay inside the noise that is allowed, and was written."""
    close = [
        Comparison(tuple(m * r for r in (1, 1.001, 0.999)), 0.002, 0.002, 9)
        for m in (0.985, second)
    ]
    noise = Comparison((0.97, 1.0, 1.03), 0.002, 0.002, 9)  # the model against itself
    pairs[:] = [noise, *close]
    assert gehost.optimize(model, "cpu").report.result == result
    assert pairs == close[1:]


def test_the_comparison_with_the_original_has_time_where_the_budget_is_over(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    def measure(_first: Any, _second: Any, *, seconds: float, **_options: Any) -> Comparison:
        times.append(seconds)
        return SAME

    monkeypatch.setattr(optimizing, "measure_pairs", measure)
    monkeypatch.setattr(optimizing._Run, "_left", lambda _: 0.0)
    monkeypatch.setattr(optimizing._Run, "_run_once", lambda *_: 0.0)
    gehost.optimize(model, "cpu", budget=8)
    assert times == [0.0, 2.0]


def test_a_model_whose_sessions_take_longer_than_the_budget_is_not_measured(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 100,000 nodes took 27 s for each session: 12 of them, behind a budget of 60 s."""
    monkeypatch.setattr(
        optimizing._Run, "_load_original", lambda run: setattr(run, "_load_takes", 20.0)
    )
    report = gehost.optimize(model, "cpu").report
    assert report.gain is None
    assert re.fullmatch(
        r"to load 6 sessions takes 120.00 s: --budget \d+s measures", report.unmeasured
    )


def test_a_pass_that_changes_numbers_is_dropped_and_named(model: Path, vendors: Any) -> None:
    vendors.write("acme/a.py", vendors.swap("Right", "Abs", "Relu"))
    vendors.write("acme/b.py", vendors.swap("Wrong", "Softplus", "Exp"))
    result = gehost.optimize(model, "any", vendors=[vendors.root], measured=False)
    assert list(result.report.dropped) == ["Wrong"]
    assert "differ" in result.report.dropped["Wrong"]
    assert ops(result.model) == ["Relu", "Relu", "Softplus"] or ops(result.model) == [
        "Relu", "Softplus",
    ]  # fmt: skip
    assert any("not used: Wrong" in line for line in result.report.lines())


def test_a_class_that_is_not_registered_is_a_note(model: Path, vendors: Any) -> None:
    bare = vendors.swap("Bad", "Abs", "Relu").replace("@REG", "# @REG")
    vendors.write("acme/a.py", vendors.swap("A", "Erf", "Relu"), bare)
    result = gehost.optimize(model, "any", vendors=[vendors.root], measured=False)
    assert sum("Bad is not registered" in note for note in result.report.notes) == 1


def test_any_has_operators_of_onnx_alone() -> None:
    result = gehost.optimize(onnx.load(BERT), "any", measured=False)
    assert foreign_nodes(result.model) == []
    assert not result.model.functions
    assert "GeluFusionPass" in result.report.dropped
    newer = gehost.optimize(onnx.load(BERT), "any", measured=False, opset=20)
    assert foreign_nodes(newer.model) == []
    assert "Gelu" in [node.op_type for node in newer.model.graph.node]


FOREIGN = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
m (float[2] x) => (float[2] y) { y = com.microsoft.QuickGelu<alpha = 1.702>(x) }"""


def test_what_any_cannot_replace_is_named(tmp_path: Path, capsys: Any) -> None:
    """The bodies of its operators are not in the file, as after ``--for cpu`` where it is full."""
    path = tmp_path / "m.cpu.onnx"
    onnx.save(onnx.parser.parse_model(FOREIGN), path)
    words = ["optimize", str(path), "--no-measure", "--for", "any"]
    assert command(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "ONNX's own operators alone" not in text
    assert "not for every runtime: it still has com.microsoft::QuickGelu; " in text
    assert "optimize its original model --for any" in text
    assert command([*words, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["foreign"] == ["com.microsoft::QuickGelu"]
    assert data["loads"].startswith("not for every runtime: ")


def test_functions_of_the_model_are_inlined(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    m (float[2] x) => (float[2] y) { y = own.twice(x) }
    <domain: "own", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    result = gehost.optimize(parse(text), "any", measured=False).model
    assert [node.op_type for node in result.graph.node] == ["Add"]
    assert not result.functions


@pytest.mark.parametrize("target", ["any", "cpu"])
def test_the_kind_of_model_stays_and_the_interface_too(target: str) -> None:
    original = onnx.load(BERT)
    match = gehost.optimize(original, target, measured=False)
    assert [v.SerializeToString() for v in match.model.graph.input] == [
        v.SerializeToString() for v in original.graph.input
    ]
    assert [v.SerializeToString() for v in match.model.graph.output] == [
        v.SerializeToString() for v in original.graph.output
    ]
    result = gehost.optimize(onnx_ir.load(BERT), target, measured=False)
    assert isinstance(result.model, onnx_ir.Model)
    assert result.session_options is None


def test_a_file_is_never_larger_than_the_input(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[250000] x) => (float[250000] y) {
        n = Constant<value_ints = [250000]>()
        ones = ConstantOfShape<value = float[1] {3}>(n)
        e = Exp(ones)
        y = Add(x, e)
    }"""
    path = tmp_path / "grows.onnx"
    onnx.save(parse(text), path)
    result = gehost.optimize(path, "cpu", measured=False)
    assert Path(result.model).stat().st_size <= path.stat().st_size
    assert result.report.result == "cleaned"
    assert not onnx.load(result.model).metadata_props


def _tight(path: Path) -> Path:
    """Write a model whose names are so short that a function body is longer than what it saves."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        m (float[b, 8] x) => (float[b, 8] y) <float r = {1.4142135}, float o = {1}, float h = {0.5}> {
            i = Identity(x) p = MatMul(i, w) u = Add(p, c) d = Div(u, r) e = Erf(d) f = Add(e, o)
            g = Mul(u, f) y = Mul(g, h)
        }"""
    )
    draws = np.random.default_rng(0)
    for name, shape in (("w", (8, 8)), ("c", (8,))):
        array = draws.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("measured", [False, True])
def test_a_fusion_stays_where_the_function_body_goes(tmp_path: Path, measured: bool) -> None:
    path = _tight(tmp_path / "m.onnx")
    result = gehost.optimize(path, "cpu", measured=measured)
    model = onnx.load(result.model)
    assert Path(result.model).stat().st_size <= path.stat().st_size
    assert [node.op_type for node in model.graph.node] == ["MatMul", "BiasGelu"]
    assert not model.functions
    assert "the function bodies of BiasGelu" in result.report.omitted
    line = next(line for line in result.report.lines() if line.startswith("not in the file"))
    assert "the function bodies of BiasGelu" in line
    onnx.checker.check_model(model, full_check=True)


def test_a_body_stays_where_the_file_has_room(tmp_path: Path) -> None:
    result = gehost.optimize(onnx.load(BERT), "cpu", measured=False)
    assert {f.name for f in result.model.functions} >= {"Attention", "BiasGelu"}
    assert result.report.omitted == ()


def test_other_tools_read_the_types_that_the_body_gave(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    model = onnx.load(_tight(tmp_path / "m.onnx"))
    del model.graph.output[:]
    model.graph.node.add(op_type="MatMul", input=["y", "w"], output=["z"])
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["b", 8])
    )
    path = tmp_path / "n.onnx"
    onnx.save(model, path)
    result = gehost.optimize(path, "cpu", measured=False)
    assert result.report.omitted
    quantization.quantize_dynamic(result.model, tmp_path / "q.onnx")
    assert "MatMulInteger" in ops(tmp_path / "q.onnx")


_LARGE_BODY = """
from gehost import ops
@ops.register("acme::Large")
def large(x):
    for _ in range(60):
        x = es.Relu(x)
    return es.Softplus(x)
"""


def test_the_pass_that_makes_the_file_too_large_is_left_out_alone(
    model: Path, vendors: Any
) -> None:
    vendors.write("acme/a.py", vendors.swap("Right", "Abs", "Relu"))
    vendors.write("acme/b.py", _LARGE_BODY, vendors.swap("Grows", "Softplus", "op('acme::Large')"))
    result = gehost.optimize(model, "cpu", vendors=[vendors.root], measured=False)
    assert list(result.report.dropped) == ["Grows"]
    assert re.fullmatch(
        r"with it the file is \d+ bytes larger than the input", result.report.dropped["Grows"]
    )
    assert "Right" in result.report.passes


def test_half_keeps_the_interface_and_halves_the_weights(tmp_path: Path) -> None:
    original = onnx.load(BERT)
    result = gehost.optimize(original, "cpu", half=True, measured=False)
    assert [v.SerializeToString() for v in result.model.graph.output] == [
        v.SerializeToString() for v in original.graph.output
    ]
    kinds = [t.data_type for t in result.model.graph.initializer if len(t.raw_data) > 1000]
    assert set(kinds) == {onnx.TensorProto.FLOAT16}
    assert "beside the original in float16; float16 is off by 0.00" in result.report.numbers


def test_weights_in_another_file_are_linked_and_kept(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    m (float[2, 64] x) => (float[2, 64] y) { z = Identity(x)
      y = MatMul(z, w) }"""
    model = onnx.parser.parse_model(text)
    weight = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=16)
    result = gehost.optimize(path, "cpu", measured=False)
    assert result.report.after.size >= weight.nbytes
    assert sorted(item.name for item in tmp_path.iterdir()) == ["m.data", "m.onnx", "m.opt.onnx"]
    other = tmp_path / "other"
    other.mkdir()
    gehost.optimize(path, "cpu", measured=False, output=other / "o.onnx")
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(onnx.load(other / "o.onnx").graph.initializer[0]), weight
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--for", "cpuu"], 2, "--for cpuu: no such target; did you mean cpu?"),
        (["--for", "cuda"], 2, "--for cuda: no CUDAExecutionProvider here: pip install"),
        (["-o", "m.onnx"], 2, "this is the model"),
        (["-o", "none/o.onnx"], 2, "none"),
        (["--measure", "x"], 2, "wanted NAME=SIZE"),
        (["--budget", "soon"], 2, "wanted seconds or minutes"),
        (["--report", "r.txt"], 2, "ends in .json or .html"),
        (["--disable", "GeluFusonPass"], 2, "no pass GeluFusonPass; did you mean GeluFusionPass?"),
        (["--enable", "nosuch"], 2, "there is no pass nosuch; `gehost passes` lists them"),
        (["--vendors", "gehost:onxx"], 2, "no installed package ships this vendor; did you mean"),
    ],
)
def test_wrong_usage_has_one_line(
    model: Path,
    arguments: list[str],
    code: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if arguments[-1] == "cuda" and not gehost.optimizing.targets()["cuda"].missing():
        pytest.skip("CUDA is installed")
    monkeypatch.chdir(model.parent)
    assert command(["optimize", "m.onnx", "--no-measure", *arguments]) == code
    assert message in capsys.readouterr().err


def test_a_folder_is_no_model(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    assert command(["optimize", "."]) == 3
    assert capsys.readouterr().err == "gehost: .: cannot read the model: Is a directory\n"


def test_a_model_that_does_not_load_there_is_at_fault(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
        "m (float[2] x) => (float[2] y) { y = own.Nothing(x) }"
    )
    onnx.save(foreign, model)
    assert command(["optimize", str(model), "--for", "cpu"]) == 3
    assert "does not load in ONNX Runtime" in capsys.readouterr().err


SECOND_ROW = """<ir_version: 8, opset_import: ["" : 17]>
m (float["rows", 2] x) => (float[2] y) {
    row = Constant<value_int = 1>()
    z = Gather(x, row)
    y = Relu(z)
}"""


def test_an_error_names_the_model_and_no_file_of_the_run(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(SECOND_ROW), path := tmp_path / "m.onnx")
    for model, name in ((path, str(path)), (onnx.load(path), "the model")):
        with pytest.raises(GehostError, match="does not run") as caught:
            gehost.optimize(model, "cpu", measured=False, dims={"rows": 1})
        assert "gehost-optimize-" not in str(caught.value)
        assert str(caught.value).startswith(f"{name} does not run")


def test_a_model_in_memory_has_no_output(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="^output is for a path: give optimize a path"):
        gehost.optimize(parse(SMALL), "cpu", measured=False, output=tmp_path / "x.onnx")


def test_sizes_that_do_not_run_are_named(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(SECOND_ROW), path := tmp_path / "m.onnx")
    notes = gehost.optimize(path, "cpu", measured=False).report.notes
    assert "does not run at rows=1 and the like: --measure NAME=SIZE gives sizes" in notes


def test_types_that_meet_are_refused_with_the_node_and_what_to_do(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a float16 export by TorchScript with a mask of float32; the runtime says nothing to do."""
    mixed = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> m (float16[2] x, float[2] mask) => (float[2] y)
        { a = Exp (x) y = Add (a, mask) }"""
    )
    mixed.graph.node[1].name = "masked"
    onnx.save(mixed, model)
    assert command(["optimize", str(model), "--for", "cpu"]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert 'Add "masked": input 0 is float16 and input 1 float32; no runtime loads that' in line
    assert line.endswith("or put a Cast before the node")


def test_python_refuses_what_is_no_model() -> None:
    with pytest.raises(UsageError, match=r"optimize wants a path, an onnx.ModelProto or"):
        gehost.optimize(3)
    with pytest.raises(ModelError):
        gehost.optimize("absent.onnx", "any")


def test_a_long_run_is_compared_once(
    model: Path, monkeypatch: pytest.MonkeyPatch, pairs: list[Comparison]
) -> None:
    monkeypatch.setattr(optimizing._Run, "_run_once", lambda *_: 100.0)
    pairs[:] = [FASTER]
    result = gehost.optimize(model, "cpu")
    assert "a run takes 100.00 s" in result.report.unmeasured
    assert result.report.gain is not None
    assert result.report.trials == []


def test_feeds_of_the_user_are_checked_and_measured_with(tmp_path: Path, model: Path) -> None:
    np.savez(tmp_path / "f.npz", x=np.ones(2, np.float32))
    result = gehost.optimize(model, "cpu", feeds=tmp_path / "f.npz")
    assert result.report.sizes == "x 2"


def test_dims_are_fixed_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> m (float[n] x) => (float[n] y) { y = Relu(x) }'
    onnx.save(parse(text), path)
    result = gehost.optimize(path, "any", dims={"n": 3}, measured=False)
    assert onnx.load(result.model).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 3


@pytest.mark.parametrize("name", ["gpt2.ts17", "bert.ts17"])
def test_further_vendors_take_no_operators_of_the_target(name: str) -> None:
    path = MODELS / f"{name}.onnx"
    alone, beside = (
        gehost.optimize(onnx.load(path), "cpu", measured=False, vendors=vendors).report
        for vendors in (
            (),
            [f"gehost:{vendor}" for vendor in ("ascend", "onnx", "openxla", "paddle")],
        )
    )
    assert alone.fused.items() <= beside.fused.items()
    assert alone.fused["com.microsoft::Attention"][0] == 2
    assert beside.after.nodes <= alone.after.nodes


def test_fusions_with_exact_constants_stay_in_half() -> None:
    """The original in half has rounded sqrt(2) and the scale, which the kernels have exact."""
    model = onnx.load(MODELS / "bert.ts17.onnx")
    report = gehost.optimize(model, "cpu", half=True, measured=False).report
    assert report.fused["com.microsoft::Attention"][0] == 2
    assert report.fused["com.microsoft::BiasGelu"][0] == 2


def test_constants_are_folded_into_the_room_that_notes_leave(tmp_path: Path) -> None:
    places = ", ".join(map(str, range(16)))
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[B, 16, 16, 2] x) => (float[B, 16, 16, 2] y)
    <int64[16, 1] row = {{{places}}}, int64[1, 16] column = {{{places}}},
     int64[2] shape = {{16, 16}}, int64[1] last = {{-1}}> {{
        r = Expand(row, shape)
        c = Expand(column, shape)
        ru = Unsqueeze(r, last)
        cu = Unsqueeze(c, last)
        grid = Concat<axis = -1>(cu, ru)
        offset = Cast<to = 1>(grid)
        y = Add(x, offset)
    }}"""
    model = parse(text)
    plain, noted = tmp_path / "plain.onnx", tmp_path / "noted.onnx"
    for path in (plain, noted):
        onnx.save(model, path)
        model.graph.node[0].doc_string = "where the exporter was called " * 60
    nodes = [ops(gehost.optimize(path, "any", measured=False).model) for path in (plain, noted)]
    assert nodes == [
        ["Expand", "Expand", "Unsqueeze", "Unsqueeze", "Concat", "Cast", "Add"],
        ["Add"],
    ]
    assert noted.with_suffix(".opt.onnx").stat().st_size <= noted.stat().st_size


def test_a_pass_that_took_no_candidate_says_why() -> None:
    report = gehost.optimize(onnx.load(BERT), "cpu", measured=False).report
    line = "not used: OrtCausalAttentionPass: not proven to be causal and nothing else"
    assert line in report.lines()


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_first: Any, _second: Any, **_options: Any) -> Comparison:
        raise AssertionError("measured")

    monkeypatch.setattr(optimizing, "measure_pairs", measure)
    with pytest.raises(OutputError, match="there is no directory"):
        gehost.optimize(model, "cpu", output=tmp_path / "no" / "r.onnx")


def test_without_the_clean_up_the_original_alone_is_converted(monkeypatch: Any) -> None:
    """It is compared with the original in float16, from which float32 would differ."""

    def no_candidate(builder: Any, *_: Any) -> Any:
        return builder.shrunk(), {"the clean-up": "it changed numbers"}

    monkeypatch.setattr("gehost.optimizing.run.right_candidate", no_candidate)
    result = gehost.optimize(onnx.load(BERT), "cpu", half=True, measured=False)
    kinds = [t.data_type for t in result.model.graph.initializer if len(t.raw_data) > 1000]
    assert set(kinds) == {onnx.TensorProto.FLOAT16}


def test_a_second_optimize_has_no_more_nodes(tmp_path: Path) -> None:
    """Its fusions need bytes that the file has not; a function of the first stays a call."""
    first, second = (str(tmp_path / name) for name in ("first.onnx", "second.onnx"))
    gehost.optimize(MODELS / "llama.ts17.onnx", "cpu", output=first, measured=False)
    gehost.optimize(first, "cpu", output=second, measured=False)
    assert sorted(ops(second)) == sorted(ops(first))


@pytest.mark.parametrize("needed", [False, True])
def test_a_library_that_the_file_needs_is_named(
    needed: bool, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "ops.c", tmp_path / "ops.so"
    source.write_text("void *RegisterCustomOps(void *options, const void *api) { return 0; }")
    subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    target = find_target("cpu")
    load = type(target).load

    def load_with(self: Any, path: str, libraries: tuple[str, ...] = ()) -> None:
        if needed and not libraries:
            raise RuntimeError("acme:Op(-1) is not a registered function/op")
        load(self, path, libraries)

    monkeypatch.setattr(type(target), "load", load_with)
    report = gehost.optimize(model, "cpu", measured=False, libraries=[library]).report
    how = "a session of ONNX Runtime with ops.so registered runs it"
    plain = "any plain session of ONNX Runtime runs it"
    assert report.as_dict()["loads"] == (how if needed else plain)
