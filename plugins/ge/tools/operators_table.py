"""Print the table of operators for docs/differences/ge.md, which a test compares.

Run: ``python -m plugins.ge.tools.operators_table``.
"""

from __future__ import annotations

from textwrap import fill

from gehost import es
from gehost_ge.forms import FORMS, REFUSED, RENAMED, SAME, instead_of


def table() -> str:
    """Return the tables in Markdown."""
    same = ", ".join(f"`{name}`" for name in sorted(SAME))
    written = sorted(FORMS.keys() - SAME.keys() - RENAMED.keys())
    rows = [
        f"| `{name}({FORMS[name].published})` | `{onnx}` |"
        for name, (_, onnx) in sorted(RENAMED.items())
    ]
    rows += [f"| `{name}({FORMS[name].published})` | {FORMS[name].here} |" for name in written]
    refused = [
        f"| `{name}` | {REFUSED[name][0]} | {instead_of(name)} |" for name in sorted(REFUSED)
    ]
    own = sorted(set(es.operator_names("")) - FORMS.keys() - REFUSED.keys())
    return "\n".join(
        [
            fill(f"Equal in both, by name and inputs: {same}.", 100),
            "",
            "| GE publishes | ONNX's operator here |",
            "|---|---|",
            *rows,
            "",
            "| refused in a call | GE's inputs and attributes | use |",
            "|---|---|---|",
            *refused,
            "",
            fill(f"Of ONNX alone, in ONNX's form: {', '.join(f'`{name}`' for name in own)}.", 100),
        ]
    )


if __name__ == "__main__":
    print(table())
