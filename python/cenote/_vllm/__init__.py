"""What cenote.vllm is made of. Importing these modules needs vLLM, but for settings and pieces."""
