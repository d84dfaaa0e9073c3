"""A model of MetaService: what a manager must answer to any calls, and what it may while deletions are under way.

It knows each location by the addresses that its grant answered. A location that is being deleted may be gone at any
time, and is charged until then: where that decides about an answer, both answers are right."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from manager import Answer, code_of, mask_of, states_of, uris_of

SPECS = {"a": 64, "b": 128}
GROUPS = {"a": {"a"}, "b": {"b"}, "ab": {"a", "b"}, "ba": {"a", "b"}}
BLOCK_TOKENS = 2
WORD = (1 << 64) - 1
REMEMBERED = 30.0  # seconds for which a finished session is surely remembered

Key = tuple[str, int]  # an instance, and a number of 128 bits


class Difference(AssertionError):
    """An answer is not what the model has."""


@dataclass(eq=False)
class Place:
    """A location: the specs of a key that one session was granted."""

    storage: str
    uris: dict[str, str]  # by spec
    state: str = "WRITING"
    sums: dict[str, str] = field(default_factory=dict)
    wrote: tuple[int, int] = (0, 0)  # Unix seconds, not before and not after; (0, 0): its session is open

    @property
    def size(self) -> int:
        return sum(SPECS[spec] for spec in self.uris)


@dataclass
class Session:
    instance: str
    name: str
    places: list[Place]
    ending: tuple[list[bool], list[str]] | None = None  # of its finish
    finished_at: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Of the group and its storages, in the order of the candidates; 0: none."""

    storages: dict[str, tuple[str, int]]  # type and bytes by name
    total: int
    types: dict[str, int]
    keys: int


def token_keys(tokens: Sequence[int]) -> list[int]:
    keys, value = [], 0
    for begin in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        for token in tokens[begin : begin + BLOCK_TOKENS]:
            signed = value - (1 << 64) if value >> 63 else value
            value ^= (token + 0x9E3779B97F4A7C15 + (value << 12) + (signed >> 32)) & WORD
        keys.append(value)
    return keys


def check(is_right: bool, subject: str, answer: Any) -> None:
    if not is_right:
        raise Difference(f"{subject}: {answer}")


def check_code(answer: Answer, expected: str | set[str]) -> str:
    code = code_of(answer)
    check(code in ({expected} if isinstance(expected, str) else expected), f"code {code}, not {expected}", answer)
    return code


