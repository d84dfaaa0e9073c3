"""vLLM's API server on a node: its engine runs in a process of its own, and schedules steps ahead."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from conftest import StartEngine
from node import Node, free_port, until
from test_vllm import BLOCK, full_blocks, stored
from tiny_models import prompt
from vllm_engine import connector, environment


def ask(port: int, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> str:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=json.dumps(body).encode() if body is not None else None,
        headers={"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_a_server_stores_the_last_block_of_a_request_and_finds_it_again(
    node: Node, vllm_python: str, llama: Path, tmp_path: Path, start_engine: StartEngine
) -> None:
    port = free_port()
    settings = {"dtype": "float32", "block-size": 32, "kv-cache-memory-bytes": 64 << 20, "max-model-len": 2048}
    options = [f"--{name}={value}" for name, value in settings.items()]
    log = (tmp_path / "server.log").open("wb")
    server = subprocess.Popen(
        [
            *(vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(llama), "--port", str(port)),
            *(
                "--served-model-name=tiny",
                "--enforce-eager",
                "--kv-transfer-config",
                json.dumps(connector(node.socket)),
            ),
            *options,
        ],
        env=environment(VLLM_ENABLE_V1_MULTIPROCESSING="1", VLLM_SERVER_DEV_MODE="1"),
        stdout=log,
        stderr=log,
        cwd=tmp_path,
    )
    plain = start_engine(llama)
    try:

        def answers() -> bool:
            assert server.poll() is None, (tmp_path / "server.log").read_text()[-4000:]
            try:
                ask(port, "/health", method="GET")
            except (urllib.error.URLError, ConnectionError):
                return False
            return True

        # the last token is not computed: 384 are, which are 12 blocks
        first, tokens = prompt(300, 61), 85
        expected = plain.tokens([first], tokens)[0]
        until("the server answers", answers, limit=500, pause=0.2)

        def complete(asked: list[int], count: int) -> list[int]:
            body = {"model": "tiny", "prompt": asked, "max_tokens": count, "temperature": 0, "ignore_eos": True}
            body |= {"return_token_ids": True}
            (choice,) = json.loads(ask(port, "/v1/completions", body))["choices"]
            return list(choice["token_ids"])

        assert complete(first, tokens) == expected
        stored(node, 12)
        ask(port, "/reset_prefix_cache")
        continued = first + expected
        assert len(continued) == 385 and full_blocks(385) == 12 * BLOCK
        assert complete(continued, 8) == plain.tokens([continued], 8)[0]
        found = dict(
            line.rsplit(" ", 1)
            for line in ask(port, "/metrics", method="GET").splitlines()
            if line.startswith(("vllm:cenote_blocks_loaded_total", "vllm:external_prefix_cache_hits_total"))
        )
        assert sorted(map(float, found.values())) == [12.0, 12.0 * BLOCK], found
    finally:
        server.terminate()
        try:
            server.wait(30)
        finally:
            server.kill()
            log.close()
