"""Session.close() in one thread, any other call in others: an error, and never the end of the process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import cenote
import pytest
from node import LIMIT, ROOT, Node, node_environment

SETUP = """
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
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def commit(session):
    session.commit(session.reserve([next(numbers).to_bytes(16, "big")]))


def join_group(session):
    with session.join_group(f"ranks {next(numbers)}", 0, 1) as group:
        group.agree(1, 8)
        group.agree_start([2, 3], [8, 8])
        group.agree_poll(0.1)


def wait(session):
    fetch = session.prefetch(some)
    fetch.wait(0.01)
    fetch.done, fetch.length
    fetch.stop()
    fetch.held().release()
    fetch.cancel()
    fetch.release()


def held(session):
    with session.acquire(some) as held:
        held.part_bytes()
        held.addresses()
        [block.view() for block in held]


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
    "let_go": lambda session: session.let_go(some),
    "unconfirmed": lambda session: session.unconfirmed(),
    "commit": commit,
    "join_group": join_group,
    "wait": wait,
    "held": held,
    "wants_spans": lambda session: session.wants_spans,
    "asks_tiers": lambda session: session.asks_tiers,
    "trace_load": lambda session: session.trace_load(TRACE, 1, 2, 8, 8, 4096),
}
"""
CLOSING = """
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
            pass
        finally:
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
ENDING = """
session = cenote.attach(spec, socket)


def call(name):
    while True:
        CALLS[name](session)


for name in ("match", "put", "barrier", "follow"):
    threading.Thread(target=call, args=(name,), daemon=True).start()
time.sleep(0.02 + random.random() * 0.02)
"""
CALLS = re.findall(r'^    "(\w+)": ', SETUP, re.MULTILINE)
ELSEWHERE = {
    "close": "the other side of each of these",
    "abandon": "beside reserve",
    "device": "asks the library nothing without a device",
    "use_device": "unit_handles and test_devices: it wants a device",
    "commit_after": "unit_handles and test_devices: it wants a device",
}


def test_each_call_of_a_session_is_tried_beside_its_close() -> None:
    calls = {name for name in vars(cenote.Session) if not name.startswith("_")}
    assert calls - set(CALLS) == set(ELSEWHERE)


def run_engine(program: str, node: Node, call: str = "") -> str:
    """Its output. The process ends in order, without a word of trouble."""
    environment = node_environment() | {"PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", SETUP + program, str(node.socket), call]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize("call", CALLS)
def test_a_session_may_be_closed_beside(call: str, shared_node: Node) -> None:
    assert int(run_engine(CLOSING, shared_node, call)) >= 30


def test_a_process_may_end_while_other_threads_call(shared_node: Node) -> None:
    """Threads that the interpreter does not wait for, in calls that wait and in calls that do not."""
    for _ in range(5):
        run_engine(ENDING, shared_node)


def test_no_place_of_the_package_takes_a_session_out_of_its_guard() -> None:
    folder = Path(cenote.__file__).parent
    takers = {each.name for each in folder.rglob("*.py") if "_as_parameter_" in each.read_text()}
    assert takers == {"blocks.py", "indexer.py"}  # the handles of the latter are another library's
