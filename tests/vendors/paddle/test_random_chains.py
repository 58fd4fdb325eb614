"""Random chains of Transpose, Reshape and Cast: whatever the redundancy pass makes of them gives the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gehost.testing import assert_equal_numbers

from .conftest import Paddle

PASS = "remove_redundant_ops_pass"
DTYPES = {
    1: "float",
    10: "float16",
    11: "double",
    6: "int32",
    7: "int64",
    9: "bool",
    2: "uint8",
    3: "int8",
}
FACTORS = [(2, 3, 4), (6, 4), (4, 3, 2), (24,), (2, 2, 2, 3), (1, 24), (3, 8, 1)]


def chain(seed: int, steps: int = 12) -> str:
    """A graph of ``steps`` operations one after another, some with a second reader; its input has numbers from 0 to 100."""
    rng = np.random.default_rng(seed)
    shape, lines, constants, outputs, last = [2, 3, 4], list[str](), list[str](), list[str](), "x"
    dtype = start = int(rng.choice([1, 10, 6, 7]))
    for step in range(steps):
        kind, name = rng.choice(["Transpose", "Reshape", "Cast"]), f"t{step}"
        if kind == "Transpose":
            perm = rng.permutation(len(shape)).tolist()
            declared = "" if perm == sorted(perm, reverse=True) else f"<perm = {perm}>"
            shape = [shape[axis] for axis in perm]
            lines.append(f"{name} = Transpose{declared}({last})")
        elif kind == "Reshape":
            expected = list(FACTORS[rng.integers(len(FACTORS))])
            target = list(expected)
            if rng.random() < 0.3:
                target[rng.integers(len(target))] = -1
            target = [
                0 if i < len(shape) and shape[i] == size and rng.random() < 0.5 else size
                for i, size in enumerate(target)
            ]
            constants.append(f"int64[{len(target)}] s{step} = {{{', '.join(map(str, target))}}}")
            shape = expected
            lines.append(f"{name} = Reshape({last}, s{step})")
        else:
            dtype = int(rng.choice(list(DTYPES)))
            lines.append(f"{name} = Cast<to = {dtype}>({last})")
        last = name
        if rng.random() < 0.1 or step == steps - 1:
            outputs.append(f"{DTYPES[dtype]}[{', '.join(map(str, shape))}] {name}")
    header = f"({DTYPES[start]}[2, 3, 4] x) => ({', '.join(outputs)})"
    return f"{header} <{', '.join(constants)}> {{\n".replace(" <>", "") + "\n".join(lines) + "\n}"


@pytest.mark.parametrize("seed", range(30))
def test_numbers_are_equal_and_nothing_is_left_to_do(paddle: Paddle, seed: int) -> None:
    model = paddle.model(chain(seed), opset=(11, 13, 17, 21)[seed % 4])
    result, record = paddle.run(model, PASS)
    assert record.message == ""
    x = np.random.default_rng(seed).permutation(24).reshape(2, 3, 4) * 4
    dtype = model.graph.input[0].type.tensor_type.elem_type
    feed = {"x": x.astype(onnx.helper.tensor_dtype_to_np_dtype(dtype))}
    assert_equal_numbers(model, result, [feed], rtol=0, atol=0)
    _, again = paddle.run(result, PASS)
    assert again.replaced == 0


def test_the_chains_are_worth_it(paddle: Paddle) -> None:
    """Taken together they are rewritten often, so that the numbers above say something."""
    assert sum(paddle.run(paddle.model(chain(seed)), PASS)[1].replaced for seed in range(30)) > 60
