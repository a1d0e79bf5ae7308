"""The measurements a comparison rests on: what is profiled, what is held out, who takes turns, what is survived."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from real import trial
from real.engine import Engine
from real.profiler import Point, measure
from real.trial import CURVE_ROWS, LENGTHS, Lab
from sim.batching import Batching
from sim.fitted import fit
from sim.grid import fit_grid
from sim.hardware import hardware
from sim.models import MODELS
from sim.record import broken_laws
from sim.roofline import Roofline
from sim.run import simulate
from tests.real.conftest import TINY, trace_of
from tests.real.fake import AFTER_NS, BEFORE_NS, FakeEngine, decode_ns, fake, prefill_ns
from tests.sim.worked import MS
from tests.sim.worked import trace_of as arrivals

TEXTBOOK = trace_of([10, 30, 5, 20], [15, 10, 20, 12])
MODEL = Roofline(TINY, hardware("cpu"), "float32")
ABOUT = {
    "hardware": "none",
    "model": "tiny",
    "dtype": "float32",
    "engine": "padded",
    "software": {"python": "3"},
    "clock": "cpu",
}


def lab(**how: Any) -> Lab:
    return Lab(fake(**how), TINY, hardware("cpu"), "cpu", ABOUT, seed=1)


def ignore(done: float) -> None:
    """Progress nobody asked for."""


def test_without_words_a_cpu_gets_a_small_model_of_the_right_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setitem(MODELS, "toy", TINY)
    opened = trial.open_lab(None, "random", "auto", seed=3)
    assert opened.about["model"] == "toy"
    assert opened.about["device"] == "cpu"
    assert opened.about["threads"] == 1
    assert opened.engine.model.config.model_type == "qwen3"
    assert (opened.clock, opened.datasheet.name, opened.shape.layers) == ("cpu", "cpu", TINY.layers)


def test_row_counts_to_profile_are_those_that_form_the_full_batch_and_the_curve() -> None:
    trace = arrivals([0, 0, 0, 500 * MS, 900 * MS], 4, 2)
    batching = Batching(6, 10e-3)
    formed = set(simulate(trace, batching, MODEL).batch_rows.tolist())
    assert formed == {3, 1}
    assert trial.rows_to_profile(trace, batching, MODEL) == [1, 2, 3, 4, 6]


def test_prompt_lengths_to_profile_span_all_traces() -> None:
    traces = [trace_of([10, 90], [1, 1]), trace_of([40, 360], [1, 1])]
    assert trial.prompts_to_profile(traces) == [10, 60, 360]
    assert trial.prompts_to_profile([trace_of([7, 7], [1, 1])]) == [7]
    assert trial.prompts_to_profile([trace_of([1, 1], [1, 1])]) == [2]


def test_points_reach_the_longest_context_and_the_batches_of_the_curve() -> None:
    points = trial.points_to_profile([1, 3], [8, 32], 20)
    assert {point.rows for point in points} == {1, 3, *(rows for rows in CURVE_ROWS if rows > 3)}
    assert Point(3, 32, True) in points
    assert max(one.context_tokens for one in points if one.rows == 3) == 32 + 20 - 1 - 4
    assert {point.rows for point in trial.points_to_profile([16], [8], 4)} == {16}


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(2, 200), min_size=2, max_size=LENGTHS, unique=True).filter(
        lambda lengths: max(lengths) - min(lengths) >= len(lengths)
    ),
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(0, 9),
)
def test_held_out_batches_are_full_inside_the_profile_and_of_lengths_that_were_not_in_it(
    rows: list[int], prompts: list[int], outputs: int, batches: int, seed: int
) -> None:
    traces = trial.held_out(rows, prompts, outputs, batches, seed)
    assert len(traces) == len(rows)
    formed = 0
    for count, trace in zip(rows, traces, strict=True):
        assert len(trace) % count == 0
        formed += len(trace) // count
        lengths = set(trace.prompt_tokens.tolist())
        assert not lengths & set(prompts)
        assert min(prompts) < min(lengths)
        assert max(lengths) < max(prompts)
        assert trace.output_tokens.min() >= 2
        assert trace.output_tokens.max() <= max(outputs, 2)
        record = simulate(trace, Batching(count, at_once=True), MODEL)
        assert set(record.batch_rows.tolist()) == {count}
    assert batches <= formed < batches + len(rows)
    again = trial.held_out(rows, prompts, outputs, batches, seed)
    assert [one.fingerprint for one in again] == [one.fingerprint for one in traces]


def test_nothing_to_hold_out_is_nothing() -> None:
    assert trial.held_out([], [4, 9], 3, 24, 0) == []


def test_the_first_requests_come_at_once() -> None:
    trace = arrivals([0, 5 * MS, 9 * MS], [3, 2, 4], [2, 5, 3])
    first = trial.first_requests(trace, 2)
    assert first.arrival_ns.tolist() == [0, 0]
    assert (first.prompt_tokens.tolist(), first.output_tokens.tolist()) == ([3, 2], [2, 5])
    assert not first.timed
    assert len(trial.first_requests(trace, 16)) == 3


def points() -> list[Point]:
    return trial.points_to_profile([1, 2], [5, 30], 20)


LONG_S = 1000.0
"""A budget that no machine, however slow, uses up with short slices."""


def short(profiled: Any, engine: Any, some: Any, budget_s: float, seed: int, **options: Any) -> Any:
    """A slice of the calibration that does what it must and no more."""
    assert 0 < budget_s < LONG_S
    return profiled(engine, some, 1e-9, seed, **options)


RUNS = [(TEXTBOOK, Batching(2)), (trace_of([7, 9], [3, 4]), Batching(1))]


def test_calibration_and_runs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    profiled, replayed = measure, Lab.replay

    def slice_of(*arguments: Any, **options: Any) -> Any:
        order.append(f"slice {options['warm_up']}")
        return short(profiled, *arguments, **options)

    def run_of(self: Lab, trace: Any, batching: Any) -> Any:
        order.append(f"run of {len(trace)}")
        return replayed(self, trace, batching)

    monkeypatch.setattr(trial, "measure", slice_of)
    monkeypatch.setattr(Lab, "replay", run_of)
    told: list[float] = []
    found = trial.measure_together(lab(), points(), LONG_S, RUNS, 2, told.append)
    assert order == [
        "slice True",
        "run of 4",
        "slice False",
        "run of 2",
        "slice False",
        "run of 4",
        "slice False",
        "run of 2",
    ]
    assert told == [0.25, 0.5, 0.75, 1.0]
    assert [len(group) for group in found.records] == [2, 2]
    assert [len(one.requests.status) for group in found.records for one in group] == [4, 4, 2, 2]
    assert all(broken_laws(one) == [] for group in found.records for one in group)
    assert not found.interrupted
    assert found.calibration_s > 0


def test_a_calibration_on_a_straight_line_finds_it() -> None:
    profile = trial.measure_together(lab(), points(), 0.05, RUNS, 1, ignore).profile
    assert profile is not None
    assert profile.shapes.noise["p95"] in (0.0, None)
    grid = fit_grid(profile)
    assert grid.batch_overhead_s == pytest.approx((BEFORE_NS / 1e9, AFTER_NS / 1e9))
    record = simulate(TEXTBOOK, Batching(2), grid)
    took = prefill_ns(2, 30) + sum(decode_ns(2, 30 + k) for k in range(1, 15)) + BEFORE_NS + AFTER_NS
    assert record.end_ns[0] == pytest.approx(took, rel=1e-9)
    assert fit(profile).name.startswith("fitted tiny")


def test_shapes_are_warmed_up_once_for_all_runs() -> None:
    found = trial.measure_together(lab(), [], 1.0, RUNS, 3, ignore)
    counts = [[one.setup["warm_ups"] for one in group] for group in found.records]
    assert [sum(group[1:]) for group in counts] == [0, 0]
    assert counts[0][0] == 1  # 2 rows, prompts of 16 to 31 tokens; both batches
    assert counts[1][0] == 2  # 1 row, of 4 to 7 and of 8 to 15 tokens


def test_without_points_nothing_is_profiled() -> None:
    found = trial.measure_together(lab(), [], 1.0, RUNS, 1, ignore)
    assert found.profile is None
    assert found.calibration_s == 0


def batches_before(runs: int) -> int:
    """How many batches the engine has run when so many runs are over, nothing profiled."""
    at = lab()
    trial.measure_together(at, [], 1.0, RUNS * runs, 1, ignore)
    return at.engine.batches  # type: ignore[attr-defined,no-any-return]


def test_ctrl_c_in_a_run_ends_it_all_and_keeps_the_finished_runs() -> None:
    through = batches_before(1)
    found = trial.measure_together(lab(interrupt_at=through + 1), [], 1.0, RUNS, 3, ignore)
    assert found.interrupted
    assert [len(group) for group in found.records] == [1, 1]
    assert all(not one.setup.get("interrupted") for group in found.records for one in group)


def test_ctrl_c_in_the_calibration_keeps_the_slices_before(monkeypatch: pytest.MonkeyPatch) -> None:
    profiled, slices = measure, iter([False, False, True])

    def slice_of(*arguments: Any, **options: Any) -> Any:
        if next(slices):
            raise KeyboardInterrupt
        return short(profiled, *arguments, **options)

    monkeypatch.setattr(trial, "measure", slice_of)
    found = trial.measure_together(lab(), points(), LONG_S, RUNS, 3, ignore)
    assert found.interrupted
    assert found.profile is not None
    assert [len(group) for group in found.records] == [1, 1]


def test_ctrl_c_at_once_leaves_nothing() -> None:
    found = trial.measure_together(lab(interrupt_at=0), points(), 0.2, RUNS, 3, ignore)
    assert found.interrupted
    assert found.profile is None
    assert found.records == [[], []]


@pytest.fixture
def _fake_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines made on the way are of this kind too; ``model`` carries their options."""
    monkeypatch.setattr(trial, "Engine", lambda model, name: FakeEngine(model, name, **(model or {})))


