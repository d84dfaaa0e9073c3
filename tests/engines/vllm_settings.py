"""The settings of vLLM 0.32 that count in the identity of its KV: somebody has looked at each. A test compares this
with vLLM's own classes; whatever vLLM adds belongs here, or with a reason in cenote/_vllm/left_out.py."""

from __future__ import annotations

COUNTED = {
    "AttentionConfig": """
        backend backend_per_kind disable_flashinfer_q_quantization flash_attn_max_num_splits_for_cuda_graph
        flash_attn_version flex_attn_block_m flex_attn_block_n flex_attn_kv_block_size
        flex_attn_q_block_size hisparse_config indexer_kv_dtype indexer_sparse_logits
        minimax_m3_msa_decode_backend mla_prefill_backend sparse_mla_force_mqa
        sparse_mla_prefill_workspace_factor tokenspeed_mla_min_split_kv tq_max_kv_splits_for_cuda_graph
        use_non_causal use_prefill_query_quantization use_trtllm_attention
    """,
    "CacheConfig": """
        cache_dtype enable_mamba_shared_prefix_checkpoint is_attention_free kv_cache_dtype_skip_layers
        kv_sharing_fast_prefill mamba_cache_dtype mamba_cache_mode mamba_ssm_cache_dtype
        replayssm_buffer_len sliding_window swa_bounded_replay use_kda_recoverssm use_replayssm
    """,
    "CompilationConfig": """
        backend compile_mm_encoder
        custom_ops dynamic_shapes_config fast_moe_cold_start
        inductor_compile_config inductor_passes ir_enable_torch_wrap mode pass_config splitting_ops
        use_inductor_graph_partition
    """,
    "DeviceConfig": "device_type",
    "DiffusionConfig": "canvas_length max_denoising_steps",
    "DynamicShapesConfig": "assume_32_bit_indexing evaluate_guards type",
    "ECTransferConfig": "ec_connector ec_connector_extra_config ec_connector_module_path mm_encoder_output_widths",
    "EncoderCacheManagerConfig": "encoder_cache_manager_cls manager_config",
    "EngramConfig": "cpu_offload dp_shared_memory embedding_across_dp use_thp",
    "HiSparseConfig": "device_buffer_size eager_host_mirror",
    "IrOpPriorityConfig": "fused_add_rms_norm gelu_and_mul_sparse rms_norm",
    "KernelConfig": """
        enable_flashinfer_autotune enable_rocm_segmented_attn_autotune ir_op_priority linear_backend
        linear_backend_per_quant moe_backend sparse_indexer_topk_backend
    """,
    "LoRAConfig": """
        default_mm_loras enable_mixed_moe_lora_format enable_moe_shared_loras enable_tower_connector_lora
        fully_sharded_loras lora_dtype max_lora_cls_labels max_lora_rank specialize_active_lora
        target_modules
    """,
    "LoadConfig": """
        device ignore_patterns load_format model_loader_extra_config pt_load_map_location
        safetensors_load_strategy
    """,
    "MambaConfig": "backend enable_stochastic_rounding ssu_algorithm stochastic_rounding_philox_rounds",
    "ModelConfig": """
        allow_deprecated_quantization code_revision config_format convert disable_cascade_attn
        disable_sliding_window dtype enable_prompt_embeds enable_trace_replay enforce_eager hf_config
        hf_overrides io_processor_plugin is_submodel_config model_class_overrides model_impl
        multimodal_config pooler_config quantization quantization_config runner trust_remote_code
    """,
    "MultiModalConfig": """
        allow_missing_mm_embeddings enable_mm_embeds interleave_mm_strings language_model_only
        media_io_kwargs mm_device_do_normalize mm_encoder_attn_backend mm_encoder_attn_dtype
        mm_encoder_fp8_scale_path mm_encoder_only mm_encoder_tp_mode mm_processor_kwargs
        video_pruning_method video_pruning_rate
    """,
    "ParallelConfig": """
        _allow_auto_resolve_cp_interleave_size all2all_backend cp_kv_cache_interleave_size dcp_comm_backend
        dcp_kv_cache_interleave_size dcp_q_replicate decode_context_parallel_size enable_expert_parallel
        enable_hc_sp is_moe_model pipeline_parallel_size prefill_context_parallel_size worker_cls
        worker_extension_cls
    """,
    "PassConfig": """
        eliminate_noops enable_qk_norm_rope_fusion fi_allreduce_fusion_max_size_mb fuse_act_padding
        fuse_act_quant fuse_allreduce_rms fuse_attn_quant fuse_mla_dual_rms_norm fuse_norm_quant
        fuse_qk_norm_rope_kvcache fuse_rope_kvcache fuse_rope_kvcache_cat_mla
        rope_kvcache_fusion_max_token_num
    """,
    "PoolerConfig": """
        dimensions enable_chunked_processing enable_flash_late_interaction logit_mean logit_sigma
        max_embed_len pooling_type returned_token_ids seq_pooling_type step_tag_id task tok_pooling_type
        use_activation
    """,
    "QuantKey": "dtype scale scale2 symmetric",
    "QuantSpec": "activation weight",
    "QuantizationConfigArgs": "ignore linear moe targets",
    "ScalarType": "_finite_values_only bias exponent mantissa nan_repr signed",
    "ScaleDesc": "dtype group_shape static",
    "SchedulerConfig": "disable_hybrid_kv_cache_manager is_multimodal_model runner_type",
    "VllmConfig": """
        additional_config attention_config cache_config compilation_config device_config diffusion_config
        ec_manager_config ec_transfer_config engram_config kernel_config load_config lora_config
        mamba_config model_config optimization_level parallel_config performance_mode scheduler_config
        weight_transfer_config
    """,
    "WeightTransferConfig": "backend",
}

