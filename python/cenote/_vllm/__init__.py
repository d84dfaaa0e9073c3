"""What cenote.vllm is made of. Importing these modules needs vLLM, but for connection, layout, left_out,
prefill_rate and settings."""
