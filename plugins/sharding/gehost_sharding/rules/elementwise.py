"""Rules of elementwise operators: one *pass* factor for each result dimension."""

from __future__ import annotations

import math

from gehost_sharding.rules.rule import Factors, Instance, Layout, Rule, replicate
from gehost_sharding.sharding import Shape

OPERATORS = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr
    BitwiseXor Cast Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log
    Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid
    Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    com.microsoft::BiasGelu com.microsoft::FastGelu com.microsoft::Gelu
    com.microsoft::QuickGelu
"""


def align(result: Layout, result_shape: Shape, shape: Shape) -> Layout:
    """Layout of an operand that broadcasts into a result: dimensions of size 1 have no factor."""
    offset = len(result) - len(shape)
    return tuple(
        () if size == 1 and result_shape[offset + dim] != 1 else result[offset + dim]
        for dim, size in enumerate(shape)
    )


def elementwise(instance: Instance) -> Rule:
    """(i, j), (j) -> (i, j): every result dimension may be split."""
    shape = instance.results[0]
    if {"axis", "broadcast"} & instance.attributes.keys():  # how opsets below 7 broadcast
        return replicate(instance)
    factors = Factors()
    result = tuple(factors.add(size) for size in shape)
    operands = [
        None if operand is None else align(result, shape, operand) for operand in instance.operands
    ]
    return factors.rule(operands, [result], math.prod(shape))


def cast_like(instance: Instance) -> Rule:
    """CastLike: elementwise in operand 0; only the type of the other is read."""
    factors = Factors()
    result = tuple(factors.add(size) for size in instance.results[0])
    operands = [result, factors.need(instance.operand(1))]
    return factors.rule(operands, [result], math.prod(instance.results[0]))


def dropout(instance: Instance) -> Rule:
    """As elementwise; the mask, if asked for, is laid out as the result. Training draws numbers."""
    training = instance.constants.get(2)
    if instance.operand(2) is not None and (training is None or bool(training.any())):
        return replicate(instance)
    rule = elementwise(instance)
    return Rule(rule.factors, rule.operands, rule.results * len(instance.results), rule.flops)


def batch_normalization(instance: Instance) -> Rule:
    """(n, c, d…), (c) × 4 -> (n, c, d…): the statistics are operands, so all may be split."""
    trains = instance.attribute("training_mode", 0) or not instance.attribute("is_test", 1)
    if len(instance.results) > 1 or trains or not instance.attribute("spatial", 1):
        return replicate(instance)
    factors = Factors()
    result = tuple(factors.add(size) for size in instance.shape(0))
    channels: Layout = (result[1],) if len(instance.shape(0)) > 1 else ((),)
    flops = math.prod(instance.shape(0))
    return factors.rule([result, *[channels] * 4], [result], flops)


def quantize(instance: Instance) -> Rule:
    """QuantizeLinear, DequantizeLinear: a scale per tensor, or per index of one dimension."""
    shape, scale = instance.shape(0), instance.shape(1)
    if len(scale) > 1 or instance.attribute("block_size", 0):
        return replicate(instance)
    factors = Factors()
    result = tuple(factors.add(size) for size in shape)
    axis: int = instance.attribute("axis", 1) % max(len(shape), 1)
    of_scale: Layout = ()
    if scale:
        of_scale = (result[axis] if scale[0] == shape[axis] else (),)
    operands = [result, of_scale, *[of_scale] * (len(instance.operands) - 2)]
    return factors.rule(operands, [result], math.prod(shape))
