"""The record of a run: the only thing a run returns, simulated or measured.

Two tables of columns. Metrics, waste and the ledger are pure functions of them; nothing derived is stored.
Times are integer nanoseconds on the trace's clock.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.slots import batch_max
from traces.trace import Ints

BLOCK_ROWS = 1 << 16
"""Rows that are worked on at a time."""

STATUSES = ("completed", "rejected", "timed_out", "unfinished")
COMPLETED, REJECTED, TIMED_OUT, UNFINISHED = range(4)

CLOSED_BY = ("full", "timer", "end", "memory")
FULL, TIMER, END, MEMORY = range(4)


@dataclass(frozen=True, eq=False)
class Requests:
    """Every request of the trace, in the trace's order."""

    arrival_ns: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    source_row: Ints
    status: Ints
    """Index into ``STATUSES``."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Requests that were put into a batch, batch after batch."""

    request: Ints
    """Index into the requests; rising inside a batch."""
    last_token_ns: Ints
    """End of the pass that made the row's own last token."""


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches in order of start. A batch is five parts of time, one after the other, from its start."""

    first_row: Ints
    """Where the batch's rows begin in :class:`Rows`."""
    server: Ints
    start_ns: Ints
    lag_ns: Ints
    """By how much the start was behind its schedule (wall clock only); not the server's cost."""
    before_ns: Ints
    """Overhead before the prefill."""
    prefill_ns: Ints
    decode_ns: Ints
    after_ns: Ints
    """Overhead after the last step."""
    dummy_rows: Ints
    closed_by: Ints
    """Index into ``CLOSED_BY``."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What only a measured run has."""

    first_step: Ints
    """Where each batch's passes begin in the columns of steps."""
    step_wall_ns: Ints
    """Duration of every pass, batch after batch: the prefill, then each decode step."""
    step_cpu_ns: Ints | None
    """The same by process CPU time; None on a GPU."""
    peak_memory_bytes: Ints | None
    """Per batch; None where the device does not say."""
    failed: Mapping[int, str]
    """Batches that gave no answer, with the reason and their shape."""


@dataclass(frozen=True, eq=False)
class RunRecord:
    """What happened, and the resolved set-up it happened under (trace, policy, cost model or device, clock)."""

    setup: Mapping[str, Any]
    requests: Requests
    rows: Rows
    batches: Batches
    measured: Measured | None = None

    # Columns of batches.

    @cached_property
    def batch_rows(self) -> Ints:
        """Requests in each batch."""
        return np.diff(self.batches.first_row, append=len(self.rows.request))

    @cached_property
    def end_ns(self) -> Ints:
        """When each batch returns."""
        b = self.batches
        return b.start_ns + b.before_ns + b.prefill_ns + b.decode_ns + b.after_ns

    @cached_property
    def prefill_end_ns(self) -> Ints:
        """When each batch's first tokens are there."""
        return self.batches.start_ns + self.batches.before_ns + self.batches.prefill_ns

    @cached_property
    def padded_prompt_tokens(self) -> Ints:
        """Longest prompt of each batch."""
        return batch_max(self.row_prompt_tokens, self.batches.first_row)

    @cached_property
    def longest_output_tokens(self) -> Ints:
        """Longest output of each batch; the batch runs one decode step less."""
        return batch_max(self.row_output_tokens, self.batches.first_row)

    # Columns of rows: one value for each request that was put into a batch.

    @cached_property
    def _in_trace_order(self) -> bool:
        request = self.rows.request
        return len(request) == len(self.requests.status) and bool(np.all(np.diff(request) == 1))

    def per_row(self, request_column: Ints) -> Ints:
        """A column of the requests, at the rows. No copy where batches follow the trace's order."""
        return request_column if self._in_trace_order else request_column[self.rows.request]

    def spread(self, batch_column: Ints) -> Ints:
        """A column of the batches, at each of their rows."""
        return np.repeat(batch_column, self.batch_rows)

    @cached_property
    def row_prompt_tokens(self) -> Ints:
        """Prompt of each row."""
        return self.per_row(self.requests.prompt_tokens)

    @cached_property
    def row_output_tokens(self) -> Ints:
        """Own output of each row."""
        return self.per_row(self.requests.output_tokens)

    @cached_property
    def row_completed(self) -> NDArray[np.bool_]:
        """Rows whose request got its answer."""
        completed: NDArray[np.bool_] = self.per_row(self.requests.status) == COMPLETED
        return completed

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """The run in pieces of whole batches: which batches, and which rows are theirs.

        What is worked with in a piece stays in the processor's cache, and needs no fresh memory for each array.
        """
        first, rows = self.batches.first_row, len(self.rows.request)
        cuts = np.searchsorted(first, np.arange(0, rows + BLOCK_ROWS, BLOCK_ROWS))
        for low, high in pairwise(np.unique(np.append(cuts, len(first))).tolist()):
            yield slice(low, high), slice(int(first[low]), int(first[high]) if high < len(first) else rows)

    # The whole run.

    @property
    def servers(self) -> int:
        """Servers the run had."""
        return int(self.setup.get("servers", 1))

    @property
    def makespan_ns(self) -> int:
        """First arrival to last batch return; 0 when nothing was served."""
        if not len(self.end_ns):
            return 0
        return int(self.end_ns.max()) - int(self.requests.arrival_ns[0])

    def count(self, status: int) -> int:
        """Requests that ended in this status."""
        return int(np.count_nonzero(self.requests.status == status))


