"""The clock: an exact int throughout, skipping what is idle or passing in real time, and runs that are interrupted."""

import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from simpy.rt import RealtimeEnvironment

from sim.executor import BatchTimes
from sim.metrics import latency_columns, requests, throughput
from sim.policy import StaticBatching
from sim.pricing import Prices
from sim.record import COMPLETED, REJECTED, UNFINISHED, RunRecord, broken_laws
from sim.run import results
from sim.server import serve
from tests.sim.worked import CASES, K1, MS, Case, S, Scripted, members, run, trace_of


class Spy(simpy.Environment):
    """Remembers the type of every time it has shown."""

    seen: set[type] = set()  # noqa: RUF012

    def step(self) -> None:
        self.seen.add(type(self.now))
        super().step()
        self.seen.add(type(self.now))


@settings(max_examples=50, deadline=None)
@given(CASES)
def test_now_is_an_int_whatever_happens(case: Case) -> None:
    Spy.seen.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.server.simpy.Environment", Spy)
        record = case.record()
    assert Spy.seen <= {int}
    assert bool(Spy.seen) == (record.count(REJECTED) < len(case.trace))


def test_a_policy_that_counts_in_numpy_does_not_touch_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.server.simpy.Environment", Spy)
    Spy.seen.clear()
    policy = StaticBatching(3, np.int64(5 * MS))  # type: ignore[arg-type]
    record = serve(trace_of([0, MS, 40 * MS]), policy, Scripted(lambda batch: 7 * MS))
    assert Spy.seen == {int}
    assert record.batches.start_ns.tolist() == [5 * MS, 45 * MS]


class Sleeper(Scripted):
    """Takes real time, and says how long."""

    def run(self, requests: Sequence[int]) -> BatchTimes:
        began = time.monotonic_ns()
        time.sleep(self.took_ns(requests) / 1e9)
        return BatchTimes(0, time.monotonic_ns() - began, 0, 0)


ARRIVALS = [0, 1, 2, 3, 60, 62, 64, 120, 180, 181]


def test_the_wall_clock_forms_the_batches_that_skipping_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps are ten times what any machine lags; were it to lag more, the lag is in the record."""

    class RealSpy(RealtimeEnvironment):
        def step(self) -> None:
            super().step()
            Spy.seen.add(type(self.now))

    monkeypatch.setattr("sim.server.RealtimeEnvironment", RealSpy)
    Spy.seen.clear()
    trace = trace_of([t * MS for t in ARRIVALS])
    policy, took = StaticBatching(4, 10 * MS), Sleeper(lambda batch: 2 * MS)
    skipping = serve(trace, policy, Scripted(took.took_ns))
    began = time.monotonic()
    real = serve(trace, policy, took, wall_clock=True)
    took_s = time.monotonic() - began
    assert Spy.seen == {int}
    assert broken_laws(real) == []
    assert took_s * 1e9 >= real.makespan_ns - real.batches.prefill_ns[-1]
    assert real.batches.lag_ns.min() >= 0
    if real.batches.lag_ns.max() < 30 * MS:
        assert members(real) == members(skipping)
        assert real.batches.closed_by.tolist() == skipping.batches.closed_by.tolist()


def test_the_schedule_is_absolute_so_lags_do_not_add_up() -> None:
    """Each start is planned for the later of its arrival and the last return, however late the one before was."""
    trace = trace_of([3 * i * MS for i in range(40)])
    record = serve(trace, StaticBatching(1), Sleeper(lambda batch: MS // 2), wall_clock=True)
    planned = record.batches.start_ns - record.batches.lag_ns
    free = np.concatenate([[0], record.end_ns[:-1]])
    assert np.array_equal(planned, np.maximum(trace.arrival_ns, free))
    assert record.rows.request.tolist() == list(range(40))
    assert np.all(latency_columns(record)["queue"] >= 0)


def test_a_blocked_server_is_seen_from_the_arrivals() -> None:
    """No coordinated omission: 100 requests due every 10 ms, all held up until 1000 ms."""
    trace = trace_of([10 * i * MS for i in range(100)])
    record = serve(trace, StaticBatching(200, 0), Scripted(lambda batch: S if 0 in batch else 1))
    waited = latency_columns(record)["e2e_batch"]
    assert waited.tolist()[0] == S
    assert (waited[1:] - 1).tolist() == [(1000 - 10 * i) * MS for i in range(1, 100)]
    assert waited.mean() / MS == pytest.approx(505, abs=1e-3)


def test_a_horizon_that_cuts_a_run_off_leaves_its_requests_unfinished() -> None:
    """Ten served, two rejected, one cut off: latencies are of the ten, and each outcome is counted."""

    def took(batch: Sequence[int]) -> int:
        if 12 in batch:
            raise KeyboardInterrupt
        return MS

    prompts = [1] * 10 + [99, 99] + [1]
    trace = trace_of([0] * 12 + [S], prompts)
    record = serve(trace, StaticBatching(5), Scripted(took), max_kv_tokens=50)
    assert record.setup["interrupted"] is True
    assert requests(record) == {"in": 13, "completed": 10, "rejected": 2, "timed_out": 0, "unfinished": 1}
    assert broken_laws(record) == []
    assert len(latency_columns(record)["e2e"]) == 10
    assert throughput(record, Prices(K1, 99, 100))["output_tokens_per_s"] == 10 / 2e-3
    found = results(record, Prices(K1, 99, 100))
    assert found.ledger.total_ns == record.makespan_ns == 2 * MS
    assert found.to_json()["setup"]["interrupted"] is True


def test_an_interrupt_before_the_first_batch_leaves_a_record_too() -> None:
    def took(batch: Sequence[int]) -> int:
        raise KeyboardInterrupt

    record = serve(trace_of([0, MS]), StaticBatching(1), Scripted(took))
    assert record.requests.status.tolist() == [UNFINISHED] * 2
    assert results(record, Prices(K1, 1, 2)).ledger.total_ns == record.makespan_ns == 0


def interrupting(at_line: int) -> tuple[Callable[..., Any], list[int]]:
    """A trace function that raises Ctrl-C at the n-th line that the server's process executes."""
    lines = [0]

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines[0] += 1
            if lines[0] == at_line:
                raise KeyboardInterrupt
        return local

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        return local if frame.f_code.co_name == "_server" else None

    return enter, lines


def interrupted_at(at_line: int) -> tuple[RunRecord, int]:
    trace = trace_of([0, 0, 5 * MS, 6 * MS, 90 * MS], [2, 3, 1, 1, 4], [2, 1, 3, 1, 2])
    enter, lines = interrupting(at_line)
    before = sys.gettrace()
    sys.settrace(enter)
    try:
        record = run(trace, 2, 10 * MS)
    finally:
        sys.settrace(before)
    return record, lines[0]


def test_whichever_line_is_interrupted_a_batch_is_whole_or_absent() -> None:
    whole, lines = interrupted_at(-1)
    assert whole.count(COMPLETED) == 5
    for line in range(1, lines + 1):
        record, _ = interrupted_at(line)
        assert record.setup["interrupted"] is True
        assert broken_laws(record) == []
        assert record.count(COMPLETED) + record.count(UNFINISHED) == 5
        assert members(record) == members(whole)[: len(record.batch_rows)]
        done = len(record.rows.request)
        assert record.rows.last_token_ns.tolist() == whole.rows.last_token_ns[:done].tolist()
