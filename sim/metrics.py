"""Latency and throughput of a run, as pure functions of its record. Definitions stand in the README."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.passes import passes_done, token_gaps
from sim.pricing import Prices
from sim.record import CLOSED_BY, COMPLETED, STATUSES, RunRecord
from sim.stats import Summary, summary, weighted_summary
from traces.slots import batch_sum
from traces.trace import Floats, Ints

LATENCIES = ("queue", "forming", "backlog", "ttft", "tpot", "itl", "e2e", "e2e_batch")


class BusyTime:
    """How long the one server of a run has worked before a time."""

    def __init__(self, record: RunRecord) -> None:
        self._start = record.batches.start_ns
        self._took = record.end_ns - self._start
        self._before = np.cumsum(self._took) - self._took

    def before(self, at_ns: Ints) -> Ints:
        """Nanoseconds of batches run before each time."""
        if not len(self._start):
            return np.zeros_like(at_ns)
        i = np.searchsorted(self._start, at_ns, side="right") - 1
        inside = self._before[i] + np.minimum(at_ns - self._start[i], self._took[i])
        return np.where(i < 0, 0, inside)


@dataclass(frozen=True)
class _Block:
    """Completed requests of some batches, nanoseconds; each column is made when first asked for."""

    record: RunRecord
    busy: BusyTime
    batches: slice
    rows: slice

    @cached_property
    def done(self) -> NDArray[np.bool_]:
        return self.record.row_completed[self.rows]

    def of_batches(self, column: Ints) -> Ints:
        return np.repeat(column, self.record.batch_rows[self.batches])[self.done]

    @cached_property
    def arrival(self) -> Ints:
        return self.record.per_row(self.record.requests.arrival_ns)[self.rows][self.done]

    @cached_property
    def queue(self) -> Ints:
        return self.of_batches(self.record.batches.start_ns[self.batches]) - self.arrival

    @cached_property
    def backlog(self) -> Ints:
        start = self.record.batches.start_ns[self.batches]
        return self.of_batches(self.busy.before(start)) - self.busy.before(self.arrival)

    @cached_property
    def first(self) -> Ints:
        return self.of_batches(self.record.prefill_end_ns[self.batches])

    @cached_property
    def last(self) -> Ints:
        return self.record.rows.last_token_ns[self.rows][self.done]

    @property
    def tpot(self) -> Floats:
        gaps = self.record.row_output_tokens[self.rows][self.done] - 1
        several = gaps > 0
        return (self.last - self.first)[several] / gaps[several]

    @property
    def returned(self) -> Ints:
        return self.of_batches(self.record.end_ns[self.batches])


_LATENCY: dict[str, Callable[[_Block], Ints | Floats]] = {
    "queue": lambda block: block.queue,
    "forming": lambda block: block.queue - block.backlog,
    "backlog": lambda block: block.backlog,
    "ttft": lambda block: block.first - block.arrival,
    "tpot": lambda block: block.tpot,
    "e2e": lambda block: block.last - block.arrival,
    "e2e_batch": lambda block: block.returned - block.arrival,
}


def latency_columns(record: RunRecord) -> dict[str, Ints | Floats]:
    """Nanoseconds of each completed request, in batch order; ``tpot`` only of those with more than one token.

    Queue = start - arrival; backlog is the part of it in which the server was busy, forming the rest. TTFT is the
    end of prefill - arrival. E2E ends at the request's own last token, ``e2e_batch`` when its batch returns.
    """
    busy, rows = BusyTime(record), len(record.rows.request)
    return {name: _latency_column(record, name, busy, np.empty(rows, np.int64)) for name in _LATENCY}


def _latency_column(record: RunRecord, name: str, busy: BusyTime, memory: Ints) -> Ints | Floats:
    """One latency, written into ``memory``, which has room for every row."""
    column: Ints | Floats = memory.view(np.float64) if name == "tpot" else memory
    filled = 0
    for batches, rows in record.blocks():
        part = _LATENCY[name](_Block(record, busy, batches, rows))
        column[filled : filled + len(part)] = part
        filled += len(part)
    return column[:filled]


def latency(record: RunRecord, prices: Prices | None) -> dict[str, Summary]:
    """Summary of each latency, seconds. ``itl`` pools all gaps between tokens of all requests."""
    found: dict[str, Summary] = {"itl": weighted_summary(*token_gaps(record, prices))}
    # One after the other in the same memory: fresh memory for each would cost a long run more than its numbers.
    busy, memory = BusyTime(record), np.empty(len(record.rows.request), np.int64)
    found |= {name: summary(_latency_column(record, name, busy, memory)) for name in _LATENCY}
    return {name: found[name] for name in LATENCIES}


def waiting_intervals(record: RunRecord) -> tuple[Ints, Ints]:
    """When the queue was not empty: starts and ends of the maximal intervals, ns. A request that was never served
    waited until the last batch returned; a rejected one never waited."""
    r = record.requests
    arrival, start = record.per_row(r.arrival_ns), record.spread(record.batches.start_ns)
    unserved = np.flatnonzero(r.status == STATUSES.index("unfinished"))
    unserved = np.setdiff1d(unserved, record.rows.request, assume_unique=True)
    if len(unserved):
        arrival = np.concatenate([arrival, r.arrival_ns[unserved]])
        start = np.concatenate([start, np.full(len(unserved), record.end_ns.max(initial=0))])
    if np.any(np.diff(arrival) < 0):
        order = np.argsort(arrival, kind="stable")
        arrival, start = arrival[order], start[order]
    if not len(arrival):
        return arrival, arrival
    until = np.maximum.accumulate(start)
    new = np.concatenate([[True], arrival[1:] > until[:-1]])
    last = np.append(np.flatnonzero(new)[1:] - 1, len(arrival) - 1)
    since, until = arrival[new], until[last]
    waited = until > since
    return since[waited], until[waited]


def tokens_while_waiting(record: RunRecord, prices: Prices | None) -> tuple[int, int]:
    """Useful tokens that came out while the queue was not empty, and for how many ns it was not.

    Intervals are (from, until]. Each ends at a batch's start, so at most one begins in the time of any batch.
    """
    since, until = waiting_intervals(record)
    b = record.batches
    if not len(b.start_ns) or not len(since):
        return 0, 0
    useful = np.where(record.row_completed, record.row_output_tokens, 0)
    tokens = batch_sum(useful, b.first_row)
    before = np.concatenate([[0], np.cumsum(tokens)])
    at_until = before[np.searchsorted(b.start_ns, until, side="left")]
    holder = np.searchsorted(b.start_ns, since, side="right") - 1
    inside = holder >= 0
    elapsed = np.zeros(len(tokens), np.int64)
    elapsed[holder[inside]] = since[inside] - (b.start_ns + b.before_ns)[holder[inside]]
    done = passes_done(record, prices, elapsed)
    emitted = batch_sum(np.minimum(useful, record.spread(done)), b.first_row)
    at_since = np.where(inside, before[holder] + emitted[holder], 0)
    return int((at_until - at_since).sum()), int((until - since).sum())


def throughput(record: RunRecord, prices: Prices | None) -> dict[str, Any]:
    """Rates of the run, per second of makespan unless the name says otherwise; null where there is no time.

    Useful output tokens only; ``computed_output_slots_per_s`` counts idle rows too and is never throughput.
    """
    makespan_s = record.makespan_ns / 1e9
    busy_s = int((record.end_ns - record.batches.start_ns).sum()) / 1e9
    done = record.row_completed
    useful = int(record.row_output_tokens[done].sum())
    slots = record.batch_rows * record.longest_output_tokens
    if record.measured is not None:
        slots = np.delete(slots, list(record.measured.failed))  # a batch that failed has computed nothing
    waiting_tokens, waiting_ns = tokens_while_waiting(record, prices)
    arrivals = record.requests.arrival_ns
    offered_s = int(arrivals[-1] - arrivals[0]) / 1e9

    def rate(amount: float, seconds: float) -> float | None:
        return round(amount / seconds, 9) if seconds > 0 else None

    return {
        "makespan_s": round(makespan_s, 9),
        "busy_s": round(busy_s, 9),
        "utilisation": rate(busy_s, makespan_s * record.servers),
        "offered_requests_per_s": rate(len(arrivals) - 1, offered_s),
        "completed_requests_per_s": rate(record.count(COMPLETED), makespan_s),
        "output_tokens_per_s": rate(useful, makespan_s),
        "output_tokens_per_s_while_waiting": rate(waiting_tokens, waiting_ns / 1e9),
        "computed_output_slots_per_s": rate(int(slots.sum()), makespan_s),
        "prompt_tokens_per_s": rate(int(record.row_prompt_tokens[done].sum()), makespan_s),
    }


def requests(record: RunRecord) -> dict[str, int]:
    """How many came in and how each ended."""
    return {
        "in": len(record.requests.status),
        **{name: record.count(status) for status, name in enumerate(STATUSES)},
    }


def batches(record: RunRecord) -> dict[str, Any]:
    """Batches: how many, why each closed, and how large they were."""
    closed = np.bincount(record.batches.closed_by, minlength=len(CLOSED_BY)).tolist()
    sizes, counts = np.unique(record.batch_rows, return_counts=True)
    return {
        "count": len(record.batch_rows),
        "closed_by": dict(zip(CLOSED_BY, closed, strict=True)),
        "size_histogram": {
            str(size): count for size, count in zip(sizes.tolist(), counts.tolist(), strict=True)
        },
    }
