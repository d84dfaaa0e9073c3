"""All settings of an engine: which count in the identity of its KV, and which are left out. Needs that engine."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from cenote._identity import fields_of


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and fields_of(hint):
        yield hint
    for each in typing.get_args(hint):
        yield from _classes(each)


def counted_fields(root: type, left_out: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Of `root` and of all classes that its counted fields may hold: the fields that count."""
    found: dict[str, list[str]] = {}
    waiting = [root]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ in found:
            continue
        hints = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        counted = [name for name in fields_of(kind) if name not in left_out.get(kind.__name__, {})]
        found[kind.__name__] = sorted(counted)
        for name in counted:
            waiting += _classes(hints.get(name))
    return found


def names_that_are_gone(root: type, left_out: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Left out, but not there."""
    known: dict[str, set[str]] = {}
    waiting = [root]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ not in known:
            known[kind.__name__] = set(fields_of(kind))
            hints = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
            for name in fields_of(kind):
                waiting += _classes(hints.get(name))
    return sorted(
        f"{kind}.{name}" for kind, fields in left_out.items() for name in set(fields) - known.get(kind, set())
    )