@pytest.mark.usefixtures("_fake_engines")
def test_engines_are_timed_on_the_same_requests() -> None:
    serial, rowwise, padded = trial.engines(lab(), TEXTBOOK, 2, 3)
    alone_ns = sum(
        BEFORE_NS + AFTER_NS + prefill_ns(1, p) + sum(decode_ns(1, p + k) for k in range(1, n))
        for p, n in zip([10, 30, 5, 20], [15, 10, 20, 12], strict=True)
    )
    assert serial.engine == "serial"
    assert serial.seconds == pytest.approx(alone_ns / 1e9)
    assert serial.tokens_per_s == pytest.approx(57 / (alone_ns / 1e9))
    pairs_ns = sum(
        BEFORE_NS + AFTER_NS + prefill_ns(2, p) + sum(decode_ns(2, p + k) for k in range(1, n))
        for p, n in ((30, 15), (20, 20))
    )
    assert padded.seconds == pytest.approx(pairs_ns / 1e9)
    assert padded.speed_up(serial) == pytest.approx(alone_ns / pairs_ns)
    assert rowwise.seconds == padded.seconds
    assert {run.same_tokens for run in (serial, rowwise, padded)} == {True}


@pytest.mark.usefixtures("_fake_engines")
def test_an_engine_that_runs_out_of_memory_has_no_time() -> None:
    small = lab(model={"most_rows": 1})
    serial, rowwise, padded = trial.engines(small, TEXTBOOK, 2, 2)
    assert serial.seconds is not None
    for run in (rowwise, padded):
        assert (run.seconds, run.tokens_per_s, run.same_tokens) == (None, None, None)
    none = trial.engines(lab(model={"most_rows": 0}), TEXTBOOK, 2, 2)
    assert [run.seconds for run in none] == [None, None, None]


