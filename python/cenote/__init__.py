"""Cenote: a KV-cache node for LLM inference. This package is the client; see attach()."""

from . import errors
from ._version import __version__ as __version__
from .blocks import PENDING, PRESENT, Block, BlockState, Held, HeldBlock
from .device import Device, Event, Stream
from .errors import (
    CenoteError,
    Closed,
    DeadlineExceeded,
    Forked,
    GroupLost,
    InvalidArgument,
    LimitExceeded,
    NodeRestarting,
    NoSpace,
    NotReserved,
    NotRunning,
    PermissionDenied,
    PinLimit,
    ProtocolMismatch,
    RemovalPending,
    Revoked,
    SessionKilled,
    SpecMismatch,
    Unsupported,
)
from .groups import Group
from .prefetch import Follow, Prefetch
from .session import InstanceSpec, Match, Session, Stats, Unconfirmed, attach

__all__ = [
    "PENDING",
    "PRESENT",
    "Block",
    "BlockState",
    "CenoteError",
    "Closed",
    "DeadlineExceeded",
    "Device",
    "Event",
    "Follow",
    "Forked",
    "Group",
    "GroupLost",
    "Held",
    "HeldBlock",
    "InstanceSpec",
    "InvalidArgument",
    "LimitExceeded",
    "Match",
    "NoSpace",
    "NodeRestarting",
    "NotReserved",
    "NotRunning",
    "PermissionDenied",
    "PinLimit",
    "Prefetch",
    "ProtocolMismatch",
    "RemovalPending",
    "Revoked",
    "Session",
    "SessionKilled",
    "SpecMismatch",
    "Stats",
    "Stream",
    "Unconfirmed",
    "Unsupported",
    "attach",
    "errors",
]
