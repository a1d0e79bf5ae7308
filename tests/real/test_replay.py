"""A measured run: the simulator's server over the engine, under the same policy, with its conditions."""

from typing import Any, cast

import numpy as np
import pytest

from real.engine import Engine
from real.replay import replay
from sim.batching import Batching
from sim.hardware import hardware
from sim.record import COMPLETED, REJECTED, UNFINISHED, RunRecord, broken_laws
from sim.roofline import Roofline
from sim.run import simulate
from sim.step import Rounding
from sim.versus import formed_identically
from tests.real.conftest import TINY, trace_of
from tests.real.fake import AFTER_NS, BEFORE_NS, FakeEngine, decode_ns, fake, prefill_ns
from tests.sim.worked import MS
from tests.sim.worked import trace_of as arrivals
from traces.errors import InputError
from traces.trace import Trace

TEXTBOOK = trace_of([10, 30, 5, 20], [15, 10, 20, 12])
ABOUT = {"model": "tiny", "hardware": "none", "clock": "of the conditions"}


def run(trace: Trace, batching: Batching, engine: Engine, **how: Any) -> RunRecord:
    return replay(trace, batching, engine, about=ABOUT, clock="cpu", **how)


def test_the_textbook_batch_takes_what_its_passes_take() -> None:
    record = run(TEXTBOOK, Batching(4), fake())
    assert broken_laws(record) == []
    steps = [prefill_ns(4, 30), *(decode_ns(4, 30 + k) for k in range(1, 20))]
    assert record.end_ns.tolist() == [BEFORE_NS + sum(steps) + AFTER_NS]
    assert record.measured is not None
    assert record.measured.step_wall_ns.tolist() == steps
    ends = np.cumsum(steps) + BEFORE_NS
    assert record.rows.last_token_ns.tolist() == [ends[n - 1] for n in (15, 10, 20, 12)]


def test_batches_are_those_of_a_simulation_with_the_same_times() -> None:
    """The engine is timed by a line; so is the simulation here, and both form the same batches."""
    trace = arrivals([t * MS for t in (0, 1, 2, 8, 9, 40, 41, 42, 43, 90)], 7, [3, 9, 2, 4, 1, 5, 6, 2, 3, 1])

    class Line(Roofline):
        batch_overhead_s = (BEFORE_NS / 1e9, AFTER_NS / 1e9)

        def seconds(self, steps: Any) -> Any:
            rows = np.maximum(steps.decode_rows, steps.logit_rows)
            prefill = 1e-3 + 2e-4 * rows + 1e-5 * steps.prefill_tokens
            decode = 2e-3 + 5e-5 * rows + 1e-6 * steps.decode_kv_tokens
            return np.where(steps.prefill_tokens > 0, prefill, decode)

    line = Line(TINY, hardware("cpu"), "float32")
    for batching in (Batching(3, 5e-3), Batching(3), Batching(2, 0.0), Batching(4, at_once=True)):
        both = [simulate(trace, batching, line), run(trace, batching, fake())]
        assert formed_identically(both)
        assert both[0].end_ns.tolist() == both[1].end_ns.tolist()
        assert both[0].rows.last_token_ns.tolist() == both[1].rows.last_token_ns.tolist()
        assert both[0].setup["trace"] == both[1].setup["trace"]
        assert both[0].setup["policy"] == both[1].setup["policy"]


def test_the_record_says_under_which_conditions() -> None:
    setup = run(TEXTBOOK, Batching(2, 0.5), fake(), seed=3).setup
    assert setup["kind"] == "measured"
    assert (setup["model"], setup["hardware"], setup["seed"]) == ("tiny", "none", 3)
    assert setup["clock"] == "cpu"
    assert setup["timeline"] == "skip-idle"
    assert setup["policy"] == {"kind": "static", "max_batch": 2, "max_wait_s": 0.5}
    assert setup["rounding"] == {"row_counts": [], "context_tokens": 1}
    assert setup["warm_ups"] == 1


def test_every_shape_is_warmed_up_once_and_counted_where_it_was() -> None:
    warmed: set[tuple[int, int]] = set()
    engine = FakeEngine()
    first, again, more = (
        run(TEXTBOOK, batching, engine, warmed=warmed)  # type: ignore[arg-type]
        for batching in (Batching(2), Batching(2), Batching(1))
    )
    assert [one.setup["warm_ups"] for one in (first, again, more)] == [1, 0, 4 - 1]
    # Warm-ups are batches of three tokens; none of them is in a record.
    assert engine.shapes[:3] == [(2, 30, 3), (2, 30, 15), (2, 20, 20)]
    assert len(engine.shapes) == 1 + 2 + 2 + 3 + 4


