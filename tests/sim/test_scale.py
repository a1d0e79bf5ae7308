"""What grows with the length of a trace, and what does not: events, exactness, memory."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import simpy

from sim.metrics import latency
from sim.policy import StaticBatching
from sim.pricing import Prices
from sim.run import results
from sim.server import serve
from tests.sim.worked import K1, MS, S, Scripted, run, trace_of
from traces.errors import InputError
from traces.load import load


class Counting(simpy.Environment):
    """Remembers itself and counts its events."""

    last: "Counting"
    events = 0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        Counting.last = self

    def step(self) -> None:
        super().step()  # raises when nothing is left
        self.events += 1


@pytest.mark.parametrize("max_wait_ns", [None, 0, 10 * MS])
def test_one_event_a_batch_and_none_left_behind(
    max_wait_ns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrivals at 103, 156, 209, 262 and 315 ms against a timer of 10 ms: all served, no timer lives on."""
    monkeypatch.setattr("sim.server.simpy.Environment", Counting)
    record = run(trace_of([t * MS for t in (103, 156, 209, 262, 315)]), 8, max_wait_ns)
    assert len(record.rows.request) == 5
    assert Counting.last.events == len(record.batch_rows) + 2  # the process begins, and ends
    assert Counting.last.peek() == float("inf")


def test_steps_do_not_make_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.server.simpy.Environment", Counting)
    run(trace_of([0] * 4, 1, 100_000), 4)
    assert Counting.last.events == 3


def test_a_hundred_thousand_milliseconds_are_a_hundred_seconds() -> None:
    n = 100_000
    record = serve(trace_of([MS * i for i in range(n)]), StaticBatching(1), Scripted(lambda batch: MS))
    assert record.end_ns.tolist() == [MS * (i + 1) for i in range(n)]
    assert record.makespan_ns == 100 * S


def test_the_last_arrival_at_a_horizon_is_served() -> None:
    record = run(trace_of([0, 10 * S]), 1)
    assert record.batches.start_ns.tolist() == [0, 10 * S]


@pytest.mark.parametrize("seconds", [-1e-9, 0.0, float("nan"), float("inf")])
def test_a_cost_that_is_none_names_model_and_shape_before_the_clock_sees_it(seconds: float) -> None:
    class Broken:
        name = "extrapolated"
        batch_overhead_s = (0.0, 0.0)

        def seconds(self, steps: Any) -> Any:
            return np.where(steps.decode_kv_tokens == 18, seconds, 1e-3)

        def outside(self, steps: Any) -> None:
            return None

        def to_json(self) -> dict[str, Any]:
            return {}

    with pytest.raises(
        InputError, match=r"extrapolated gives .* for a pass of .*decode_rows=2 .*decode_kv_tokens=18"
    ):
        run(trace_of([0, 0], 5, 9), 2, model=Broken())


def test_memory_grows_with_requests_and_not_with_steps() -> None:
    def peak_bytes(requests: int, output: int) -> int:
        recipe = f"poisson:rate=1000,n={requests},prompt=uniform:1:64,output={output},seed=1"
        trace = load(recipe)
        tracemalloc.start()
        record = run(trace, 8, 5 * MS)
        results(record, Prices.for_trace(trace, K1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    few, many, long = peak_bytes(20_000, 8), peak_bytes(80_000, 8), peak_bytes(20_000, 800)
    assert many < 4.4 * few
    tables = 9 * (64 + 800) * 8 * 4  # prices of up to 9 row counts, in the executor and in the metrics
    assert long < 1.2 * few + tables
    assert few < 20_000 * 1000


def test_a_long_run_is_the_short_ones_it_is_made_of() -> None:
    """A quiet minute between copies of a trace: every copy is served as the first."""
    one = load("gamma:rate=50,n=300,cv=3,prompt=uniform:1:64,output=uniform:1:40,seed=2")
    gap = int(one.arrival_ns[-1]) + 60 * S
    arrivals = np.concatenate([one.arrival_ns - one.arrival_ns[0] + i * gap for i in range(5)])
    prompts, outputs = (np.tile(c, 5).tolist() for c in (one.prompt_tokens, one.output_tokens))
    many = run(trace_of(arrivals.tolist(), prompts, outputs), 8, 20 * MS)
    alone = run(
        trace_of((one.arrival_ns - one.arrival_ns[0]).tolist(), prompts[:300], outputs[:300]), 8, 20 * MS
    )
    starts, ends = many.batches.start_ns, many.end_ns
    batches = len(alone.batch_rows)
    assert len(starts) == 5 * batches
    for i in range(5):
        part = slice(i * batches, (i + 1) * batches)
        assert np.array_equal(starts[part] - i * gap, alone.batches.start_ns)
        assert np.array_equal(ends[part] - i * gap, alone.end_ns)
    prices = Prices(K1, 64, 128)
    assert latency(many, prices)["e2e"]["mean"] == pytest.approx(
        latency(alone, prices)["e2e"]["mean"], abs=2e-9
    )
