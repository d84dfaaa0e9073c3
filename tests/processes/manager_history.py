"""Random histories of MetaService's calls, over both faces of a manager, beside a model; a difference is shrunk."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manager import Answer, Manager, code_of, group_message
from manager_cases import CaseFailure, word
from manager_model import BLOCK_TOKENS, GROUPS, REMEMBERED, SPECS, Difference, Limits, Model, Session
from manager_wire import WireClient
from node import LIMIT, until

KINDS = ("ST_NFS", "ST_3FS")
INSTANCES = {"one": "QT_UNSPECIFIED", "two": "QT_BATCH_GET"}  # and their default query types
QUERIES = (
    "QT_UNSPECIFIED",
    "QT_BATCH_GET",
    "QT_PREFIX_MATCH",
    "QT_REVERSE_ROLL_SW_MATCH",
    "QT_PREFIX_MATCH_WITH_MAMBA",
)
KEY_QUOTA = 60
TOTAL_QUOTA = 150 * 64
LONGEST_SHRINKING = 120.0  # seconds
SHORT_TIMEOUT = 1  # seconds of a session that is left alone


@dataclass(frozen=True)
class Step:
    """A call of a history. It means the same whichever other steps are played before it: what depends on them is named
    by the number of a step, or cut to the size that is right."""

    number: int
    kind: str
    instance: str
    face: str  # http or grpc
    fields: dict[str, Any] = field(default_factory=dict)
    keys: tuple[int, ...] = ()  # of byte_keys
    start: int = -1  # the step that started the session
    bits: tuple[bool, ...] = ()
    flaw: str = ""

    def __str__(self) -> str:
        parts = [f"{self.number}: {self.kind} {self.instance} {self.face} {self.fields}"]
        parts += [f"of {self.start} {sum(self.bits)}/{len(self.bits)} {self.flaw}"] if self.start >= 0 else []
        return " ".join(parts)


class StepMaker:
    """Random steps."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.starts: list[tuple[int, str]] = []
        self.count = 0

    def make(self, *kinds: str) -> Step:
        dice = self.dice
        kind = dice.choice(kinds) if kinds else dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if kind == "finish" and not self.starts:
            kind = "start"
        instance, face = dice.choice(list(INSTANCES)), dice.choice(("http", "grpc"))
        number, self.count = self.count, self.count + 1
        fields: dict[str, Any] = {}
        keys: tuple[int, ...] = ()
        if kind == "finish":
            return self._finish(number, face)
        if kind == "trim":
            fields = self._trim()
        elif kind not in ("quiet", "register", "info", "cluster", "replicate"):
            fields, keys = self._question(kind)
        if kind in ("start", "expire"):
            self.starts.append((number, instance))
        return Step(number, kind, instance, face, fields, keys)

    def _finish(self, number: int, face: str) -> Step:
        dice = self.dice
        place = dice.randrange(len(self.starts))
        start, instance = self.starts[place]
        flaw = dice.choice(("",) * 14 + ("long", "foreign", "sums", "sums", "few sums", "offset"))
        if not flaw and dice.random() < 0.8:
            del self.starts[place]
        if flaw == "foreign":
            instance = next(name for name in INSTANCES if name != instance)
        bits = tuple(dice.random() < 0.8 for _ in range(16))
        return Step(number, "finish", instance, face, {}, (), start, bits, flaw)

    def _trim(self) -> dict[str, Any]:
        dice = self.dice
        strategy = dice.choice(("TS_TIMESTAMP",) * 10 + ("TS_REMOVE_ALL_CACHE", "TS_REMOVE_ALL_META"))
        if strategy != "TS_TIMESTAMP":
            return {"strategy": strategy}
        ago = sorted((dice.choice((-10, 4, 8, 15, 30)), dice.choice((4, 8, 15, 30, 1000))), reverse=True)
        fields = {"strategy": strategy, "begin_timestamp": ago[0], "end_timestamp": ago[1]}
        return fields if dice.random() < 0.9 else {**fields, "end_timestamp": ago[0] + 1}

    def _question(self, kind: str) -> tuple[dict[str, Any], tuple[int, ...]]:
        dice = self.dice
        fields, numbers = self._keys()
        count = len(Model.keys_of(fields, numbers))
        if kind in ("locate", "by_backend", "meta", "remove") and dice.random() < 0.4:
            fields["block_mask"] = self._mask(count)
        if kind in ("locate", "by_backend") and dice.random() < 0.3:
            fields["location_spec_names"] = [dice.choice(list(SPECS))]
        if kind in ("locate", "measure"):
            fields["query_type"] = dice.choice(QUERIES)
            fields["sw_size"] = dice.choice((0, 1, 1, 2, 2, 3, count, count + 1))
        if kind == "by_backend" and dice.random() < 0.5:
            fields["backend_selectors"] = [{"backend_type": dice.choice(("ST_NFS", "ST_3FS", "ST_REDIS"))}]
        if kind in ("start", "expire"):
            fields["write_timeout_seconds"] = SHORT_TIMEOUT if kind == "expire" else 3600
            if dice.random() < 0.4:
                fields["location_spec_group_names"] = [dice.choice(list(GROUPS)) for _ in range(count)]
            if dice.random() < 0.3:
                fields["min_replica_count"] = dice.choice((1, 2, 2, 3, 4))
        return fields, numbers

    def _keys(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        dice = self.dice
        form, count, begin = dice.random(), dice.randrange(1, 10), dice.randrange(1, 30)
        chosen = [begin + place if dice.random() < 0.7 else dice.randrange(-3, 36) for place in range(count)]
        if form < 0.7:
            return {"block_keys": chosen}, ()
        if form < 0.85:
            numbers = tuple((key & 63) | dice.choice((0, 0, 1 << 64)) for key in chosen)
            texts = [base64.b64encode(number.to_bytes(16, "little")).decode() for number in numbers]
            return {"byte_keys": texts}, numbers
        return {"token_ids": [dice.randrange(2) for _ in range(dice.randrange(1, 5 * BLOCK_TOKENS))]}, ()

    def _mask(self, count: int) -> dict[str, Any]:
        dice = self.dice
        if dice.random() < 0.5:
            return {"offset": dice.choice((0, 1, count, dice.randrange(count + 1), dice.choice((-1, count + 1))))}
        length = count if dice.random() < 0.9 else count + 1
        return {"bool_masks": {"values": [dice.random() < 0.4 for _ in range(length)]}}


WEIGHTS = {
    **{"start": 22, "finish": 30, "remove": 6, "trim": 2, "locate": 22, "measure": 8, "by_backend": 5, "meta": 9},
    **{"register": 1, "info": 1, "cluster": 0.3, "replicate": 0.3},
}
METHODS = {
    "start": "StartWriteCache",
    "expire": "StartWriteCache",
    "finish": "FinishWriteCache",
    "remove": "RemoveCache",
    "trim": "TrimCache",
    "locate": "GetCacheLocation",
    "measure": "GetCacheLocationLen",
    "by_backend": "GetCacheLocationsByBackend",
    "meta": "GetCacheMeta",
    "register": "RegisterInstance",
    "info": "GetInstanceInfo",
    "cluster": "GetClusterInfo",
    "replicate": "ReplicateCache",
}


class Play:
    """Plays steps on instances of its own, and checks each answer."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.prefix = "h" + word(random.Random())
        self.wire = WireClient(manager.meta_rpc, manager.admin_rpc)
        self.storages = {
            f"{self.prefix}-n": ("ST_NFS", 60 * 64),
            f"{self.prefix}-t": ("ST_3FS", 0),
            f"{self.prefix}-m": ("ST_NFS", 0),
        }
        limits = Limits(self.storages, TOTAL_QUOTA, {"ST_3FS": 50 * 64}, KEY_QUOTA)
        defaults = {name: "QT_PREFIX_MATCH" if kind == "QT_UNSPECIFIED" else kind for name, kind in INSTANCES.items()}
        self.model = Model(limits, defaults)
        self.sessions: dict[int, Session] = {}
        self._set_up()

    def _set_up(self) -> None:
        for number, (name, (kind, capacity)) in enumerate(self.storages.items()):
            folder = self.manager.root / name
            files = {"root_path": f"{folder}/", "key_count_per_file": 1 + 3 * number}
            mount = {"cluster_name": "c", "mountpoint": str(folder), "root_dir": "kv", "key_count_per_file": 4}
            (folder / "kv").mkdir(parents=True)
            spec = {"nfs": files} if kind == "ST_NFS" else {"threefs": mount}
            self.manager.do("addStorage", storage={"global_unique_name": name, "capacity": capacity, **spec})
        quota = {"capacity": TOTAL_QUOTA, "quota_config": [{"storage_type": "ST_3FS", "capacity": 50 * 64}]}
        group = group_message(self.prefix, quota, KEY_QUOTA, delay_ms=20)
        group |= {"name": self.prefix, "storage_candidates": list(self.storages)}
        self.manager.do("createInstanceGroup", instance_group=group)
        for name in INSTANCES:
            self.manager.do("registerInstance", **self._registration(name))

    def _registration(self, name: str) -> dict[str, Any]:
        return {
            "instance_group": self.prefix,
            "instance_id": self.prefix + name,
            "block_size": BLOCK_TOKENS,
            "model_deployment": {"model_name": "m", "dtype": "bf16"},
            "location_spec_infos": [{"name": spec, "size": size} for spec, size in SPECS.items()],
            "location_spec_groups": [{"name": name, "spec_names": sorted(specs)} for name, specs in GROUPS.items()],
            "default_query_type": INSTANCES[name],
        }

    def close(self) -> None:
        self.wire.close()

    def restart(self) -> None:
        """Kills the manager and starts it again. A session without a block that is being written may be forgotten."""
        self.wire.close()
        self.manager.restart()
        self.wire = WireClient(self.manager.meta_rpc, self.manager.admin_rpc)
        for number, session in list(self.sessions.items()):
            if session.places and not any(place.state == "WRITING" for place in session.places):
                del self.sessions[number]

    def call(self, step: Step, **fields: Any) -> Answer:
        method, fields = METHODS[step.kind], {"instance_id": self.prefix + step.instance, **fields}
        if step.face == "grpc":
            return self.wire.call(method, **fields)
        return self.manager.call(method[0].lower() + method[1:], **fields)

    def play(self, step: Step) -> None:
        """Errors: Difference."""
        special = getattr(self, f"_play_{step.kind}", None)
        if special is not None:
            special(step)
            return
        keys = self.model.keys_of(step.fields, step.keys)
        getattr(self.model, step.kind)(step.instance, keys, step.fields, self.call(step, **step.fields))

    def _play_start(self, step: Step) -> Session | None:
        keys = self.model.keys_of(step.fields, step.keys)
        session = self.model.start(step.instance, keys, step.fields, self.call(step, **step.fields))
        if session is not None:
            self.sessions[step.number] = session
        return session

    def _play_expire(self, step: Step) -> None:
        """A session that is left alone, to its end."""
        session = self._play_start(step)
        if session is None:
            return
        keys = {"instance_id": self.prefix + step.instance, **self._keys_alone(step)}
        uris = {uri for place in session.places for uri in place.uris.values()}

        def is_over() -> bool:
            found = self.manager.do("getCacheMeta", **keys)["replica_locations"]
            writing = [each for entry in found for each in entry["locations"] if each["status"] == "CLS_WRITING"]
            return not uris & {spec["uri"] for each in writing for spec in each["location_specs"]}

        if uris:
            until("a session is over", is_over)
            del self.sessions[step.number]
            self.model.expire(session)
            late = self.call(
                Step(step.number, "finish", step.instance, step.face),
                write_session_id=session.name,
                success_blocks={"offset": len(session.places)},
            )
            if code_of(late) != "SESSION_NOT_FOUND":
                raise Difference(f"finish of a session that is over: {late}")

    @staticmethod
    def _keys_alone(step: Step) -> dict[str, Any]:
        return {name: value for name, value in step.fields.items() if name in ("block_keys", "byte_keys", "token_ids")}

    def _play_finish(self, step: Step) -> None:
        session = self.sessions.get(step.start)
        if session is None or (session.ending and session.finished_at + REMEMBERED < time.monotonic()):
            return
        count = len(session.places) + (step.flaw == "long")
        fields: dict[str, Any] = {"success_blocks": {"bool_masks": {"values": list(step.bits[:count])}}}
        if step.flaw == "offset":
            fields["success_blocks"] = {"offset": count}
        if step.flaw.endswith("sums"):
            specs = sum(len(place.uris) for place in session.places)
            fields["checksums"] = [str(step.number * 100 + spec) for spec in range(specs + (step.flaw == "few sums"))]
        begin = time.time()
        answer = self.call(step, write_session_id=session.name, **fields)
        self.model.finish(session, step.instance, fields, begin, answer)

    def _play_trim(self, step: Step) -> None:
        fields = dict(step.fields)
        if "begin_timestamp" in fields:
            now = int(time.time())
            fields |= {name: now - fields[name] for name in ("begin_timestamp", "end_timestamp")}
            if not self.model.is_clear(step.instance, fields["begin_timestamp"], fields["end_timestamp"]):
                return
        self.model.trim(step.instance, fields, self.call(step, **fields))

    def _play_register(self, step: Step) -> None:
        same = self._registration(step.instance)
        for fields, code in ((same, "OK"), ({**same, "block_size": 3}, "DUPLICATE_ENTITY")):
            answer = self.call(step, **fields)
            if code_of(answer) != code:
                raise Difference(f"{code} is right: {answer}")

    def _play_info(self, step: Step) -> None:
        info = self.call(step)["instance_info"]
        if info["block_size"] != BLOCK_TOKENS or len(info["location_spec_groups"]) != len(GROUPS):
            raise Difference(f"{info}")

    def _play_cluster(self, step: Step) -> None:
        if self.call(step)["leader_endpoint"]["meta_rpc_port"] != self.manager.meta_rpc:
            raise Difference("another leader")

    def _play_replicate(self, step: Step) -> None:
        answer = self.manager.call("replicateCache", instance_id=self.prefix + step.instance)
        if code_of(answer) != "UNSUPPORTED":
            raise Difference(f"{answer}")

    def _play_quiet(self, step: Step) -> None:
        """When all is deleted, exactly the live blocks are charged, on all levels."""
        begin = time.monotonic()
        model = self.model
        groups = {self.prefix: model.used(self.storages)[0]}
        storages = {name: model.used([name])[0] for name in self.storages}
        live = {key for key in model.places if model.live(key)}
        instances = {
            self.prefix + name: (sum(key[0] == name for key in live), model.used_by(name)) for name in INSTANCES
        }
        alike = {kind: [name for name, each in self.storages.items() if each[0] == kind] for kind in KINDS}
        types = {kind: model.used(names)[0] for kind, names in alike.items()}
        wanted, seen = [groups, storages, instances, types], None

        def is_equal() -> bool:
            nonlocal seen
            status = self.manager.ask(self.manager.admin, "GET", "/status").json
            found = [
                {each["name"]: each["used_bytes"] for each in status["groups"] if each["name"] in groups},
                {each["name"]: each["used_bytes"] for each in status["storages"] if each["name"] in storages},
                {
                    each["id"]: (each["keys"], each["used_bytes"])
                    for each in status["instances"]
                    if each["id"] in instances
                },
                dict.fromkeys(KINDS, 0)
                | {
                    each["type"]: each["used_bytes"]
                    for group in status["groups"]
                    if group["name"] in groups
                    for each in group["types"]
                },
            ]
            seen = found
            return found == wanted and status["usage_age_seconds"] < time.monotonic() - begin

        try:
            until("only what is live is charged", is_equal, LIMIT / 4, pause=0.05)
        except AssertionError:
            raise Difference(f"charged: {seen}, not {wanted}") from None
        model.forget_deleted()


def shrunk(steps: Sequence[Step], is_failing: Callable[[Sequence[Step]], bool], limit: float) -> list[Step]:
    """A short part of a history that fails; every further step that is left out makes it well, unless time is over."""
    end = time.monotonic() + limit
    rest, size = list(steps), len(steps) // 2
    while size > 0:
        begin = 0
        while begin < len(rest) and time.monotonic() < end:
            fewer = rest[:begin] + rest[begin + size :]
            if is_failing(fewer):
                rest = fewer
            else:
                begin += size
        size //= 2
    return rest


class History:
    """A random history of a manager, and its steps so far."""

    def __init__(self, manager: Manager, seed: int) -> None:
        self.manager = manager
        self.seed = seed
        self.maker = StepMaker(random.Random(seed))
        self.run = Play(manager)
        self.steps: list[Step] = []
        self.has_restarted = False

    def play(self, count: int, special: int = 400) -> None:
        """As many random steps; of `special` one is a quiet moment, and one a session that is left alone. Errors:
        CaseFailure with the seed and a short history."""
        for number in range(1, count + 1):
            kinds = {special // 2: ("expire",), 0: ("quiet",)}.get(number % special, ())
            self.steps.append(self.maker.make(*kinds))
            try:
                self.run.play(self.steps[-1])
            except Difference as difference:
                self._report(difference)

    def _report(self, difference: Difference) -> None:
        steps = self.steps[-20:] if self.has_restarted else self._shortest()
        text = "\n".join(str(step) for step in steps)
        raise CaseFailure(f"seed {self.seed}, step {self.steps[-1].number}: {difference}\n{text}") from None

    def _shortest(self) -> list[Step]:
        """The history without the steps that do not matter, by playing it again on managers that are new."""
        count = 0

        def is_failing(steps: Sequence[Step]) -> bool:
            nonlocal count
            count += 1
            folder = Path(self.manager.folder) / f"shrink-{self.seed}-{count}"
            with Manager(folder, "manager.read_choice=first") as manager:
                run = Play(manager)
                try:
                    for step in steps:
                        run.play(step)
                except Difference:
                    return True
                finally:
                    run.close()
            return False

        return shrunk(self.steps, is_failing, LONGEST_SHRINKING)

    def restart(self) -> None:
        self.has_restarted = True
        self.run.restart()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.close()
