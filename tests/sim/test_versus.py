"""A simulation beside measured repeats: every number, worked by hand where it can be."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.batching import Batching
from sim.errors import Noise
from sim.record import Measured, RunRecord
from sim.versus import BatchScore, Versus, formed_identically, measured_batches, step_scores, versus
from tests.sim.beside import LINE, measured, simulated
from tests.sim.worked import CASES, MS, ROOFLINE, Case, members, trace_of

TRACE = trace_of([0, 0, 5 * MS, 9 * MS, 9 * MS, 400 * MS], [3, 2, 4, 1, 2, 2], [2, 5, 3, 1, 4, 2])
HOW = Batching(2, 10e-3)


class Priced:
    """A model with a JSON document, so that a simulated record can be made with it."""

    def __init__(self, model: Any) -> None:
        self.name = model.name
        self.batch_overhead_s = model.batch_overhead_s
        self.seconds = model.seconds
        self.outside = model.outside
        self.to_json = model.to_json


def beside(*factors: float, model: Any = LINE, **how: Any) -> Versus:
    repeats = [measured(TRACE, HOW, model, lambda batch, f=f: f, **how) for f in factors]  # type: ignore[misc]
    return versus(simulated(TRACE, HOW, model), repeats, model)


def every_pair(found: Versus) -> dict[str, Any]:
    flat = {f"{name} {stat}": pair for name, stats in found.latency.items() for stat, pair in stats.items()}
    return {**flat, **found.throughput, **found.ledger, **found.waste, **found.requests}


def test_a_device_that_does_as_modelled_has_no_error() -> None:
    found = beside(1.0, 1.0)
    assert found.identical
    assert found.notes == []
    for name, pair in every_pair(found).items():
        assert pair.error in (0.0, None), name
        assert pair.simulated == pair.measured, name
    assert found.batches.times.score.worst == 0
    assert found.batches.times.noise.p95 == 0
    for split in found.split.values():
        assert split.cost_s == split.queueing_s == split.formation_s == 0


@settings(deadline=None)
@given(CASES)
def test_a_simulated_record_compared_with_itself_has_no_error(case: Case) -> None:
    record = case.record()
    rounding = {
        "row_counts": list(case.rounding.row_counts),
        "context_tokens": case.rounding.context_tokens,
    }
    wait_s = None if case.max_wait_ns is None else case.max_wait_ns / 1e9
    record = replace(record, setup={"rounding": rounding, "policy": {"max_wait_s": wait_s}})
    found = versus(record, [record], case.model)
    assert found.identical
    assert {pair.error for pair in every_pair(found).values()} <= {0.0, None}
    assert found.batches.times.score.worst in (0.0, None)
    assert found.batches.times.score.count == len(record.batch_rows)
    for split in found.split.values():
        assert split.cost_s == split.queueing_s == split.formation_s == 0


def test_batches_of_repeats_are_matched_by_their_members_and_scored_by_hand() -> None:
    """Two batches at three repeats; the device takes 1, 2 and 4 times as long for steps, overheads as modelled."""
    trace = trace_of([0, 0, 0], [3, 2, 4], [2, 3, 1])
    how = Batching(2, at_once=True)
    records = [measured(trace, how, LINE, lambda batch, f=f: f) for f in (1.0, 4.0, 2.0)]  # type: ignore[misc]
    batches = measured_batches(records, LINE)
    assert [batch.shape for batch in batches] == ["2 x (3 + 3)", "1 x (4 + 1)"]
    # Prefill 2 x 3: 1 ms + 6 us + 18 x 0.03 us; decodes at 4 and 5: 1 ms + 2 us + 8 x 0.2 and 10 x 0.2 us.
    steps_us = [1006.54, 1003.6, 1004.0]
    assert batches[0].simulated_s == pytest.approx((3000 + sum(steps_us)) / 1e6, abs=1e-12)
    assert sorted(batches[0].measured_s) == pytest.approx(
        [(3000 + f * sum(steps_us)) / 1e6 for f in (1, 2, 4)], abs=1e-12
    )
    for batch in batches:
        middle = float(np.median(batch.measured_s))
        assert batch.error == (batch.simulated_s - middle) / middle
        assert batch.error < 0
    scored = BatchScore.of(batches)
    assert scored.worst is min(batches, key=lambda batch: batch.error)
    assert scored.times.noise == Noise.of([batch.measured_s for batch in batches])
    document = scored.to_json()
    assert document["count"] == 2
    assert document["worst_shape"] == "2 x (3 + 3)"
    assert document["median_error"] == pytest.approx(np.mean([abs(b.error) for b in batches]), abs=1e-6)


def test_the_same_shape_of_other_requests_is_another_batch() -> None:
    trace = trace_of([0, 0, 0, 0], 3, 2)
    record = measured(trace, Batching(2, at_once=True), LINE)
    assert len(measured_batches([record, record], LINE)) == 2
    assert [len(batch.measured_s) for batch in measured_batches([record, record], LINE)] == [2, 2]


def test_passes_are_scored_by_phase_and_rows_each_once() -> None:
    trace = trace_of([0, 0, 0], [3, 2, 4], [2, 3, 3])
    records = [measured(trace, Batching(2, at_once=True), LINE, lambda batch, f=f: f) for f in (0.5, 0.8)]  # type: ignore[misc]
    scores = step_scores(records, LINE)
    assert [(one.phase, one.rows, one.times.score.count) for one in scores] == [
        ("prefill", 1, 1),
        ("prefill", 2, 1),
        ("decode", 1, 2),
        ("decode", 2, 2),
    ]
    for one in scores:
        # The median of 0.5 and 0.8 of the modelled time: 1 / 0.65 - 1 too long.
        assert one.times.score.mean == pytest.approx(1 / 0.65 - 1, rel=1e-5)
        assert one.times.score.bias == one.times.score.mean
        assert one.times.noise.median == pytest.approx(0.15 / 0.65, rel=1e-5)
    decode = scores[3].to_json()
    assert decode["simulated"] == pytest.approx((1003.6e-6 + 1004.0e-6) / 2, abs=1e-12)
    assert decode["measured"] == pytest.approx(0.65 * 1003.8e-6, rel=1e-5)
    assert decode["error"] == pytest.approx(1 / 0.65 - 1, rel=1e-5)


def test_a_pass_measured_as_nothing_is_left_out_and_counted() -> None:
    record = measured(TRACE, HOW, LINE)
    assert record.measured is not None
    coarse = record.measured.step_wall_ns.copy()
    coarse[0] = 0
    scores = step_scores([replace(record, measured=replace(record.measured, step_wall_ns=coarse))], LINE)
    (first,) = (one for one in scores if one.phase == "prefill" and one.rows == 2)
    assert first.times.score.not_applicable == 1
    assert first.times.score.worst == 0


def test_errors_beside_the_spread_of_the_repeats() -> None:
    found = beside(0.9, 1.0, 1.2)
    busy = found.throughput["busy_s"]
    assert busy.error == 0
    assert busy.inside
    assert busy.spread is not None
    # Steps are all but the 3 ms a batch that neither shrink nor grow.
    batches = len(found.simulated.record.batch_rows)
    steps_s = (busy.simulated or 0) - batches * 3e-3
    assert busy.spread == pytest.approx(0.2 * steps_s / (busy.measured or 1), rel=1e-4)
    assert found.batches.times.noise.count == 3 * found.batches.times.score.count
    single = beside(0.9)
    assert {pair.spread for pair in every_pair(single).values()} == {None}
    assert {pair.inside for pair in every_pair(single).values()} == {None}


@pytest.mark.parametrize("factors", [(1.3,), (0.9, 1.5), (2.0, 0.7, 1.1)])
def test_the_ledger_shown_is_that_of_one_repeat_and_adds_up(factors: tuple[float, ...]) -> None:
    found = beside(*factors)
    total = sum(pair.measured or 0.0 for pair in found.ledger.values())
    makespans = sorted(one.record.makespan_ns / 1e9 for one in found.measured)
    assert total == pytest.approx(makespans[(len(makespans) - 1) // 2], abs=1e-12)
    assert sum(pair.simulated or 0.0 for pair in found.ledger.values()) == pytest.approx(
        found.simulated.record.makespan_ns / 1e9, abs=1e-12
    )


def test_waste_of_repeats_that_formed_other_batches_is_their_median() -> None:
    repeats = [measured(TRACE, how, LINE) for how in (HOW, Batching(6), HOW)]
    found = versus(simulated(TRACE, HOW, LINE), repeats, LINE)
    assert not found.identical
    for name in ("prefill_slots", "prefill_padding", "prefill_fraction", "decode_idle", "decode_fraction"):
        assert found.waste[name].error == 0
        assert found.waste[name].spread not in (0, None)
    # All six together: 6 x 4 slots for 14 prompt tokens, 6 x 5 for 17 answered.
    assert repeats[1].batch_rows.tolist() == [6]
    alone = versus(simulated(TRACE, HOW, LINE), [repeats[1]], LINE).waste
    assert [alone[name].measured for name in ("prefill_padding", "decode_idle")] == [10, 13]
    assert alone["prefill_fraction"].measured == pytest.approx(10 / 24)
    assert alone["decode_fraction"].measured == pytest.approx(13 / 30)


def test_the_split_is_the_mean_over_the_repeats_and_adds_up() -> None:
    found = beside(3.0, 30.0)
    for name, one in found.split.items():
        assert one.cost_s + one.queueing_s + one.formation_s == pytest.approx(
            one.simulated_s - one.measured_s
        )
        means = [result.latency[name]["mean"] or 0.0 for result in found.measured]
        assert one.measured_s == pytest.approx(np.mean(means), abs=1e-8)
        assert one.simulated_s == pytest.approx(found.simulated.latency[name]["mean"], abs=1e-8)


def test_formed_identically_means_the_same_requests_together_in_the_same_order() -> None:
    assert beside(1.0).identical
    # Slow enough, the last request comes in time for the batch of the fifth.
    slow = beside(1.0, 300.0)
    groups = [members(one.record) for one in slow.measured]
    assert (groups[0] == groups[1]) is slow.identical is False
    record = simulated(TRACE, HOW, LINE)
    request = record.rows.request.copy()
    request[[0, 1]] = request[[1, 0]]
    assert formed_identically([record, record])
    assert not formed_identically([record, replace(record, rows=replace(record.rows, request=request))])
    assert not formed_identically([record, simulated(TRACE, Batching(3, 10e-3), LINE)])


def test_a_batch_without_memory_is_named_and_in_no_score() -> None:
    whole, found = beside(1.0), beside(1.0, failing=[1])
    assert found.batches.times.score.count == whole.batches.times.score.count - 1
    assert found.requests["completed"].measured == 4
    assert found.requests["completed"].simulated == 6
    assert found.requests["unfinished"].measured == 2
    assert found.notes == [
        "measured run 1: batch 1 gave no answer, out of memory: too many rows",
        "measured run 1: 2 of 6 requests completed on one side only; they are not in the error split, "
        "and each side's latencies are of what it completed",
    ]


def test_when_nothing_was_answered_everything_is_na() -> None:
    found = beside(1.0, 1.0, failing=range(9))
    assert found.split == {}
    assert found.batches.times.score.count == 0
    assert found.batches.worst is None
    assert found.latency["ttft"]["mean"].error is None
    assert len(found.notes) == 2 * (4 + 1)


def test_one_repeat_without_answers_does_not_spoil_the_split_of_the_others() -> None:
    model = LINE
    repeats = [measured(TRACE, HOW, model), measured(TRACE, HOW, model, failing=range(9))]
    found = versus(simulated(TRACE, HOW, model), repeats, model)
    assert found.split["ttft"].cost_s == 0


def test_what_only_one_side_rejected_is_said() -> None:
    repeat = measured(TRACE, HOW, LINE, max_kv_tokens=6)
    found = versus(simulated(TRACE, HOW, LINE), [repeat], LINE)
    assert found.requests["rejected"].measured == 2
    assert found.requests["rejected"].simulated == 0
    assert "2 of 6 requests completed on one side only" in found.notes[0]
    assert not found.identical
    nothing = versus(simulated(TRACE, HOW, LINE, 1), [measured(TRACE, HOW, LINE, max_kv_tokens=1)], LINE)
    assert nothing.split == {}
    assert nothing.notes == []


def test_an_interrupted_run_is_named() -> None:
    repeat = measured(TRACE, HOW, LINE)
    cut = replace(repeat, setup={**repeat.setup, "interrupted": True})
    assert "measured run was interrupted" in versus(simulated(TRACE, HOW, LINE), [cut], LINE).notes[0]


def test_a_model_used_outside_what_it_knows_says_so() -> None:
    class Narrow(Priced):
        def __init__(self) -> None:
            super().__init__(LINE)
            self.outside = lambda steps: "5 rows, only 4 were measured"

    found = versus(simulated(TRACE, HOW, Narrow()), [measured(TRACE, HOW, LINE)], Narrow())
    assert found.notes == ["outside what line was calibrated for: 5 rows, only 4 were measured"]


def test_ledgers_of_both_sides_are_split_by_the_model_named() -> None:
    repeat = measured(TRACE, HOW, LINE)
    found = versus(simulated(TRACE, HOW, LINE), [repeat], LINE, split_by=ROOFLINE)
    assert {side.ledger.split_by for side in (found.simulated, *found.measured)} == {ROOFLINE.name}
    assert all(pair.error in (0.0, None) for pair in found.ledger.values())


@settings(deadline=None)
@given(st.lists(st.floats(0.3, 4.0), min_size=1, max_size=4))
def test_scores_and_noise_are_what_numpy_says(factors: list[float]) -> None:
    records: list[RunRecord] = [
        measured(TRACE, Batching(2, at_once=True), LINE, lambda batch, f=f: f * (1 + batch / 10))  # type: ignore[misc]
        for f in factors
    ]
    found = BatchScore.of(measured_batches(records, LINE)).times
    took = np.array([(record.end_ns - record.batches.start_ns) / 1e9 for record in records])
    middle = np.median(took, axis=0)
    model = simulated(TRACE, Batching(2, at_once=True), LINE)
    signed = ((model.end_ns - model.batches.start_ns) / 1e9 - middle) / middle
    assert found.score.median == pytest.approx(np.median(np.abs(signed)), abs=1e-9)
    assert found.score.p95 == pytest.approx(np.percentile(np.abs(signed), 95), abs=1e-9)
    assert found.score.bias == pytest.approx(np.mean(signed), abs=1e-9)
    if len(factors) > 1:
        assert found.noise.median == pytest.approx(np.median(np.abs(took - middle) / middle), abs=1e-9)
    else:
        assert found.noise.median is None


def test_a_record_without_stored_passes_has_no_steps() -> None:
    assert step_scores([simulated(TRACE, HOW, LINE)], LINE) == []
    empty = np.empty(0, np.int64)
    record = replace(
        measured(TRACE, HOW, LINE, failing=range(9)),
        measured=Measured(np.zeros(4, np.int64), empty, None, None, dict.fromkeys(range(4), "memory")),
    )
    assert step_scores([record], LINE) == []
