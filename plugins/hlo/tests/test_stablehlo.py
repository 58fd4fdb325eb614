"""StableHLO as jax prints it, in pretty and generic form: read, converted, and run."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gehost_hlo import HloSyntaxError, UntranslatableError, import_file, read_module, to_text
from gehost_hlo import parse as parse_hlo
from gehost_hlo.stablehlo import parse as parse_stablehlo

from .recorded import run

X = np.array([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], np.float32)


def module(body: str, result: str = "tensor<2x3xf32>", extra: str = "") -> str:
    return f"""module @jit_f attributes {{mhlo.num_partitions = 1 : i32}} {{
  func.func public @main(%arg0: tensor<2x3xf32>) -> ({result} {{jax.result_info = "result"}}) {{
    {body}
    return %r : {result}
  }}
{extra}
}}"""


def results(tmp_path: Path, text: str, *inputs: object) -> list[np.ndarray]:
    path = tmp_path / "text.mlir"
    path.write_text(text)
    printed = to_text(read_module(path))
    assert to_text(parse_hlo(printed)) == printed  # what is printed is HLO
    return run(import_file(path), [np.asarray(operand) for operand in inputs])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("%r = stablehlo.add %arg0, %arg0 : tensor<2x3xf32>", X + X),
        ('%r = "stablehlo.negate"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>', -X),
        ("%r = chlo.square %arg0 : tensor<2x3xf32> -> tensor<2x3xf32>", X * X),
        (
            "%cst = stablehlo.constant dense<2.5> : tensor<2x3xf32>\n"
            "%r = stablehlo.maximum %arg0, %cst : tensor<2x3xf32>",
            np.maximum(X, 2.5),
        ),
        (
            '%cst = stablehlo.constant dense<"0x0000803F0000004000004040"> : tensor<3xf32>\n'
            "%0 = stablehlo.broadcast_in_dim %cst, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>\n"
            "%r = stablehlo.multiply %arg0, %0 : tensor<2x3xf32>",
            X * np.array([1, 2, 3], np.float32),
        ),
        (
            "%cst = stablehlo.constant dense<[[1.0], [0x7F800000]]> : tensor<2x1xf32>\n"
            "%0 = stablehlo.broadcast_in_dim %cst, dims = [0, 1] : "
            "(tensor<2x1xf32>) -> tensor<2x3xf32>\n"
            "%r = stablehlo.minimum %arg0, %0 : tensor<2x3xf32>",
            np.minimum(X, np.array([[1], [np.inf]], np.float32)),
        ),
        (
            "%0 = stablehlo.slice %arg0 [0:2, 2:3] : (tensor<2x3xf32>) -> tensor<2x1xf32>\n"
            "%1 = stablehlo.slice %arg0 [0:2:1, 0:3:2] : (tensor<2x3xf32>) -> tensor<2x2xf32>\n"
            "%r = stablehlo.concatenate %0, %1, dim = 1 : "
            "(tensor<2x1xf32>, tensor<2x2xf32>) -> tensor<2x3xf32>",
            X[:, [2, 0, 2]],
        ),
        (
            "%cst = stablehlo.constant dense<0.0> : tensor<f32>\n"
            "%0 = stablehlo.compare  GT, %arg0, %arg0,  FLOAT : "
            "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>\n"
            "%1 = stablehlo.pad %arg0, %cst, low = [0, 1], high = [0, -1], interior = [0, 0] : "
            "(tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32>\n"
            "%r = stablehlo.select %0, %arg0, %1 : tensor<2x3xi1>, tensor<2x3xf32>",
            np.pad(X, ((0, 0), (1, 0)))[:, :3],
        ),
        (
            "%0:2 = stablehlo.optimization_barrier %arg0, %arg0 : tensor<2x3xf32>, tensor<2x3xf32>\n"
            "%r = stablehlo.subtract %0#0, %0#1 : tensor<2x3xf32>",
            X - X,
        ),
    ],
)
def test_operations(tmp_path: Path, body: str, expected: np.ndarray) -> None:
    (actual,) = results(tmp_path, module(body), X)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


PRETTY_SUM = """%cst = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%arg0 init: %cst) across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
     reducer(%arg1: tensor<f32>, %arg2: tensor<f32>)  {
      %9 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %9 : tensor<f32>
    }"""
SHORT_SUM = """%cst = stablehlo.constant dense<0.0> : tensor<f32>
    %r = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>"""
GENERIC_SUM = """%cst = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
    %r = "stablehlo.reduce"(%arg0, %cst) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %9 = "stablehlo.add"(%arg1, %arg2) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%9) : (tensor<f32>) -> ()
    }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>"""


@pytest.mark.parametrize("body", [PRETTY_SUM, SHORT_SUM, GENERIC_SUM])
def test_the_three_forms_of_a_reduction(tmp_path: Path, body: str) -> None:
    (actual,) = results(tmp_path, module(body, "tensor<2xf32>"), X)
    np.testing.assert_allclose(actual, X.sum(1), rtol=1e-6)


WHILE = """%c = stablehlo.constant dense<0> : tensor<i32>
    %five = stablehlo.constant dense<5> : tensor<i32>
    %half = stablehlo.multiply %arg0, %arg0 : tensor<2x3xf32>
    %0:2 = stablehlo.while(%iterArg = %c, %iterArg_0 = %arg0) : tensor<i32>, tensor<2x3xf32>
     cond {
      %1 = stablehlo.compare  LT, %iterArg, %five,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %iterArg, %one : tensor<i32>
      %3 = stablehlo.add %iterArg_0, %half : tensor<2x3xf32>
      stablehlo.return %2, %3 : tensor<i32>, tensor<2x3xf32>
    }
    %r = stablehlo.negate %0#1 : tensor<2x3xf32>"""