def broken_laws(record: RunRecord) -> list[str]:
    """What in this record cannot be (laws 1 and 2 of the design); empty for a sound one."""
    r, rows, b = record.requests, record.rows, record.batches
    arrival, start = record.per_row(r.arrival_ns), record.spread(b.start_ns)
    first, returned = record.spread(record.prefill_end_ns), record.spread(record.end_ns)
    parts = (b.lag_ns, b.before_ns, b.prefill_ns, b.decode_ns, b.after_ns, b.dummy_rows)
    served_once = len(np.unique(rows.request)) == len(rows.request)
    followers = np.lexsort((b.start_ns, b.server))
    same = np.diff(b.server[followers]) == 0
    overlap = same & (b.start_ns[followers][1:] < record.end_ns[followers][:-1])
    filled = bool(np.all(record.batch_rows > 0))
    full_length = True
    if record.measured is not None and filled:
        passes = np.diff(record.measured.first_step, append=len(record.measured.step_wall_ns))
        differ = np.flatnonzero(passes != record.longest_output_tokens)
        full_length = set(differ.tolist()) <= set(record.measured.failed)
    checks = {
        "arrivals fall": bool(np.all(np.diff(r.arrival_ns) >= 0)),
        "a prompt or an output has no token": bool(np.all((r.prompt_tokens > 0) & (r.output_tokens > 0))),
        "a rejected request is in a batch": not bool(np.any(record.per_row(r.status) == REJECTED)),
        "a part of a batch is negative": all(bool(np.all(part >= 0)) for part in parts),
        "a request is in two batches": served_once,
        "a completed request is in no batch": record.count(COMPLETED) == int(record.row_completed.sum()),
        "a status is unknown": bool(np.all((r.status >= 0) & (r.status < len(STATUSES)))),
        "a batch has no rows": filled,
        "a batch starts before a member's arrival": bool(np.all(arrival <= start)),
        "a first token is not after its start": bool(np.all((start < first) | ~record.row_completed)),
        "a last token is before the first": bool(
            np.all((first <= rows.last_token_ns) | ~record.row_completed)
        ),
        "a batch returns before a last token": bool(np.all(rows.last_token_ns <= returned)),
        "a measured batch has not as many passes as its longest output": full_length,
        "batches of one server overlap": not bool(overlap.any()),
    }
    return [law for law, held in checks.items() if not held]
