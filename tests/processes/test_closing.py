"""Session.close() in one thread, any other call in others: an error, and never the end of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cenote
import pytest
from node import LIMIT, ROOT, Node, node_environment

ENGINE = """
import itertools, random, sys, threading, time
import cenote

socket, name = sys.argv[1:]
spec = cenote.InstanceSpec(
    id="closing", model="m", dtype="d", layout="l", tokens_per_block=16, parts={"kv": 4096}, hash_scheme="h"
)
keys = [(number + 1).to_bytes(16, "little") for number in range(1000)]
some = keys[:8]
block = bytes(4096)
numbers = itertools.count()  # a request that another thread has begun takes its next keys only

CALLS = {
    "match": lambda session: session.match(keys),
    "exists": lambda session: session.exists(keys),
    "locate": lambda session: session.locate(keys),
    "acquire": lambda session: session.acquire(some).release(),
    "get_into": lambda session: session.get_into(some, [bytearray(4096) for _ in some]),
    "put": lambda session: session.put(some, [block for _ in some]),
    "put_async": lambda session: session.put_async(some, [block for _ in some]),
    "flush": lambda session: session.flush(),
    "reserve": lambda session: session.abandon(session.reserve(some)),
    "prefetch": lambda session: session.prefetch(some).release(),
    "publish": lambda session: session.publish(f"request {next(numbers)}", some),
    "follow": lambda session: session.follow("request", "nobody", deadline=0.01).release(),
    "keep": lambda session: session.keep(some),
    "remove": lambda session: session.remove(some),
    "clear": lambda session: session.clear(),
    "barrier": lambda session: session.barrier(),
    "stats": lambda session: session.stats(),
}
done = 0
for turn in range(30):
    session = cenote.attach(spec, socket)
    go = threading.Event()

    def call():
        global done
        try:
            while True:
                CALLS[name](session)
                done += 1
                go.set()
        except (cenote.errors.CenoteError, ValueError):
            go.set()

    threads = [threading.Thread(target=call) for _ in range(4)]
    for each in threads:
        each.start()
    go.wait()
    time.sleep(random.random() * 0.005)
    session.close()
    for each in threads:
        each.join()
print(done)
"""
READS = ["match", "exists", "locate", "acquire", "get_into", "prefetch", "stats"]
WRITES = ["put", "put_async", "flush", "reserve", "publish", "follow", "keep", "remove", "clear", "barrier"]


@pytest.mark.parametrize("call", [*READS, *WRITES])
def test_a_session_may_be_closed_beside(call: str, shared_node: Node) -> None:
    environment = node_environment() | {"PYTHONPATH": str(ROOT / "python")}
    engine = [sys.executable, "-c", ENGINE, str(shared_node.socket), call]
    ended = subprocess.run(engine, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    assert int(ended.stdout) >= 30


def test_no_place_of_the_package_takes_a_session_out_of_its_guard() -> None:
    folder = Path(cenote.__file__).parent
    takers = {each.name for each in folder.rglob("*.py") if "_as_parameter_" in each.read_text()}
    assert takers == {"blocks.py", "indexer.py"}  # the handles of the latter are another library's
