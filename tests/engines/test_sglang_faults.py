"""Nodes that are full, slow, killed or away: the engine gets its own bytes or a miss, in time, and goes on."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed in this environment")

import cenote
import torch
from cenote.sglang import _Complaints
from sglang_support import (
    Engine,
    Node,
    fill,
    get_v1,
    host_pool,
    kill_node,
    let_the_clock_move_on,
    names,
    page_of,
    run_cenote,
    sequence,
    set_v1,
    until,
)

pytest_plugins = ["sglang_support"]

Attach = Callable[..., Any]
StartNode = Callable[..., Node]
EngineOf = Callable[..., Engine]

BIG = {"layers": 4, "heads": 8, "dim": 128}  # 256 KiB a page


# ---- NVMe


@pytest.fixture
def nvme_node(start_sglang_node: StartNode, tmp_path: Path) -> Callable[..., Node]:
    """A node of 8 MiB of DRAM (32 pages) over 128 MiB of disk that keeps all that it gets."""

    def start(*sets: str) -> Node:
        return start_sglang_node(
            "dram.capacity=8MiB",
            "dram.slab_size=600KiB",  # two pages: several pools share so little memory
            f"nvme.paths=[{tmp_path / 'store'}]",
            "nvme.capacity=128MiB",
            "nvme.ingest=all",
            *sets,
        )

    return start


def written_down(node: Node) -> None:
    def idle() -> bool:
        status = node.status()
        return status["dram"]["writing_bytes"] == 0 and status["nvme"]["bytes_in_flight"] == 0

    until("all pages are on disk", idle)


def test_pages_come_up_from_nvme(nvme_node: Callable[..., Node], backend_of: Attach) -> None:
    node = nvme_node()
    pool = host_pool(False, "page_first", **BIG)
    backend = backend_of(node, pool, deadline=20.0)
    keys = names(16)
    wanted = [page_of(pool, each) for each in range(16)]
    assert all(set_v1(backend, keys, list(range(16))))
    written_down(node)
    for turn in range(4):
        assert all(set_v1(backend, names(12), list(range(30, 42)))), turn
        written_down(node)
    session = backend._pools[0]._attachment.session()
    assert session.match([bytes.fromhex(each) for each in keys]).resident < 16
    assert backend.batch_exists(keys) == 16
    assert get_v1(backend, keys, list(range(60, 76))) == [True] * 16
    assert all(torch.equal(page_of(pool, 60 + i), page) for i, page in enumerate(wanted))
    assert session.stats()["pins_in_use"] == 0


def test_a_page_on_nvme_that_exists_did_not_promise_comes_up_as_well(
    nvme_node: Callable[..., Node], backend_of: Attach
) -> None:
    node = nvme_node()
    pool = host_pool(False, "page_first", **BIG)
    backend = backend_of(node, pool, deadline=20.0, hold=0)
    keys = names(16)
    wanted = page_of(pool, 15)
    assert all(set_v1(backend, keys, list(range(16))))
    written_down(node)
    for _ in range(4):
        assert all(set_v1(backend, names(12), list(range(30, 42))))
        written_down(node)
    assert backend.batch_exists(keys) == 16
    assert get_v1(backend, keys[15:], [60]) == [True]
    assert torch.equal(page_of(pool, 60), wanted)


def test_windows_on_nvme_count(nvme_node: Callable[..., Node], backend_of: Attach) -> None:
    from test_sglang_backend import transfer

    node = nvme_node()
    pool, side = host_pool(False, "page_first", **BIG), host_pool(False, "page_first", **BIG)
    backend = backend_of(node, pool, deadline=20.0)
    backend.register_mem_host_pool_v2(side, "swa")
    keys = names(10)
    wanted = page_of(side, 7)
    assert all(set_v1(backend, keys, list(range(10))))
    assert backend.batch_set_v2([transfer("swa", keys[6:8], [6, 7])]) == {"swa": [True, True]}
    written_down(node)
    let_the_clock_move_on()  # of two pools with pages of one age either may give way
    for _ in range(6):
        assert all(set_v1(backend, names(12), list(range(30, 42))))
        written_down(node)
    session = backend._pools[1]._attachment.session()
    assert not any(session.exists([bytes.fromhex(each) for each in keys]))
    found = backend.batch_exists_v2(keys, [transfer("swa", keys[:2], policy="trailing_pages")])
    assert found.restorable_prefix_pages == [8]
    assert backend.batch_get_v2([transfer("swa", keys[6:8], [60, 61])]) == {"swa": [True, True]}
    assert torch.equal(page_of(side, 61), wanted)


# ---- a node that does not answer


def test_calls_end_at_their_deadline_when_the_node_hangs(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=64MiB")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, deadline=0.4)
    keys = names(8)
    assert all(set_v1(backend, keys, list(range(8))))
    fill(pool)
    with node.worker_stopped():
        assert backend.batch_exists(keys) == 8  # shared memory asks nobody
        assert get_v1(backend, keys, list(range(20, 28))) == [True] * 8
        assert set_v1(backend, names(40), list(range(40))) == [False] * 40
        assert set_v1(backend, keys, list(range(8))) == [True] * 8  # it is there already
    until("sets work again", lambda: all(set_v1(backend, names(2), [1, 2])))


# ---- a node that dies


def test_a_worker_that_is_killed_loses_no_page(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=64MiB")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, deadline=10.0)
    keys = names(20)
    wanted = [page_of(pool, each) for each in range(20)]
    assert all(set_v1(backend, keys[:10], list(range(10))))
    node.restart_worker()
    assert backend.batch_exists(keys) == 10
    assert all(set_v1(backend, keys, list(range(20))))
    node.restart_worker(signal.SIGSEGV)
    assert get_v1(backend, keys, list(range(60, 80))) == [True] * 20
    assert all(torch.equal(page_of(pool, 60 + i), page) for i, page in enumerate(wanted))


def test_a_node_that_is_killed_is_used_again_when_it_is_back(
    start_sglang_node: StartNode, backend_of: Attach, caplog: pytest.LogCaptureFixture
) -> None:
    node = start_sglang_node("dram.capacity=64MiB")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, deadline=1.0)
    keys = names(5)
    assert all(set_v1(backend, keys, list(range(5))))
    with caplog.at_level(logging.INFO, "cenote"):
        kill_node(node)
        until("sets are misses", lambda: set_v1(backend, names(2), [1, 2]) == [False, False])
        for _ in range(20):
            assert set_v1(backend, names(2), [1, 2]) == [False, False]
            assert backend.batch_exists(keys) == 0
            assert get_v1(backend, keys, list(range(5))) == [False] * 5
        away = [each.getMessage() for each in caplog.records]
        assert len([each for each in away if each.startswith("lost the node")]) == 1, away
        assert len(away) <= 3, away
        node.start()
        until("the node is used again", lambda: all(set_v1(backend, keys, list(range(5)))))
    assert "attached to the node" in caplog.text
    wanted = page_of(pool, 3)
    fill(pool)
    assert backend.batch_exists(keys) == 5
    assert all(get_v1(backend, keys, list(range(20, 25))))
    assert torch.equal(page_of(pool, 23), wanted)


def test_an_engine_that_started_before_its_node_uses_it(
    start_sglang_node: StartNode, backend_of: Attach, tmp_path: Path
) -> None:
    pool = host_pool(False, "page_first")
    backend = backend_of(None, pool, socket=str(tmp_path / "run0" / "cenote.sock"))
    keys = names(2)
    assert set_v1(backend, keys, [0, 1]) == [False, False]
    start_sglang_node("dram.capacity=16MiB")
    until("the node is used", lambda: set_v1(backend, keys, [0, 1]) == [True, True])
    assert backend.batch_exists(keys) == 2


# ---- the whole engine


def test_an_engine_goes_on_while_its_node_dies_and_comes_back(
    start_sglang_node: StartNode, engine_of: EngineOf
) -> None:
    node = start_sglang_node("dram.capacity=64MiB")
    engine = engine_of(node, deadline=1.0)
    prompts = [sequence(8) for _ in range(3)]
    engine.compute(prompts[0])
    engine.backed_up()
    engine.forget()
    assert engine.prefetch(prompts[0]) == len(prompts[0])

    kill_node(node)
    engine.compute(prompts[1])
    engine.backed_up()
    engine.forget()
    assert engine.prefetch(prompts[1]) == 0
    engine.compute(prompts[1])
    assert engine.load_back(prompts[1]) == len(prompts[1])

    node.start()
    engine.forget()

    def stored() -> bool:
        engine.forget()
        engine.compute(prompts[2])
        engine.backed_up()
        return int(engine.backend.batch_exists(engine.keys(prompts[2]))) == 8

    until("the node is used again", stored)
    engine.forget()
    assert engine.prefetch(prompts[2]) == len(prompts[2])
    assert engine.load_back(prompts[2]) == len(prompts[2])


def test_a_node_that_dies_in_the_middle_of_a_prefetch_gives_right_pages_or_none(
    start_sglang_node: StartNode, engine_of: EngineOf
) -> None:
    node = start_sglang_node("dram.capacity=64MiB")
    engine = engine_of(node, tokens=4096, deadline=1.0)
    tokens = sequence(200)  # two batches
    engine.compute(tokens)
    engine.backed_up()
    engine.forget()
    first_batch = engine.backend.batch_get_v1

    def and_then_die(*arguments: Any) -> Any:
        found = first_batch(*arguments)
        engine.backend.batch_get_v1 = first_batch
        kill_node(node)
        return found

    engine.backend.batch_get_v1 = and_then_die
    loaded = engine.prefetch(tokens)
    assert loaded >= 128 * engine.page
    assert engine.load_back(tokens) == loaded


def test_the_bytes_of_an_engine_come_from_the_node(start_sglang_node: StartNode, engine_of: EngineOf) -> None:
    """With every block altered the comparison fails that all other tests rely on."""
    node = start_sglang_node("dram.capacity=64MiB", "debug.enabled=true")
    engine = engine_of(node)
    tokens = sequence(4)
    engine.compute(tokens)
    engine.backed_up()
    engine.forget()
    assert run_cenote("debug", "corrupt", "--all", "--socket", node.socket).returncode == 0
    assert engine.prefetch(tokens) == len(tokens)
    with pytest.raises(AssertionError, match="page 0"):
        engine.load_back(tokens)


def test_an_engine_detaches_and_attaches_again(start_sglang_node: StartNode, engine_of: EngineOf) -> None:
    node = start_sglang_node("dram.capacity=64MiB")
    engine = engine_of(node, attach=False)
    tokens = sequence(6)
    for _ in range(3):
        engine.attach()
        engine.compute(tokens)
        engine.backed_up()
        until("there is one session", lambda: len(node.status()["sessions"]) == 1)
        engine.detach()
        until("there is no session", lambda: not node.status()["sessions"])
        engine.forget()
        engine.compute(tokens)  # without storage
        engine.backed_up()
        engine.forget()
        engine.attach()
        assert engine.prefetch(tokens) == len(tokens)
        assert engine.load_back(tokens) == len(tokens)
        engine.detach()
        engine.forget()


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "generic"])
def test_random_delays_and_failures_give_right_bytes_or_a_miss(
    start_sglang_node: StartNode, engine_of: EngineOf, monkeypatch: pytest.MonkeyPatch, v1: bool
) -> None:
    """SGLang's own injector, in front of the backend."""
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_DELAY", "0.01")
    monkeypatch.setenv("SGLANG_TEST_HICACHE_BACKEND_RANDOM_FAILURE", "0.3")
    node = start_sglang_node("dram.capacity=64MiB")
    engine = engine_of(node, v1=v1)
    assert type(engine.cache.cache_controller.storage_backend).__name__ == "HiCacheStorageFailureInjector"
    loaded = []
    for turn in range(20):
        tokens = sequence(8, seed=turn % 5)
        engine.compute(tokens)
        engine.backed_up()
        engine.forget()
        loaded.append(engine.prefetch(tokens))
        assert engine.load_back(tokens) == loaded[-1]
        engine.forget()
    assert 0 in loaded
    assert 8 * engine.page in loaded


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_a_device_that_fails_loses_pages_and_serves_no_wrong_one(
    start_sglang_node: StartNode, backend_of: Attach, number: int
) -> None:
    node = start_sglang_node("dram.capacity=16MiB")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, device=f"sim:0,fail={number}")
    keys = names(4)
    written = {i: page_of(pool, i) for i in range(4)}
    there = [set_v1(backend, [keys[i]], [i])[0] for i in range(4)]  # each is a copy of its own
    got = [get_v1(backend, [keys[i]], [4 + i])[0] for i in range(4)]
    assert sum(there) >= 3
    assert sum(there) - sum(got) <= 1
    for i in range(4):
        if got[i]:
            assert there[i]
            assert torch.equal(page_of(pool, 4 + i), written[i])
    # the processor goes on
    assert all(get_v1(backend, [keys[i]], [4 + i])[0] for i in range(4) if there[i])


