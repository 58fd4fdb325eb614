"""The model that an import makes: names, metadata, functions, refusals and options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import ModelError, UsageError
from gehost_hlo import Settings, UntranslatableError, import_file, import_module, parse

from .recorded import difference, imported, programs, run

SHARED = Path(__file__).parents[4] / "shared" / "hlo"


def entry(*lines: str, before: str = "") -> str:
    return before + "ENTRY e {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


FUSED = entry(
    "x = f32[2,3] parameter(0)",
    'ROOT fusion.7 = f32[2,3] fusion(x), kind=kLoop, calls=fused.1, metadata={op_name="jit(f)/add"}',
    before="fused.1 { p = f32[2,3] parameter(0) one = f32[] constant(1) b = f32[2,3] broadcast(one), dimensions={} ROOT add.2 = f32[2,3] add(p, b) }\n",
)
TWICE = entry(
    "x = f32[2] parameter(0)",
    "call.1 = f32[2] call(x), to_apply=f",
    "ROOT call.2 = f32[2] call(call.1), to_apply=f",
    before="f { p = f32[2] parameter(0) q = f32[2] exponential(p) ROOT n = f32[2] negate(q) }\n",
)


def names(graph: onnx.GraphProto) -> list[str]:
    return [node.name for node in graph.node]


def test_inputs_outputs_and_results_have_the_names_of_instructions() -> None:
    text = entry(
        "%x.1 = f32[2,3] parameter(1)",
        "%y = f32[3] parameter(0)",
        "%b.2 = f32[2,3] broadcast(%y), dimensions={1}",
        "ROOT %log-plus.3 = f32[2,3] add(%x.1, %b.2)",
    )
    model = imported(text)
    assert [value.name for value in model.graph.input] == ["y", "x.1"]  # by number
    assert [value.name for value in model.graph.output] == ["log-plus.3"]
    assert names(model.graph) == ["log-plus.3"]  # Add broadcasts by itself


def test_helpers_are_numbered_behind_their_instruction() -> None:
    model = imported(entry("x = f32[4] parameter(0)", "ROOT r.5 = f32[4] rsqrt(x)"))
    assert [(node.name, node.op_type, list(node.output)) for node in model.graph.node] == [
        ("r.5/1", "Sqrt", ["r.5/1"]),
        ("r.5", "Reciprocal", ["r.5"]),
    ]


def test_the_source_operation_is_metadata_of_every_node() -> None:
    model = imported(
        entry(
            "x = f32[4] parameter(0)",
            'ROOT r = f32[4] rsqrt(x), metadata={op_name="jit(f)/rsqrt" stack_frame_id=3}',
        )
    )
    for node in model.graph.node:
        assert {prop.key: prop.value for prop in node.metadata_props} == {
            "hlo.op_name": "jit(f)/rsqrt",
            "hlo.stack_frame_id": "3",
        }


def test_a_fusion_is_a_function_of_xlas_name() -> None:
    model = imported(FUSED)
    (call,) = model.graph.node
    assert (call.domain, call.op_type, call.name) == ("hlo", "fused.1", "fusion.7")
    assert {entry.key: entry.value for entry in call.metadata_props}["hlo.kind"] == "kLoop"
    (function,) = model.functions
    assert (function.domain, function.name, list(function.input), list(function.output)) == (
        "hlo",
        "fused.1",
        ["p"],
        ["add.2"],
    )
    assert np.array_equal(run(model, [np.ones((2, 3), np.float32)])[0], np.full((2, 3), 2.0))


def test_fusions_may_be_inlined() -> None:
    model = imported(FUSED, fusions="inline")
    assert not model.functions
    first = model.graph.node[0]
    assert (first.op_type, first.name) == ("Add", "add.2")
    assert np.array_equal(run(model, [np.ones((2, 3), np.float32)])[0], np.full((2, 3), 2.0))


def test_a_computation_that_is_called_twice_has_names_of_its_own() -> None:
    model = imported(TWICE)
    assert names(model.graph) == ["q", "n", "call.2/q", "call.2/n", "call.2"]
    x = np.array([0.5, 1.0], np.float32)
    assert difference(run(model, [x]), [-np.exp(-np.exp(x))]) < 1e-6


def test_a_root_that_is_an_input_or_comes_twice_gets_an_identity() -> None:
    model = imported(
        entry(
            "x = f32[2] parameter(0)",
            "n = f32[2] negate(x)",
            "ROOT t = (f32[2], f32[2], (f32[2])) tuple(x, n, n)",
        )
    )
    assert [value.name for value in model.graph.output] == ["t/0", "n", "t/2"]
    x = np.array([1.0, 2.0], np.float32)
    assert difference(run(model, [x]), [x, -x, -x]) == 0


def test_a_tuple_parameter_is_several_inputs() -> None:
    text = entry(
        "p = (f32[2], (s32[], pred[2])) parameter(0)",
        "a = f32[2] get-tuple-element(p), index=0",
        "i = (s32[], pred[2]) get-tuple-element(p), index=1",
        "m = pred[2] get-tuple-element(i), index=1",
        "z = f32[2] negate(a)",
        "ROOT s = f32[2] select(m, a, z)",
    )
    model = imported(text)
    assert [value.name for value in model.graph.input] == ["p/0", "p/1", "p/2"]
    a, m = np.array([1, 2], np.float32), np.array([True, False])
    assert difference(run(model, [a, np.int32(0), m]), [np.array([1, -2], np.float32)]) == 0


def test_every_tensor_has_its_type() -> None:
    model = imported(programs()["corpus/block"].text)
    typed = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    assert {output for node in model.graph.node for output in node.output} <= typed
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)


def test_reshapes_in_a_chain_become_one() -> None:
    model = imported(
        entry(
            "x = f32[2,3] parameter(0)",
            "a = f32[6] reshape(x)",
            "b = f32[3,2] reshape(a)",
            "ROOT c = f32[1,6] reshape(b)",
        )
    )
    assert [(node.op_type, list(node.input)[:1]) for node in model.graph.node] == [
        ("Reshape", ["x"])
    ]
    same = imported(
        entry(
            "x = f32[2,3] parameter(0)",
            "a = f32[6] reshape(x)",
            "b = f32[2,3] reshape(a)",
            "ROOT c = f32[2,3] negate(b)",
        )
    )
    assert [node.op_type for node in same.graph.node] == ["Neg"]


def test_numbers_that_jax_computes_from_shapes_are_folded() -> None:
    text = entry(
        "x = f32[4] parameter(0)",
        "five = f32[] constant(5)",
        "one = s32[] constant(1)",
        "ddof = f32[] convert(one)",
        "n = f32[] subtract(five, ddof)",
        "zero = f32[] constant(0)",
        "some = pred[] compare(n, zero), direction=GT",
        "b = f32[4] broadcast(n), dimensions={}",
        "q = f32[4] divide(x, b)",
        "nan = f32[] constant(nan)",
        "c = f32[4] broadcast(nan), dimensions={}",
        "s = pred[4] broadcast(some), dimensions={}",
        "ROOT r = f32[4] select(s, q, c)",
    )
    model = imported(text)
    assert [node.op_type for node in model.graph.node] == ["Div", "Identity"]
    assert [float(onnx.numpy_helper.to_array(tensor)) for tensor in model.graph.initializer] == [
        4.0
    ]


def test_all_instructions_without_a_translation_are_in_one_message() -> None:
    text = entry(
        "x = f32[4] parameter(0)",
        "a = f32[4] domain(x)",
        'b = f32[4] custom-call(a), custom_call_target="foo"',
        "c = c64[4] complex(b, b)",
        "d = f32[4] real(c)",
        "ROOT e = f32[4] add(d, b)",
    )
    with pytest.raises(UntranslatableError) as raised:
        import_module(parse(text))
    assert [(*names, refusal.key) for *names, refusal in raised.value.problems] == [
        ("e", "a", "unsupported"),
        ("e", "b", "unsupported"),
        ("e", "c", "unsupported"),
    ]
    assert (
        "3 instructions have no translation to ONNX: a of e: domain is not translated; b of e:"
        in str(raised.value)
    )
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["x = f32[2] parameter(0)", "y = f32[3] parameter(1)", "ROOT z = f32[2] add(x, y)"], "its operands differ"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[3] negate(x)"], r"its result is f32\[3\], its operands make f32\[2\]"),
        (["x = f32[2] parameter(0)", "ROOT z = s32[2] negate(x)"], r"its result is s32\[2\], its operands make f32\[2\]"),
        (["x = f32[2] parameter(0)", "ROOT z = (f32[2], s32[2]) tuple(x, x)"], r"its operands make f32\[2\], f32\[2\]"),
        (["x = (f32[2], f32[3]) parameter(0)", "ROOT z = f32[3] get-tuple-element(x), index=0"], r"its operands make f32\[2\]"),
        (["x = f32[<=2] parameter(0)", "ROOT z = f32[<=2] negate(x)"], "dynamic dimension"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2,2] broadcast(x), dimensions={2}"], "cannot be broadcast"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] transpose(x), dimensions={1}"], "no permutation"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[1] slice(x), slice={[2:3]}"], "does not fit"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] call(x), to_apply=none"], '"none" is not in the text'),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] call(x), to_apply=e"], "calls itself"),
        (["x = f32[?] parameter(0)", "ROOT z = f32[?] negate(x)"], "dynamic dimension"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] call(x)"], "does not name the computation"),
        (["x = f32[2,2] parameter(0)", "ROOT z = f32[4,2] concatenate(x, x), dimensions={0,1}"], r"expected one of 2, found \{0,1\}"),
        (["x = f32[2,2] parameter(0)", "ROOT z = f32[2,2] sort(x), dimensions={0}, to_apply=e"], "is not known"),
        (["x = f32[2] parameter(0)", "ROOT z = s32[] get-dimension-size(x), dimensions={9}"], "expected one of 1"),
        (["x = f32[2] parameter(0)", "ROOT z = s32[] get-dimension-size(x), dimensions={}"], "expected one of 1"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] popcnt(x)"], "expected an integer"),
        (["x = pred[2] parameter(0)", "ROOT z = pred[2] count-leading-zeros(x)"], "expected an integer"),
        (["x = pred[2] parameter(0)", "ROOT z = pred[2] divide(x, x)"], "no meaning for pred"),
        (["x = pred[2] parameter(0)", "ROOT z = pred[2] negate(x)"], "no meaning for pred"),
        (["x = s32[2] parameter(0)", "ROOT z = s32[2] atan2(x, x)"], "expected floats"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] dynamic-update-slice(x)"], "1 operands, expected 2"),
        (["p = pred[] parameter(0)", "x = f32[2] parameter(1)", "ROOT z = f32[2] conditional(p, x, x), true_computation=e"], "does not name the computation"),
        (["p = f32[] parameter(0)", "x = f32[2] parameter(1)", "ROOT z = f32[2] conditional(p, x, x), branch_computations={e,e}"], "no scalar of pred or integers"),
        (["i = constant(1)", "x = f32[2] parameter(0)", "ROOT z = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}"], "its shape is not written"),
        (["x = f32[2] parameter(0)", "y = f32[1,1] parameter(1)", "z = f32[] constant(0)", "ROOT s = f32[2] select-and-scatter(x, y, z), window={size=2}, select=e, scatter=e"], "its window does not fit"),
        (["x = f32[1,4,1] parameter(0)", "k = f32[1,1,1] parameter(1)", "ROOT z = f32[1,1,4,1] convolution(x, k), window={size=1}, dim_labels=b0f_0io->b0f"], r"its operands make f32\[1, 4, 1\]"),
        (["x = f32[2,2] parameter(0)", "ROOT z = s32[2,2] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"], "its operands are f32"),
        (["x = f32[1,4,1] parameter(0)", "k = f32[3,1,1] parameter(1)", "ROOT z = f32[1,4,1] convolution(x, k), window={size=1}, dim_labels=b0f_0io->b0f"], "its window and groups"),
        (["x = f32[2,2] parameter(0)", "ROOT z = f32[2,2] dot(x, x), lhs_contracting_dims={-1}, rhs_contracting_dims={0}"], "its dimensions do not fit"),
        (["x = f32[2,2] parameter(0)", "ROOT z = f32[2] dot(x, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={0}, rhs_contracting_dims={0}"], "its dimensions do not fit"),
        (["x = token[] parameter(0)", "ROOT z = token[] after-all(x)"], "token has no ONNX type"),
        (["x = f32[2] parameter(0)", "ROOT z = () tuple()"], "needs an output"),
        (["x = f64[2] parameter(0)", "ROOT z = f64[2] erf(x)"], "ONNX Runtime has no Erf for f64"),
        (["x = s32[2] parameter(0)", "y = s32[2] power(x, x)"], "not exact"),
        (["ROOT z = f32[2] constant({1, 2, 3})"], "expected 2 values, found 3"),
        (["ROOT z = s8[] constant(300)"], "300 does not fit into s8"),
        (["ROOT z = f16[2] constant({inf, -1e6})"], "-1e6 does not fit into f16"),
        (["ROOT z = s32[] constant(1_0)"], "cannot read 1_0"),
        (["ROOT z = f32[2] constant({...})"], "elided: print with print_large_constants, or give --constants"),
    ],
)  # fmt: skip
def test_refusals(lines: list[str], reason: str) -> None:
    with pytest.raises(UntranslatableError, match=reason):
        import_module(parse(entry(*lines)))


FUSION = "f { p = f32[2] parameter(0) ROOT n = f32[2] negate(p) }\n"


@pytest.mark.parametrize("fusions", ["functions", "inline"])
@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["x = f32[2] parameter(0)", "ROOT z = f32[3] fusion(x), kind=kLoop, calls=f"], r"its result is f32\[3\], its operands make f32\[2\]"),
        (["x = f32[3] parameter(0)", "ROOT z = f32[2] fusion(x), kind=kLoop, calls=f"], r'parameter "p" of f is f32\[2\]'),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] fusion(x, x), kind=kLoop, calls=f"], "f takes 1 operands, it is called with 2"),
        (["x = f32[2] parameter(0)", "ROOT z = f32[2] fusion(x), kind=kLoop, calls=e"], "e calls itself"),
    ],
)  # fmt: skip
def test_a_fusion_that_does_not_fit_its_computation(
    lines: list[str], reason: str, fusions: str
) -> None:
    with pytest.raises(UntranslatableError, match=reason):
        import_module(parse(FUSION + entry(*lines)), Settings(fusions=fusions))


def test_types_of_results_are_optional() -> None:
    model = imported(entry("x = f32[2] parameter(0)", "y = negate(x)", "ROOT z = add(x, y)"))
    assert [node.op_type for node in model.graph.node] == ["Neg", "Add"]
    with pytest.raises(UntranslatableError, match=r"^1 instruction has .* y of e: its shape"):
        import_module(
            parse(entry("x = f32[2] parameter(0)", "y = reshape(x)", "ROOT z = add(x, y)"))
        )


def test_elided_constants_come_from_a_file_or_are_drawn(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(
        entry(
            "c.1 = f32[2,2] constant({...})",
            "x = f32[2,2] parameter(0)",
            "ROOT y = f32[2,2] add(x, c.1)",
        )
    )
    with pytest.raises(
        UntranslatableError, match=r"c\.1 of e \(line 2, column \d+\): elided.*gehost hlo import"
    ):
        import_file(file)
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    np.savez(tmp_path / "c.npz", **{"c.1": values})
    model = import_file(file, constants=str(tmp_path / "c.npz"))
    assert np.array_equal(run(model, [values])[0], 2 * values)
    random = import_file(file, constants="random")
    assert random.SerializeToString() == import_file(file, constants="random").SerializeToString()
    np.savez(tmp_path / "o.npz", **{"c.2": values})
    with pytest.raises(UsageError, match=r'no elided constant "c\.2" \(did you mean "c\.1"\?\)'):
        import_file(file, constants=str(tmp_path / "o.npz"))
    np.savez(tmp_path / "d.npz")
    with pytest.raises(UntranslatableError, match="no array of its name"):
        import_file(file, constants=str(tmp_path / "d.npz"))
    np.savez(tmp_path / "e.npz", **{"c.1": values[:1]})
    with pytest.raises(UntranslatableError, match=r"float32\[1, 2\], expected f32\[2,2\]"):
        import_file(file, constants=str(tmp_path / "e.npz"))
    (tmp_path / "f.npz").write_text("no zip")
    with pytest.raises(ModelError, match="expected an .npz file"):
        import_file(file, constants=str(tmp_path / "f.npz"))


@pytest.mark.skipif(not SHARED.exists(), reason="the texts of 2020 are not here")
def test_a_reduction_that_is_not_in_the_text_is_taken_from_its_op_type() -> None:
    path = SHARED / "fused_19.hlo"
    with pytest.raises(UntranslatableError, match="--assume-reductions takes it as add"):
        import_file(path)
    model = import_file(path, assume_reductions=True)
    draw = np.random.default_rng(0)
    a, b = (
        draw.standard_normal((4, 49, 1024)).astype(np.float32),
        draw.standard_normal((196, 1024)).astype(np.float32),
    )
    expected = (a.astype(np.float64) * b.reshape(a.shape).astype(np.float64)).sum((0, 1))
    assert np.abs(run(model, [a, b])[0] - expected).max() < 1e-4


XLA_3461 = """-2.3337238 -2.1951132 0.23352939 1.6762744 0.76940846 -0.34030855
-0.37738132 -1.6091281 0.11630969 0.14912085 -0.18489808 3.0205967"""
"""XLA's own result for the inputs below (jaxlib 0.10.2, CPU), at [:, ::20, ::700]."""