def test_dummy_rows_and_the_memory_cap_reach_the_engine_and_the_record() -> None:
    engine = FakeEngine()
    rounding = Rounding((1, 3, 8))
    record = run(TEXTBOOK, Batching(4), engine, rounding=rounding, max_kv_tokens=120)  # type: ignore[arg-type]
    assert record.requests.status.tolist() == [COMPLETED] * 4
    # Two rows and a dummy reserve 3 x (30 + 15) = 135, 3 x (30 + 20) = 150 and 3 x (20 + 20) = 120 tokens.
    assert record.batch_rows.tolist() == [1, 1, 2]
    assert record.batches.dummy_rows.tolist() == [0, 0, 1]
    assert {rows for rows, _, _ in engine.shapes} == {1, 3}
    rejected = run(TEXTBOOK, Batching(4), fake(), max_kv_tokens=32)
    assert rejected.requests.status.tolist() == [COMPLETED, REJECTED, COMPLETED, COMPLETED]


def test_everything_rejected_is_a_record_too() -> None:
    record = run(TEXTBOOK, Batching(4), fake(), max_kv_tokens=1)
    assert record.count(REJECTED) == 4
    assert record.makespan_ns == 0
    assert record.measured is None


def test_a_batch_without_memory_fails_and_the_others_go_on() -> None:
    trace = trace_of([10, 30, 5, 20, 7], [15, 10, 20, 12, 3])
    record = run(trace, Batching(4), fake(most_rows=3))
    assert record.requests.status.tolist() == [UNFINISHED] * 4 + [COMPLETED]
    assert record.measured is not None
    assert record.measured.failed == {0: "out of memory: 4 rows x (30 + 20) tokens"}


def test_ctrl_c_keeps_the_batches_that_returned() -> None:
    # Warm-up and batch, twice, then the third batch of a shape that is warm.
    trace = trace_of([10, 30, 5, 20, 7, 8], [2, 2, 2, 2, 2, 2])
    record = run(trace, Batching(2), fake(interrupt_at=3))
    assert record.setup["interrupted"]
    assert broken_laws(record) == []
    assert 0 < record.count(COMPLETED) < 6


def test_the_serial_engine_takes_one_request_at_a_time() -> None:
    with pytest.raises(InputError, match="serial takes batches of 1 row, not of 4; give --max-batch 1"):
        run(TEXTBOOK, Batching(4), fake(name="serial"))
    assert run(TEXTBOOK, Batching(1), fake(name="serial")).batch_rows.tolist() == [1, 1, 1, 1]


def test_progress_counts_requests() -> None:
    told: list[int] = []
    run(TEXTBOOK, Batching(3), fake(), progress=told.append)
    assert told == [3, 4]


def test_the_real_engine(model: Any) -> None:
    record = run(TEXTBOOK, Batching(4), Engine(model))
    assert broken_laws(record) == []
    assert record.measured is not None
    assert record.measured.step_cpu_ns is not None
    assert len(record.measured.step_cpu_ns) == 20
    assert record.batches.prefill_ns[0] == record.measured.step_cpu_ns[0]
    assert record.batches.decode_ns[0] == record.measured.step_cpu_ns[1:].sum()


def test_in_real_time_all_shapes_are_warm_before_the_first_request() -> None:
    engine = fake()
    trace = arrivals([0, 1 * MS, 30 * MS], [3, 5, 20], [2, 2, 2])
    record = run(trace, Batching(2, 1e-3), engine, wall_clock=True)
    ran = [shape[:2] for shape in cast(FakeEngine, engine).shapes]
    served = zip(record.batch_rows.tolist(), record.padded_prompt_tokens.tolist(), strict=True)
    # One or two rows, prompts of up to 3, 5 and 20 tokens: one of each power of two.
    warm = ran[: record.setup["warm_ups"]]
    assert set(warm) == {(rows, prompt) for rows in (1, 2) for prompt in (3, 5, 20)}
    assert ran[len(warm) :] == list(served)


def test_nothing_is_warmed_up_that_the_memory_cap_never_lets_run() -> None:
    engine = fake()
    trace = arrivals([0, 1 * MS, 30 * MS], [3, 5, 20], [2, 2, 2])
    record = run(trace, Batching(2, 1e-3), engine, wall_clock=True, max_kv_tokens=22)
    warm = [shape[:2] for shape in cast(FakeEngine, engine).shapes][: record.setup["warm_ups"]]
    assert set(warm) == {(1, 3), (1, 5), (1, 20), (2, 3), (2, 5)}
