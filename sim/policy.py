"""When a batch is closed and what goes into it.

A policy is a pure function of what waits, the time, and whether the stream has ended. It answers "take
these", or "wait until a time or until n requests wait, whichever comes first", so that it need not be asked
at every arrival. It sees no output lengths and nothing of the future: what it is given has neither.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sim.queue import Waiting
from sim.record import END, FULL, MEMORY, TIMER
from traces.errors import InputError

LONGEST_WAIT_NS = 100 * 366 * 86_400 * 10**9
"""A century: added to any arrival it still is a time that 64 bits hold."""


class Take(NamedTuple):
    """Start a batch now."""

    rows: int | Sequence[int]
    """How many of the oldest waiting requests, or positions in the queue, rising."""
    closed_by: int
    """Index into ``sim.record.CLOSED_BY``."""


class Wait(NamedTuple):
    """Ask again at a time, when so many wait, or when the stream ends, whichever comes first."""

    until_ns: int | None
    until_waiting: int


class Policy(Protocol):
    """Decides when a batch starts.

    Pre: at least one request waits; all arrivals up to and including ``now_ns`` are in the queue. Post: the same
    decision for the same arguments. A policy that waits with no time, on more requests than will ever come, is
    asked once more when the stream has ended and must then take something.
    """

    def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
        """Take some of the waiting requests, or wait."""

    def to_json(self) -> dict[str, Any]:
        """The resolved options, for the record."""


@dataclass(frozen=True)
class StaticBatching:
    """Up to ``max_batch`` requests in order of arrival; a full batch starts at once.

    Without ``max_wait_ns`` a batch waits until it is full, and only the end of the stream lets the rest go. With
    it, a timer runs from the arrival of the oldest waiting request, and the last batch waits it out like any
    other, since a server does not know that a request was the last. Zero wait: whatever queued while the server was
    busy goes together.
    """

    max_batch: int = 8
    max_wait_ns: int | None = None

    def __post_init__(self) -> None:
        if self.max_batch < 1:
            raise InputError(f"max_batch {self.max_batch} must be at least 1")
        if self.max_wait_ns is not None and not 0 <= self.max_wait_ns <= LONGEST_WAIT_NS:
            wait_s, most_s = self.max_wait_ns / 1e9, LONGEST_WAIT_NS / 1e9
            raise InputError(f"max_wait {wait_s:g} s must be from 0 to {most_s:g} s")

    def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
        """Full, out of memory, timer over, stream over: take. Otherwise wait for the first of them."""
        rows = queue.fitting(self.max_batch)
        if rows == self.max_batch:
            return Take(rows, FULL)
        if rows < len(queue):
            return Take(rows, MEMORY)
        if self.max_wait_ns is None:
            return Take(rows, END) if ended else Wait(None, self.max_batch)
        due_ns = queue.oldest_arrival_ns + self.max_wait_ns
        return Take(rows, TIMER) if now_ns >= due_ns else Wait(due_ns, self.max_batch)

    def to_json(self) -> dict[str, Any]:
        """Batch size and wait; seconds, or null for none."""
        wait_s = None if self.max_wait_ns is None else self.max_wait_ns / 1e9
        return {"kind": "static", "max_batch": self.max_batch, "max_wait_s": wait_s}
