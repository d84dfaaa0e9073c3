"""What of vLLM's settings is not in the identity of its KV, and why. All that is not named here counts."""

from __future__ import annotations

from .._identity import LeftOut, left_out

_SIZES = "how much room there is, or how much is computed at a time: not what is computed"
_PLACES = "where something lies, or who talks to whom"
_SAMPLING = "comes after KV: which tokens are chosen, and what is returned of them"
_TOLD = "watching and logging"
_BLOCKS = "the block size of KV groups counts as a fact of its own"
_LATE = "found while the model is built: it follows from settings that count"

FIELDS: LeftOut = {
    "VllmConfig": left_out(
        {
            _SAMPLING: "structured_outputs_config reasoning_config watermark_config aux_output_config",
            _TOLD: "observability_config logging_config profiler_config kv_events_config",
            _PLACES: "offload_config instance_id shutdown_timeout",
            "this connector's own settings": "kv_transfer_config",
            "an engine that has one is refused": "speculative_config",
            "made of the model's configuration, its files and model_config's settings, which count": "quant_config",
        }
    ),
    "ModelConfig": left_out(
        {
            "where the weights lie: they count by their content": "model model_weights revision",
            "keys hold token ids": "tokenizer tokenizer_mode tokenizer_revision skip_tokenizer_init",
            _PLACES: "allowed_local_media_path allowed_media_domains hf_token served_model_name",
            _SAMPLING: "max_logprobs logprobs_mode use_fp64_gumbel return_sampling_mask logits_processors"
            " generation_config override_generation_config",
            "of sampling; dummy weights count it": "seed",
            "counts where positions depend on it, as `longest`": "max_model_len spec_target_max_model_len",
            "what was read there counts, as hf_config": "hf_config_path",
            "part of hf_config": "hf_text_config",
            "read from the weights, which count": "word_embeddings_untied_by_checkpoint",
            "where memory comes from, and when it is given back": "enable_sleep_mode sleep_preserve_parameter_names"
            " sleep_mode_backend sleep_mode_offload_cudagraph enable_nccl_comm_suspend enable_cumem_allocator",
            _SIZES: "renderer_num_workers",
        }
    ),
    "MultiModalConfig": left_out(
        {
            _SIZES: "limit_per_prompt mm_processor_cache_gb mm_processor_cache_type mm_shm_cache_max_object_size_mb"
            " mm_ipc_gpu_memory_gb skip_mm_profiling",
            _PLACES: "mm_tensor_ipc mm_encoder_fp8_scale_save_path mm_encoder_fp8_scale_save_margin",
            "part of the keys": "mm_hasher_algorithm",
        }
    ),
    "CacheConfig": left_out(
        {
            _BLOCKS: "block_size user_specified_block_size _block_size_resolved hash_block_size prefix_match_unit"
            " effective_attention_block_size cache_hit_alignment_tokens mamba_block_size",
            "the bytes of a block count": "mamba_page_size_padded skip_page_size_padded",
            _SIZES: "gpu_memory_utilization num_gpu_blocks_override num_gpu_blocks num_cpu_blocks kv_cache_size_tokens"
            " kv_cache_max_concurrency kv_cache_memory_bytes kv_offloading_size kv_offloading_backend"
            " prefix_cache_retention_interval",
            "an engine without it is refused": "enable_prefix_caching",
            "counts with its seed, as hash_scheme": "prefix_caching_hash_algo",
            "the layout of the tensors counts": "kv_cache_layout",
        }
    ),
    "ParallelConfig": left_out(
        {
            "how many parts KV has counts; ranks that hold copies do not": "tensor_parallel_size world_size",
            "replicas compute the same": "data_parallel_size data_parallel_size_local data_parallel_rank"
            " data_parallel_rank_local data_parallel_index data_parallel_backend data_parallel_external_lb"
            " data_parallel_hybrid_lb dp_sync_interval disable_nccl_for_dp_synchronization",
            _PLACES: "data_parallel_master_ip data_parallel_rpc_port data_parallel_master_port master_addr master_port"
            " node_rank nnodes rank numa_bind numa_bind_nodes numa_bind_cpus assigned_physical_gpu_ids"
            " _data_parallel_master_port_list _coord_store_port _api_process_count _api_process_rank"
            " distributed_executor_backend ray_workers_use_nsight ray_runtime_env placement_group"
            " max_parallel_loading_workers enable_shm_tensor_arena distributed_timeout_seconds"
            " cpu_distributed_timeout_seconds enable_fault_tolerance fault_tolerance_config",
            "which rank computes an expert": "enable_eplb eplb_config expert_placement_strategy enable_ep_weight_filter"
            " enable_elastic_ep elastic_ep_max_dp_size",
            _SIZES: "enable_dbo ubatch_size dbo_decode_token_threshold dbo_prefill_token_threshold",
            _SAMPLING: "enable_batch_sharded_sampling",
            "how the ranks add up, which rounds alike": "disable_custom_all_reduce",
        }
    ),
    "SchedulerConfig": left_out(
        {
            "which tokens are computed when": "max_num_batched_tokens max_num_scheduled_tokens max_num_seqs"
            " max_num_active_seqs long_prefill_token_threshold long_prefill_token_threshold_adaptive"
            " max_num_queued_reqs max_num_queued_tokens enable_chunked_prefill max_num_encoder_input_tokens"
            " encoder_cache_size policy disable_chunked_mm_input scheduler_cls scheduler_reserve_full_isl watermark"
            " prefill_schedule_interval async_scheduling stream_interval",
        }
    ),
    "DeviceConfig": left_out({"device_type counts": "device"}),
    "LoadConfig": left_out(
        {
            "where the weights lie, and how fast they are read": "download_dir safetensors_prefetch_num_threads"
            " safetensors_prefetch_block_size use_tqdm_on_load",
        }
    ),
    "LoRAConfig": left_out({_SIZES: "max_loras max_cpu_loras"}),
    "KernelConfig": left_out({"warming up": "enable_cutedsl_warmup enable_jit_warmup"}),
    "CompilationConfig": left_out(
        {
            _PLACES: "debug_dump_path cache_dir local_cache_dir compile_cache_save_format",
            "for how many tokens graphs are made": "cudagraph_capture_sizes max_cudagraph_capture_size compile_sizes"
            " compile_ranges_endpoints encoder_cudagraph_token_budgets encoder_cudagraph_max_vision_items_per_batch"
            " encoder_cudagraph_max_frames_per_batch decoder_replay_cudagraph_capture_sizes"
            " decoder_replay_trim_threshold cudagraph_num_of_warmups",
            "graphs replay the same kernels": "cudagraph_mode cudagraph_copy_inputs cudagraph_specialize_lora"
            " cudagraph_decoder_replay cudagraph_mm_encoder",
            _LATE: "enabled_custom_ops disabled_custom_ops traced_files compilation_time encoder_compilation_time"
            " static_forward_context static_all_moe_layers",
        }
    ),
    "ECTransferConfig": left_out({_PLACES: "engine_id ec_buffer_device ec_buffer_size ec_role ec_ip ec_port"}),
}

