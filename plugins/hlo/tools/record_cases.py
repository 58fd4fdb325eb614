"""Lowers the programs of ``jax_cases``, and writes their texts with inputs and outputs.

    python record_cases.py DIR [--only NAME]...

Of each: NAME.stablehlo.mlir, NAME.generic.mlir, NAME.before.hlo, NAME.after.hlo (behind XLA's
passes) and NAME.npz (in0 …, out0 …). ``compare_cases.py`` imports them. Needs jax 0.10.2 in an
environment of its own.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import jax
import jax_cases
import ml_dtypes
import numpy as np
from make_texts import full_constants, lowered  # sets 8 devices before jax is loaded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    output = 0
    for name, (program, inputs) in jax_cases.cases().items():
        if options.only and name not in options.only:
            continue
        try:
            record(options.directory / name, program, inputs)
            output += 1
        except Exception as error:  # noqa: BLE001 the program does not run with this version of jax
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
    print(output, "programs")


def record(path: Path, program: Any, inputs: list[Any]) -> None:
    stage = lowered(program, inputs)
    compiled = stage.compile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*inputs))]
    live = compiled._executable._kept_var_idx
    leaves = [np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(inputs)) if k in live]
    texts = {
        "stablehlo.mlir": stage.as_text(),
        "generic.mlir": stage.compiler_ir("stablehlo").operation.get_asm(
            print_generic_op_form=True
        ),
        "before.hlo": stage.compiler_ir("hlo").get_hlo_module().to_string(full_constants()),
        "after.hlo": compiled.runtime_executable().hlo_modules()[0].to_string(full_constants()),
    }
    for form, text in texts.items():
        path.with_name(f"{path.name}.{form}").write_text(text)
    arrays = {f"in{k}": leaf for k, leaf in enumerate(leaves)}
    arrays |= {f"out{k}": leaf for k, leaf in enumerate(results)}
    stored = {key: _storable(array) for key, array in arrays.items()}
    np.savez_compressed(path.with_name(f"{path.name}.npz"), **stored)


def _storable(array: Any) -> Any:
    """npz has no bfloat16: float32 holds it exactly."""
    return array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array


if __name__ == "__main__":
    main()
