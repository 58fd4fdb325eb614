"""When a control function pays: ``python -m plugins.linalg.tools.costs [--time]``.

Counted: operations and bytes of the stored cases before and after fusion. With ``--time``: ONNX graphs fused under two controls,
with kernels (``rows=false``, as joined rows would hide most differences), CPU time of alternating sessions, one thread.
"""

from __future__ import annotations

import argparse
import tempfile
from math import prod
from pathlib import Path

import numpy as np
import onnx

from gehost import Host, HostOptions
from gehost.tune.measure import measure_pairs
from gehost.tune.sessions import Runtime
from gehost_linalg.control import TRANSCENDENTAL
from gehost_linalg.driver import fuse_block
from gehost_linalg.generic import INDEX, Generic, Op
from gehost_linalg.kernels.library import write_library
from gehost_linalg.mlir import parse
from gehost_linalg.passes import NAME

CASES = Path(__file__).parents[1] / "tests" / "cases"
ROWS = (
    ("diamond", "refuse", "one-use"), ("diamond", "duplicate", "always"), ("exp_matmul", "refuse", "one-use"), ("exp_matmul", "refuse", "cost"),
    ("strided_read", "refuse", "one-use"), ("strided_read", "refuse", "no-recompute"), ("broadcast_read", "refuse", "one-use"),
    ("broadcast_read", "refuse", "no-recompute"), ("three_muls", "refuse", "one-use"), ("three_muls", "refuse", "max-operands=4"),
)  # fmt: skip


def cost(ops: list[Op], width: int) -> tuple[int, int, int]:
    """Scalar operations, exp and the like among them, and bytes of tensors written and read; 4 stands for ``width``."""
    work = dear = moved = 0
    for op in ops:
        if not isinstance(op, Generic):
            continue
        points = prod(
            width * size // 4 if isinstance(size, int) else width for size in op.extents()
        )
        work += points * sum(item.name != INDEX for item in op.payload.ops)
        dear += points * sum(item.name in TRANSCENDENTAL for item in op.payload.ops)
        moved += sum(4 * prod(width for _ in value.shape or ()) for value in (*op.ins, *op.results))
    return work, dear, moved


def chain(*ops: str) -> str:
    """40 operators, one behind the other."""
    return " ".join(f"t{at + 1} = {ops[at % len(ops)]} (t{at})" for at in range(40))


def products(count: int) -> tuple[str, str]:
    """The sum of ``count`` products, each of two inputs."""
    inputs = ", ".join(f"float[1048576] x{at}" for at in range(2 * count))
    lines = [f"m{at} = Mul (x{2 * at}, x{2 * at + 1})" for at in range(count)]
    lines += [f"s{at} = Add ({f's{at - 1}' if at > 1 else 'm0'}, m{at})" for at in range(1, count)]
    return f"{inputs}) => (float[1048576] s{count - 1}", " ".join(lines)


TWO = "float[1048576] a, float[1048576] b) => (float[1048576] y, float[1048576] z"
READERS = "r = Mul (q, a) y = Neg (r) s = Mul (q, b) z = Abs (s)"
ROWS_OF = "float[256] w, float[256] v, float[4096, 256] a) => (float[4096, 256] y"
SQUARES = "float[1024, 1024] a, float[1024, 1024] b, float[1024, 1024] c) => (float[1024, 1024] y"
CHAIN = "float[1048576] t0) => (float[1048576] t40"
DUPLICATE = {"control": "always", "multi_use": "duplicate"}
SHARE = {"control": "always", "multi_use": "share"}
TIMED = (
    ("two readers of Relu(a + b)", TWO, f"p = Add (a, b) q = Relu (p) {READERS}", DUPLICATE),
    ("two readers of Atan(a + b)", TWO, f"p = Add (a, b) q = Atan (p) {READERS}", DUPLICATE),
    ("two readers of Relu(a + b)", TWO, f"p = Add (a, b) q = Relu (p) {READERS}", SHARE),
    ("Relu(Add(a, tanh(w * v))), w and v one row", ROWS_OF, "p = Mul (w, v) q = Tanh (p) r = Add (a, q) y = Relu (r)", {"control": "cost"}),
    ("Relu(a + b) transposed, + c", SQUARES, "p = Add (a, b) q = Relu (p) t = Transpose <perm = [1, 0]> (q) r = Add (t, c) y = Neg (r)", {"control": "cost"}),
    ("Relu(Add(a, tanh(w * v)))", ROWS_OF, "p = Mul (w, v) q = Tanh (p) r = Add (a, q) y = Relu (r)", {"control": "no-recompute"}),
    ("Relu(Add(a, w * v + v))", ROWS_OF, "p = Mul (w, v) q = Add (p, v) r = Add (a, q) y = Relu (r)", {"control": "no-recompute"}),
    ("sum of 30 products", *products(30), {"control": "max-operands=16"}),
    ("sum of 30 products", *products(30), {"control": "max-live=8"}),
    ("sum of 4 products", *products(4), {"control": "max-operands=4"}),
    ("Neg, Tanh, Neg, …: 40", CHAIN, chain("Neg", "Tanh"), {"control": "max-body-ops=8"}),
    ("Neg, Abs, Neg, …: 40", CHAIN, chain("Neg", "Abs"), {"control": "max-body-ops=8"}),
)  # fmt: skip


