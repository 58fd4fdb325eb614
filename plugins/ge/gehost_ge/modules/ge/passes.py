"""``ge.passes``."""

from gehost_ge.graph import NodeIo
from gehost_ge.passes import (
    DecomposePass,
    FusionBasePass,
    PassStage,
    PatternFusionPass,
    pattern,
    register_decompose_pass,
    register_fusion_pass,
)
from gehost_ge.patterns import (
    MatchResult,
    Pattern,
    PatternMatcherConfig,
    PatternMatcherConfigBuilder,
    capture_tensor,
    create_pattern,
    create_replacement,
)
from gehost_ge.registered import (
    clear_registered_passes,
    get_registered_pass_by_descriptor_key,
    get_registered_pass_dicts,
    get_registered_passes,
)
from gehost_ge.rewriting import (
    PassContext,
    SubgraphBoundary,
    SubgraphInput,
    SubgraphOutput,
    SubgraphRewriter,
    can_fuse,
    report_fuse,
    report_match,
)

__all__ = [
    "DecomposePass",
    "FusionBasePass",
    "MatchResult",
    "NodeIo",
    "PassContext",
    "PassStage",
    "Pattern",
    "PatternFusionPass",
    "PatternMatcherConfig",
    "PatternMatcherConfigBuilder",
    "SubgraphBoundary",
    "SubgraphInput",
    "SubgraphOutput",
    "SubgraphRewriter",
    "can_fuse",
    "capture_tensor",
    "clear_registered_passes",
    "create_pattern",
    "create_replacement",
    "get_registered_pass_by_descriptor_key",
    "get_registered_pass_dicts",
    "get_registered_passes",
    "pattern",
    "register_decompose_pass",
    "register_fusion_pass",
    "report_fuse",
    "report_match",
]
