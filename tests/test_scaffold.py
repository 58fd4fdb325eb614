"""``gehost new``: what it writes works as it stands."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from gehost import Host, HostOptions, OutputError, UsageError
from gehost.cli import run
from gehost.scaffold.write import write_pass, write_pass_from
from gehost.testing import parse, run_pass


def test_a_new_pass_loads_and_its_test_passes(tmp_path: Path) -> None:
    root = tmp_path / "vendors"
    files = write_pass("acme/fuse_matmul_add", str(root))
    assert files == [
        root / "acme/custom_fusion_passes/fuse_matmul_add.py",
        root / "acme/tests/test_fuse_matmul_add.py",
    ]
    (spec,) = Host(HostOptions(vendors=[root], plugins=False)).passes
    assert (spec.name, spec.vendor, spec.stage.name) == (
        "FuseMatmulAddPass",
        "acme",
        "kAfterInferShape",
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
        str(files[1]),
    ]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "4 passed" in process.stdout


def test_a_new_pass_is_a_skeleton_that_claims_nothing_about_its_name(tmp_path: Path) -> None:
    code, test = (path.read_text() for path in write_pass("acme/rms_norm", str(tmp_path)))
    assert "class RmsNormPass(PatternFusionPass)" in code
    assert "the example of this skeleton" in code
    assert "Gemm" not in code + test


def test_two_passes_of_two_vendors_load_together(tmp_path: Path) -> None:
    for name in ("acme/one", "acme/two_pass", "zeta/three"):
        write_pass(name, str(tmp_path))
    assert Host(HostOptions(vendors=[tmp_path], plugins=False)).passes.names() == [
        "OnePass",
        "TwoPass",
        "ThreePass",
    ]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "acme",
        "acme/",
        "/x",
        "acme/x/y",
        "Acme/x",
        "acme/X",
        "acme/1x",
        "acme/_x",
        "acme/x-y",
        "../x",
        "acme/..",
        "acme/class",
        "in/x",
        "acme/x\n",
        "a b/x",
    ],
)
def test_a_name_that_makes_no_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="wanted VENDOR/PASS in lower case"):
        write_pass(name, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("existing", ["acme/custom_fusion_passes/x.py", "acme/tests/test_x.py"])
def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, existing: str) -> None:
    path = tmp_path / existing
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UsageError, match=f"{existing}: exists already; choose another name"):
        write_pass("acme/x", str(tmp_path))
    assert [actual for actual in tmp_path.rglob("*") if actual.is_file()] == [path]
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text("in the way")
    with pytest.raises(OutputError, match="cannot make the directory"):
        write_pass("acme/x", str(tmp_path))


MODELS = Path(__file__).parent / "models"
STYLES = ("class", "drr", "traced", "decompose")
ATTENTION = "/model/encoder/layer.0/attention/self"
SELF = [f"{ATTENTION}/{node}" for node in ("Mul", "Add", "Softmax", "MatMul_1", "Transpose_3")]
PLACES = {
    "attention": ("bert.ts17.onnx", SELF),
    "two outputs": (
        "bert.ts17.onnx",
        [f"{ATTENTION}/{node}" for node in ("Softmax", "MatMul", "Mul", "Add")],
    ),
    "a weight": ("bert.ts17.onnx", [f"{ATTENTION}/query/{node}" for node in ("MatMul", "Add")]),
}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("place", PLACES)
def test_a_pass_from_a_place_matches_there_and_its_test_passes(
    tmp_path: Path, place: str, style: str
) -> None:
    model, nodes = PLACES[place]
    nodes = nodes[:1] if style == "decompose" else nodes
    (code, test, part), _ = write_pass_from(
        "acme/here", str(tmp_path), str(MODELS / model), nodes, style, "kAfterInferShape"
    )
    assert len(onnx.load(part).graph.node) >= len(nodes)
    name = "here" if style in ("drr", "traced") else "HerePass"
    result, record = run_pass(onnx.load(MODELS / model), name, vendors=tmp_path)
    assert record.replaced, record
    origins = [
        set(json.loads(entry.value))
        for node in result.graph.node
        for entry in node.metadata_props
        if entry.key == "gehost.origin_nodes"
    ]
    assert any(set(nodes) <= item for item in origins)
    loaded = runpy.run_path(str(test))
    loaded["test_it_fires_and_the_numbers_stay"]()
    compile(code.read_text(), str(code), "exec")


def test_the_text_of_a_pass_from_a_place(tmp_path: Path) -> None:
    nodes = [*PLACES["a weight"][1], f"{ATTENTION}/Reshape", f"{ATTENTION}/Transpose"]
    (code, *_), _ = write_pass_from(
        "acme/here",
        str(tmp_path),
        str(MODELS / "bert.ts17.onnx"),
        nodes,
        "class",
        "kAfterInferShape",
    )
    text = code.read_text()
    assert "builder.CreateInputs(" in text
    assert 'for name in ["' in text  # the weight and the bias are captured, and must be constant
    assert "perm=[0, 2, 1, 3]" in text
    assert "allowzero=0" in text  # also an attribute that is left at its default


def test_the_model_may_be_of_an_importers_kind(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY e { x = f32[2,3] parameter(0) ROOT y = f32[2,3] negate(x) }"
    (tmp_path / "m.hlo").write_text(text)
    arguments = ["--vendors", str(tmp_path / "v"), "--from", str(tmp_path / "m.hlo")]
    assert run(["new", "acme/negation", *arguments, "--nodes", "y"]) == 0
    assert "es.Neg" in (tmp_path / "v/acme/custom_fusion_passes/negation.py").read_text()


def test_a_decompose_pass_writes_the_parts_that_onnx_defines(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 17]>
    main (float[N, 4] x) => (float[N, 4] y) { y = HardSwish (x) }"""),
        model,
    )
    (code, test, _), _ = write_pass_from(
        "acme/h", str(tmp_path / "v"), str(model), ["y"], "decompose", "kBeforeInferShape"
    )
    assert "es.HardSigmoid(" in code.read_text()
    runpy.run_path(str(test))["test_it_fires_and_the_numbers_stay"]()