@pytest.mark.skipif(not SHARED.exists(), reason="the texts of 2020 are not here")
def test_the_text_of_46_instructions() -> None:
    model = import_file(SHARED / "fused_3461.hlo")
    # 15 parameters are inputs, 3 constants initializers, of 4 broadcasts 2 are a Reshape each and 2
    # are left to the readers; the 24 others are a node each, compare NE two
    assert len(model.graph.node) == 28
    draw = np.random.default_rng(0)
    inputs = [_drawn(value, draw) for value in model.graph.input]
    p = dict(
        zip(
            [value.name.split(".")[0] for value in model.graph.input],
            [x.astype(np.float64) for x in inputs],
            strict=True,
        )
    )

    def part(a: str, b: str, count: str, smaller: str, larger: str) -> np.ndarray:
        chosen = p[smaller] if max(840, p[count]) < 0 else p[larger]
        return ((-p[a] - p[b]) / chosen)[..., None]

    total = (
        p["param_9"]
        + part("param_14", "param_13", "param_12", "param_10", "param_11")
        + p["param_8"]
        + p["param_7"]
    )
    total = (
        total
        + part("param_5", "param_4", "param_6", "param_2", "param_3")
        + p["param_1"]
        + p["param_0"]
    )
    (actual,) = run(model, inputs)
    assert np.abs(actual - total).max() < 1e-5
    recorded = np.array(XLA_3461.split(), np.float32)
    assert np.abs(actual[:, ::20, ::700].ravel() - recorded).max() < 1e-6


