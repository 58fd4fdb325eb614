"""Kernels on another CPU, in an emulator: ``make kernels-arm64``.

``python -m plugins.linalg.tests.kernels.emulated --cc "aarch64-linux-gnu-gcc" --march armv8-a --run qemu-aarch64-static``
compiles all cases of the tests statically, runs them on special and drawn values, and compares with their bodies in ONNX Runtime here.
"""

from __future__ import annotations

import argparse
import shlex
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from gehost.verify import compare_outputs
from gehost_linalg.kernels import ort
from gehost_linalg.kernels.build import FLAGS
from gehost_linalg.kernels.c import Kernel, source
from gehost_linalg.kernels.library import fused

from .cases import CASES, ELEMENT_WISE
from .fused_models import Array, fused_model, run, session
from .test_numbers import SPECIAL

SIZES = ((19, 7, 3), (64, 5, 2), (1, 1, 1), (0, 2, 3), (20_000, 3, 1))
"""Of the last open axis, of the one before, of the others."""

VERSIONS = ("1.17.0", "1.24.0")
"""Of ONNX Runtime: before and after GetTensorElementTypeAndShapeDataReference."""


def program(kernels: list[Kernel], cc: Sequence[str], march: str, folder: Path) -> Path:
    """The kernels and the table of functions that they call, as one executable."""
    code, host, result = folder / "kernels.c", folder / "host.c", folder / "program"
    code.write_text(source(kernels), encoding="utf-8")
    text = Path(__file__).with_name("emulated.c").read_text(encoding="utf-8")
    host.write_text(ort.DECLARATIONS + text, encoding="utf-8")
    parts = ([*FLAGS, *([f"-march={march}"] if march else []), str(code)], ["-O2", "-DGEHOST_REGISTER", str(code)], ["-O2", str(host)])  # fmt: skip
    objects = [str(folder / f"{number}.o") for number in range(len(parts))]
    for part, target in zip(parts, objects, strict=True):
        subprocess.run([*cc, "-c", *part, "-o", target], check=True)
    subprocess.run([*cc, *objects, "-lm", "-o", str(result)], check=True)
    return result


class Emulator:
    """The program, waiting for requests."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(
        self, number: int, arrays: Sequence[Array], dtypes: Sequence[np.dtype[np.generic]]
    ) -> list[Array] | str:
        """Outputs, or the message of a kernel that refuses its inputs."""
        assert self._process.stdin is not None
        self._process.stdin.write(struct.pack("<i", number))
        for array in arrays:
            self._process.stdin.write(
                struct.pack(f"<i{array.ndim}q", array.ndim, *array.shape) + array.tobytes()
            )
        self._process.stdin.flush()
        (status,) = struct.unpack("<i", self._take(4))
        if status:
            return self._take(status).decode()
        results: list[Array] = []
        for dtype in dtypes:
            (rank,) = struct.unpack("<i", self._take(4))
            shape = struct.unpack(f"<{rank}q", self._take(8 * rank))
            count = int(np.prod(shape))
            results.append(np.frombuffer(self._take(count * dtype.itemsize), dtype).reshape(shape))
        return results

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _take(self, count: int) -> bytes:
        assert self._process.stdout is not None
        content = self._process.stdout.read(count)
        if len(content) < count:
            raise SystemExit("the program ended")
        return content


def feeds_of(
    model: onnx.ModelProto, sizes: tuple[int, int, int], seed: int, *, special: bool
) -> dict[str, Array]:
    """Drawn inputs of these sizes, with special values among them."""
    random = np.random.default_rng([seed, *sizes])
    results: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        open_sizes = {"N": sizes[0], "M": sizes[1]}
        shape = [
            dim.dim_value if dim.HasField("dim_value") else open_sizes.get(dim.dim_param, sizes[2])
            for dim in kind.shape.dim
        ]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.kind == "f":
            array = random.standard_normal(shape).astype(dtype)
            if special:
                chosen = random.random(shape) < 0.3
                array = np.where(chosen, random.choice(SPECIAL, shape), array).astype(dtype)
        else:
            array = random.integers(0, 2 if dtype == np.bool_ else 5, shape).astype(dtype)
        results[value.name] = np.asarray(array, order="C")
    return results


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cc", required=True)
    parser.add_argument("--march", required=True)
    parser.add_argument("--run", default="", help="The emulator.")
    argument = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(fused_model(list(CASES.values())), folder / "fused.onnx")
        kernels = fused(str(folder / "fused.onnx")).kernels
        places = {kernel.name: place for place, kernel in enumerate(kernels)}
        result = program(kernels, [*shlex.split(argument.cc), "-static"], argument.march, folder)
        command = [*shlex.split(argument.run), str(result)]
        emulators = [Emulator([*command, version]) for version in VERSIONS]
        for seed, (case, text) in enumerate(CASES.items()):
            model = fused_model([text])
            body = session(model)
            for sizes in SIZES:
                if 0 in sizes and "Reduce" in text.body:
                    continue  # ONNX Runtime gives [2, 0] for the sums of two empty rows
                feeds = feeds_of(model, sizes, seed, special=case in ELEMENT_WISE)
                try:
                    expected = run(body, feeds)
                except Exception:  # noqa: BLE001 - sizes that do not fit each other here
                    counts["sizes that the body refuses"] += 1
                    continue
                dtypes = [array.dtype for array in expected.values()]
                match = emulators[seed % 2](
                    places[model.functions[0].name], list(feeds.values()), dtypes
                )
                counts["runs"] += 1
                if isinstance(match, str):
                    counts["refused"] += 1
                    print(f"{case} {sizes}: {match}")
                    continue
                with np.errstate(all="ignore"):
                    differences = [
                        difference
                        for difference in compare_outputs(
                            expected, dict(zip(expected, match, strict=True))
                        )
                        if not difference.equal
                    ]
                counts["outputs"] += len(expected)
                counts["different"] += len(differences)
                for difference in differences:
                    print(f"{case} {sizes}: {difference}")
        for emulator in emulators:
            emulator.close()
    print(f"{len(kernels)} kernels: {', '.join(f'{key} {count}' for key, count in counts.items())}")
    return 1 if counts["different"] or counts["refused"] else 0


if __name__ == "__main__":
    sys.exit(main())
