"""Inlined functions compute what the calls did."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import onnx.parser
import pytest

from gehost import Host, HostOptions
from gehost.ir.inline import inline_functions, with_function_defaults
from gehost.testing import parse
from gehost.verify import compare

LEAKY = """<domain: "local", opset_import: ["" : 17]>
Leaky <alpha: float = 0.5> (i) => (o) { o = LeakyRelu <alpha: float = @alpha> (i) }
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Two (i) => (o) { a = local.Leaky (i) o = local.Leaky <alpha = 0.25> (a) }"""
HEAD = '<ir_version: 9, opset_import: ["" : 17, "local" : 1]> main'
CALLS = {
    "call": "(float[3] x) => (float[3] y) { y = local.Leaky (x) }",
    "call in a function": "(float[3] x) => (float[3] y) { y = local.Two (x) }",
    "call in a body": """(float[3] x, bool c) => (float[3] y) {
        y = If (c) <then_branch = t () => (float[3] u) { u = local.Leaky (x) },
                    else_branch = e () => (float[3] v) { v = local.Leaky <alpha = 0.125> (x) }>
    }""",
}


@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS.keys())
def test_a_call_that_leaves_out_an_attribute_has_the_functions_default(text: str) -> None:
    model = parse(f"{HEAD} {text} {LEAKY}")
    before = model.SerializeToString()
    options = HostOptions(inline_functions=True, plugins=False, verify=True)
    inlined, report = Host(options).run(model)
    assert not inlined.functions
    assert report.verify is not None
    assert report.verify["equal"]
    assert model.SerializeToString() == before


def test_the_reference_engine_knows_the_defaults() -> None:
    model = parse(f"{HEAD} {CALLS['call']} {LEAKY}")
    halved = parse(
        '<ir_version: 9, opset_import: ["" : 17]> main (float[3] x) => (float[3] y) '
        "{ y = LeakyRelu <alpha = 0.5> (x) }"
    )
    feeds = {"x": np.array([-1, 0, 2], np.float32)}
    assert compare(model, halved, feeds=[feeds], engine="reference").equal


def test_a_model_without_such_functions_is_not_copied() -> None:
    model = parse(f"{HEAD} {CALLS['call']} {LEAKY}")
    del model.functions[:]
    assert with_function_defaults(model) is model


def test_functions_of_another_opset_stay_beside_those_that_are_chosen() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 17, "my": 1]>
        g (float[2, 3] x) => (float[2, 3] y) { a = my.old (x) y = my.new (a) }
        <domain: "my", opset_import: ["": 12]> old (x) => (y) { y = Softmax <axis = 1> (x) }
        <domain: "my", opset_import: ["": 17]> new (x) => (y) { y = Relu (x) }"""
    )
    for keep in (None, lambda _: False):
        inlined = inline_functions(model, keep=keep)
        assert [node.op_type for node in inlined.graph.node] == ["old", "Relu"]
        assert [function.name for function in inlined.functions] == ["old"]


@pytest.mark.parametrize("reads", ["u = Neg (x)", "u = Mul (x, w)"])
def test_the_body_of_a_function_returns_a_weight(reads: str) -> None:
    model = onnx.parser.parse_model(
        f"""{HEAD} (float[3] x, bool c) => (float[3] y, float[3] z) {{ y, z = local.f (x, c) }}
        <domain: "local", opset_import: ["": 17]> f (x, c) => (y, z) {{ y, z = If (c)
        <then_branch = t () => (float[3] u, float[3] w) {{ {reads} }},
        else_branch = e () => (float[3] v, float[3] r) {{ v = Neg (x) r = Relu (x) }}> }}"""
    )
    branch = next(a.g for a in model.functions[0].node[0].attribute if a.name == "then_branch")
    branch.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "w"))
    options = HostOptions(inline_functions=True, plugins=False, verify=True)
    inlined, report = Host(options).run(model)
    assert not inlined.functions
    assert report.verify is not None
    assert report.verify["equal"]
