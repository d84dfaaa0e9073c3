"""What of SGLang's server arguments is not in the identity of its KV, and why. All that is not named here counts."""

from __future__ import annotations

import re

from .._identity import LeftOut, left_out

_SIZES = "how much room there is, or what is computed when: not what is computed"
_PLACES = "where something lies or runs, or who talks to whom"
_SAMPLING = "comes after KV: which tokens are chosen, and what is returned of them"
_TOLD = "watching and logging"

FIELDS: LeftOut = {
    "ServerArgs": left_out(
        {
            "where the weights lie: they count by their content": "model_path revision download_dir"
            " speculative_draft_model_path speculative_draft_model_revision",
            "how fast weights are read, and who is told": "checkpoint_engine_wait_weights_before_ready"
            " delete_ckpt_after_loading model_checksum weight_loader_disable_mmap weight_loader_drop_cache_after_load"
            " weight_loader_prefetch_checkpoints weight_loader_prefetch_num_threads startup_weight_load_mode"
            " weight_cache_socket weight_cache_timeout engine_info_bootstrap_port modelopt_checkpoint_save_path"
            " modelopt_export_path remote_instance_weight_loader_seed_instance_ip"
            " remote_instance_weight_loader_seed_instance_service_port"
            " remote_instance_weight_loader_send_weights_group_ports"
            " remote_instance_weight_loader_start_seed_via_transfer_engine",
            "a fact of each pool, which counts": "page_size hicache_mem_layout tp_size pp_size attn_cp_size dcp_size",
            "keys hold token ids": "tokenizer_path tokenizer_mode tokenizer_backend tokenizer_worker_num"
            " detokenizer_worker_num skip_tokenizer_init chat_template completion_template default_chat_template_kwargs"
            " hf_chat_template_name trust_request_chat_template allow_auto_truncate dynamic_batch_tokenizer_batch_size"
            " dynamic_batch_tokenizer_batch_timeout enable_dynamic_batch_tokenizer enable_tokenizer_batch_encode"
            " disable_tokenizer_batch_decode",
            "the server": "admin_api_key api_key asr_max_buffer_seconds asr_max_concurrent_sessions batch_notify_size"
            " enable_cache_report enable_http2 enable_http_worker_reuseport enable_response_store enable_ssl_refresh"
            " enable_streaming_session fastapi_root_path file_storage_path grpc_mode grpc_port"
            " grpc_response_timeout_secs grpc_worker_threads host http2_initial_connection_window_size"
            " http2_max_concurrent_streams incremental_streaming_output port reasoning_parser return_input_ids"
            " return_output_ids served_model_name sidecar sidecar_args skip_server_warmup smg_grpc_mode"
            " ssl_ca_certs ssl_certfile ssl_keyfile ssl_keyfile_password stream_interval"
            " stream_response_default_include_usage strip_thinking_cache tool_call_parser tool_server warmups"
            " weight_version",
            _SAMPLING: "constrained_json_disable_any_whitespace constrained_json_max_whitespace_cnt"
            " constrained_json_whitespace_pattern enable_strict_thinking preferred_sampling_params sampling_defaults"
            " grammar_backend sampling_backend random_seed disable_outlines_disk_cache enable_custom_logit_processor"
            " enable_fp32_lm_head enable_return_aux_hidden_states aux_hidden_state_capture"
            " return_aux_hidden_state_layer_ids enable_return_hidden_states return_hidden_states_mode"
            " enable_return_indexer_topk enable_return_routed_experts sampling_mask_max_tokens enable_watermark"
            " watermark_config watermark_context_window watermark_default_enabled watermark_enforce_all watermark_key"
            " watermark_key_b watermark_max_probability watermark_mixing_probability mlx_enable_sampling",
            _TOLD: "bucket_e2e_request_latency bucket_inter_token_latency bucket_time_to_first_token crash_dump_folder"
            " debug_tensor_dump_input_file debug_tensor_dump_layers debug_tensor_dump_output_folder decode_log_interval"
            " enable_forward_pass_metrics enable_metrics enable_metrics_for_all_schedulers enable_mfu_metrics"
            " enable_request_time_stats_logging enable_trace export_metrics_to_file export_metrics_to_file_dir"
            " extra_metric_labels forward_pass_metrics_ipc_name forward_pass_metrics_worker_id"
            " gc_warning_threshold_secs generation_tokens_buckets kv_canary kv_canary_real_data"
            " kv_canary_sweep_interval kv_events_config load_publish_endpoint load_snapshot_publish_interval log_level"
            " log_level_http log_requests log_requests_format log_requests_level log_requests_target"
            " msprobe_dump_config otlp_service_name otlp_traces_endpoint prompt_tokens_buckets show_time_cost"
            " smg_http_sidecar_port stat_loggers tokenizer_metrics_allowed_custom_labels"
            " tokenizer_metrics_custom_labels_header trace_modules uvicorn_access_log_exclude_prefixes"
            " enable_layerwise_nvtx_marker expert_balancedness_report_mode expert_distribution_recorder_buffer_size"
            " expert_distribution_recorder_mode spec_trace_dir enable_torch_compile_debug_mode debug_cuda_graph"
            " enable_profile_cuda_graph",
            _SIZES: "abort_on_priority_when_disabled chunked_prefill_size default_priority_value"
            " disable_overlap_schedule disable_priority_preemption enable_dynamic_chunking enable_mixed_chunk"
            " enable_prefill_delayer enable_priority_scheduling mamba_full_memory_ratio max_mamba_cache_size"
            " max_prefill_tokens max_queued_requests max_running_requests max_total_tokens mem_fraction_static"
            " min_free_slots_delay num_continuous_decode_steps prefill_decode_interval prefill_decode_interval_min_bs"
            " prefill_delayer_forward_passes_buckets prefill_delayer_max_delay_ms prefill_delayer_max_delay_passes"
            " prefill_delayer_queue_min_ratio prefill_delayer_token_usage_low_watermark"
            " prefill_delayer_wait_seconds_buckets prefill_max_requests priority_scheduling_preemption_threshold"
            " retraction_policy schedule_conservativeness schedule_low_priority_values_first schedule_policy"
            " scheduler_recv_interval swa_full_tokens_ratio _swa_full_tokens_ratio_explicitly_set"
            " enable_single_batch_overlap enable_two_batch_overlap tbo_token_distribution_threshold"
            " pp_async_batch_depth pp_max_micro_batch_size max_loaded_loras max_loras_per_batch max_lora_chunk_size"
            " lora_eviction_policy lora_drain_wait_threshold enable_lora_overlap_loading limit_mm_data_per_request"
            " media_url_max_file_size_mb mm_io_worker_num mm_preprocess_cache_size_mb mm_processor_worker_num",
            "SGLang's own caches": "_radix_eviction_policy_explicitly_set disable_radix_cache enable_flexkv"
            " enable_hierarchical_cache enable_linker_mla_dedup enable_lmcache enable_session_radix_cache"
            " enable_unified_cache_external_linker flexkv_config_file hicache_host_memory_fraction"
            " hicache_host_memory_mode hicache_io_backend hicache_ratio hicache_size hicache_storage_backend"
            " hicache_storage_backend_extra_config hicache_storage_prefetch_policy"
            " hicache_storage_prefetch_retry_max_attempts hicache_storage_prefetch_retry_poll_interval"
            " hicache_write_policy lmcache_config_file radix_cache_backend radix_eviction_policy"
            " radix_eviction_policy_config unified_cache_external_linker_backend unified_cache_external_linker_config",
            _PLACES: "allowed_media_domains enable_broadcast_mm_inputs_process mm_feature_transport base_gpu_id"
            " gpu_id_step numa_node use_ray gc_threshold soft_watchdog_timeout watchdog_timeout sleep_on_idle"
            " custom_sigquit_handler dist_init_addr dist_timeout nccl_port nnodes node_rank dp_size attn_dp_size"
            " enable_dp_attention enable_dp_attention_local_control_broadcast load_balance_method gated_launch_port"
            " enable_p2p_check elastic_ep_initial_size ep_join_rank_offset max_ep_size ep_size enable_memory_saver"
            " enable_weights_cpu_backup enable_draft_weights_cpu_backup cpu_offload_gb offload_group_size offload_mode"
            " offload_num_in_group offload_prefetch_step disaggregation_mode disaggregation_bootstrap_port"
            " disaggregation_decode_allocation_policy disaggregation_decode_enable_offload_kvcache"
            " disaggregation_decode_enable_radix_cache disaggregation_decode_extra_slots"
            " disaggregation_decode_host_receive_threshold disaggregation_decode_polling_interval"
            " disaggregation_decode_retraction_backup disaggregation_enable_kv_checksum disaggregation_ib_device"
            " disaggregation_transfer_backend enable_pd_role_switch num_reserved_decode_tokens"
            " optimistic_prefill_attempts encoder_bootstrap_port decoupled_spec_bind_endpoint"
            " decoupled_spec_connect_endpoints decoupled_spec_rank",
            "which rank computes an expert": "enable_eplb eplb_algorithm eplb_min_rebalancing_utilization_threshold"
            " eplb_rebalance_layers_per_chunk eplb_rebalance_num_iterations ep_num_redundant_experts"
            " ep_dispatch_algorithm ep_join_mode elastic_ep_backend elastic_ep_scale_timeout"
            " enable_elastic_expert_backup init_expert_location mooncake_ib_device",
            "how ranks add up, which rounds alike": "disable_custom_all_reduce enable_mscclpp enable_nccl_nvls"
            " enable_symm_mem enable_torch_symm_mem pre_warm_nccl disable_aiter_allreduce_fusion_in_decode"
            " disable_aiter_allreduce_fusion_in_prefill enable_aiter_allreduce_fusion"
            " enable_flashinfer_allreduce_fusion enforce_disable_flashinfer_allreduce_fusion"
            " flashinfer_allreduce_fusion_backend",
            "graphs replay the same kernels": "cuda_graph_backend_decode cuda_graph_backend_prefill"
            " cuda_graph_bs_decode cuda_graph_bs_prefill cuda_graph_config cuda_graph_max_bs_decode"
            " cuda_graph_max_bs_prefill cuda_graph_max_seq_len_prefill cuda_graph_prefill_max_context"
            " disable_cuda_graph disable_cuda_graph_padding disable_decode_cuda_graph disable_prefill_cuda_graph"
            " enable_cudagraph_gc torch_compile_max_bs",
        }
    ),
    "LoRARef": left_out({"made of its name and path, and in the keys": "lora_id", _SIZES: "pinned"}),
}

