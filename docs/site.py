"""mkdocs hook: pages of the repository that are not in docs/ join the site; links follow them.

``README.md`` is the site's first page; ``vendors/README.md`` and others go below ``repository/``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)#:\s]+)(?P<anchor>#[^)\s]*)?\)")
OTHERS = {
    path.relative_to(ROOT).as_posix(): f"repository/{path.relative_to(ROOT).as_posix()}"
    for pattern in (
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "vendors/**/*.md",
        "plugins/*/*.md",
        "tools/benchmarks/README.md",
    )
    for path in ROOT.glob(pattern)
}
SITE = {"README.md": "index.md", **OTHERS}
"""Repository path to path in the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in SITE.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Leave out what mkdocs-click writes for an option without a default."""
    return html.replace("<code>Sentinel.UNSET</code>", "")


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    sources = {page_path: source for source, page_path in SITE.items()}
    source = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    folder = posixpath.dirname(source)

    def follow(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["target"]))
        if target.startswith("docs/"):
            site = target.removeprefix("docs/")
        elif target in SITE:
            site = SITE[target]
        elif (ROOT / target).exists():
            return f"{link['text']} (`{target}`)"  # a file of the repository that is no page
        else:
            return link[0]  # mkdocs reports it
        return f"{link['text']}(/{site}{link['anchor'] or ''})"

    return LINK.sub(follow, markdown)
