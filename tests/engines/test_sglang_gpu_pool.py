"""Pages on a device of the node: the same bytes and lengths as in DRAM, whatever becomes of the device."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("sglang", reason="SGLang is not installed in this environment")

import cenote._near as near_module
import cenote.sglang as adapter
import numpy as np
import torch
from cenote import LimitExceeded
from cenote._sglang.copier import NearCopier
from sglang_support import (
    Engine,
    Node,
    fill,
    get_v1,
    host_pool,
    names,
    page_of,
    sequence,
    set_v1,
    until,
)

pytest_plugins = ["sglang_support"]

Attach = Callable[..., Any]
StartNode = Callable[..., Node]
EngineOf = Callable[..., Engine]

POOL: dict[str, Any] = {"device": "sim:0", "gpu_pool": True}
BIG = {"layers": 4, "heads": 8, "dim": 128}  # 256 KiB a page
LOST = "lost the blocks on sim:0, running on with DRAM"


def gpu(*sets: str, devices: str = "sim:0", capacity: str = "16MiB") -> tuple[str, ...]:
    return (f'gpu.devices=["{devices}"]', f"gpu.capacity={capacity}", "dram.capacity=32MiB", *sets)


def on_device(node: Node) -> dict[str, Any]:
    (found,) = node.status()["gpu"]["devices"]
    return dict(found)


def ready(node: Node) -> Node:
    until("the device's tier is ready", lambda: on_device(node)["state"] == "ready")
    return node


def near_of(backend: Any) -> Any:
    """The session on the device of a backend's first pool."""
    return getattr(backend, "_backend", backend)._pools[0]._near.session()


def host_of(backend: Any) -> Any:
    return getattr(backend, "_backend", backend)._pools[0].session()


def raw(keys: list[str]) -> list[bytes]:
    return [bytes.fromhex(each) for each in keys]


def alter(session: Any, keys: list[str]) -> None:
    """What the node has of these pages on its simulated device becomes zeros there, and nowhere else."""
    with session.acquire(raw(keys)) as held:
        assert len(held) == len(keys)
        for address in held.addresses():
            ctypes.memset(address, 0, held.part_bytes())


def test_pages_come_from_the_device_with_their_bytes_also_when_the_worker_was_killed(
    start_sglang_node: StartNode, backend_of: Attach
) -> None:
    node = ready(start_sglang_node(*gpu()))
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, **POOL)
    keys, wanted = names(8), [page_of(pool, each) for each in range(8)]
    assert all(set_v1(backend, keys, list(range(8))))
    assert near_of(backend).exists(raw(keys)) == [True] * 8
    until("DRAM has them, too", lambda: all(host_of(backend).exists(raw(keys))))
    for _ in range(2):
        fill(pool)
        assert backend.batch_exists(keys) == 8
        assert get_v1(backend, keys, list(range(8, 16))) == [True] * 8
        assert all(torch.equal(page_of(pool, 8 + i), wanted[i]) for i in range(8))
        node.worker_dies()
        ready(node)
        until("the session is there again", lambda: near_of(backend) is not None)
    assert near_of(backend).stats()["blocks_pinned"] >= 16
    # altered there, though not in DRAM, they come altered: those above were the device's
    alter(near_of(backend), keys[:4])
    assert get_v1(backend, keys, list(range(8, 16))) == [True] * 8
    assert [bool(page_of(pool, 8 + i).any()) for i in range(8)] == [False] * 4 + [True] * 4


