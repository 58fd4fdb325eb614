"""Tests, or cases in brackets, that hold with the pinned onnx and ONNX Runtime alone, and why an older one skips them.

``tools/versions.sh`` runs the suite with the oldest versions too. A test of what gehost writes for
a runtime never stands here: there the file, or the pass, is at fault.
"""

from __future__ import annotations

_ONE_OVERLOAD = "1.21 runs one body for all overloads of a function"
_DIVISION = "1.21 ends the process at a division by an integer 0"
_UNNAMED = "before 1.22 no model with two unnamed Slices of one tensor loads"

PINNED: dict[str, dict[str, str]] = {
    "plugins/ge/tests/test_operators.py": {
        "test_a_node_that_is_none_of_ges_operator_does_not_match[Mod]": _DIVISION,
        "test_a_node_that_is_none_of_ges_operator_does_not_match[RealDiv]": _DIVISION,
        "test_the_page_has_each_operator": "SwiGLU is of onnx 1.23",
    },
    "plugins/hlo/tests/test_numbers.py": {
        "test_conversions_to_narrow_types_are_those_of_xla": "kernels of 4-bit integers",
        "test_narrow_types_are_moved": "kernels of 4-bit integers",
        "test_negative_zero_is_false": "Cast of float8 to bool is wrong",
        "test_numbers_after_xlas_passes_are_those_before": "kernels of Where, Min",
        "test_numbers_are_those_of_xla": "kernels of Where, Min",
        "test_reductions_of_4_bit_integers": "kernels of 4-bit integers",
    },
    "plugins/linalg/tests/kernels/test_numbers.py": {
        "test_residual": "LayerNormalization takes no scale that broadcasts",
        "test_special_values_of_functions": "Erf and PRelu of special values",
        "test_special_values_of_rows": "LayerNormalization of special values",
        "test_the_epsilon_of_doubles_is_a_float32": "LayerNormalization takes no axis of length 1",
    },
    "plugins/linalg/tests/lower/test_normalizations.py": {"test_rms_normalization": "opset 23"},
    "plugins/semantic/tests/test_norms.py": {
        "test_opsets": "opset 23",
        "test_operators_of_newer_opsets": "opset 23",
    },
    "plugins/semantic/tests/test_passes.py": {"test_opsets": "opset 23"},
    "plugins/semantic/tests/test_rotary.py": {
        "test_a_kernel_takes_its_place_with_equal_numbers": _UNNAMED,
        "test_opsets": "opset 23",
    },
    "plugins/semantic/tests/test_scrambled.py": {
        "test_scrambled_spellings_are_found_with_equal_numbers": _UNNAMED,
    },
    "tests/diagnose/check_pass/test_forms.py": {
        "test_a_pass_that_forgets_an_attribute_is_wrong[BatchNormalization-spatial]": (
            "with fewer opsets, twelve instances hold no number for each activation"
        ),
    },
    "tests/diagnose/check_pass/test_run.py": {
        "test_every_shipped_pass_fires_on_each_of_its_patterns_and_is_right[FuseScaledMatMulAddPass]": (
            "one pattern has an instance of newer operators only"
        ),
    },
    "tests/diagnose/check_pass/test_effects.py": {
        "test_what_a_pass_forgets_unseen_is_listed[ReduceMean-noop_with_empty_axes-noop_with_empty_axes, which only the types refuse]": (
            "1.21 does not run ReduceMean with noop_with_empty_axes"
        ),
    },
    "tests/fuzz/test_attention.py": {
        "test_a_wrong_softcap_is_found[152-1.25-Div-OrtCausalAttentionPass]": "opset 23",
        "test_a_wrong_softcap_is_found[34--1-one negative-OrtStandardAttentionPass]": "opset 24",
        "test_a_wrong_softcap_is_found[35-1.25-two negative-OrtStandardAttentionPass]": "opset 23",
    },
    "tests/fuzz/test_half.py": {
        "test_models_with_bodies_convert[11]": "1.21 has no kernel of Cos for doubles",
    },
    "tests/half/test_bodies.py": {"test_functions_may_have_overloads[beside]": _ONE_OVERLOAD},
    "tests/hostile/test_bombs.py": {
        "test_what_stands_for_terabytes_stays_as_it_is[Concat of unknown shapes]": (
            "inference of Concat counts in 32 bits before onnx 1.23"
        ),
    },
    "tests/infer/test_limits.py": {
        "test_ranks_and_sizes_that_grow": "inference of Concat counts in 32 bits before onnx 1.23",
    },
    "tests/infer/test_refined.py": {
        "test_runs_with_zeros_and_allowzero": "Reshape takes no 0 beside -1",
    },
    "tests/infer/test_windows.py": {
        "test_windows_are_as_onnx_runtime_and_the_reference_count_them": (
            "ONNX Runtime 1.21 ends the process at a window"
        ),
    },
    "tests/ir/files/test_validate.py": {
        "test_bits_that_are_left_over_must_be_zero": "float6 is of onnx 1.23",
    },
    "tests/ir/test_effective.py": {
        "test_engines_accept_each_value_that_the_table_writes": "opsets up to 26",
    },
    "tests/ir/test_tensors.py": {
        "test_bytes_are_those_of_the_onnx_specification": "float6 is of onnx 1.23",
    },
    "tests/ir/test_types.py": {
        "test_every_element_type_of_onnx_is_known_under_its_number": "float6 is of onnx 1.23",
    },
    "tests/opset/test_changes.py": {"test_a_share_of_the_grid": "opset 24"},
    "tests/opset/test_raising.py": {"test_models": "onnx.reference fails on a Loop without turns"},
    "tests/passes/cleanup/test_purity.py": {
        "test_random_operators_are_those_that_onnx_calls_non_deterministic": "of onnx 1.23",
    },
    "tests/passes/cleanup/test_shapes.py": {
        "test_a_copy_takes_the_place_of_allowzero": "Reshape takes no 0 beside -1",
    },
    "tests/passes/test_driver.py": {
        "test_overloads_of_a_function_are_operators_of_their_own": _ONE_OVERLOAD,
    },
    "tests/pattern/test_lacking.py": {
        "test_the_rows_are_all_there": "attributes of Attention and SpaceToDepth are of onnx 1.23",
    },
    "tests/test_models.py": {
        "test_onnx_reference_runs_what_is_compiled[bert.dyn20]": "Gather of onnx.reference 1.22 with new numpy",
    },
    "tests/test_readme.py": {
        "test_the_first_command_prints_what_is_shown": "other kernels of residuals pay with 1.21",
    },
    "tests/vendors/test_inner_tensors.py": {
        "test_an_inner_tensor_that_is_an_output_keeps_its_numbers[OrtStandardAttentionPass]": "opset 23",
    },
    "tests/vendors/onnxruntime/test_causal_attention.py": {
        "test_masks_that_look_causal[half of a truth, rounded to 0]": (
            "1.21 drops the inner of two Casts of the original, 0.5 to 0 to false"
        ),
    },
    "tests/verify/test_double_conv.py": {
        "test_the_sum_over_positions_is_the_convolution": "VALID in onnx.reference 1.22",
    },
    "tests/verify/test_planted.py": {
        "test_faults_of_bert_are_found_and_its_compiles_pass[bfloat16]": "Attention of bfloat16 is of 1.24.1",
    },
}

NEWER: dict[str, dict[str, str]] = {
    "tests/opset/test_changes.py": {
        "test_a_share_of_the_grid[DequantizeLinear]": "1.32.0 has no kernel of opset 28",
    },
    "tests/tune/test_run.py": {
        "test_an_original_whose_numbers_the_runtime_changes_is_reported": "1.32.0 does not change them",
    },
    "tests/verify/test_compare.py": {
        "test_a_model_too_new_for_the_runtime_runs_in_the_reference": "1.32.0 runs opset 28",
        'test_what_the_runtime_lacks_is_no_difference[13, opset_import: ["": 28, "acme": 1]-acme.F-it has opset 28 of ai.onnx, and ]': (
            "1.32.0 runs opset 28"
        ),
    },
}
"""The same for a newer ONNX Runtime."""
