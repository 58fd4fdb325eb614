"""Self-attention as one operation: the published example, its variants, and what must not match."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import gehost_drr
from gehost import Host, HostOptions
from gehost.testing import assert_equal_numbers

from .conftest import OWN, Paddle

PASS = "multihead_matmul_fuse_pass"
FUSED = {"multihead_matmul": 1}


class Attention:
    """The published example as text; each part may be said otherwise."""

    def __init__(
        self,
        batch: str = "1",
        length: int = 300,
        width: int = 256,
        heads: int = 8,
        *,
        mask: bool = True,
        split: str = "0, 0, {heads}, {size}",
        joined: str = "0, 0, {width}",
        scale: str = "float scale = {0.176777}",
    ) -> None:
        size = width // heads
        inputs = f"float[{batch}, {length}, {width}] x"
        if mask:
            inputs += f", float[{batch}, {heads}, {length}, {length}] mask"
        constants = f"int64[4] split = {{{split.format(heads=heads, size=size)}}}, int64[3] joined = {{{joined.format(width=width)}}}, {scale}"
        lines: list[str] = []
        for path, perm in zip("qkv", ("0, 2, 1, 3", "0, 2, 3, 1", "0, 2, 1, 3"), strict=True):
            lines += [
                f"p{path} = MatMul(x, w{path})",
                f"a{path} = Add(p{path}, b{path})",
                f"r{path} = Reshape(a{path}, split)",
                f"t{path} = Transpose<perm = [{perm}]>(r{path})",
            ]
        lines += [
            "scaled = Mul(tq, scale)",
            "qk = MatMul(scaled, tk)",
            "masked = Add(qk, mask)" if mask else "",
            f"weights = Softmax<axis = -1>({'masked' if mask else 'qk'})",
            "mixed = MatMul(weights, tv)",
            "turned = Transpose<perm = [0, 2, 1, 3]>(mixed)",
            "out = Reshape(turned, joined)",
        ]
        nodes = "\n".join(lines)
        self.text = (
            f"({inputs}) => (float[{batch}, {length}, {width}] out) <{constants}> {{\n{nodes}\n}}"
        )
        self.weights: dict[str, tuple[int, ...]] = {f"w{path}": (width, width) for path in "qkv"}
        self.weights.update({f"b{path}": (width,) for path in "qkv"})

    def but(self, *changes: tuple[str, str]) -> Attention:
        """With parts of the text replaced."""
        for old, new in changes:
            assert old in self.text
            self.text = self.text.replace(old, new)
        return self

    def flattened(self, rows: str, batches: int = 2, *, gemm: str = "Gemm") -> Attention:
        """With projections over all rows at once, which a Reshape to ``rows`` takes apart again."""
        self.text = self.text.replace(
            "int64[3] joined", f"int64[{len(rows.split(','))}] rows = {{{rows}}}, int64[3] joined"
        )
        for path in "qkv":
            over_rows = f"f{path} = Flatten<axis = {batches}>(x)\np{path} = {gemm}(f{path}, w{path}, b{path})"
            self.but(
                (f"p{path} = MatMul(x, w{path})", over_rows),
                (f"Add(p{path}, b{path})", f"Reshape(p{path}, rows)"),
            )
        return self

    def taking(self, weight: str) -> Attention:
        """With a weight that the caller gives."""
        self.text = self.text.replace("] x", f"] x, float[12, 12] {weight}", 1)
        del self.weights[weight]
        return self

    def model(self, opset: int = 17) -> onnx.ModelProto:
        return Paddle.model(self.text, opset, **self.weights)


def small(**options: Any) -> Attention:
    return Attention("2", 5, 12, 3, scale="float scale = {0.5}", **options)


def in_dtype(attention: Attention, dtype: str) -> onnx.ModelProto:
    """The model in another floating-point type."""
    model = attention.but(("float[", f"{dtype}[")).model()
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(
                    onnx.numpy_helper.to_array(tensor).astype(dtype), tensor.name
                )
            )
    return model


@pytest.mark.parametrize("mask", [True, False])
def test_the_published_example_becomes_one_operation(paddle: Paddle, mask: bool) -> None:
    result = paddle.fuses(Attention(mask=mask).model(), PASS, FUSED)
    (node,) = result.graph.node
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    assert attributes == {"alpha": pytest.approx(0.176777), "head_number": 8, "head_size": 32}
    shapes = {entry.name: list(entry.dims) for entry in result.graph.initializer}
    assert [shapes[name] for name in node.input[1:3]] == [[256, 3, 256], [3, 256]]
    assert list(filter(None, node.input[3:])) == (["mask"] if mask else [])


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_at_other_opsets(paddle: Paddle, opset: int) -> None:
    paddle.fuses(small().but(("axis = -1", "axis = 3")).model(opset), PASS, FUSED)


K_SCALED = (("Mul(tq, scale)", "Mul(tk, scale)"), ("MatMul(scaled, tk)", "MatMul(tq, scaled)"))
"""The scale on the other side of the product."""
TWICE = (
    "tk = Transpose<perm = [0, 2, 3, 1]>(rk)",
    "uk = Transpose<perm = [0, 2, 1, 3]>(rk)\ntk = Transpose<perm = [0, 1, 3, 2]>(uk)",
)


@pytest.mark.parametrize(
    "attention",
    [
        small().but(TWICE),
        small(mask=False).but(TWICE),
        small().but(
            ("Add(pq, bq)", "Add(bq, pq)"),
            ("Mul(tq, scale)", "Mul(scale, tq)"),
            ("Add(qk, mask)", "Add(mask, qk)"),
        ),
        small(split="2, 5, -1, 4", joined="2, 5, -1"),
        small(split="-1, 5, 3, 4", joined="0, 5, 12"),
        Attention("N", 5, 12, 3),
        small().but(("float[2, 3, 5, 5] mask", "float[2, 1, 1, 5] mask")),
        small().flattened("2, 5, 12"),
        small(mask=False).flattened("2, 5, -1"),
        small().but(TWICE).flattened("2, -1, 3, 4"),
        small(mask=False).but(TWICE).flattened("-1, 5, 12"),
        Attention("N", 5, 12, 3).flattened("-1, 5, 12"),
        small().flattened("2, 5, 12", gemm="Gemm<transB = 1>"),
        Attention("2", 1, 12, 3).flattened("2, 1, 12", batches=1),
        Attention().but(*K_SCALED),
        small(split="2, 5, 3, 4").flattened("10, 12"),
        small(split="2, 5, 3, 4").flattened("-1"),
        small().but(("aq = Add(pq, bq)", "cq = Identity(bq)\naq = Add(pq, cq)")),
    ],
    ids=[
        "k in two steps",
        "that without mask",
        "operands swapped",
        "sizes",
        "the rest",
        "any batch",
        "a mask that is broadcast",
        "flattened",
        "flattened without mask",
        "flattened, k in two steps",
        "all of that without mask",
        "flattened, any batch",
        "transposed weights",
        "flattened, one row",
        "k is scaled",
        "flattened, split at once",
        "flattened to a vector",
        "a bias behind Identity",
    ],
)
def test_variants(paddle: Paddle, attention: Attention) -> None:
    paddle.fuses(attention.model(), PASS, FUSED)


def test_a_batch_of_none_is_none(paddle: Paddle) -> None:
    """Without elements no size is left over to be told from them."""
    model = Attention("N", 5, 12, 3).model()
    result = paddle.fuses(model, PASS, FUSED)
    empty = {"x": np.zeros((0, 5, 12), np.float32), "mask": np.zeros((0, 3, 5, 5), np.float32)}
    assert_equal_numbers(model, result, [empty])


def test_half_precision_is_kept(paddle: Paddle) -> None:
    paddle.fuses(in_dtype(small(), "float16"), PASS, FUSED)


WRONG = ("int64[3] joined", "int64[3] wrong = {5, 2, 12}, int64[3] joined")
OTHER = ("int64[3] joined", "int64[4] other = {0, 0, 4, 3}, int64[3] joined")


def refuses(paddle: Paddle, model: onnx.ModelProto, reason: str) -> None:
    result, record = paddle.run(model, PASS)
    assert result == model
    assert list(record.rejected) == [reason]


def widths(**weights: tuple[int, ...]) -> Attention:
    attention = small()
    attention.weights.update(weights)
    return attention


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (small().but(OTHER, ("Reshape(av, split)", "Reshape(av, other)")), "values"),
        (small(split="5, 2, 3, 4", joined="2, 5, 12"), "scores"),
        (small(split="-1, 5, 3, 2", joined="2, 5, 12", mask=False), "layout"),
        (small().but(("[2, 5, 12] x", "[2, 5, 1, 12] x")), "layout"),
        (small().but(("float scale = {0.5}", "float[4] scale = {1, 2, 3, 4}")), "layout"),
        (
            small().but(
                ("float[2, 5, 12] x", "float[2, 5, 12] x, float scale"),
                (", float scale = {0.5}", ""),
            ),
            "layout",
        ),
        (small().taking("wk"), "layout"),
        (widths(bk=(1, 12)), "layout"),
        (widths(bv=(1,)), "layout"),
        (widths(wq=(2, 12, 12)), "layout"),
        (small().but(("Reshape(aq, split)", "Reshape<allowzero = 1>(aq, split)")), "scores"),
        (small(split="2, 5, 3, 4").flattened("5, 2, 12"), "layout"),
        (
            small(split="2, 5, 3, 4")
            .flattened("2, 5, 12")
            .but(WRONG, ("Reshape(pk, rows)", "Reshape(pk, wrong)")),
            "layout",
        ),
        (
            small(split="2, 5, 3, 4")
            .flattened("2, 5, 12")
            .but(WRONG, ("Reshape(pv, rows)", "Reshape(pv, wrong)")),
            "layout",
        ),
        (Attention("N", 5, 12, 3).flattened("-1, 10, 6"), "scores"),
        (Attention("N", 5, 12, 3).flattened("-1, 1, 12"), "scores"),
        (Attention("N", 5, 12, 3).flattened("-1, 5, 6"), "addend"),
        (Attention("N", 5, 12, 3, mask=False).flattened("0, -1, 12"), "layout"),
    ],
)
def test_what_may_compute_something_else_is_refused(
    paddle: Paddle, attention: Attention, reason: str
) -> None:
    refuses(paddle, attention.model(), reason)


@pytest.mark.parametrize(
    ("attention", "reason"),
    [
        (small().flattened("2, 5, 12", gemm="Gemm<alpha = 0.5>"), "attributes"),
        (small().flattened("2, 5, 12", gemm="Gemm<beta = 0.5>"), "attributes"),
        (Attention("2", 6, 12, 3).flattened("2, 6, 12", gemm="Gemm<transA = 1>"), "attributes"),
        (
            small().flattened("2, 5, 12").but(("aq = Reshape(pq, rows)", "aq = Identity(pq)")),
            "scores",
        ),
    ],
    ids=["alpha", "beta", "transA", "one not taken apart"],
)
def test_another_product_over_all_rows_is_refused(
    paddle: Paddle, attention: Attention, reason: str
) -> None:
    refuses(paddle, attention.model(), reason)


@pytest.mark.parametrize(
    "attention",
    [
        Attention(),
        Attention(mask=False),
        Attention("N", 5, 12, 3),
        small().but(("[2, 5, 12]", "[N, S, 12]"), ("[2, 3, 5, 5]", "[N, 3, S, S]")),
    ],
    ids=["published", "without mask", "any batch", "any batch and length"],
)
def test_with_all_vendors_too(attention: Attention) -> None:
    """``vendors/ascend`` comes first, and flattens the projections."""
    model = attention.model()
    enabled = HostOptions(
        vendors=[OWN.parent], plugins=False, enable=["FlattenBatchMatMulAddPass", PASS]
    )
    host = Host(enabled, plugins=[("drr", gehost_drr)])
    result, report = host.run(model)
    fired = {record.name: record.replaced for record in report.passes if record.replaced}
    assert fired == {"FlattenBatchMatMulAddPass": 3, PASS: 1}
    assert [node.op_type for node in result.graph.node] == ["multihead_matmul"]
    assert_equal_numbers(model, result)


def test_another_dtype_is_refused(paddle: Paddle) -> None:
    """Its numbers are more than a float attribute holds."""
    paddle.refuses(in_dtype(small(), "double"), PASS, "dtype")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("[0, 2, 1, 3]>(rv)", "[0, 1, 2, 3]>(rv)"), "values"),
        (("[0, 2, 1, 3]>(rq)", "[0, 1, 2, 3]>(rq)"), "scores"),
        (("axis = -1", "axis = 1"), "values"),
    ],
)
def test_a_twin_of_another_meaning_is_refused(
    paddle: Paddle, change: tuple[str, str], reason: str
) -> None:
    """Some would not run; what is looked at is the structure."""
    refuses(paddle, Attention().but(change).model(), reason)


def test_a_mask_that_is_subtracted_is_negated(paddle: Paddle) -> None:
    model = Attention().but(("Add(qk, mask)", "Sub(qk, mask)")).model()
    paddle.fuses(model, PASS, {**FUSED, "Mul": 1})


@pytest.mark.parametrize("inner", ["pq", "rk", "scaled", "qk", "weights", "turned"])
def test_a_tensor_inside_that_is_a_graph_output_is_computed(paddle: Paddle, inner: str) -> None:
    model = Attention().model()
    model.graph.output.add(name=inner).type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    result, _ = paddle.run(model, PASS)
    assert_equal_numbers(model, result)
