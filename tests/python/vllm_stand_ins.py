"""cenote._vllm without vLLM: what is used of it here are the classes that messages are derived from."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
METRICS = "vllm.distributed.kv_transfer.kv_connector.v1.metrics"
OF_BASE = ("KVConnectorHandshakeMetadata", "KVConnectorMetadata", "KVConnectorWorkerMetadata")
OF_METRICS = ("KVConnectorPromMetrics", "KVConnectorStats")


@contextlib.contextmanager
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While it lasts, modules of cenote._vllm can be imported; afterwards they are what they were."""
    names = BASE.split(".")
    for count in range(1, len(names)):
        monkeypatch.setitem(sys.modules, ".".join(names[:count]), ModuleType("package"))
    for name, classes in ((BASE, OF_BASE), (METRICS, OF_METRICS)):
        made = ModuleType(name)
        for each in classes:
            setattr(made, each, type(each, (SimpleNamespace,), {}))
        monkeypatch.setitem(sys.modules, name, made)
    before = {name: each for name, each in sys.modules.items() if name.startswith("cenote._vllm")}
    for name in before:
        del sys.modules[name]
    monkeypatch.setitem(sys.modules, "cenote._vllm.identity", ModuleType("identity"))  # asks vLLM for all that it is
    try:
        yield
    finally:
        for name in [each for each in sys.modules if each.startswith("cenote._vllm")]:
            del sys.modules[name]
        sys.modules.update(before)
