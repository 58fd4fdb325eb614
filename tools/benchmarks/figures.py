"""What is compared with what on generated graphs, and the goals."""

from __future__ import annotations

from dataclasses import dataclass

QUICK_SIZES = (1_000, 10_000)
QUICK_MODELS = ("bert.ts", "vit.dyn", "light_resnet50", "resnet50.ts")
SIZES = (1_000, 4_000, 10_000, 30_000, 100_000, 300_000)
EXPLAINED = {
    "MatMulAddToGemmPass": "matmul_add",
    "GeluFusionPass": "gelu",
    "LayerNormalizationFusionPass": "layer_norm",
}
"""Passes of ``vendors/`` that are run and explained, and the sites that they rewrite."""
STYLED = ("transposes", "add_zero", "casts", "linear", "layer_norm")
"""Rules that are said in each of ``STYLES``."""
STYLES = ("ge", "drr", "traced")
STYLES_LARGEST = 100_000
"""The largest graph that styles are compared on."""
WIDE = ("wide_concat", "wide_split", "wide_equal")
WIDE_SIZES = (1_000, 10_000, 100_000)
"""Inputs or outputs of one node."""


@dataclass(frozen=True)
class Goal:
    """A bound on cost relative to the peer: at most so many times it, or so many times less than it."""

    bound: float
    size: int = 100_000
    faster: bool = False

    def met(self, own: float, other: float) -> bool:
        return own * self.bound <= other if self.faster else own <= self.bound * other

    def __str__(self) -> str:
        return f"≥ {self.bound:g} × faster" if self.faster else f"≤ {self.bound:g} ×"


@dataclass(frozen=True)
class Figure:
    """One row: a task of gehost's, and the peers' tasks that do the same (several: one after the other, added up)."""

    title: str
    own: str
    peers: tuple[str, ...] = ()
    goal: Goal | None = None
    graph: str = "decoder"
    sites: tuple[str, ...] = ()
    """The rules whose sites must all have been rewritten, on both sides."""
    memory: bool = False
    """Compare peak memory instead of CPU time."""

    @property
    def section(self) -> str:
        if self.graph in WIDE:
            return "wide"
        return "memory" if self.memory else "styles" if self.graph == "styles" else "graph"

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.own, *self.peers)


_THREE = ("matmul_add", "layer_norm", "gelu")
_FLOOR = ("onnx.load", "onnx.infer", "onnx.save")
_FIVE = Goal(5, faster=True)
_IDLE = Goal(50, faster=True)
EQUAL = Goal(1.05)
"""Of a rule's cost in another style to that of GE's class; two runs of one task differ by as much."""

FIGURES = (
    Figure("load + index", "gehost.load", ("onnx.load",), Goal(3)),
    Figure("load + index", "gehost.load", ("onnx_ir.load",)),
    Figure("shape inference", "gehost.infer", ("onnx.infer",)),
    Figure("save", "gehost.save", ("onnx.save",)),
    Figure("save", "gehost.save", ("onnx_ir.save",)),
    Figure(
        "rule MatMul + Add",
        "gehost.matmul_add",
        ("onnxscript.matmul_add",),
        _FIVE,
        sites=("matmul_add",),
    ),
    Figure(
        "rule LayerNorm, 9 nodes",
        "gehost.layer_norm",
        ("onnxscript.layer_norm",),
        _FIVE,
        sites=("layer_norm",),
    ),
    Figure("rule Gelu, 5 nodes", "gehost.gelu", ("onnxscript.gelu",), _FIVE, sites=("gelu",)),
    Figure("the three rules", "gehost.three", ("onnxscript.three",), _FIVE, sites=_THREE),
    Figure(
        "idle rule, operators present", "gehost.idle_present", ("onnxscript.idle_present",), _IDLE
    ),
    Figure("idle rule, operators absent", "gehost.idle_absent", ("onnxscript.idle_absent",), _IDLE),
    Figure("5 rules of mixed size", "gehost.mixed_5", ("onnxscript.mixed_5",), sites=_THREE),
    Figure("100 rules of mixed size", "gehost.mixed_100", ("onnxscript.mixed_100",), sites=_THREE),
    Figure("100 rules against 5", "gehost.mixed_100", ("gehost.mixed_5",), Goal(3), sites=_THREE),
    Figure(
        "sibling rule",
        "gehost.siblings",
        ("onnxscript.siblings",),
        Goal(100, 4_000, faster=True),
        "siblings",
        ("siblings",),
    ),
    Figure(
        "sibling rule, mirrored",
        "gehost.mirrored",
        ("onnxscript.mirrored",),
        Goal(100, 4_000, faster=True),
        "mirrored",
        ("siblings",),
    ),
    Figure("whole compile", "gehost.compile", _FLOOR, Goal(3), sites=_THREE),
    *(
        Figure(
            f"explain, {name}",
            f"gehost.explained.{name}",
            (f"gehost.plain.{name}",),
            Goal(3),
            sites=(site,),
        )
        for name, site in EXPLAINED.items()
    ),
    Figure("load, three rules, save", "gehost.rewrite", ("onnxscript.rewrite",), sites=_THREE),
    Figure(
        "memory: load, rules, save",
        "gehost.rewrite",
        ("onnx.load",),
        Goal(3),
        sites=_THREE,
        memory=True,
    ),
    Figure(
        "memory: load, rules, save",
        "gehost.rewrite",
        ("onnxscript.rewrite",),
        sites=_THREE,
        memory=True,
    ),
    Figure(
        "memory: whole compile",
        "gehost.compile",
        ("onnx.load",),
        Goal(5),
        sites=_THREE,
        memory=True,
    ),
    Figure("Concat, Relu", "gehost.wide_concat", graph="wide_concat", sites=("wide_concat",)),
    Figure("Split, Relu of each, Sum", "gehost.wide_split", graph="wide_split"),
    Figure("equal Neg, Concat", "gehost.wide_equal", graph="wide_equal"),
    *(Figure(f"{rule}, ge", f"gehost.{rule}.ge", graph="styles", sites=(rule,)) for rule in STYLED),
    *(
        Figure(
            f"{rule}, {style}",
            f"gehost.{rule}.{style}",
            (f"gehost.{rule}.ge",),
            EQUAL,
            "styles",
            (rule,),
        )
        for rule in STYLED
        for style in STYLES[1:]
    ),
)

OPTIMIZERS = (
    "ort.basic",
    "ort.extended",
    "onnxscript.optimizer",
    "onnxsim",
    "onnxslim",
    "onnxoptimizer",
)
"""Whole optimizers, which do other work than the three rules; for scale, beside gehost's whole compile."""

GROWTH = {
    "gehost.load": ("time", "memory"),
    "gehost.three": ("time",),
    "gehost.rewrite": ("time", "memory"),
    "gehost.compile": ("time", "memory"),
}
"""Cost a node at 300k nodes is at most 1.5 times that at 10k; memory where the model is loaded inside the measured block."""
GROWTH_BOUND, GROWTH_FROM, GROWTH_TO = 1.5, 10_000, 300_000
