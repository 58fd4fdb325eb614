"""Residual sums and normalizations to ONNX Runtime's kernels; near misses with their reasons."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

from gehost import Host
from gehost.diagnose.explain.run import explain
from gehost.testing import parse
from gehost.verify import Runner, compare, compare_outputs

LAYER = "y = LayerNormalization <epsilon = 1e-5> (s, g, b)"
SQUARES = {"Pow": "q = Pow (s, two)", "Mul": "q = Mul (s, s)"}
QUOTIENTS = {
    "Div": "n = Div (s, r)",
    "Reciprocal": "i = Reciprocal (r) n = Mul (i, s)",
    "1/√": "i = Div (one, r) n = Mul (s, i)",
}
SUM = "s = Add (x, z)"


def by_parts(square: str = SQUARES["Pow"], quotient: str = QUOTIENTS["Reciprocal"]) -> str:
    return f"{square} m = ReduceMean <axes = [-1]> (q) e = Add (m, eps) r = Sqrt (e) {quotient} y = Mul (g, n)"


def model(norm: str = LAYER, total: str = SUM, outputs: str = "y", skip: str = "B, S, 8") -> Any:
    argument = ", ".join(f"float[B, S, 8] {name}" for name in outputs.split())
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float[B, S, 8] x, float[{skip}] z) => ({argument})
    <float two = {{2}}, float one = {{1}}, float eps = {{1e-5}}, float[8] g = {{1, 2, 3, 4, 5, 6, 7, 8}},
     float[8] b = {{8, 7, 6, 5, 4, 3, 2, 1}}, float[8] c = {{0, 1, 0, 1, 0, 1, 0, 2}}> {{ {total} {norm} }}"""
    )


def fused(host: Host, run: Any, model: onnx.ModelProto, op: str) -> onnx.NodeProto:
    """Compile and compare, in the runtime and in the reference; the kernel's node."""
    compiled, _ = host.run(model)
    assert Counter(node.op_type for node in compiled.graph.node) == {op: 1}
    rng = np.random.default_rng(0)
    feeds = {name: rng.normal(size=(2, 3, 8)).astype(np.float32) for name in ("x", "z")}
    expected = Runner(model).run(feeds)
    for result in (run(compiled, feeds), Runner(compiled, engine="reference").run(feeds)):
        for one in compare_outputs(expected, result, rtol=1e-3, atol=1e-4):
            assert one.equal, one
    return compiled.graph.node[0]


@pytest.mark.parametrize("outputs", ["y", "y s"])
@pytest.mark.parametrize(
    "total", [SUM, "t = Add (c, x) s = Add (z, t)"], ids=["plain", "after a bias"]
)
def test_layer_normalization(host: Host, run: Any, outputs: str, total: str) -> None:
    node = fused(host, run, model(LAYER, total, outputs), "SkipLayerNormalization")
    assert bool(node.input[4]) is (total != SUM)
    assert sum(map(bool, node.output)) == (1 if outputs == "y" else 4)


@pytest.mark.parametrize("square", SQUARES.values(), ids=SQUARES)
@pytest.mark.parametrize("quotient", QUOTIENTS.values(), ids=QUOTIENTS)
@pytest.mark.parametrize("outputs", ["y", "s y"])
def test_root_mean_square(host: Host, run: Any, square: str, quotient: str, outputs: str) -> None:
    inputs = model(by_parts(square, quotient), SUM, outputs)
    fused(host, run, inputs, "SkipSimplifiedLayerNormalization")


def test_without_a_sum_the_quotient_is_one_that_the_runtime_fuses(host: Host) -> None:
    compiled, _ = host.run(model(by_parts(), "s = Sub (x, z)"))
    operators = [node.op_type for node in compiled.graph.node]
    assert operators == ["Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Mul"]


def test_the_mean_of_a_node_without_inputs_is_none(host: Host) -> None:
    """The pass raised an error on it."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) {
        c = Constant <value = float[2, 1] {1, 2}>() m = ReduceMean <axes = [-1]> (c)
        y = Mul (x, m) }"""
    compiled, report = host.with_options(cleanup=False).run(parse(text))
    assert [node.op_type for node in compiled.graph.node] == ["Constant", "ReduceMean", "Mul"]
    assert not any(record.replaced for record in report.passes)


NEAR_MISSES: dict[str, tuple[str, Any]] = {
    "nothing added": ("sum", {"total": "s = Sub (x, z)"}),
    "addends of two shapes": ("sum", {"skip": "1, S, 8"}),
    "mean over another axis": ("axes", {"norm": by_parts().replace("[-1]", "[1]")}),
    "another exponent": ("", {"norm": by_parts("q = Pow (s, one)")}),
    "an inner tensor that is read": ("shared", {"norm": by_parts(), "outputs": "y q"}),
}


