"""Fixtures of the process tests."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import blocks  # noqa: E402
import cenote  # noqa: E402
from kubernetes import ApiServer  # noqa: E402
from manager import Manager  # noqa: E402
from node import LIMIT, Agent, Node, finish_all  # noqa: E402
from redis import Redis  # noqa: E402
from selection import pytest_collection_modifyitems  # noqa: E402
from tier import sets_of  # noqa: E402

if TYPE_CHECKING:
    from indexer import Herd

__all__ = ["pytest_collection_modifyitems"]  # a hook: pytest finds it by its name here

StartNode = Callable[..., Node]
StartAgent = Callable[..., Agent]

_numbers = itertools.count()

# Signals that nohup or a shell's `&` ignores would be ignored by each process that a test starts, too.
for each, meaning in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
):
    if signal.getsignal(each) == signal.SIG_IGN:
        signal.signal(each, meaning)


@pytest.fixture
def herd(tmp_path: Path) -> Iterator[Herd]:
    """Indexers and publishers that end with the test."""
    from indexer import Herd  # with packages that a packed folder's tests do without

    with Herd(tmp_path) as made:
        yield made


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """A server of Kubernetes' lists and watches."""
    made = ApiServer()
    yield made
    made.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A short path for a runtime directory: Unix sockets allow 107 bytes."""
    return tmp_path / "run"


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        os.chmod(place, 0o755)
        yield Path(place)


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> str | None:
    """The device whose tier the test is about; None: DRAM's. Set by @both_tiers."""
    found: str | None = getattr(request, "param", None)
    return found


@pytest.fixture
def start_node(folder: Path, tier: str | None) -> Iterator[StartNode]:
    """start_node(*sets, capacity=…): a node that is stopped and looked over when the test is done. Unless a test has a
    policy or a configuration of its own, what was used last stays: tests say what goes next."""
    nodes: list[Node] = []

    def start(*sets: str, capacity: str = "64MiB", launch_only: bool = False, **more: Any) -> Node:
        place = more.pop("folder", folder if not nodes else folder.with_name(f"run{len(nodes)}"))
        prefix = more.pop("prefix", ())
        policy = () if "config" in more else ("dram.policy=lru", "gpu.policy=lru")
        # Disks of test machines may be slower than an engine: tests that ask for a comparison say so.
        ungated = () if "config" in more else ("prefetch.assumed_tokens_per_s=0",)
        made = Node(place, *sets_of(tier, capacity), *policy, *ungated, *sets, **more)
        # Nodes of one test share a directory of state, and with it the secret of their user's clusters.
        made.environment.setdefault("STATE_DIRECTORY", str(folder.parent / "state"))
        made.device = tier
        made.command = [*prefix, *made.command]
        nodes.append(made)
        return made.launch() if launch_only else made.start()

    yield start
    finish_all(nodes)


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A Redis server for the remote tier of the test's nodes."""
    server = Redis()
    yield server
    server.close()


@pytest.fixture
def node(start_node: StartNode) -> Node:
    """A node of 64 MiB."""
    return start_node()


@pytest.fixture
def start_agent() -> Iterator[StartAgent]:
    """start_agent(node): a client process that is ended with the test."""
    agents: list[Agent] = []

    def start(of: Node, **more: Any) -> Agent:
        agents.append(Agent(of.socket, device=of.device, **more))
        return agents[-1]

    yield start
    for each in agents:
        each.finish()


@pytest.fixture(scope="module")
def shared_node() -> Iterator[Node]:
    """One node of 256 MiB for a whole file: tests take instances of their own."""
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        made = Node(Path(place) / "run", "dram.capacity=256MiB", "dram.policy=lru")
        try:
            yield made.start()
            made.finish()
        finally:
            made.kill_everything()


@pytest.fixture
def attach() -> Iterator[Callable[..., Any]]:
    """attach(node, "id", block=4096, …): a session in this process, closed with the test. Its calls have as much
    time as any test: those that are about a deadline give one."""
    sessions: list[Any] = []

    def start(
        to: Node,
        instance: str | None = None,
        *,
        block: int = 4096,
        groups: dict[str, Any] | None = None,
        instance_group: str | None = None,
        spec: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        name = instance or f"i{next(_numbers)}"
        options.setdefault("device", to.device)
        options.setdefault("deadline", LIMIT)
        made = cenote.attach(
            make_spec(name, block, groups, instance_group, **(spec or {})), socket=str(to.socket), **options
        )
        to.block_bytes[name] = block
        sessions.append(made)
        return made

    yield start
    for each in sessions:
        each.close()


def make_spec(
    name: str, block: int = 4096, groups: dict[str, Any] | None = None, instance_group: str | None = None, **fields: Any
) -> cenote.InstanceSpec:
    """A spec of one group, "full", with one part, "kv", unless told otherwise."""
    return cenote.InstanceSpec(
        **{
            "id": name,
            "model": "llama-3-8b",
            "dtype": "bf16",
            "layout": "page_first",
            "tokens_per_block": 16,
            "groups": groups or {"full": {"parts": {"kv": block}}},
            "hash_scheme": "sha256_cbor",
            "fingerprint": None,
            "instance_group": instance_group,
            **fields,
        }
    )


def pin_all(session: Any, keys: list[bytes], size: int) -> list[Any]:
    """Puts and pins key by key until nothing more fits."""
    held: list[Any] = []
    with pytest.raises(cenote.NoSpace) as full:
        for key in keys:
            session.put([key], [blocks.content_of(key, size)])
            held.append(session.acquire([key]))
            assert len(held[-1]) == 1
    assert full.value.stored == 0
    return held


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")


@pytest.fixture
def manager(running_manager: Manager) -> Iterator[Manager]:
    """The `running_manager` of a file of tests; pytest shows the log of a test that fails."""
    begin = len(running_manager.log_text())
    yield running_manager
    print(running_manager.log_text()[begin:][-8000:])
    assert running_manager.running, running_manager.log_text()[-8000:]
