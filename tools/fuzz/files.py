"""Compile damaged model files: each is compiled well or refused in one line; nothing else may happen.

``python -m tools.fuzz.files --files 50000 --seed 0`` prints what happened how often, keeps the files for which something else did, and
ends with 1 if there were any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.connection
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import onnx
import onnx.shape_inference

from gehost import GehostError, Host, HostOptions
from gehost.errors import one_line
from gehost.ir.files.validate import validate
from gehost.ir.model import Model
from tests.shipped import EXAMPLES
from tools.fuzz.mutate import Seed, mutated
from tools.fuzz.seeds import data_files, seed_models

Compile: TypeAlias = Callable[[Path, Path, random.Random], None]

VENDORS = Path(__file__).parents[2] / "vendors"
PATIENCE = 20.0
"""Seconds for one file; more is a hang."""
_ADDRESS_SPACE = 3 << 30
_AT_FAULT, _PASS_FAILED = 3, 5


class Corpus:
    """Damaged files by number, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._models = [Seed(content) for content in seed_models()]

    def rng(self, number: int) -> random.Random:
        return random.Random(f"{self._seed}/{number}")

    def file(self, number: int) -> bytes:
        rng = self.rng(number)
        return mutated(rng.choice(self._models), rng)


def hosts(directory: Path) -> Compile:
    """A compile by one of a few hosts, which stay loaded."""
    plain = HostOptions(vendors=[VENDORS], plugins=False, enable=EXAMPLES)
    loaded = [
        Host(plain),
        Host(replace(plain, inline_functions=True, keep_going=True)),
        Host(replace(plain, plugins=True, dump=directory / "dumps", dump_level=2)),
    ]

    def compile_by_one(model: Path, output: Path, rng: random.Random) -> None:
        host = rng.choices(loaded, (8, 1, 1))[0]
        report = host.compile(model, output)
        if failed := [record.message for record in report.passes if record.status == "failed"]:
            raise AssertionError(f"passes failed: {failed}")

    return compile_by_one


def outcome(
    compile_: Compile, content: bytes, directory: Path, rng: random.Random
) -> tuple[str, str]:
    """What became of a file, in a word, and what is wrong with that, if anything is."""
    model = directory / "model.onnx"
    output = rng.choice((directory, directory / "elsewhere")) / "out.onnx"
    model.write_bytes(content)
    output.unlink(missing_ok=True)
    try:
        compile_(model, output, rng)
    except GehostError as error:
        message = f"refused with {error.exit_code}"
        # A pass may fail where types do not fit, which only ONNX's full check finds; it has to say so.
        if error.exit_code == _PASS_FAILED and not _is_valid(model, full_check=True):
            message += ", types do not fit"
        elif error.exit_code != _AT_FAULT:
            return "finding", f"exit code {error.exit_code}: {one_line(str(error))[:1000]}"
        if output.exists():
            return "finding", f"it was refused, but there is an output: {error}"
        return message, "" if one_line(str(error)) else "it was refused without a word"
    except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
        return "finding", traceback.format_exc()
    try:
        _check_output(model, output)
    except Exception:  # noqa: BLE001 - as above
        return "finding", f"the output is not right: {traceback.format_exc()}"
    return "compiled", ""


def _is_valid(path: Path, *, full_check: bool = False) -> bool:
    try:
        onnx.checker.check_model(path, full_check=full_check)
    except (
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ):
        return False
    return True


def _check_output(model: Path, output: Path) -> None:
    if _is_valid(model):  # inputs and outputs of no stated rank are compiled too
        onnx.checker.check_model(output)
    compiled = Model.load(output)
    validate(compiled)
    before, after = onnx.load(model, load_external_data=False).graph, compiled.proto.graph
    assert list(before.input) == list(after.input), "the inputs were changed"
    assert list(before.output) == list(after.output), "the outputs were changed"
    compiled.close()


def _work(
    results: multiprocessing.connection.Connection,
    setup: Callable[[Path], Compile],
    seed: int,
    numbers: range,
    directory: Path,
) -> None:
    compile_ = setup(directory)
    corpus = Corpus(seed)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    for number in numbers:
        results.send(
            (number, *outcome(compile_, corpus.file(number), directory, corpus.rng(~number)))
        )


@dataclass
class Findings:
    """What happened how often, and the numbers of the files for which it may not have."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: dict[int, str] = field(default_factory=dict)


def run(
    seed: int, files: int, setup: Callable[[Path], Compile] = hosts, patience: float = PATIENCE
) -> Iterator[Findings]:
    """Compile files 0 to ``files`` in a process that is replaced when it dies or hangs; gives the findings after each file.

    Args:
        seed: of the damage.
        files: how many.
        setup: makes the compile, in the process.
        patience: seconds that a file may take.
    """
    result = Findings()
    context = multiprocessing.get_context("spawn")
    following = 0
    while following < files:
        with tempfile.TemporaryDirectory() as temporary:
            directory = Path(temporary)
            (directory / "elsewhere").mkdir()
            for path in data_files():
                shutil.copy(path, directory)
            results, end = context.Pipe(duplex=False)
            worker = context.Process(
                target=_work,
                args=(end, setup, seed, range(following, files), directory),
                daemon=True,
            )
            worker.start()
            end.close()
            try:
                while following < files:
                    number, what, wrong = _next_result(results, following, patience)
                    result.counts[what] += 1
                    if wrong:
                        result.wrong[number] = wrong
                    following += 1
                    yield result
                    if what == "hang" or what == "crash":
                        break
            finally:
                worker.kill()
                worker.join()
                results.close()
                worker.close()


def _next_result(
    results: multiprocessing.connection.Connection, number: int, patience: float
) -> tuple[int, str, str]:
    try:
        if not results.poll(patience):
            return number, "hang", f"no end after {patience} s"
        return results.recv()
    except EOFError:
        return number, "crash", "the process died"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--save",
        type=Path,
        default=Path("build/fuzz-files"),
        help="where the files go that show something",
    )
    argument = parser.parse_args()
    corpus, entry = Corpus(argument.seed), 0
    start = last = time.monotonic()
    result = Findings()
    for result in run(argument.seed, argument.files):
        for number, wrong in list(result.wrong.items())[entry:]:
            argument.save.mkdir(parents=True, exist_ok=True)
            path = argument.save / f"{argument.seed}-{number}.onnx"
            path.write_bytes(corpus.file(number))
            print(f"FINDING {path}: {wrong}", flush=True)
        entry = len(result.wrong)
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(
                f"{result.counts.total()} files in {last - start:.0f} s: {dict(result.counts)}",
                flush=True,
            )
    rate = argument.files / (time.monotonic() - start)
    print(
        f"seed {argument.seed}: {argument.files} files, {rate:.0f} a second: {dict(result.counts)}; {len(result.wrong)} findings"
    )
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
