"""How strictly a pass's patterns match: GE's ``PatternMatcherConfig`` and its builder."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class PatternMatcherConfig:
    """What a pattern asks besides its structure; by default nothing."""

    const_value_match: bool = False
    """Constants must have equal dtype, shape and bytes (or lie within the tolerance they state)."""
    ir_attr_match: bool = False
    """All attributes must be equal; an absent one counts as its default."""
    commutative_match: bool = False
    """Operands of operators known to commute may stand in any order."""


class PatternMatcherConfigBuilder:
    """Builds a ``PatternMatcherConfig`` step by step."""

    def __init__(self) -> None:
        self._config = PatternMatcherConfig()

    def EnableConstValueMatch(self) -> PatternMatcherConfigBuilder:
        self._config = replace(self._config, const_value_match=True)
        return self

    def EnableIrAttrMatch(self) -> PatternMatcherConfigBuilder:
        self._config = replace(self._config, ir_attr_match=True)
        return self

    def EnableCommutativeMatch(self) -> PatternMatcherConfigBuilder:
        self._config = replace(self._config, commutative_match=True)
        return self

    def Build(self) -> PatternMatcherConfig:
        return self._config