def test_regions_get_values_from_outside_as_parameters(tmp_path: Path) -> None:
    (actual,) = results(tmp_path, module(WHILE), X)
    np.testing.assert_allclose(actual, -(X + 5 * X * X), rtol=1e-6)


def test_branches(tmp_path: Path) -> None:
    body = """%c = stablehlo.constant dense<true> : tensor<i1>
    %r = "stablehlo.if"(%c) ({
      %0 = stablehlo.negate %arg0 : tensor<2x3xf32>
      stablehlo.return %0 : tensor<2x3xf32>
    }, {
      stablehlo.return %arg0 : tensor<2x3xf32>
    }) : (tensor<i1>) -> tensor<2x3xf32>"""
    (actual,) = results(tmp_path, module(body), X)
    np.testing.assert_array_equal(actual, -X)


def test_functions_aliases_and_locations(tmp_path: Path) -> None:
    extra = """  func.func private @g(%arg0: tensor<2x3xf32> loc("x")) -> (tensor<2x3xf32>, tensor<f32>) {
    %cst = stablehlo.constant dense<3.0> : tensor<f32> loc(#loc1)
    %0 = stablehlo.abs %arg0 : tensor<2x3xf32> loc(#loc1)
    return %0, %cst : tensor<2x3xf32>, tensor<f32> loc(#loc1)
  } loc(#loc)"""
    body = """%0:2 = call @g(%arg0) : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<f32>) loc(#loc1)
    %1 = stablehlo.broadcast_in_dim %0#1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %r = stablehlo.add %0#0, %1 : tensor<2x3xf32>"""
    text = (
        f'#loc = loc("f.py":1:2)\n{module(body, extra=extra)} loc(#loc)\n#loc1 = loc("add"(#loc))\n'
    )
    (actual,) = results(tmp_path, text, X)
    np.testing.assert_array_equal(actual, np.abs(X) + 3)


