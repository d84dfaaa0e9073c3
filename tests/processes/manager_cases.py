"""Plays the cases of tests/data/manager/cases.json against a manager, and a race.

A case has `given`, `when` and `then`, lists of steps that are played in order. A step is one of

    {"call": RPC, "on": "meta"|"admin", "send": {...}, "expect": {PATH: MATCHER, ...}, "save": {NAME: PATH}, "until": S}
    {"do": MACRO, ...}      a macro of the file: its steps, with "$x" replaced by the step's x or the macro's default
    {"raw": {"on", "method", "path", "body", "headers"}, "expect": {"http": 400, PATH: MATCHER}}
    {"put": URI, "byte": N}                               writes the part of a file that the URI names
    {"disk": URI, "is": "there"|"gone"|N, "until": S}     N: all its bytes are N; gone: absent or zero
    {"now": NAME}           Unix seconds, and NAME+"p" one later
    {"paths": [lists of URIs], "below": FOLDER}
    {"sleep": S}            {"restart": true}: killed and started again

"code" stands for header.status.code. "${x}" is a saved value, "${c}" a word of the case's own, "${root}" the folder. A
PATH is dotted, with [i]; "#" is a length; a string that holds JSON is entered. "@filled": indexes of locations whose
addresses are all there; "@uris": all addresses; "@statuses": of metas; "@specs": numbers of specs a location. MATCHER:
a value (numbers and their texts are equal), or {"any": [...]}, {"not": v}, {"contains": s}, {"re": r}, {"min": n},
{"max": n}, {"absent": true}, {"set": [...]} (in any order). An absent default is equal to it.
"""

from __future__ import annotations

import json
import random
import re
import string
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manager import Answer, FilePart, Manager, code_of, mask_of, message_of, states_of, uris_of
from node import LIMIT, ROOT

CASES = ROOT / "tests" / "data" / "manager" / "cases.json"

Step = dict[str, Any]
Case = dict[str, Any]


class CaseFailure(AssertionError):
    """An answer, or the disk, is not as expected."""


@dataclass(frozen=True)
class CaseFile:
    cases: list[Case]
    macros: dict[str, Step]

    @staticmethod
    def load(path: Path = CASES) -> CaseFile:
        data = json.loads(path.read_text())
        return CaseFile(data["cases"], data.get("macros", {}))

    def playable(self) -> list[Case]:
        """Cases over HTTP that need no reports."""
        return [case for case in self.cases if case.get("layer", "api") == "api" and case.get("needs", "") != "reports"]


# ---------------------------------------------------------------------------------------------- values


def plain(value: Any) -> Any:
    """Numbers as their texts."""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def is_equal(value: Any, expected: Any) -> bool:
    """An object may have more fields than expected."""
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(is_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return all(name in value and is_equal(value[name], each) for name, each in expected.items())
    return bool(plain(value) == plain(expected))


def filled_locations(answer: Answer) -> list[int]:
    """Positions of locations whose addresses are all there."""
    return [position for position, uris in enumerate(uris_of(answer)) if uris and all(uris)]


SUMMARIES: dict[str, Callable[[Answer], Any]] = {
    "code": code_of,
    "@filled": filled_locations,
    "@uris": lambda answer: [uri for uris in uris_of(answer) for uri in uris],
    "@specs": lambda answer: [len(uris) for uris in uris_of(answer)],
    "@statuses": states_of,
}


def value_at(answer: Answer, path: str) -> Any:
    if path in SUMMARIES:
        return SUMMARIES[path](answer)
    value: Any = answer
    for name in re.findall(r"[^.\[\]]+", path):
        if isinstance(value, str):
            value = json.loads(value)
        if name == "#":
            value = len(value or [])
        elif isinstance(value, list):
            value = value[int(name)] if int(name) < len(value) else None
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def contains(value: Any, expected: Any) -> bool:
    return value is not None and (expected in value if isinstance(value, list) else expected in str(value))


MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "any": lambda value, expected: any(matches(value, each) for each in expected),
    "not": lambda value, expected: not matches(value, expected),
    "contains": contains,
    "re": lambda value, expected: value is not None and re.search(expected, str(value)) is not None,
    "min": lambda value, expected: value is not None and float(value) >= expected,
    "max": lambda value, expected: value is not None and float(value) <= expected,
    "absent": lambda value, _: value in (None, "", [], {}),
    "set": lambda value, expected: isinstance(value, list) and sorted(map(str, value)) == sorted(map(str, expected)),
}


