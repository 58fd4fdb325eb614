"""``gehost optimize --kernels``: the library beside the result, and how a session loads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import gehost
from gehost.testing import parse
from gehost_linalg.groups.body import DOMAIN
from gehost_linalg.kernels import build
from gehost_linalg.kernels.library import check_lines

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
m (float[N, 64] x, float[N, 64] z) => (float[N, 64] y) {
    zero = Constant<value_float = 0.0>()
    a = Identity(x)
    b = Identity(a)
    s = Add(b, z)
    t = Tanh(s)
    c = Abs(t)
    y = Exp(c)
}"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path, proto = tmp_path / "m.onnx", parse(TEXT)
    for node in proto.graph.node:
        node.doc_string = "a note of the exporter's, as long as such notes are" * 20
    onnx.save(proto, path)
    return path


def test_the_library_lies_beside_the_file_and_a_session_runs_both(model: Path) -> None:
    match = gehost.optimize(model, "cpu", kernels=True, measured=False)
    result, library = Path(match.model), model.with_name("m.opt.so")
    assert [node.domain for node in onnx.load(result).graph.node] == [DOMAIN]
    assert check_lines(str(result), str(library))[-1] == "1 of 1 node by kernels"
    text = "\n".join(match.report.lines())
    assert "m.opt.so has kernels for 1 node; it cannot travel in the file:" in text
    assert f"    options.register_custom_ops_library('{library}')" in text
    feeds = gehost.verify.make_feeds(onnx.load(model))
    session = pytest.importorskip("onnxruntime").InferenceSession(result, match.session_options)
    np.testing.assert_allclose(
        session.run(None, feeds)[0], gehost.verify.Runner(model).run(feeds)["y"], rtol=1e-5
    )
    gehost.verify.Runner(result).run(feeds)  # without the library, too


def test_without_a_compiler_the_file_has_no_groups(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiler(inputs: str | None = None) -> list[str]:
        raise gehost.UsageError("no C compiler is found")

    monkeypatch.setattr(build, "compiler", compiler)
    monkeypatch.setattr(build, "cache_folder", lambda: model.parent / "cache")
    result = gehost.optimize(model, "cpu", kernels=True, measured=False)
    assert result.session_options is None
    assert "no kernels: no C compiler is found" in result.report.notes
    assert not model.with_name("m.opt.so").exists()
    assert {node.domain for node in onnx.load(result.model).graph.node} == {""}
