"""Notices that an engine's weights are changed in place: engines tell no cache of it, so their methods are wrapped."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Condition = Callable[..., bool]  # called with the arguments of a method, without its object


def unconditional(*_: Any, **__: Any) -> bool:
    return True


class Updates:
    """How often it happened in this process."""

    def __init__(self) -> None:
        self.count = 0
        self._loading = threading.local()

    def watch(
        self, kind: type, methods: Mapping[str, Condition] | Iterable[str], prepare: Callable[[], None] | None = None
    ) -> None:
        """Counts calls of these methods of `kind` and of its subclasses. Can be called any number of times. `prepare`:
        called before each of them, counted or not."""
        wanted = methods if isinstance(methods, Mapping) else dict.fromkeys(methods, unconditional)
        for name, condition in wanted.items():
            if not hasattr(kind, name):
                raise AttributeError(f"{kind.__name__} has no method {name}")
            for each in (kind, *_subclasses(kind)):
                method = each.__dict__.get(name, getattr(kind, name) if each is kind else None)
                if callable(method) and getattr(method, "counted_by", None) is not self:
                    setattr(each, name, self._counting(method, condition, prepare))

    def watch_models(self, module: type, loader: type) -> None:
        """Counts all loads into models, by anybody: calls of `load_weights` of each subclass of `module` that exists.
        What a subclass of `loader` loads into a model that it makes is no update."""
        for each in _subclasses(module):
            method = each.__dict__.get("load_weights")
            if callable(method) and getattr(method, "counted_by", None) is not self:
                setattr(each, "load_weights", self._counting(method, unconditional))  # noqa: B010  # no attribute of `type`
        for each in (loader, *_subclasses(loader)):
            method = each.__dict__.get("load_model")
            if callable(method) and getattr(method, "counted_by", None) is not self:
                setattr(each, "load_model", self._as_creation(method))  # noqa: B010

    def _counting(self, method: Any, condition: Condition, prepare: Callable[[], None] | None = None) -> Any:
        @functools.wraps(method)
        def update(owner: Any, *arguments: Any, **options: Any) -> Any:
            if prepare is not None:
                prepare()
            if not getattr(self._loading, "depth", 0) and condition(*arguments, **options):
                self.count += 1  # before: what is computed from now on is another model's
            return method(owner, *arguments, **options)

        update.counted_by = self  # type: ignore[attr-defined]
        return update

    def _as_creation(self, method: Any) -> Any:
        @functools.wraps(method)
        def load(owner: Any, *arguments: Any, **options: Any) -> Any:
            with self._model_creation():
                return method(owner, *arguments, **options)

        load.counted_by = self  # type: ignore[attr-defined]
        return load

    @contextlib.contextmanager
    def _model_creation(self) -> Iterator[None]:
        self._loading.depth = getattr(self._loading, "depth", 0) + 1
        try:
            yield
        finally:
            self._loading.depth -= 1


def _subclasses(kind: type) -> list[type]:
    found: dict[type, None] = {}
    left = [kind]
    while left:
        below: list[type] = type.__subclasses__(left.pop())
        for each in below:
            if each not in found:
                found[each] = None
                left.append(each)
    return list(found)
