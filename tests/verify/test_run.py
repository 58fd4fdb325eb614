"""One model runs on either engine, from a file or from memory, and says nothing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from gehost.cli import run
from gehost.errors import ModelError, UsageError
from gehost.verify import Runner, compare

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


@pytest.fixture(params=["onnxruntime", "reference"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "reference":
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
    else:
        pytest.importorskip("onnxruntime")
    return request.param


@pytest.fixture
def external(tmp_path: Path) -> Path:
    model = parse("g (float[2, 3] x) => (float[2, 300] y) { y = MatMul(x, w) }")
    weights = np.arange(900, dtype=np.float32).reshape(3, 300)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    path = tmp_path / "inner" / "m.onnx"
    path.parent.mkdir()
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    return path


def test_outputs_by_name_in_order(engine: str) -> None:
    runner = Runner(
        parse(
            "g (float[n, k] x, float[1] w = {2}) => (float[n, k] b, float[n, k] a) { a = local.twice(x) b = Mul(a, w) }"
            '<domain: "local", opset_import: ["": 21]> twice (p) => (q) { q = Add(p, p) }'
        )
    )
    assert runner.engine == engine
    outputs = runner.run({"x": X})
    assert list(outputs) == ["b", "a"]
    assert np.array_equal(outputs["a"], 2 * X)
    assert np.array_equal(outputs["b"], 4 * X)
    assert np.array_equal(runner.run({"x": X, "w": np.array([3], np.float32)})["b"], 6 * X)


def test_external_data(engine: str, external: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = X @ np.arange(900, dtype=np.float32).reshape(3, 300)
    before = sorted(external.parent.iterdir())
    bare = onnx.load(external, load_external_data=False)
    in_memory = Runner(bare, base_dir=external.parent)
    from_path = Runner(external)
    assert in_memory.engine == from_path.engine == engine
    assert np.allclose(in_memory.run({"x": X})["y"], expected)
    assert np.allclose(from_path.run({"x": X})["y"], expected)
    monkeypatch.chdir(external.parent)
    assert np.allclose(Runner("m.onnx").run({"x": X})["y"], expected)
    assert np.allclose(Runner(bare, base_dir=".").run({"x": X})["y"], expected)
    assert sorted(external.parent.iterdir()) == before
    assert bare.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    monkeypatch.chdir("/")
    with pytest.raises(
        ModelError, match="the weights of model 'g' are in another file: give the path"
    ):
        Runner(bare)


@pytest.mark.parametrize("name", [b"inner/o\xff.onnx", b"d\xff/m.onnx"])
def test_a_path_need_not_be_utf_8(engine: str, external: Path, name: bytes) -> None:
    path = external.parents[1] / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    shutil.copy(external, path)
    if path.parent != external.parent:
        shutil.copy(external.with_name("m.data"), path.parent)
    expected = Runner(external).run({"x": X})["y"]
    for runner in (
        Runner(path),
        Runner(onnx.load(path, load_external_data=False), base_dir=path.parent),
    ):
        assert runner.engine == engine
        assert np.array_equal(runner.run({"x": X})["y"], expected)


@pytest.mark.usefixtures("engine")
def test_sequences_are_given_by_element() -> None:
    runner = Runner(
        parse("g (float[2, 3] x) => (seq(float[1, 3]) s) { s = SplitToSequence <axis = 0> (x) }")
    )
    outputs = runner.run({"x": X})
    assert list(outputs) == ["s[0]", "s[1]"]
    assert np.array_equal(outputs["s[1]"], X[1:])


@pytest.mark.usefixtures("engine")
def test_strings_are_objects() -> None:
    text = 'g (string[2] x) => (string[2] y, string[2] z) { y = Identity(x) z = Constant <value_strings = ["b", "c"]> () }'
    outputs = Runner(parse(text)).run({"x": np.array(["b", "ü"], object)})
    assert [array.dtype for array in outputs.values()] == [object, object]
    assert [list(array) for array in outputs.values()] == [["b", "ü"], ["b", "c"]]


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("g (bfloat16[2, 3] x) => (bfloat16[2, 3] y) { y = Add(x, x) }", ml_dtypes.bfloat16),
        (
            "g (float8e4m3fn[2, 3] x) => (float8e4m3fn[2, 3] y) { y = Identity(x) }",
            ml_dtypes.float8_e4m3fn,
        ),
        (
            "g (double[2, 3] x) => (double[2, 3] y) { y = ThresholdedRelu <alpha = 0.5> (x) }",
            np.float64,
        ),
    ],
)
def test_types_that_onnxruntime_lacks_run_on_the_reference(text: str, dtype: type) -> None:
    runner = Runner(parse(text))
    assert runner.engine == "reference"
    assert runner.run({"x": X.astype(dtype)})["y"].dtype == dtype


@pytest.mark.parametrize("name", ["onnxruntime", "reference"])
def test_an_engine_can_be_asked_for(name: str) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Add(x, x) }")
    runner = Runner(model, engine=name)
    assert runner.engine == name
    assert runner.run({"x": np.ones(2, np.float32)})["y"].tolist() == [2, 2]
    assert compare(model, model, engine=name).engine == name


def test_an_engine_that_is_asked_for_is_not_replaced() -> None:
    model = parse("g (bfloat16[2] x) => (bfloat16[2] y) { y = Add(x, x) }")
    with pytest.raises(ModelError, match="engine 'onnxruntime' cannot run the model: "):
        Runner(model, engine="onnxruntime")
    with pytest.raises(UsageError, match="engine 'torch': wanted onnxruntime or reference"):
        Runner(model, engine="torch")


def test_wrong_inputs_are_the_callers_fault(engine: str) -> None:
    runner = Runner(
        parse("g (float[2, k] x, float[1] w = {2}) => (float[2, k] y) { y = Mul(x, w) }")
    )
    with pytest.raises(UsageError, match=r"model 'g' has no input 'z'; its inputs are 'x'"):
        runner.run({"x": X, "z": X})
    with pytest.raises(UsageError, match=r"needs a value for input 'x'"):
        runner.run({})
    if engine == "onnxruntime":
        for wrong in (X.astype(np.float64), X[0], np.ones((3, 3), np.float32)):
            with pytest.raises(UsageError, match="input"):
                runner.run({"x": wrong})


@pytest.mark.parametrize(
    "content",
    [
        b"garbage",
        None,
        parse("g (float[2] x) => (float[2] y) { y = NoSuch(x) }").SerializeToString(),
    ],
    ids=["garbage", "missing", "unknown operator"],
)
def test_what_does_not_load(
    engine: str, content: bytes | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=r"bad\.onnx does not load: .") as caught:
        Runner(path)
    assert "\n" not in str(caught.value)
    assert "ONNXRuntimeError" not in str(caught.value)
    assert capfd.readouterr() == ("", ""), engine


@pytest.mark.usefixtures("engine")
def test_what_fails_while_it_runs(capfd: pytest.CaptureFixture[str]) -> None:
    runner = Runner(parse("g (float[2, 3] x, int64[1] i) => (float[1, 3] y) { y = Gather(x, i) }"))
    with pytest.raises(ModelError, match=r"model 'g' does not run: .") as caught:
        runner.run({"x": X, "i": np.array([7])})
    assert "\n" not in str(caught.value)
    assert np.array_equal(runner.run({"x": X, "i": np.array([1])})["y"], X[1:])
    assert capfd.readouterr() == ("", "")


def test_nothing_is_optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = pytest.importorskip("onnxruntime")
    session, inputs = runtime.InferenceSession, []

    def recorded(model: bytes, options: object, **kwargs: object) -> object:
        inputs.append(options)
        return session(model, options, **kwargs)

    monkeypatch.setattr(runtime, "InferenceSession", recorded)
    Runner(parse("g (float[2, 3] x) => (float[2, 3] y) { a = Identity(x) y = Relu(a) }"))
    assert [options.graph_optimization_level for options in inputs] == [
        runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    ]


@pytest.mark.parametrize(("name", "number"), [("float16", 10), ("bfloat16", 16)])
def test_types_that_clash_are_named_with_the_node_and_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, number: int
) -> None:
    """Also of bfloat16, which runs widened: there both would be float32."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 20]>
        g (float[N] x, {name}[N] z) => (float[N] y) {{
            h = Cast <to = {number}> (x) a = Add (h, x) b = Add (h, z) y = Cast <to = 1> (b) }}"""
    )
    model.graph.node[1].name = "mixed"
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    expected = f'{path}: Add "mixed": input 0 is {name} and input 1 float32; no runtime loads that'
    vendors, folder = ["--vendors", "gehost:onnx"], str(tmp_path / "b")
    words: tuple[list[str], ...]
    words = (["verify", path, path], ["bisect", path, "-o", folder, *vendors])
    for arguments in (*words, ["tune", path, "-o", str(tmp_path / "t.json"), *vendors]):
        assert run(arguments) == 3
        error = capsys.readouterr().err
        assert expected in error
        assert "put a Cast before the node" in error
