"""What ``gehost check-pass`` takes for each shipped pass, with the options that it has by default."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from rich.table import Table

from gehost import Host, HostOptions
from gehost.cli.check_pass import check_pass as command
from gehost.diagnose.check_pass.run import check_pass
from gehost.diagnose.check_pass.trial import Trial
from tools.benchmarks.processes import ROOT

GOAL = 5.0
"""Seconds for a pass."""


@dataclass
class Checked:
    """One pass: CPU seconds, and what was tried."""

    seconds: float
    told: str


def measure_check_pass() -> dict[str, Checked]:
    """Each shipped pass, one after another in this process; loading the vendors is not counted."""
    options = HostOptions(vendors=[ROOT / "vendors"])
    defaults = {parameter.name: parameter.default for parameter in command.params}
    results: dict[str, Checked] = {}
    for name in Host(options).passes.names():
        trial = Trial.of(name, options)
        start = time.process_time()
        result = check_pass(trial, instances=defaults["instances"], mutations=defaults["mutations"])
        results[name] = Checked(time.process_time() - start, result.summary())
        print(f"check-pass {name}: {results[name].seconds:.2f} s", file=sys.stderr, flush=True)
    return results


def check_pass_table(results: dict[str, Checked]) -> Table:
    table = Table("pass", "CPU s", f"≤ {GOAL:g} s", "tried", title="check-pass")
    for name, checked in sorted(results.items(), key=lambda item: -item[1].seconds):
        met = "yes" if checked.seconds <= GOAL else "NO"
        table.add_row(name, f"{checked.seconds:.1f}", met, checked.told)
    return table
