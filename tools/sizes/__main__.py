"""``python -m tools.sizes``: measure which sizes are in doubt, and write the list that gehost uses.

1. Draw cases of every operator, run them, and fit doubts to the sizes that were wrong.
2. Draw new cases: each wrong size has to be in doubt. Otherwise they join the first, and the fit
   is repeated.
3. Compile nodes whose sizes are read behind them: ONNX Runtime's numbers have to stay.

Exit code 1 if a wrong size is not in doubt, a number changed, or gehost failed on a case.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tools.sizes import chains, record
from tools.sizes.fit import Rule, fit, fit_of, in_doubt
from tools.sizes.runner import each
from tools.sizes.sweep import FAILED, Seen, left_out, look
from tools.sizes.witnesses import AGREE, DISAGREE

_FRESH, _CHAINS = 10_000_000, 20_000_000
"""The first numbers of new cases, and of chains."""
_ROUNDS = 8
_AT_ONCE = 5_000
"""Cases after which those so far are kept."""
_GOAL = 0.1
"""The share of right cases that a doubt should have at most."""
_RIGHT = 60
"""Cases whose sizes must stay known, among the witnesses."""


@click.command()
@click.option("--cases", default=160_000, show_default=True, help="Cases to fit to.")
@click.option("--fresh", default=10_000, show_default=True, help="New cases to check the fit.")
@click.option("--chains", "compiled", default=10_000, show_default=True, help="Models to compile.")
@click.option("--processes", default=2, show_default=True)
@click.option("--seed", default=0, show_default=True, help="The first number.")
@click.option(
    "--kept",
    "retained",
    type=click.Path(path_type=Path),
    default=Path("build/sizes/cases.pickle"),
    show_default=True,
    help="Where the cases are kept; those that are there are not run again.",
)
def main(cases: int, fresh: int, compiled: int, processes: int, seed: int, retained: Path) -> None:
    """Measure which of the sizes that ONNX infers are wrong."""
    console = Console(width=120, highlight=False)
    start = time.perf_counter()
    visited = _cases(range(seed, seed + cases), retained, processes, console)
    _print_counts(console, "cases", visited)
    _print_left_out(console, visited)
    rules, beyond = fit(visited)
    for outcome in range(_ROUNDS):
        first = _FRESH + seed + outcome * fresh
        new = _run(look, range(first, first + fresh), processes, console)
        missed = [s for s in new if s.verdict == DISAGREE and not in_doubt(rules, s)]
        console.print(f"{len(new)} new cases, {len(missed)} wrong sizes that are not in doubt")
        for each_one in missed:
            console.print(f"  {_line(each_one)}", markup=False)
        _print_rules(console, rules, new)
        if not missed:
            break
        visited += new
        rules, beyond = fit_of(rules, visited, {s.op for s in missed})
    record.write_list(rules)
    right = [s for s in new if s.verdict == AGREE and not in_doubt(rules, s)]
    record.write_witnesses(rules, visited, right[:: max(1, len(right) // _RIGHT)])
    for case in beyond:
        console.print(f"no doubt can hold for {_line(case)}", style="red", markup=False)
    wrong = _compile(range(_CHAINS + seed, _CHAINS + seed + compiled), processes, console)
    console.print(f"{time.perf_counter() - start:.0f} s on {processes} processes")
    failed = [case for case in visited if case.verdict == FAILED]
    for case in failed:
        console.print(f"gehost fails on {_line(case)} {case.refused}", style="red", markup=False)
    sys.exit(bool(missed or beyond or wrong or failed))


def _cases(numbers: range, retained: Path, processes: int, console: Console) -> list[Seen]:
    """Run the cases that are not kept yet."""
    visited: list[Seen] = pickle.loads(retained.read_bytes()) if retained.exists() else []
    first = max(
        (case.number + 1 for case in visited if case.number in numbers), default=numbers.start
    )
    for start in range(first, numbers.stop, _AT_ONCE):
        visited += _run(look, range(start, min(start + _AT_ONCE, numbers.stop)), processes, console)
        retained.parent.mkdir(parents=True, exist_ok=True)
        retained.write_bytes(pickle.dumps(visited))
        console.print(f"{len(visited)} of {len(numbers)} cases")
    return [case for case in visited if case.number in numbers]


def _run(work: Callable[[int], Any], numbers: range, processes: int, console: Console) -> list[Any]:
    results: list[Any] = []
    for outcome in each(work, numbers, processes):
        if outcome.failure:
            reason = outcome.failure.strip().splitlines()[-1]
            console.print(f"case {outcome.number}: {reason}", style="yellow", markup=False)
        else:
            results.append(outcome.result)
    return results


def _compile(numbers: range, processes: int, console: Console) -> list[chains.Chain]:
    """Compile chains; returns those whose numbers changed."""
    results = _run(chains.run, numbers, processes, console)
    counts = Counter(chain.verdict for chain in results)
    console.print(f"{len(results)} models compiled: {dict(counts.most_common())}")
    wrong = [chain for chain in results if chain.verdict == chains.WRONG]
    for chain in wrong:
        console.print(f"  {chain.number} {chain.op}: {chain.about}", style="red", markup=False)
    return wrong


def _print_counts(console: Console, title: str, visited: Sequence[Seen]) -> None:
    by_verdict = Counter(case.verdict for case in visited)
    by_onnx = Counter(case.by_onnx_verdict for case in visited)
    table = Table("verdict", "gehost without doubts", "onnx", title=title, box=SIMPLE)
    for verdict in dict.fromkeys([*by_verdict, *by_onnx]):
        table.add_row(verdict, str(by_verdict[verdict]), str(by_onnx[verdict]))
    console.print(table)
    ran = Counter(name for case in visited for name in case.actual or ())
    console.print(
        f"run by {dict(ran)}; {len({(c.op, c.opset) for c in visited})} operators and opsets"
    )


def _print_left_out(console: Console, visited: Sequence[Seen]) -> None:
    """List operators without a case, and those that one witness alone runs, or none."""
    for reason, ops in left_out(visited).items():
        console.print(f"{reason} ({len(ops)}): {', '.join(ops)}", markup=False)


def _print_rules(console: Console, rules: Sequence[Rule], new: Sequence[Seen]) -> None:
    """Show each doubt with the cases in it: when it was fitted, and of the new ones."""
    table = Table(
        "operator",
        "opsets",
        "when",
        "wrong",
        "right",
        "share",
        "right by one",
        "new: wrong",
        "right",
        box=SIMPLE,
    )
    for rule in rules:
        verdicts = Counter(s.verdict for s in new if s.op == rule.op and in_doubt([rule], s))
        opsets = f"{rule.doubt.first}-{rule.doubt.last or ''}"
        numbers = (
            len(rule.wrong),
            rule.right,
            f"{rule.share:.0%}",
            rule.half_seen,
            verdicts[DISAGREE],
            verdicts[AGREE],
        )
        table.add_row(rule.op, opsets, ", ".join(rule.doubt.when), *map(str, numbers))
    console.print(table)
    narrow = sum(rule.share <= _GOAL for rule in rules)
    console.print(f"{narrow} of {len(rules)} doubts hold for at most {_GOAL:.0%} right cases")
    inside = Counter(s.verdict for s in new if in_doubt(rules, s))
    console.print(
        f"in doubt of the new cases: {inside[DISAGREE]} wrong, {inside[AGREE]} right, "
        f"of {sum(s.verdict == AGREE for s in new)} right ones"
    )


def _line(visited: Seen) -> str:
    assert visited.case is not None
    shapes = [getattr(array, "shape", array) for array in visited.case.arrays]
    return f"case {visited.number} {visited.op} {visited.opset} {shapes} {visited.inferred} {visited.actual}"


if __name__ == "__main__":
    main()
