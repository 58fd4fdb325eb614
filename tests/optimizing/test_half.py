"""Conversion to float16 after the fusions, for a GPU that the CPU stands for."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import gehost
from gehost.cli import run
from gehost.testing import parse

onnxruntime = pytest.importorskip("onnxruntime")
MODELS = Path(__file__).parents[1] / "models"
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sessions of CUDA run on the CPU."""
    session, value = onnxruntime.InferenceSession, onnxruntime.OrtValue
    from_numpy = value.ortvalue_from_numpy

    class Session(session):
        def __init__(self, model: Any, options: Any = None, providers: Any = None, **rest: Any):
            super().__init__(model, options, providers=[CPU], **rest)
            self._names = [name if isinstance(name, str) else name[0] for name in providers or ()]

        def get_providers(self) -> list[str]:
            return self._names

        def end_profiling(self) -> str:
            path = Path(super().end_profiling())
            path.write_text(path.read_text().replace(CPU, CUDA))
            return str(path)

        def io_binding(self) -> Any:
            binding = super().io_binding()
            bind = binding.bind_output
            binding.bind_output = lambda name, *_, **__: bind(name, "cpu")
            return binding

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    on_cpu = staticmethod(lambda array, *_: from_numpy(array))
    monkeypatch.setattr(value, "ortvalue_from_numpy", on_cpu)


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def convolutions(layers: int) -> onnx.ModelProto:
    """Return convolutions with BatchNormalization and Relu."""
    draw, weights, lines = np.random.default_rng(0), dict[str, Any](), list[str]()
    for layer in range(layers):
        x, y = "x" if not layer else f"r{layer - 1}", "y" if layer + 1 == layers else f"r{layer}"
        names = [f"{name}{layer}" for name in "sbmv"]
        weights[f"w{layer}"] = draw.normal(0, 0.1, (16, 16, 3, 3))
        weights |= {name: draw.uniform(0.5, 2, 16) for name in names}
        lines.append(f"""c{layer} = Conv<pads = [1, 1, 1, 1]>({x}, w{layer})
            n{layer} = BatchNormalization(c{layer}, {", ".join(names)}) {y} = Relu(n{layer})""")
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    m (float[1, 16, 8, 8] x) => (float[1, 16, 8, 8] y) {{ {" ".join(lines)} }}"""
    return parse(text, {name: array.astype(np.float32) for name, array in weights.items()})


def test_weights_folded_before_the_conversion_round_otherwise() -> None:
    """A folded BatchNormalization is the same function; each rounds its weights to half."""
    result = gehost.optimize(convolutions(6), "cuda", half=True, measured=False)
    assert not result.report.dropped
    assert sorted(set(ops(result.model))) == ["Cast", "Conv", "Relu"]
    kinds = {tensor.data_type for tensor in result.model.graph.initializer}
    assert kinds == {onnx.TensorProto.FLOAT16}


def test_the_fusions_of_float32_are_those_of_half() -> None:
    model = onnx.load(MODELS / "bert.ts17.onnx")
    report = gehost.optimize(model, "cuda", half=True, measured=False).report
    counts = {op.removeprefix("com.microsoft::"): count for op, (count, _) in report.fused.items()}
    expected = {"Attention": 2, "BiasGelu": 2, "SkipLayerNormalization": 4}
    assert {op: counts.get(op) for op in expected} == expected


@pytest.mark.parametrize("factor", [1.003, 0.5])
def test_a_pass_that_changes_numbers_is_dropped(vendors: Any, factor: float) -> None:
    """The file before its conversion decides on factors as small as half's roundings."""
    vendors.write(
        "acme/a.py",
        f"""
        @REG_FUSION_PASS(stage=CustomPassStage.kAfterInferShape)
        class Scaled(PatternFusionPass):
            def Patterns(self):
                builder = EsGraphBuilder("p")
                return [Pattern(builder.BuildAndReset([es.Relu(builder.CreateInput(0))]))]

            def Replacement(self, match):
                builder = EsGraphBuilder("r")
                x = builder.CreateInput(0)
                return builder.BuildAndReset([es.Mul(es.Clip(x, 0.0), {factor})])
        """,
    )
    model, vendor = convolutions(1), [vendors.root]
    report = gehost.optimize(model, "cuda", half=True, measured=False, vendors=vendor).report
    assert list(report.dropped) == ["Scaled"]
    assert "differ" in report.dropped["Scaled"]


