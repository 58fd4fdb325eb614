"""Rules on small models, without a vendor directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from gehost import Graph, Host, HostOptions, PassRecord, PatternError
from gehost.testing import parse
from gehost_drr import (
    ApplyPatternsGreedily,
    DrrPatternContext,
    DrrRule,
    FrozenRewritePatternSet,
    GreedyResult,
    GreedyRewriteConfig,
    Pass,
    RewritePatternSet,
    drr,
)
from tests.conftest import no_default_vendors, vendors  # noqa: F401 - fixtures

HEAD = '<ir_version: 8, opset_import: ["" : {opset}, "acme" : 1]>\nmain '


def model_of(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model of ONNX text without its header."""
    return parse(HEAD.format(opset=opset) + text)


def ops_of(model: onnx.ModelProto) -> dict[str, int]:
    return dict(Counter(node.op_type for node in model.graph.node))


@dataclass(frozen=True)
class Applied:
    model: onnx.ModelProto
    record: PassRecord

    @property
    def ops(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]


Apply = Callable[..., Applied]


@pytest.fixture
def apply() -> Apply:
    def run(rule: DrrRule, text: str, opset: int = 17) -> Applied:
        """Run one rule as a pass of its own."""
        host = Host(HostOptions(plugins=False, cleanup=False))
        host.passes.add(rule.spec())
        model, report = host.run(model_of(text, opset))
        return Applied(model, report.passes[0])

    return run


@pytest.fixture
def refused() -> Callable[..., None]:
    def check(
        define: Callable[..., Any], message: str, at: str, *, published: bool = False
    ) -> None:
        """Defining the rule fails with ``message``, at the line of this function that holds ``at``."""
        code = define.__code__
        lines = Path(code.co_filename).read_text(encoding="utf-8").splitlines()
        line = next(
            number
            for number in range(code.co_firstlineno, len(lines) + 1)
            if at in lines[number - 1]
        )
        with pytest.raises(PatternError) as caught:
            define(DrrPatternContext()) if published else drr.rule()(define)
        assert str(caught.value).startswith(f"{code.co_filename}:{line}: "), str(caught.value)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    return check


# -- rules and passes for the pass manager ---------------------------------------------------------------------------

CHAIN = "(float[2] x) => (float[2] y) { a = Relu(x) b = Abs(a) y = Neg(b) }"


def replace(old: str, new: str, name: str = "", **options: Any) -> Any:
    """A rule that replaces one unary operator by another."""

    @drr.rule(name=name or f"{old}_to_{new}", **options)
    def rule(pat: Any, res: Any) -> None:
        pat.y = pat.Op(old)(pat.x)
        res.y = res.Op(new)(res.x)

    return rule


class Greedy(Pass):
    """Runs rules, and keeps what the driver said."""

    def __init__(
        self, *rules: Any, config: GreedyRewriteConfig | None = None, **labels: Any
    ) -> None:
        self.patterns = FrozenRewritePatternSet(RewritePatternSet(*rules), **labels)
        self.config = config
        self.said: list[GreedyResult] = []

    def Run(self, graph: Graph) -> None:
        self.said.append(ApplyPatternsGreedily(graph, self.patterns, self.config))
