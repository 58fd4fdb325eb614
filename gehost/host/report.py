"""The report of a compile."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass

from gehost.errors import one_line
from gehost.ir.model import Model
from gehost.page.data import ReportData
from gehost.spelling import counted


@dataclass(repr=False)
class Report(ReportData):
    """The report of one compile.

    ``as_dict`` is its JSON file, a notebook shows its page.
    """

    def __repr__(self) -> str:
        nodes = f"{self.nodes_before} nodes before, {self.nodes_after} after"
        rewrites = sum(record.replaced for record in self.passes)
        ended = f", ended by: {self.error}" if self.error else ""
        return one_line(f"<Report {self.model}: {nodes}, {counted(rewrites, 'rewrite')}{ended}>")

    def _repr_html_(self) -> str:
        """Return the page of ``--report FILE.html``, in a frame of its own."""
        from gehost.page.page import render  # jinja2, which only a notebook needs

        page = render(self)
        return (
            f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: 640px; border: 0" '
            'title="gehost report"></iframe>'
        )


def op_counts(model: Model) -> dict[str, int]:
    """Count nodes by operator, most frequent first, over all graphs."""
    counts: Counter[str] = Counter()
    for graph in model.graphs:
        counts.update({op: len(nodes) for op, nodes in graph.by_op.items() if nodes})
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
