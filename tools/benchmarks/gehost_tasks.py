"""What is measured of gehost: one function a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gehost import (
    CompileContext,
    CustomPassContext,
    CustomPassStage,
    Graph,
    Host,
    HostOptions,
    Model,
    PassRecord,
    PassSpec,
    hookimpl,
)
from gehost.diagnose.explain import run as explaining
from gehost.host.ge_style import pass_spec
from gehost.infer import Inferrer, infer_model
from gehost.ops import OpRegistry
from gehost.passes.context import running
from gehost.passes.registration import mark_of
from tests.shipped import EXAMPLES
from tools.benchmarks import gehost_rules as rules
from tools.benchmarks.figures import EXPLAINED, STYLED, STYLES, WIDE
from tools.benchmarks.measured import Measured
from tools.benchmarks.near_misses import IDLE_COPIES
from tools.benchmarks.processes import ROOT

Task = Callable[[str, str], Measured]


class _StageClock:
    """Measures ``kAfterInferShape`` from its first pass on, and counts what its passes replace."""

    def __init__(self) -> None:
        self.measured = Measured(rewrites=0)
        self._block = self.measured.timing()
        self._running = False

    @hookimpl
    def gehost_before_pass(self) -> None:
        if not self._running:
            self._running = True
            self._block.__enter__()

    @hookimpl
    def gehost_after_pass(self, record: PassRecord) -> None:
        assert self.measured.rewrites is not None
        self.measured.rewrites += record.replaced

    @hookimpl
    def gehost_stage_finished(self, context: CompileContext) -> None:
        if context.stage is CustomPassStage.kAfterInferShape:
            self._block.__exit__(None, None, None)


def _host(
    passes: Sequence[PassSpec], plugins: Sequence[tuple[str, object]] = (), *, cleanup: bool = False
) -> Host:
    host = Host(HostOptions(plugins=False, cleanup=cleanup), plugins=plugins)
    for spec in passes:
        host.passes.add(spec)
    return host


def _specs(classes: Sequence[rules.PassClass]) -> list[PassSpec]:
    specs: list[PassSpec] = []
    for cls in classes:
        mark = mark_of(cls)
        assert mark is not None
        specs.append(pass_spec(cls, mark))
    return specs


def _load(path: str, out: str) -> Measured:
    measured = Measured()
    with measured.timing():
        content = Model.load(path)
    del content
    return measured


def _infer(path: str, out: str) -> Measured:
    measured, model = Measured(), Model.load(path)
    with measured.timing():
        failure = infer_model(model, Inferrer(model, OpRegistry()))
    assert failure is None
    return measured


def _save(path: str, out: str) -> Measured:
    measured, model = Measured(), Model.load(path)
    with measured.timing():
        model.save(out)
    return measured


def _rules(passes: Callable[[], Sequence[rules.PassClass]], path: str, out: str) -> Measured:
    """The stage alone: finding, the authors' methods, proofs, commits. Load, inference and checks are not in it."""
    return _stage(_specs(passes()), path, out)


def _style(rule: str, style: str, path: str, out: str) -> Measured:
    """The same of a rule that is said in one of three styles."""
    from tools.benchmarks.style_rules import RULES

    return _stage([RULES[rule].spec(style)], path, out)


def _stage(passes: Sequence[PassSpec], path: str, out: str) -> Measured:
    clock = _StageClock()
    _host(passes, [("clock", clock)]).compile(path, out)
    return clock.measured


def _idle(absent: bool, path: str, out: str) -> Measured:
    """What each further rule costs that matches nothing."""
    measured = _rules(lambda: rules.idle(absent=absent), path, out)
    measured.seconds /= IDLE_COPIES
    return measured


class _PassClock:
    """Measures one pass of a compile, and counts what it replaces."""

    def __init__(self, name: str) -> None:
        self.measured = Measured(rewrites=0)
        self._name = name
        self._block = self.measured.timing()

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec) -> None:
        if spec.name == self._name:
            self._block.__enter__()

    @hookimpl
    def gehost_after_pass(self, spec: PassSpec, record: PassRecord) -> None:
        if spec.name == self._name:
            self._block.__exit__(None, None, None)
            self.measured.rewrites = record.replaced


