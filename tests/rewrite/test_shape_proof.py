"""Sizes that cannot be compared by number: what is proven, what is refused, and what an author may vouch for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from gehost import Host, HostOptions, es, ops
from gehost.infer import Inferrer
from gehost.ir.model import Model
from gehost.ir.types import TensorType
from gehost.ops import OpRegistry
from gehost.refusal import Refused
from gehost.rewrite.shape_proof import NodeState, TypeProof, ValueNumbering
from gehost.testing import parse


def matmul_add(a, b, c):
    return es.Add(es.MatMul(a, b), c)


def reasons(work) -> list[str]:
    return [reason.partition(":")[0] for reason in work.refused]


@pytest.fixture
def replace(rewriting):
    """Rewrite one match; returns why it was refused ("" when it was not), and the type of ``y`` afterwards."""

    def run(text, find, put, inputs: int = 1, **options):
        opset = options.pop("opset", 17)
        weights = {
            name: options.pop(name)
            for name in list(options)
            if isinstance(options[name], np.ndarray)
        }
        work = rewriting(text, opset, **weights)
        work.replace(find, put, inputs, **options)
        assert len(work.made) + len(work.refused) == 1
        return "".join(work.refused), str(work.model.graph.values["y"].type)

    return run


# -- known sizes ----------------------------------------------------------------------------------------------------


def test_a_known_size_stays(replace):
    text = "g (float[2, 3] x) => (float[?, ?] y) { y = Relu(x) }"
    assert replace(text, es.Relu, lambda x: es.Max(x, 0.0)) == ("", "float[2,3]")
    assert (
        replace(text, es.Relu, lambda x: es.Transpose(x))[0]
        == 'shape: dimension 0 of "y" was 2, would be 3'
    )
    assert replace(text, es.Relu, lambda x: es.Transpose(x), proven=True)[0].startswith(
        "shape: "
    ), "an author cannot vouch for what is wrong"


def test_what_was_known_stays_when_the_new_type_is_not(replace):
    text = "g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"
    namespace = {"ops": ops}
    exec("ops.register('acme::F', inputs=['x'], shape=lambda types, attributes: [None])", namespace)
    registry = OpRegistry()
    registry.add_marked(namespace)
    assert replace(text, es.Relu, es.op("acme::F"), registry=registry) == ("", "float[2,3]")
    text = "g (float[2, 3] x, int64[2] s) => (float[A, B] y) { r = Reshape(x, s) y = Relu(r) }"
    assert replace(
        text, lambda x, s: es.Relu(es.Reshape(x, s)), lambda x, s: es.Max(es.Reshape(x, s), 0.0), 2
    ) == (
        "",
        "float[?1,?2]",
    )


def test_a_known_size_does_not_become_that_of_an_input_of_which_nothing_is_known(replace):
    text = "g (float[N] x) => (float[4] y) { y = Add(x, w) }"
    zeros = {"w": np.zeros(4, np.float32)}
    refused, _ = replace(text, lambda x: x + [0.0] * 4, lambda x: x, **zeros)
    assert refused == 'unproven: dimension 0 of "y" was 4, would be that of an input, N', (
        "x may be of size 1"
    )
    assert replace(text, lambda x: x + [0.0] * 4, lambda x: x, proven=True, **zeros) == (
        "",
        "float[4]",
    )
    assert (
        replace(
            text.replace("float[N] x", "float[4] x"), lambda x: x + [0.0] * 4, lambda x: x, **zeros
        )[0]
        == ""
    )


def test_dtype_and_rank_agree_whatever_the_author_says(replace):
    text = "g (float[N] x) => (float[M] y) { y = Relu(x) }"
    for proven in (False, True):
        assert replace(text, es.Relu, lambda x: es.Cast(x, to=10), proven=proven)[0].startswith(
            "dtype: "
        )
        assert replace(text, es.Relu, lambda x: es.Unsqueeze(x, axes=[0]), proven=proven)[
            0
        ].startswith("rank: ")


# -- symbols --------------------------------------------------------------------------------------------------------


def test_one_symbol_is_one_size(replace):
    text = "g (float[N, S] x, float[N, S] z) => (float[N, S] y) { y = Add(x, z) }"
    assert replace(text, es.Add, lambda x, z: es.Sub(x, -z), 2) == ("", "float[N,S]")


def test_two_symbols_are_not_one_size(replace):
    text = "g (float[N] x, float[M] z) => (float[K] y) { t = Neg(z) y = Relu(x) }"
    swap = (lambda x, z: [es.Relu(x), es.Neg(z)], lambda x, z: [es.Relu(z), es.Neg(x)], 2)
    refused, _ = replace(text.replace("float[K] y", "float[N] y, float[M] t"), *swap)
    assert refused == 'unproven: dimension 0 of "y" was N, would be M'
    assert replace(text.replace("float[K] y", "float[N] y, float[M] t"), *swap, proven=True) == (
        "",
        "float[N]",
    )


def test_a_symbol_and_nothing_are_not_one_size(replace):
    text = "g (float[N] x, float[?] z) => (float[N] y, float t) { u = Neg(z) t = ReduceSum(u) y = Relu(x) }"
    swap = (lambda x, z: [es.Relu(x), es.Neg(z)], lambda x, z: [es.Relu(z), es.Neg(x)], 2)
    refused, _ = replace(text, *swap)
    assert refused == 'unproven: dimension 0 of "y" was N, would be ?1 (dimension 0 of "z")'
    other = "g (float[?] x, float[N] z) => (float[?] y, float[N] t) { t = Neg(z) y = Relu(x) }"
    assert (
        replace(other, *swap)[0]
        == 'unproven: dimension 0 of "y" was ?1 (dimension 0 of "x"), would be N'
    )


# -- sizes without a name -------------------------------------------------------------------------------------------


def test_one_input_s_unknown_size_that_goes_through_unchanged_is_one_size(replace):
    text = "g (float[?, 3, ?] x) => (float[?, 3, ?] y) { t = Neg(x) y = Neg(t) }"
    assert replace(text, lambda x: es.Neg(es.Neg(x)), lambda x: x) == ("", "float[?1,3,?2]")
    assert replace(text, lambda x: es.Neg(es.Neg(x)), lambda x: es.Identity(x)) == (
        "",
        "float[?1,3,?2]",
    )
    transposed = "g (float[?, ?] x) => (float[?, ?] y) { t = Transpose(x) y = Transpose(t) }"
    twice = lambda x: es.Transpose(es.Transpose(x))  # noqa: E731
    assert replace(transposed, twice, lambda x: x)[0] == ""
    assert replace(transposed, twice, lambda x: es.Transpose(x))[0].startswith(
        'unproven: dimension 0 of "y" was ?1 (dimension 0 of "x"), would be ?2 (dimension 1 of "x")'
    )
    assert replace(transposed, twice, lambda x: es.Transpose(x), proven=True)[0] == ""


def test_two_unknown_sizes_are_not_equal_for_being_unknown(replace):
    text = "g (float[?, 3] x, float[3, ?] w, float[?] b) => (float[?, ?] y) { t = MatMul(x, w) y = Add(t, b) }"
    refused, _ = replace(text, matmul_add, lambda a, b, c: es.Gemm(a, b, c), 3)
    # b may be what widens the product
    assert refused == (
        'unproven: dimension 1 of "y" was broadcast(?2, ?3) '
        '(dimension 1 of "y", made by Add "y"), '
        'would be ?2 (dimension 1 of "w")'
    )
    assert replace(text, matmul_add, lambda a, b, c: es.Gemm(a, b, c), 3, proven=True)[0] == ""
    sized = text.replace("float[3, ?] w", "float[3, 4] w").replace("float[?] b", "float[4] b")
    assert replace(sized, matmul_add, lambda a, b, c: es.Gemm(a, b, c), 3)[0] == ""


def test_names_that_inference_invented_are_unknown(rewriting):
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> g (float[2, 3] x) => (float[?] y) { t = ge.F(x) u = ge.G(x) y = Relu(t) z = Neg(u) }'
    )
    for name in ("t", "u", "z"):
        proto.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, ["unk__0"]))
    work = rewriting(proto)
    assert str(work.model.graph.values["t"].type) == "float[?1]"
    work.replace(
        lambda t, u: [es.Relu(t), es.Neg(u)], lambda t, u: [es.Max(u, 0.0), es.Mul(t, -1.0)], 2
    )
    assert reasons(work) == ["unproven"]


def test_the_same_computation_has_the_same_sizes(replace):
    text = "g (float[?, 3] x, float[3, ?] w, float[?] b) => (float[?, ?] y) { t = MatMul(x, w) s = Add(t, b) y = Relu(s) }"

    def relu(a, b, c):
        return es.Relu(matmul_add(a, b, c))

    assert replace(text, relu, lambda a, b, c: es.Max(matmul_add(a, b, c), 0.0), 3)[0] == ""
    assert (
        replace(text, relu, lambda a, b, c: es.Max(es.Add(c, es.MatMul(a, b)), 0.0), 3)[0] == ""
    ), "Add commutes"
    assert (
        replace(text, relu, lambda a, b, c: es.Max(es.Sub(es.MatMul(a, b), c), 0.0), 3)[0] == ""
    ), "it broadcasts the same sizes"
    assert replace(text, relu, lambda a, b, c: es.Max(es.Add(es.MatMul(a, b), 1.0), c), 3)[0] == ""
    assert replace(text, relu, lambda a, b, c: es.Max(es.MatMul(a, b), 0.0), 3)[0].startswith(
        "unproven: "
    )
    data = "g (float[N] x) => (int64[1, ?] y) { t = NonZero(x) y = Neg(t) }"
    assert (
        replace(data, lambda x: es.Neg(es.NonZero(x)), lambda x: es.Mul(es.NonZero(x), -1))[0] == ""
    )
    assert replace(
        data, lambda x: es.Neg(es.NonZero(x)), lambda x: es.Mul(es.NonZero(es.Relu(x)), -1)
    )[0].startswith("unproven: ")


def test_a_convolution_of_other_numbers_has_the_same_sizes(replace):
    text = (
        "g (float[N, 3, H, W] x, float[3, 3, 2, 2] w) => (float[N, 3, ?, ?] y) "
        "{ t = Mul(x, c) y = Conv(t, w) }"
    )

    def reason(put):
        constants = {"c": np.array([2], np.float32)}
        return replace(text, lambda x, w: es.Conv(x * 2.0, w), put, 2, **constants)[0]

    assert reason(lambda x, w: es.Conv(x + x, w)) == ""
    assert reason(lambda x, w: es.Conv(x + x, w, strides=[2, 2])).startswith("unproven: ")
    turned = [0, 1, 3, 2]
    assert reason(lambda x, w: es.Conv(es.Transpose(x, perm=turned), w)).startswith("unproven: ")
    assert reason(lambda x, w: es.Conv(x, es.Concat(w, w, axis=3))).startswith("unproven: ")


WINDOWS = {
    "AveragePool": lambda x: es.AveragePool(x, kernel_shape=[2, 3]),
    "LpPool": lambda x: es.LpPool(x, kernel_shape=[2, 3]),
    "MaxPool": lambda x: es.MaxPool(x, kernel_shape=[2, 3]),
    "ConvTranspose": lambda x: es.ConvTranspose(x, np.ones((3, 3, 2, 3), np.float32)),
}


@pytest.mark.parametrize("op", WINDOWS)
def test_a_window_over_other_numbers_has_the_same_sizes(replace, op: str):
    window = WINDOWS[op]
    value = ", w" if op == "ConvTranspose" else ""
    attributes = "" if value else "<kernel_shape = [2, 3]>"
    text = (
        "g (float[N, 3, H, W] x) => (float[N, 3, ?, ?] y) "
        f"{{ t = Mul(x, c) y = {op} {attributes} (t{value}) }}"
    )
    constants = {"c": np.array([2], np.float32)}
    if value:
        constants["w"] = np.ones((3, 3, 2, 3), np.float32)

    def reason(put):
        return replace(text, lambda x: window(x * 2.0), put, 1, **constants)[0]

    assert reason(lambda x: window(x + x)) == ""
    assert reason(lambda x: window(es.Transpose(x, perm=[0, 1, 3, 2]))).startswith("unproven: ")


def registry_of(code: str) -> OpRegistry:
    namespace = {"ops": ops, "es": es, "TensorType": TensorType}
    exec(code, namespace)
    registry = OpRegistry()
    registry.add_marked(namespace)
    return registry


UNNAMED = "g (float[?, 3] x, float[3, ?] w, float[?] b) => (float[?, ?] y) { t = MatMul(x, w) y = Add(t, b) }"


def test_a_computation_in_a_body_is_the_same_computation(replace):
    registry = registry_of(
        "@ops.register('ge::GEMM')\n"
        "def gemm(a, b, c, *, flip=0):\n"
        "    return es.Add(c * 2.0 * 0.5, es.MatMul(a, b)) if not flip else es.Sub(es.MatMul(a, b), c)\n"
    )
    scaled = UNNAMED.replace("y = Add(t, b)", "u = Mul(b, two) v = Mul(u, half) y = Add(t, v)")
    weights = {"two": np.array(2, np.float32), "half": np.array(0.5, np.float32)}

    def find(a, b, c):
        return es.Add(es.MatMul(a, b), c * 2.0 * 0.5)

    def flipped(a, b, c):
        return es.op("ge::GEMM")(a, b, c, flip=1)

    assert replace(scaled, find, es.op("ge::GEMM"), 3, registry=registry, **weights)[0] == ""
    assert replace(UNNAMED, matmul_add, flipped, 3, registry=registry)[0] == "", (
        "it broadcasts the same sizes"
    )
    assert replace(UNNAMED, matmul_add, es.op("acme::Unregistered"), 3)[0] == "", (
        "the match itself is the body"
    )


@pytest.mark.parametrize(
    "shape",
    ["None", "TensorType(types[0].dtype, None)", "TensorType(types[0].dtype, (None, None))"],
)
def test_what_a_vendor_s_function_leaves_open_the_body_tells(replace, shape):
    registry = registry_of(
        f"@ops.register('ge::GEMM', shape=lambda types, attributes: [{shape}])\n"
        "def gemm(a, b, c):\n"
        "    return es.Add(es.MatMul(a, b), c)\n"
    )
    assert replace(UNNAMED, matmul_add, es.op("ge::GEMM"), 3, registry=registry)[0] == ""


# -- types that are not known at all --------------------------------------------------------------------------------


def untyped(text: str) -> Model:
    return Model(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> {text}'))


def test_before_inference_types_are_inferred_from_what_is_there():
    model = untyped("g (float[N, 3] x) => (float[N, 3] z) { t = Neg(x) y = Neg(t) z = Relu(y) }")
    x, y = model.graph.values["x"], model.graph.values["y"]
    assert y.type is None
    old = [NodeState(node) for node in list(model.graph.nodes)[:2]]
    proof = TypeProof([x], old, [], Inferrer(model, OpRegistry()), shape_proven=False)
    assert str(proof.unify(y, None, x, x.type)) == "float[N,3]"


def test_the_unknown_and_the_known():
    text = "g (float[N, 3] x) => (float[N, 3] z) { y = acme.F(x) z = Relu(y) }"
    model = untyped(text)
    x, y = model.graph.values["x"], model.graph.values["y"]
    steps = [NodeState(next(model.graph.nodes))]

    def unify(old, new, proven: bool = False):
        return TypeProof([x], steps, [], Inferrer(model, OpRegistry()), shape_proven=proven).unify(
            y, old, x, new
        )

    assert unify(None, None) is None
    with pytest.raises(
        Refused,
        match=r'unproven: the type of "y" is unknown, the replacement would have float\[N,3\]',
    ):
        unify(None, x.type)
    assert unify(None, x.type, proven=True) == x.type
    dtype = x.type.dtype
    rankless, shapeless = TensorType(dtype, None), TensorType(type(dtype).UNDEFINED, (2, 3))
    with pytest.raises(
        Refused, match='unproven: the rank of "y" is unknown, the replacement would have 2'
    ):
        unify(rankless, x.type)
    assert unify(rankless, x.type, proven=True) == x.type
    assert unify(x.type, rankless) == x.type
    assert unify(x.type, None) == x.type
    with pytest.raises(Refused, match='unproven: the dtype of "y" is unknown'):
        unify(shapeless, TensorType(dtype, (2, 3)))
    assert unify(shapeless, TensorType(dtype, (2, 3)), proven=True) == TensorType(dtype, (2, 3))
    assert unify(TensorType(dtype, (2, 3)), shapeless) == TensorType(dtype, (2, 3))


def test_what_is_no_tensor_must_be_the_same():
    model = untyped("g (seq(float[N]) s, float[N] x) => (seq(float[N]) y) { y = Identity(s) }")
    s, x, y = (model.graph.values[name] for name in "sxy")
    proof = TypeProof(
        [s, x],
        [NodeState(next(model.graph.nodes))],
        [],
        Inferrer(model, OpRegistry()),
        shape_proven=True,
    )
    assert proof.unify(y, s.type, s, s.type) == s.type
    with pytest.raises(Refused, match="type: "):
        proof.unify(y, s.type, x, x.type)


def test_sizes_are_named_alike_every_time():
    """Inference keeps results by types, so equal structures must get equal names."""
    model = untyped(
        "g (float[?, N] x, float[?, N] z, float[3] w) => (float[3] y) { y = Identity(w) }"
    )
    values = [model.graph.values[name] for name in "xz"]
    numberings = [
        ValueNumbering(order, Inferrer(model, OpRegistry())) for order in (values, values[::-1])
    ]
    (a, b), (c, d) = ([str(number.type) for number in trace.given.values()] for trace in numberings)
    assert (a, b) == (c, d)
    assert a != b
    assert a.endswith(",=N]")
    assert b.endswith(",=N]")


def test_types_that_the_file_states_prove_a_gemm_before_inference(tmp_path: Path) -> None:
    """GE's MatMul + Add to GEMM, at its own stage: nothing but the file's sizes is known."""
    (tmp_path / "gemm.py").write_text("""
from gehost import CustomPassStage, EsGraphBuilder, Pattern, PatternFusionPass, REG_FUSION_PASS, es

@REG_FUSION_PASS(stage=CustomPassStage.kBeforeInferShape)
class GemmPass(PatternFusionPass):
    def Patterns(self):
        builder = EsGraphBuilder("p")
        a, b, c = builder.CreateInputs(3)
        return [Pattern(builder.BuildAndReset([es.Add(es.MatMul(a, b), c)]))]

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        a, b, c = builder.CreateInputs(3)
        one = builder.CreateScalar(1.0)
        return builder.BuildAndReset([es.GEMM(a, b, c, one, one)])
""")
    model = parse("""<ir_version: 8, opset_import: ["" : 17]>
        main (float[B, 4, S, 8] q, float[B, 4, 8, S] k, float[B, 1, S, S] mask) => (float[B, 4, S, S] y)
        <float[B, 4, S, S] m> { m = MatMul (q, k) y = Add (m, mask) }""")
    options = HostOptions(pass_paths=[tmp_path / "gemm.py"], plugins=False)
    _, report = Host(options).run(model)
    assert [record.replaced for record in report.passes] == [1]
