"""gehost: a GE-style, plugin-loaded fusion-pass host for ONNX.

All names are imported on first use, so that ``import gehost`` and ``gehost --help`` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gehost import es, expressions, half, kernels, ops, optimizing, quoting, sizes, tune, verify
    from gehost.cli.output import print_json, print_line, print_notes, print_text
    from gehost.diagnose.report.file import write_report
    from gehost.diagnose.report.recorder import RewriteRecorder
    from gehost.errors import (
        GehostError,
        ModelError,
        NumbersDifferError,
        OutputError,
        PassError,
        PatternError,
        UsageError,
        VendorError,
        one_line,
        outcome,
        printable,
    )
    from gehost.es.graph import EsGraph, EsGraphBuilder, EsTensor
    from gehost.host.context import CompileContext
    from gehost.host.hookspecs import hookimpl
    from gehost.host.host import Host
    from gehost.host.importers import ImporterRegistry
    from gehost.host.model_files import read_model
    from gehost.host.new_pass_styles import StyleRegistry
    from gehost.host.readable import readable
    from gehost.host.registry import PassRegistry, PassSpec
    from gehost.host.report import Report
    from gehost.infer import infer_model
    from gehost.ir import shapes
    from gehost.ir.files.external import external_files
    from gehost.ir.files.save import write_bytes_atomic
    from gehost.ir.ge import NodeIo, Shape, TensorDesc
    from gehost.ir.graph import Graph, Node, Value
    from gehost.ir.graph import Node as GNode
    from gehost.ir.model import Model
    from gehost.ir.region import (
        Region,
        SubgraphBoundary,
        SubgraphInput,
        SubgraphOutput,
    )
    from gehost.ir.types import DataType, TensorType
    from gehost.optimizing.run import Optimized, optimize
    from gehost.options import HostOptions, from_environment
    from gehost.passes.author_errors import author_errors
    from gehost.passes.base import DecomposePass, FusionBasePass, PatternFusionPass
    from gehost.passes.context import CustomPassContext, PassRecord, Rewrite, SubgraphRewriter
    from gehost.passes.fuse_inspector import Fusibility, GraphFuseInspectorUtils
    from gehost.passes.ge_utils import GeUtils
    from gehost.passes.register import REG_DECOMPOSE_PASS, REG_FUSION_PASS
    from gehost.pattern.match import MatchResult, PatternMatcher
    from gehost.pattern.pattern import (
        Pattern,
        PatternMatcherConfig,
        PatternMatcherConfigBuilder,
        VariadicPattern,
    )
    from gehost.refusal import Refusal, Refused
    from gehost.settings import PassOption
    from gehost.shipped import shipped_directory
    from gehost.stages import CustomPassStage
    from gehost.status import (
        FAILED,
        GRAPH_FAILED,
        GRAPH_SUCCESS,
        NOT_CHANGED,
        SUCCESS,
        Status,
    )
    from gehost.tune.sessions import runtime_options, runtime_providers

__version__ = "0.2.0"

try:
    # of the distribution gehost-native
    from gehost.machine_code import VERSION  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
except ModuleNotFoundError:
    pass
else:
    if __version__ != VERSION:
        raise ImportError(
            f"gehost-native {VERSION} is for gehost {VERSION}, this is {__version__}: "
            "install that of this version, or uninstall it"
        )

_MODULES = {
    "cli.output": ("print_json", "print_line", "print_notes", "print_text"),
    "diagnose.report.file": ("write_report",),
    "diagnose.report.recorder": ("RewriteRecorder",),
    "errors": (
        "GehostError",
        "ModelError",
        "NumbersDifferError",
        "OutputError",
        "PassError",
        "PatternError",
        "UsageError",
        "VendorError",
        "one_line",
        "outcome",
        "printable",
    ),
    "es.graph": ("EsGraph", "EsGraphBuilder", "EsTensor"),
    "host.context": ("CompileContext",),
    "host.hookspecs": ("hookimpl",),
    "host.host": ("Host",),
    "host.importers": ("ImporterRegistry",),
    "host.model_files": ("read_model",),
    "host.new_pass_styles": ("StyleRegistry",),
    "host.readable": ("readable",),
    "host.registry": ("PassRegistry", "PassSpec"),
    "host.report": ("Report",),
    "infer": ("infer_model",),
    "ir.files.external": ("external_files",),
    "ir.files.save": ("write_bytes_atomic",),
    "ir.ge": ("NodeIo", "Shape", "TensorDesc"),
    "ir.graph": ("Graph", "Node", "Value"),
    "ir.model": ("Model",),
    "ir.region": ("Region", "SubgraphBoundary", "SubgraphInput", "SubgraphOutput"),
    "ir.types": ("DataType", "TensorType"),
    "optimizing.run": ("Optimized", "optimize"),
    "options": ("HostOptions", "from_environment"),
    "passes.author_errors": ("author_errors",),
    "passes.base": ("DecomposePass", "FusionBasePass", "PatternFusionPass"),
    "passes.context": ("CustomPassContext", "PassRecord", "Rewrite", "SubgraphRewriter"),
    "passes.fuse_inspector": ("Fusibility", "GraphFuseInspectorUtils"),
    "passes.ge_utils": ("GeUtils",),
    "passes.register": ("REG_DECOMPOSE_PASS", "REG_FUSION_PASS"),
    "pattern.match": ("MatchResult", "PatternMatcher"),
    "pattern.pattern": (
        "Pattern",
        "PatternMatcherConfig",
        "PatternMatcherConfigBuilder",
        "VariadicPattern",
    ),
    "refusal": ("Refusal", "Refused"),
    "settings": ("PassOption",),
    "shipped": ("shipped_directory",),
    "stages": ("CustomPassStage",),
    "tune.sessions": ("runtime_options", "runtime_providers"),
    "status": ("FAILED", "GRAPH_FAILED", "GRAPH_SUCCESS", "NOT_CHANGED", "SUCCESS", "Status"),
}
_HOMES = {
    **{name: (module, name) for module, names in _MODULES.items() for name in names},
    "GNode": ("ir.graph", "Node"),
    "es": ("es", None),
    "expressions": ("expressions", None),
    "half": ("half", None),
    "kernels": ("kernels", None),
    "ops": ("ops", None),
    "optimizing": ("optimizing", None),
    "quoting": ("quoting", None),
    "shapes": ("ir.shapes", None),
    "sizes": ("sizes", None),
    "tune": ("tune", None),
    "verify": ("verify", None),
}
"""Name → module and attribute (None: the module itself)."""

__all__ = [
    "FAILED",
    "GRAPH_FAILED",
    "GRAPH_SUCCESS",
    "NOT_CHANGED",
    "REG_DECOMPOSE_PASS",
    "REG_FUSION_PASS",
    "SUCCESS",
    "CompileContext",
    "CustomPassContext",
    "CustomPassStage",
    "DataType",
    "DecomposePass",
    "EsGraph",
    "EsGraphBuilder",
    "EsTensor",
    "Fusibility",
    "FusionBasePass",
    "GNode",
    "GeUtils",
    "GehostError",
    "Graph",
    "GraphFuseInspectorUtils",
    "Host",
    "HostOptions",
    "ImporterRegistry",
    "MatchResult",
    "Model",
    "ModelError",
    "Node",
    "NodeIo",
    "NumbersDifferError",
    "Optimized",
    "OutputError",
    "PassError",
    "PassOption",
    "PassRecord",
    "PassRegistry",
    "PassSpec",
    "Pattern",
    "PatternError",
    "PatternFusionPass",
    "PatternMatcher",
    "PatternMatcherConfig",
    "PatternMatcherConfigBuilder",
    "Refusal",
    "Refused",
    "Region",
    "Report",
    "Rewrite",
    "RewriteRecorder",
    "Shape",
    "Status",
    "StyleRegistry",
    "SubgraphBoundary",
    "SubgraphInput",
    "SubgraphOutput",
    "SubgraphRewriter",
    "TensorDesc",
    "TensorType",
    "UsageError",
    "Value",
    "VariadicPattern",
    "VendorError",
    "author_errors",
    "es",
    "expressions",
    "external_files",
    "from_environment",
    "half",
    "hookimpl",
    "infer_model",
    "kernels",
    "one_line",
    "ops",
    "optimize",
    "optimizing",
    "outcome",
    "print_json",
    "print_line",
    "print_notes",
    "print_text",
    "printable",
    "quoting",
    "read_model",
    "readable",
    "runtime_options",
    "runtime_providers",
    "shapes",
    "shipped_directory",
    "sizes",
    "tune",
    "verify",
    "write_bytes_atomic",
    "write_report",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gehost' has no attribute {name!r}")
    module, attribute = home
    result: Any = importlib.import_module(f"gehost.{module}")
    if attribute is not None:
        result = getattr(result, attribute)
    globals()[name] = result
    return result