def matches(value: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and len(expected) == 1:
        ((kind, argument),) = expected.items()
        if kind in MATCHERS:
            return MATCHERS[kind](value, argument)
    if expected in ("", 0, False, []) and value is None:
        return True
    return is_equal(value, expected)


def faults_of(answer: Answer, expected: Step) -> list[str]:
    """Where an answer is not as expected."""
    faults = []
    for path, matcher in expected.items():
        try:
            value = value_at(answer, path)
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # a path that the answer does not have
            value = f"<{error!r}>"
        if not matches(value, matcher):
            faults.append(f"{path}: {json.dumps(value)[:300]}, not {json.dumps(matcher)[:200]}")
    return faults


def word(dice: random.Random) -> str:
    """A part of a name."""
    return "".join(dice.choices(string.ascii_lowercase + string.digits, k=10))


# ---------------------------------------------------------------------------------------------- cases


def expand(step: Step, macros: dict[str, Step]) -> list[Step]:
    """A step, or those of its macro; a field whose value is none is left out."""
    if "do" not in step:
        return [step]
    macro = macros[step["do"]]
    values = {**macro.get("defaults", {}), **{name: value for name, value in step.items() if name != "do"}}

    def is_empty(value: Any) -> bool:
        whole = re.fullmatch(r"\$([a-z]\w*)", value) if isinstance(value, str) else None
        return whole is not None and values.get(whole[1]) is None

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            if whole := re.fullmatch(r"\$([a-z]\w*)", value):
                return values[whole[1]]
            return re.sub(r"\$([a-z]\w*)", lambda match: str(values[match[1]]), value)
        if isinstance(value, list):
            return [replaced(each) for each in value]
        if isinstance(value, dict):
            return {replaced(name): replaced(each) for name, each in value.items() if not is_empty(each)}
        return value

    return [each for inner in macro["steps"] for each in expand(replaced(inner), macros)]


@dataclass
class Player:
    """Plays cases. `root` is the folder below which their storages lie."""

    manager: Manager
    root: Path
    macros: dict[str, Step]
    saved: dict[str, Any] = field(default_factory=dict)

    def play(self, case: Case) -> None:
        """Errors: CaseFailure with the step."""
        self.saved = {"c": "c" + word(random.Random()), "root": str(self.root)}
        for part in ("given", "when", "then"):
            for number, step in enumerate(case.get(part, [])):
                for inner in expand(step, self.macros):
                    try:
                        self.play_step(inner)
                    except CaseFailure as failure:
                        raise CaseFailure(f"{case['id']} {part}[{number}] {failure}") from None

    def filled(self, value: Any) -> Any:
        """The value with what was saved."""
        if isinstance(value, str):
            if whole := re.fullmatch(r"\$\{(\w+)\}", value):
                return self.saved[whole[1]]
            return re.sub(r"\$\{(\w+)\}", lambda match: str(self.saved[match[1]]), value)
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if isinstance(value, dict):
            return {self.filled(name): self.filled(each) for name, each in value.items()}
        return value

    def play_step(self, step: Step) -> None:
        if "sleep" in step:
            time.sleep(step["sleep"])
        elif "now" in step:
            seconds = int(time.time())
            self.saved |= {step["now"]: seconds, step["now"] + "p": seconds + 1}
        elif "paths" in step:
            self.check_paths(step)
        elif "restart" in step:
            self.manager.restart()
        elif "put" in step:
            part = FilePart.parse(self.filled(step["put"]))
            part.write(bytes([step["byte"]]) * part.size)
        elif "disk" in step:
            self.check_disk(step)
        else:
            self.play_call(step)

    def check_paths(self, step: Step) -> None:
        folder = Path(self.filled(step["below"])).resolve()
        for uri in (uri for uris in self.filled(step["paths"]) for uri in uris):
            if not FilePart.parse(uri).path.resolve().is_relative_to(folder):
                raise CaseFailure(f"{uri} is not below {folder}")

    def check_disk(self, step: Step) -> None:
        part, expected = FilePart.parse(self.filled(step["disk"])), step.get("is")
        end = time.monotonic() + step.get("until", 0)
        while expected is not None:
            data = part.read()
            state = "there" if any(data) else "gone"
            if state == expected or (isinstance(expected, int) and data == bytes([expected]) * part.size):
                return
            if time.monotonic() > end:
                raise CaseFailure(f"{part.path}+{part.offset} is {state} ({data[:8].hex()}), not {expected}")
            time.sleep(0.05)

    def ask(self, step: Step) -> tuple[int, Answer]:
        """The HTTP status and the answer of a call."""
        ports = {"meta": self.manager.meta, "admin": self.manager.admin}
        if "raw" in step:
            raw = self.filled(step["raw"])
            body = raw.get("body", "")
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            port, method = ports[raw.get("on", "meta")], raw.get("method", "POST")
            reply = self.manager.ask(port, method, raw["path"], data, raw.get("headers"))
        else:
            message = {"trace_id": "cases", **self.filled(step.get("send", {}))}
            reply = self.manager.send(step["call"], message, ports.get(step.get("on", "")))
        try:
            answer = reply.json
        except ValueError:
            answer = None
        return reply.status, answer if isinstance(answer, dict) else {"_body": reply.body.decode(errors="replace")}

    def play_call(self, step: Step) -> None:
        end = time.monotonic() + step.get("until", 0)
        while True:
            status, answer = self.ask(step)
            expected = dict(self.filled(step.get("expect", {"code": "OK"} if "call" in step else {})))
            expected_status = expected.pop("http", None)
            faults = faults_of(answer, expected)
            if expected_status is not None and not matches(status, expected_status):
                faults.append(f"http: {status}, not {expected_status}")
            if not faults:
                break
            if time.monotonic() > end:
                name, text = step.get("call", step.get("raw")), message_of(answer)[:200]
                raise CaseFailure(f"{name}: {'; '.join(faults)}" + (f" ({text})" if text else ""))
            time.sleep(0.05)
        for name, path in step.get("save", {}).items():
            self.saved[name] = value_at(answer, path)


# ---------------------------------------------------------------------------------------------- a race


def check_grants(orders: Sequence[Sequence[int]], answers: Sequence[Answer]) -> dict[int, int]:
    """Each key is granted once, at an address of its own. Returns the number of the answer that granted it, by key."""
    granted: dict[int, int] = {}
    addresses: set[str] = set()
    for number, (order, answer) in enumerate(zip(orders, answers, strict=True)):
        if code_of(answer) != "OK":
            raise CaseFailure(f"start: {answer}")
        keys = [key for key, masked in zip(order, mask_of(answer, len(order)), strict=True) if not masked]
        uris = uris_of(answer)
        if len(keys) != len(uris):
            raise CaseFailure(f"{len(keys)} keys are not masked, {len(uris)} locations")
        for key, location in zip(keys, uris, strict=True):
            if key in granted:
                raise CaseFailure(f"key {key} was granted twice")
            if location[0] in addresses:
                raise CaseFailure(f"one address for two keys: {location[0]}")
            granted[key] = number
            addresses.add(location[0])
    if granted.keys() != set(orders[0]):
        raise CaseFailure(f"{len(granted)} of {len(orders[0])} keys were granted")
    return granted


def start_at_once(manager: Manager, instance: str, orders: Sequence[Sequence[int]]) -> list[Answer]:
    """The answers to starts that as many threads ask for together."""
    answers: list[Answer] = [{} for _ in orders]
    gate = threading.Barrier(len(orders))

    def ask(number: int) -> None:
        gate.wait(LIMIT)
        keys = list(orders[number])
        answers[number] = manager.call(
            "startWriteCache", instance_id=instance, block_keys=keys, write_timeout_seconds=60
        )

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(orders))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return answers


def play_race(manager: Manager, seed: int, turns: int = 6, askers: int = 8) -> None:
    """Several ask for the same keys at once: each key is granted once, and found exactly where its finish was a
    success. Errors: CaseFailure."""
    dice = random.Random(seed)
    instance = "race-" + word(dice)
    manager.add_instance(instance)
    for turn in range(turns):
        keys = [key + turn * 1000 for key in range(1, 257)]
        orders = [keys if number % 2 else keys[::-1] for number in range(askers)]
        answers = start_at_once(manager, instance, orders)
        granted = check_grants(orders, answers)
        successful = {number for number in range(askers) if dice.random() < 0.7}
        for number, answer in enumerate(answers):
            success = {"offset": len(answer["locations"]) if number in successful else 0}
            session = answer["write_session_id"]
            manager.do("finishWriteCache", instance_id=instance, write_session_id=session, success_blocks=success)
        served = {key for key, uris in zip(keys, manager.locations(instance, keys), strict=True) if uris}
        if served != {key for key, number in granted.items() if number in successful}:
            raise CaseFailure(f"turn {turn}: what is found is not what was finished")
