"""Writes HLO texts with jax, and what XLA computes for them.

    python make_texts.py corpus DIR     the corpus: each program before and after XLA's passes, in short and in long form
    python make_texts.py record DIR     each program's text before the passes (constants in full), with inputs and XLA's outputs
                                        (NAME.hlo, NAME.npz: in_0 …, out_0 …); --only NAME, --set corpus|small|more

Needs ``pip install jax==0.10.2``; two later versions that were tried are in the plugin's README.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 " + os.environ.get("XLA_FLAGS", "")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parent))

import jax
import jax_programs
import numpy as np
from jaxlib import _hlo


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
        (directory / f"{name}.before.short.hlo").write_text(before.compiler_ir("hlo").as_hlo_text())
        (directory / f"{name}.before.long.hlo").write_text(module.to_string(long_form()))
        (directory / f"{name}.after.short.hlo").write_text(compiled.as_text())
        (directory / f"{name}.after.long.hlo").write_text(compiled.runtime_executable().hlo_modules()[0].to_string(long_form()))
        print(name)


def record(directory: Path, which: str, only: set[str], scale: float, after: bool) -> None:
    programs = jax_programs.corpus(scale) if which == "corpus" else getattr(jax_programs, which)()
    for name, (program, inputs) in programs.items():
        if only and name not in only:
            continue
        try:
            stage = lowered(program, inputs)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            continue
        module = stage.compiler_ir("hlo").get_hlo_module()
        (directory / f"{name}.hlo").write_text(module.to_string(full_constants()))
        compiled = stage.compile()
        if after:
            (directory / f"{name}.after.hlo").write_text(compiled.runtime_executable().hlo_modules()[0].to_string(full_constants()))
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(inputs)]
        kept = getattr(compiled._executable, "_kept_var_idx", None)
        if kept is not None:
            leaves = [leaf for index, leaf in enumerate(leaves) if index in kept]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outputs = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]
        arrays = {f"in_{k}": leaf for k, leaf in enumerate(leaves)} | {f"out_{k}": leaf for k, leaf in enumerate(outputs)}
        np.savez_compressed(directory / f"{name}.npz", **{key: _storable(array) for key, array in arrays.items()})
    print(len(programs), "programs")


def _storable(array: Any) -> Any:
    """npz has no bfloat16 and no float8: float32 holds them exactly."""
    return array.astype(np.float32) if array.dtype.kind == "V" or "float8" in str(array.dtype) or "bfloat16" in str(array.dtype) else array


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["corpus", "record"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--set", dest="which", default="small")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--after", action="store_true", help="also record the text after XLA's passes")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    if given.action == "corpus":
        write_corpus(given.directory, set(given.only))
    else:
        record(given.directory, given.which, set(given.only), given.scale, given.after)


if __name__ == "__main__":
    main()
