"""Every code block and console block of README and docs/ runs and shows what is printed there.

The blocks of a page run in order, in one directory that is empty but for ``tests/models``. Their info strings say how:

- ``python title="path/of/file.py"``: written to that file; ``text title=`` and ``json title=`` too.
- ``python``: run, with the names of the blocks before it.
- ``console``: each ``$ gehost …``, ``$ python …`` or ``$ pytest …`` runs and ends with exit code 0, or with
  that of a last line ``[exit code N]``; the lines below are its output, where ``…`` stands for anything.
- any other language, and ``no-run``: shown only.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gehost
from gehost import es
from gehost.cli import run
from gehost.cli.check_pass import check_pass
from gehost.ir import graph

ROOT = Path(__file__).parents[1]
PAGES: list[Path] = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    language: str
    title: str | None
    text: str
    line: int
    run: bool


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    actual: list[Block] = []
    for match in BLOCK.finditer(text):
        language, _, rest = match["info"].strip().partition(" ")
        title = re.search(r'title="([^"]+)"', rest)
        body = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start()) + 1
        actual.append(Block(language, title and title[1], body, line, "no-run" not in rest))
    return actual


def in_process(words: list[str]) -> tuple[int, str]:
    """``gehost …``, without starting Python for each: its exit code, and what it prints."""
    with StringIO() as printed, redirect_stdout(printed), redirect_stderr(printed):
        return run(words[1:]), printed.getvalue()


def in_a_process(words: list[str]) -> tuple[int, str]:
    module = {"pytest": ["-m", "pytest", "-p", "no:cacheprovider"], "python": []}[words[0]]
    ended = subprocess.run(
        [sys.executable, *module, *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout


def run_console(block: Block, where: str) -> None:
    steps = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not steps[0].strip(), f"{where}: output before the first command"
    for step in steps[1:]:
        command, _, shown = step.partition("\n")
        shown, code = shown.rstrip("\n"), 0
        if ended := re.search(r"\n?\[exit code (\d+)\]$", shown):
            shown, code = shown[: ended.start()], int(ended[1])
        words = shlex.split(command, comments=True)
        ended_with, printed = (in_process if words[0] == "gehost" else in_a_process)(words)
        # on a loaded machine a command reports its progress
        printed = re.sub(r"^gehost: .* s left\n", "", printed, flags=re.MULTILINE).rstrip()
        assert ended_with == code, f"{where}: $ {command}\n{printed}"
        expected = re.escape(shown.rstrip()).replace("…", ".*")
        assert re.fullmatch(expected, printed, re.DOTALL), (
            f"{where}: $ {command}\nprinted:\n{printed}"
        )


@pytest.fixture
def no_default_vendors() -> None:
    """Commands of a page run with the vendors that users have without naming any."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Passes are checked on few mutations; ``test_the_passes_of_a_page_are_right`` has all."""
    defaults = {parameter.name: parameter for parameter in check_pass.params}
    monkeypatch.setattr(defaults["mutations"], "default", 2)
    run_blocks(page, tmp_path, monkeypatch)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "$ gehost check-pass" in page.read_text(encoding="utf-8")],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_the_passes_of_a_page_are_right(page: Path, tmp_path: Path, monkeypatch: Any) -> None:
    run_blocks(page, tmp_path, monkeypatch)


def run_blocks(page: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GEHOST_VENDORS", "DUMP_GE_GRAPH", "DUMP_GRAPH_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "models").symlink_to(ROOT / "tests" / "models")
    module = ModuleType(f"docs_{page.stem}")  # ops.register and run_pass look for a class's module
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks_of(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if not block.run:
            continue
        if block.title:
            path = tmp_path / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), vars(module))
        elif block.language == "console":
            run_console(block, where)


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
LINKED = [
    ROOT / "README.md",
    *sorted(ROOT.glob("vendors/**/*.md")),
    *PAGES,
    *sorted(ROOT.glob("plugins/*/*.md")),
]


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.+)$", re.sub(BLOCK, "", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.sources
@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for match in LINK.finditer(re.sub(BLOCK, "", page.read_text(encoding="utf-8"))):
        target = match[1] or match[2]
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        actual = (page.parent / path).resolve() if path else page
        assert actual.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors_of(actual), f"{page.name}: {target}"


def test_the_paths_that_architecture_names_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:gehost|plugins|vendors|tests)/[^`]*)`", text)
    installed = Path(gehost.__file__).parents[1]  # beside gehost: the plugins of a wheel
    missing = [
        path
        for path in named
        if not (ROOT / path).exists()
        and not (installed / path).exists()
        and not (installed / re.sub("plugins/[a-z_]+/", "", path)).exists()
    ]
    assert len(named) > 40
    assert missing == []


def test_the_site_lists_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]
    for pattern in ("vendors/**/*.md", "plugins/*/*.md"):
        pages += [f"repository/{page.relative_to(ROOT).as_posix()}" for page in ROOT.glob(pattern)]
    assert [page for page in pages if f": {page}\n" not in nav] == []


@pytest.mark.parametrize("name", gehost.__all__)
def test_the_reference_has_every_public_name(name: str) -> None:
    pages = [ROOT / "docs" / "reference" / f"{page}.md" for page in ("python", "es")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    of_module = rf"^::: gehost\.{name}(\.|$)|`{name}`"
    has_list = re.search(of_module, text, re.MULTILINE) is not None
    error = isinstance(getattr(gehost, name), type) and issubclass(getattr(gehost, name), Exception)
    assert has_list or (error and "::: gehost.errors" in text)


@pytest.mark.parametrize("name", es.__all__)
def test_the_reference_has_every_name_of_es(name: str) -> None:
    text = (ROOT / "docs" / "reference" / "es.md").read_text(encoding="utf-8")
    members = re.search(r"members: \[(.*)\]", text)
    assert members is not None
    assert name in members[1].split(", ") or f"::: gehost.{name}\n" in text


@pytest.mark.parametrize(("offer", "package"), [("`--kernels`", "linalg"), ("gehost zoo", "zoo")])
def test_the_page_for_those_who_have_a_model_names_other_packages(offer: str, package: str) -> None:
    """The wheel of gehost alone refuses what they bring."""
    page = (ROOT / "docs" / "have-a-model.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if offer in line)
    assert f"./plugins/{package}`" in row


def test_the_page_of_names_is_up_to_date() -> None:
    if str(graph.__file__).endswith(".so"):
        pytest.skip("machine code has no defaults")
    maker = ROOT / "docs" / "reference" / "make_names.py"
    result = runpy.run_path(str(maker))["text"]()
    assert maker.with_name("names.md").read_text(encoding="utf-8") == result, f"run python {maker}"


def test_the_reference_has_every_environment_variable_and_exit_code() -> None:
    text = (ROOT / "docs" / "reference" / "files.md").read_text(encoding="utf-8")
    read = "".join(path.read_text() for path in (ROOT / "gehost").rglob("*.py"))
    for name in set(re.findall(r"\"((?:GEHOST|DUMP|OPENBLAS)_[A-Z_]+)\"", read)):
        assert f"`{name}`" in text, name
    for code in {error.exit_code for error in subclasses(gehost.GehostError)}:
        assert f"| {code} |" in text, code


def subclasses(error: type[gehost.GehostError]) -> set[type[gehost.GehostError]]:
    return {error}.union(*(subclasses(item) for item in error.__subclasses__()))
