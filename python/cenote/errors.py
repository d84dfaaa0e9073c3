"""What can go wrong: one class for each code of the C ABI, all of them CenoteErrors."""

from __future__ import annotations


class CenoteError(Exception):
    """Base of all. `code` is the documented name ("no_space"), `number` the one of the C ABI.

    `stored` is set when a put failed: exactly the first `stored` keys of the batch are present.
    """

    code: str = "internal"
    number: int = 21

    def __init__(self, message: str = "", *, stored: int | None = None) -> None:
        super().__init__(message)
        self.stored = stored


class InvalidArgument(CenoteError, ValueError):
    """Something that can never work was passed: a size, a key width, a range."""

    code, number = "invalid_argument", 1


class InvalidConfig(CenoteError):
    code, number = "invalid_config", 2


class NotRunning(CenoteError):
    """No node answers at the socket, or it is shutting down."""

    code, number = "not_running", 3


class NodeRestarting(CenoteError):
    """The node's worker was away for longer than the deadline; the call may be tried again."""

    code, number = "node_restarting", 4


class DeadlineExceeded(CenoteError):
    """The node is there but did not answer in time."""

    code, number = "deadline_exceeded", 5


class ProtocolMismatch(CenoteError):
    code, number = "protocol_mismatch", 6


class LayoutMismatch(CenoteError):
    code, number = "layout_mismatch", 7


class SpecMismatch(CenoteError):
    """The instance exists with another spec; the message names the field."""

    code, number = "spec_mismatch", 8


class PermissionDenied(CenoteError):
    code, number = "permission_denied", 9


class NoSpace(CenoteError):
    """Nothing can be evicted. After a put, exactly the first `stored` keys are present."""

    code, number = "no_space", 10

    def __init__(self, message: str = "", *, stored: int | None = 0) -> None:
        super().__init__(message, stored=stored)


class PinLimit(CenoteError):
    """The session's share of pins is used up; nothing was pinned by the call."""

    code, number = "pin_limit", 11


class LimitExceeded(CenoteError):
    code, number = "limit_exceeded", 12


class Revoked(CenoteError):
    """A reservation was taken back, for example by a restart; reserve again."""

    code, number = "revoked", 13


class NotReserved(CenoteError):
    """Commit of a block that this session does not hold: a double or a foreign commit."""

    code, number = "not_reserved", 14


class Forked(CenoteError):
    """The session belongs to the parent process; attach again."""

    code, number = "forked", 15


class Closed(CenoteError):
    """The session was closed, or the node it belonged to was stopped; attach again."""

    code, number = "closed", 16


class SessionKilled(CenoteError):
    """The operator or the node ended the session; the message has the reason."""

    code, number = "session_killed", 17


class Malformed(CenoteError):
    code, number = "malformed", 18


class Unsupported(CenoteError):
    code, number = "unsupported", 19


class SystemFailure(CenoteError):
    """A system call failed; the message has its name and the system's words."""

    code, number = "system", 20


class Internal(CenoteError):
    """A bug in Cenote."""

    code, number = "internal", 21


class RemovalPending(CenoteError):
    """The blocks are removed here, but a tier below DRAM, another node or a server has not confirmed it.

    A restart of the node, or that place when it is back, may serve them until it has. The node goes on trying;
    `Session.unconfirmed` counts what waits for other nodes and servers. ``cenote status`` and the node's log name the
    place.
    """

    code, number = "removal_pending", 22


class GroupLost(CenoteError):
    """A group of ranks is broken: a rank left, died or joined again, a node was lost, or there was no answer in time.

    What was agreed and is not done with is void, also where a rank has a number already. All ranks join again.
    """

    code, number = "group_lost", 23


_BY_NUMBER: dict[int, type[CenoteError]] = {
    each.number: each
    for each in (
        InvalidArgument,
        InvalidConfig,
        NotRunning,
        NodeRestarting,
        DeadlineExceeded,
        ProtocolMismatch,
        LayoutMismatch,
        SpecMismatch,
        PermissionDenied,
        NoSpace,
        PinLimit,
        LimitExceeded,
        Revoked,
        NotReserved,
        Forked,
        Closed,
        SessionKilled,
        Malformed,
        Unsupported,
        SystemFailure,
        Internal,
        RemovalPending,
        GroupLost,
    )
}


def from_number(number: int, message: str, stored: int | None = None) -> CenoteError:
    """The exception for a code of the C ABI."""
    return _BY_NUMBER.get(number, Internal)(message, stored=stored)
