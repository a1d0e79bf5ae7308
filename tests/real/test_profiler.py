"""The profile: which shapes are measured, that each pass is named for what it was, and in what order they ran."""

from typing import Any

import numpy as np
import pytest
import torch

from real.conditions import conditions
from real.engine import Engine
from real.profiler import DECODE_STEPS, Point, grid, measure
from real.timing import PassTimes, Timeline
from sim.fitted import fit
from sim.profile import Profile
from sim.step import Step
from tests.real.conftest import TINY, Passes
from traces.errors import InputError

GRID = grid([1, 3], [4, 8], output_tokens=20)


def test_the_grid_has_every_row_count_at_every_prompt_and_up_to_the_longest_context() -> None:
    assert [p[:2] for p in GRID if p.prefill] == [(1, 4), (1, 8), (3, 4), (3, 8)]
    # Evenly between 4 and 23, where the last of four steps reads 8 + 20 - 1 = 27 slots.
    assert [p[:2] for p in GRID if not p.prefill] == [(1, 14), (1, 23), (3, 14), (3, 23)]
    assert max(int(point.steps.max_context_tokens.max()) for point in GRID) == 8 + 20 - 1


@pytest.mark.parametrize("output", [1, 2, 5])
def test_short_answers_need_no_context_beyond_the_prompts(output: int) -> None:
    points = grid([2], [6], output)
    assert points == [Point(2, 6, True)]


def columns(steps: Step, *names: str) -> list[list[int]]:
    return [getattr(steps, name).tolist() for name in names]


def test_passes_are_named_by_the_builders_of_steps() -> None:
    assert DECODE_STEPS == 4
    names = ("prefill_tokens", "decode_rows", "decode_kv_tokens", "max_context_tokens", "logit_rows")
    assert columns(Point(3, 8, True).steps, *names) == [
        [24, 0, 0, 0, 0],
        [0, 3, 3, 3, 3],
        [0, 27, 30, 33, 36],
        [8, 9, 10, 11, 12],
        [3, 3, 3, 3, 3],
    ]
    assert columns(Point(3, 20, False).steps, *names) == [
        [0, 0, 0, 0],
        [3, 3, 3, 3],
        [63, 66, 69, 72],
        [21, 22, 23, 24],
        [3, 3, 3, 3],
    ]


def test_what_is_recorded_is_what_the_model_ran(model: Any) -> None:
    """Context and rows of each recorded pass, read off the model's own calls, warm-up and spare steps apart."""
    with Passes(model) as passes:
        samples = measure(Engine(model), [Point(3, 8, True), Point(2, 20, False)], budget_s=1e-9)
    assert samples.rounds == 1
    assert samples.warm_ups == 2
    calls = [
        (len(ids), ids.shape[1], mask.shape[-1]) for ids, mask in zip(passes.ids, passes.masks, strict=True)
    ]
    prefill_batch = [(3, 8, 8), (3, 1, 9), (3, 1, 10), (3, 1, 11), (3, 1, 12)]
    decode_batch = [(2, 1, context) for context in (20, 21, 22, 23, 24)]
    warm_up, recorded = calls[:10], calls[10:]
    assert sorted(warm_up) == sorted(recorded) == sorted(prefill_batch + decode_batch)
    first_of_decode = recorded.index((2, 1, 20))
    kept = [call for i, call in enumerate(recorded) if i != first_of_decode]
    described = zip(
        samples.steps.prefill_tokens, samples.steps.decode_rows, samples.steps.max_context_tokens, strict=True
    )
    assert [(rows * slots if slots > 1 else 0, rows if slots == 1 else 0, c) for rows, slots, c in kept] == [
        tuple(int(x) for x in row) for row in described
    ]
    # A cache of zeros or leftovers would be another kind of input than keys and values.
    assert all(torch.isfinite(hidden).all() for hidden in passes.hidden)


