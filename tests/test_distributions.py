"""The products are distributions of their own, of the same version as gehost."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import gehost

ROOT = Path(__file__).parents[1]
PRODUCTS = sorted(file.parent for file in ROOT.glob("plugins/*/pyproject.toml"))


def test_each_product_has_the_same_hook_and_licence() -> None:
    for name, original in (("hatch_build.py", PRODUCTS[0]), ("LICENSE", ROOT)):
        folders = [*PRODUCTS, ROOT / "tools" / "native"]
        texts = {folder.name: (folder / name).read_bytes() for folder in folders}
        assert [key for key, text in texts.items() if text != (original / name).read_bytes()] == []
    assert [product.name for product in PRODUCTS] == ["hlo", "linalg", "sharding", "zoo"]


@pytest.mark.parametrize(
    "product", [*PRODUCTS, ROOT / "tools" / "native"], ids=lambda product: product.name
)
def test_a_product_has_gehosts_version_in_a_clone_and_in_an_sdist(
    product: Path, tmp_path: Path
) -> None:
    metadata = pytest.importorskip("hatchling.metadata.core")
    manager = pytest.importorskip("hatchling.plugin.manager").PluginManager()
    built = metadata.ProjectMetadata(str(product), manager).core
    assert built.version == gehost.__version__
    assert f"gehost=={gehost.__version__}" in built.dependencies
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: x\nVersion: 1.2.3\n")
    for name in ("pyproject.toml", "hatch_build.py", "LICENSE"):
        (tmp_path / name).write_bytes((product / name).read_bytes())
    (tmp_path / "README.md").touch()
    unpacked = metadata.ProjectMetadata(str(tmp_path), manager).core
    assert unpacked.version == "1.2.3"
    assert "gehost==1.2.3" in unpacked.dependencies
    (tmp_path / "PKG-INFO").unlink()
    alone = metadata.ProjectMetadata(str(tmp_path), manager).core
    assert alone.version == importlib.metadata.version("gehost")


def test_what_a_product_requires_of_gehosts_dependencies_is_what_gehost_requires() -> None:
    """Two bounds for one library could not be met, or would not be noticed to differ."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["verify"]]
    bounds = {Requirement(text).name: text for text in texts}
    for product in PRODUCTS:
        tables = tomllib.loads((product / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
        for text in tables["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]:
            assert bounds.get(Requirement(text).name, text) == text, product.name
