"""``python -m tools.reference``: compare the reference evaluator with ONNX Runtime.

Writes the table of every operator and version that gehost uses.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import click

from gehost.verify import reference_table
from tools.reference.sweep import DIFFERS, EQUAL, FAILS, Seen, look, targets
from tools.sizes.runner import each

_PACKAGES = ("onnx", "onnxruntime")
_FEW = 3
"""Wrong cases that do not suffice to say which attribute they need."""


@click.command()
@click.option("--cases", default=60, show_default=True, help="Cases of each version.")
@click.option("--processes", default=2, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=reference_table.__file__)
def main(cases: int, processes: int, output: Path) -> None:
    """Compare the reference evaluator with ONNX Runtime, and write the table."""
    visited: list[Seen] = []
    for outcome in each(look, range(cases * len(targets())), processes):
        if outcome.failure:
            click.echo(f"case {outcome.number}: {outcome.failure.strip().splitlines()[-1]}")
        else:
            visited.append(outcome.result)
    Path(output).write_text(table(visited), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(output)], check=True)
    for wrong in (one for one in visited if one.verdict == DIFFERS):
        click.echo(f"{wrong.op} of opset {wrong.since} {sorted(wrong.attributes)} {wrong.about}")
    click.echo(str(Counter(item.verdict for item in visited)))


def table(visited: Iterable[Seen]) -> str:
    """The text of the module: a line for each operator and version."""
    by_version: dict[str, dict[int, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    for one in visited:
        by_version[one.op][one.since].append(one)
    lines = [f'"""{reference_table.__doc__}"""\n\n', _HEAD]
    lines.append(
        f"VERSIONS: Mapping[str, str] = MappingProxyType({ {name: version(name) for name in _PACKAGES}!r})\n"
    )
    lines.append('"""The versions that were compared."""\n\n')
    lines.append("TABLE: Mapping[str, Mapping[int, Compared]] = MappingProxyType({\n")
    for op, versions in sorted(by_version.items()):
        rows = ", ".join(f"{since}: {_row(cases)}" for since, cases in sorted(versions.items()))
        lines.append(f"{op!r}: {{{rows}}},\n")
    lines.append("})\n")
    return "".join(lines)


_HEAD = """from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Compared(NamedTuple):
    \"\"\"Cases of one version of an operator that ONNX Runtime runs.\"\"\"

    equal: int
    wrong: int
    \"\"\"The reference evaluator gives other numbers, types or shapes.\"\"\"
    fails: int
    when: str = ""
    \"\"\"An attribute that all wrong ones have, and not all others; "" for none.\"\"\"


"""


def _row(cases: Sequence[Seen]) -> str:
    counts = Counter(case.verdict for case in cases)
    when = condition(cases)
    numbers = f"{counts[EQUAL]}, {counts[DIFFERS]}, {counts[FAILS]}"
    return f"Compared({numbers}{f', {when!r}' if when else ''})"


def condition(cases: Sequence[Seen]) -> str:
    """The attribute that all wrong cases have and most right ones lack; "" if there is none."""
    wrong = [case.attributes for case in cases if case.verdict == DIFFERS]
    right = [case.attributes for case in cases if case.verdict == EQUAL]
    if len(wrong) < _FEW:
        return ""
    shared = frozenset.intersection(*wrong)
    counts = {name: sum(name in attributes for attributes in right) for name in sorted(shared)}
    best = min(counts, key=lambda name: counts[name], default="")
    return best if best and counts[best] < len(right) else ""


if __name__ == "__main__":
    main()
