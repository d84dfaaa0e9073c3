"""Reads of `cenote manager`: what they make of the order of eviction, which storage they choose, what goes first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from manager import Answer, Manager, group_message, uris_of
from node import until

BLOCK = 1024
Read = Callable[[Manager, Sequence[int]], Answer]


def measure(kind: str, **fields: Any) -> Read:
    def read(manager: Manager, keys: Sequence[int]) -> Answer:
        return manager.do("getCacheLocationLen", instance_id="i", query_type=kind, block_keys=list(keys), **fields)

    return read


def locate(manager: Manager, keys: Sequence[int]) -> Answer:
    return manager.do("getCacheLocation", instance_id="i", block_keys=list(keys))


def by_backend(*selectors: dict[str, Any]) -> Read:
    def read(manager: Manager, keys: Sequence[int]) -> Answer:
        return manager.do(
            "getCacheLocationsByBackend", instance_id="i", block_keys=list(keys), backend_selectors=list(selectors)
        )

    return read


def look_up_states(manager: Manager, keys: Sequence[int]) -> Answer:
    return manager.do("getCacheMeta", instance_id="i", block_keys=list(keys))


def evict(manager: Manager, group: dict[str, Any], rest: int, **strategy: Any) -> None:
    """Lets a group keep `rest` of its blocks, once."""
    used = used_bytes(manager)
    reclaim = group["cache_config"]["reclaim_strategy"] | {"reclaim_step_size": used - rest * BLOCK}
    reclaim |= {"trigger_strategy": {"used_size": used}} | strategy
    config = group["cache_config"] | {"reclaim_strategy": reclaim}
    update = group | {"cache_config": config, "version": 2}
    manager.do("updateInstanceGroup", instance_group=update, current_version=1)


def used_bytes(manager: Manager) -> int:
    return sum(each["used_bytes"] for each in manager.ask(manager.admin, "GET", "/status").json["instances"])


def served(manager: Manager, instance: str, keys: Sequence[int]) -> list[int]:
    states = manager.states(instance, keys)
    return [key for key, state in zip(keys, states, strict=True) if state == "CLS_SERVING"]


def until_counted(manager: Manager, blocks: int) -> None:
    """The writer's figures have that many blocks."""
    until(f"{blocks} blocks are counted", lambda: used_bytes(manager) == blocks * BLOCK)


@pytest.mark.parametrize(
    ("read", "refreshes"),
    [
        pytest.param(locate, True, id="prefix"),
        pytest.param(measure("QT_PREFIX_MATCH"), True, id="length of a prefix"),
        pytest.param(measure("QT_BATCH_GET"), True, id="length of a batch"),
        pytest.param(measure("QT_REVERSE_ROLL_SW_MATCH", sw_size=4), True, id="length of a window"),
        pytest.param(measure("QT_PREFIX_MATCH_WITH_MAMBA"), True, id="length with specs"),
        pytest.param(by_backend(), True, id="by backend"),
        pytest.param(by_backend({"backend_type": "ST_NFS"}), True, id="by a backend"),
        pytest.param(look_up_states, False, id="states"),
    ],
)
def test_keys_that_were_read_go_last(tmp_path: Path, read: Read, refreshes: bool) -> None:
    keys = list(range(1, 17))
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("i")
        for key in keys:  # each a session of its own: none is in front of another one
            manager.write("i", [key])
        until_counted(manager, len(keys))
        read(manager, keys[:4])
        assert manager.figure("lookup_keys_total") == (4 if refreshes else 0)
        assert manager.figure("lookup_hits_total") == (4 if refreshes else 0)
        evict(manager, group_message("i"), rest=4)
        until("the others are evicted", lambda: len(served(manager, "i", keys)) == 4)
        assert served(manager, "i", keys) == (keys[:4] if refreshes else keys[-4:])
        page = manager.ask(manager.admin, "GET", "/metrics").body.decode()
        assert 'cenote_manager_evictions_total{reason="bytes"} 12\n' in page
        assert 'cenote_manager_evictions_total{reason="keys"} 0\n' in page
        assert manager.figure("evicted_blocks_total") == 12


