"""``make kernels-figures``: the README's tables of kernels, over the original at ENABLE_ALL.

One group each (``groups``), the corpus with kernels and with bodies (``corpus``), models of width 768 at four lengths (``wide``: those that
``make bench-models`` built). One thread, CPU time; each pair is two new sessions whose runs alternate (``gehost.tune``). ``lines`` counts the
lines of each kernel's C.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from gehost import Host, HostOptions
from gehost.tune import Comparison, measure_pairs
from gehost.tune.sessions import Runtime
from gehost.verify import compare_outputs, load_feeds
from gehost_linalg.kernels.library import fused, write_library
from gehost_linalg.passes import NAME

ROOT = Path(__file__).parents[3]
CORPUS = ROOT.parent / "shared" / "corpus"
MODELS = ROOT / "build" / "models"

Feeds = Mapping[str, "np.ndarray[Any, Any]"]

ROTARY = (
    "z = Constant<value = int64[1] {0}>() h = Constant<value = int64[1] {32}>() e = Constant<value = int64[1] {64}>() "
    "k = Constant<value = int64[1] {2}>() u = Slice(x, z, h, k) v = Slice(x, h, e, k) n = Neg(v) t = Concat<axis = 2>(n, u) "
    "i = Mul(x, c) j = Mul(t, s) y = Add(i, j)"
)
LSTM = (
    "w = Constant<value = int64[4] {512, 512, 512, 512}>() i, o, f, c = Split<axis = 1>(x, w) a = Sigmoid(i) b = Sigmoid(o) "
    "d = Sigmoid(f) e = Tanh(c) g = Mul(d, h) j = Mul(a, e) k = Add(g, j) l = Tanh(k) y = Mul(b, l)"
)
SCALARS = "float half = {0.5}, float one = {1.0}, float root = {1.4142135}, float r = {0.7978846}, float p = {0.044715}, float three = {3.0}"
ERF = "d = Div(x, root) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)"

GROUPS: Mapping[str, tuple[str, str, str]] = {
    "residual + LayerNormalization": (
        "float[1,s,768] a, float[1,s,768] b, float[768] g, float[768] o",
        "float[1,s,768] y",
        "h = Add(a, b) y = LayerNormalization(h, g, o)",
    ),
    "relu((a+b)·c−a)·d+b, 98 k": (
        "float[s,768] a, float[s,768] b, float[s,768] c, float[s,768] d",
        "float[s,768] y",
        "t = Add(a, b) u = Mul(t, c) v = Sub(u, a) w = Relu(v) z = Mul(w, d) y = Add(z, b)",
    ),
    "relu((a+b)·c−a)·d+b, 3.1 M": (
        "float[s,24576] a, float[s,24576] b, float[s,24576] c, float[s,24576] d",
        "float[s,24576] y",
        "t = Add(a, b) u = Mul(t, c) v = Sub(u, a) w = Relu(v) z = Mul(w, d) y = Add(z, b)",
    ),
    "rotary embedding": (
        "float[12,s,64] x, float[s,64] c, float[s,64] s",
        "float[12,s,64] y",
        ROTARY,
    ),
    "Gelu by tanh": (
        "float[s,3072] x",
        "float[s,3072] y",
        "q = Pow(x, three) t = Mul(q, p) u = Add(x, t) v = Mul(u, r) w = Tanh(v) a = Add(w, one) m = Mul(x, half) y = Mul(m, a)",
    ),
    "residual + RMS": (
        "float[1,s,768] a, float[1,s,768] b, float[768] g",
        "float[1,s,768] y",
        "h = Add(a, b) t = Constant<value = float {2.0}>() q = Pow(h, t) m = ReduceMean<axes = [-1]>(q) "
        "e = Constant<value = float {0.000001}>() v = Add(m, e) w = Sqrt(v) n = Div(h, w) y = Mul(g, n)",
    ),
    "bias + Gelu by erf": (
        "float[s,3072] x0, float[3072] b",
        "float[s,3072] y",
        f"x = Add(x0, b) {ERF}",
    ),
    "Gelu by erf": ("float[s,3072] x", "float[s,3072] y", ERF),
    "LSTM cell": ("float[64,2048] x, float[64,512] h", "float[64,512] y, float[64,512] k", LSTM),
    "silu · up": (
        "float[s,2048] x, float[s,2048] u",
        "float[s,2048] y",
        "e = Sigmoid(x) a = Mul(x, e) y = Mul(a, u)",
    ),
    "scale + mask + softmax": (
        "float[12,s,128] x, float[1,s,128] m",
        "float[12,s,128] y",
        "c = Constant<value = float {0.125}>() a = Mul(x, c) b = Add(a, m) y = Softmax(b)",
    ),
    "bias + heads + Transpose": (
        "float[1,s,768] x, float[768] b",
        "float[1,12,s,64] y",
        "t = Constant<value = int64[4] {0, 0, 12, 64}>() a = Add(x, b) h = Reshape(a, t) y = Transpose<perm = [0,2,1,3]>(h)",
    ),
    "bias + relu + Transpose of a matrix": (
        "float[1024,s] x, float[s] b",
        "float[s,1024] y",
        "a = Add(x, b) n = Relu(a) y = Transpose<perm = [1,0]>(n)",
    ),
}
"""Inputs, outputs and nodes; ``s`` is 128."""


def group_model(name: str, folder: Path) -> tuple[Path, Feeds]:
    """The file of one group at opset 17, and its feeds."""
    inputs, outputs, nodes = GROUPS[name]
    body = re.sub(r"\)\s+(?=\w+(, \w+)* = )", ")\n", nodes)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]>\ng ({inputs}) => ({outputs})\n<{SCALARS}> {{\n{body}\n}}'
    )
    random = np.random.default_rng(3)
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for value in model.graph.input:
        shape = [dim.dim_value or 128 for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = random.standard_normal(shape).astype(np.float32)
    path = folder / "group.onnx"
    onnx.save(model, path)
    return path, feeds


class Measured:
    """A model fused into ``folder``, with the library of its kernels."""

    def __init__(self, source: Path, folder: Path, march: str) -> None:
        self.source = source
        self.path, self.library = folder / "fused.onnx", folder / f"{os.urandom(6).hex()}.so"
        Host(HostOptions(vendors=(), enable=(NAME,))).compile(str(source), str(self.path))
        write_library(str(self.path), str(self.library), march=march)

    def compare(self, feeds: Feeds, seconds: float, *, kernels: bool) -> Comparison:
        """The original at ENABLE_ALL beside the fused file, whose outputs are equal."""
        libraries = (str(self.library),) if kernels else ()
        runtimes = ((str(self.source), Runtime()), (str(self.path), Runtime(libraries=libraries)))
        sessions = [runtime.session(path, 1) for path, runtime in runtimes]
        arguments = {operand.name: feeds[operand.name] for operand in sessions[0].get_inputs()}
        names = [operand.name for operand in sessions[0].get_outputs()]
        first, second = (
            dict(zip(names, operand.run(names, arguments), strict=True)) for operand in sessions
        )
        different = [output for output in compare_outputs(first, second) if not output.equal]
        if different:
            raise SystemExit(f"{self.source}: {different[0]}")
        one, two = (runtime.runner(path, arguments, 1) for path, runtime in runtimes)
        return measure_pairs(one, two, seconds=seconds, pairs=8)


def shown(result: Comparison) -> str:
    low, high = result.interval
    return f"{result.median:.3f} ({low:.3f} to {high:.3f})"


def cut(feeds: Feeds, length: int) -> Feeds:
    """The first places of each row of tokens."""
    return {name: np.ascontiguousarray(array[:, :length]) for name, array in feeds.items()}


def rows(table: str, only: str, seconds: float, march: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of a table; ``only`` is part of their names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if table == "groups":
            for item in [group for group in GROUPS if only in group]:
                source, feeds = group_model(item, folder)
                result = Measured(source, folder, march).compare(feeds, seconds, kernels=True)
                yield item, [shown(result), f"{result.first * 1e6:.0f}", str(len(result.ratios))]
        elif table == "corpus":
            yield from corpus(folder, only, seconds, march)
        else:
            for item in ("bert", "llama", "gpt2"):
                source = MODELS / f"{item}.768.dynopt.onnx"
                if only in item and source.exists():
                    measured = Measured(source, folder, march)
                    cells: list[str] = []
                    for length in (1, 16, 128, 512):
                        feeds = load_feeds(MODELS / f"{item}.768.dynopt.512.npz")
                        result = measured.compare(cut(feeds, length), seconds, kernels=True)
                        cells.append(shown(result))
                    yield item, cells


def corpus(folder: Path, only: str, seconds: float, march: str) -> Iterator[tuple[str, list[str]]]:
    """Rows of the corpus and of the narrow models that ``make bench-models`` built."""
    gains: list[list[float]] = []
    narrow = [path for path in sorted(MODELS.glob("*.onnx")) if ".768." not in path.name]
    for source in [*sorted((CORPUS / "models").glob("*.onnx")), *narrow]:
        feeds = CORPUS / "feeds" / f"{source.stem}.A.npz"
        if source in narrow:
            feeds = next(iter(MODELS.glob(f"{source.stem}.*.npz")), feeds)
        if only not in source.stem or not feeds.exists() or not is_fused(source, folder):
            continue
        measured = Measured(source, folder, march)
        results = [
            measured.compare(load_feeds(feeds), seconds, kernels=kernels)
            for kernels in (True, False)
        ]
        if source not in narrow:
            gains.append([item.median for item in results])
        yield source.stem, [*map(shown, results), f"{results[0].first * 1e3:.2f}"]
    for column, title in zip(zip(*gains, strict=True), ("kernels", "bodies"), strict=False):
        mean = math.exp(statistics.fmean(map(math.log, column)))
        yield f"geometric mean of {len(column)} of the corpus, {title}", [f"{mean:.3f}"]


def is_fused(source: Path, folder: Path) -> bool:
    """Whether the pass forms a group."""
    path = folder / "fused.onnx"
    Host(HostOptions(vendors=(), enable=(NAME,))).compile(str(source), str(path))
    return any(function.domain == "gehost.linalg" for function in onnx.load(path).functions)


def long_kernels() -> Iterator[tuple[str, list[str]]]:
    """Kernels of more than 40 lines without their comment, and the longest function of each."""
    count = 0
    with tempfile.TemporaryDirectory() as name:
        for source in [*sorted((CORPUS / "models").glob("*.onnx")), *sorted(MODELS.glob("*.onnx"))]:
            if not is_fused(source, Path(name)):
                continue
            for kernel in fused(str(Path(name, "fused.onnx"))).kernels:
                count += 1
                text = "\n".join(kernel.lines).partition("*/\n")[2]
                functions = re.findall(r"^(?:static|FN) void .*?^}", text, re.MULTILINE | re.DOTALL)
                lines = text.count("\n") + 1
                if lines > 40:
                    longest = max(function.count("\n") + 1 for function in functions)
                    yield f"{source.stem} {kernel.name}", [str(lines), str(longest)]
    yield f"of {count} kernels", []


HEADS = {
    "groups": "| group | speed | µs of the original | pairs |",
    "corpus": "| model | kernels | bodies | ms of the original |",
    "wide": "| model | 1 | 16 | 128 | 512 |",
    "lines": "| kernel | lines | of its longest function |",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"of {', '.join(HEADS)}")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each comparison")
    parser.add_argument("--only", default="", help="part of the names of the rows")
    parser.add_argument("--march", default="native")
    argument = parser.parse_args(arguments)
    unknown = set(argument.tables).difference(HEADS)
    if unknown:
        parser.error(f"no table {', '.join(sorted(unknown))}: there are {', '.join(HEADS)}")
    for table in argument.tables or HEADS:
        print(
            f"load {os.getloadavg()[0]:.1f}\n{HEADS[table]}\n|{'---|' * HEADS[table].count(' |')}"
        )
        result = (
            long_kernels()
            if table == "lines"
            else rows(table, argument.only, argument.seconds, argument.march)
        )
        for name, cells in result:
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