VARIABLES = """
    VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE
    VLLM_ALLREDUCE_USE_FLASHINFER VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC VLLM_ALLREDUCE_USE_SYMM_MEM
    VLLM_B12X_MOE_FP4_FORCE_A16 VLLM_BATCH_INVARIANT VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER VLLM_CPU_ATTN_SPLIT_KV
    VLLM_CPU_INT4_W4A8 VLLM_DCP_Q_REPLICATE VLLM_DEEPEPLL_NVFP4_DISPATCH
    VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL
    VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE VLLM_DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION VLLM_DEEPEP_V2_PREFER_OVERLAP
    VLLM_DISABLED_KERNELS VLLM_DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION VLLM_DISABLE_PYNCCL
    VLLM_DISABLE_SHARED_EXPERTS_STREAM VLLM_ENABLE_FLA_PACKED_RECURRENT_DECODE VLLM_ENABLE_GEMM_RS
    VLLM_ENABLE_HPC_OPS VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE
    VLLM_ENABLE_PREGRAD_PASSES VLLM_FLASHINFER_ALLREDUCE_BACKEND VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE
    VLLM_FLOAT32_MATMUL_PRECISION VLLM_GDN_DECODE_KERNEL VLLM_HAS_FLASHINFER_CUBIN VLLM_HUMMING_INPUT_QUANT_CONFIG
    VLLM_HUMMING_MOE_GEMM_TYPE VLLM_HUMMING_ONLINE_QUANT_CONFIG VLLM_HUMMING_USE_F16_ACCUM
    VLLM_KIMI_K3_AUX_ATTN_RES_STREAM VLLM_KIMI_K3_GEMM_AR VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT VLLM_KV_CACHE_LAYOUT
    VLLM_MARLIN_INPUT_DTYPE VLLM_MARLIN_USE_ATOMIC_ADD VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE VLLM_MEDIA_CONNECTOR
    VLLM_MLA_DISABLE VLLM_MOE_ROUTING_SIMULATION_STRATEGY VLLM_MOE_SKIP_PADDING VLLM_MOE_USE_DEEP_GEMM
    VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD
    VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD VLLM_PLUGINS VLLM_PP_LAYER_PARTITION VLLM_RANDOMIZE_DP_DUMMY_INPUTS
    VLLM_REPLICATE_EMBED VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS VLLM_ROCM_AITER_MLA_ASM_PADDING
    VLLM_ROCM_AITER_MLA_DCP_VERIFY VLLM_ROCM_AITER_MOE_DISPATCH_POLICY VLLM_ROCM_FP8_MFMA_PAGE_ATTN
    VLLM_ROCM_FP8_PADDING VLLM_ROCM_MOE_PADDING VLLM_ROCM_MONO_DECODE VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16
    VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB VLLM_ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB
    VLLM_ROCM_QUICK_REDUCE_QUANTIZATION VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB
    VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT VLLM_ROCM_USE_AITER VLLM_ROCM_USE_AITER_CUSTOM_AR VLLM_ROCM_USE_AITER_FP4BMM
    VLLM_ROCM_USE_AITER_FP4_ASM_GEMM VLLM_ROCM_USE_AITER_FP8BMM VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS
    VLLM_ROCM_USE_AITER_LINEAR VLLM_ROCM_USE_AITER_LINEAR_HIPBMM VLLM_ROCM_USE_AITER_MHA VLLM_ROCM_USE_AITER_MLA
    VLLM_ROCM_USE_AITER_MOE VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4 VLLM_ROCM_USE_AITER_MOE_SITUV2
    VLLM_ROCM_USE_AITER_RMSNORM VLLM_ROCM_USE_AITER_TRITON_GEMM VLLM_ROCM_USE_AITER_TRITON_ROPE
    VLLM_ROCM_USE_AITER_TRITON_SPARSE_MLA VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION VLLM_ROCM_USE_SKINNY_GEMM
    VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD VLLM_SSM_CONV_STATE_LAYOUT VLLM_TEST_FORCE_LOAD_FORMAT
    VLLM_TPU_USING_PATHWAYS VLLM_TRITON_FORCE_FIRST_CONFIG VLLM_TRITON_USE_TD VLLM_USE_AOT_COMPILE
    VLLM_USE_BREAKABLE_CUDAGRAPH VLLM_USE_BYTECODE_HOOK VLLM_USE_DEEP_GEMM VLLM_USE_DEEP_GEMM_E8M0
    VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES VLLM_USE_DIRECT_DCP_A2A VLLM_USE_DIRECT_DCP_KV_GATHER
    VLLM_USE_DIRECT_DCP_Q_GATHER VLLM_USE_FLASHINFER_MOE_INT4 VLLM_USE_FUSED_MOE_GROUPED_TOPK VLLM_USE_HW_AGNOSTIC
    VLLM_USE_LAYERNAME VLLM_USE_NCCL_SYMM_MEM VLLM_USE_OINK_OPS VLLM_USE_STANDALONE_COMPILE VLLM_USE_TRITON_AWQ
    VLLM_USE_V2_MODEL_RUNNER VLLM_VIDEO_LOADER_BACKEND VLLM_XLA_USE_SPMD VLLM_XPU_FORCE_N_CONTIG_WEIGHT
    VLLM_XPU_INC_WNA16_BACKEND VLLM_XPU_PP_MICROBATCH VLLM_ZENTORCH_WEIGHT_PREPACK
"""