def test_a_prefix_is_what_the_device_and_dram_have_together(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = ready(start_sglang_node(*gpu("gpu.ingest=none")))
    pool = host_pool(False, "page_first")
    backend, plain = backend_of(node, pool, **POOL), backend_of(node, pool)
    keys, wanted = names(9), [page_of(pool, each) for each in range(9)]
    assert all(set_v1(backend, keys[:3], [0, 1, 2]))  # on the device alone
    assert all(set_v1(plain, keys[3:5], [3, 4]))  # in DRAM alone
    assert all(set_v1(backend, keys[5:7], [5, 6]))
    assert all(set_v1(plain, keys[8:], [8]))
    fill(pool)
    assert backend.batch_exists(keys) == 7
    assert plain.batch_exists(keys) == 0
    assert get_v1(backend, keys, list(range(16, 25))) == [True] * 7 + [False] * 2
    assert all(torch.equal(page_of(pool, 16 + i), wanted[i]) for i in range(7))
    assert backend.clear()
    assert backend.batch_exists(keys) == 0
    assert not any(near_of(backend).exists(raw(keys)))
    assert not any(host_of(backend).exists(raw(keys)))


def test_a_device_that_is_full_leaves_the_rest_to_dram(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = ready(start_sglang_node(*gpu("gpu.ingest=none", capacity="4MiB")))  # 16 pages at most, four of them blank
    pool = host_pool(False, "page_first", **BIG)
    backend = backend_of(node, pool, **POOL)
    keys, wanted = names(24), [page_of(pool, each) for each in range(24)]
    for i in range(0, 24, 4):
        assert all(set_v1(backend, keys[i : i + 4], list(range(i, i + 4))))
        assert backend.batch_exists(keys[: i + 4]) == i + 4  # pins them: nothing can be evicted
    fill(pool)
    assert backend.batch_exists(keys) == 24
    assert get_v1(backend, keys, list(range(32, 56))) == [True] * 24
    assert all(torch.equal(page_of(pool, 32 + i), wanted[i]) for i in range(24))
    there = sum(near_of(backend).exists(raw(keys)))
    assert 0 < there <= 16
    assert sum(host_of(backend).exists(raw(keys))) == 24 - there


def test_a_device_that_goes_away_costs_no_page_that_dram_can_take(
    start_sglang_node: StartNode, backend_of: Attach, caplog: pytest.LogCaptureFixture
) -> None:
    node = ready(start_sglang_node(*gpu(devices="sim:0,fail=3")))
    node.allowed_errors.append("a device failed")
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, **POOL)
    keys, wanted = names(8), [page_of(pool, each) for each in range(8)]
    with caplog.at_level(logging.WARNING):
        for i in range(8):  # the node's third copy to DRAM fails
            assert set_v1(backend, [keys[i]], [i]) == [True]
        until("the device is away", lambda: on_device(node)["state"] == "away")
        until("the backend noticed", lambda: near_of(backend) is None)
    assert sum(LOST in each.message for each in caplog.records) == 1
    fill(pool)
    found = backend.batch_exists(keys)
    got = get_v1(backend, keys, list(range(8, 16)))
    assert got == [True] * found + [False] * (8 - found)
    assert all(torch.equal(page_of(pool, 8 + i), wanted[i]) for i in range(found))
    again = [page_of(pool, i) for i in range(16, 24)]
    assert all(set_v1(backend, more := names(8), list(range(16, 24))))
    assert backend.batch_exists(more) == 8
    assert get_v1(backend, more, list(range(32, 40))) == [True] * 8
    assert all(torch.equal(page_of(pool, 32 + i), again[i]) for i in range(8))


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_device_that_fails_in_the_engine_serves_no_wrong_page(
    start_sglang_node: StartNode, backend_of: Attach, number: int
) -> None:
    node = ready(start_sglang_node(*gpu()))
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, device=f"sim:0,fail={number}", gpu_pool=True)
    keys, wanted = names(4), [page_of(pool, each) for each in range(4)]
    stored = [set_v1(backend, [keys[i]], [i])[0] for i in range(4)]  # each is a copy of its own
    fill(pool)
    for _ in range(2):
        for i in range(4):
            if get_v1(backend, [keys[i]], [8 + i]) == [True]:
                assert stored[i]
                assert torch.equal(page_of(pool, 8 + i), wanted[i])
    assert near_of(backend) is None
    assert sum(stored) >= 3
    assert on_device(node)["state"] == "ready", "what fails in an engine is that engine's"


def test_an_engine_gets_its_prompt_from_the_device(start_sglang_node: StartNode, engine_of: EngineOf) -> None:
    node = ready(start_sglang_node(*gpu("gpu.ingest=none")))
    engine = engine_of(node, **POOL)
    tokens = sequence(12)
    engine.compute(tokens)
    engine.backed_up()
    keys = raw(engine.keys(tokens))
    assert near_of(engine.backend).exists(keys) == [True] * 12
    assert not any(host_of(engine.backend).exists(keys))
    engine.forget()
    assert engine.prefetch(tokens) == len(tokens)
    assert engine.load_back(tokens) == len(tokens)