class Model:
    """The state, and checks of answers that change it as the calls do."""

    def __init__(self, limits: Limits, defaults: dict[str, str]) -> None:
        self.limits = limits
        self.defaults = defaults  # query types by instance
        self.places: dict[Key, list[Place]] = {}
        self.homes: dict[str, tuple[Key, str, Place]] = {}  # by address
        self.addresses: set[str] = set()

    # ---- places

    def all_places(self) -> Iterator[tuple[Key, Place]]:
        return ((key, place) for key, places in self.places.items() for place in places)

    def live(self, key: Key) -> list[Place]:
        return [place for place in self.places.get(key, []) if place.state != "DELETING"]

    def served(self, key: Key) -> set[str]:
        return {spec for place in self.places.get(key, []) if place.state == "SERVING" for spec in place.uris}

    def used(self, storages: Iterable[str]) -> tuple[int, int]:
        """The least and the most bytes that are charged there."""
        names, least, most = set(storages), 0, 0
        for _, place in self.all_places():
            if place.storage in names:
                most += place.size
                least += place.size if place.state != "DELETING" else 0
        return least, most

    def used_by(self, instance: str) -> int:
        """The least bytes that are charged to an instance."""
        return sum(place.size for key, place in self.all_places() if key[0] == instance and place.state != "DELETING")

    def forget(self, key: Key, places: Iterable[Place]) -> None:
        for place in list(places):
            self.places[key].remove(place)
            place.state = "DELETING"
            for uri in place.uris.values():
                del self.homes[uri]
        if not self.places[key]:
            del self.places[key]

    def forget_deleted(self) -> None:
        for key, places in list(self.places.items()):
            self.forget(key, [place for place in places if place.state == "DELETING"])

    # ---- requests

    @staticmethod
    def keys_of(fields: dict[str, Any], numbers: Sequence[int]) -> list[int]:
        """The keys that a request means; `numbers` are those of its byte_keys."""
        if fields.get("block_keys"):
            return [key & WORD for key in fields["block_keys"]]
        return list(numbers) or token_keys(fields.get("token_ids", []))

    @staticmethod
    def masked(fields: dict[str, Any], name: str, count: int) -> list[bool] | None:
        """None: the mask is not right."""
        mask = fields.get(name, {"offset": 0})
        if "bool_masks" in mask:
            values = list(mask["bool_masks"]["values"])
            return values if len(values) == count else None
        return [place < mask["offset"] for place in range(count)] if 0 <= mask["offset"] <= count else None

    # ---- writes

    def _grants(self, instance: str, keys: list[int], fields: dict[str, Any]) -> tuple[list[set[str]], list[str]]:
        """The specs that are granted by position, and the storages that may take them."""
        replicas = fields.get("min_replica_count", 0)
        groups = fields.get("location_spec_group_names") or ["ab"] * len(keys)
        storages = list(self.limits.storages)
        granted: list[set[str]] = []
        mine: set[int] = set()
        for key, group in zip(keys, groups, strict=True):
            by_storage: dict[str, set[str]] = {}
            for place in self.live((instance, key)):
                by_storage.setdefault(place.storage, set()).update(place.uris)
            missing = GROUPS[group] - set().union(*by_storage.values())
            if replicas > 1:
                is_complete = sum(GROUPS[group] <= specs for specs in by_storage.values()) >= replicas
                missing = set() if is_complete else GROUPS[group]
            if key in mine:
                missing = set()
            elif missing and replicas > 1:
                storages = [name for name in storages if name not in by_storage]
            mine |= {key} if missing else set()
            granted.append(missing)
        return granted, storages

    def _rooms(self, size: int, storages: list[str]) -> tuple[list[str], list[str]]:
        """The storages that surely have room, and those that may have."""
        surely, possibly = [], []
        for name in storages:
            kind, capacity = self.limits.storages[name]
            alike = [other for other, (each, _) in self.limits.storages.items() if each == kind]
            bounds = [(self.limits.total, self.used(self.limits.storages)), (capacity, self.used([name]))]
            bounds.append((self.limits.types.get(kind, 0), self.used(alike)))
            surely += [name] if all(not bound or most + size <= bound for bound, (_, most) in bounds) else []
            possibly += [name] if all(not bound or least + size <= bound for bound, (least, _) in bounds) else []
        return surely, possibly

    def start(self, instance: str, keys: list[int], fields: dict[str, Any], answer: Answer) -> Session | None:
        granted, storages = self._grants(instance, keys, fields)
        size = sum(SPECS[spec] for specs in granted for spec in specs)
        asked = {(instance, key) for key, specs in zip(keys, granted, strict=True) if specs}
        own = {key for key in self.places if key[0] == instance}
        least_keys = len({key for key in own if self.live(key)} | asked)
        surely, possibly = self._rooms(size, storages)
        is_full = least_keys > self.limits.keys
        may_be_full = len(own | asked) > self.limits.keys
        codes = {"OK"} if not asked or (possibly and not is_full) else set()
        if asked and (is_full or may_be_full or (storages and not surely)):
            codes.add("REACH_MAX_ENTITY_CAPACITY")
        if asked and not storages and not is_full:
            codes.add("IO_ERROR")
        if check_code(answer, codes) != "OK":
            check(not answer.get("locations"), "locations of a refusal", answer)
            return None
        check(mask_of(answer, len(keys)) == [not specs for specs in granted], f"mask of {granted}", answer)
        places = []
        wanted = [(key, specs) for key, specs in zip(keys, granted, strict=True) if specs]
        check(len(answer.get("locations", [])) == len(wanted), f"locations of {wanted}", answer)
        for (key, specs), location in zip(wanted, answer.get("locations", []), strict=True):
            uris = {spec["name"]: spec["uri"] for spec in location["location_specs"]}
            check(uris.keys() == specs and not self.addresses & set(uris.values()), f"specs {specs}", answer)
            self.addresses |= set(uris.values())
            places.append(Place(next(iter(uris.values())).split("/")[2], uris))
            self.places.setdefault((instance, key), []).append(places[-1])
            self.homes |= {uri: ((instance, key), spec, places[-1]) for spec, uri in uris.items()}
        if places:
            name = places[0].storage
            is_first = name in possibly and not set(storages[: storages.index(name)]) & set(surely)
            check(is_first and {place.storage for place in places} == {name}, f"storage, not of {possibly}", answer)
        return Session(instance, answer["write_session_id"], places)

    def finish(self, session: Session, instance: str, fields: dict[str, Any], begin: float, answer: Answer) -> None:
        sums = [str(value) for value in fields.get("checksums", [])]
        success = self.masked(fields, "success_blocks", len(session.places))
        specs = [(place, spec) for place in session.places for spec in sorted(place.uris)]
        if instance != session.instance:
            check_code(answer, "SESSION_NOT_FOUND")
        elif session.ending is not None and session.places:
            check_code(answer, "OK" if session.ending == (success, sums) else "INVALID_ARGUMENT")
        elif success is None or (sums and len(sums) != len(specs)) or (sums and not specs):
            check_code(answer, "INVALID_ARGUMENT")
        else:
            check_code(answer, "OK")
            session.ending, session.finished_at = (success, sums), time.monotonic()
            for (place, spec), value in zip(specs, sums, strict=False):
                place.sums[spec] = value
            for place, is_well in zip(session.places, success, strict=True):
                place.wrote = (int(begin) - 1, int(time.time()) + 1)
                if place.state == "WRITING":
                    place.state = "SERVING" if is_well else "DELETING"

    def expire(self, session: Session) -> None:
        for place in session.places:
            place.state = "DELETING"

    def remove(self, instance: str, keys: list[int], fields: dict[str, Any], answer: Answer) -> None:
        spared = self.masked(fields, "block_mask", len(keys))
        check_code(answer, "OK" if spared is not None else "INVALID_ARGUMENT")
        for key, stays in zip(keys, spared or [], strict=spared is not None):
            for place in [] if stays else self.live((instance, key)):
                place.state = "DELETING"

    def is_clear(self, instance: str, begin: int, end: int) -> bool:
        """Whether it is known for all locations if they were written in these seconds."""
        wrote = [place.wrote for key, place in self.all_places() if key[0] == instance and place.state == "SERVING"]
        return all(end < first or last < begin or begin <= first <= last <= end for first, last in wrote)

    def trim(self, instance: str, fields: dict[str, Any], answer: Answer) -> None:
        begin, end = max(fields.get("begin_timestamp", 0), 1), fields.get("end_timestamp", 0)
        is_right = fields["strategy"] != "TS_TIMESTAMP" or fields["end_timestamp"] >= fields["begin_timestamp"]
        if check_code(answer, "OK" if is_right else "INVALID_ARGUMENT") != "OK":
            return
        for key, places in [(key, list(places)) for key, places in self.places.items() if key[0] == instance]:
            if fields["strategy"] == "TS_REMOVE_ALL_META":
                self.forget(key, places)
                continue
            for place in places:
                if fields["strategy"] == "TS_REMOVE_ALL_CACHE" or begin <= place.wrote[0] <= end:
                    place.state = "DELETING"

    # ---- reads

    def _check_entry(self, key: Key, location: Any, expected: set[str], answer: Answer) -> None:
        """An entry has the addresses of these specs, all of locations that are served."""
        filled = {spec["name"]: spec for spec in location["location_specs"] if spec["uri"]}
        check(filled.keys() == expected, f"specs of {key}: {set(filled)}, not {expected}", answer)
        for name, spec in filled.items():
            home, own_name, place = self.homes.get(spec["uri"], (None, "", Place("", {})))
            check((home, own_name, place.state) == (key, name, "SERVING"), f"address of {key}: {spec}", answer)
            check(str(spec.get("checksum", 0)) == place.sums.get(name, "0"), f"{spec} is {place}", answer)

    def hits(self, instance: str, keys: list[int], fields: dict[str, Any]) -> tuple[list[int], list[int]] | None:
        """The keys that are asked for, and the positions of hits among them. None: refused."""
        kind = fields.get("query_type", "QT_UNSPECIFIED")
        kind = self.defaults[instance] if kind == "QT_UNSPECIFIED" else kind
        if kind.startswith("QT_PREFIX"):
            masked = self.masked(fields, "block_mask", len(keys))
            if masked is None:
                return None
            keys = [key for key, drops in zip(keys, masked, strict=True) if not drops]
        served = [self.served((instance, key)) for key in keys]
        if kind == "QT_BATCH_GET":
            return keys, [place for place, specs in enumerate(served) if specs]
        if kind == "QT_REVERSE_ROLL_SW_MATCH":
            size = fields.get("sw_size", 0)
            if not 1 <= size <= len(keys):
                return None
            runs = (run for run in range(len(keys) - size, -1, -1) if all(served[run : run + size]))
            begin = next(runs, len(keys))
            return keys, list(range(begin, min(begin + size, len(keys))))
        count = next((place for place, specs in enumerate(served) if not specs), len(keys))
        if kind == "QT_PREFIX_MATCH_WITH_MAMBA":  # no spec is common to all groups
            count = max((place + 1 for place in range(count) if served[place] == SPECS.keys()), default=0)
        return keys[:count], list(range(count))

    def locate(self, instance: str, keys: list[int], fields: dict[str, Any], answer: Answer) -> None:
        hits = self.hits(instance, keys, fields)
        if check_code(answer, "OK" if hits else "INVALID_ARGUMENT") != "OK" or hits is None:
            return
        asked = set(fields.get("location_spec_names") or SPECS)
        check(len(answer["locations"]) == len(hits[0]), f"{len(hits[0])} locations", answer)
        for place, (key, location) in enumerate(zip(hits[0], answer["locations"], strict=True)):
            served = self.served((instance, key)) if place in hits[1] else set()
            names = {spec["name"] for spec in location["location_specs"]}
            check(names <= asked if served else names == asked, f"names of {key}", answer)
            self._check_entry((instance, key), location, served & asked, answer)

    def measure(self, instance: str, keys: list[int], fields: dict[str, Any], answer: Answer) -> None:
        hits = self.hits(instance, keys, fields)
        if check_code(answer, "OK" if hits else "INVALID_ARGUMENT") == "OK" and hits is not None:
            check(int(answer["cache_location_len"]) == len(hits[1]), f"{len(hits[1])} hits", answer)

    def by_backend(self, instance: str, keys: list[int], fields: dict[str, Any], answer: Answer) -> None:
        check_code(answer, "OK")
        check(len(answer["key_locations"]) == len(keys), f"{len(keys)} keys", answer)
        wanted = {each["backend_type"] for each in fields.get("backend_selectors", [])} or {"ST_NFS", "ST_3FS"}
        for key, entry in zip(keys, answer["key_locations"], strict=True):
            places = [place for place in self.places.get((instance, key), []) if place.state == "SERVING"]
            kinds = {self.limits.storages[place.storage][0] for place in places} & wanted
            check(sorted(each["type"] for each in entry["locations"]) == sorted(kinds), f"types of {key}", answer)
            for location in entry["locations"]:
                specs = {spec["name"] for spec in location["location_specs"]}
                self._check_entry((instance, key), location, specs, answer)

    def meta(self, instance: str, keys: list[int], fields: dict[str, Any], answer: Answer) -> None:
        masked = self.masked(fields, "block_mask", len(keys))
        if check_code(answer, "OK" if masked is not None else "INVALID_ARGUMENT") != "OK" or masked is None:
            return
        keys = [key for key, drops in zip(keys, masked, strict=True) if not drops]
        check(len(states_of(answer)) == len(answer["replica_locations"]) == len(keys), f"{len(keys)} keys", answer)
        for key, state, entry in zip(keys, states_of(answer), answer["replica_locations"], strict=True):
            shown = [self.homes.get(uris[0], (None, "", None)) for uris in uris_of(entry)]
            check(all(home == (instance, key) for home, _, _ in shown), f"locations of {key}", answer)
            states = {id(place): each["status"] for (_, _, place), each in zip(shown, entry["locations"], strict=True)}
            for place in list(self.places.get((instance, key), [])):
                seen = states.get(id(place), "" if place.state == "DELETING" else "nothing")
                check(seen in ("", f"CLS_{place.state}"), f"{key}: {seen}, not {place.state}", answer)
            found = [f"CLS_{name}" for name in ("SERVING", "WRITING", "DELETING") if f"CLS_{name}" in states.values()]
            check(state == (found[0] if found else "CLS_NOT_FOUND"), f"state {state} of {key}", answer)