def products(size: float) -> onnx.ModelProto:
    """Return two products, the second of numbers around ``size``, and a norm."""
    draw = np.random.default_rng(0)
    weights = {"w": draw.normal(size=(32, 32)), "v": draw.normal(size=(32, 32)) * size}
    text = """<ir_version: 8, opset_import: ["" : 17]> m (float[1, 8, 32] x) => (float[1, 8, 32] y)
    <float[32] g = {1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1}>
    { a = MatMul (x, w) b = Relu (a) c = MatMul (b, v) y = LayerNormalization (c, g) }"""
    return parse(text, {name: array.astype(np.float32) for name, array in weights.items()})


def saved(model: onnx.ModelProto, path: Path) -> str:
    onnx.save(model, path)
    return str(path)


@pytest.mark.parametrize("measured", [False, True])
def test_a_product_out_of_range_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], measured: bool
) -> None:
    """In the text, the data and the page, whichever file is written."""
    path = saved(products(1e4), tmp_path / "m.onnx")
    pages = [str(tmp_path / "r.json"), str(tmp_path / "r.html")]
    words = ["optimize", path, "-o", str(tmp_path / "o.onnx"), "--half", "--for", "cuda"]
    words += ["--budget", "3s"] if measured else ["--no-measure"]
    assert run([*words, *(word for page in pages for word in ("--report", page))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert re.search(r'half: MatMul "c" reaches [\d.e+]+, above 65504: kept in float32', text)
    assert "off by" in text
    kept = json.loads(Path(pages[0]).read_text())["kept_float32"]
    assert kept == {"numbers outside of float16's range": ['MatMul "c"', 'LayerNormalization "y"']}
    page = " ".join(html.unescape(Path(pages[1]).read_text()).split())
    assert "<html" in page
    assert 'MatMul "c" reaches' in page
    assert run([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept_float32"] == kept


def test_numbers_say_what_was_compared() -> None:
    model = products(1.0)
    wide = gehost.optimize(model, "cuda", measured=False).report.numbers
    assert "float16" not in wide
    half = gehost.optimize(model, "cuda", half=True, measured=False).report.numbers
    assert re.fullmatch(
        r"equal .* before float16, then equal .* beside the original in float16; "
        r"float16 is off by 0\.\d+ \(relative, root mean square\)",
        half,
    )
    converted = gehost.optimize(model, "cuda", half=True, measured=False).model
    again = gehost.optimize(converted, "cuda", half=True, measured=False).report
    assert "float16" not in again.numbers
    assert any("tensors of float16 already" in note for note in again.notes)
    assert not again.kept_float32


def test_the_file_names_the_runtime_that_half_needs() -> None:
    """Kernels of residual norms hold epsilon in half before 1.31.1, those of float32 do not."""
    model = onnx.load(MODELS / "bert.ts17.onnx")
    for half, needs in ((False, "onnxruntime>=1.21.1"), (True, "onnxruntime>=1.31.1")):
        result = gehost.optimize(model, "cuda", half=half, measured=False)
        entries = {entry.key: entry.value for entry in result.model.metadata_props}
        assert entries["gehost.needs"] == needs
        assert entries["gehost.target"] == "cuda"


def out_of_range(body: str) -> onnx.ModelProto:
    """Return a model with numbers of which half is out of range for some feeds alone."""
    draw = np.random.default_rng(0)
    weights = {
        "w": draw.normal(size=(32, 32)) * 30,
        "v": draw.normal(size=(32, 32)) * 60,
        "big": np.array(2000.0),
        "one": np.array(1.0),
    }
    arrays: dict[str, Any] = {name: array.astype(np.float32) for name, array in weights.items()}
    arrays |= {"flat": np.array([1, -1]), "rows": np.array([-1, 32])}
    arrays |= {"twice": np.array(2), "yes": np.array(True)}
    words = set(re.findall(r"\w+", body))
    text = f"""<ir_version: 9, opset_import: ["": 17, "my": 1]>
    m (float[n, 32] x, bool c) => (float[n, 32] y) {{ {body}"""
    return parse(text, {name: array for name, array in arrays.items() if name in words})


NORM = "a = Abs ({0}) m = ReduceMax <axes = [-1], keepdims = 1> (a) r = Div ({0}, m) {1} = Tanh (r)"
PRODUCTS = "p = MatMul (x, w) q = MatMul (p, v)"
BODIES = {
    "by a flag": f"""k = Where (c, big, one) p = MatMul (x, w) q = Mul (p, k)
        t = Transpose <perm = [1, 0]> (q) s = Reshape (t, flat) {NORM.format("s", "z")}
        y = Reshape (z, rows) }}""",
    "in a branch": f"""y = If (c) <then_branch = t () => (float[n, 32] u)
        {{ {PRODUCTS} {NORM.format("q", "u")} }},
        else_branch = e () => (float[n, 32] v2) {{ v2 = Relu (x) }}> }}""",
    "of a branch": f"""z = If (c) <then_branch = t () => (float[n, 32] q) {{ {PRODUCTS} }},
        else_branch = e () => (float[n, 32] v2) {{ v2 = Relu (x) }}> {NORM.format("z", "y")} }}""",
    "into a loop": f"""{PRODUCTS} z = Loop (twice, yes, q) <body = b (int64 i, bool k,
        float[n, 32] s) => (bool l, float[n, 32] o) {{ l = Identity (k) o = Relu (s) }}>
        {NORM.format("z", "y")} }}""",
    "in a loop": f"""y = Loop (twice, yes, x) <body = b (int64 i, bool k, float[n, 32] s)
        => (bool l, float[n, 32] o) {{ l = Identity (k) {PRODUCTS} {NORM.format("q", "o")} }}> }}""",
    "in a function": f"""y = my.block (x, w, v) }}
        <domain: "my", opset_import: ["": 17]>
        block (x, w, v) => (y) {{ {PRODUCTS} {NORM.format("q", "y")} }}""",
}


@pytest.mark.parametrize("where", BODIES)
def test_numbers_out_of_range_on_any_feed_stay_in_float32(where: str) -> None:
    model = out_of_range(BODIES[where])
    model.graph.node[0].doc_string = "an exporter's notes, which leave room for casts; " * 20
    result = gehost.optimize(model, "any", half=True, measured=False)
    onnx.checker.check_model(result.model, full_check=True)
    report = result.report
    assert report.kept_float32
    assert not report.unconverted
    assert re.search(r"off by \d\.?\d*(e-0\d)? ", report.numbers), report.numbers
    draw = np.random.default_rng(1).normal(size=(3, 32)).astype(np.float32)
    for flag in (True, False):
        feed = {"x": draw, "c": np.array(flag)}
        names = {info.name for info in model.graph.input}
        before, after = (
            onnxruntime.InferenceSession(item.SerializeToString()).run(
                None, {name: array for name, array in feed.items() if name in names}
            )
            for item in (model, result.model)
        )
        np.testing.assert_allclose(after[0], before[0], atol=5e-3)


def test_a_model_that_half_breaks_is_not_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Near 1000 half has no fractions, so that the difference is 0."""
    text = """<ir_version: 9, opset_import: ["": 17]> m (float[n, 32] x) => (float[n, 32] y)
    <float k = {1000}, float h = {0.001}, float one = {1}>
    { t = MatMul (x, w) u = Sigmoid (t) s = Mul (u, h) a = Add (s, k) r = Relu (a) d = Sub (r, k)
      y = Div (one, d) }"""
    weights = {"w": np.eye(32, dtype=np.float32)}
    path = saved(parse(text, weights), tmp_path / "m.onnx")
    line = 'not converted: output "y" of feed 0 is not finite in float16'
    words = ["optimize", path, "-o", str(tmp_path / "o.onnx"), "--half", "--no-measure"]
    assert run([*words, "--for", "any"]) == 0
    assert line in " ".join(capsys.readouterr().out.split())
    written = onnx.load(tmp_path / "o.onnx")
    assert {tensor.data_type for tensor in written.graph.initializer} == {onnx.TensorProto.FLOAT}
    assert run([*words, "--for", "any", "-q"]) == 0
    assert line in capsys.readouterr().out
    assert run([*words, "--for", "any", "--json"]) == 0
    assert line in json.loads(capsys.readouterr().out)["unconverted"]
    report = gehost.optimize(parse(text, weights), "any", half=True, measured=False).report
    assert line in report.unconverted
    assert run(["compile", path, "-o", str(tmp_path / "c.onnx"), "--half", "--verify"]) == 6
    assert not (tmp_path / "c.onnx").exists()


def test_a_model_that_grows_by_casts_is_not_converted() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[4, 8] x) => (float[4, 8] y)
    { a = Relu (x) y = Tanh (a) }"""
    model = parse(text)
    result = gehost.optimize(model, "cpu", half=True, measured=False)
    assert len(result.model.SerializeToString()) <= len(model.SerializeToString())
    assert ops(result.model) == ["Relu", "Tanh"]
    assert re.fullmatch(r"half: not converted: .* \d+ bytes larger .*", result.report.unconverted)


def test_a_function_of_an_older_opset_is_refused_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17, "my": 1]>
        g (float[2, 3] x) => (float[2, 3] y) { y = my.old (x) }
        <domain: "my", opset_import: ["": 12]> old (x) => (y) { y = Softmax <axis = 1> (x) }"""
    )
    path = saved(model, tmp_path / "m.onnx")
    options = ["--for", "cpu", "--no-measure", path, "-o", str(tmp_path / "o.onnx")]
    lines: list[str] = []
    for half in ([], ["--half"]):
        assert run(["optimize", *half, *options]) != 0
        lines.append(capsys.readouterr().err)
    assert lines[0] == lines[1]
    assert "imports version 12" in lines[0]


DEAD = {
    "an angle that nothing reads": "d = Add (y, a) c = Cos (d)",
    "in a branch": "d = If (b) <then_branch = t () => (float[n, 64] p) { p = Sin (y) }, "
    "else_branch = e () => (float[n, 64] q) { q = Identity (x) }>",
    "an angle that is no other": "d = Add (y, y) c = Sin (d) z = Sub (c, c) s = Shape (z)",
}


@pytest.mark.parametrize("rest", DEAD)
def test_what_the_cleanup_takes_away_keeps_nothing_in_float32(rest: str) -> None:
    """The angle needs the product and its weights exact, and is in no result."""
    draw = np.random.default_rng(0)
    weights = {"w": draw.normal(size=(64, 64)) / 8, "k": draw.normal(size=64)}
    text = f"""<ir_version: 9, opset_import: ["": 17]>
    m (float[n, 64] x, bool b) => (float[n, 64] y)
    {{ a = MatMul (x, w) y = Min (a, k) {DEAD[rest]} }}"""
    model = parse(text, {name: array.astype(np.float32) for name, array in weights.items()})
    report = gehost.optimize(model, "any", half=True, measured=False).report
    assert not report.dropped
    assert not report.kept_float32
    assert report.result == "cleaned"