def test_a_length_that_ends_within_the_first_keys_refreshes_these(tmp_path: Path) -> None:
    keys = list(range(1, 17))
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("i")
        for key in keys:
            manager.write("i", [key])
        until_counted(manager, len(keys))
        question = keys[:4] + list(range(1000, 1096))
        assert measure("QT_PREFIX_MATCH")(manager, question)["cache_location_len"] == "4"
        assert (manager.figure("lookup_keys_total"), manager.figure("lookup_hits_total")) == (100, 4)
        evict(manager, group_message("i"), rest=4)
        until("the others are evicted", lambda: len(served(manager, "i", keys)) == 4)
        assert served(manager, "i", keys) == keys[:4]


# ---------------------------------------------------------------------------------------------- choice


class CopyWorld:
    """A manager with key 1 in the storages s-i and s-copy of one type, and key 2 in s-copy alone."""

    def __init__(self, folder: Path, *sets: str) -> None:
        self.manager = Manager(folder / "manager", *sets)
        self.folder = folder

    def __enter__(self) -> CopyWorld:
        manager = self.manager.start()
        self.weigh("s-copy", None, "addStorage")
        manager.add_instance("i", blocks_per_file=1, group={"storage_candidates": ["s-i", "s-copy"]})
        manager.write("i", [1])
        granted = manager.do("startWriteCache", instance_id="i", block_keys=[1, 2], min_replica_count=2)
        assert {urlsplit(uris[0]).netloc for uris in uris_of(granted)} == {"s-copy"}
        session = granted["write_session_id"]
        manager.do("finishWriteCache", instance_id="i", write_session_id=session, success_blocks={"offset": 2})
        return self

    def __exit__(self, *error: Any) -> None:
        self.manager.__exit__(*error)

    def weigh(self, storage: str, weight: int | None, call: str = "updateStorage") -> None:
        root = self.manager.root / storage.removeprefix("s-")
        spec: dict[str, Any] = {"global_unique_name": storage, "nfs": {"root_path": f"{root}/"}}
        self.manager.do(call, storage=spec | ({} if weight is None else {"read_weight": weight}))

    def places(self, read: Read, key: int = 1) -> list[str]:
        """Storages of a key in one answer."""
        answer = read(self.manager, [key])
        entries = answer.get("key_locations", [answer])
        assert len(entries) == 1
        return [urlsplit(uri).netloc for location in uris_of(entries[0]) for uri in location]

    def draws(self, read: Read, count: int = 400) -> Counter[str]:
        return Counter(self.places(read)[0] for _ in range(count))


WEIGHTED = {"backend_type": "ST_NFS", "strategy": "LSS_WEIGHTED_RANDOM"}
READS = [
    pytest.param(locate, id="prefix"),
    pytest.param(by_backend(), id="by backend"),
    pytest.param(by_backend({"backend_type": "ST_NFS"}), id="by a backend"),
    pytest.param(by_backend(WEIGHTED), id="by weight"),
]


@pytest.mark.parametrize("read", READS)
def test_storages_are_read_by_their_weights(tmp_path: Path, read: Read) -> None:
    with CopyWorld(tmp_path) as world:
        draws = world.draws(read)
        assert 120 < draws["s-i"] < 280, draws  # 200, by the type's weight; the deviation is 10
        world.weigh("s-i", 1)
        world.weigh("s-copy", 9)
        draws = world.draws(read)
        assert 8 <= draws["s-i"] <= 88, draws  # 40, and 6
        world.weigh("s-copy", 0)
        assert world.draws(read, 50) == {"s-i": 50}
        assert world.places(read, 2) == []  # a weight of 0 is no read at all
        world.weigh("s-i", 0)
        assert world.places(read) == []
        world.weigh("s-copy", 1)
        assert world.draws(read, 50) == {"s-copy": 50}


def test_the_first_candidate_is_read_where_that_is_configured(tmp_path: Path) -> None:
    with CopyWorld(tmp_path, "manager.read_choice=first") as world:
        world.weigh("s-copy", 1000)
        for read in (locate, by_backend(), by_backend({"backend_type": "ST_NFS"})):
            assert world.draws(read, 50) == {"s-i": 50}
        assert world.draws(by_backend(WEIGHTED), 50)["s-copy"] > 0  # the request has a word of its own
        world.weigh("s-i", 0)
        assert world.draws(by_backend(), 20) == {"s-copy": 20}


