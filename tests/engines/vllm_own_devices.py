"""Cenote's connector where the KV tensors of rank N, on the CPU, pass for such that lie on the device sim:N."""

from __future__ import annotations

from collections.abc import Collection

from cenote._vllm import worker
from cenote._vllm.streams import Streams, streams_for
from cenote.vllm import CenoteConnector

__all__ = ["CenoteConnector"]


def _own(places: Collection[str], wanted: str | None) -> Streams | None:
    from vllm.distributed.parallel_state import get_tp_group

    return streams_for(places, wanted or f"sim:{get_tp_group().rank_in_group}")


worker.streams_for = _own