LOCAL = """<domain: "local", opset_import: ["" : 17]>
F <slope: float = 0.5> (i, j, k) => (o, p) {
    q = Neg (i) o = LeakyRelu <alpha: float = @slope> (q) p = Identity (i)
}"""
DECOMPOSED = {
    "an attribute": ("y = LeakyRelu <alpha = 0.2> (x)", "y = LeakyRelu (x)"),
    "a default": ("y = LeakyRelu (x)", "y = LeakyRelu <alpha = 0.2> (x)"),
    "one tensor twice": ("y = Mul (x, x)", "y = Mul (x, w)"),
    "a gap": ("y = Concat <axis = 0> (x, x, w)", "y = Concat <axis = 0> (x, w, w)"),
    "an absent input": ("y = Clip (x, , u)", "y = Clip (x, l, u)"),
    "two outputs": ("y, z = TopK (x, k)", "y, z = TopK <largest = 0> (x, k)"),
    "outputs of one type": ("y, z = Split (x)", "y, z = Split <axis = 1> (x)"),
    "an unread output": ("s, y = Split (x)", "s, y = Split <axis = 1> (x)"),
    "a function": ("y, z = local.F (x)", "y, z = local.F <slope = 0.25> (x)"),
    "a function's attribute": ("y, z = local.F <slope = 0.2> (x)", "y, z = local.F (x)"),
    "a function's last input": ("y, z = local.F (w, , x)", "y, z = local.F (w, x)"),
}


def written_test(tmp_path: Path, model: onnx.ModelProto, nodes: list[str], style: str) -> str:
    """Write pass ``acme/h`` from nodes of a model to ``v``; return its test."""
    onnx.save(model, tmp_path / "m.onnx")
    folder, path = str(tmp_path / "v"), str(tmp_path / "m.onnx")
    (_, test, _), _ = write_pass_from("acme/h", folder, path, nodes, style, "kAfterInferShape")
    return str(test)


@pytest.mark.parametrize(("here", "elsewhere"), DECOMPOSED.values(), ids=DECOMPOSED)
def test_a_decompose_pass_replaces_the_like_of_its_node_alone(
    tmp_path: Path, here: str, elsewhere: str
) -> None:
    outputs = "y, z" if " z " in f"{here.partition('=')[0].replace(',', ' ')} " else "y"
    results = {"y": "float[A, B] y", "z": "int64[A, B] z" if "TopK" in here else "float[A, B] z"}

    def model(body: str) -> onnx.ModelProto:
        declared = ", ".join(results[name] for name in outputs.split(", "))
        return parse(f"""<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
    main (float[4, 4] x, float[4, 4] w, int64[1] k, float l, float u) => ({declared}) {{ {body} }}
    {LOCAL}""")

    test = written_test(tmp_path, model(here), ["y"], "decompose")
    runpy.run_path(test)["test_it_fires_and_the_numbers_stay"]()
    _, record = run_pass(model(elsewhere), "HPass", vendors=tmp_path / "v")
    assert (record.matched, record.replaced) == (1, 0)


