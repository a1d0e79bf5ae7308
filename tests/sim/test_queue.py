"""The queue against a plain list, and policies that ask for what they may not have."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.batching import Batching
from sim.policy import LONGEST_WAIT_NS, StaticBatching, Take, Wait
from sim.queue import MemoryLimit, Queue, Waiting
from sim.record import FULL
from sim.server import serve
from tests.sim.worked import MS, S, Scripted, members, trace_of, traces
from traces.errors import InputError
from traces.trace import Trace


@settings(max_examples=200, deadline=None)
@given(traces(), st.sampled_from([None, 19, 40]), st.randoms(use_true_random=False))
def test_a_queue_is_a_list_of_what_has_come_and_not_been_taken(
    trace: Trace, cap: int | None, random: Any
) -> None:
    limit = None if cap is None else MemoryLimit(trace, cap)
    queue = Queue(trace.arrival_ns, trace.prompt_tokens, limit)
    arrivals = trace.arrival_ns.tolist()
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    taken: set[int] = set()
    for now in sorted({*arrivals, arrivals[-1] + 1}):
        queue.admit(now)
        while True:
            waiting = [i for i, at in enumerate(arrivals) if at <= now and i not in taken]
            assert len(queue) == len(waiting)
            assert queue.ended == (now >= arrivals[-1])
            if not waiting:
                break
            assert queue.oldest_arrival_ns == arrivals[waiting[0]]
            assert queue.prompt_tokens().tolist() == [prompts[i] for i in waiting]
            size = random.randint(1, len(waiting))
            fitting = 0
            for rows in range(1, size + 1):
                longest = max(prompts[i] for i in waiting[:rows]) + max(outputs[i] for i in waiting[:rows])
                if cap is not None and rows * longest > cap:
                    break
                fitting = rows
            assert queue.fitting(size) == fitting
            if not queue.ended:
                assert queue.next_arrival_ns == min(at for at in arrivals if at > now)
            if random.random() < 0.3:
                break
            some = sorted(random.sample(range(len(waiting)), size)) if random.random() < 0.5 else size
            wanted = waiting[:some] if isinstance(some, int) else [waiting[i] for i in some]
            assert list(queue.take(some)) == wanted
            taken |= set(wanted)


@settings(max_examples=200, deadline=None)
@given(traces(), st.sampled_from([None, 19, 40]), st.integers(1, 20), st.integers(0, 13))
def test_it_wakes_when_so_many_wait_or_the_next_no_longer_fits_or_the_stream_ends(
    trace: Trace, cap: int | None, wanted: int, first: int
) -> None:
    queue = Queue(trace.arrival_ns, trace.prompt_tokens, None if cap is None else MemoryLimit(trace, cap))
    arrivals = trace.arrival_ns.tolist()
    now = arrivals[min(first, len(arrivals) - 1)]
    queue.admit(now)
    if queue.ended:
        assert queue.wake_ns(wanted) is None
        return
    for at in sorted({at for at in arrivals if at > now}):
        later = Queue(trace.arrival_ns, trace.prompt_tokens, None if cap is None else MemoryLimit(trace, cap))
        later.admit(at)
        if len(later) >= wanted or later.ended or later.fitting(min(wanted, len(later))) < len(later):
            assert queue.wake_ns(wanted) == at
            return
    raise AssertionError("the stream never ended")


@dataclass(frozen=True)
class Greedy:
    """Answers whatever it was told to."""

    answer: Any

    def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
        return self.answer if isinstance(self.answer, Wait) else Take(self.answer, FULL)

    def to_json(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("rows", [0, -1, 3, [], [0, 0], [1, 0], [2], [-1]])
def test_a_policy_cannot_take_nothing_or_twice_or_what_has_not_come(rows: Any) -> None:
    trace = trace_of([0, 0, MS, MS])
    with pytest.raises(ValueError, match=f"takes .*{re.escape(str(rows))} of 2 waiting"):
        serve(trace, Greedy(rows), Scripted(lambda requests: 1))


def test_a_policy_that_waits_for_ever_is_found_out() -> None:
    with pytest.raises(RuntimeError, match="neither of which will come"):
        serve(trace_of([0, MS]), Greedy(Wait(None, 9)), Scripted(lambda requests: 1))
    with pytest.raises(RuntimeError, match="neither of which will come"):
        serve(trace_of([0, MS]), Greedy(Wait(0, 9)), Scripted(lambda requests: 1))


def test_requests_that_are_passed_over_stay_in_order_and_are_served_at_last() -> None:
    class LastFirst(Greedy):
        def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
            return Take([len(queue) - 1], FULL)

    record = serve(trace_of([0, 0, 0, 5 * MS]), LastFirst(None), Scripted(lambda requests: 3 * MS))
    assert members(record) == [[2], [1], [3], [0]]


@pytest.mark.parametrize("wait_ns", [-1, LONGEST_WAIT_NS + 1, 10**40])
def test_waits_that_no_clock_can_hold_are_refused(wait_ns: int) -> None:
    with pytest.raises(InputError, match=r"max_wait .* s must be from 0 to"):
        StaticBatching(4, wait_ns)


def test_the_longest_wait_after_an_epoch_clock_still_fits() -> None:
    record = serve(
        trace_of([1_787_000_000 * S]), StaticBatching(4, LONGEST_WAIT_NS), Scripted(lambda requests: 10 * S)
    )
    assert record.makespan_ns == LONGEST_WAIT_NS + 10 * S
    with pytest.raises(InputError, match="max_batch 0"):
        StaticBatching(0)


def test_at_once_is_file_order_and_moves_guesses_and_prompt_ids_along() -> None:
    trace = Trace(
        name="moved",
        arrival_ns=np.array([0, 5, 9]),
        prompt_tokens=np.array([1, 3, 2]),
        output_tokens=np.array([4, 5, 6]),
        source_row=np.array([2, 0, 1]),
        predicted_output_tokens=np.array([40, 50, 60]),
        prompt_ids=np.array([7, 80, 81, 82, 90, 91], np.int32),
        moved_rows=2,
    )
    served = Batching(4, None, at_once=True).apply(trace)
    assert served.source_row.tolist() == [0, 1, 2]
    assert served.prompt_tokens.tolist() == [3, 2, 1]
    assert served.output_tokens.tolist() == [5, 6, 4]
    assert served.predicted_output_tokens is not None
    assert served.predicted_output_tokens.tolist() == [50, 60, 40]
    assert served.prompt_ids is not None
    assert served.prompt_ids.tolist() == [80, 81, 82, 90, 91, 7]
    assert served.arrival_ns.tolist() == [0, 0, 0]
    assert not served.timed
    assert Batching(4).apply(trace) is trace


def test_at_once_switches_the_timer_off() -> None:
    assert Batching(4, 0.5, at_once=True).policy() == StaticBatching(4, None)
    assert Batching(4, 0.5).policy() == StaticBatching(4, 500 * MS)
    assert Batching(4, 0.0).policy() == StaticBatching(4, 0)
    assert Batching(4).policy() == StaticBatching(4, None)
