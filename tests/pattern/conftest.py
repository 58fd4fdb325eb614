"""What tests of matching share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx
import pytest

from gehost.es.graph import EsGraphBuilder, EsTensor
from gehost.ir.graph import Node, Value
from gehost.ir.model import Model
from gehost.ops import OpRegistry
from gehost.pattern import match
from gehost.pattern.explain.reference_matcher import ReferenceMatcher
from gehost.pattern.match import MatchResult, PatternMatcher
from gehost.pattern.matcher import Binding, CompiledPattern
from gehost.pattern.pattern import Pattern, PatternMatcherConfig
from gehost.pattern.source import SourcePattern

Make = Callable[..., EsTensor | Sequence[EsTensor]]


class Finder:
    """Finds what a function builds from placeholders in graphs of ONNX text.

    Attributes:
        model: the model that was searched last.
    """

    model: Model

    def load(self, text: str, opset: int = 17, ir: int = 10) -> Model:
        self.model = Model(
            onnx.parser.parse_model(
                f'<ir_version: {ir}, opset_import: ["": {opset}, "ge": 1]> {text}'
            )
        )
        return self.model

    @staticmethod
    def pattern(make: Make, inputs: int = 1) -> Pattern:
        builder = EsGraphBuilder("pattern")
        return Pattern(builder.BuildAndReset(make(*builder.CreateInputs(inputs))))

    def matches(
        self,
        text: str,
        make: Make,
        inputs: int = 1,
        *,
        opset: int = 17,
        ir: int = 10,
        registry: OpRegistry | None = None,
        **config: bool,
    ) -> list[MatchResult]:
        model = self.load(text, opset, ir)
        return list(
            PatternMatcher(
                self.pattern(make, inputs), model, PatternMatcherConfig(**config), registry
            )
        )

    def outputs(self, text: str, make: Make, inputs: int = 1, **options: Any) -> list[list[str]]:
        """The names of the matched outputs, match by match."""
        return [
            [value.name for value in match.outputs]
            for match in self.matches(text, make, inputs, **options)
        ]

    def bound(self, text: str, make: Make, inputs: int = 1, **options: Any) -> list[list[str]]:
        """The names of what the placeholders stand for, match by match."""
        return [
            [value.name for value in match.inputs]
            for match in self.matches(text, make, inputs, **options)
        ]


@pytest.fixture
def find() -> Finder:
    return Finder()


class ByReference:
    """The reference matcher in place of the compiled one."""

    def __init__(self, source: SourcePattern) -> None:
        self.source = source
        self.root_ops = CompiledPattern(source).root_ops
        self._matcher = ReferenceMatcher(source)

    def match_at(self, node: Node) -> tuple[Binding | None, list[Value]]:
        return self._matcher.match_at(node), []


@pytest.fixture(params=["compiled", "reference"], autouse=True)
def matcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with both matchers."""
    if request.param == "reference":
        monkeypatch.setattr(match, "CompiledPattern", ByReference)
    return request.param