def test_an_output_that_is_a_constant_has_no_parts(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
    main (float[4] x) => (float[4] y, float z) { y, z = local.F (x) }
    <domain: "local", opset_import: ["" : 17]>
    F (i) => (o, p) { o = Relu (i) p = Constant <value_float = 2.0> () }"""
    with pytest.raises(UsageError, match='output "z" is a constant'):
        written_test(tmp_path, parse(text), ["y"], "decompose")


LEFT_OUT = {
    "a bound": ("c = Clip (x, zero) y = Neg (c)", "c = Clip (x, zero, six) y = Neg (c)"),
    "sizes": (
        "s, t = Split (x) y = Concat <axis = 1> (s, t)",
        "s, t = Split (x, sizes) y = Concat <axis = 1> (s, t)",
    ),
    "an attribute of a function": (
        "c, p = local.F (x) y = Neg (c)",
        "c, p = local.F <slope = 0.25> (x) y = Neg (c)",
    ),
}


@pytest.mark.parametrize(("here", "elsewhere"), LEFT_OUT.values(), ids=LEFT_OUT)
@pytest.mark.parametrize("style", ["class", "drr"])
def test_what_a_node_leaves_out_must_be_absent(
    tmp_path: Path, style: str, here: str, elsewhere: str
) -> None:
    def model(body: str) -> onnx.ModelProto:
        return parse(f"""<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
    main (float[4, 4] x) => (float[A, B] y) {{
        zero = Constant <value = float {{0.0}}> () six = Constant <value = float {{6.0}}> ()
        sizes = Constant <value = int64[2] {{2, 2}}> () {body}
    }}
    {LOCAL}""")

    nodes = [word for word in ("c", "s", "y") if f"{word} = " in here or f"{word}, " in here]
    written_test(tmp_path, model(here), nodes, style)
    name = "h" if style == "drr" else "HPass"
    for body, count in ((here, 1), (elsewhere, 0)):
        _, record = run_pass(model(body), name, vendors=tmp_path / "v")
        assert record.replaced == count


def test_a_drr_rule_leaves_out_an_absent_output(tmp_path: Path) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
    main (float[5, 1, 3] x, float[1, 8, 3] w, float[1, 8, 2] r) => (float[5, 1, 1, 2] y, float[1, 1, 2] c) {
        y, , c = LSTM <hidden_size = 2> (x, w, r)
    }"""
    test = written_test(tmp_path, parse(text), ["y"], "drr")
    runpy.run_path(test)["test_it_fires_and_the_numbers_stay"]()


SIZES = """<ir_version: 8, opset_import: ["" : 17]>
main (float[N, 8] x, bool[8] flags) => (float y) {
    chosen = Compress <axis = 1> (x, flags)
    a = Relu (chosen)
    b = Sigmoid (a)
    c = Relu (b)
    d = Sigmoid (c)
    shape = Shape (d)
    back = Reshape (d, shape)
    all = Constant <value_ints = [-1]> ()
    flat = Reshape (back, all)
    e = Reshape (flat, shape)
    y = Neg (e)
}"""


@pytest.mark.parametrize(
    ("nodes", "inputs", "inside"),
    [
        (["c", "d"], ["b"], ["Relu", "Sigmoid"]),  # a part with an input of unknown sizes
        (["back"], ["d"], ["Shape", "Reshape"]),  # of which other sizes are computed
        # flat and shape do not fit each other unless the model computes both
        (["e", "y"], ["x", "flags"], None),
    ],
)
def test_the_model_of_the_test_begins_near_the_place(
    tmp_path: Path, nodes: list[str], inputs: list[str], inside: list[str] | None
) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(parse(SIZES), model)
    (_, test, part), _ = write_pass_from(
        "acme/h", str(tmp_path / "v"), str(model), nodes, "class", "kAfterInferShape"
    )
    graph = onnx.load(part).graph
    assert {value.name for value in graph.input} == set(inputs)
    assert inside is None or [node.op_type for node in graph.node] == inside
    assert ("count=None" in test.read_text()) == (inside != ["Relu", "Sigmoid"])
    runpy.run_path(str(test))["test_it_fires_and_the_numbers_stay"]()


def test_a_place_that_is_found_several_times_in_the_model_of_its_test(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    twice = SIZES.replace(
        "y = Neg (e)", "n = Neg (e) m = Reshape (n, all) o = Reshape (m, shape) y = Neg (o)"
    )
    onnx.save(parse(twice), model)
    (_, test, _), _ = write_pass_from(
        "acme/h", str(tmp_path / "v"), str(model), ["o", "y"], "class", "kAfterInferShape"
    )
    runpy.run_path(str(test))["test_it_fires_and_the_numbers_stay"]()


@pytest.mark.parametrize("style", STYLES)
def test_a_pass_with_the_name_of_its_operator(tmp_path: Path, style: str) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 17]>
    main (float[N, 4] x) => (float[N, 4] y) { y = Softplus (x) }"""),
        model,
    )
    (_, test, _), notes = write_pass_from(
        "acme/softplus", str(tmp_path / "v"), str(model), ["y"], style, "kAfterInferShape"
    )
    assert "AcmeSoftplus" in test.read_text()
    runpy.run_path(str(test))["test_it_fires_and_the_numbers_stay"]()
    assert ("from opset 18 on" in " ".join(notes)) == (style == "decompose")


@pytest.mark.parametrize("style", STYLES[:3])
def test_a_bound_of_clip_is_matched_by_value(tmp_path: Path, style: str) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 17]>
    main (float[N, 4] x) => (float[N, 4] y) {
        zero = Constant <value = float {0.0}> () six = Constant <value = float {6.0}> ()
        c = Clip (x, zero, six)
        y = Div (c, six)
    }"""),
        model,
    )
    (code, test, _), _ = write_pass_from(
        "acme/h", str(tmp_path / "v"), str(model), ["c", "y"], style, "kAfterInferShape"
    )
    assert "Clip(x, 0.0, 6.0)" in code.read_text()  # of the body
    runpy.run_path(str(test))["test_it_fires_and_the_numbers_stay"]()


