"""``ge.es.graph_builder``."""

from gehost_ge.builder import (
    GraphBuilder,
    InputType,
    TensorHolder,
    attr_scope,
    control_dependency_scope,
)

__all__ = ["GraphBuilder", "InputType", "TensorHolder", "attr_scope", "control_dependency_scope"]
