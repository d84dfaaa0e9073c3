"""Modules of cenote.tokenizer. They need the extra `tokenizer`: grpcio, protobuf, tokenizers and jinja2."""
