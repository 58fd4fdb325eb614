"""``half``: the compiled model in float16, from a file, in memory and on the command line."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost import Host, HostOptions, NumbersDifferError, UsageError
from gehost.cli import run
from gehost.host import in_half as module
from gehost.testing import parse
from gehost.verify import Runner

MODELS = Path(__file__).parents[1] / "models"
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def types_of(model: onnx.ModelProto) -> list[int]:
    values = (*model.graph.input, *model.graph.output)
    return [value.type.tensor_type.elem_type for value in values]


@pytest.mark.parametrize("keep", [False, True])
def test_a_file_is_fused_converted_and_compared(tmp_path: Path, keep: bool) -> None:
    options = HostOptions(half=True, keep_io_types=keep, verify=True)
    report = Host(options).compile(MODELS / "vit.ts17.onnx", tmp_path / "half.onnx")
    result = onnx.load(tmp_path / "half.onnx")
    assert set(types_of(result)) == {FLOAT if keep else FLOAT16}
    assert report.nodes_after == len(result.graph.node)
    assert any(
        note.startswith("half: equal: ") and "float16 is off by" in note for note in report.notes
    )


def test_external_weights_are_read_and_written(tmp_path: Path) -> None:
    host = Host(HostOptions(half=True, keep_io_types=True, plugins=False))
    host.compile(MODELS / "external.onnx", tmp_path / "half.onnx")
    x = {
        value.name: np.ones(
            [1 if not d.dim_value else d.dim_value for d in value.type.tensor_type.shape.dim],
            np.float32,
        )
        for value in onnx.load(MODELS / "external.onnx").graph.input
    }
    before, after = Runner(MODELS / "external.onnx").run(x), Runner(tmp_path / "half.onnx").run(x)
    for name, array in before.items():
        np.testing.assert_allclose(after[name], array, rtol=1e-2, atol=1e-3)


def test_a_model_in_memory_stays_as_it_is() -> None:
    model = onnx.load(MODELS / "vit.ts17.onnx")
    content = model.SerializeToString(deterministic=True)
    result, _ = Host(HostOptions(half=True, plugins=False)).run(model)
    assert model.SerializeToString(deterministic=True) == content
    assert set(types_of(result)) == {FLOAT16}


def test_a_conversion_with_other_numbers_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    convert: Any = module.to_float16

    def wrong(*arguments: Any, **options: Any) -> Any:
        conversion = convert(*arguments, **options)
        for node in conversion.model.graph.node:
            for entry in node.attribute:
                if entry.name == "epsilon":
                    entry.f = 1e-3
        return conversion

    monkeypatch.setattr(module, "to_float16", wrong)
    with pytest.raises(
        NumbersDifferError, match=r"float16 gives other numbers: differ: .*--keep-float32"
    ):
        Host(HostOptions(half=True, verify=True)).run(onnx.load(MODELS / "vit.dyn20.onnx"))
    output = tmp_path / "out.onnx"
    output.write_bytes(b"before")
    with pytest.raises(NumbersDifferError, match=r"is \S+/out\.refused\.onnx; keep operators"):
        Host(HostOptions(half=True, verify=True)).compile(MODELS / "vit.dyn20.onnx", output)
    assert output.read_bytes() == b"before"
    assert set(types_of(onnx.load(tmp_path / "out.refused.onnx"))) == {FLOAT16}


def test_a_name_that_keeps_nothing_is_noted() -> None:
    model = onnx.load(MODELS / "vit.ts17.onnx")
    _, report = Host(HostOptions(half=True, keep_float32=["Softmax", "nosuch"])).run(model)
    assert [note for note in report.notes if "no node" in note] == [
        "half: no node and no operator has the name 'nosuch' (--keep-float32)"
    ]


def test_options_of_the_conversion_need_it() -> None:
    with pytest.raises(UsageError, match="keep_io_types: only used by half; turn half on"):
        HostOptions(keep_io_types=True)
    with pytest.raises(UsageError, match="keep_float32: only used by half; turn half on"):
        HostOptions(keep_float32=["Softmax"])


def text_model(dtype: str, body: str = "h = MatMul (x, w) y = Relu (h)", io: str = "") -> Any:
    io = io or dtype
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        g ({io}[N, 4] x) => ({io}[N, 4] y) {{ {body} }}"""
    )
    kind = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    weights = np.linspace(-1, 1, 16).reshape(4, 4).astype(kind)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


