"""A worker's device: the streams in which it loads and saves, beside the one in which the engine computes."""

from __future__ import annotations

from collections.abc import Collection

from .._near import name_of
from ..device import Device, Event, Stream
from ..errors import CenoteError
from .layout import Unservable

_PATIENCE = 30.0  # seconds that a computing thread waits for bytes; then they count as lost


class Streams:
    """The engine's thread and the worker's threads call it."""

    def __init__(self, device: Device, *, on_gpu: bool) -> None:
        self.device = device
        self.loading: Stream = device.stream()
        self.saving: Stream = device.stream()
        self._on_gpu = on_gpu  # else the engine computes in its thread, in no stream

    def of_blocks(self, device: Device) -> Streams:
        """The same for blocks that lie on `device`, as a session has it open."""
        return Streams(device, on_gpu=self._on_gpu)

    def engine_waits(self, event: Event) -> None:
        """What the engine computes from now on comes after the event. CenoteError: the device failed or hangs."""
        if self._on_gpu:
            self._engines_stream().wait(event)
        else:
            event.wait(_PATIENCE)

    def after_engine(self, stream: Stream) -> None:
        """What `stream` is given from now on comes after all that the engine has begun."""
        if self._on_gpu:
            stream.wait(self._engines_stream().record())

    def settle(self, stream: Stream) -> bool:
        """Waits until nothing that the stream was given is under way any more, however long that takes: for threads of
        the worker's own. False: the device failed."""
        try:
            stream.record().settle()
        except CenoteError:
            return False
        return True

    def _engines_stream(self) -> Stream:
        import torch

        return self.device.wrap(torch.cuda.current_stream().cuda_stream)


def streams_for(places: Collection[str], wanted: str | None) -> Streams | None:
    """The streams for KV tensors that lie at `places`; None: the processor copies.

    Unservable: no device reaches them.
    """
    if len(places) != 1:
        raise Unservable(f"its KV tensors are on {', '.join(sorted(places))}")
    (place,) = places
    if not place.startswith("cuda"):
        if wanted is None:
            return None
        if not wanted.startswith("sim:"):
            raise Unservable(f"`device` is {wanted}, but the KV tensors are on {place}")
        return Streams(Device(wanted), on_gpu=False)
    name = name_of(place)
    if wanted not in (None, name, name.removeprefix("cuda:"), place):
        raise Unservable(f"`device` is {wanted}, but the KV tensors are on {place}, which is {name}")
    try:
        return Streams(Device(name), on_gpu=True)
    except CenoteError as why:
        raise Unservable(f"the KV tensors are on {place}, and the device {name} cannot be opened: {why}") from None