class Refusing:
    """While it is set, no copy of pages on the device is done but its first half."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_set, self.count = False, 0
        plain = NearCopier.copy

        def copy(copier: NearCopier, way: str, targets: Any, sources: Any, sizes: Any) -> None:
            if not self.is_set:
                return plain(copier, way, targets, sources, sizes)
            self.count += 1
            half = (len(np.broadcast_to(sources, targets.shape)) + 1) // 2
            plain(copier, way, targets[:half], sources[:half], sizes)
            raise LimitExceeded("more than one launch takes")

        monkeypatch.setattr(NearCopier, "copy", copy)
        monkeypatch.setattr(near_module, "_QUIET", 60.0)


def test_pages_that_a_device_refuses_to_copy_go_by_way_of_dram_and_it_is_asked_again(
    start_sglang_node: StartNode,
    backend_of: Attach,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, refusing = ready(start_sglang_node(*gpu())), Refusing(monkeypatch)
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, **POOL)
    near = getattr(backend, "_backend", backend)._pools[0]._near
    keys, wanted = names(8), [page_of(pool, each) for each in range(8)]
    assert all(set_v1(backend, keys[:4], list(range(4))))
    until("DRAM has them, too", lambda: all(host_of(backend).exists(raw(keys[:4]))))
    refusing.is_set = True
    with caplog.at_level(logging.WARNING):
        assert all(set_v1(backend, keys[4:], list(range(4, 8))))
        near._quiet_until = 0.0
        assert near_of(backend).exists(raw(keys)) == [True] * 4 + [False] * 4
        fill(pool)
        assert backend.batch_exists(keys) == 8
        assert get_v1(backend, keys, list(range(8, 16))) == [True] * 8
    assert all(torch.equal(page_of(pool, 8 + i), wanted[i]) for i in range(8))
    assert refusing.count == 2 and near.session() is None
    assert [each.message.split(":")[0] for each in caplog.records] == [
        "the device's blocks are left alone for 60 s, DRAM has to do"
    ] * 2
    refusing.is_set, near._quiet_until = False, 0.0
    alter(near_of(backend), keys[:4])  # what comes from there is told by that
    assert get_v1(backend, keys, list(range(8, 16))) == [True] * 8
    assert [bool(page_of(pool, 8 + i).any()) for i in range(8)] == [False] * 4 + [True] * 4
    assert all(set_v1(backend, more := names(2), [8, 9]))
    assert near_of(backend).exists(raw(more)) == [True] * 2


def test_pages_that_only_a_device_has_are_a_miss_while_it_refuses(
    start_sglang_node: StartNode, backend_of: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, refusing = ready(start_sglang_node(*gpu("gpu.ingest=none"))), Refusing(monkeypatch)
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, **POOL)
    near = getattr(backend, "_backend", backend)._pools[0]._near
    keys, wanted = names(4), [page_of(pool, each) for each in range(4)]
    assert all(set_v1(backend, keys, list(range(4))))
    refusing.is_set = True
    assert backend.batch_exists(keys) == 4
    assert get_v1(backend, keys, list(range(8, 12))) == [False] * 4
    assert backend.batch_exists(keys) == 0
    refusing.is_set, near._quiet_until = False, 0.0
    assert get_v1(backend, keys, list(range(8, 12))) == [True] * 4
    assert all(torch.equal(page_of(pool, 8 + i), wanted[i]) for i in range(4))


@pytest.mark.parametrize("gpu_of_kv", ["sim:0", "sim:1", None])
def test_without_a_name_it_is_the_device_of_the_engine_s_kv_if_the_node_has_that(
    start_sglang_node: StartNode,
    backend_of: Attach,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gpu_of_kv: str | None,
) -> None:
    monkeypatch.delenv("CENOTE_TEST_DEVICE", raising=False)
    monkeypatch.setattr(adapter, "gpu_of", lambda pool: gpu_of_kv)
    node = ready(start_sglang_node(*gpu()))
    pool = host_pool(False, "page_first")
    keys, wanted = names(4), [page_of(pool, each) for each in range(4)]
    with caplog.at_level(logging.WARNING):
        backend = backend_of(node, pool, gpu_pool=True)
        assert all(set_v1(backend, keys, list(range(4))))
        fill(pool)
        assert backend.batch_exists(keys) == 4
        assert get_v1(backend, keys, list(range(8, 12))) == [True] * 4
    assert all(torch.equal(page_of(pool, 8 + i), wanted[i]) for i in range(4))
    assert on_device(node)["commits"] == (4 if gpu_of_kv == "sim:0" else 0)
    says = {"sim:0": [], "sim:1": ["no blocks on sim:1"], None: ["`gpu_pool` without `device`"]}[gpu_of_kv]
    said = [each.message for each in caplog.records if each.name == "cenote"]
    assert len(said) == len(says) and all(map(str.startswith, said, says))


def test_an_option_that_cannot_be_used_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, backend_of: Attach
) -> None:
    monkeypatch.delenv("CENOTE_TEST_DEVICE", raising=False)
    with pytest.raises(ValueError, match="gpu_pool is 'yes'"):
        backend_of(None, host_pool(False, "page_first"), gpu_pool="yes")


def test_calls_end_at_their_deadline_when_the_node_hangs(start_sglang_node: StartNode, backend_of: Attach) -> None:
    node = ready(start_sglang_node(*gpu()))
    pool = host_pool(False, "page_first")
    backend = backend_of(node, pool, deadline=0.8, **POOL)
    keys = names(8)
    assert all(set_v1(backend, keys, list(range(8))))
    until("DRAM has them, too", lambda: all(host_of(backend).exists(raw(keys))))
    with node.worker_stopped():
        assert backend.batch_exists(keys) == 8  # shared memory asks nobody
        assert get_v1(backend, keys, list(range(20, 28))) == [True] * 8
        assert set_v1(backend, names(40), list(range(40))) == [False] * 40
        assert near_of(backend) is None, "it is left alone for a while"
        assert set_v1(backend, keys, list(range(8))) == [True] * 8, "it is there already"
    until("sets work again", lambda: all(set_v1(backend, names(2), [1, 2])))
    until("the device is used again", lambda: near_of(backend) is not None)
    assert backend.batch_exists(keys) == 8
