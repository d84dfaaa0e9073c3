"""Groups of ranks that agree: every rank uses the same length for the same question."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import byref, c_size_t, c_uint64, c_void_p
from types import TracebackType

from . import _library as lib
from .blocks import Core
from .errors import Closed, InvalidArgument

_MOST_OPEN = 1024  # questions of agree_start() that agree_poll() did not return yet
_LONGEST = 3600.0  # seconds
_WORD = 1 << 64


def _word(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _WORD:
        raise InvalidArgument(f"{what} is {value!r}; it must be an int of 0 to {_WORD - 1}")
    return value


def _nanoseconds(value: float, what: str, least: float, most: float) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidArgument(f"{what} is {value!r} s; it must be {least:g} to {most:g}")
    return int(value * 1e9)


class Group:
    """One rank of a group, which Session.join_group() made. Leave it, or use it in a `with`. Threads may share it.

    Every rank asks every question. Their numbers grow, as a counter of requests does; ranks may ask in different orders
    within 4,096 questions. All of them get the same number, or GroupLost. After GroupLost every call raises it: what
    was agreed and is not done with is void, and all ranks join again.

    Attributes
    ----------
    name : str
    rank, size : int
        This rank, from 0, and how many there are.
    timeout : float
        Seconds that a question may take.
    """

    def __init__(self, core: Core, handle: c_void_p, name: str, rank: int, size: int, timeout: float) -> None:
        self.name, self.rank, self.size, self.timeout = name, rank, size, timeout
        self._core = core
        self._raw = handle
        self._has_left = False

    def agree(self, question: int, length: int) -> int:
        """The least length that the ranks have for a question; 0 when one did not say its own in time.

        Parameters
        ----------
        question : int
            Its number, 0 to 2**64 - 1: the same at all ranks, used once.
        length : int
            What this rank has, for instance blocks of a prefix.

        Returns
        -------
        int
            The same at all ranks.

        Raises
        ------
        GroupLost
            After `timeout` at the latest.
        """
        decided = c_uint64()
        lib.check(
            lib.library.cenote_agree(self._handle, _word(question, "question"), _word(length, "length"), byref(decided))
        )
        return decided.value

    def agree_start(self, questions: int | Sequence[int], lengths: int | Sequence[int]) -> None:
        """Asks without waiting; agree_poll() has the answers. Several at a time cost little more than one.

        Parameters
        ----------
        questions, lengths : int, or sequences of n int

        Raises
        ------
        LimitExceeded
            More than 1,024 would be open; nothing was asked.
        GroupLost
        """
        some = [questions] if isinstance(questions, int) else questions
        theirs = [lengths] if isinstance(lengths, int) else lengths
        if len(some) != len(theirs):
            raise InvalidArgument(f"{len(some)} questions and {len(theirs)} lengths")
        words = array("Q", bytes(8 * lib.LENGTH_WORDS * len(some)))
        try:
            words[0::2] = array("Q", some)
            words[1::2] = array("Q", theirs)
        except (TypeError, OverflowError) as why:
            raise InvalidArgument(f"questions and lengths are ints of 0 to {_WORD - 1}: {why}") from None
        lib.check(lib.library.cenote_agree_start(self._handle, words.buffer_info()[0] or None, len(some)))

    def agree_poll(self, timeout: float = 0.0) -> dict[int, int]:
        """What is decided of the questions of agree_start().

        Parameters
        ----------
        timeout : float
            Seconds to wait for the first answer. Nothing is waited for, and no system call made, when it is there
            already, or no question is open.

        Returns
        -------
        dict
            Question -> length; each question is returned once.

        Raises
        ------
        GroupLost
        """
        count = c_size_t()
        places = array("Q", bytes(8 * lib.LENGTH_WORDS * _MOST_OPEN))
        wait = _nanoseconds(timeout, "timeout", 0, _LONGEST)
        address = places.buffer_info()[0]
        lib.check(lib.library.cenote_agree_poll(self._handle, address, _MOST_OPEN, wait, byref(count)))
        used = 2 * count.value
        return dict(zip(places[0:used:2], places[1:used:2], strict=True))

    def leave(self) -> None:
        """Ends the group for all of its ranks: their calls raise GroupLost. Leaving twice is allowed."""
        if not self._has_left:
            self._has_left = True
            lib.library.cenote_group_leave(self._raw)  # freed with this object: another thread may be in a call

    @property
    def _handle(self) -> c_void_p:
        if self._has_left:
            raise Closed("this rank has left the group")
        return self._raw

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def __del__(self) -> None:
        try:
            lib.library.cenote_group_free(self._raw)
        except Exception:  # also when the interpreter is ending: then no module's name can be used here
            return


def join(core: Core, name: str, rank: int, size: int, timeout: float, wait: float | None) -> Group:
    """See Session.join_group()."""
    if not isinstance(name, str):
        raise TypeError(f"a group's name is a {type(name).__name__}, not a str")
    raw_name = name.encode()
    if b"\0" in raw_name:
        raise InvalidArgument("a group's name holds a zero byte")
    for what, value in (("rank", rank), ("size", size)):
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise InvalidArgument(f"{what} is {value!r}; it must be an int, 0 or more")
    each = _nanoseconds(timeout, "timeout", 0.001, _LONGEST)
    patience = 0 if wait is None else max(1, _nanoseconds(wait, "wait", 0, 86400.0))
    handle = c_void_p()
    lib.check(lib.library.cenote_group_join(core, raw_name, rank, size, each, patience, byref(handle)))
    return Group(core, handle, name, rank, size, timeout)
