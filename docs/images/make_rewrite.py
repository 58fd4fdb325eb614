"""Draw rewrite.svg: the report's picture of the tutorial's first rewrite, before and after side by
side.

Run with the directory of the tutorial's files: ``python docs/images/make_rewrite.py DIRECTORY``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from gehost.cli import run

PALETTE = r"--(\w+): (#[0-9a-f]+)"


def main(directory: Path) -> None:
    with TemporaryDirectory() as scratch:
        report = Path(scratch, "report.html")
        model, vendors = str(directory / "mlp.onnx"), str(directory / "vendors")
        arguments = [
            model,
            "-o",
            f"{scratch}/out.onnx",
            "--vendors",
            vendors,
            "--report",
            str(report),
        ]
        if run(["compile", *arguments]):
            sys.exit("the compile failed")
        page = report.read_text(encoding="utf-8")
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    arrow = re.search(r"<defs>.*?</defs>", page, re.DOTALL)
    pair = [
        re.search(
            rf'<svg width="(\d+)" height="(\d+)"[^>]*aria-label="{name}.*?>(.*?)</svg>',
            page,
            re.DOTALL,
        )
        for name in ("Before", "After")
    ]
    assert style is not None
    assert arrow is not None
    assert all(pair)
    before, after = pair
    colours = dict(re.findall(PALETTE, style[1].split("@media")[0]))
    rules = "\n".join(
        line
        for line in style[1].split("@media print")[0].splitlines()
        if re.match(r"\.(edge|head|box|label)", line)
    )
    rules = re.sub(
        r"var\(--(\w+)\)",
        lambda m: colours.get(m[1], "ui-monospace, Menlo, Consolas, monospace"),
        rules,
    )
    gap, rest, height = 80, int(before[1]), max(int(before[2]), int(after[2]))
    width = rest + gap + int(after[1])
    middle = (height - int(after[2])) // 2
    box = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    name = 'role="img" aria-label="A rewrite, before and after"'
    text = f"""<svg xmlns="http://www.w3.org/2000/svg" {box} {name}>
<style>{rules}</style>{arrow[0]}
<rect width="{width}" height="{height}" rx="8" fill="{colours["raised"]}"/>
<g>{before[3]}</g>
<path class="edge" d="M{rest + 12} {height // 2}H{rest + gap - 12}" marker-end="url(#arrow)"/>
<g transform="translate({rest + gap} {middle})">{after[3]}</g>
</svg>
"""
    Path(__file__).with_name("rewrite.svg").write_text(
        re.sub(r"<title>.*?</title>", "", text, flags=re.DOTALL), encoding="utf-8"
    )


main(Path(sys.argv[1]))