class Scripted:
    """An engine that runs nothing and takes a set time: 1 ms a row of prefill, 10 us a slot of decode."""

    device = torch.device("cpu")
    vocab_size = 100

    def __init__(self, full_at_rows: int | None = None) -> None:
        self.ran: list[Point] = []
        self.released = 0
        self.full_at_rows = full_at_rows

    def reserve(self, rows: int, capacity: int) -> None:
        if self.full_at_rows is not None and rows >= self.full_at_rows:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def release(self) -> None:
        self.released += 1

    def run(self, prompts: list[Any], output_tokens: int) -> Any:
        point = Point(len(prompts), len(prompts[0]), True)
        self.ran.append(point)
        decode = [10_000 * point.rows * (point.context_tokens + k) for k in range(1, output_tokens)]
        return type("Generated", (), {"times": self._times(point, [1_000_000 * point.rows, *decode])})

    def time_decode(self, rows: int, context_tokens: int, steps: int) -> PassTimes:
        self.reserve(rows, context_tokens)
        point = Point(rows, context_tokens + 1, False)
        self.ran.append(point)
        return self._times(point, [10_000 * rows * (context_tokens + k) for k in range(1, steps + 1)])

    def _times(self, point: Point, steps: list[int]) -> PassTimes:
        wall = np.array(steps, np.int64)
        return PassTimes(Timeline(700 * point.rows, wall, 300), Timeline(70 * point.rows, wall // 2, 30))


def test_seconds_and_overheads_belong_to_their_passes_on_each_clock() -> None:
    samples = measure(Scripted(), GRID, budget_s=1e-9)  # type: ignore[arg-type]
    steps = samples.steps
    expected = np.where(steps.decode_rows > 0, 10e-6 * steps.decode_kv_tokens, 1e-3 * steps.logit_rows)
    assert np.allclose(samples.seconds["wall"], expected)
    assert np.allclose(samples.seconds["cpu"], expected / 2)
    assert sorted(samples.before_s["wall"]) == pytest.approx([7e-7, 7e-7, 21e-7, 21e-7])
    assert sorted(samples.before_s["cpu"]) == pytest.approx([0.7e-7, 0.7e-7, 2.1e-7, 2.1e-7])
    assert samples.after_s["wall"] == pytest.approx([3e-7] * 4)


def test_rounds_hold_every_shape_once_in_another_order_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr("real.profiler.time.monotonic", lambda: float(next(ticks)))
    engine = Scripted()
    told: list[float] = []
    samples = measure(engine, GRID, budget_s=60.0, seed=4, progress=told.append)  # type: ignore[arg-type]
    size = len(GRID)
    assert samples.warm_ups == size
    assert samples.rounds >= 3
    rounds = [engine.ran[i : i + size] for i in range(size, len(engine.ran), size)]
    assert len(rounds) == samples.rounds
    assert all(sorted(one) == sorted(GRID) for one in rounds[:-1])
    assert rounds[0] != rounds[1]
    assert len(samples.steps) == sum(len(point.steps) for one in rounds for point in one)
    assert told == sorted(told)
    again = Scripted()
    ticks = iter(range(1000))
    measure(again, GRID, budget_s=60.0, seed=4)  # type: ignore[arg-type]
    assert again.ran[: 2 * size] == engine.ran[: 2 * size]


def test_a_shape_that_does_not_fit_is_left_out_and_named() -> None:
    engine = Scripted(full_at_rows=3)
    samples = measure(engine, GRID, budget_s=1e-9)  # type: ignore[arg-type]
    assert set(samples.failed) == {
        "3 rows x 4 prompt tokens",
        "3 rows x 8 prompt tokens",
        "3 rows x 14 cached tokens",
        "3 rows x 23 cached tokens",
    }
    assert engine.released == 4
    assert set(samples.steps.logit_rows.tolist()) == {1}
    with pytest.raises(InputError, match="none of the 8 shapes fits in the memory of cpu"):
        measure(Scripted(full_at_rows=1), GRID, budget_s=1e-9)  # type: ignore[arg-type]


def test_a_profile_of_the_engine_can_be_fitted(model: Any, tmp_path: Any) -> None:
    engine = Engine(model)
    samples = measure(engine, GRID, budget_s=0.5)
    for clock in samples.seconds:
        profile = samples.profile(clock, conditions(engine, TINY.name, "random", clock))
        assert profile.conditions["clock"] == clock
        assert profile.conditions["warm_ups"] == len(GRID)
        profile.save(tmp_path / "profile.parquet")
        loaded = Profile.load(tmp_path / "profile.parquet")
        assert loaded.sha256 == profile.sha256
        assert loaded.conditions == profile.conditions
        assert fit(loaded).batch_overhead_s[0] > 0


def test_samples_without_a_clock_say_so() -> None:
    samples = measure(Scripted(), GRID, budget_s=1e-9)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no samples by the sundial clock; there are wall, cpu"):
        samples.profile("sundial", {})  # type: ignore[arg-type]
