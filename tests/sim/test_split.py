"""The split of an error into cost, queueing and formation: by hand, and as a law over random runs."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.executor import BatchTimes, Simulated
from sim.policy import StaticBatching
from sim.pricing import Prices
from sim.record import END, MEMORY, RunRecord
from sim.server import serve
from sim.split import QUANTITIES, Split, mean_split, split
from sim.step import EXACT, Rounding
from tests.sim.worked import CASES, K1, MS, Case, trace_of
from traces.trace import Ints, Trace


class Took:
    """Batches that take the four parts a test says, in turn."""

    def __init__(self, parts_ns: Sequence[tuple[int, int, int, int]], rounding: Rounding = EXACT) -> None:
        self.parts_ns = parts_ns
        self.rounding = rounding
        self.batches = 0

    def run(self, requests: Sequence[int]) -> BatchTimes:
        parts = self.parts_ns[self.batches % len(self.parts_ns)]
        self.batches += 1
        return BatchTimes(*parts)

    def row_decode_ns(self, record: RunRecord) -> Ints:
        return record.spread(record.batches.decode_ns)


def served(
    trace: Trace, policy: StaticBatching, executor: Took | Simulated, max_kv_tokens: int | None = None
) -> RunRecord:
    return serve(trace, policy, executor, setup={"policy": policy.to_json()}, max_kv_tokens=max_kv_tokens)


def test_three_batches_by_hand() -> None:
    """Two rows, wait 20 ms; K1 says 20 + 10 ms for two rows of 10 + 2 tokens, 10 + 10 ms for one; measured 50 ms.

    measured: {0, 1} at 0, {2, 3} at 50, {4, 5} at 100.
    chained:  {0, 1} at 0, {2, 3} ready at 30, {4, 5} ready at 90.
    free:     {0, 1} at 0, {2, 3} at 30, {4} by timer at 80, {5} by timer at 110.
    """
    trace = trace_of([t * MS for t in (0, 0, 25, 30, 60, 90)], 10, 2)
    policy = StaticBatching(2, 20 * MS)
    measured = served(trace, policy, Took([(5 * MS, 30 * MS, 10 * MS, 5 * MS)]))
    simulated = served(trace, policy, Simulated(trace, K1))
    assert measured.batches.start_ns.tolist() == [0, 50 * MS, 100 * MS]
    assert simulated.batches.start_ns.tolist() == [0, 30 * MS, 80 * MS, 110 * MS]
    found = split(measured, simulated, Prices.for_trace(trace, K1))
    by_hand = {
        # Sums over the six requests, ms: measured, cost, queueing, formation, simulated.
        "queue": (95, 0, 35 - 95, 45 - 35, 45),
        "ttft": (305, 215 - 305, 155 - 215, 145 - 155, 145),
        "e2e_batch": (395, 275 - 395, 215 - 275, 205 - 215, 205),
    }
    assert set(found) == set(QUANTITIES)
    for name, sums in by_hand.items():
        terms = list(vars(found[name]).values())
        assert terms == pytest.approx([total / 6 / 1e3 for total in sums], abs=1e-12), name


def test_a_batch_closed_by_timer_is_ready_when_the_timer_ends() -> None:
    trace = trace_of([0, 40 * MS], 10, 2)
    policy = StaticBatching(2, 20 * MS)
    measured = served(trace, policy, Took([(0, 50 * MS, 0, 0)]))
    assert measured.batches.start_ns.tolist() == [20 * MS, 70 * MS]
    found = split(measured, served(trace, policy, Simulated(trace, K1)), Prices.for_trace(trace, K1))
    # With 20 ms a batch the second still waits for its timer, until 60: 10 ms less for one of two.
    assert found["queue"].queueing_s == pytest.approx(-5e-3)
    assert found["queue"].formation_s == 0


def test_a_batch_closed_by_memory_is_ready_when_the_next_request_no_longer_fits() -> None:
    trace = trace_of([0, 7 * MS, 9 * MS], 10, 2)
    record = served(trace, StaticBatching(3), Simulated(trace, K1), max_kv_tokens=12)
    assert record.batches.closed_by.tolist()[:2] == [MEMORY, MEMORY]
    assert record.batches.start_ns.tolist()[0] == 7 * MS
    for one in split(record, record, Prices.for_trace(trace, K1)).values():
        assert one.cost_s == one.queueing_s == one.formation_s == 0


def test_the_stream_ends_with_the_last_request_that_was_let_in() -> None:
    trace = trace_of([0, 50 * MS], [10, 90], 2)
    record = served(trace, StaticBatching(2), Simulated(trace, K1), max_kv_tokens=12)
    assert record.batches.closed_by.tolist() == [END]
    assert record.batches.start_ns.tolist() == [0]
    for one in split(record, record, Prices.for_trace(trace, K1)).values():
        assert one.cost_s == one.queueing_s == one.formation_s == 0


def test_requests_that_completed_on_one_side_only_are_left_out_on_both() -> None:
    trace = trace_of([0, 0, 0], [10, 10, 30], 2)
    policy = StaticBatching(1)
    measured = served(trace, policy, Took([(0, 10 * MS, 10 * MS, 0)]), max_kv_tokens=20)
    simulated = served(trace, policy, Simulated(trace, K1))
    assert measured.count(0) == 2
    found = split(measured, simulated, Prices.for_trace(trace, K1))
    # The first two run as modelled on both sides; the third, rejected on one, shows nowhere.
    assert found["ttft"] == Split(0.02, 0.0, 0.0, 0.0, 0.02)
    nothing = served(trace, policy, Took([(0, MS, 0, 0)]), max_kv_tokens=1)
    assert split(nothing, simulated, Prices.for_trace(trace, K1)) == {}


PARTS_MS = st.tuples(st.integers(0, 5), st.integers(1, 60), st.integers(0, 60), st.integers(0, 5))


@given(CASES, st.lists(PARTS_MS, min_size=1, max_size=4), st.integers(1, 6))
def test_the_terms_add_up_whatever_was_measured(
    case: Case, parts: list[tuple[int, int, int, int]], other_batch: int
) -> None:
    policy = StaticBatching(case.max_batch, case.max_wait_ns)
    ns = [(a * MS, b * MS, c * MS, d * MS) for a, b, c, d in parts]
    measured = served(case.trace, policy, Took(ns, case.rounding), case.max_kv_tokens)
    free = StaticBatching(other_batch, case.max_wait_ns)
    prices = Prices.for_trace(case.trace, case.model, case.rounding)
    simulated = served(case.trace, free, Simulated(case.trace, case.model, case.rounding), None)
    found = split(measured, simulated, prices)
    assert bool(found) == bool(measured.count(0))
    done = measured.rows.request
    for name, one in found.items():
        total = one.cost_s + one.queueing_s + one.formation_s
        assert total == pytest.approx(one.simulated_s - one.measured_s, rel=1e-9, abs=1e-9), name
    if found:
        # The ends of the sum are the means of the two records, over what both completed.
        arrival = case.trace.arrival_ns
        start = np.zeros(len(arrival), np.int64)
        for side, mean_s in ((measured, found["queue"].measured_s), (simulated, found["queue"].simulated_s)):
            start[side.rows.request] = side.spread(side.batches.start_ns)
            assert mean_s == pytest.approx(np.mean((start - arrival)[done]) / 1e9, abs=1e-9)


@given(CASES)
def test_a_simulation_has_no_error_against_itself(case: Case) -> None:
    policy = StaticBatching(case.max_batch, case.max_wait_ns)
    executor = Simulated(case.trace, case.model, case.rounding)
    record = served(case.trace, policy, executor, case.max_kv_tokens)
    for one in split(record, record, Prices.for_trace(case.trace, case.model, case.rounding)).values():
        assert (one.cost_s, one.queueing_s, one.formation_s) == (0, 0, 0)
        assert one.simulated_s == one.measured_s


def test_the_mean_of_splits_is_a_split() -> None:
    mean = mean_split([Split(1.0, 0.5, 0.25, 0.25, 2.0), Split(3.0, -0.5, 0.0, -0.5, 2.0)])
    assert mean == Split(2.0, 0.0, 0.125, -0.125, 2.0)
    assert mean.to_json()["queueing_s"] == 0.125
