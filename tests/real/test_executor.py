"""The executor that measures: what it reports, what it leaves out of the time, and what it survives."""

from typing import Any

import numpy as np
import pytest
import torch

from real.engine import Engine
from real.executor import Measured, batch_times
from real.prompts import prompt_ids
from real.timing import Timeline
from sim.executor import MeasuredBatch
from sim.policy import StaticBatching
from sim.record import UNFINISHED, broken_laws
from sim.server import serve
from sim.step import Rounding
from tests.real.conftest import TINY, Answer, Passes, trace_of
from traces.errors import InputError
from traces.slots import consecutive, padded_slots

TEXTBOOK = trace_of([10, 30, 5, 20], [15, 10, 20, 12])


def measured_of(executor: Measured, requests: Any) -> MeasuredBatch:
    measured = executor.run(requests).measured
    assert measured is not None
    return measured


def test_the_textbook_batch(model: Any, alone: Answer) -> None:
    executor = Measured(TEXTBOOK, Engine(model), seed=3, warm_up=False, keep_tokens=True)
    with Passes(model) as passes:
        measured = measured_of(executor, range(4))
    assert passes.ids[0].numel() == 120
    assert len(passes.ids) == 1 + 19 == len(measured.step_wall_ns)
    computed = sum(shape[0] for shape in passes.head_shapes)
    slots = padded_slots(TEXTBOOK.output_tokens, consecutive(4, 4))
    assert computed == slots.slots == 80
    assert slots.useful == 57
    assert slots.wasted == 23
    assert executor.tokens is not None
    assert sum(len(answer) for answer in executor.tokens.values()) == slots.useful
    for i in range(4):
        prompt = prompt_ids(3, i, int(TEXTBOOK.prompt_tokens[i]), TINY.vocab_size)
        assert executor.tokens[i].tolist() == alone(prompt, int(TEXTBOOK.output_tokens[i]))


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_the_parts_are_the_steps_of_the_driving_clock(model: Any, clock: Any) -> None:
    times = Measured(TEXTBOOK, Engine(model), clock=clock).run([0, 2])
    assert times.measured is not None
    steps = times.measured.step_cpu_ns if clock == "cpu" else times.measured.step_wall_ns
    assert steps is not None
    assert times.prefill_ns == steps[0]
    assert times.decode_ns == steps[1:].sum()
    assert min(times[:4]) > 0
    assert times.measured.peak_memory_bytes is None
    assert times.measured.failed is None


def test_the_parts_of_a_batch_add_up_to_it() -> None:
    timeline = Timeline(5, np.array([100, 20, 30]), 7)
    assert batch_times(timeline)[:4] == (5, 100, 50, 7)
    assert sum(batch_times(timeline)[:4]) == timeline.total_ns == 162
    assert sum(batch_times(Timeline(0, np.array([0]), 0))[:4]) == 1


def test_batching_changes_no_answer(model: Any) -> None:
    """Prompts follow seed and source row, so any cut of a trace into batches gives the same tokens."""
    trace = trace_of([3, 20, 1, 7, 33, 12], [4, 1, 9, 6, 2, 5])
    answers = []
    cuts = {
        "serial": [[i] for i in range(6)],
        "padded": [[0, 3], [1, 2, 4, 5]],
        "rowwise": [[0, 1, 2, 3, 4, 5]],
    }
    for engine, batches in cuts.items():
        executor = Measured(trace, Engine(model, engine), seed=7, keep_tokens=True)
        for batch in batches:
            executor.run(batch)
        assert executor.tokens is not None
        answers.append({i: answer.tolist() for i, answer in executor.tokens.items()})
    assert answers[0] == answers[1] == answers[2]
    assert [len(answers[0][i]) for i in range(6)] == trace.output_tokens.tolist()


def test_warm_up_runs_each_shape_once_and_is_counted_not_timed(model: Any) -> None:
    trace = trace_of([40, 33, 40, 9], [5, 5, 5, 5])
    executor = Measured(trace, Engine(model))
    with Passes(model) as passes:
        lengths = [len(measured_of(executor, [i]).step_wall_ns) for i in range(4)]
    assert lengths == [5] * 4
    # 40 and 33 share a bucket, 9 is another.
    assert executor.warm_ups == 2
    warm_up = 3
    assert len(passes.ids) == 4 * 5 + 2 * warm_up
    assert passes.ids[0].shape == passes.ids[warm_up].shape == (1, 40)
    cold = Measured(trace, Engine(model), warm_up=False)
    cold.run([0])
    assert cold.warm_ups == 0


