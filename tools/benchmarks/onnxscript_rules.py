"""The same rules for onnxscript's rewriter, with the checks that it can make: it knows the types of weights alone."""

from __future__ import annotations

from math import sqrt
from typing import Any

import onnx_ir as ir
from onnxscript.rewriter import RewriteRule, RewriteRuleClassBase

from tools.benchmarks.near_misses import (
    ABSENT_PAIR,
    BINARY,
    IDLE_COPIES,
    PRESENT_PAIR,
    Chain,
    chains,
)


class MatMulAdd(RewriteRuleClassBase):
    def pattern(self, op: Any, a: Any, b: Any, c: Any) -> Any:
        return op.Add(op.MatMul(a, b), c)

    def check(self, context: Any, b: ir.Value, c: ir.Value, **_: Any) -> bool:
        return _rank(b) == 2 and _rank(c) == 1

    def rewrite(self, op: Any, a: Any, b: Any, c: Any) -> Any:
        return op.Gemm(a, b, c)


class LayerNorm(RewriteRuleClassBase):
    def pattern(self, op: Any, x: Any, scale: Any, bias: Any, epsilon: Any) -> Any:
        centred = op.Sub(x, op.ReduceMean(x, [-1], keepdims=1))
        variance = op.ReduceMean(op.Pow(centred, 2), [-1], keepdims=1)
        return op.Add(op.Mul(op.Div(centred, op.Sqrt(op.Add(variance, epsilon))), scale), bias)

    def check(
        self, context: Any, scale: ir.Value, bias: ir.Value, epsilon: ir.Value, **_: Any
    ) -> bool:
        return (
            _rank(scale) == 1
            and _rank(bias) == 1
            and epsilon.const_value is not None
            and _rank(epsilon) == 0
        )

    def rewrite(self, op: Any, x: Any, scale: Any, bias: Any, epsilon: ir.Value) -> Any:
        assert epsilon.const_value is not None
        return op.LayerNormalization(
            x, scale, bias, axis=-1, epsilon=epsilon.const_value.numpy().item()
        )


class Gelu(RewriteRuleClassBase):
    def pattern(self, op: Any, x: Any) -> Any:
        return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, sqrt(2.0))), 1.0)), 0.5)

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Gelu(x)


class Siblings(RewriteRuleClassBase):
    mirrored = False

    def pattern(self, op: Any, x: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        second = op.MatMul(x, d)
        return op.Add(op.MatMul(x, b), c), op.Add(e, second) if self.mirrored else op.Add(second, e)

    def check(
        self, context: Any, b: ir.Value, c: ir.Value, d: ir.Value, e: ir.Value, **_: Any
    ) -> bool:
        return [_rank(value) for value in (b, c, d, e)] == [2, 1, 2, 1]

    def rewrite(self, op: Any, x: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return op.Gemm(x, b, c), op.Gemm(x, d, e)


class MirroredSiblings(Siblings):
    mirrored = True


def near_miss(chain: Chain) -> RewriteRule:
    return RewriteRule(_pattern(chain), lambda op, x, **_: op.Identity(x))


THREE = [MatMulAdd, LayerNorm, Gelu]


def mixed(count: int) -> list[RewriteRule]:
    """In the order of gehost's; the rewriter tries all of them at each node."""
    return [*map(near_miss, chains(count - len(THREE))), *(rule.rule() for rule in THREE)]


def idle(*, absent: bool) -> list[RewriteRule]:
    return [near_miss(ABSENT_PAIR if absent else PRESENT_PAIR) for _ in range(IDLE_COPIES)]


def _pattern(chain: Chain) -> Any:
    """A function with one parameter for each placeholder: the rewriter reads their names from its signature."""
    text, operands = "x", ["x"]
    for position, (op, slot) in enumerate(reversed(chain)):
        inputs = [text]
        if op in BINARY:
            operands.append(f"y{position}")
            inputs.insert(1 - slot, operands[-1])
        text = f"op.{op}({', '.join(inputs)})"
    return eval(f"lambda op, {', '.join(operands)}: {text}")


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else value.shape.rank()
