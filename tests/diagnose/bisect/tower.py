"""A model in which each of the planted passes finds a match in every block, and all but one of the matches of one are right."""

from __future__ import annotations

from pathlib import Path

import onnx

from gehost.testing import parse, random_weights

HERE = Path(__file__).parent
RIGHT, PLANTED = HERE / "right", HERE / "planted"
BUGS = {
    "wrong_constant": "WrongConstantPass",
    "swapped_operand": "SwappedOperandPass",
    "dropped_bias": "DroppedBiasPass",
    "wrong_perm": "WrongPermPass",
    "missing_condition": "MissingConditionPass",
}
BLOCKS = 12
SIGNED_BLOCK = 9
"""Where the root of a square is taken of numbers of both signs."""

_BLOCK = """
    product{i} = MatMul(h{i}, w{i})
    sum{i} = Add(product{i}, b{i})
    quotient{i} = Div(sum{i}, divisor)
    difference{i} = Sub(quotient{i}, h{i})
    negated{i} = Neg(difference{i})
    signed{i} = Tanh(negated{i})
    same{i} = {rectifier}(signed{i})
    square{i} = Mul(same{i}, same{i})
    root{i} = Sqrt(square{i})
    cube{i} = Reshape(root{i}, cube)
    turned{i} = Transpose <perm = [0, 2, 3, 1]> (cube{i})
    back{i} = Transpose <perm = [0, 1, 3, 2]> (turned{i})
    flat{i} = Reshape(back{i}, flat)
    twice{i} = Neg(flat{i})
    thrice{i} = Neg(twice{i})
    joined{i} = Sub(thrice{i}, h{i})
    h{next} = Tanh(joined{i})
    total{next} = Add(total{i}, h{next})
"""


def tower(blocks: int = BLOCKS) -> onnx.ModelProto:
    """``blocks`` times 18 nodes, named after their outputs; every block adds to the output."""
    shapes = {f"w{i}": (8, 8) for i in range(blocks)} | {f"b{i}": (8,) for i in range(blocks)}
    declared = ", ".join(f"float{list(shape)} {name}" for name, shape in shapes.items())
    body = "".join(
        _BLOCK.replace("{rectifier}", "Identity" if i == SIGNED_BLOCK else "Relu").format(
            i=i, next=i + 1
        )
        for i in range(blocks)
    )
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
tower (float[n, 8] h0, {declared}) => (float[n, 8] y)
<float divisor = {{1.7}}, int64[4] cube = {{-1, 2, 2, 2}}, int64[2] flat = {{-1, 8}}> {{
    total0 = Identity(h0)
    {body}
    y = Identity(total{blocks})
}}"""
    model = parse(text, {name: 0.4 * array for name, array in random_weights(shapes).items()})
    for node in model.graph.node:
        node.name = node.output[0]
    return model