@pytest.mark.parametrize("style", ["class", "drr"])
def test_an_attribute_of_a_newer_opset_must_be_absent(tmp_path: Path, style: str) -> None:
    text = """<ir_version: 8, opset_import: ["" : 9]>
    main (float[N, 1, 8, 8] x) => (float[N, 1, H, W] y) { y = MaxPool <kernel_shape = [2, 2]> (x) }"""
    onnx.save(parse(text), tmp_path / "m.onnx")
    write_pass_from(
        "acme/h", str(tmp_path / "v"), str(tmp_path / "m.onnx"), ["y"], style, "kAfterInferShape"
    )
    name = "h" if style == "drr" else "HPass"
    newer = text.replace(": 9]", ": 17]")
    apart = newer.replace("<kernel", "<dilations = [2, 2], kernel")
    for model, count in ((text, 1), (newer, 1), (apart, 0)):
        _, record = run_pass(model, name, vendors=tmp_path / "v")
        assert record.replaced == count


def test_parts_that_may_overflow_come_with_a_note(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 18]>
    main (float[N, 4] x) => (float[N, 4] y) { y = Softplus (x) }"""),
        model,
    )
    command = ["new", "acme/s", "--vendors", str(tmp_path / "v"), "--from", str(model)]
    assert run([*command, "--nodes", "y", "--style", "decompose"]) == 0
    assert "note: Exp overflows for large inputs" in capfd.readouterr().out
    code = (tmp_path / "v/acme/custom_fusion_passes/s.py").read_text()
    assert "Exp overflows" in code
    assert "MeetRequirements" not in code  # its only input is always present


@pytest.mark.parametrize(
    ("nodes", "style", "stage", "message"),
    [
        ([f"{ATTENTION}/Sofmax"], "class", "kAfterInferShape", "did you mean .*Softmax"),
        ([SELF[0], SELF[2]], "class", "kAfterInferShape", "no pattern .* not convex: through Add"),
        (SELF, "decompose", "kAfterInferShape", "one node is replaced; name one"),
        (SELF, "class", "kAfterInferShapes", "did you mean kAfterInferShape?"),
        ([""], "class", "kAfterInferShape", "cannot be empty"),
    ],
)
def test_a_place_of_which_no_pass_can_be_made(
    tmp_path: Path, nodes: list[str], style: str, stage: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        write_pass_from(
            "acme/here", str(tmp_path), str(MODELS / "bert.ts17.onnx"), nodes, style, stage
        )
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_from_and_nodes_go_together(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for value in (["--from", "m.onnx"], ["--nodes", "a"], ["--from", "m.onnx", "--nodes", " , "]):
        assert run(["new", "acme/x", "--vendors", str(tmp_path), *value]) == 2
        assert "--nodes" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
