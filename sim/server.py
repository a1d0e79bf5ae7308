"""The server: one SimPy process that forms batches and has an executor run them.

The same process serves simulated and measured runs. A batch is one event: its time is known when it starts. At one
nanosecond the order is batch returns, arrivals, end of the stream, timers; only then does the policy decide.
Only Python ints reach SimPy, so the clock stays an exact int.
"""

import time
from array import array
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.rt import RealtimeEnvironment

from sim.closed import ClosedQueue
from sim.cost import LONGEST_NS
from sim.executor import Executor, MeasuredBatch
from sim.policy import Policy, Take, Wait
from sim.queue import MemoryLimit, Queue, Waiting
from sim.record import COMPLETED, REJECTED, UNFINISHED, Batches, Measured, Requests, Rows, RunRecord
from traces.errors import InputError
from traces.trace import Ints, Trace

Progress = Callable[[int], None]
"""Told, after each batch, how many requests have been served so far."""

_FIELDS = ("rows", "start_ns", "lag_ns", "before_ns", "prefill_ns", "decode_ns", "after_ns", "closed_by")


class _Log:
    """What the process writes down, as flat arrays: eight numbers a batch, one a served request."""

    def __init__(self) -> None:
        self.batches = array("q")
        self.served = array("q")
        self.measured: list[MeasuredBatch] = []


def serve(
    trace: Trace,
    policy: Policy,
    executor: Executor,
    *,
    max_kv_tokens: int | None = None,
    setup: Mapping[str, Any] | None = None,
    wall_clock: bool = False,
    progress: Progress | None = None,
) -> RunRecord:
    """Run a trace through a static batcher.

    Args:
        trace: the requests, each served at most once, in the policy's batches.
        policy: closes batches.
        executor: runs them.
        max_kv_tokens: cap on rows x (longest prompt + longest output) of a batch, dummy rows included; a request above
            it alone is rejected at submission. None: no cap.
        setup: what the record says the run happened under.
        wall_clock: let the trace's time pass in real time, instead of skipping what is idle.
        progress: told the number of requests served after each batch.

    An interrupt (Ctrl-C) ends the run early; requests not served are then ``unfinished`` in the record, and the
    set-up says ``interrupted``.
    """
    fits = np.full(len(trace), True)
    if max_kv_tokens is not None:
        fits = executor.rounding.rows(1) * (trace.prompt_tokens + trace.output_tokens) <= max_kv_tokens
    admitted = None if fits.all() else np.flatnonzero(fits)
    stream = trace if admitted is None else trace.rows(admitted) if len(admitted) else None
    limit = None
    if max_kv_tokens is not None and stream is not None:
        limit = MemoryLimit(stream, max_kv_tokens, executor.rounding.row_counts)

    log = _Log()
    interrupted = False
    queue: Queue | None = None
    if stream is not None:
        loop = stream.closed_loop
        if loop is None:
            queue = Queue(stream.arrival_ns, stream.prompt_tokens, limit)
        else:
            queue = ClosedQueue(stream, loop, limit)
        names = None if admitted is None else admitted.tolist()
        first_ns = int(stream.arrival_ns[0])
        env = (
            RealtimeEnvironment(initial_time=first_ns, factor=1e-9, strict=False)
            if wall_clock
            else simpy.Environment(initial_time=first_ns)
        )
        clock = _wall_clock(env, first_ns) if isinstance(env, RealtimeEnvironment) else None
        env.process(_server(env, queue, policy, executor, log, names, clock, progress))
        try:
            env.run()
        except KeyboardInterrupt:
            interrupted = True
    resolved = {**(setup or {}), **({"interrupted": True} if interrupted else {})}
    if isinstance(queue, ClosedQueue):
        trace = _as_sent(trace, fits, queue.arrival_ns)
    return _record(trace, fits, log, executor, resolved)


def _as_sent(trace: Trace, fits: NDArray[np.bool_], arrival_ns: Ints) -> Trace:
    """The trace with the times at which the clients of its closed loop sent the requests.

    What was rejected, or not sent before an interrupt, gets the time of the request before it.
    """
    at = np.zeros(len(trace), np.int64)
    at[fits] = arrival_ns
    return replace(trace, arrival_ns=np.maximum.accumulate(at), closed_loop=None)


def _wall_clock(env: RealtimeEnvironment, first_ns: int) -> Callable[[], int]:
    env.sync()  # real time starts now, not when the environment was made
    began = time.monotonic_ns()
    return lambda: first_ns + time.monotonic_ns() - began