@pytest.mark.parametrize(("key", "changes"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_misses(host: Host, key: str, changes: Any) -> None:
    compiled, report = host.run(model(**changes))
    assert not any(node.domain == "com.microsoft" for node in compiled.graph.node)
    name = "OrtSkipRmsNormPass" if "norm" in changes else "OrtSkipNormPass"
    (record,) = [record for record in report.passes if record.name == name]
    assert list(record.rejected) == ([key] if key else [])


def test_what_stands_between_the_sum_and_the_norm_is_named(host: Host) -> None:
    """transformers clamps the residual sums of T5 in half."""
    before = model(by_parts(), "t = Add (x, z) s = Clip (t, eps, two)")
    (finding,) = explain(before, "OrtSkipRmsNormPass", host.options).findings
    assert finding.reason == 'sum: Clip "s" makes what is normalized, no Add'


@pytest.mark.parametrize("square", SQUARES)
@pytest.mark.parametrize("name", ["q", "m", "e", "r", "i", "n"])
def test_a_root_mean_square_whose_step_is_an_output_stays(
    host: Host, square: str, name: str
) -> None:
    """OrtRmsNormPass raised an error on it."""
    inputs = model(by_parts(SQUARES[square]))
    width = 8 if name in "qn" else 1
    inputs.graph.output.append(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["B", "S", width])
    )
    alone = host.with_options(only=["OrtRmsNormPass"], enable=[], cleanup=False)
    _, report = alone.run(inputs)
    (record,) = (pass_ for pass_ in report.passes if pass_.name == "OrtRmsNormPass")
    assert (record.status, record.replaced) == ("not changed", 0)


def cast_before_scale(total: str, cast: int = 10, scale: str = "float16", outputs: str = "") -> Any:
    """A root mean square in float32 that is cast to half before its scale."""
    island = by_parts().replace("g, n", "g, h").replace("y =", f"h = Cast <to = {cast}> (n) y =")
    return parse(
        f"""<ir_version: 8, opset_import: ["" : 17]>
    main (float16[B, S, 8] x, float[B, S, 8] z) => ({scale}[B, S, 8] y{outputs})
    <float two = {{2}}, float eps = {{1e-5}}> {{ {total} {island} }}""",
        {"g": np.linspace(0.3, 2.9, 8).astype(scale)},
    )


@pytest.mark.parametrize("outputs", ["", ", float[B, S, 8] s"])
def test_a_cast_before_the_scale_goes_behind_the_kernel(host: Host, outputs: str) -> None:
    """As TorchScript writes llama in float16, whose residual sums are float32."""
    inputs = cast_before_scale("w = Cast <to = 1> (x) s = Add (w, z)", outputs=outputs)
    compiled, _ = host.run(inputs)
    operators = Counter(node.op_type for node in compiled.graph.node)
    # of x and of the result: that of a scale as short as this one is folded
    assert operators == {"SkipSimplifiedLayerNormalization": 1, "Cast": 2}
    again, _ = host.run(compiled)
    assert again.SerializeToString() == compiled.SerializeToString()
    result = compare(inputs, compiled)
    assert result.equal, result.summary()


def test_an_island_of_float32_is_taken_by_a_kernel_that_computes_in_float32(host: Host) -> None:
    inputs = cast_before_scale("t = Add (x, x) s = Cast <to = 1> (t)")
    compiled, _ = host.run(inputs)
    assert [node.op_type for node in compiled.graph.node] == ["SkipSimplifiedLayerNormalization"]
    result = compare(inputs, compiled)
    assert result.equal, result.summary()
    _, report = host.with_options(target="cuda:1.24").run(inputs)
    rejected = {record.name: list(record.rejected) for record in report.passes}
    assert (rejected["OrtRmsNormPass"], rejected["OrtSkipRmsNormPass"]) == (
        ["dtype"],
        ["precision"],
    )


def test_a_normalized_tensor_that_is_read_is_scaled_behind_the_kernel(host: Host) -> None:
    inputs = model(by_parts(), outputs="y n")
    compiled, _ = host.run(inputs)
    operators = [node.op_type for node in compiled.graph.node]
    assert operators == ["SkipSimplifiedLayerNormalization", "Mul"]
    assert compare(inputs, compiled).equal


def test_without_a_sum_of_float32_it_stays_with_a_reason(host: Host) -> None:
    """A double is no kernel's type."""
    for total, cast, scale, keys in (
        ("w = Cast <to = 1> (x) s = Sub (w, z)", 10, "float16", ("dtype", "sum")),
        ("w = Cast <to = 1> (x) s = Add (w, z)", 11, "double", ("dtype", "dtype")),
    ):
        _, report = host.run(cast_before_scale(total, cast, scale))
        rejected = {record.name: list(record.rejected) for record in report.passes}
        result = (rejected["OrtRmsNormPass"], rejected["OrtSkipRmsNormPass"])
        assert result == tuple([key] for key in keys)


def test_in_a_body(host: Host, run: Any) -> None:
    inputs = model(LAYER, SUM)
    body = [*inputs.graph.node]
    del inputs.graph.node[:]
    nodes = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        main (float[B, S, 8] x) => (float[B, S, 8] w) {
            size = Size (x) k = Cast <to = 9> (size)
            w = If (k) <then_branch = a () => (float[B, S, 8] y) { y = Relu (x) },
                        else_branch = b () => (float[B, S, 8] u) { u = Neg (x) }> }"""
    ).graph.node
    (branch,) = [node for node in nodes if node.op_type == "If"]
    del branch.attribute[0].g.node[:]
    branch.attribute[0].g.node.extend(body)
    inputs.graph.node.extend(nodes)
    inputs.graph.output[0].name = "w"
    compiled, _ = host.run(inputs)
    (fused_branch,) = [node for node in compiled.graph.node if node.op_type == "If"]
    operators = [node.op_type for node in fused_branch.attribute[0].g.node]
    assert operators == ["SkipLayerNormalization"]
    result = compare(inputs, compiled)
    assert result.equal, result.summary()
