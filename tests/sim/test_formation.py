"""How batches form, against a slow event list that shares no code with the server, and public faults by hand."""

import heapq
from typing import Any

import numpy as np
from hypothesis import given, settings

from sim.policy import StaticBatching
from sim.record import CLOSED_BY, COMPLETED, REJECTED
from sim.server import serve
from sim.step import Rounding
from tests.sim.worked import CASES, MS, Case, S, Scripted, batch_ns, members, run, trace_of
from traces.trace import Trace

RETURN, ARRIVAL, END, TIMER = range(4)
"""What happens at one nanosecond, in this order; only then is anything decided."""


def slow(case: Case) -> list[tuple[int, list[int], str, int]]:
    """Start, members, reason and end of every batch, from one list of events and nothing clever."""
    trace, cap = case.trace, case.max_kv_tokens
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    arrivals = trace.arrival_ns.tolist()

    def fits(batch: list[int]) -> bool:
        longest = max(prompts[i] for i in batch) + max(outputs[i] for i in batch)
        return cap is None or int(case.rounding.rows(len(batch))) * longest <= cap

    come = [i for i in range(len(arrivals)) if fits([i])]
    events = [(arrivals[i], ARRIVAL, i) for i in come]
    if case.max_wait_ns is not None:
        events += [(arrivals[i] + case.max_wait_ns, TIMER, i) for i in come]
    if come:
        events.append((arrivals[come[-1]], END, 0))
    heapq.heapify(events)
    waiting: list[int] = []
    busy = ended = False
    found = []
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, i = heapq.heappop(events)
            if kind == RETURN:
                busy = False
            elif kind == ARRIVAL:
                waiting.append(i)
            elif kind == END:
                ended = True
        if busy or not waiting:
            continue
        batch = waiting[:1]
        while len(batch) < min(case.max_batch, len(waiting)) and fits([*batch, waiting[len(batch)]]):
            batch.append(waiting[len(batch)])
        if len(batch) == case.max_batch:
            why = "full"
        elif len(batch) < len(waiting):
            why = "memory"
        elif case.max_wait_ns is None and ended:
            why = "end"
        elif case.max_wait_ns is not None and now >= arrivals[batch[0]] + case.max_wait_ns:
            why = "timer"
        else:
            continue
        overhead = sum(round(s * 1e9) for s in case.model.batch_overhead_s)
        end = now + overhead + sum(batch_ns(case.model, trace, batch, case.rounding).tolist())
        found.append((now, batch, why, end))
        waiting = waiting[len(batch) :]
        busy = True
        heapq.heappush(events, (end, RETURN, 0))
    return found


@settings(max_examples=400, deadline=None)
@given(CASES)
def test_batches_are_those_of_a_slow_event_list(case: Case) -> None:
    record = case.record()
    got = [
        (start, rows, CLOSED_BY[why], end)
        for start, rows, why, end in zip(
            record.batches.start_ns.tolist(),
            members(record),
            record.batches.closed_by.tolist(),
            record.end_ns.tolist(),
            strict=True,
        )
    ]
    assert got == slow(case)


def starts(record: Any) -> list[tuple[int, int, str]]:
    """Size, start in ms and reason of every batch."""
    columns = record.batch_rows, record.batches.start_ns // MS, record.batches.closed_by
    return [(int(rows), int(at), CLOSED_BY[why]) for rows, at, why in zip(*columns, strict=True)]


def at_ms(*times: int) -> Trace:
    return trace_of([t * MS for t in times])


def takes(ms: int) -> Scripted:
    return Scripted(lambda requests: ms * MS)


def test_zero_wait_takes_together_what_queued_while_the_server_was_busy() -> None:
    record = serve(at_ms(0, 1, 2, 3, 4), StaticBatching(8, 0), takes(100))
    assert starts(record) == [(1, 0, "timer"), (4, 100, "timer")]


def test_the_timer_runs_from_the_oldest_arrival_not_from_the_last_batch() -> None:
    idle_since_zero = serve(at_ms(1000, 1020), StaticBatching(4, 50 * MS), takes(10))
    assert starts(idle_since_zero) == [(2, 1050, "timer")]
    # The second waited from 10 on, while the server was busy until 100: its timer is long over then.
    busy = serve(at_ms(0, 1, 2, 3, 10, 105), StaticBatching(4, 50 * MS), takes(97))
    assert starts(busy) == [(4, 3, "full"), (1, 100, "timer"), (1, 197, "timer")]


def test_a_burst_is_one_batch_and_a_cap_that_binds_is_named() -> None:
    burst = at_ms(*[0] * 140)
    assert starts(serve(burst, StaticBatching(256, 5 * S), takes(1))) == [(140, 5000, "timer")]
    capped = serve(burst, StaticBatching(256, 5 * S), takes(1), max_kv_tokens=101 * 2)
    assert starts(capped) == [(101, 0, "memory"), (39, 5000, "timer")]


