"""From the release before to this build: memory, the store of the tier NVMe, clients, wire between nodes, C ABI.
Refusals have the words of CHANGELOG.md; all else goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import wire
from conftest import StartNode
from node import BINARY, FULL, HERE, LIMIT, ROOT, Node, free_ports, run_cenote, until

RELEASE = "0.1.0"
CHANGES = ROOT / "CHANGELOG.md"
RECORDED = HERE.parent / "data" / f"release-{RELEASE}"  # by tests/data/record_release.py
BLOCKS = 64

# A line for each thing that it does, so that a test sees how far it came.
CLIENT = """
import sys
import cenote

def held(session):
    with session.acquire(keys) as found:
        assert [bytes(block.view("kv")) for block in found] == blocks, "other bytes"

keys, blocks = [bytes([n]) * 32 for n in range(64)], [bytes([n]) * 65536 for n in range(64)]
spec = cenote.InstanceSpec(id="kept", model="m", dtype="bf16", layout="page_first", tokens_per_block=16,
                           groups={"full": {"parts": {"kv": 65536}}}, hash_scheme="sha256_cbor",
                           fingerprint=None, instance_group=None)
with cenote.attach(spec, socket=sys.argv[2]) as session:
    if sys.argv[1] == "put":
        session.put(keys, blocks)
    if sys.argv[1] == "prefetch":
        ticket = session.prefetch(keys, "wait_complete", group="full", threshold_tokens=0)
        ticket.wait(timeout=30.0)
        ticket.release()
    print("resident", session.match(keys).resident, flush=True)
    if session.match(keys).resident:
        held(session)
    if sys.argv[1] == "wait":
        sys.stdin.readline()
        held(session)
        session.put([b"z" * 32], [b"z" * 65536])
        print("resident", session.match(keys).resident, session.match([b"z" * 32]).resident, flush=True)
"""


class Release:
    """A release: its program, its library and its Python package. `root` is a checkout with a build."""

    def __init__(self, root: Path) -> None:
        self.program = root / "build" / "cenote"
        self.library = root / "build" / "libcenote.so"
        self.package = root / "python"

    def client(self, do: str, node: Node, *, library: Path | None = None) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CENOTE_")}
        environment |= {"CENOTE_LIBRARY": str(library or self.library), "PYTHONPATH": str(self.package)}
        return subprocess.Popen(
            [sys.executable, "-c", CLIENT, do, str(node.socket)],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ask(self, do: str, node: Node, *, library: Path | None = None) -> str:
        client = self.client(do, node, library=library)
        output, problem = client.communicate(timeout=LIMIT)
        assert client.returncode == 0, problem
        return output.strip()


def built(root: Path) -> Path:
    """A checkout of the release before, built there: half an hour."""
    commands: list[list[str | Path]] = [
        ["git", "clone", "--quiet", ROOT, root],
        ["git", "-C", root, "checkout", "--quiet", RELEASE],
        [root / "scripts" / "build", "release", "cenote", "libcenote"],
    ]
    for command in commands:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return root


@pytest.fixture(scope="module")
def earlier() -> Iterator[Release]:
    """$CENOTE_EARLIER_RELEASE names a checkout of it with a build in `build`; else one is made."""
    given = os.environ.get("CENOTE_EARLIER_RELEASE")
    if given:
        yield Release(Path(given))
        return
    if not FULL:
        pytest.skip(f"builds {RELEASE}: only with scripts/test --full, or with CENOTE_EARLIER_RELEASE")
    command = ["git", "rev-parse", "--verify", f"{RELEASE}^{{commit}}"]
    if subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"there is no tag {RELEASE} here, or no git")
    with tempfile.TemporaryDirectory(prefix="cenote-") as place:
        yield Release(built(Path(place) / "cenote"))


@pytest.fixture
def present() -> Release:
    made = Release(ROOT)
    made.program = BINARY
    made.library = Path(os.environ.get("CENOTE_LIBRARY", BINARY.parent / "libcenote.so"))
    return made


StartRelease = Callable[..., Node]


@pytest.fixture
def start_release(start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartRelease:
    """A node of a release, run by a copy of its program that exchange() replaces."""
    import node as harness

    def start(release: Release, *sets: str) -> Node:
        program = tmp_path / "bin" / "cenote"
        program.parent.mkdir()
        shutil.copy(release.program, program)
        with monkeypatch.context() as patch:
            patch.setattr(harness, "BINARY", program)
            return start_node("metrics.listen=off", *sets)

    return start


def exchange(node: Node, release: Release) -> None:
    """Puts another program in the place of the node's, as a package does."""
    program = Path(node.command[0])
    other = program.with_suffix(".new")
    shutil.copy(release.program, other)
    other.rename(program)


def version_of(node: Node) -> str:
    status = run_cenote("status", "--json", "--socket", node.socket)
    assert status.returncode == 0, status.stderr
    (version,) = re.findall(r'"version":\s*"([^"]+)"', status.stdout)
    return str(version)


def says(words: str) -> str:
    """Words of CHANGELOG.md on what is refused."""
    if not CHANGES.exists():
        pytest.skip("CHANGELOG.md is not here")
    assert words in CHANGES.read_text(), f"CHANGELOG.md does not say: {words}"
    return words


# ---- its store and its frames, recorded


