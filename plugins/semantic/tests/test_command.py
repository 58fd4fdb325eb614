"""``gehost show --attention``: the lines of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gehost import infer_model
from gehost.cli.show import show
from gehost.ir.model import Model
from gehost.testing import parse
from gehost_semantic.command import add_option, lines

MODELS = Path(__file__).parent / "models"
HEAD = '<ir_version: 9, opset_import: ["" : 18]> g '


def test_each_attention_of_an_export_is_a_line() -> None:
    add_option(show)
    add_option(show)  # as each start of the command line does
    result = CliRunner().invoke(show, [str(MODELS / "gemma3_past.dyn.eager.onnx"), "--attention"])
    assert (result.exit_code, len(result.output.splitlines())) == (0, 3)
    assert "causal (t - s <= " in result.output
    assert "2 of 2 Softmax operators are attention" in result.output


def test_a_size_that_an_option_fixes_is_a_number() -> None:
    add_option(show)
    path = str(MODELS / "yolo_psa.ts.onnx")
    result = CliRunner().invoke(show, [path, "--attention", "--json", "--dim", "batch=3"])
    (entry,) = json.loads(result.output)
    assert (entry["attention"], entry["batch"], entry["heads"]) == (True, 3, 4)
    assert entry["queries"] == "height*width"


def test_json_is_of_attention_alone() -> None:
    add_option(show)
    result = CliRunner().invoke(show, [str(MODELS / "yolo_psa.ts.onnx"), "--json"])
    assert (result.exit_code, "--json belongs to --attention" in result.output) == (2, True)


HEADS = {
    "at opset 11": (11, "y = Softmax <axis = 1> (x)"),
    "behind a Gemm": (18, "p = Gemm (f, w, c) y = Softmax <axis = 1> (p)"),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_classifier_needs_nothing(name: str) -> None:
    opset, body = HEADS[name]
    inputs = "float[b, 8, 1, 1] x, float[b, 4] f, float[4, 8] w, float[8] c"
    text = (
        f'<ir_version: 9, opset_import: ["" : {opset}]> g ({inputs}) => (float[?] y) {{ {body} }}'
    )
    model = Model(parse(text))
    infer_model(model)
    reason, _ = lines(model)
    assert "no product reads them, but the output" in reason
    assert "nothing to do" in reason


def test_a_body_is_searched() -> None:
    body = """
        w = Transpose <perm = [0, 2, 1]> (k)
        x = MatMul (q, w)
        p = Softmax <axis = -1> (x)
        z = MatMul (p, v)"""
    text = f"""{HEAD}(float[b, s, 8] q, float[b, t, 8] k, float[b, u, 8] v, bool c) => (float[?] y) {{
        y = If (c) <then_branch = yes () => (float[?] z) {{ {body} }},
            else_branch = no () => (float[b, s, 8] n) {{ n = Identity (q) }}> }}"""
    model = Model(parse(text))
    infer_model(model)
    assert lines(model) == [
        "p: q b s d | k b t d | v b t v -> b s v, scale 1",
        "1 of 1 Softmax operators are attention",
    ]


def test_a_softmax_without_products_says_so() -> None:
    model = Model(parse(f"{HEAD}(float[b, 8] x) => (float[b, 8] y) {{ y = Softmax (x) }}"))
    infer_model(model)
    reason, total = lines(model)
    assert reason == (
        'y: no attention: probabilities: no product reads them, but the output "y"; '
        "nothing to do if it is a router or a classifier; in attention, mask the scores instead"
    )
    assert total == "0 of 1 Softmax operators are attention"


def test_a_softmax_in_a_function_is_counted() -> None:
    model = Model(
        parse(
            """<ir_version: 9, opset_import: ["" : 18, "own" : 1]>
            g (float[b, 8] x) => (float[b, 8] y) { y = own.Weights (x) }
            <domain: "own", opset_import: ["" : 18]> Weights (x) => (y) { y = Softmax (x) }"""
        )
    )
    infer_model(model)
    assert lines(model) == [
        "0 of 0 Softmax operators are attention; 1 more in functions of the model: --inline-functions"
    ]


def test_a_tensor_that_scales_is_named() -> None:
    model = Model(
        parse(
            f"""{HEAD}(float[b, s, 8] q, float[b, t, 8] k, float[t] each) => (float[?] y) {{
            n = Transpose <perm = [0, 2, 1]> (k) x = MatMul (q, n) z = Div (x, each)
            p = Softmax <axis = -1> (z) y = MatMul (p, k) }}"""
        )
    )
    infer_model(model)
    assert 'scale 1, divided by "each"' in lines(model)[0]
