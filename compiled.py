"""Machine code of what each rewrite runs through, for Python to prefer to the sources, by mypyc and
a C compiler.

``pip install .`` puts it into the wheel, as hatchling's build hook; where it cannot be made the
wheel is Python alone. ``make compiled`` runs this file, which puts it beside the sources. ``gehost
--version`` tells which it is.

The same outputs in less time: see tests/benchmarks/README.md. What differs: an argument of a wrong
type is a TypeError at once, where interpreted code may say more; classes that authors have no
reason to derive from (``EsGraphBuilder``, ``Node``) cannot be derived from, nor their methods
replaced; very deep patterns end in no RecursionError; some errors have no ``__cause__``. Whoever
edits one of these modules compiles again, or runs ``make interpreted``: the test suite refuses
machine code that is older than its source.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOT = """
ir/attributes ir/check ir/edits ir/ge ir/graph ir/index ir/journal ir/links ir/listing ir/names ir/node ir/region ir/shapes
ir/admit ir/constants ir/external ir/skeleton ir/tensors ir/types
es/functions es/graph es/literals es/opset es/origin es/schemas
pattern/bind pattern/candidates pattern/compile pattern/conditions pattern/match pattern/variants
pattern/failure pattern/misses pattern/steps pattern/wording diagnose/account
rewrite/bodies rewrite/comparison rewrite/lower rewrite/proof rewrite/trace
rewrite/history rewrite/plan rewrite/provenance rewrite/rewriter rewrite/transaction
passes/context passes/engine
infer/bounds infer/calls infer/contents infer/local infer/whole
passes/cleanup/cleaner passes/cleanup/dead passes/cleanup/fold passes/cleanup/identity
passes/cleanup/merge passes/cleanup/purity passes/cleanup/refine passes/cleanup/state
"""


class MachineCode(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # its sources are there to be changed
            return
        made = TemporaryDirectory()
        atexit.register(made.cleanup)
        compiler = [sys.executable, __file__, made.name]
        if subprocess.run(compiler, cwd=self.root, check=False).returncode:  # noqa: S603 - it is ours
            self.app.display_warning(
                "no machine code, for the reason above: gehost is installed as Python alone"
            )
            return
        built = Path(made.name, "lib")
        files = [file for file in built.rglob("*") if file.is_file()]
        build_data["force_include"].update(
            {str(file): str(file.relative_to(built)) for file in files}
        )
        build_data["pure_python"], build_data["infer_tag"] = False, True


def compile_into(directory: str | None) -> None:
    """Compile into a directory, or beside the sources."""
    from mypyc.build import mypycify
    from setuptools import setup

    where, options = ["--inplace"], ["--ignore-missing-imports", "--follow-imports=silent"]
    if directory is not None:  # nothing is written beside the sources
        where = ["--build-lib", f"{directory}/lib", "--build-temp", f"{directory}/temp"]
        options.append(f"--cache-dir={directory}/cache")
    sources = [f"gehost/{name}.py" for name in HOT.split()]
    modules = mypycify([*options, *sources], target_dir=directory or "build")
    setup(
        name="gehost",
        packages=[],
        ext_modules=modules,
        script_args=["--quiet", "build_ext", *where, "--force"],
    )


if __name__ == "__main__":
    compile_into(sys.argv[1] if sys.argv[1:] else None)
