"""Doubts from cases: for each operator, few conditions that hold for every wrong size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from unittest import mock

from gehost.infer import local
from gehost.infer.doubts import CONDITIONS, Doubt, Statement, holds
from gehost.ir.node import split_op
from gehost.ir.schemas import history
from gehost.ir.types import ValueType
from tools.sizes.sweep import Seen
from tools.sizes.witnesses import AGREE, DISAGREE, gehost_shapes, who_differs

_VALUES = (
    "auto_pad",
    "ceil_mode",
    "mode",
    "coordinate_transformation_mode",
    "keep_aspect_ratio_policy",
    "sorted",
)
_ATTRIBUTES = ("axes", "axis", "dilations", "output_padding", "output_shape", "pads", "strides")  # fmt: skip
_MOST = 3
"""Conditions of one rule."""
_EASE = 1.0
"""How many further cases each condition of a rule has to explain: rare cases get broad rules."""
_HALF_SEEN = 0.2
"""What a right case counts that one witness alone runs: the other one may have refused it because
of what the doubt is about."""
_ONE_FUNCTION = (
    ("Conv", "ConvInteger", "QLinearConv"),
    ("GRU", "LSTM", "RNN"),
    ("LayerNormalization", "RMSNormalization"),
)
"""Operators whose sizes ONNX infers by one function: a doubt of one is a doubt of all."""


@dataclass
class Rule:
    """A doubt with what was seen of it.

    Attributes:
        wrong: cases in doubt whose sizes were wrong, by number.
        right: how many cases are in doubt although both witnesses agree with their sizes.
        half_seen: how many are in doubt although the only witness that runs them agrees.
    """

    op: str
    doubt: Doubt
    wrong: list[int]
    right: int
    half_seen: int

    @property
    def share(self) -> float:
        """The share of right cases among those that are wrong or that both witnesses run."""
        return self.right / max(self.right + len(self.wrong), 1)


def statement_of(visited: Seen) -> Statement | None:
    """What gehost's inference is asked to believe of a case; None where ONNX is not asked."""
    results: list[Statement] = []

    def record(_: object, __: int, statement: Statement) -> Sequence[ValueType | None]:
        results.append(statement)
        return statement.stated

    assert visited.case is not None
    with mock.patch.object(local, "believed", record):
        gehost_shapes(visited.case, visited.case.model(), {visited.op: ()})
    return results[-1] if results else None


def _names(op: str, statements: Iterable[Statement]) -> list[str]:
    """The conditions that a rule for these cases may have."""
    results: dict[str, None] = {}
    for name, condition in CONDITIONS.items():
        if condition.ops is None or op in condition.ops:
            results[name] = None
    for statement in statements:
        for name in _ATTRIBUTES:
            if name in statement.attributes:
                results[name] = results[f"not {name}"] = None
        for name in _VALUES:
            if name in statement.attributes:
                results[f"{name}={statement.attributes[name]}"] = None
    return list(results)


_ENOUGH = 0.9
"""A share of wrong cases above which a broader rule is better."""


def fit(visited: Sequence[Seen]) -> tuple[list[Rule], list[Seen]]:
    """The rules for all cases, and the cases with wrong sizes that no rule can hold for."""
    by_function: dict[tuple[str, ...], list[Seen]] = {}
    for item in visited:
        if item.verdict in (AGREE, DISAGREE):
            by_function.setdefault(alike(item.op), []).append(item)
    rules: list[Rule] = []
    beyond: list[Seen] = []
    for ops, cases in by_function.items():
        if any(case.verdict == DISAGREE for case in cases):
            result, rest = _fit_operators(ops, cases)
            rules += result
            beyond += rest
    return sorted(rules, key=lambda rule: rule.op), beyond


def alike(op: str) -> tuple[str, ...]:
    """The operators whose sizes ONNX infers as it does this one's, itself included."""
    return next((ops for ops in _ONE_FUNCTION if op in ops), (op,))


def fit_of(
    rules: Sequence[Rule], visited: Sequence[Seen], ops: set[str]
) -> tuple[list[Rule], list[Seen]]:
    """The rules, with those of some operators fitted to more cases."""
    ops = {item for op in ops for item in alike(op)}
    new, beyond = fit([case for case in visited if case.op in ops])
    retained = [rule for rule in rules if rule.op not in ops]
    return sorted([*retained, *new], key=lambda rule: rule.op), beyond


def _fit_operators(ops: Sequence[str], cases: Sequence[Seen]) -> tuple[list[Rule], list[Seen]]:
    statements = [statement_of(case) for case in cases]
    beyond = [
        c for c, s in zip(cases, statements, strict=True) if c.verdict == DISAGREE and s is None
    ]
    entries = [(c, s) for c, s in zip(cases, statements, strict=True) if s is not None]
    wrong = _bits(case.verdict == DISAGREE for case, _ in entries)
    half_seen = _bits(case.verdict == AGREE and len(case.actual or ()) < 2 for case, _ in entries)
    extents = _extents(ops[0], [statement for _, statement in entries], wrong)
    rules: list[Rule] = []
    rest = wrong
    while rest:
        when = max(extents, key=lambda when: _score(when, extents[when], wrong, half_seen, rest))
        extent = extents[when]
        inside = [c for place, (c, _) in enumerate(entries) if extent >> place & 1]
        rules += [_rule(op, when, inside) for op in ops]
        rest &= ~extent
    return rules, beyond


