"""Compare fusion with MLIR's on texts: ``python -m plugins.linalg.tools.jax_texts FOLDER``.

``jax_programs.py`` writes the folder: NAME.mlir, NAME.generic.mlir and MLIR's NAME.fused.mlir.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gehost_linalg import MlirError
from gehost_linalg.driver import MLIR_COMPANIONS, fuse_block
from gehost_linalg.generic import Generic, GenericError
from gehost_linalg.mlir import Function, parse, print_function

from ..tests.oracle import signatures


def fused(function: Function) -> Function:
    """The function as MLIR's pass leaves it, by our fusion."""
    block = fuse_block(
        function.ops, outputs=function.outputs, companions=MLIR_COMPANIONS, coverage="upstream"
    )
    result = Function(function.name, function.arguments, block.ops, block.outputs)
    parse(print_function(result))
    return result


def count(functions: list[Function]) -> int:
    return sum(
        isinstance(op, Generic) and op.named is None
        for function in functions
        for op in function.ops
    )


def main() -> int:
    """Print what differs; return how many texts are not read or have another number of Generics."""
    texts = sorted(Path(sys.argv[1]).glob("*.fused.mlir"))
    read = equal_counts = equal = 0
    for path in texts:
        name = path.name.removesuffix(".fused.mlir")
        theirs = parse(path.read_text(encoding="utf-8"))
        for form in (f"{name}.mlir", f"{name}.generic.mlir"):
            try:
                functions = parse(path.with_name(form).read_text(encoding="utf-8"))
                results = [fused(function) for function in functions]
            except (MlirError, GenericError) as error:
                print(f"{form}: {str(error).splitlines()[0]}")
                continue
            read += 1
            if count(results) != count(theirs):
                print(f"{form}: {count(results)} Generics, MLIR leaves {count(theirs)}")
                continue
            equal_counts += 1
            if [signatures(function) for function in results] != [
                signatures(function) for function in theirs
            ]:
                print(f"{form}: other operations in a payload")
                continue
            equal += 1
    whole = 2 * len(texts)
    print(f"{read} of {whole} read, {equal_counts} with MLIR's number of Generics, {equal} equal")
    return whole - equal_counts


if __name__ == "__main__":
    sys.exit(main() > 0)
