"""A plug-in over a Mooncake store, by the wheel `mooncake-transfer-engine` (or one of its variants). The key of a block
in Mooncake is INSTANCE/SPEC/KEY-EXTENT, the path of its address.

manager.plugins = ["mooncake=/venv/bin/python -m cenote.manager_plugins.mooncake_store"]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import Address, Outcome, Plugin, Storage, serve

_SEGMENT_BYTES = 0  # of memory that this process gives to the store
_BUFFER_BYTES = 16 << 20
_NOT_FOUND = -704
_REASONS = {-706: "the object is being read, or has a lease", -707: "the object is being written"}


def _load() -> Any:
    try:
        from mooncake.store import MooncakeDistributedStore
    except (ImportError, OSError) as why:
        raise RuntimeError(
            f"the wheel mooncake-transfer-engine cannot be loaded by {sys.executable}: {why}; right would be "
            "`pip install mooncake-transfer-engine`, or mooncake-transfer-engine-non-cuda on a machine without CUDA"
        ) from why
    return MooncakeDistributedStore


def _outcome(code: int) -> Outcome:
    if code in (0, _NOT_FOUND):
        return True
    return f"Mooncake answers {code}: {_REASONS.get(code, 'an error of its own')}"


class MooncakeStore(Plugin):
    """One client of the store, set up with the first call and again after what ends it."""

    def __init__(self) -> None:
        self._store: Any = None

    def probe(self, storage: Storage) -> None:
        store = self._opened(storage)
        health = store.health_check() if hasattr(store, "health_check") else 0
        health = health or min(0, store.is_exist("cenote-probe"))  # which asks the master now
        if health != 0:
            self._store = None
            store.close()
            raise RuntimeError(f"the store is not healthy: {health}")

    def remove(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        store, keys = self._opened(storage), [Address.parse(uri).path for uri in uris]
        if hasattr(store, "batch_remove"):
            return [_outcome(code) for code in store.batch_remove(keys)]
        return [_outcome(store.remove(key)) for key in keys]

    def exist(self, storage: Storage, uris: Sequence[str]) -> list[Outcome]:
        store = self._opened(storage)
        codes = store.batch_is_exist([Address.parse(uri).path for uri in uris])
        return [code == 1 if code in (0, 1) else f"Mooncake answers {code}" for code in codes]

    def _opened(self, storage: Storage) -> Any:
        if self._store is None:
            spec = {name: str(value) for name, value in storage.spec.items()}
            store = _load()()
            code = store.setup(
                spec.get("local_hostname") or "127.0.0.1",
                spec.get("metadata_connstring") or "P2PHANDSHAKE",
                _SEGMENT_BYTES,
                _BUFFER_BYTES,
                spec.get("protocol") or "tcp",
                spec.get("rdma_device", ""),
                spec.get("master_service_entry") or "127.0.0.1:50051",
            )
            if code != 0:
                raise RuntimeError(f"the store cannot be set up: {code}")
            self._store = store
        return self._store


def main() -> int:
    return serve(MooncakeStore())


if __name__ == "__main__":
    sys.exit(main())