def test_a_location_by_backend_has_the_specs_of_all_storages_of_a_type(tmp_path: Path) -> None:
    groups = [{"name": name, "spec_names": [name]} for name in ("a", "b")]
    with Manager(tmp_path / "manager", "manager.read_choice=first") as manager:
        spec = {"global_unique_name": "s-b", "nfs": {"root_path": f"{manager.root}/b/"}}
        manager.do("addStorage", storage=spec)
        threefs = {"cluster_name": "c", "mountpoint": str(tmp_path / "mount"), "root_dir": "kv"}
        manager.do("addStorage", storage={"global_unique_name": "s-3", "threefs": threefs})
        manager.add_instance("other")
        group = group_message("i") | {"storage_candidates": ["s-b"]}
        manager.do("createInstanceGroup", instance_group=group)
        message = {
            "instance_group": "g-i",
            "instance_id": "i",
            "block_size": 64,
            "model_deployment": {"model_name": "m", "dtype": "bf16"},
            "location_spec_infos": [{"name": name, "size": BLOCK} for name in ("a", "b")],
            "location_spec_groups": groups,
        }
        manager.do("registerInstance", **message)

        def write(spec: str, candidates: list[str], version: int) -> None:
            update = group | {"storage_candidates": candidates, "version": version}
            manager.do("updateInstanceGroup", instance_group=update, current_version=version - 1)
            names = {"location_spec_group_names": [spec]} if spec else {}
            granted = manager.do("startWriteCache", instance_id="i", block_keys=[1], min_replica_count=3, **names)
            session = granted["write_session_id"]
            manager.do("finishWriteCache", instance_id="i", write_session_id=session, success_blocks={"offset": 1})

        write("b", ["s-b"], 2)
        write("a", ["s-other"], 3)
        write("", ["s-3"], 4)
        answer = by_backend()(manager, [1])["key_locations"][0]["locations"]
        found = {each["type"]: [spec["name"] for spec in each["location_specs"]] for each in answer}
        assert {kind: sorted(names) for kind, names in found.items()} == {"ST_NFS": ["a", "b"], "ST_3FS": ["a", "b"]}
        twice = by_backend({"backend_type": "ST_3FS"}, {"backend_type": "ST_3FS"})(manager, [1])
        assert [each["type"] for each in twice["key_locations"][0]["locations"]] == ["ST_3FS"]
        refused = manager.call(
            "getCacheLocationsByBackend",
            instance_id="i",
            block_keys=[1],
            backend_selectors=[{"backend_type": "ST_NFS", "strategy": 9}],
        )
        assert "strategy" in str(refused["header"]["status"]["message"])


# ---------------------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("budget", "rest"),
    [
        ("GROUP_LRU", {"old": 0, "new": 8}),  # the oldest blocks, whosoever they are
        ("USAGE_PROPORTIONAL", {"old": 4, "new": 4}),  # of the one that has more
        ("FIXED_PER_INSTANCE", {"old": 8, "new": 0}),  # in turn
    ],
)
def test_a_group_s_instances_give_by_its_budget(tmp_path: Path, budget: str, rest: dict[str, int]) -> None:
    counts = {"old": 12, "new": 8} if budget != "FIXED_PER_INSTANCE" else {"old": 14, "new": 6}
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("old")
        manager.register("new", group="g-old")
        for instance, count in counts.items():
            for key in range(count):
                manager.write(instance, [key])
            time.sleep(0.3)  # the times of uses are tenths of a second
        until_counted(manager, sum(counts.values()))
        evict(manager, group_message("old"), rest=8, instance_reclaim_budget_policy=budget)

        def rests() -> dict[str, int]:
            return {each: len(served(manager, each, range(count))) for each, count in counts.items()}

        until("the level is reached", lambda: sum(rests().values()) == 8)
        assert rests() == rest
        for instance, count in counts.items():  # of each the oldest went
            assert served(manager, instance, range(count)) == list(range(count))[count - rest[instance] :]
