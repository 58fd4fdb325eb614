"""Compile the corpus at a base commit and in this tree, and compare the outputs byte for byte.

``make gate BASE=<commit>``: the gate of a change that must not change results. Exit code 1 when an
output differs or is missing. Models: ``../shared/corpus`` where present, and ``tests/models``; each
is compiled without vendors and with the shipped vendors of its own tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]

_WORKER = """
import json, sys
from pathlib import Path
from gehost import GehostError, Host, HostOptions
vendors, output, *models = sys.argv[1:]
for model in models:
    for name, chosen in (("plain", ()), ("vendors", (vendors,))):
        target = Path(output, f"{Path(model).stem}.{name}.onnx")
        try:
            Host(HostOptions(vendors=chosen)).compile(model, target)
        except GehostError as error:
            target.write_text(str(error))
"""


def models() -> list[Path]:
    """Return the corpus and the repository's own models, sorted by name."""
    corpus = ROOT.parent / "shared" / "corpus" / "models"
    return sorted([*corpus.glob("*.onnx"), *(ROOT / "tests" / "models").glob("*.onnx")])


def compile_all(tree: Path, packages: list[Path], output: Path) -> dict[str, str]:
    """Compile every model with the gehost of ``packages``; return SHA-256 by output file."""
    output.mkdir()
    subprocess.run(
        [sys.executable, "-c", _WORKER, str(tree / "vendors"), str(output), *map(str, models())],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, packages))},
        check=True,
    )
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in output.iterdir()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="the commit to compare with")
    base = parser.parse_args().base
    with tempfile.TemporaryDirectory() as result:
        tree, installed = Path(result, "tree"), Path(result, "installed")
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", tree, base], cwd=ROOT, check=True
        )
        try:
            # Installed, so that the entry points of the base's own plugins and products are found first.
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
                + ["--disable-pip-version-check", "--target", installed, tree]
                + [file.parent for file in tree.glob("plugins/*/pyproject.toml")],
                check=True,
            )
            before = compile_all(tree, [installed], Path(result, "before"))
            after = compile_all(ROOT, [ROOT, *(ROOT / "plugins").iterdir()], Path(result, "after"))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    different = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    print(json.dumps({"base": base, "outputs": len(before), "different": different}, indent=1))
    return 1 if different or not before else 0


if __name__ == "__main__":
    sys.exit(main())
