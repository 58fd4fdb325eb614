"""Numbers and element types are compared as the model stores them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gehost import DataType
from gehost.testing import parse
from gehost_register_pass import op

LEAKY = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) {{ t = LeakyRelu<alpha = {}>(x) y = Mul(t, c) }}'


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(
    ("name", "passes"),
    [("EQ", True), ("NE", False), ("LT", False), ("LE", True), ("GT", False), ("GE", True)],
)
def test_a_number_is_compared_as_the_model_stores_it(
    run, name: str, passes: bool, dtype: Any
) -> None:
    """Attributes are float32, and 0.1 as float32 is 0.10000000149."""

    def pattern(x, c):
        leaky = op.LeakyRelu(x)
        getattr(leaky.Attr("alpha"), name)(0.1)
        getattr(c.Attr("value")[0], name)(0.1)
        getattr(
            x.shape[0] * 0.05, {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}.get(name, name)
        )(c.Attr("value")[0])
        getattr(c.Attr("value")[0] * 1, name)(c.Attr("value")[0])
        return op.Mul(leaky, c)

    kind = {np.float32: "float", np.float16: "float16", np.float64: "double"}[dtype]
    before = parse(LEAKY.format(0.1).replace("float[", f"{kind}["), {"c": np.array([0.1], dtype)})
    assert run(before, (pattern, lambda x, c: op.Mul(c, op.Abs(x))))[1].replaced == passes


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize(("name", "passes"), [("EQ", True), ("NE", False)])
def test_a_parameter_that_is_an_input_is_compared_as_the_constant_there(
    run, name: str, passes: bool, dtype: Any
) -> None:
    def pattern(x):
        clip = op.Clip(x)
        getattr(clip.Attr("max"), name)(0.1)
        return op.Neg(clip)

    kind = {np.float32: "float", np.float16: "float16", np.float64: "double"}[dtype]
    text = f'<ir_version: 8, opset_import: ["" : 17]> main ({kind}[2] x) => ({kind}[2] y) {{ t = Clip(x, , most) y = Neg(t) }}'
    before = parse(text, {"most": np.array(0.1, dtype)})
    assert run(before, (pattern, lambda x: op.Abs(x)))[1].replaced == passes


def test_the_element_type_of_a_parameter_is_not_that_of_another_input(run) -> None:
    def pattern(x):
        dropout = op.Dropout(x)
        dropout.Attr("ratio").NE(0.1)
        return dropout

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[1] z) => (float[1] y) { y = Dropout(x, ratio) }'
    before = parse(text, {"x": np.array([3.0], np.float32), "ratio": np.array(0.1)})
    assert dict(run(before, (pattern, lambda x: x))[1].rejected) == {"condition": 1}


@pytest.mark.parametrize(
    ("stored", "number"), [(np.array([0.1 + 1e-9]), 0.1), (np.array([np.inf], np.float32), 1e300)]
)
def test_numbers_that_differ_are_not_rounded_until_they_agree(
    run, stored: Any, number: float
) -> None:
    def pattern(x, c):
        c.Attr("value").EQ([number])
        return op.Mul(op.LeakyRelu(x), c)

    text = LEAKY.format(0.5)
    before = parse(
        text if stored.dtype == np.float32 else text.replace("float[", "double["), {"c": stored}
    )
    assert run(before, (pattern, lambda x, c: op.Abs(x)))[1].replaced == 0


CAST = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float16[2] y) { t = Abs(x) y = Cast<to = 10>(t) }'


@pytest.mark.parametrize("of", ["attribute", "tensor"])
@pytest.mark.parametrize("other", [DataType.FLOAT16, 10])
def test_an_element_type_is_the_number_that_onnx_has_for_it(run, of: str, other: int) -> None:
    def where(name: str, expected: int):
        def pattern(x):
            cast = op.Cast(op.Abs(x))
            getattr(cast.Attr("to") if of == "attribute" else cast.Output().dtype, name)(expected)
            return cast

        return pattern, lambda x: op.Abs(op.Cast(x, to=DataType.FLOAT16))

    matches = [
        run(CAST, where(*condition))[1].replaced
        for condition in (("EQ", other), ("NE", other), ("EQ", 1), ("NE", 1))
    ]
    assert matches == [1, 0, 0, 1]


@pytest.mark.parametrize("name", ["EQ", "NE"])
@pytest.mark.parametrize("other", ["float16", "10"])
def test_a_number_and_a_text_are_neither_equal_nor_unequal(run, name: str, other: Any) -> None:
    def pattern(x):
        cast = op.Cast(op.Abs(x))
        getattr(cast.Attr("to"), name)(other)
        return cast

    _, record = run(CAST, (pattern, lambda x: op.Abs(op.Cast(x, to=10))))
    assert (record.replaced, dict(record.rejected)) == (0, {"unknown": 1})


@pytest.mark.parametrize(
    ("name", "other", "replaced"), [("EQ", [10], 1), ("NE", [10], 0), ("EQ", [10, 10], 0)]
)
def test_one_number_is_a_list_of_it(run, name: str, other: Any, replaced: int) -> None:
    def pattern(x):
        cast = op.Cast(op.Abs(x))
        getattr(cast.Attr("to"), name)(other)
        return cast

    _, record = run(CAST, (pattern, lambda x: op.Abs(op.Cast(x, to=10))))
    assert record.replaced == replaced


def test_an_attribute_is_compared_with_the_dtype_of_a_tensor(run) -> None:
    def where(name: str):
        def pattern(x):
            cast = op.Cast(op.Abs(x))
            getattr(cast.Attr("to"), name)(x.dtype)
            return cast

        return pattern, lambda x: op.Abs(op.Cast(x, to=10))

    assert [run(CAST, where(name))[1].rejected for name in ("EQ", "NE")] == [{"condition": 1}, {}]