PLAIN = """#m = dense<[1, 0]> : tensor<2xi64>
module @jit_f {
  func.func private @g(tensor<3xf32>) -> tensor<3xf32>
  func.func public @main(%arg0: tensor<2x3xf32>) -> tensor<3x2xf32> {
    %cst = stablehlo.constant dense<2.5> : tensor<2x3xf32>
    %0 = stablehlo.slice %arg0 [0:2, 0:3:1] : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.maximum %0, %cst : tensor<2x3xf32>
    %2:2 = "stablehlo.optimization_barrier"(%1, %cst) : (tensor<2x3xf32>, tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>)
    %r = "stablehlo.transpose"(%2#0) <{permutation = array<i64: 1, 0>}> : (tensor<2x3xf32>) -> tensor<3x2xf32>
    return %r : tensor<3x2xf32>
  }
}
"""
SPACED = """ // a note: "module"
#m // of nothing
 =
dense <[1,0]>: tensor<2xi64> module @jit_f{func.func private @g ( tensor<3xf32>)->tensor<3xf32>
func.func public @main( %arg0
:tensor< 2x3xf32 >)->// the result
tensor<3x2xf32>{
%cst=stablehlo.constant dense<2.5>:tensor<2x3xf32> %0
= stablehlo.slice %arg0[ 0 :2,0: 3 :1 ]:(tensor<2x3xf32>)->tensor <2x3xf32> %1 = stablehlo.maximum %0
,%cst:tensor<2x3xf32> %2 : 2="stablehlo.optimization_barrier"( %1,%cst ):(tensor<2x3xf32>,
tensor<2x3xf32>)->( tensor<2x3xf32>, tensor<2x3xf32>)
%r="stablehlo.transpose" (%2#0)< // properties
{permutation=array
<i64 :1,0> } >:( tensor<2x3xf32>)
-> tensor<3x2xf32> return %r:tensor<3x2xf32>}}"""


def test_blanks_and_comments_may_stand_anywhere() -> None:
    assert to_text(parse_stablehlo(SPACED)) == to_text(parse_stablehlo(PLAIN))