def _server(
    env: simpy.Environment,
    queue: Queue,
    policy: Policy,
    executor: Executor,
    log: _Log,
    names: list[int] | None,
    clock: Callable[[], int] | None,
    progress: Progress | None,
) -> Generator[simpy.Event, None, None]:
    timeout = env.timeout
    decide, run = policy.decide, executor.run
    write, serve_more = log.batches.extend, log.served.extend
    waiting = Waiting(queue)
    now: int = env.now  # type: ignore[assignment]  # SimPy says float; here every delay is an int
    while True:
        queue.admit(now)
        decision: Take | Wait
        if queue:
            decision = decide(waiting, now, queue.ended)
        elif queue.ended:
            return
        else:
            decision = Wait(queue.next_arrival_ns, 1)
        if isinstance(decision, Wait):
            wake = _wake_ns(queue, decision, now)
            # Nothing else happens while one server waits, so only a clock that really runs needs an event for it.
            if clock is not None:
                yield timeout(wake - now)
            now = wake
            continue
        requests = queue.take(decision.rows)
        if names is not None:
            requests = [names[i] for i in requests]
        lag = 0 if clock is None else max(clock() - now, 0)
        before, prefill, decode, after, measured = run(requests)
        if measured is not None:
            log.measured.append(measured)
        end = now + lag + before + prefill + decode + after
        if end >= 2 * LONGEST_NS:
            raise InputError("the run lasts more than a century; does the cost model give seconds?")
        serve_more(requests)
        # Last: a batch is in the record once this is written, however the lines before are interrupted.
        write((len(requests), now + lag, lag, before, prefill, decode, after, decision.closed_by))
        if progress is not None:
            progress(len(log.served))
        now = end
        yield timeout(now - env.now)
        queue.returned(len(requests), now)


def _wake_ns(queue: Queue, wait: Wait, now_ns: int) -> int:
    """When to ask the policy again."""
    wake, due = queue.wake_ns(wait.until_waiting), wait.until_ns
    if wake is None or (due is not None and due < wake):
        wake = due
    if wake is None or wake <= now_ns:
        raise queue.stuck(wait.until_waiting)
    return int(wake)  # a policy may count in numpy's integers, the clock may not


def _record(
    trace: Trace,
    fits: NDArray[np.bool_],
    log: _Log,
    executor: Executor,
    setup: Mapping[str, Any],
) -> RunRecord:
    table = np.frombuffer(log.batches, np.int64).reshape(-1, len(_FIELDS))
    columns = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_FIELDS)}
    batch_rows = columns.pop("rows")
    first_row = np.cumsum(batch_rows) - batch_rows
    served = np.frombuffer(log.served, np.int64)[: batch_rows.sum()]
    measured = log.measured[: len(batch_rows)]
    status = np.full(len(trace), UNFINISHED, np.int64)
    status[served] = COMPLETED
    status[~fits] = REJECTED
    failed = {i: batch.failed for i, batch in enumerate(measured) if batch.failed is not None}
    for i in failed:
        status[served[first_row[i] : first_row[i] + batch_rows[i]]] = UNFINISHED
    record = RunRecord(
        setup=setup,
        requests=Requests(
            trace.arrival_ns, trace.prompt_tokens, trace.output_tokens, trace.source_row, status
        ),
        rows=Rows(request=served, last_token_ns=np.zeros_like(served)),
        batches=Batches(
            first_row=first_row,
            server=np.zeros_like(first_row),
            dummy_rows=executor.rounding.rows(batch_rows) - batch_rows,
            **columns,
        ),
        measured=_measured(measured, failed) if measured else None,
    )
    last_token_ns = executor.row_decode_ns(record)
    for batches, rows in record.blocks():
        last_token_ns[rows] += np.repeat(record.prefill_end_ns[batches], batch_rows[batches])
    return replace(record, rows=replace(record.rows, last_token_ns=last_token_ns))


def _measured(batches: list[MeasuredBatch], failed: Mapping[int, str]) -> Measured:
    passes = np.array([len(batch.step_wall_ns) for batch in batches], np.int64)
    cpu = [batch.step_cpu_ns for batch in batches if batch.step_cpu_ns is not None]
    peak = [batch.peak_memory_bytes for batch in batches if batch.peak_memory_bytes is not None]
    return Measured(
        first_step=np.cumsum(passes) - passes,
        step_wall_ns=np.concatenate([batch.step_wall_ns for batch in batches]),
        step_cpu_ns=np.concatenate(cpu) if len(cpu) == len(batches) else None,
        peak_memory_bytes=np.array(peak, np.int64) if len(peak) == len(batches) else None,
        failed=failed,
    )