class _ExplainedClock(explaining._Watch):
    """The same while explain looks on; what it decides after the pass is in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name, None)
        self._clock = _PassClock(name)
        self.measured = self._clock.measured

    @hookimpl
    def gehost_before_pass(self, spec: PassSpec, graph: Graph) -> None:
        self._clock.gehost_before_pass(spec)
        super().gehost_before_pass(spec, graph)

    @hookimpl
    def gehost_after_pass(self, spec: PassSpec, record: PassRecord) -> None:
        try:
            super().gehost_after_pass(spec, record)
        finally:
            self._clock.gehost_after_pass(spec, record)


_VENDORS = HostOptions(vendors=[ROOT / "vendors"], plugins=False, enable=EXAMPLES)


def _plain(name: str, path: str, out: str) -> Measured:
    """A pass of ``vendors/`` after those before it."""
    clock = _PassClock(name)
    Host(_VENDORS, [("clock", clock)]).compile(path, out)
    return clock.measured


def _explained(name: str, path: str, out: str) -> Measured:
    """The same pass in ``gehost explain``; what that costs beside it, before and after, is not in it."""
    # it loads 48 modules, and each one adds to process_state_restored of every pass
    from unittest.mock import patch

    clock = _ExplainedClock(name)
    with patch.object(explaining, "_Watch", lambda *_: clock):
        explaining.explain(path, name, _VENDORS)
    return clock.measured


def _rewrite(path: str, out: str) -> Measured:
    """Load, three rules, save; types are inferred node by node, as whole-model inference would work on a copy."""
    measured = Measured(rewrites=0)
    with measured.timing():
        model, registry = Model.load(path), OpRegistry()
        inferrer = Inferrer(model, registry)
        for node in model.graph.nodes:
            for value, entry in zip(node.outputs, inferrer.node(node), strict=True):
                if value is not None:
                    value.known_type = entry
        for cls in rules.THREE:
            record = PassRecord(cls.__name__, "", "", cls.rewrite_kind)
            context = CustomPassContext(
                model, registry, inferrer, CustomPassStage.kAfterInferShape, record
            )
            with running(context):
                cls().Run(model.graph, context)
            measured.rewrites += record.replaced
            model.commit()
        model.save(out)
    return measured


def _compile(path: str, out: str) -> Measured:
    """A whole compile in a process that has loaded its rules."""
    measured, host = Measured(), _host(_specs(rules.THREE), cleanup=True)
    with measured.timing():
        report = host.compile(path, out)
    measured.rewrites = sum(record.replaced for record in report.passes)
    return measured


def _wide(path: str, out: str) -> Measured:
    """A whole compile with ``vendors/`` of a model in which one node has many inputs or outputs."""
    measured, host = Measured(), Host(_VENDORS)
    with measured.timing():
        report = host.compile(path, out)
    measured.rewrites = sum(record.replaced for record in report.passes)
    return measured


TASKS: dict[str, Task] = {
    **dict.fromkeys(WIDE, _wide),
    "load": _load,
    "infer": _infer,
    "save": _save,
    "matmul_add": partial(_rules, lambda: [rules.MatMulAdd]),
    "layer_norm": partial(_rules, lambda: [rules.LayerNorm]),
    "gelu": partial(_rules, lambda: [rules.Gelu]),
    "three": partial(_rules, lambda: rules.THREE),
    "idle_present": partial(_idle, False),
    "idle_absent": partial(_idle, True),
    "mixed_5": partial(_rules, lambda: rules.mixed(5)),
    "mixed_100": partial(_rules, lambda: rules.mixed(100)),
    "siblings": partial(_rules, lambda: [rules.Siblings]),
    "mirrored": partial(_rules, lambda: [rules.MirroredSiblings]),
    "rewrite": _rewrite,
    "compile": _compile,
    **{f"plain.{name}": partial(_plain, name) for name in EXPLAINED},
    **{f"explained.{name}": partial(_explained, name) for name in EXPLAINED},
    **{f"{rule}.{style}": partial(_style, rule, style) for rule in STYLED for style in STYLES},
}
