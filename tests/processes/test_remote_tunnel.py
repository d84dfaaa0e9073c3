"""The recipe of docs/remote.md: stunnel on both sides between a node and a Redis server."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import StartNode
from node import ROOT, KiB, free_port
from redis import Redis
from test_remote import COUNT, all_put, found, put, remote, until

Attach = Callable[..., Any]
BLOCK = 64 * KiB


def recipe() -> tuple[str, str]:
    """Both sides' sections as the document has them, the server's first."""
    text = (ROOT / "docs" / "remote.md").read_text()
    lines = text[text.index("; on the server's machine") :].split("```")[0].splitlines()[1:]
    column = lines[0].index("[redis]", 1)
    return "\n".join(line[:column].rstrip() for line in lines), "\n".join(line[column:].rstrip() for line in lines)


def certificate(folder: Path, name: str) -> Path:
    file = folder / f"{name}.pem"
    key = folder / f"{name}.key"
    asked = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    asked += ["-subj", "/CN=server", "-days", "2", "-keyout", str(key), "-out", str(file)]
    subprocess.run(asked, check=True, capture_output=True)
    file.write_text(file.read_text() + key.read_text())
    file.chmod(0o600)
    return file


@pytest.fixture
def tunnel(redis: Redis, tmp_path: Path) -> Iterator[Callable[[Path, Path], int]]:
    """Starts both sides with the server's certificate and the one that the node trusts; the node's port."""
    server_section, node_section = recipe()
    with ExitStack() as ends:

        def start(shown: Path, trusted: Path) -> int:
            outer, inner = free_port(), free_port()
            sides = {
                "server": server_section.replace("accept = 6379", f"accept = 127.0.0.1:{outer}")
                .replace("connect = 127.0.0.1:6378", f"connect = {redis.socket}")
                .replace("cert = /etc/stunnel/redis.pem", f"cert = {shown}"),
                "node": node_section.replace("accept = 127.0.0.1:6380", f"accept = 127.0.0.1:{inner}")
                .replace("connect = server:6379", f"connect = 127.0.0.1:{outer}")
                .replace("CAfile = /etc/stunnel/redis.pem", f"CAfile = {trusted}"),
            }
            for name, section in sides.items():
                file = tmp_path / f"{name}{inner}.conf"
                file.write_text(f"foreground = yes\npid =\n{section}\n")
                assert "/etc" not in section and "6379" not in section, "the recipe has changed"
                process = subprocess.Popen(
                    ["stunnel4", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                ends.callback(process.wait)
                ends.callback(process.kill)
            return inner

        yield start


def test_blocks_go_through_the_tunnel_of_the_recipe(
    start_node: StartNode, attach: Attach, tunnel: Callable[[Path, Path], int], tmp_path: Path
) -> None:
    shown = certificate(tmp_path, "redis")
    port = tunnel(shown, shown)
    nodes = []
    for name in ("here", "there"):
        sets = [f'remote.backends=["redis://127.0.0.1:{port}"]', f"remote.state_dir={tmp_path / name}"]
        patience = ("remote.lookup_timeout=8s", "prefetch.threshold_tokens=0", "prefetch.policy=wait_complete")
        nodes.append(start_node(*sets, *patience))
    here, there = nodes
    until(lambda: remote(here)["serving"] == 1 and remote(there)["serving"] == 1)
    keys = put(attach(here, "model", block=BLOCK), "shared")
    all_put(here, COUNT)
    assert found(attach(there, "model", block=BLOCK), keys) == COUNT


def test_a_server_with_another_certificate_is_not_spoken_to(
    start_node: StartNode, tunnel: Callable[[Path, Path], int], redis: Redis, tmp_path: Path
) -> None:
    port = tunnel(certificate(tmp_path, "another"), certificate(tmp_path, "redis"))
    node = start_node(f'remote.backends=["redis://127.0.0.1:{port}"]', f"remote.state_dir={tmp_path / 'state'}")

    def was_cut_off() -> bool:
        why = str(remote(node)["backends"][0]["last_error"])
        return "reset by peer" in why or "closed the connection" in why

    until(was_cut_off)
    assert remote(node)["serving"] == 0
    assert redis.size() == 0
