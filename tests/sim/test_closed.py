"""A closed loop: clients that send their next request when the last one has returned."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.__main__ import app
from sim.batching import Batching
from sim.executor import Simulated
from sim.policy import StaticBatching
from sim.record import COMPLETED, REJECTED, RunRecord, broken_laws
from sim.report import notes
from sim.run import prices_of, results, simulate
from sim.server import serve
from sim.step import Step
from sim.store import load as load_record
from sim.store import save
from traces.errors import InputError
from traces.load import load
from traces.terminal import exit_code
from traces.trace import Floats

S = 10**9
ONE = "prompt=constant:1,output=constant:1"


class Second:
    """A batch takes a second, whatever is in it."""

    name = "second"
    batch_overhead_s = (0.0, 0.0)

    def seconds(self, steps: Step) -> Floats:
        return np.ones(len(steps))

    def outside(self, steps: Step) -> None:
        return None

    def to_json(self) -> dict[str, object]:
        return {"kind": "second"}


def closed(recipe: str, max_batch: int, max_wait_s: float | None = None) -> RunRecord:
    trace = load(recipe)
    policy = Batching(max_batch, max_wait_s).policy()
    return serve(trace, policy, Simulated(trace, Second()))


def test_one_client_waits_out_the_timer_before_every_request() -> None:
    # Three requests, each sent when the one before returns: 100 s of timer and 1 s of work, three times.
    record = closed(f"closed:clients=1,n=3,{ONE}", 8, 100.0)
    assert record.batch_rows.tolist() == [1, 1, 1]
    assert record.requests.arrival_ns.tolist() == [0, 101 * S, 202 * S]
    assert record.batches.start_ns.tolist() == [100 * S, 201 * S, 302 * S]
    assert record.makespan_ns == 303 * S


def test_without_think_time_full_batches_follow_each_other() -> None:
    record = closed(f"closed:clients=4,n=10,{ONE}", 4, 5.0)
    assert record.batch_rows.tolist() == [4, 4, 2]
    # The last two clients cannot know that nobody else will come: they wait their timer out.
    assert record.batches.start_ns.tolist() == [0, 1 * S, 2 * S + 5 * S]
    assert record.requests.arrival_ns.tolist() == [0] * 4 + [1 * S] * 4 + [2 * S] * 2


def test_more_clients_than_rows_queue_up() -> None:
    record = closed(f"closed:clients=3,n=6,{ONE}", 2)
    # 0 s: two of three start. 1 s: their next two join the one left; 2 s likewise.
    assert record.batch_rows.tolist() == [2, 2, 2]
    assert record.batches.start_ns.tolist() == [0, 1 * S, 2 * S]
    assert record.requests.arrival_ns.tolist() == [0, 0, 0, 1 * S, 1 * S, 2 * S]


def test_a_batch_that_never_fills_is_one_line_not_a_hang(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="closed loop of 3 clients never has 4 requests waiting"):
        closed(f"closed:clients=3,n=9,{ONE}", 4)
    assert exit_code(app, "sim", ["run", f"closed:clients=3,n=9,{ONE}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_too_few_clients_are_named_in_the_notes() -> None:
    trace, batching = load(f"closed:clients=3,n=9,{ONE}"), Batching(4, 0.5)
    record = simulate(trace, batching, Second())
    found = results(record, prices_of(record, Second()))
    assert any("3 clients never fill 4 rows" in line for line in notes(found))


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(1, 9),
    requests=st.integers(1, 40),
    think=st.sampled_from([0.0, 0.3, 5.0]),
    rows=st.integers(1, 6),
    wait=st.sampled_from([0.0, 0.5, 3.0]),
    seed=st.integers(0, 9),
)
def test_never_more_in_flight_than_clients_and_all_laws_hold(
    clients: int, requests: int, think: float, rows: int, wait: float, seed: int
) -> None:
    recipe = f"closed:clients={clients},n={requests},think={think},prompt=uniform:1:9,output=uniform:1:9,seed={seed}"
    record = closed(recipe, rows, wait)
    assert broken_laws(record) == []
    assert record.count(COMPLETED) == requests
    arrival = record.requests.arrival_ns
    returned = np.zeros(requests, np.int64)
    returned[record.rows.request] = record.spread(record.end_ns)
    assert np.all(np.diff(arrival) >= 0)
    for at in np.unique(arrival):
        # At the very moment of a return the client may already send again.
        assert np.count_nonzero((arrival <= at) & (returned > at)) <= clients
    again = closed(recipe, rows, wait)
    assert np.array_equal(again.end_ns, record.end_ns)


def test_think_times_are_exponential_with_their_mean() -> None:
    record = closed(f"closed:clients=1,n=4000,think=2,{ONE},seed=3", 1)
    thought = (record.requests.arrival_ns[1:] - record.end_ns[:-1]) / S
    assert abs(thought.mean() - 2) < 0.12  # four standard errors
    assert abs(thought.std() - 2) < 0.25


def test_a_request_that_never_fits_is_rejected_and_the_loop_goes_on() -> None:
    trace = replace(load(f"closed:clients=2,n=6,{ONE}"), prompt_tokens=np.array([1, 1, 99, 1, 1, 1]))
    record = serve(trace, StaticBatching(2), Simulated(trace, Second()), max_kv_tokens=10)
    assert record.requests.status.tolist().count(REJECTED) == 1
    assert record.count(COMPLETED) == 5
    assert broken_laws(record) == []


def test_its_record_is_saved_and_loaded(tmp_path: Path) -> None:
    record = closed(f"closed:clients=2,n=7,think=0.5,{ONE}", 2, 1.0)
    save(record, tmp_path / "r")
    assert np.array_equal(load_record(tmp_path / "r").requests.arrival_ns, record.requests.arrival_ns)


def test_at_once_is_offline_work_without_clients() -> None:
    trace = load(f"closed:clients=2,n=7,{ONE}")
    assert Batching(4, at_once=True).apply(trace).closed_loop is None
    assert simulate(trace, Batching(4, at_once=True), Second()).batch_rows.tolist() == [4, 3]


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (f"closed:n=3,{ONE}", "clients missing"),
        (f"closed:clients=0,n=3,{ONE}", "clients=0"),
        (f"closed:clients=2,n=3,think=-1,{ONE}", "think=-1"),
        (f"closed:clients=2,n=3,think=nan,{ONE}", "think=nan"),
        (f"closed:clients=2,n=3,rate=4,{ONE}", "'rate' is not known"),
    ],
)
def test_impossible_loops_are_refused(recipe: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(recipe)
