"""Which cases of long tests are everyday ones; ``make nightly`` runs all.

A test is here if its cases took more than two seconds of processor time together, or are hundreds,
and most of them are alike: a grid, or one fault at many places. Where each case is a subject of its
own, all run. A number: one case in so many runs every day, always the same ones; 0: none. Primes
keep an inner axis of a grid from falling out. Names: these cases alone, one of each kind.
"""

SHARES: dict[str, dict[str, int | tuple[str, ...]]] = {
    "plugins/ge/tests/test_operators.py": {
        "test_a_node_that_is_none_of_ges_operator_does_not_match": 5,
    },
    "plugins/ge/tests/test_ten.py": {
        "test_ten_passes_fire_and_give_the_bytes_of_their_twins": 2,
    },
    "plugins/hlo/tests/test_numbers.py": {
        "test_numbers_are_those_of_xla": 11,
    },
    "plugins/hlo/tests/test_reader.py": {
        "test_recorded_texts_are_printed_as_they_were_read": 11,
    },
    "plugins/linalg/tests/kernels/test_build.py": {
        "test_a_damaged_library_in_the_cache_is_built_again": 0,
        "test_builds_at_once_leave_one_complete_file": 0,
        "test_shapes_before_and_after_1_24": 2,
    },
    "plugins/linalg/tests/kernels/test_numbers.py": {
        "test_a_last_axis_that_is_split": 5,
        "test_columns": 5,
        "test_special_values_of_rows": 5,
    },
    "plugins/semantic/tests/test_activations.py": {
        "test_it_fires_on_exports_with_equal_numbers": 3,
    },
    "plugins/semantic/tests/test_attention.py": {
        "test_every_layer_is_described_and_right": 3,
        "test_random_attentions_are_described_and_replaced_right": 7,
    },
    "plugins/semantic/tests/test_bodies.py": {
        "test_the_body_decides": 11,
        "test_what_the_own_vendor_writes_is_taken": 3,
    },
    "plugins/semantic/tests/test_layouts.py": {
        "test_a_kernel_gets_its_layouts": 3,
        "test_a_kernel_gets_the_whole_scale": 5,
    },
    "plugins/semantic/tests/test_linears.py": {
        "test_a_kernel_takes_its_place_with_equal_numbers": 5,
    },
    "plugins/semantic/tests/test_norms.py": {
        "test_a_kernel_takes_its_place_with_equal_numbers": 5,
        "test_it_fires_on_exports_with_equal_numbers": 3,
        "test_opsets": 3,
    },
    "plugins/semantic/tests/test_passes.py": {
        "test_it_fires_on_exports_with_equal_numbers": 3,
    },
    "plugins/semantic/tests/test_rotary.py": {
        "test_a_kernel_takes_its_place_with_equal_numbers": 11,
    },
    "plugins/semantic/tests/test_views.py": {
        "test_random_layouts_have_the_elements_of_their_view": 5,
    },
    "plugins/sharding/tests/test_complete.py": {
        "test_a_plan_has_the_annotations_that_it_completes": 7,
    },
    "plugins/sharding/tests/test_corpus.py": {
        "test_a_split_model_is_equal_and_sends_the_predicted_bytes": ("mobilenetv2.ts",),
    },
    "plugins/sharding/tests/test_elimination.py": {
        "test_it_finds_the_minimum_of_an_integer_program": 3,
    },
    "plugins/sharding/tests/test_launch.py": {
        "test_no_rank_is_left_after_a_timeout": 0,
        "test_no_rank_is_left_when_what_started_it_is_killed": 0,
        "test_the_other_dialects_run_in_processes": 0,
        "test_two_swapped_ranks_give_wrong_numbers": 0,
    },
    "plugins/sharding/tests/test_padding.py": {
        "test_random_chains_are_equal_with_padding": 7,
    },
    "plugins/sharding/tests/test_partition.py": {
        "test_the_split_is_equal_and_sends_the_predicted_bytes": 5,
    },
    "plugins/sharding/tests/test_propagation.py": {
        "test_random_graphs_have_the_solutions_of_brute_force": 7,
    },
    "plugins/sharding/tests/test_random_splits.py": {
        "test_a_random_split_is_equal": 47,
    },
    "plugins/sharding/tests/test_real_sizes.py": {
        "test_no_manual_plan_is_cheaper_and_each_is_found": 3,
    },
    "plugins/sharding/tests/test_redistribution.py": {
        "test_every_path_keeps_the_tensor": ("sizes1", "sizes3"),
    },
    "plugins/sharding/tests/test_rules.py": {
        "test_every_strategy_gives_the_numbers_of_the_operator": 11,
    },
    "plugins/zoo/tests/test_cluster.py": {
        "test_a_cluster_gives_what_one_process_gives": 0,
        "test_a_scheduler_that_cannot_be_reached_is_one_line": ("nonsense",),
    },
    "plugins/zoo/tests/test_command.py": {
        "test_a_model_is_not_blamed_for_kills_from_outside": 0,
        "test_a_model_that_takes_too_long": 0,
        "test_a_process_that_dies_between_two_models_costs_none": 0,
        "test_a_process_that_leaves_without_a_result_is_noticed": 0,
    },
    "tests/backend/test_backend_data.py": {
        "test_cases_that_the_list_lacks": 0,
        "test_chance_is_no_expected_output": 0,
        "test_expected_outputs_and_true_types": (  # of nodes: onnx takes seconds to make all of them
            "pytorch-converted/test_AvgPool1d", "pytorch-converted/test_Conv2d_depthwise_strided",
            "pytorch-converted/test_Embedding", "pytorch-converted/test_Linear",
            "pytorch-operator/test_operator_addmm", "pytorch-operator/test_operator_permute2",
            "simple/test_expand_shape_model1", "simple/test_sequence_model1",
        ),
        "test_nearly_all_cases_run": 0,
    },
    "tests/benchmarks/test_benchmarks.py": {
        "test_a_pass_rewrites_the_same_sites_by_itself_and_explained": 3,
        "test_each_task_rewrites_every_site_and_keeps_the_numbers": 5,
    },
    "tests/cli/test_provider.py": {
        "test_nodes_that_fall_back_to_the_cpu_are_named": 3,
    },
    "tests/diagnose/bisect/test_run.py": {
        "test_a_planted_bug_is_found_at_its_match": 3,
        "test_a_thousand_nodes_take_few_runs": 0,
    },
    "tests/diagnose/check_pass/test_effects.py": {
        "test_what_a_pass_forgets_unseen_is_listed": 5,
    },
    "tests/diagnose/check_pass/test_forms.py": {
        "test_a_fold_that_forgets_training_is_wrong_in_each_form_of_it": 0,
        "test_a_pass_that_forgets_all_of_a_window_is_wrong": 0,
        "test_a_pass_that_forgets_an_attribute_is_wrong": 0,
        "test_a_pass_that_forgets_an_optional_input_is_wrong": 3,
        "test_instances_on_which_an_attribute_matters_are_built": 3,
        "test_what_was_not_varied_is_listed_and_the_engine_named": 0,
    },
    "tests/diagnose/check_pass/test_run.py": {
        "test_a_condition_that_only_a_changed_instance_gets_past": 0,
        "test_a_decompose_pass_is_checked_on_each_form_of_its_operator": 2,
        "test_a_fold_of_one_constant_for_each_channel_is_checked": 0,
        "test_a_fold_of_weights_is_checked_where_all_of_them_are_constant": 0,
        "test_a_pass_of_single_numbers_is_checked": 0,
        "test_a_planted_bug_is_found_without_a_model": 3,
        "test_every_shipped_pass_fires_on_each_of_its_patterns_and_is_right": 23,
        "test_what_is_wrong_is_said": 5,
    },
    "tests/diagnose/explain/test_run.py": {
        "test_the_true_cause_of_each_kind_of_miss_is_named": 5,
    },
    "tests/fuzz/test_attention.py": {
        "test_a_wrong_softcap_is_found": 3,
        "test_what_loads_and_runs_before_does_after": 7,
    },
    "tests/fuzz/test_fuzz.py": {
        "test_a_bug_in_a_rewrite_is_seen": 3,
        "test_a_bug_in_the_matcher_is_seen_by_the_oracle": 0,
        "test_a_case_that_hangs_or_dies_is_told_and_the_others_run": 0,
        "test_whatever_is_rewritten_every_check_holds": 11,
    },
    "tests/fuzz/test_half.py": {
        "test_models_with_bodies_convert": ("94",),
    },
    "tests/half/test_bodies.py": {
        "test_bodies_have_types_that_agree": 5,
        "test_numbers_out_of_range_keep_bodies_in_float32": 5,
    },
    "tests/half/test_convert.py": {
        "test_exports_convert_and_compute_the_same_function": 5,
    },
    "tests/half/test_outputs.py": {
        "test_a_branch_returns_a_weight": 5,
    },
    "tests/host/test_host.py": {
        "test_compiles_leave_no_objects_behind": 2,
    },
    "tests/host/test_in_half.py": {
        "test_a_fill_that_an_output_holds_is_exact_or_refused": 5,
    },
    "tests/host/test_recompile.py": {
        "test_with_the_shipped_vendors_only_listed_passes_change_it": 5,
    },
    "tests/hostile/test_dtypes.py": {
        "test_every_element_type_keeps_its_bits": 11,
    },
    "tests/hostile/test_environment.py": {
        "test_odd_environments_change_nothing": 3,
        "test_standard_output_that_is_full_is_an_error": 3,
        "test_streams_that_are_closed_from_the_start": 3,
    },
    "tests/hostile/test_faults.py": {
        "test_an_error_at_any_line_of_a_rewrite_leaves_the_graph_as_it_was": 0,
    },
    "tests/hostile/test_generators.py": {
        "test_a_graph_keeps_its_lines": 7,
        "test_a_page_and_a_picture_have_the_elements_of_a_plain_name": 11,
        "test_a_pass_from_nodes_of_such_names": 17,
    },
    "tests/hostile/test_imports.py": {
        "test_ranks_of_a_split_model": 0,
        "test_workers_of_a_zoo": 0,
    },
    "tests/hostile/test_methods.py": {
        "test_a_method_that_raises_is_named_with_its_file_and_the_node_and_undone": 5,
        "test_a_pattern_may_be_deeper_than_python_s_stack": 0,
        "test_patterns_that_are_none": 3,
        "test_replacements_that_are_none": 3,
    },
    "tests/hostile/test_names.py": {
        "test_a_model_with_such_names_is_compiled": 5,
    },
    "tests/hostile/test_process_state.py": {
        "test_streams_that_vendor_code_closed_still_tell_what_went_wrong": 3,
        "test_what_vendor_code_changes_is_put_back": 11,
    },
    "tests/hostile/test_save_faults.py": {
        "test_a_failure_at_any_call_leaves_all_files_whole": 3,
    },
    "tests/hostile/test_system.py": {
        "test_a_process_that_is_killed_while_it_saves_leaves_a_model_with_its_weights": 7,
        "test_a_signal_ends_the_compile_with_one_line": 5,
        "test_two_processes_that_save_to_one_output_mix_nothing": 3,
    },
    "tests/hostile/test_terminal.py": {
        "test_names_are_escaped": 3,
    },
    "tests/hostile/test_vendor_files.py": {
        "test_a_file_that_does_not_load_is_named_and_skipped": 5,
    },
    "tests/infer/test_again.py": {
        "test_random_models_keep_every_invariant": 11,
        "test_strict_readers_take_every_output": 5,
    },
    "tests/ir/test_effective.py": {
        "test_engines_accept_each_value_that_the_table_writes": 5,
    },
    "tests/ir/test_memory.py": {
        "test_all_generations_are_collected_seldom_and_a_large_model_is_frozen": 3,
    },
    "tests/ir/test_tensors.py": {
        "test_external_data": 7,
    },
    "tests/ir/test_wide.py": {
        "test_a_compile_walks_through_a_wide_node_equally_often_at_any_width": 3,
    },
    "tests/optimizing/test_apart.py": {
        "test_the_result_is_the_same_byte_by_byte": 2,
    },
    "tests/optimizing/test_corpus.py": {
        "test_what_any_writes_runs_as_the_model_did": ("bert_sdpa.dynopt",),
    },
    "tests/optimizing/test_half.py": {
        "test_a_product_out_of_range_is_named": 2,
    },
    "tests/optimizing/test_run.py": {
        "test_further_vendors_take_no_operators_of_the_target": 2,
        "test_the_kind_of_model_stays_and_the_interface_too": 2,
    },
    "tests/optimizing/test_targets.py": {
        "test_a_fusion_that_fails_at_the_size_to_measure_with_is_dropped": 0,
        "test_cpu_has_the_faster_form_of_residual_norms": 3,
        "test_openvino_fuses_equal_biases_into_their_convolutions": 3,
        "test_what_any_writes_loads_in_openvino_and_computes_the_same": 3,
    },
    "tests/page/test_page.py": {
        "test_hostile_texts_stay_texts": 3,
    },
    "tests/passes/cleanup/test_cleaner.py": {
        "test_corpus": 5,
        "test_models": 5,
        "test_the_result_does_not_depend_on_hashing": 0,
    },
    "tests/passes/cleanup/test_random_graphs.py": {
        "test_numbers_stay": 5,
    },
    "tests/pattern/test_choices_in_place.py": {
        "test_in_place_finds_what_the_list_of_variants_finds": 5,
    },
    "tests/pattern/test_lacking.py": {
        "test_what_an_opset_lacks_counts": 5,
    },
    "tests/pattern/test_variadic.py": {
        "test_check_pass_draws_several_numbers": 3,
    },
    "tests/rewrite/test_lower.py": {
        "test_one_spelling_gives_the_same_numbers_and_is_found_again": 11,
    },
    "tests/rewrite/test_migration.py": {
        "test_one_pattern_and_one_replacement_at_every_opset": 11,
    },
    "tests/shortest/test_lines.py": {
        "test_attention_of_each_layer_is_found_and_the_numbers_stay": ("gpt2.ts-12", "vit.ts-12"),
        "test_silu_of_each_layer_is_found_and_the_numbers_stay": 0,
    },
    "tests/test_corpus.py": {  # one model of each family, of both exporters
        "test_an_output_compiled_again_is_the_same": (
            "bert.ts", "gpt2.dynopt", "vit.dynopt", "resnet50.ts", "mobilenetv2.dyn", "llama.ts",
            "t5_encoder.dynopt", "light_shufflenet",
        ),
        "test_light_models_inside": 2,
        "test_numbers_interface_and_fusions": (
            "bert_sdpa.dynopt", "gpt2_past.dynopt", "vit.ts", "resnet50.dyn", "mobilenetv2.ts",
            "llama.dynopt", "t5_encoder.ts", "light_squeezenet",
        ),
    },
    "tests/test_docs.py": {
        "test_the_blocks_of_a_page_run": ("docs/tutorial.md",),
    },
    "tests/test_downstream.py": {
        "test_a_tool_takes_the_output_of_a_model": 7,
    },
    "tests/test_models.py": {
        "test_an_output_compiled_again_is_the_same": 5,
        "test_nodes_that_no_pass_touched_are_equal_byte_by_byte": 5,
        "test_numbers_interface_and_fusions": 5,
        "test_onnx_reference_runs_what_is_compiled": 5,
    },
    "tests/test_native.py": {
        "test_interpreted_classes_derive_only_from_classes_that_allow_it": 0,
    },
    "tests/test_scaffold.py": {
        "test_a_decompose_pass_replaces_the_like_of_its_node_alone": 5,
        "test_a_pass_from_a_place_matches_there_and_its_test_passes": 5,
    },
    "tests/test_validity.py": {
        "test_it_holds": 3,
    },
    "tests/vendors/ascend/test_corpus.py": {
        "test_fires_and_keeps_numbers": 11,
    },
    "tests/vendors/ascend/test_fuse_flash_attention.py": {
        "test_the_corpus": 5,
    },
    "tests/vendors/ascend/test_ge_operators.py": {
        "test_body_is_the_general_product": 5,
    },
    "tests/vendors/onnx/test_gelu.py": {
        "test_every_form_by_erf": 5,
        "test_near_misses_by_erf": 5,
    },
    "tests/vendors/onnx/test_layer_normalization.py": {
        "test_near_misses": 11,
    },
    "tests/vendors/onnx/test_rms_normalization.py": {
        "test_every_form": 5,
        "test_near_misses": 5,
    },
    "tests/vendors/onnxruntime/test_attention.py": {
        "test_a_guarded_row_without_positions_is_0": 5,
        "test_every_form_is_fused": 5,
        "test_explain_shows_the_reason": 5,
        "test_filled_scores_and_a_mask_behind": 5,
        "test_products_over_batch_and_heads_in_one_axis": 5,
    },
    "tests/vendors/onnxruntime/test_causal_attention.py": {
        "test_causal_masks": 5,
    },
    "tests/vendors/onnxruntime/test_gelu.py": {
        "test_a_constant_in_half_is_its_exact_number": 3,
    },
    "tests/vendors/onnxruntime/test_group_norm.py": {
        "test_every_form": 5,
    },
    "tests/vendors/onnxruntime/test_half.py": {
        "test_attention": 5,
    },
    "tests/vendors/onnxruntime/test_half_cases.py": {
  # one of each way into half, and of integers
        "test_kernels_and_numbers": (
            "bert_f16dyn", "llama_bf16dyn", "gpt2_past_f16dyn", "bert_autof16ts", "bert_qdq",
            "llama_eager_int4f16", "llama_ortc_keep", "vit_occ_nokeep",
        ),
        "test_four_bits_without_declared_types": 3,
    },
    "tests/vendors/onnxruntime/test_kernel_limits.py": {
        "test_a_guard_takes_what_is_empty": 5,
    },
    "tests/vendors/onnxruntime/test_masks.py": {
        "test_a_bias_before_heads_are_apart": 5,
        "test_a_scale_behind_the_mask": 5,
    },
    "tests/vendors/onnxruntime/test_past.py": {
        "test_the_past_is_the_kernels": 3,
    },
    "tests/vendors/onnxruntime/test_standard_attention.py": {
        "test_capped_scores_are_the_kernels": 5,
        "test_every_form_is_fused": 5,
    },
    "tests/vendors/onnxruntime/test_window_masks.py": {
        "test_windows_are_fused": 5,
    },
    "tests/vendors/paddle/test_dtypes.py": {
        "test_what_holds_all_values_gives_them_back": 11,
    },
    "tests/vendors/paddle/test_multihead_matmul.py": {
        "test_a_tensor_inside_that_is_a_graph_output_is_computed": 3,
        "test_with_all_vendors_too": 3,
    },
    "tests/vendors/paddle/test_random_chains.py": {
        "test_numbers_are_equal_and_nothing_is_left_to_do": 5,
    },
    "tests/vendors/paddle/test_register_layer_norm_fuse.py": {
        "test_every_form": 3,
        "test_instances_and_changes_of_the_pattern_keep_their_numbers": 0,
    },
    "tests/vendors/test_beside_each_other.py": {
        "test_as_many_layers_are_fused_with_more_vendors": 4,
    },
    "tests/vendors/test_inner_tensors.py": {
        "test_an_inner_tensor_that_is_an_output_keeps_its_numbers": 47,
    },
    "tests/vendors/test_precision.py": {
        "test_float64_keeps_its_digits": 5,
    },
    "tests/vendors/test_proofs.py": {
        "test_no_rewrite_of_a_corpus_model_is_unproven": 3,
    },
    "tests/verify/test_compare.py": {
        "test_real_models_run_on_what_is_made_for_them": 5,
    },
    "tests/verify/test_own_functions.py": {
        "test_an_optimized_file_computes_what_the_original_computes": 11,
    },
    "tests/verify/test_planted.py": {
        "test_faults_of_bert_are_found_and_its_compiles_pass": 0,
    },
    "tests/verify/test_tolerance.py": {
        "test_small_errors_in_a_deep_network_show": 0,
    },
}  # fmt: skip