def test_a_forked_child_has_a_session_of_its_own(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = start_sglang_node("dram.capacity=16MiB")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool)
    keys = names(2)
    assert all(set_v1(backend, keys, [0, 1]))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            there = backend.batch_exists(keys) == 2 or backend.batch_exists(keys) == 2
            code = 0 if there and all(get_v1(backend, keys, [5, 6])) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert backend.batch_exists(keys) == 2
    assert all(get_v1(backend, keys, [5, 6]))


def test_an_engine_that_only_reads_notices_a_node_that_is_gone_and_one_that_comes(
    start_sglang_node: StartNode, backend_of: Attach, caplog: pytest.LogCaptureFixture
) -> None:
    node = start_sglang_node("dram.capacity=16MiB")
    backend = backend_of(node, host_pool(False, "page_first"))
    keys = names(3)
    assert set_v1(backend, keys, [0, 1, 2]) == [True] * 3
    assert backend.batch_exists(keys) == 3
    kill_node(node)
    with caplog.at_level(logging.INFO, "cenote"):
        until("what is gone is not found", lambda: backend.batch_exists(keys) == 0)
        assert "lost the node" in caplog.text
        node.start()
        until("it is attached again", lambda: "attached to the node" in caplog.text)


def test_the_end_of_the_interpreter_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules lose their names before the last objects go."""
    import cenote.sglang

    for name in ("contextlib", "logger", "threading"):
        monkeypatch.setattr(cenote.sglang, name, None, raising=False)
    backend = cenote.sglang.CenoteHiCache.__new__(cenote.sglang.CenoteHiCache)
    backend.__del__()


def test_what_is_complained_of_keeps_no_exception_and_so_no_session(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="cenote.sglang"):
        _Complaints().log("batch_get_v1", cenote.DeadlineExceeded("the node did not answer"))
    (record,) = caplog.records
    assert "the node did not answer" in record.getMessage()
    assert not any(isinstance(each, BaseException) for each in record.args or ())