def test_a_generic_module_without_names(tmp_path: Path) -> None:
    text = """"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<2x3xf32>) -> tensor<2x3xf32>, sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<2x3xf32>):
    %0 = "stablehlo.tanh"(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    "func.return"(%0) : (tensor<2x3xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""
    (actual,) = results(tmp_path, text, X)
    np.testing.assert_allclose(actual, np.tanh(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "line", "column", "problem"),
    [
        ("%r = stablehlo.abs %x : tensor<2x3xf32>", 3, 10, "%x is not defined"),
        ("%r = stablehlo.frobnicate %arg0 : tensor<2x3xf32>", 3, 10, "is not translated"),
        ("%r = arith.addf %arg0, %arg0 : tensor<2x3xf32>", 3, 10, "no operation of StableHLO"),
        ("%r = stablehlo.abs %arg0 tensor<2x3xf32>", 3, 30, "expected ':'"),
        ("%r = stablehlo.abs %arg0 : tensor<2x3xq7>", 3, 10, "no element type"),
        ("%r = stablehlo.abs %arg0 : tensor<2x4xf32>", 3, 10, "operands make f32"),
        ("%r = call @g(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>", 3, 10, "no function"),
        ("%r = stablehlo.constant dense<[1.0, 2.0]> : tensor<2x3xf32>", 3, 10, "2 numbers"),
        ("%r = stablehlo.transpose %arg0 : (tensor<2x3xf32>) -> tensor<2x3xf32>", 3, 10, "missing"),
    ],
)
def test_errors_have_line_and_column(
    tmp_path: Path, body: str, line: int, column: int, problem: str
) -> None:
    path = tmp_path / "text.mlir"
    path.write_text(module(body))
    with pytest.raises((HloSyntaxError, UntranslatableError), match=problem) as error:
        import_file(path)
    if isinstance(error.value, HloSyntaxError):
        assert (error.value.line, error.value.column) == (line, column)
    else:
        assert f"line {line}" in str(error.value)


def test_refusals_name_the_line_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "text.mlir"
    path.write_text(
        module("%r = stablehlo.custom_call @mine(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>")
    )
    with pytest.raises(
        UntranslatableError, match=r"r of main \(line 3, column \d+\): a custom call of \"mine\""
    ):
        import_file(path)


@pytest.mark.parametrize(
    ("name", "function", "inputs"),
    [
        ("lgamma", math.lgamma, [0.1, 0.7, 1.0, 2.5, 9.0, -0.5, -2.3]),
        ("erfc", math.erfc, [-3.0, -0.5, 0.0, 0.4, 1.5, 2.5, 5.0]),
        ("digamma", lambda x: (math.lgamma(x + 1e-5) - math.lgamma(x - 1e-5)) / 2e-5, [0.2, 0.9, 3.0, 20.0, -0.5, -1.7, 1.5]),
        ("asinh", math.asinh, [-3.0, -0.5, 0.0, 0.4, 1.5, 2.5, 5.0]),
        ("atan", math.atan, [-3.0, -0.5, 0.0, 0.4, 1.5, 2.5, 5.0]),
    ],
)  # fmt: skip
def test_functions_of_chlo(
    tmp_path: Path, name: str, function: Callable[[float], float], inputs: list[float]
) -> None:
    text = f"""func.func @main(%arg0: tensor<7xf32>) -> tensor<7xf32> {{
  %0 = chlo.{name} %arg0 : tensor<7xf32> -> tensor<7xf32>
  return %0 : tensor<7xf32>
}}"""
    (actual,) = results(tmp_path, text, np.array(inputs, np.float32))
    np.testing.assert_allclose(actual, [function(x) for x in inputs], rtol=1e-4, atol=1e-6)


def test_erf_inv_undoes_erf(tmp_path: Path) -> None:
    text = """func.func @main(%arg0: tensor<7xf32>) -> tensor<7xf32> {
  %0 = chlo.erf %arg0 : tensor<7xf32> -> tensor<7xf32>
  %1 = chlo.erf_inv %0 : tensor<7xf32> -> tensor<7xf32>
  return %1 : tensor<7xf32>
}"""
    x = np.array([-2.0, -1.0, -0.1, 0.0, 0.3, 1.0, 2.0], np.float32)
    np.testing.assert_allclose(results(tmp_path, text, x)[0], x, rtol=1e-3, atol=1e-6)


def test_next_after(tmp_path: Path) -> None:
    text = """func.func @main(%arg0: tensor<7xf32>, %arg1: tensor<7xf32>) -> tensor<7xf32> {
  %0 = chlo.next_after %arg0, %arg1 : tensor<7xf32>, tensor<7xf32> -> tensor<7xf32>
  return %0 : tensor<7xf32>
}"""
    x = np.array([1.0, 1.0, -1.0, -1.0, 2.0, 3.4e38, -2.0], np.float32)
    y = np.array([2.0, 0.0, 0.0, -2.0, 2.0, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(results(tmp_path, text, x, y)[0], np.nextafter(x, y))


def test_sorts_of_two_keys_and_the_largest(tmp_path: Path) -> None:
    """A float comparator, as jax writes it: -0 is 0, all nans are one."""
    text = """module @m {
  func.func private @gt(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> tensor<i1> {
    %0 = stablehlo.compare GT, %arg0, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %0 : tensor<i1>
  }
  func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<2x2xi32>) {
    %i = stablehlo.iota dim = 1 : tensor<2x3xi32>
    %s = "stablehlo.sort"(%arg0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %1 = stablehlo.compare EQ, %a, %cst, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.select %1, %cst, %a : tensor<i1>, tensor<f32>
      %3 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.select %3, %nan, %2 : tensor<i1>, tensor<f32>
      %5 = stablehlo.compare EQ, %b, %cst, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.select %5, %cst, %b : tensor<i1>, tensor<f32>
      %7 = stablehlo.compare NE, %b, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %8 = stablehlo.select %7, %nan, %6 : tensor<i1>, tensor<f32>
      %9 = stablehlo.compare LT, %4, %8, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %9 : tensor<i1>
    }) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %c = stablehlo.constant dense<-1> : tensor<i32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %t:2 = stablehlo.custom_call @ApproxTopK(%arg0, %i, %cst, %c) {called_computations = [@gt], mhlo.backend_config = {reduction_dim = 1 : i64, top_k = 2 : i64}} : (tensor<2x3xf32>, tensor<2x3xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x2xf32>, tensor<2x2xi32>)
    return %s, %t#1 : tensor<2x3xf32>, tensor<2x2xi32>
  }
}"""
    ordered, places = results(tmp_path, text, X)
    np.testing.assert_array_equal(ordered, np.sort(X, 1))
    np.testing.assert_array_equal(places, np.argsort(-X, 1)[:, :2])


@pytest.mark.parametrize("body", [WHILE, GENERIC_SUM, SHORT_SUM])
def test_damaged_texts_have_a_syntax_error(body: str) -> None:
    """Cut anywhere, or with a letter too many: no other exception."""
    text = module(body)
    for place in range(0, len(text) - 2, 5):
        for damaged in (
            text[:place],
            f"{text[:place]}<{text[place:]}",
            text[:place] + text[place + 3 :],
        ):
            with contextlib.suppress(HloSyntaxError):
                parse_stablehlo(damaged)