def fused(model: onnx.ModelProto, settings: dict[str, str], path: Path) -> tuple[int, Runtime]:
    """Write the fused model; returns its number of nodes, and the runtime with its kernels."""
    named = {f"{NAME}.{name}": value for name, value in {"rows": "false", **settings}.items()}
    output, _ = Host(HostOptions(vendors=(), enable=(NAME,), settings=named)).run(model)
    onnx.save(output, path)
    library = path.with_suffix(".so")
    result = write_library(str(path), str(library))
    assert not result.left, result.left
    return len(output.graph.node), Runtime(libraries=(str(library),))


def measure(seconds: float) -> None:
    print(
        "| case | control | nodes | ms | nodes by `one-use` | ms | speed over `one-use` |\n|---|---|---|---|---|---|---|"
    )
    random = np.random.default_rng(0)
    for case, types, body, settings in TIMED:
        model = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : 20]> g ({types}) {{ {body} }}'
        )
        feeds = {
            value.name: random.normal(size=[dim.dim_value for dim in value.type.tensor_type.shape.dim]).astype(np.float32)
            for value in model.graph.input
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            one, other = Path(folder, "one-use.onnx"), Path(folder, "other.onnx")
            nodes, runtime = fused(model, {}, one)
            nodes_other, runtime_other = fused(model, settings, other)
            result = measure_pairs(
                runtime.runner(str(one), feeds, 1), runtime_other.runner(str(other), feeds, 1), seconds=seconds, pairs=5
            )  # fmt: skip
        low, high = result.interval
        control = f"`{', '.join(settings.values())}`"
        print(
            f"| {case} | {control} | {nodes_other} | {1e3 * result.second:.2f} | {nodes} | {1e3 * result.first:.2f} "
            f"| {result.median:.2f}, {low:.2f} to {high:.2f} |",
            flush=True,
        )


def count() -> None:
    print(
        "| case | control | Generics | operations | exp, tanh, … | bytes |\n|---|---|---|---|---|---|"
    )
    for name, multi_use, control in ROWS:
        function = parse((CASES / f"{name}.mlir").read_text(encoding="utf-8"))[0]
        block = fuse_block(function.ops, control, multi_use, outputs=function.outputs)
        before, after = cost(function.ops, 64), cost(block.ops, 64)
        counts = [sum(isinstance(op, Generic) for op in ops) for ops in (function.ops, block.ops)]
        cells = [f"{a:,} → {b:,}" for a, b in zip(before, after, strict=True)]
        print(
            f"| `{name}` | `{control}`, {multi_use} | {counts[0]} → {counts[1]} | {' | '.join(cells)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", action="store_true", help="Time the cases in ONNX Runtime.")
    parser.add_argument("--seconds", type=float, default=3.0, help="For each case.")
    argument = parser.parse_args()
    measure(argument.seconds) if argument.time else count()


if __name__ == "__main__":
    main()