@pytest.mark.usefixtures("_fake_engines")
def test_an_answer_that_differs_from_the_one_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = FakeEngine.run

    def changed(self: FakeEngine, prompts: Any, output_tokens: int) -> Any:
        generated = kept(self, prompts, output_tokens)
        if self.name == "padded":
            generated.tokens[-1, 0] += 1
        return generated

    monkeypatch.setattr(FakeEngine, "run", changed)
    assert [run.same_tokens for run in trial.engines(lab(), TEXTBOOK, 2, 1)] == [True, True, False]


def test_the_real_engines_give_the_tokens_each_request_gets_alone(model: Any) -> None:
    real = Lab(Engine(model), TINY, hardware("cpu"), "cpu", ABOUT, seed=1)
    runs = trial.engines(real, TEXTBOOK, 4, 1)
    assert [run.engine for run in runs] == ["serial", "rowwise", "padded"]
    assert all(run.same_tokens for run in runs)


def test_the_curve_is_of_full_batches_of_equal_lengths() -> None:
    curve = trial.curve(lab(), MODEL, 3)
    assert tuple(point.rows for point in curve) == CURVE_ROWS
    for point in curve:
        b, p, n = point.rows, trial.CURVE_PROMPT_TOKENS, trial.CURVE_OUTPUT_TOKENS
        took_ns = prefill_ns(b, p) + sum(decode_ns(b, p + k) for k in range(1, n)) + BEFORE_NS + AFTER_NS
        assert point.tokens_per_s.measured == pytest.approx(b * n / (took_ns / 1e9))
        assert point.tokens_per_s.spread == 0
        equal = trace_of([p] * b, [n] * b)
        end_ns = int(simulate(equal, Batching(b), MODEL).end_ns[0])
        assert point.tokens_per_s.simulated == pytest.approx(b * n / (end_ns / 1e9))


def test_sizes_of_the_curve_that_do_not_fit_are_not_measured() -> None:
    curve = trial.curve(lab(most_rows=4), MODEL, 2)
    assert [point.tokens_per_s.measured is not None for point in curve] == [True, True, True, False, False]
    assert all(point.tokens_per_s.simulated for point in curve)


def test_prompts_of_a_run_follow_the_seed() -> None:
    one, other = (
        Lab(fake(), TINY, hardware("cpu"), "cpu", ABOUT, seed).executor(TEXTBOOK, fake(), keep_tokens=True)
        for seed in (1, 2)
    )
    for executor in (one, other):
        executor.run([0, 1])
    assert one.tokens is not None
    assert other.tokens is not None
    assert not np.array_equal(one.tokens[0], other.tokens[0])
