"""Calls that change an engine's weights in place are counted, whatever makes them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from cenote._updates import Updates, unconditional


class Module:
    """Of models."""


class Inner(Module):
    def load_weights(self, weights: Iterable[int]) -> int:
        return sum(weights)


class Model(Module):
    def load_weights(self, weights: Iterable[int]) -> int:
        return Inner().load_weights(weights)


class Loader:
    def load_model(self) -> Model:
        made = Model()
        made.load_weights([1])
        return made


class OtherLoader(Loader):
    def load_model(self) -> Model:
        return super().load_model()


class Worker:
    def sleep(self, level: int = 1) -> int:
        return level

    def reload(self) -> str:
        return "reloaded"


class OtherWorker(Worker):
    def reload(self) -> str:
        return "reloaded otherwise"


def test_a_load_into_a_model_or_a_part_of_it_is_counted_whoever_calls_it() -> None:
    updates = Updates()
    updates.watch_models(Module, Loader)
    updates.watch_models(Module, Loader)  # once is enough
    assert Inner().load_weights([1, 2]) == 3
    assert updates.count == 1
    before = updates.count
    assert Model().load_weights(weights=[1, 2]) == 3
    assert updates.count > before


@pytest.mark.parametrize("loader", [Loader, OtherLoader])
def test_a_model_that_is_made_is_no_update_of_another_one(loader: type[Loader]) -> None:
    updates = Updates()
    updates.watch_models(Module, Loader)
    made = loader().load_model()
    assert updates.count == 0
    made.load_weights([1])
    assert updates.count > 0


def test_a_method_is_counted_where_its_condition_holds() -> None:
    updates = Updates()
    updates.watch(Worker, {"sleep": lambda level=1: level >= 2})
    assert [Worker().sleep(), Worker().sleep(1), Worker().sleep(level=2), Worker().sleep(2)] == [1, 1, 2, 2]
    assert updates.count == 2


def test_what_a_method_needs_is_done_before_it_counted_or_not() -> None:
    updates, prepared = Updates(), []
    updates.watch(Worker, {"sleep": lambda level=1: level >= 2}, lambda: prepared.append(updates.count))
    assert [Worker().sleep(), Worker().sleep(2), Worker().sleep()] == [1, 2, 1]
    assert prepared == [0, 0, 1]


def test_a_subclass_with_a_method_of_its_own_is_watched_too() -> None:
    updates = Updates()
    updates.watch(Worker, {"reload": unconditional})
    assert (Worker().reload(), OtherWorker().reload()) == ("reloaded", "reloaded otherwise")
    assert updates.count == 2


def test_a_method_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="Worker has no method vanish"):
        Updates().watch(Worker, ["vanish"])
