"""A fourth style, whole: a rule is two graphs in ONNX's text, what to find and what to put there."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import onnx

from gehost import (
    CustomPassStage,
    EsGraph,
    EsGraphBuilder,
    MatchResult,
    PassRegistry,
    PassSpec,
    Pattern,
    PatternFusionPass,
    es,
    hookimpl,
)


class TextRule:
    def __init__(self, source: str, result: str) -> None:
        self.origin = es.author_origin(__file__)
        self.source, self.result = source, result

    def graph(self, text: str, *, pattern: bool = False) -> EsGraph:
        parsed = onnx.parser.parse_graph(text)
        with es.written_at(self.origin):
            builder = EsGraphBuilder(parsed.name)
            result = dict(
                zip(
                    [entry.name for entry in parsed.input],
                    builder.CreateInputs(len(parsed.input)),
                    strict=True,
                )
            )
            for node in parsed.node:
                attributes = {
                    entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute
                }
                tensor = es.op(node.op_type)(
                    *[result[name] for name in node.input], **({} if pattern else attributes)
                )
                result[node.output[0]] = es.constrain(tensor, **attributes) if pattern else tensor
            return builder.BuildAndReset([result[entry.name] for entry in parsed.output])


class TextPass(PatternFusionPass):
    def __init__(self, rule: TextRule) -> None:
        super().__init__()
        self.rule = rule

    def Patterns(self) -> list[Pattern]:
        return [Pattern(self.rule.graph(self.rule.source, pattern=True))]

    def Replacement(self, match: MatchResult) -> EsGraph:
        return self.rule.graph(self.rule.result)


@hookimpl
def gehost_collect_passes(module: ModuleType, registry: PassRegistry) -> None:
    for name, rule in vars(module).items():
        if isinstance(rule, TextRule):
            stage, origin = CustomPassStage.kAfterInferShape, str(rule.origin)
            registry.add(
                PassSpec(name, stage, origin, "text", partial(TextPass, rule), trusted=True)
            )
