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
    written = write_pass("acme/fuse_matmul_add", str(root))
    assert written == [
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
        str(written[1]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


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
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]
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
    code, test, part = write_pass_from(
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
    assert any(set(nodes) <= each for each in origins)
    loaded = runpy.run_path(str(test))
    loaded["test_it_fires_and_the_numbers_stay"]()
    compile(code.read_text(), str(code), "exec")


def test_the_text_of_a_pass_from_a_place(tmp_path: Path) -> None:
    nodes = [*PLACES["a weight"][1], f"{ATTENTION}/Reshape", f"{ATTENTION}/Transpose"]
    code, *_ = write_pass_from(
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


def test_a_decompose_pass_writes_the_parts_that_onnx_defines(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(
        parse("""<ir_version: 8, opset_import: ["" : 17]>
    main (float[N, 4] x) => (float[N, 4] y) { y = HardSwish (x) }"""),
        model,
    )
    code, test, _ = write_pass_from(
        "acme/h", str(tmp_path / "v"), str(model), ["y"], "decompose", "kBeforeInferShape"
    )
    assert "es.HardSigmoid(" in code.read_text()
    runpy.run_path(str(test))["test_it_fires_and_the_numbers_stay"]()


@pytest.mark.parametrize(
    ("nodes", "style", "stage", "told"),
    [
        ([f"{ATTENTION}/Sofmax"], "class", "kAfterInferShape", "did you mean .*Softmax"),
        ([SELF[0], SELF[2]], "class", "kAfterInferShape", "no pattern .* not convex: through Add"),
        (SELF, "decompose", "kAfterInferShape", "one node is replaced; name one"),
        (SELF, "class", "kAfterInferShapes", "did you mean kAfterInferShape?"),
        ([""], "class", "kAfterInferShape", "cannot be empty"),
    ],
)
def test_a_place_of_which_no_pass_can_be_made(
    tmp_path: Path, nodes: list[str], style: str, stage: str, told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        write_pass_from(
            "acme/here", str(tmp_path), str(MODELS / "bert.ts17.onnx"), nodes, style, stage
        )
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_from_and_nodes_go_together(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for given in (["--from", "m.onnx"], ["--nodes", "a"], ["--from", "m.onnx", "--nodes", " , "]):
        assert run(["new", "acme/x", "--vendors", str(tmp_path), *given]) == 2
        assert "--nodes" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
