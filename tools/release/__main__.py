"""Build all distributions into dist/ and try them in empty environments: ``make release``.

Each sdist is built from the clone and each wheel from its sdist, so that what is published builds
without the clone. Tried: gehost alone; all products; machine code, which must give the same bytes.
dist/ changes at the end of the builds, all at once. Machine code takes ten minutes or more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from gehost import __version__ as version
from tools.release.version import no_release

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
TRIALS = ROOT / "build" / "release"
MODEL = ROOT / "tests" / "models" / "bert.ts17.onnx"
PRODUCTS = sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))
HLO = (
    "HloModule m\n\nENTRY main {\n  x = f32[2]{0} parameter(0)\n  ROOT y = f32[2]{0} negate(x)\n}\n"
)


class Trial:
    """An empty environment with some of the wheels, and a working directory."""

    def __init__(self, name: str, *requirements: str) -> None:
        self.folder = TRIALS / name
        venv.create(self.folder / "env", with_pip=True)
        self.bin = self.folder / "env" / ("Scripts" if os.name == "nt" else "bin")
        python = self.bin / "python"
        options = ["--quiet", "--disable-pip-version-check", "--find-links", DIST]
        subprocess.run([python, "-m", "pip", "install", *options, *requirements], check=True)
        (self.folder / "m.hlo").write_text(HLO, encoding="utf-8")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run ``gehost``; return what it prints."""
        process = subprocess.run(
            [self.bin / "gehost", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        text = process.stdout + process.stderr
        if process.returncode != code:
            sys.exit(
                f"{self.folder.name}: gehost {' '.join(arguments)}: {process.returncode}\n{text}"
            )
        return text

    def compiled(self, *options: str) -> bytes:
        """The demo model, compiled."""
        self.run("compile", str(MODEL), "-o", "fused.onnx", *options)
        return (self.folder / "fused.onnx").read_bytes()


def build() -> None:
    """Build every sdist and wheel; exit if one has another version."""
    if reason := no_release(ROOT, version):
        sys.exit(reason)
    folder = TRIALS / "dist"
    shutil.rmtree(TRIALS, ignore_errors=True)
    for project in (ROOT, *PRODUCTS, ROOT / "tools" / "native"):
        print(f"building {project.relative_to(ROOT.parent)}", flush=True)
        command = [sys.executable, "-m", "build", "--outdir", folder, project]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            sys.exit(process.stdout + process.stderr)
    files = sorted(file.name for file in folder.iterdir())
    print(*files, sep="\n")
    wrong = [name for name in files if name.split("-")[1].removesuffix(".tar.gz") != version]
    if wrong or len(files) != 2 * (len(PRODUCTS) + 2):
        sys.exit(f"wanted an sdist and a wheel of each distribution, version {version}: {wrong}")
    shutil.rmtree(DIST, ignore_errors=True)
    folder.rename(DIST)


def main() -> None:
    build()
    alone = Trial("alone", f"gehost[verify]=={version}")
    expected = alone.compiled("--verify")
    assert "pip install ./plugins/zoo" in alone.run("zoo", code=2)

    products = [f"gehost-{product.name}=={version}" for product in PRODUCTS]
    everything = Trial("everything", f"gehost[verify]=={version}", *products)
    assert everything.compiled("--verify") == expected
    everything.run("hlo", "import", "m.hlo", "-o", "m.onnx")
    everything.run("linalg", "m.onnx")
    everything.run("shard", "plan", "m.onnx", "--mesh", "data=2", "-o", "plan.onnx")
    everything.run("zoo", "m.onnx", "-o", "out")

    native = Trial("native", f"gehost[verify]=={version}", f"gehost-native=={version}")
    assert ", machine code" in native.run("--version")
    assert native.compiled("--verify") == expected
    print(f"{version}: all distributions install and run")


if __name__ == "__main__":
    main()
