"""Passes as vendors write them, in a line each."""

from __future__ import annotations

from dataclasses import dataclass

PASS = """
@REG_FUSION_PASS(stage=CustomPassStage.{stage}{registration})
class {name}(PatternFusionPass):
    def __init__(self):
        super().__init__(PatternMatcherConfigBuilder(){config}.Build())

    def Patterns(self):
        builder = EsGraphBuilder("p")
        x, y, z = [builder.CreateInput(i{asks}) for i in range({inputs})] + [None] * (3 - {inputs})
        return [Pattern(builder.BuildAndReset({pattern}))]

    def MeetRequirements(self, match):
        {meet}

    def Replacement(self, match):
        builder = EsGraphBuilder("r")
        x, y, z = [builder.CreateInput(i) for i in range({inputs})] + [None] * (3 - {inputs})
        return builder.BuildAndReset({replacement})
"""


@dataclass(frozen=True)
class Pass:
    """A pass: ``pattern`` and ``replacement`` are code over placeholders x, y and z."""

    pattern: str
    inputs: int = 1
    replacement: str = "es.Sin(x)"
    meet: str = "return True"
    config: str = ""
    asks: str = ""
    stage: str = "kAfterInferShape"
    registration: str = ""

    def code(self, name: str = "P") -> str:
        return PASS.format(name=name, **vars(self))
