"""Writes HLO texts with jax, and what XLA computes for them.

    python make_texts.py corpus DIR         the corpus: each program before and after XLA's passes, in short and in long form
    python make_texts.py record DIR         each program's text before the passes (constants in full), with inputs and XLA's
                                            outputs (NAME.hlo, NAME.npz: in_0 …, out_0 …); --only NAME, --set SET
    python make_texts.py archive FILE       all that the tests read, as recorded.tar.xz

Needs ``pip install jax==0.10.2``. The plugin's README has the versions that the corpus was made with.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + os.environ.get(
    "XLA_FLAGS", ""
)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax_programs
import numpy as np

try:
    from jaxlib import _hlo
except ImportError:  # before 0.9
    from jaxlib import _jax as _hlo


def long_form() -> Any:
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_operand_shape = True
    options.print_percent = True
    return options


def full_constants() -> Any:
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_operand_shape = False
    options.print_percent = False
    options.print_backend_config = True
    return options


def relative(text: str) -> str:
    """Take the directory of this machine out of the file names in a text."""
    return text.replace(f"{Path(__file__).resolve().parent}{os.sep}", "")


def lowered(program: Any, inputs: list[Any]) -> Any:
    jitted = program if hasattr(program, "lower") else jax.jit(program)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jitted.lower(*inputs)


def write_corpus(directory: Path, only: set[str]) -> None:
    for name, (program, inputs) in jax_programs.corpus().items():
        if only and name not in only:
            continue
        before = lowered(program, inputs)
        module = before.compiler_ir("hlo").get_hlo_module()
        compiled = before.compile()
        after = compiled.runtime_executable().hlo_modules()[0]
        texts = {
            "before.short": before.compiler_ir("hlo").as_hlo_text(),
            "before.long": module.to_string(long_form()),
            "after.short": compiled.as_text(),
            "after.long": after.to_string(long_form()),
        }
        for form, text in texts.items():
            (directory / f"{name}.{form}.hlo").write_text(relative(text))
        print(name)


def record(
    directory: Path, which: str, only: set[str], scale: float, after: bool, width: int = 32
) -> None:
    wide = jax.enable_x64(True) if which == "wide" else contextlib.nullcontext()
    with wide:
        programs = (
            jax_programs.corpus(scale, width)
            if which == "corpus"
            else getattr(jax_programs, which)()
        )
        _record_all(directory, programs, only, after)
    print(len(programs), "programs")


def _record_all(directory: Path, programs: dict[str, Any], only: set[str], after: bool) -> None:
    for name, (program, inputs) in programs.items():
        if only and name not in only:
            continue
        try:
            stage = lowered(program, inputs)
        except (TypeError, ValueError) as error:  # another version of jax
            print(f"{name}: {type(error).__name__}: {error}")
            continue
        module = stage.compiler_ir("hlo").get_hlo_module()
        (directory / f"{name}.hlo").write_text(relative(module.to_string(full_constants())))
        compiled = stage.compile()
        if after:
            text = compiled.runtime_executable().hlo_modules()[0].to_string(full_constants())
            (directory / f"{name}.after.hlo").write_text(relative(text))
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(inputs)]
        live = getattr(compiled._executable, "_kept_var_idx", None)
        if live is not None:
            leaves = [leaf for index, leaf in enumerate(leaves) if index in live]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]
        arrays = {f"in_{k}": leaf for k, leaf in enumerate(leaves)} | {
            f"out_{k}": leaf for k, leaf in enumerate(outputs)
        }
        np.savez_compressed(
            directory / f"{name}.npz", **{key: _storable(array) for key, array in arrays.items()}
        )


FROM_CORPUS = {"block", "block_step", "mlp", "scan", "sharded", "zoo"}
"""Programs of the corpus that are recorded, before and after XLA's passes and on inputs of two scales."""


def archive(path: Path) -> None:
    """Record everything into one archive, whose texts have metadata only where the tests need it."""
    with tarfile.open(path, "w:xz", preset=9) as file, tempfile.TemporaryDirectory() as directory:
        for which in ("small", "more", "outside", "wide", "corpus", "corpus_0.05"):
            folder = Path(directory) / which
            folder.mkdir()
            from_corpus = which.startswith("corpus")
            scale = 0.05 if which == "corpus_0.05" else 1.0
            only = FROM_CORPUS if from_corpus else set()
            record(
                folder,
                "corpus" if from_corpus else which,
                only,
                scale,
                after=which == "corpus",
                width=16,
            )
            print(which, flush=True)
            for text in sorted(folder.glob("*.hlo")):
                plain = (
                    text.read_text()
                    if text.name.startswith("block.")
                    else _without_metadata(text.read_text())
                )
                _add(file, f"{which}/{text.name}", plain.encode())
            for arrays in sorted(folder.glob("*.npz")):
                with np.load(arrays) as stored:
                    for key in stored.files:
                        bytes_ = io.BytesIO()
                        np.save(bytes_, stored[key])
                        _add(file, f"{which}/{arrays.stem}/{key}.npy", bytes_.getvalue())


def _without_metadata(text: str) -> str:
    text = re.sub(r"\nFileNames.*?\n\n\n", "\n\n", text, flags=re.DOTALL)
    return re.sub(r", metadata=\{[^}]*\}", "", text)


def _add(file: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    file.addfile(entry, io.BytesIO(content))


def _storable(array: Any) -> Any:
    """npz has no bfloat16 and no float8: float32 holds them exactly."""
    return (
        array.astype(np.float32)
        if array.dtype.kind == "V" or "float8" in str(array.dtype) or "bfloat16" in str(array.dtype)
        else array
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["corpus", "record", "archive"])
    parser.add_argument("directory", type=Path, metavar="DIR|FILE")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--set", dest="which", default="small")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--after", action="store_true", help="also record the text after XLA's passes"
    )
    options = parser.parse_args()
    if options.action == "archive":
        return archive(options.directory)
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.action == "corpus":
        return write_corpus(options.directory, set(options.only))
    return record(options.directory, options.which, set(options.only), options.scale, options.after)


if __name__ == "__main__":
    main()