def test_requests_sent_one_after_the_other_each_wait_the_timer_out() -> None:
    record = serve(at_ms(0, 101_000, 202_000), StaticBatching(8, 100 * S), takes(1000))
    assert starts(record) == [(1, 100_000, "timer"), (1, 201_000, "timer"), (1, 302_000, "timer")]
    assert record.makespan_ns == 303 * S


def test_the_last_batch_waits_its_timer_out_even_if_all_came_together() -> None:
    assert starts(run(at_ms(0, 0, 0), 2, 50 * MS)) == [(2, 0, "full"), (1, 50, "timer")]
    assert starts(run(at_ms(0, 0, 0), 2)) == [(2, 0, "full"), (1, 2, "end")]


def test_without_a_timer_a_batch_waits_until_it_is_full_or_the_stream_ends() -> None:
    record = serve(at_ms(0, 500, 900, 2000), StaticBatching(3), takes(10))
    assert starts(record) == [(3, 900, "full"), (1, 2000, "end")]


def test_an_arrival_in_the_very_nanosecond_the_timer_ends_belongs_to_the_batch() -> None:
    record = serve(trace_of([0, 50 * MS, 50 * MS + 1]), StaticBatching(4, 50 * MS), takes(1))
    assert members(record) == [[0, 1], [2]]
    assert record.batches.start_ns.tolist() == [50 * MS, 100 * MS + 1]


def test_at_one_nanosecond_return_and_arrivals_come_before_the_decision() -> None:
    # A batch returns at 10 ms, two arrive at 10 ms, and the timer of the one that waits ends at 10 ms.
    record = serve(at_ms(0, 5, 10, 10), StaticBatching(3, 5 * MS), Scripted(lambda batch: 5 * MS))
    assert members(record) == [[0, 1], [2, 3]]
    record = serve(at_ms(0, 0, 0, 5, 10, 10), StaticBatching(3, 5 * MS), takes(10))
    assert members(record) == [[0, 1, 2], [3, 4, 5]]
    assert starts(record) == [(3, 0, "full"), (3, 10, "full")]


def test_allowed_row_counts_charge_dummy_rows_and_show_them_apart() -> None:
    trace = trace_of([0] * 9, 10, 3)
    record = run(trace, 9, rounding=Rounding((2, 8, 32)))
    assert record.batches.dummy_rows.tolist() == [23]
    assert record.batches.prefill_ns.tolist() == [32 * 10 * MS]
    assert run(trace, 9).batches.dummy_rows.tolist() == [0]


def test_requests_larger_than_memory_are_rejected_and_the_run_ends() -> None:
    trace = trace_of([0, 0, 0], [900, 700, 100], [1, 200, 10])
    record = run(trace, 8, MS, max_kv_tokens=800)
    assert record.requests.status.tolist() == [REJECTED, REJECTED, COMPLETED]
    assert members(record) == [[2]]
    assert record.batches.start_ns.tolist() == [MS]


def test_a_static_batch_reserves_rows_times_longest_prompt_and_longest_output() -> None:
    trace = trace_of([0, 0], [400, 50], [100, 10])
    assert members(run(trace, 2, max_kv_tokens=1000)) == [[0, 1]]
    assert members(run(trace, 2, max_kv_tokens=999)) == [[0], [1]]
    # 50 + 100 and 400 + 10 fit alone, and padded to each other they do not.
    crossed = trace_of([0, 0], [50, 400], [100, 10])
    assert members(run(crossed, 2, max_kv_tokens=999)) == [[0], [1]]


def test_when_nothing_fits_nothing_is_served() -> None:
    record = run(trace_of([0, MS], 5, 5), 2, max_kv_tokens=9)
    assert record.requests.status.tolist() == [REJECTED] * 2
    assert record.makespan_ns == 0
    assert members(record) == []


def test_memory_that_a_later_arrival_fills_up_closes_the_batch_at_that_arrival() -> None:
    trace = trace_of([0, 10 * MS, 20 * MS, 30 * MS], 5, 5)
    record = run(trace, 8, 10 * S, max_kv_tokens=20)
    assert members(record) == [[0, 1], [2, 3]]
    assert starts(record) == [(2, 20, "memory"), (2, 10_020, "timer")]


def test_each_batch_is_as_large_as_it_may_be() -> None:
    record = run(trace_of([0] * 10), 4)
    assert record.batch_rows.tolist() == [4, 4, 2]
    assert np.all(record.batches.start_ns[1:] == record.end_ns[:-1])
