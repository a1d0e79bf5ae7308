"""The trace: which requests came, when, how long their prompts are and how long their answers get.

Columns, not objects: a trace may hold 30 million requests. The clock counts integer nanoseconds, so
arrivals compare exactly and shifting a trace by any constant changes nothing.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClosedLoop:
    """Clients that each send their next request a think time after their last one returned.

    When a request comes then depends on the server, so the trace's own arrival times are all 0: the first request
    of every client. Requests are sent in the trace's order, whoever sends them.
    """

    clients: int
    think_s: float
    """Mean of exponential think times, seconds; 0: none."""
    seed: int
    """Of the think times."""

    def think_ns(self, requests: int) -> Ints:
        """Think time before each request, nanoseconds; those of the first ``clients`` are not used."""
        drawn = np.random.default_rng(self.seed).exponential(self.think_s, requests)
        return np.rint(drawn * 1e9).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival; ties keep the order of the source.

    Invariants, checked when a trace is made: four columns of one length, at least one request, arrivals
    that never fall, prompts and outputs of at least one token, and rows read = kept + dropped.
    """

    name: str
    arrival_ns: Ints
    """When each request arrives, nanoseconds from the trace's own origin; never falls."""
    prompt_tokens: Ints
    output_tokens: Ints
    """All new tokens of the answer, the one that prefill yields included."""
    source_row: Ints
    """Row of each request in its source, from 0; with the seed it names the request's prompt."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows left out, by reason."""
    moved_rows: int = 0
    """Rows of the source that stood before an earlier arrival and were sorted, stably, into place."""
    timed: bool = True
    """False when the source has no arrival times: offline work, everything at time 0."""
    history: tuple[Mapping[str, Any], ...] = ()
    """Transforms applied since reading, first to last, each with its name and parameters."""
    predicted_output_tokens: Ints | None = None
    """What a policy may know of the outputs beforehand: guesses of at least one token; None: no guess."""
    prompt_ids: NDArray[np.int32] | None = None
    """Token ids of all prompts, one prompt after the other in order of arrival, where the source holds text:
    ``prompt_tokens.sum()`` of them, so that a running sum of ``prompt_tokens`` says where each begins."""
    closed_loop: ClosedLoop | None = None
    """Who sends the requests, where that depends on when earlier ones return; None: they come when they come."""

    def __post_init__(self) -> None:
        columns = [self.arrival_ns, self.prompt_tokens, self.output_tokens, self.source_row]
        if self.predicted_output_tokens is not None:
            columns.append(self.predicted_output_tokens)
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"columns of a trace differ in length: {[len(column) for column in columns]}")
        if len(self) == 0:
            raise InputError(f"{self.name}: no usable request ({sum(self.dropped.values())} rows dropped)")
        if np.any(np.diff(self.arrival_ns) < 0):
            raise ValueError(f"{self.name}: arrivals fall; sort them stably before making a trace")
        if self.prompt_tokens.min() < 1 or self.output_tokens.min() < 1:
            raise ValueError(f"{self.name}: a prompt or output of less than one token")
        if self.predicted_output_tokens is not None and self.predicted_output_tokens.min() < 1:
            raise ValueError(f"{self.name}: a predicted output of less than one token")
        if self.closed_loop is not None and self.arrival_ns.any():
            raise ValueError(f"{self.name}: a closed loop has no arrival times of its own")
        if self.prompt_ids is not None and len(self.prompt_ids) != int(self.prompt_tokens.sum()):
            raise ValueError(
                f"{self.name}: {len(self.prompt_ids)} ids for {int(self.prompt_tokens.sum())} tokens"
            )
        for column in (*columns, self.prompt_ids):
            if column is not None:
                column.setflags(write=False)

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def rows_read(self) -> int:
        """Rows the source held: those kept and those dropped."""
        return len(self) + sum(self.dropped.values())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of what was asked, when (counted from the first arrival) and, where there are any, of
        guesses and prompt ids; the name plays no part."""
        digest = hashlib.sha256()
        for column in (self.arrival_ns - self.arrival_ns[0], self.prompt_tokens, self.output_tokens):
            digest.update(np.ascontiguousarray(column, dtype="<i8").data)
        for optional in (self.predicted_output_tokens, self.prompt_ids):
            if optional is not None:
                digest.update(np.ascontiguousarray(optional, dtype="<i8").data)
        if self.closed_loop is not None:
            digest.update(repr(self.closed_loop).encode())
        return digest.hexdigest()

    def rows(self, index: NDArray[np.int64]) -> "Trace":
        """Rows by number, in that order. Arrivals are the caller's to set where the order is not theirs."""
        arrival_ns = self.arrival_ns[index]
        if np.any(arrival_ns[1:] < arrival_ns[:-1]):
            arrival_ns = np.zeros(len(index), np.int64)
        ids, guesses = self.prompt_ids, self.predicted_output_tokens
        if ids is not None:
            ends = np.cumsum(self.prompt_tokens)
            lengths = self.prompt_tokens[index]
            firsts = np.cumsum(lengths) - lengths
            begins = np.repeat((ends - self.prompt_tokens)[index] - firsts, lengths)
            ids = ids[begins + np.arange(lengths.sum())]
        return replace(
            self,
            arrival_ns=arrival_ns,
            prompt_tokens=self.prompt_tokens[index],
            output_tokens=self.output_tokens[index],
            source_row=self.source_row[index],
            predicted_output_tokens=None if guesses is None else guesses[index],
            prompt_ids=ids,
        )
