"""Compiles in threads: the same bytes, and the process as it was."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import onnx
import pytest

from gehost.testing import parse

THREADS = 6
SLOW = """
import time
@REG_FUSION_PASS
class Slow(FusionBasePass):
    def Run(self, graph, context):
        print("a pass prints")
        time.sleep(0.005)
"""


@pytest.mark.parametrize("shared", [True, False])
def test_threads_compile_as_one_does(vendors: Any, tmp_path: Path, shared: bool) -> None:
    vendors.write("acme/_own.py", "NEW = 'Sigmoid'\n")
    vendors.write(
        "acme/a.py", "from ._own import NEW\n", SLOW, vendors.swap("Swap", "Relu", "op(NEW)")
    )
    texts = [
        f'<ir_version: 8, opset_import: ["" : 17]> main (float[{size}] x) => (float[{size}] y) '
        f"{{ {' '.join(f't{k + 1} = Relu(t{k})' for k in range(size))} y = Neg(t{size}) }}".replace(
            "t0", "x"
        )
        for size in range(1, THREADS + 1)
    ]
    for number, text in enumerate(texts):
        onnx.save(parse(text), tmp_path / f"{number}.onnx")
    host = vendors.host()
    expected = []
    for number in range(THREADS):
        host.compile(tmp_path / f"{number}.onnx", tmp_path / "one.onnx")
        expected.append((tmp_path / "one.onnx").read_bytes())
    begin = Barrier(THREADS)

    def work(number: int) -> list[bytes]:
        begin.wait()
        actual = []
        for _ in range(3):
            own = host if shared else vendors.host()
            own.compile(tmp_path / f"{number}.onnx", tmp_path / f"out{number}.onnx")
            actual.append((tmp_path / f"out{number}.onnx").read_bytes())
        return actual

    streams, modules, path = (sys.stdout, sys.stderr), set(sys.modules), list(sys.path)
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(work, range(THREADS)))
    assert results == [[content] * 3 for content in expected]
    assert (sys.stdout, sys.stderr) == streams
    assert not [name for name in set(sys.modules) - modules if name.startswith("gehost_vendors")]
    assert sys.path == path


def test_a_host_in_a_thread_of_another_s_callback_is_the_thread_s_own(vendors: Any) -> None:
    """A pass may compile in its own thread: the lock is one that it has."""
    vendors.write(
        "acme/a.py",
        "@REG_FUSION_PASS\nclass Nested(FusionBasePass):\n    def Run(self, graph, context):\n"
        "        Host(HostOptions(plugins=False)).run(context.model.proto)\n",
    )
    out = sys.stdout
    assert isinstance(out, io.TextIOBase)
    _, report = vendors.host().run(
        parse(
            '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Relu(x) }'
        )
    )
    assert report.passes[0].status == "not changed"
    assert sys.stdout is out