VARIABLES = left_out(
    {
        "building vLLM; its version counts": "MAX_JOBS NVCC_THREADS VLLM_USE_PRECOMPILED VLLM_USE_PRECOMPILED_RUST"
        " VLLM_SKIP_PRECOMPILED_VERSION_SUFFIX VLLM_DOCKER_BUILD_CONTEXT VLLM_BUILD_COMMIT VLLM_BUILD_PIPELINE"
        " VLLM_BUILD_URL VLLM_IMAGE_TAG CMAKE_BUILD_TYPE VERBOSE VLLM_MAIN_CUDA_VERSION VLLM_TARGET_DEVICE"
        " VLLM_SKIP_VERSION_SUFFIX",
        _PLACES: "VLLM_CONFIG_ROOT VLLM_CACHE_ROOT VLLM_HOST_IP VLLM_PORT VLLM_RPC_BASE_PATH VLLM_USE_MODELSCOPE"
        " CUDA_HOME VLLM_NCCL_SO_PATH LD_LIBRARY_PATH LOCAL_RANK CUDA_VISIBLE_DEVICES VLLM_DEBUG_DUMP_PATH"
        " VLLM_API_KEY S3_ACCESS_KEY_ID S3_SECRET_ACCESS_KEY S3_ENDPOINT_URL VLLM_ASSETS_CACHE"
        " VLLM_ASSETS_CACHE_MODEL_CLEAN VLLM_XLA_CACHE_PATH VLLM_CUDART_SO_PATH VLLM_MODEL_REDIRECT_PATH"
        " VLLM_RUST_FRONTEND_PATH VLLM_NCCL_INCLUDE_PATH VLLM_ENABLE_CUDA_COMPATIBILITY VLLM_CUDA_COMPATIBILITY_PATH"
        " VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR VLLM_TUNED_CONFIG_FOLDER VLLM_DP_RANK VLLM_DP_RANK_LOCAL VLLM_DP_SIZE"
        " VLLM_DP_MASTER_IP VLLM_DP_MASTER_PORT VLLM_RAY_PER_WORKER_GPUS VLLM_RAY_BUNDLE_INDICES"
        " VLLM_RAY_DP_PACK_STRATEGY VLLM_RAY_DP_PLACEMENT_NODE_IPS VLLM_RAY_EXTRA_ENV_VAR_PREFIXES_TO_COPY"
        " VLLM_RAY_EXTRA_ENV_VARS_TO_COPY VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE"
        " VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM VLLM_USE_RAY_WRAPPED_PP_COMM VLLM_USE_RAY_V2_EXECUTOR_BACKEND"
        " VLLM_WORKER_MULTIPROC_METHOD VLLM_DISTRIBUTED_USE_SPLIT_GROUP VLLM_ENABLE_V1_MULTIPROCESSING"
        " VLLM_NIXL_SIDE_CHANNEL_HOST VLLM_NIXL_SIDE_CHANNEL_PORT VLLM_P2P_SIDE_CHANNEL_HOST"
        " VLLM_P2P_SIDE_CHANNEL_PORT VLLM_P2P_MAX_PEERS VLLM_P2P_HANDSHAKE_TIMEOUT_S VLLM_P2P_IDLE_TIMEOUT_S"
        " VLLM_EC_SIDE_CHANNEL_HOST VLLM_EC_SIDE_CHANNEL_PORT VLLM_MOONCAKE_CONNECTOR_TIMEOUT"
        " VLLM_MOONCAKE_BOOTSTRAP_PORT VLLM_MOONCAKE_LOAD_RECV_THREADS VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO"
        " VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT VLLM_MOONCAKE_STORE_TIER_LOG MOONCAKE_PREFERRED_SEGMENT"
        " MOONCAKE_REQUESTER_LOCAL_HOSTNAME VLLM_LOOPBACK_IP VLLM_PROCESS_NAME_PREFIX"
        " VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME VLLM_GPU_NIC_PCIE_MAPPING VLLM_NIC_SELECTION_VARS"
        " VLLM_CPU_OMP_THREADS_BIND VLLM_CPU_NUM_OF_RESERVED_CPU VLLM_CPU_CI_ENV VLLM_WSL2_ENABLE_PIN_MEMORY"
        " VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY VLLM_WEIGHT_OFFLOADING_DISABLE_UVA VLLM_USE_SIMPLE_KV_OFFLOAD"
        " VLLM_KV_OFFLOAD_MAX_BATCH_DESCRIPTORS VLLM_SKIP_P2P_CHECK VLLM_ELASTIC_EP_SCALE_UP_LAUNCH"
        " VLLM_ELASTIC_EP_DRAIN_REQUESTS VLLM_USE_SPINLOOP_EXT VLLM_MSGPACK_ZERO_COPY_THRESHOLD"
        " VLLM_ALLOW_INSECURE_SERIALIZATION VLLM_MQ_MAX_CHUNK_BYTES_MB VLLM_RINGBUFFER_WARNING_INTERVAL",
        _SIZES: "VLLM_CPU_KVCACHE_SPACE VLLM_FASTSAFETENSORS_QUEUE_SIZE VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE"
        " VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE VLLM_XGRAMMAR_CACHE_MB VLLM_DEEPEP_BUFFER_SIZE_MB"
        " VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS VLLM_ENABLE_CUDAGRAPH_GC VLLM_GC_DEBUG VLLM_DBO_COMM_SMS"
        " VLLM_ALLOW_LONG_MAX_MODEL_LEN VLLM_SPARSE_INDEXER_MAX_LOGITS_MB",
        "the HTTP server, and what comes before tokens or after them": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"
        " VLLM_MAX_N_SEQUENCES VLLM_MAX_COMPLETION_PROMPTS VLLM_MAX_STOP_STRINGS VLLM_MAX_NUM_BAD_WORDS"
        " VLLM_MAX_BAD_WORDS_TOTAL_TOKENS VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS VLLM_ENFORCE_STRICT_TOOL_CALLING"
        " VLLM_REGEX_COMPILATION_TIMEOUT_S VLLM_V1_USE_OUTLINES_CACHE VLLM_V1_OUTPUT_PROC_CHUNK_SIZE"
        " VLLM_ENABLE_RESPONSES_API_STORE VLLM_ENABLE_COHERE_API VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT"
        " VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS VLLM_SYSTEM_START_DATE"
        " VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY VLLM_USE_FASTOKENS VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT"
        " VLLM_USE_FLASHINFER_SAMPLER VLLM_XPU_USE_SAMPLER_KERNEL VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
        " VLLM_DISABLE_REQUEST_ID_RANDOMIZATION VLLM_USE_RUST_FRONTEND VLLM_USE_RUST_BENCH VLLM_SERVER_DEV_MODE"
        " VLLM_SKIP_MODEL_NAME_VALIDATION VLLM_COMPUTE_NANS_IN_LOGITS VLLM_RAISE_ON_LOGIT_NANS"
        " VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "requests with an adapter are not cached": "VLLM_LORA_RESOLVER_CACHE_DIR VLLM_LORA_RESOLVER_HF_REPO_LIST"
        " VLLM_LORA_DISABLE_PDL VLLM_LORA_ENABLE_DUAL_STREAM",
        "fetching of media: what was fetched is in the keys": "VLLM_IMAGE_FETCH_TIMEOUT VLLM_VIDEO_FETCH_TIMEOUT"
        " VLLM_AUDIO_FETCH_TIMEOUT VLLM_MEDIA_CACHE VLLM_MEDIA_CACHE_MAX_SIZE_MB VLLM_MEDIA_CACHE_TTL_HOURS"
        " VLLM_MEDIA_FETCH_MAX_RETRIES VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB VLLM_MEDIA_URL_ALLOW_REDIRECTS"
        " VLLM_MEDIA_LOADING_THREAD_COUNT VLLM_MAX_AUDIO_CLIP_FILESIZE_MB VLLM_MAX_AUDIO_DECODE_DURATION_S"
        " VLLM_MAX_AUDIO_DECODE_BYTES VLLM_MAX_EMBED_DECODE_BYTES VLLM_MAX_AUDIO_PREPROCESS_WORKERS"
        " VLLM_MAX_IMAGE_PIXELS",
        _TOLD: "VLLM_DEBUG_LOG_API_SERVER_RESPONSE VLLM_USAGE_STATS_SERVER VLLM_NO_USAGE_STATS VLLM_DO_NOT_TRACK"
        " VLLM_USAGE_SOURCE VLLM_CONFIGURE_LOGGING VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_LEVEL VLLM_LOGGING_STREAM"
        " VLLM_LOGGING_PREFIX VLLM_LOGGING_COLOR NO_COLOR FORCE_COLOR VLLM_LOG_STATS_INTERVAL VLLM_TRACE_FUNCTION"
        " VLLM_LOG_BATCHSIZE_INTERVAL VLLM_LOG_MODEL_INSPECTION VLLM_DEBUG_MFU_METRICS VLLM_DISABLE_LOG_LOGO"
        " VLLM_CUSTOM_SCOPES_FOR_PROFILING VLLM_NVTX_SCOPES_FOR_PROFILING VLLM_PATTERN_MATCH_DEBUG"
        " VLLM_DEBUG_WORKSPACE VLLM_GPU_SYNC_CHECK VLLM_XLA_CHECK_RECOMPILATION",
        "how long something may take": "VLLM_ENGINE_READY_TIMEOUT_S VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
        " VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        "caches of compiled code, and warming up": "VLLM_DISABLE_COMPILE_CACHE VLLM_FORCE_AOT_LOAD"
        " VLLM_COMPILE_CACHE_SAVE_FORMAT VLLM_USE_MEGA_AOT_ARTIFACT VLLM_TRITON_JIT_WARMUP_NUM_THREADS"
        " VLLM_DEEP_GEMM_WARMUP VLLM_ENABLE_STARTUP_PLAN VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS",
    }
)