def _bits(flags: Iterable[bool]) -> int:
    """A set of cases, as the bits of a number."""
    return sum(1 << place for place, flag in enumerate(flags) if flag)


def _extents(op: str, statements: Sequence[Statement], wrong: int) -> dict[tuple[str, ...], int]:
    """For each one to three conditions the cases for which all hold, if a wrong one is among them.

    A condition is added to others only where it takes right cases away.
    """
    single: dict[str, int] = {}
    for name in _names(op, statements):
        extent = _bits(holds(name, statement) for statement in statements)
        if extent & wrong:
            single[name] = extent
    results: dict[tuple[str, ...], int] = {(name,): extent for name, extent in single.items()}
    level = dict(results)
    for _ in range(_MOST - 1):
        wider: dict[tuple[str, ...], int] = {}
        for when, extent in level.items():
            for name, other in single.items():
                both = extent & other
                if name > when[-1] and both & wrong and both != extent and both != other:
                    wider[*when, name] = both
        results |= wider
        level = wider
    return results


def _score(
    when: tuple[str, ...], extent: int, wrong: int, half_seen: int, left: int
) -> tuple[float, int]:
    new = (extent & left).bit_count()
    right = (extent & ~wrong & ~half_seen).bit_count() + _HALF_SEEN * (
        extent & half_seen
    ).bit_count()
    share = new / (new + right + _EASE * len(when))
    return min(share, _ENOUGH), new - len(when)


def _rule(op: str, when: tuple[str, ...], cases: Sequence[Seen]) -> Rule:
    """A rule for the opsets between the first and the last at which sizes were wrong.

    Args:
        cases: all for which the conditions hold, of this operator and those like it.
    """
    domain, name = split_op(op)
    starts = [schema.since_version for schema in history(domain, name)]
    wrong = [case for case in cases if case.verdict == DISAGREE]
    opsets = [case.opset for case in wrong]
    first = max((start for start in starts if start <= min(opsets)), default=starts[0])
    later = [start for start in starts if start > max(opsets)]
    last = later[0] - 1 if later else None
    inside = [c for c in cases if c.op == op and first <= c.opset <= (last or c.opset)]
    right = [c for c in inside if c.verdict == AGREE]
    by_both = sum(len(c.actual or ()) == 2 for c in right)
    differs = {name for case in wrong for name in _who_differs(case)}
    doubt = Doubt(first, last, when, min(map(_certain, wrong)), tuple(sorted(differs)))
    mine = [case.number for case in inside if case.verdict == DISAGREE]
    return Rule(op, doubt, mine, by_both, len(right) - by_both)


def _who_differs(visited: Seen) -> set[str]:
    assert visited.case is not None
    assert visited.inferred is not None
    return who_differs(visited.inferred, visited.actual or {}, visited.case.sizes)


def _certain(visited: Seen) -> int:
    """How many leading sizes of a case are right in all outputs; -1 where a rank is wrong."""
    assert visited.case is not None
    assert visited.inferred is not None
    sizes = visited.case.sizes
    results = [
        _agreeing(declared, shape, sizes)
        for shapes in (visited.actual or {}).values()
        for declared, shape in zip(visited.inferred, shapes, strict=True)
        if declared is not None and shape is not None
    ]
    return min(results, default=0)


def _agreeing(
    declared: tuple[int | str | None, ...],
    shape: tuple[int | str | None, ...],
    sizes: Mapping[str, int],
) -> int:
    if len(declared) != len(shape):
        return -1
    for place, (dim, size) in enumerate(zip(declared, shape, strict=True)):
        number = sizes.get(dim) if isinstance(dim, str) else dim
        if number is not None and number != size:
            return place
    return 99


def in_doubt(rules: Sequence[Rule], visited: Seen) -> bool:
    """Whether a rule holds for a case."""
    mine = [rule.doubt for rule in rules if rule.op == visited.op]
    mine = [
        doubt for doubt in mine if doubt.first <= visited.opset <= (doubt.last or visited.opset)
    ]
    statement = statement_of(visited) if mine else None
    return statement is not None and any(
        all(holds(name, statement) for name in doubt.when) for doubt in mine
    )


def table(rules: Sequence[Rule]) -> dict[str, tuple[Doubt, ...]]:
    """The doubts by operator, as gehost has them."""
    results: dict[str, tuple[Doubt, ...]] = {}
    for rule in rules:
        results[rule.op] = (*results.get(rule.op, ()), rule.doubt)
    return results