CASTS = "a = Cast <to = 10> (x) h = MatMul (a, w) b = Cast <to = 1> (h) y = Relu (b)"


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    ("model", "name"),
    [
        (text_model("float16"), "float16"),
        (text_model("bfloat16"), "bfloat16"),
        (text_model("float16", CASTS, "float"), "float16"),
        (
            text_model("float16", CASTS.replace("(b)", "(b, b)").replace("Relu", "Mul"), "float"),
            "float16",
        ),
    ],
    ids=["float16", "bfloat16", "float32 outside", "mixed"],
)
def test_a_model_in_half_is_compared_once_and_stays(
    model: onnx.ModelProto, name: str, keep: bool, tmp_path: Path
) -> None:
    onnx.save(model, tmp_path / "m.onnx")
    options = HostOptions(half=True, verify=True, keep_io_types=keep)
    report = Host(options).compile(tmp_path / "m.onnx", tmp_path / "o.onnx")
    assert report.verify["equal"]
    assert not report.half
    notes = [note for note in report.notes if note.startswith("half: ")]
    assert notes == [f"half: the model has tensors of {name} already, and stays as it is"]
    assert set(types_of(onnx.load(tmp_path / "o.onnx"))) == set(types_of(model))
    again, _ = Host(options).run(onnx.load(tmp_path / "o.onnx"))
    assert set(types_of(again)) == set(types_of(model))


def test_the_converted_file_is_one_that_stays(tmp_path: Path) -> None:
    """A second compile with half compares it as a model of half."""
    host = Host(HostOptions(half=True, verify=True))
    host.compile(MODELS / "vit.ts17.onnx", tmp_path / "half.onnx")
    report = host.compile(tmp_path / "half.onnx", tmp_path / "again.onnx")
    assert report.verify["equal"]
    assert set(types_of(onnx.load(tmp_path / "again.onnx"))) == {FLOAT16}


def test_a_pass_that_writes_half_tensors_leaves_nothing_to_convert(vendors: Any) -> None:
    vendors.write(
        "acme/a.py",
        """
        @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
        class Narrow(PatternFusionPass):
            def Patterns(self):
                builder = EsGraphBuilder("p")
                return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

            def Replacement(self, match):
                builder = EsGraphBuilder("r")
                x = es.Cast(builder.CreateInput(0), to=DataType.FLOAT16)
                return builder.BuildAndReset([es.Cast(es.Relu(x), to=DataType.FLOAT)])
        """,
    )
    options = HostOptions(vendors=[vendors.root], half=True, verify=True, rtol=1e-2, atol=1e-2)
    result, report = Host(options).run(text_model("float"))
    assert set(types_of(result)) == {FLOAT}
    assert any("tensors of float16 already" in note for note in report.notes)


def test_what_keeps_float32_is_in_the_report_and_on_its_page(tmp_path: Path) -> None:
    model = text_model("float", "h = MatMul (x, w) b = Mul (h, big) y = Tanh (b)")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1e6), "big"))
    onnx.save(model, tmp_path / "m.onnx")
    arguments = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx"), "--half"]
    arguments += ["--verify", "--vendors", "gehost:onnx"]
    pages = [tmp_path / "r.json", tmp_path / "r.html"]
    assert run([*arguments, *(word for page in pages for word in ("--report", str(page)))]) == 0
    data = json.loads(pages[0].read_text())
    assert data["half"] is True
    assert data["kept_float32"]
    for why, labels in data["kept_float32"].items():
        line = f"float32 ({why}): {', '.join(labels)}"
        assert line in html.unescape(pages[1].read_text())


@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("keep_io", [True, False])
def test_numbers_out_of_range_in_a_body(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], around: bool, keep_io: bool
) -> None:
    """The whole If stays in float32, whether its branch reads or makes them."""
    draw = np.random.default_rng(0)
    product = "p = MatMul (x, w) q = MatMul (p, v)"
    model = parse(
        f"""<ir_version: 9, opset_import: ["": 17]> g (float[n, 32] x, bool c) => (float[n, 32] y)
        {{ {product if around else ""} y = If (c) <then_branch = t () => (float[n, 32] u)
        {{ {"" if around else product} a = Abs (q) t = Transpose <perm = [1, 0]> (a)
        m = ReduceMax <axes = [0], keepdims = 1> (t) r = Reshape (m, rows) u = Div (q, r) }},
        else_branch = e () => (float[n, 32] o) {{ o = Relu (x) }}> }}""",
        {
            "w": (draw.normal(size=(32, 32)) * 30).astype(np.float32),
            "v": (draw.normal(size=(32, 32)) * 240).astype(np.float32),
            "rows": np.array([-1, 1]),
        },
    )
    path, target = tmp_path / "m.onnx", tmp_path / "half.onnx"
    onnx.save(model, path)
    words = ["--keep-io-types"] if keep_io else []
    assert run(["compile", str(path), "-o", str(target), "--half", "--verify", *words]) == 0
    note = capsys.readouterr().err
    assert 'If "y"' in note
    assert re.search(r"float16 is off by 0(\.000\d+)? ", note)
    result = onnx.load(target)
    onnx.checker.check_model(result, full_check=True)
    x = draw.normal(size=(3, 32)).astype(np.float16).astype(np.float32)
    feed = {"x": x, "c": np.array(True)}
    after = Runner(target).run(feed if keep_io else feed | {"x": x.astype(np.float16)})["y"]
    np.testing.assert_allclose(after, Runner(path).run(feed)["y"], atol=2e-3)


