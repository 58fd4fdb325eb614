"""What must hold before a changelog and a release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.release.version import no_changelog, no_release


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2026-11-27)\n\n### Added\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").touch()
    (tmp_path / "changes" / "+one.added.md").write_text("One.\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", "-C", tmp_path, *who, "commit", "-qm", "one"], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("version", "reason"),
    [("zero.3", "is 'zero.3'; wanted one as 0.3.0"), ("0.3.1-rc1", "write '0.3.1rc1'"), ("", "''")],
)
def test_a_version_in_no_normal_form_is_refused(clone: Path, version: str, reason: str) -> None:
    assert reason in no_changelog(clone, version)
    assert reason in no_release(clone, version)


def test_a_changelog_has_each_version_once_and_fragments(clone: Path) -> None:
    assert no_changelog(clone, "0.3.0") == ""
    assert "CHANGELOG.md has 0.2.0: raise __version__" in no_changelog(clone, "0.2.0")
    (clone / "changes" / "+one.added.md").unlink()
    assert "no fragments" in no_changelog(clone, "0.3.0")


def test_a_release_has_committed_files_alone(
    clone: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert no_release(clone, "0.2.0") == ""
    (clone / "secret.py").touch()
    assert "?? secret.py" in no_release(clone, "0.2.0")
    elsewhere = no_release(tmp_path_factory.mktemp("none"), "0.2.0")
    assert elsewhere.startswith("a release is built from a clone: ")