def _drawn(value: onnx.ValueInfoProto, draw: np.random.Generator) -> np.ndarray:
    dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if value.type.tensor_type.elem_type == onnx.TensorProto.INT32:
        return np.asarray(draw.integers(1, 9, dims), np.int32)
    return draw.standard_normal(dims).astype(np.float32)


def test_one_computation_may_be_imported(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TWICE)
    assert [value.name for value in import_file(file, computation="f").graph.input] == ["p"]
    with pytest.raises(ModelError, match="no computation is called g"):
        import_file(file, computation="g")


SORT = """less {{
  q = f32[] parameter(1)
  p = f32[] parameter(0)
  ROOT r = pred[] compare(p, q), direction={}
}}
by {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] {}
}}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("fusion(a, b), kind=kLoop, calls=less", [-1, 0, 2, 5]),
        ("call(b, a), to_apply=less", None),  # b < a is not a < b
        ("call(a, b), to_apply=by", None),
    ],
)
def test_comparators_may_call_what_compares(body: str, expected: list[float] | None) -> None:
    """XLA of jax 0.8 and 0.9 fuses the inside of comparators."""
    text = entry(
        "x = f32[4] parameter(0)",
        "ROOT s = f32[4] sort(x), dimensions={0}, to_apply=by",
        before=SORT.format("LT", body),
    )
    if expected is None:
        with pytest.raises(UntranslatableError, match="its comparator by is not known"):
            imported(text)
        return
    (actual,) = run(imported(text), [np.array([5, -1, 2, 0], np.float32)])
    assert actual.tolist() == expected


def test_collectives_are_kept_and_not_run() -> None:
    text = entry(
        "x = f32[4] parameter(0)",
        "ROOT r = f32[4] all-reduce(x), replica_groups={{0,1},{2,3}}, to_apply=add",
        before="add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n",
    )
    (node,) = imported(text).graph.node
    assert (node.domain, node.op_type) == ("hlo", "AllReduce")
    assert {attribute.name: attribute.s.decode() for attribute in node.attribute} == {
        "replica_groups": "{{0,1},{2,3}}",
        "to_apply": "add",
    }


def test_shardings_are_kept() -> None:
    text = entry(
        "x = f32[4] parameter(0)",
        'ROOT s = f32[4] custom-call(x), custom_call_target="Sharding", sharding={devices=[2]<=[2]}',
    )
    (node,) = imported(text).graph.node
    assert node.op_type == "Identity"
    assert {prop.key: prop.value for prop in node.metadata_props} == {
        "hlo.sharding": "{devices=[2]<=[2]}",
        "hlo.custom_call_target": "Sharding",
    }


def test_a_bitcast_takes_the_elements_in_the_order_of_the_layouts() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = entry("x = f32[2,3]{0,1} parameter(0)", "ROOT b = f32[6]{0} bitcast(x)")
    assert np.array_equal(run(imported(text), [x])[0], x.T.reshape(-1))
    text = entry("x = f32[6]{0} parameter(0)", "ROOT b = f32[2,3]{0,1} bitcast(x)")
    assert np.array_equal(run(imported(text), [x.reshape(-1)])[0], x.reshape(-1).reshape(3, 2).T)
    text = entry("x = f32[2,3]{1,0} parameter(0)", "ROOT b = f32[3,2]{1,0} bitcast(x)")
    assert np.array_equal(run(imported(text), [x])[0], x.reshape(3, 2))


def test_an_unknown_length_of_an_iota_costs_no_memory() -> None:
    model = imported(entry("ROOT i = s32[1000,1000000] iota(), iota_dimension=1"))
    assert model.ByteSize() < 10_000


def test_a_window_keeps_the_nan_that_onnx_runtime_drops() -> None:
    text = entry(
        "x = f32[4] parameter(0)",
        "low = f32[] constant(-inf)",
        "r = f32[] reduce(x, low), dimensions={0}, to_apply=m",
        "w = f32[3] reduce-window(x, low), window={size=2}, to_apply=m",
        "ROOT t = (f32[], f32[3]) tuple(r, w)",
        before="m { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }\n",
    )
    whole, windows = run(imported(text), [np.array([1, np.nan, 3, 2], np.float32)])
    assert np.isnan(whole)
    assert np.array_equal(windows, np.array([np.nan, np.nan, 3], np.float32), equal_nan=True)


LOOP = """HloModule m, num_partitions=2
add {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }}
body {{ t = (s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(t), index=0
 x = f32[4] get-tuple-element(t), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[4] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add
 ROOT r = (s32[], f32[4]) tuple(j, y) }}
"""


@pytest.mark.parametrize(
    "text",
    [
        "ENTRY e { ROOT p = f32[2] parameter(0) }",
        "ENTRY e { q = f32[2] parameter(1) ROOT p = f32[2] parameter(0) }",
        "ENTRY e { ROOT p = (f32[2], f32[2]) parameter(0) }",
        "ENTRY e { p = f32[2] parameter(0) ROOT t = (f32[2], f32[2]) tuple(p, p) }",
        "f { ROOT p = f32[2] parameter(0) } ENTRY e { p = f32[2] parameter(0) ROOT c = f32[2] fusion(p), kind=kLoop, calls=f }",
        "f { ROOT p = f32[2] parameter(0) } ENTRY e { p = f32[2] parameter(0) ROOT c = f32[2] call(p), to_apply=f }",
        "f { ROOT p = f32[2] parameter(0) } ENTRY e { k = pred[] parameter(1) p = f32[2] parameter(0) ROOT c = f32[2] conditional(k, p, p), true_computation=f, false_computation=f }",
        "f { ROOT p = f32[] parameter(0) } ENTRY e { p = f32[2] parameter(0) ROOT c = f32[2] map(p), dimensions={0}, to_apply=f }",
        "c { p = (f32[2]) parameter(0) ROOT k = pred[] constant(false) } b { ROOT p = (f32[2]) parameter(0) } ENTRY e { p = f32[2] parameter(0) t = (f32[2]) tuple(p) ROOT w = (f32[2]) while(t), condition=c, body=b }",
    ],
)  # fmt: skip
@pytest.mark.parametrize("fusions", ["functions", "inline"])
def test_a_root_that_is_a_parameter_is_an_output_of_its_own(text: str, fusions: str) -> None:
    model = imported(text, fusions=fusions)
    onnx.checker.check_model(model, full_check=True)
    rng = np.random.default_rng(0)
    values = [
        np.array(1, bool) if not value.type.tensor_type.shape.dim else rng.random(2, np.float32)
        for value in model.graph.input
    ]
    results = run(model, values)
    arrays = [value for value in values if value.ndim]
    assert all(any(np.array_equal(one, array) for array in arrays) for one in results)


@pytest.mark.parametrize("place", ["body", "branch"])
def test_a_collective_in_a_body_brings_its_domain(place: str) -> None:
    text = LOOP.format() + (
        "cond { t = (s32[], f32[4]) parameter(0)\n i = s32[] get-tuple-element(t), index=0\n"
        " n = s32[] constant(3)\n ROOT c = pred[] compare(i, n), direction=LT }\n"
        "ENTRY e { x = f32[4] parameter(0)\n z = s32[] constant(0)\n"
        " t = (s32[], f32[4]) tuple(z, x)\n"
        " ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body }"
        if place == "body"
        else "ENTRY e { k = pred[] parameter(0)\n t = (s32[], f32[4]) parameter(1)\n"
        " ROOT c = (s32[], f32[4]) conditional(k, t, t), true_computation=body, false_computation=body }"
    )
    model = imported(text)
    assert "hlo" in {entry.domain for entry in model.opset_import}
    onnx.checker.check_model(model)


MOVES = """add {{ a = f32[] parameter(0) b = f32[] parameter(1) z = f32[] constant(0)
 y = f32[] {move}
 c = f32[] add(a, y) ROOT s = f32[] add(c, b) }}
"""


@pytest.mark.parametrize(
    "move",
    [
        "broadcast(z), dimensions={}",
        "reshape(z)",
        "transpose(z), dimensions={}",
        "bitcast(z)",
        "reverse(z), dimensions={}",
        "copy(z)",
    ],
)
def test_scalars_move_where_single_elements_are_computed(move: str) -> None:
    add = MOVES.format(move=move)
    values = np.arange(6, dtype=np.float32)
    mapped = (
        add
        + "ENTRY e { x = f32[6] parameter(0) ROOT m = f32[6] map(x, x), dimensions={0}, to_apply=add }"
    )
    (result,) = run(imported(mapped), [values])
    assert np.array_equal(result, 2 * values)
    reduced = (
        add
        + "ENTRY e { x = f32[6] parameter(0) z = f32[] constant(0) ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }"
    )
    (result,) = run(imported(reduced), [values])
    assert result == 15
    order = (
        "less { a = f32[] parameter(0) b = f32[] parameter(1) "
        f"x = f32[] {move.replace('(z)', '(a)')} y = f32[] {move.replace('(z)', '(b)')} "
        "ROOT c = pred[] compare(x, y), direction=GT }\n"
        "ENTRY e { v = f32[6] parameter(0) ROOT s = f32[6] sort(v), dimensions={0}, to_apply=less }"
    )
    (result,) = run(imported(order), [values])
    assert np.array_equal(result, values[::-1])


def test_a_move_to_an_array_in_a_scalar_computation_is_refused() -> None:
    text = (
        "g { a = f32[] parameter(0) b = f32[3] broadcast(a), dimensions={} ROOT n = f32[] negate(a) }\n"
        "ENTRY e { x = f32[5] parameter(0) ROOT s = f32[5] map(x), dimensions={0}, to_apply=g }"
    )
    with pytest.raises(UntranslatableError, match="where single elements are computed"):
        imported(text)


def test_a_set_bound_is_its_operand() -> None:
    text = entry(
        "p = s32[] parameter(0)",
        'ROOT c = s32[] custom-call(p), custom_call_target="SetBound", literal=s32[] 1',
    )
    (result,) = run(imported(text), [np.array(7, np.int32)])
    assert result == 7


def test_a_set_bound_of_an_array_has_the_sizes_of_its_operand() -> None:
    call = 'custom-call(p, n), custom_call_target="SetBound", literal=s32[] 1'
    parameters = "p = f32[4] parameter(0)\n n = s32[] parameter(1)"
    model = imported(entry(parameters, f"ROOT c = f32[<=4] {call}"))
    array = np.arange(4, dtype=np.float32)
    (result,) = run(model, [array, np.array(4, np.int32)])
    assert np.array_equal(result, array)
    with pytest.raises(UntranslatableError, match=r"its result is f32\[<=3\]"):
        imported(entry(parameters, f"ROOT c = f32[<=3] {call}"))


def test_comparators_as_xla_of_2023_writes_them() -> None:
    """A fusion inside of the comparator; the bits turned round are subtracted as u32."""
    key = """c{0} = s32[] bitcast-convert(p{0}) z{0} = s32[] constant(0) l{0} = pred[] compare(c{0}, z{0}), direction=LT
  m{0} = u32[] constant(2147483647) u{0} = u32[] bitcast-convert(k{0}) d{0} = u32[] subtract(m{0}, u{0})
  b{0} = s32[] bitcast-convert(d{0}) s{0} = s32[] select(l{0}, b{0}, c{0})
"""
    canonical = """n{0} = pred[] compare(q{0}, q{0}), direction=NE nan{0} = f32[] constant(nan) o{0} = f32[] constant(0)
  e{0} = pred[] compare(q{0}, o{0}), direction=EQ t{0} = f32[] select(e{0}, o{0}, q{0}) k{0} = f32[] select(n{0}, nan{0}, t{0})
"""
    sides = "".join(
        f"q{k} = f32[] parameter({1 - k})\n{canonical.format(k)}{key.format(k).replace(f'(p{k})', f'(k{k})')}"
        for k in (0, 1)
    )
    text = f"""inner {{ {sides} ROOT r = pred[] compare(s0, s1), direction=LT }}
comparator {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT f = pred[] fusion(b, a), kind=kLoop, calls=inner }}
ENTRY e {{ x = f32[5] parameter(0) ROOT s = f32[5] sort(x), dimensions={{0}}, to_apply=comparator }}"""
    x = np.array([3.0, -1.0, np.nan, -np.inf, 0.0], np.float32)
    np.testing.assert_array_equal(run(imported(text), [x])[0], np.sort(x))


def test_a_fusion_inside_of_a_scalar_computation() -> None:
    text = """inner { a = f32[] parameter(0) b = f32[] parameter(1) m = f32[] multiply(a, b) ROOT s = f32[] add(m, b) }
body { a = f32[] parameter(0) b = f32[] parameter(1) ROOT f = f32[] fusion(a, b), kind=kLoop, calls=inner }
ENTRY e { x = f32[2,3] parameter(0) ROOT r = f32[2,3] map(x, x), dimensions={0,1}, to_apply=body }"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(imported(text), [x])[0], x * x + x)
