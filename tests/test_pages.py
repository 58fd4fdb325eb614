"""The form of the Markdown pages."""

from __future__ import annotations

import pytest

from tools.pages import ROOT, long_lines, pages, wrapped


def test_prose_has_at_most_100_columns() -> None:
    """``python -m tools.pages`` wraps it."""
    actual = {
        str(page.relative_to(ROOT)): lines
        for page in pages()
        if (lines := long_lines(page.read_text(encoding="utf-8")))
    }
    assert actual == {}


@pytest.mark.parametrize(
    "line",
    [
        "| a | " + "word " * 30 + "|",
        "# " + "word " * 30,
        "[a link](" + "x" * 120 + ")",
        "`" + "code " * 30 + "`",
        "```\n" + "code " * 30 + "\n```",
        "<img " + "word " * 30 + ">",
    ],
)
def test_tables_headings_links_and_code_may_be_longer(line: str) -> None:
    assert long_lines(line) == []


def test_a_wrapped_item_keeps_its_place_and_words_that_start_items() -> None:
    item = "1. " + "word " * 18 + "and - not an item, " + "`code with spaces` " * 4
    lines = wrapped(f"first\n\n{item}\n- second\n").splitlines()
    assert long_lines(f"first\n\n{item}") == [3]
    assert lines[:2] == ["first", ""]
    assert lines[-1] == "- second"
    assert all(line.startswith("   ") for line in lines[3:-1])
    assert not any(line.strip().startswith("- not") for line in lines)
    assert " ".join(line.strip() for line in lines[2:-1]) == item.strip()


@pytest.mark.sources
def test_no_hint_names_a_distribution_that_is_not_registered() -> None:
    """``pip install 'gehost[verify]'`` would install whatever a stranger registers as gehost."""
    files = [
        *ROOT.glob("gehost/**/*.py"),
        *ROOT.glob("plugins/**/*.py"),
        *ROOT.glob("vendors/**/*.py"),
        *ROOT.glob("docs/**/*.md"),
        ROOT / "README.md",
    ]
    assert len(files) > 300
    hints = ("install gehost", "install 'gehost", 'install "gehost', "install gehost-")
    assert [file.name for file in files if any(hint in file.read_text() for hint in hints)] == []
