"""Operations in generic form, their regions and errors."""

from __future__ import annotations

import pytest

from gehost_mlir.operations import OperationReader
from gehost_mlir.scanner import MlirError

TEXT = """#map = affine_map<(d0) -> (d0)>
"builtin.module"() <{sym_name = "m"}> ({
  %0:2 = "a.b"(%x, %y#1) <{k = #map, n = 2 : i64}> ({
  ^bb0(%p: tensor<2xf32>):
    "a.yield"(%p) : (tensor<2xf32>) -> ()
  }, {
  }) {unit} : (i32, tuple<i32, f32>) -> (i32, tensor<2x?xf32>) loc("f":1:2)
}) : () -> ()
"""


def test_generic_form() -> None:
    (module,) = OperationReader(TEXT).operations()
    (operation,) = module.regions[0].operations
    assert module.attributes == {"sym_name": '"m"'}
    assert operation.results == ("0#0", "0#1")
    assert operation.operands == ["x", "y#1"]
    assert operation.attributes == {"k": "affine_map<(d0) -> (d0)>", "n": "2 : i64", "unit": ""}
    assert operation.operand_types == ["i32", "tuple<i32, f32>"]
    assert operation.result_types == ["i32", "tensor<2x?xf32>"]
    first, second = operation.regions
    assert first.arguments == [("p", "tensor<2xf32>")]
    assert [inner.name for inner in first.operations] == ["a.yield"]
    assert second.operations == []
    assert TEXT[operation.position :].startswith('"a.b"')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('"a.b"(%x) : () -> ()', "1 operands, 0 types"),
        ('%0, %1 = "a.b"() : () -> i32', "1 results, 2 names"),
        ('"a.b"() ({ : () -> ()', "expected"),
        ('"a.b"()[^bb1] : () -> ()', "successor blocks"),
        ("a.b %x", "a.b is not known"),
    ],
)
def test_errors(text: str, problem: str) -> None:
    with pytest.raises(MlirError, match=problem):
        OperationReader(text).operations()