def test_a_conversion_without_feeds_is_said_to_be_one() -> None:
    model = parse("""<ir_version: 8, opset_import: ["": 17]> g (float[4, 8] x) => (float[4, 8] y)
    { a = Relu (x) y = Tanh (a) }""")
    for verify in (False, True):
        report = Host(HostOptions(half=True, verify=verify, plugins=False)).run(model)[1]
        assert any("--verify does" in note for note in report.notes) is not verify


FILLED = {
    "a choice": "z = Where (b, y, fill)",
    "behind a sum": "u = Where (b, y, fill) z = Add (u, y)",
    "a constant": "z = Identity (fill)",
    "a body": """z = If (k) <then_branch = p () => (float[n, 64] q) { q = Where (b, y, fill) },
        else_branch = r () => (float[n, 64] s) { s = Where (b, fill, y) }>""",
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("fill", [-1e9, -3.4028235e38])
@pytest.mark.parametrize("kind", FILLED)
def test_a_fill_that_an_output_holds_is_exact_or_refused(
    kind: str, fill: float, keep: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounded it was said to be off by 1, more than roundings explain, beside "equal"."""
    text = f"""<ir_version: 10, opset_import: ["": 17]>
    g (float[n, 64] x, bool k) => (float[n, 64] y, float[n, 64] z)
    <float fill = {{{fill}}}, float zero = {{0}}>
    {{ a = MatMul (x, w) y = Tanh (a) b = Greater (a, zero) {FILLED[kind]} }}"""
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8
    if kind == "a constant":
        text = text.replace("float[n, 64] z)", "float z)")
    onnx.save(parse(text, {"w": weight}), tmp_path / "m.onnx")
    words = ["compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "o.onnx")]
    code = run([*words, "--half", "--verify", *(["--keep-io-types"] if keep else [])])
    assert code == (0 if keep else 6)
    assert ("more than roundings explain" in capsys.readouterr().err) is not keep
    if keep:
        half, feed = onnx.load(tmp_path / "o.onnx"), np.eye(3, 64, dtype=np.float32)
        lowest = Runner(half).run({"x": feed, "k": np.array(True)})["z"].min()
        assert lowest == np.float32(fill)
        assert any(item.data_type == onnx.TensorProto.FLOAT16 for item in half.graph.initializer)


OWN = """
from gehost import CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, REG_FUSION_PASS, es, ops

@ops.register("acme::Opposite")
def opposite(x):
    return es.Neg(x)

@REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
class OppositePass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        return [Pattern(builder.BuildAndReset([es.Neg(es.Abs(builder.CreateInput(0)))]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        x = builder.CreateInput(0)
        return builder.BuildAndReset([es.op("acme::Opposite")(es.Abs(x))])
"""


def test_operators_of_passes_that_are_inlined_are_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    model = parse(
        """<ir_version: 9, opset_import: ["": 17]> g (float[2] x) => (float[2] y) {
            a = Abs (x) y = Neg (a) }"""
    )
    options = HostOptions(half=True, plugins=False)
    result, report = Host(replace(options, pass_paths=[tmp_path / "own.py"])).run(model)
    (note,) = (note for note in report.notes if "inlined" in note)
    assert note == (
        "half: 1 function of the model inlined, and with them acme::Opposite of passes: "
        "to keep these, convert with --half first, and compile the result"
    )
    assert [node.op_type for node in result.graph.node][:2] == ["Abs", "Neg"]

    half, _ = Host(options).run(model)
    own = HostOptions(plugins=False, pass_paths=[tmp_path / "own.py"], verify=True)
    result, _ = Host(own).run(half)
    assert [node.op_type for node in result.graph.node] == ["Abs", "Opposite"]


def test_functions_of_the_model_are_inlined(tmp_path: Path) -> None:
    """4,099 and 105,001 are no numbers of float16; a function that makes them hides that."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17, "own": 1]>
        g (int64[2] n) => (float[2] y) { y = own.Made (n) }
        <domain: "own", opset_import: ["": 17]> Made (n) => (g) {
            f = Cast <to = 1> (n) one = Constant <value = float {1}> () g = Mul (f, one) }"""
    )
    onnx.save(model, tmp_path / "own.onnx")
    host = Host(HostOptions(half=True, keep_io_types=True, verify=True))
    report = host.compile(tmp_path / "own.onnx", tmp_path / "half.onnx")
    assert "half: 1 function of the model inlined" in report.notes
    result = Runner(tmp_path / "half.onnx").run({"n": np.array([4099, 105001])})
    assert result["y"].tolist() == [4099, 105001]
