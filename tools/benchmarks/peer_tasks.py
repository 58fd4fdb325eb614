"""What is measured of the peers; each imports what it needs, outside the measured block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tools.benchmarks.measured import Measured
from tools.benchmarks.near_misses import IDLE_COPIES

Task = Callable[[str, str], Measured]


def _onnx_load(path: str, out: str) -> Measured:
    import onnx

    measured = Measured()
    with measured.timing():
        content = onnx.load(path)
    del content
    return measured


def _onnx_save(path: str, out: str) -> Measured:
    import onnx

    measured, model = Measured(), onnx.load(path)
    with measured.timing():
        onnx.save(model, out)
    return measured


def _onnx_infer(path: str, out: str) -> Measured:
    import onnx
    import onnx.shape_inference

    measured, model = Measured(), onnx.load(path)
    with measured.timing():
        onnx.shape_inference.infer_shapes(model)
    return measured


def _ir_load(path: str, out: str) -> Measured:
    import onnx_ir

    measured = Measured()
    with measured.timing():
        content = onnx_ir.load(path)
    del content
    return measured


def _ir_save(path: str, out: str) -> Measured:
    import onnx_ir

    measured, model = Measured(), onnx_ir.load(path)
    with measured.timing():
        onnx_ir.save(model, out)
    return measured


def _rewriter(rules: Callable[[Any], Sequence[Any]], path: str, out: str) -> Measured:
    """Applying a rule set to a loaded model."""
    import onnx_ir
    from onnxscript.rewriter import RewriteRuleSet

    from tools.benchmarks import onnxscript_rules

    measured, model = Measured(), onnx_ir.load(path)
    rule_set = RewriteRuleSet(rules(onnxscript_rules))
    with measured.timing():
        measured.rewrites = rule_set.apply_to_model(model)
    return measured


def _idle(absent: bool, path: str, out: str) -> Measured:
    measured = _rewriter(lambda rules: rules.idle(absent=absent), path, out)
    measured.seconds /= IDLE_COPIES
    return measured


def _ir_rewrite(path: str, out: str) -> Measured:
    """Load, three rules, save."""
    import onnx_ir
    from onnxscript.rewriter import RewriteRuleSet

    from tools.benchmarks import onnxscript_rules

    measured = Measured()
    with measured.timing():
        model = onnx_ir.load(path)
        measured.rewrites = RewriteRuleSet(
            [rule.rule() for rule in onnxscript_rules.THREE]
        ).apply_to_model(model)
        onnx_ir.save(model, out)
    return measured


def _runtime(level: str, path: str, out: str) -> Measured:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = out
    options.log_severity_level = 3
    measured = Measured()
    with measured.timing():
        ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return measured


def _optimizer(path: str, out: str) -> Measured:
    import onnx_ir
    import onnxscript.optimizer

    measured, model = Measured(), onnx_ir.load(path)
    with measured.timing():
        onnxscript.optimizer.optimize(model)
    return measured


def _onnxsim(path: str, out: str) -> Measured:
    import onnx
    import onnxsim

    measured, model = Measured(), onnx.load(path)
    with measured.timing():
        onnxsim.simplify(model)
    return measured


def _onnxslim(path: str, out: str) -> Measured:
    import onnx
    import onnxslim

    measured, model = Measured(), onnx.load(path)
    with measured.timing():
        onnxslim.slim(model)
    return measured


def _onnxoptimizer(path: str, out: str) -> Measured:
    import onnx
    import onnxoptimizer

    measured, model = Measured(), onnx.load(path)
    with measured.timing():
        onnxoptimizer.optimize(model)
    return measured


TASKS: dict[str, Task] = {
    "onnx.load": _onnx_load,
    "onnx.save": _onnx_save,
    "onnx.infer": _onnx_infer,
    "onnx_ir.load": _ir_load,
    "onnx_ir.save": _ir_save,
    "onnxscript.matmul_add": partial(_rewriter, lambda rules: [rules.MatMulAdd.rule()]),
    "onnxscript.layer_norm": partial(_rewriter, lambda rules: [rules.LayerNorm.rule()]),
    "onnxscript.gelu": partial(_rewriter, lambda rules: [rules.Gelu.rule()]),
    "onnxscript.three": partial(_rewriter, lambda rules: [rule.rule() for rule in rules.THREE]),
    "onnxscript.idle_present": partial(_idle, False),
    "onnxscript.idle_absent": partial(_idle, True),
    "onnxscript.mixed_5": partial(_rewriter, lambda rules: rules.mixed(5)),
    "onnxscript.mixed_100": partial(_rewriter, lambda rules: rules.mixed(100)),
    "onnxscript.siblings": partial(_rewriter, lambda rules: [rules.Siblings.rule()]),
    "onnxscript.mirrored": partial(_rewriter, lambda rules: [rules.MirroredSiblings.rule()]),
    "onnxscript.rewrite": _ir_rewrite,
    "ort.basic": partial(_runtime, "ORT_ENABLE_BASIC"),
    "ort.extended": partial(_runtime, "ORT_ENABLE_EXTENDED"),
    "onnxscript.optimizer": _optimizer,
    "onnxsim": _onnxsim,
    "onnxslim": _onnxslim,
    "onnxoptimizer": _onnxoptimizer,
}