def test_dummy_rows_are_computed_and_belong_to_nobody(model: Any) -> None:
    rounding = Rounding(row_counts=(2, 8))
    padded_up = Measured(TEXTBOOK, Engine(model), rounding=rounding, warm_up=False, keep_tokens=True)
    plain = Measured(TEXTBOOK, Engine(model), warm_up=False, keep_tokens=True)
    with Passes(model) as passes:
        padded_up.run(range(3))
    plain.run(range(3))
    assert passes.ids[0].shape == (8, 30)
    assert padded_up.tokens is not None
    assert plain.tokens is not None
    assert sorted(padded_up.tokens) == [0, 1, 2]
    assert all(np.array_equal(padded_up.tokens[i], plain.tokens[i]) for i in range(3))


def test_no_memory_for_the_cache_is_an_outcome(model: Any) -> None:
    """A real refusal: the cache of 10^13 tokens a row is more than any machine has."""
    trace = trace_of([2048, 5, 7], [10**13, 3, 3])
    executor = Measured(trace, Engine(model))
    times = executor.run([0, 1])
    assert times.measured is not None
    assert times.measured.failed == "out of memory: 2 rows x (2048 + 10000000000000) tokens"
    assert len(times.measured.step_wall_ns) == 0
    assert sum(times[:4]) > 0
    assert measured_of(executor, [2]).failed is None


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "python"],
)
def test_running_out_in_the_middle_frees_memory_and_the_next_batch_runs(model: Any, error: Exception) -> None:
    engine = Engine(model)
    executor = Measured(TEXTBOOK, engine, warm_up=False)
    calls = 0

    def fail_at_the_third_pass(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise error

    hook = model.model.register_forward_pre_hook(fail_at_the_third_pass)
    try:
        measured = measured_of(executor, [0, 1])
        assert engine._memory._kept is None
        after = measured_of(executor, [2, 3])
    finally:
        hook.remove()
    assert measured.failed == "out of memory: 2 rows x (30 + 15) tokens"
    assert after.failed is None
    assert len(after.step_wall_ns) == 20


def test_any_other_error_is_our_own_and_is_raised(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model)

    def broken(*_: Any) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(engine, "run", broken)
    with pytest.raises(RuntimeError, match="mat1"):
        Measured(TEXTBOOK, engine, warm_up=False).run([0])


@pytest.mark.parametrize("wall_clock", [False, True])
def test_the_server_drives_it_on_either_clock(model: Any, wall_clock: bool) -> None:
    executor = Measured(TEXTBOOK, Engine(model))
    record = serve(TEXTBOOK, StaticBatching(3), executor, wall_clock=wall_clock)
    assert broken_laws(record) == []
    assert record.batch_rows.tolist() == [3, 1]
    assert record.measured is not None
    assert record.measured.first_step.tolist() == [0, 20]
    assert len(record.measured.step_wall_ns) == 20 + 12
    prefill_end = record.spread(record.prefill_end_ns)
    steps = record.measured.step_wall_ns
    ends = [steps[1:15].sum(), steps[1:10].sum(), steps[1:20].sum(), steps[21:32].sum()]
    assert (record.rows.last_token_ns - prefill_end).tolist() == ends


def test_a_failed_batch_ends_unfinished_in_the_record(model: Any) -> None:
    trace = trace_of([5, 7], [10**13, 3])
    record = serve(trace, StaticBatching(1), Measured(trace, Engine(model)))
    assert record.measured is not None
    assert record.measured.failed == {0: "out of memory: 1 rows x (5 + 10000000000000) tokens"}
    assert record.count(UNFINISHED) == 1
    assert broken_laws(record) == []


def test_bad_options_name_the_valid_ones(model: Any) -> None:
    engine = Engine(model)
    with pytest.raises(InputError, match="unknown clock 'sundial'; known are cpu or wall"):
        Measured(TEXTBOOK, engine, clock="sundial")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="cannot round to 128 tokens"):
        Measured(TEXTBOOK, engine, rounding=Rounding(context_tokens=128))
    with pytest.raises(InputError, match="serial takes batches of 1 row"):
        Measured(TEXTBOOK, Engine(model, "serial")).run([0, 1])
