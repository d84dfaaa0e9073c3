"""What cenote.vllm is made of. Importing these modules needs vLLM, but for connection, layout, left_out, pinning,
prefill_rate and settings."""