# Variables of SGLang that change no KV. All others that are set count, whether SGLang has them in its list or not.
_VARIABLES = re.compile(
    r"""SGLANG_(
      (DISAGGREGATION|FAILED_SESSION|GRAMMAR|GRPC|HICACHE|REQ|ZMQ)_\w+                 # transport, queues, requests
    | (CUDA_COREDUMP|JIT_LOG|LOG|PROFILE|TRACE)_\w+ | CUDA_COREDUMP | LOG_LEVEL         # watching
    | (\w+_)?SERVICE_(HOST|PORT\w*) | (\w+_)?PORT(_\d+_\w+)?                          # an orchestrator's, of a service
    | (CUTE_AOT_|DG_|JIT_)?CACHE_DIR | TORCH_PROFILER_DIR | EXPERT_DISTRIBUTION_RECORDER_DIR
    | AUTO_NUMA_BIND | NUMA_BIND_V2 | SET_CPU_AFFINITY | HUGEPAGE_SIZE | IS_FIRST_RANK_ON_NODE | IS_IN_CI
    | (REQUEST_STATE_WAIT|TIMEOUT_KEEP_ALIVE|UVICORN_WORKER_HEALTHCHECK|WARMUP)(_TIMEOUT)?
    | USE_MODELSCOPE | DISABLE_OUTLINES_DISK_CACHE | ENABLE_TREE_CACHE_SANITY_CHECK
    )""",
    re.VERBOSE,
)


def is_left_out(variable: str) -> bool:
    """Of an environment variable."""
    return not variable.startswith("SGLANG_") or _VARIABLES.fullmatch(variable) is not None
