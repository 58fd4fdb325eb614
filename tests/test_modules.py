"""Each module has a test file of the same name, or is listed with the test file that covers it."""

from __future__ import annotations

from pathlib import Path

import gehost

ROOT = Path(gehost.__file__).parent
TESTS = Path(__file__).parent

BY_ANOTHER = {
    "diagnose/bisect/test_run.py": [
        "cli/bisect.py", "diagnose/bisect/capture.py", "diagnose/bisect/files.py",
        "diagnose/directory.py",
    ],
    "diagnose/check_pass/test_instances.py": [
        "diagnose/check_pass/shapes.py",
        "diagnose/check_pass/assemble.py", "diagnose/check_pass/candidates.py",
        "diagnose/check_pass/constraints.py", "diagnose/check_pass/parameters.py",
    ],
    "diagnose/check_pass/test_forms.py": ["diagnose/check_pass/coverage.py"],
    "verify/test_telemetry.py": ["verify/onnx_runtime.py"],
    "verify/test_reference.py": ["diagnose/check_pass/engines.py", "verify/reference_table.py"],
    "diagnose/check_pass/test_command.py": [
        "cli/check_pass.py", "diagnose/check_pass/pass_file.py", "diagnose/check_pass/sources.py",
    ],
    "diagnose/check_pass/test_run.py": [
        "diagnose/check_pass/mutations.py", "diagnose/check_pass/trial.py",
        "diagnose/check_pass/verdict.py",
    ],
    "diagnose/explain/test_run.py": [
        "cli/explain.py", "diagnose/explain/account.py", "diagnose/explain/findings.py",
        "diagnose/explain/unproven.py", "diagnose/nodes.py",
    ],
    "diagnose/report/test_recorder.py": ["passes/snapshots.py"],
    "diagnose/test_blame.py": ["cli/blame.py"],
    "diagnose/test_show.py": ["cli/show.py", "diagnose/at_stage.py"],
    "es/test_graph.py": ["es/outputs.py"],
    "half/test_bodies.py": ["half/names.py"],
    "half/test_convert.py": ["half/check.py", "half/operators.py", "half/reasons.py"],
    "half/test_exact.py": ["half/places.py"],
    "host/test_dumper.py": ["host/readable.py", "ir/files/skeleton.py"],
    "passes/cleanup/test_pairs.py": ["passes/cleanup/views.py"],
    "host/test_leftovers.py": ["ir/usage.py"],
    "host/test_host.py": ["host/preparations.py"],
    "host/test_vendors.py": ["host/ge_style.py", "host/loaded.py"],
    "infer/test_local.py": ["infer/calls.py"],
    "infer/test_doubts.py": ["infer/doubtful_sizes.py"],
    "ir/test_graph.py": [
        "ir/flush.py", "ir/index.py", "ir/node.py", "ir/node_table.py",
    ],
    "ir/test_memory.py": ["ir/gc_policy.py"],
    "opset/test_raising.py": ["opset/operation.py"],
    "page/test_page.py": ["page/data.py"],
    "passes/cleanup/test_fold.py": ["ir/constants.py"],
    "passes/cleanup/test_kernels.py": [
        "passes/cleanup/arithmetic.py", "passes/cleanup/call.py", "passes/cleanup/movement.py",
    ],
    "passes/test_base.py": ["status.py"],
    "passes/test_context.py": ["host/context.py"],
    "hostile/test_generators.py": ["quoting.py"],
    "host/test_importers.py": ["host/model_files.py"],
    "passes/test_register.py": ["passes/registration.py", "stages.py"],
    "pattern/explain/test_reference_matcher.py": [
        "pattern/explain/messages.py", "pattern/explain/near_miss.py", "pattern/explain/plan.py",
    ],
    "pattern/test_choices.py": ["pattern/source.py"],
    "pattern/test_lower.py": ["es/opset.py"],
    "pattern/test_match.py": ["pattern/pattern.py"],
    "pattern/test_matcher.py": ["pattern/roots.py"],
    "host/test_switches.py": ["host/compile_stat.py"],
    "rewrite/test_session.py": ["rewrite/comparison.py", "rewrite/insert.py"],
    "sizes/test_scope.py": [
        "sizes/minima.py", "sizes/proofs.py", "sizes/quotients.py", "sizes/size.py",
    ],
    "ir/test_integers.py": [
        "sizes/values.py",
    ],
    "test_cli.py": [
        "cli/compile.py", "cli/new.py", "cli/options.py", "cli/output.py", "cli/passes.py",
        "cli/recording.py", "cli/verify.py",
    ],
    "test_copies.py": ["ir/copies.py"],
    "test_errors.py": ["location.py"],
    "test_kernels.py": ["host/needs.py"],
    "test_scaffold.py": [
        "host/new_pass_styles.py", "scaffold/decompose.py", "scaffold/place.py", "scaffold/styles.py",
        "scaffold/write.py",
    ],
    "cli/test_crash.py": ["activity.py"],
    "verify/test_compare.py": ["verify/difference.py", "verify/search.py"],
    "verify/test_forms.py": [
        "verify/constants.py",
        "verify/precise.py",
        "verify/quantized.py",
        "verify/retype.py",
        "verify/room.py",
        "verify/rounded.py",
        "verify/widen.py",
    ],
    "tune/test_measure.py": ["tune/sessions.py"],
    "tune/test_run.py": ["cli/tune.py", "host/kinds.py"],
    "optimizing/test_run.py": [
        "cli/optimize.py", "optimizing/build.py", "optimizing/check.py", "optimizing/facts.py",
        "optimizing/kernels.py", "optimizing/omit.py", "optimizing/report.py", "optimizing/target.py",
    ],
    "vendors/ascend/test_ge_operators.py": ["host/ge_operators.py"],
    "hostile/test_faults.py": ["ir/check.py"],
}  # fmt: skip
"""For a test file, the modules that it covers besides its namesake."""


def test_every_module_has_a_test_file_or_is_listed_with_one() -> None:
    modules = {
        str(file.relative_to(ROOT))
        for file in ROOT.rglob("*.py")
        # machine_code.py: of gehost-native
        if file.name not in {"__init__.py", "__main__.py", "machine_code.py"}
    }
    listing = [module for covered in BY_ANOTHER.values() for module in covered]
    own = {module for module in modules if Path(TESTS, own_test(module)).exists()}
    assert sorted(modules - own) == sorted(listing)
    assert [file for file in BY_ANOTHER if not Path(TESTS, file).exists()] == []


def own_test(module: str) -> str:
    path = Path(module)
    return str(path.with_name(f"test_{path.name}"))
