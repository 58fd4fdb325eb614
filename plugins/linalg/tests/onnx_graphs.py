"""Random ONNX graphs of element-wise, broadcast, movement and reduction operators, with sizes that are open or known."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
import onnx.parser

UNARY = ("Exp", "Tanh", "Sigmoid", "Relu", "Neg", "Abs", "Softplus", "Erf")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")


def random_graph(
    seed: int, most: tuple[int, int, int] = (4, 4, 6)
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A graph of 3 to 12 nodes over [a, b, c] and its feeds; axes of size 1 are known or open."""
    random = Random(seed)
    sizes = [random.randint(1, item) for item in most]
    lines: list[str] = []
    values: dict[str, tuple[int, ...]] = {}
    inputs, feeds = [], {}
    data = np.random.default_rng(seed)
    for number in range(random.randint(2, 4)):
        rank = random.choice((1, 2, 3, 3, 3))
        shape = tuple(size if random.random() < 0.75 else 1 for size in sizes[3 - rank :])
        declared = [
            str(size) if random.random() < 0.5 else f"n{number}_{axis}"
            for axis, size in enumerate(shape)
        ]
        inputs.append(f"float[{','.join(declared)}] x{number}")
        feeds[f"x{number}"] = data.normal(size=shape).astype(np.float32)
        values[f"x{number}"] = shape
    for number in range(random.randint(3, 12)):
        name = f"v{number}"
        call, shape = _call(random, values, lines, number)
        lines.append(f"{name} = {call}")
        values[name] = shape
    read = " ".join(lines)
    outputs = [
        name
        for name in values
        if name[0] == "v"
        and (f"({name}" not in read and f" {name}" not in read.replace(f"{name} =", ""))
    ]
    outputs = outputs or [f"v{len([n for n in values if n[0] == 'v']) - 1}"]
    text = ", ".join(
        f"float[{','.join(f'o{name}{axis}' for axis in range(len(values[name])))}] {name}"
        for name in outputs
    )
    for name in outputs:
        if not values[name]:
            text = text.replace(f"float[] {name}", f"float {name}")
    body = "\n".join(lines)
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 20]>\nmain ({", ".join(inputs)}) => ({text}) {{\n{body}\n}}'
    )
    return model, feeds


def _call(
    random: Random, values: dict[str, tuple[int, ...]], lines: list[str], number: int
) -> tuple[str, tuple[int, ...]]:
    recent = list(values)[-3:]
    x = random.choice(recent) if random.random() < 0.6 else random.choice(list(values))
    shape = values[x]
    kind = random.random()
    if kind < 0.3 or not shape:
        return f"{random.choice(UNARY)}({x})", shape
    if kind < 0.7:
        others = [name for name, other in values.items() if _fits(shape, other)]
        y = random.choice(others)
        pair = (x, y) if random.random() < 0.5 else (y, x)
        return f"{random.choice(BINARY)}({', '.join(pair)})", np.broadcast_shapes(shape, values[y])
    if kind < 0.78:
        perm = list(range(len(shape)))
        random.shuffle(perm)
        return f"Transpose<perm={perm}>({x})".replace(" ", ""), tuple(shape[axis] for axis in perm)
    if kind < 0.9:
        axis = random.choice((len(shape) - 1, len(shape) - 1, random.randrange(len(shape))))
        keep = random.choice((0, 1))
        lines.append(f"a{number} = Constant<value = int64[1] {{{axis}}}>()")
        result = tuple(
            1 if at == axis else size for at, size in enumerate(shape) if keep or at != axis
        )
        return (
            f"Reduce{random.choice(('Sum', 'Mean', 'Max', 'SumSquare'))}<keepdims={keep}>({x}, a{number})",
            result,
        )
    if kind < 0.93 and len(shape) > 1:  # merges the last two axes, and splits them again
        target = ", ".join(["0"] * (len(shape) - 2) + [str(shape[-2] * shape[-1])])
        lines.append(f"m{number} = Constant<value = int64[{len(shape) - 1}] {{{target}}}>()")
        lines.append(f"t{number} = Tanh({x})")
        lines.append(f"r{number} = Reshape(t{number}, m{number})")
        lines.append(f"n{number} = Neg(r{number})")
        target = ", ".join(["0"] * (len(shape) - 2) + [str(shape[-2]), str(shape[-1])])
        lines.append(f"s{number} = Constant<value = int64[{len(shape)}] {{{target}}}>()")
        return f"Reshape(n{number}, s{number})", shape
    if kind < 0.95 and len(shape) == 2 and random.random() < 0.5:  # splits the last axis
        parts = [part for part in range(1, shape[1] + 1) if shape[1] % part == 0]
        part = random.choice(parts)
        first = random.choice((-1, shape[1] // part))
        lines.append(f"s{number} = Constant<value = int64[3] {{0, {first}, {part}}}>()")
        lines.append(f"a{number} = Abs({x})")
        lines.append(f"r{number} = Reshape(a{number}, s{number})")
        turned = (shape[1] // part, shape[0], part)
        return f"Transpose<perm=[1,0,2]>(r{number})", turned
    if kind < 0.95:
        return f"Softmax<axis=-1>({x})", shape
    if kind < 0.97 and len(shape) > 1:
        axis = random.randrange(len(shape) - 1)
        lines.append(f"i{number} = Constant<value = int64 {{{random.randrange(shape[axis])}}}>()")
        return f"Gather<axis={axis}>({x}, i{number})", (*shape[:axis], *shape[axis + 1 :])
    start = random.randrange(shape[-1])
    for letter, value in (
        ("b", start),
        ("e", 2**40 if random.random() < 0.5 else shape[-1]),
        ("a", len(shape) - 1),
    ):
        lines.append(f"{letter}{number} = Constant<value = int64[1] {{{value}}}>()")
    return f"Slice({x}, b{number}, e{number}, a{number})", (*shape[:-1], shape[-1] - start)


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return len(np.broadcast_shapes(a, b)) <= 3
    except ValueError:
        return False