def test_a_recorded_store_of_the_release_before_starts_empty_and_is_kept_aside(
    start_node: StartNode, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    with tarfile.open(RECORDED / "store.tar.xz") as archive:
        archive.extractall(store)
    node = start_node("metrics.listen=off", f"nvme.paths=[{store}]", "nvme.capacity=64MiB", launch_only=True)
    node.allowed_errors.append("the metadata cannot be used and is set aside")
    until("the node answers", lambda: status_text(node))
    assert says("has version 1, of an earlier release; this build reads version 2") in node.log_text()
    assert node.status()["nvme"]["paths"][0]["blocks"] == 0
    assert (store / "metadata.damaged-1").is_dir()


def test_the_recorded_first_frame_of_a_client_of_the_release_before_attaches(start_node: StartNode) -> None:
    frame = (RECORDED / "attach.bin").read_bytes()
    assert wire.FRAME.unpack_from(frame)[1:4] == (1, 8, wire.ATTACH)
    node = start_node("metrics.listen=off")
    with wire.Link(node.socket) as link:
        link.socket.send(frame)
        answer = link.receive()
        assert (answer.type, answer.minor) == (wire.ATTACH_REPLY, 8)
        assert answer.fds
        for each in answer.fds:
            os.close(each)
        (session,) = node.sessions()
        assert session["instance"] == "recorded"


# ---- the release itself


def test_an_upgrade_keeps_the_memory_and_the_clients_of_the_release_before(
    earlier: Release, present: Release, start_release: StartRelease
) -> None:
    node = start_release(earlier)
    assert version_of(node) == RELEASE
    assert earlier.ask("put", node) == f"resident {BLOCKS}"
    waiting = earlier.client("wait", node)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == f"resident {BLOCKS}\n"
    exchange(node, present)
    upgraded = run_cenote("node", "upgrade", "--socket", node.socket)
    assert upgraded.returncode == 0, upgraded.stderr
    assert version_of(node) == run_cenote("--version").stdout.strip()
    output, problem = waiting.communicate("\n", timeout=LIMIT)
    assert (waiting.returncode, output) == (0, f"resident {BLOCKS} 1\n"), problem
    assert present.ask("get", node) == f"resident {BLOCKS}"
    assert earlier.ask("get", node) == f"resident {BLOCKS}"


def test_the_program_of_the_release_before_asks_for_the_upgrade_as_well(
    earlier: Release, present: Release, start_release: StartRelease, tmp_path: Path
) -> None:
    node = start_release(earlier)
    earlier.ask("put", node)
    exchange(node, present)
    upgraded = subprocess.run(
        [earlier.program, "node", "upgrade", "--socket", node.socket], capture_output=True, text=True, check=False
    )
    assert upgraded.returncode == 0, upgraded.stderr
    assert present.ask("get", node) == f"resident {BLOCKS}"


def test_a_client_of_the_release_before_attaches_by_either_library(
    earlier: Release, present: Release, start_release: StartRelease
) -> None:
    node = start_release(present)
    assert earlier.ask("put", node) == f"resident {BLOCKS}"
    assert earlier.ask("get", node, library=present.library) == f"resident {BLOCKS}"


def test_a_client_of_this_build_is_refused_by_a_node_of_the_release_before(
    earlier: Release, present: Release, start_release: StartRelease
) -> None:
    node = start_release(earlier)
    client = present.client("put", node)
    _, problem = client.communicate(timeout=LIMIT)
    assert client.returncode == 1
    assert says("the other side speaks protocol 1.9, this side 1.8") in problem
    assert earlier.ask("put", node) == f"resident {BLOCKS}", "the node serves its own"


def test_a_store_of_the_release_before_starts_empty_and_is_kept_aside(
    earlier: Release, present: Release, start_release: StartRelease, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    node = start_release(earlier, f"nvme.paths=[{store}]", "nvme.capacity=128MiB")
    earlier.ask("put", node)
    until("the blocks are on the disk", lambda: '"blocks": 64' in status_text(node))
    node.stop()
    exchange(node, present)
    node.allowed_errors.append("the metadata cannot be used and is set aside")
    node.start()
    assert says("has version 1, of an earlier release; this build reads version 2") in node.log_text()
    assert (store / "metadata.damaged-1").is_dir()
    assert present.ask("prefetch", node) == "resident 0"
    present.ask("put", node)
    node.stop()
    node.start()
    assert present.ask("prefetch", node) == f"resident {BLOCKS}", "what is stored since is found again"


def status_text(node: Node) -> str:
    return run_cenote("status", "--json", "--socket", node.socket).stdout


def test_nodes_of_both_releases_form_no_cluster(
    earlier: Release, present: Release, start_release: StartRelease, start_node: StartNode
) -> None:
    first, second = free_ports(2)

    def sets(name: str, port: int, peer: int) -> tuple[str, ...]:
        return (
            f"cluster.name={name}",
            f"cluster.listen=127.0.0.1:{port}",
            f'cluster.seeds=["127.0.0.1:{peer}"]',
            'remote.backends=["peers"]',
        )

    old = start_release(earlier, *sets("old", first, second))
    new = start_node("metrics.listen=off", *sets("new", second, first))

    def peers(node: Node) -> str:
        return run_cenote("peers", "--socket", node.socket).stdout

    until("the old one has the reason", lambda: says("the other side closed the connection") in peers(old))
    until("the new one has the reason", lambda: says("no greeting within 2000 ms") in peers(new))
    for node in (old, new):
        assert "1 nodes live" in peers(node)
    assert new.status()["cluster"]["counters"]["strangers"] > 0
    assert earlier.ask("put", old) == present.ask("put", new) == f"resident {BLOCKS}", "each serves its engines"
