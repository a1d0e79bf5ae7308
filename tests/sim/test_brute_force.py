"""Every token and every pass of small runs written out, against what is computed without doing so."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import nanoseconds
from sim.ledger import ledger
from sim.lines import Lines, line_sums_ns
from sim.metrics import latency, latency_columns, tokens_while_waiting
from sim.passes import token_gaps
from sim.pricing import Prices
from sim.record import RunRecord
from sim.stats import summary, weighted_summary
from sim.step import own_decode, own_prefill, padded_decode, padded_prefill
from sim.waste import waste
from tests.sim.worked import ANY_POLICY, FLOOR, MODELS, Case, Toy, batch_ns, members, run, trace_of
from traces.trace import Trace

MANY = settings(max_examples=150, deadline=None)


def prices_of(case: Case) -> Prices:
    return Prices.for_trace(case.trace, case.model, case.rounding)


def token_times(case: Case, record: RunRecord) -> dict[int, list[int]]:
    """When each token of each served request came out, pass by pass."""
    found = {}
    before = round(case.model.batch_overhead_s[0] * 1e9)
    for batch, start in zip(members(record), record.batches.start_ns.tolist(), strict=True):
        ends = start + before + np.cumsum(batch_ns(case.model, case.trace, batch, case.rounding))
        for request in batch:
            found[request] = ends[: case.trace.output_tokens[request]].tolist()
    return found


@MANY
@given(ANY_POLICY)
def test_each_request_s_tokens(case: Case) -> None:
    record = case.record()
    times = token_times(case, record)
    served = record.rows.request.tolist()
    assert record.rows.last_token_ns.tolist() == [times[i][-1] for i in served]
    assert record.spread(record.prefill_end_ns).tolist() == [times[i][0] for i in served]
    columns = latency_columns(record)
    arrival = case.trace.arrival_ns.tolist()
    assert columns["ttft"].tolist() == [times[i][0] - arrival[i] for i in served]
    assert columns["e2e"].tolist() == [times[i][-1] - arrival[i] for i in served]
    assert columns["tpot"].tolist() == [
        (times[i][-1] - times[i][0]) / (len(times[i]) - 1) for i in served if len(times[i]) > 1
    ]


@MANY
@given(ANY_POLICY)
def test_gaps_between_tokens_pooled(case: Case) -> None:
    record = case.record()
    gaps = [gap for times in token_times(case, record).values() for gap in np.diff(times).tolist()]
    values, counts = token_gaps(record, prices_of(case))
    assert sorted(np.repeat(values, counts).tolist()) == sorted(gaps)
    assert counts.sum() == sum(case.trace.output_tokens[record.rows.request] - 1)
    assert same_as_numpy(latency(record, prices_of(case))["itl"], gaps)


def same_as_numpy(found: dict[str, float | None], values_ns: list[int]) -> bool:
    """A summary against numpy's mean and linear percentiles of the column written out."""
    names = ("mean", "p50", "p90", "p95", "p99")
    if not values_ns:
        return found == dict.fromkeys(names)
    seconds = np.array(values_ns, np.float64) / 1e9
    points = np.percentile(seconds, [50, 90, 95, 99], method="linear").tolist()
    wanted = dict(zip(names, [float(seconds.mean()), *points], strict=True))
    return list(found) == list(names) and bool(found == pytest.approx(wanted, rel=1e-12, abs=1e-9))


@MANY
@given(ANY_POLICY)
def test_tokens_that_came_out_while_requests_waited(case: Case) -> None:
    record = case.record()
    rows = record.spread(record.batches.start_ns).tolist()
    waits = [
        (int(case.trace.arrival_ns[i]), start)
        for i, start in zip(record.rows.request.tolist(), rows, strict=True)
    ]
    emitted = [t for times in token_times(case, record).values() for t in times]
    tokens = sum(any(since < t <= until for since, until in waits) for t in emitted)
    # The length of the union of all waits, from the edges between which nothing changes.
    edges = sorted({edge for wait in waits for edge in wait})
    waited = sum(
        high - low
        for low, high in pairwise(edges)
        if any(since <= low and high <= until for since, until in waits)
    )
    assert tokens_while_waiting(record, prices_of(case)) == ((tokens, waited) if waited else (0, 0))


@MANY
@given(ANY_POLICY)
def test_forming_and_backlog_split_each_wait_by_whether_the_server_was_busy(case: Case) -> None:
    record = case.record()
    spans = list(zip(record.batches.start_ns.tolist(), record.end_ns.tolist(), strict=True))
    columns = latency_columns(record)
    starts = record.spread(record.batches.start_ns).tolist()
    for i, (request, start) in enumerate(zip(record.rows.request.tolist(), starts, strict=True)):
        arrival = int(case.trace.arrival_ns[request])
        busy = sum(max(0, min(end, start) - max(begin, arrival)) for begin, end in spans)
        assert [columns[name][i] for name in ("queue", "backlog", "forming")] == [
            start - arrival,
            busy,
            start - arrival - busy,
        ]


def padded_ns(case: Case, rows: int, context: int) -> int:
    read = case.rounding.context(context)
    return int(nanoseconds(case.model, padded_decode(np.atleast_1d(rows), np.atleast_1d(read)))[0])


def own_ns(case: Case, contexts: list[int]) -> float:
    step = own_decode([len(contexts)], [sum(contexts)], [max(contexts)])
    return float(case.model.seconds(step)[0]) * 1e9


def prefill_ns(case: Case, rows: int, longest: int) -> int:
    return int(nanoseconds(case.model, padded_prefill(np.atleast_1d(rows), np.atleast_1d(longest)))[0])


def slow_ledger(case: Case, record: RunRecord) -> tuple[dict[str, float], dict[str, float]]:
    """The ledger, step by step and row by row; idle time from the edges of what waits and what runs."""
    total = dict.fromkeys(
        ("prefill_padding", "padded_context", "idle_rows", "dummy_rows", "useful_decode", "useful_prefill"),
        0.0,
    )
    reverse = {"padded_context": 0.0, "idle_rows": 0.0}
    prompts, outputs = case.trace.prompt_tokens.tolist(), case.trace.output_tokens.tolist()
    for batch in members(record):
        own, real = [prompts[i] for i in batch], len(batch)
        computed = int(case.rounding.rows(real))
        longest = max(own)
        squares = sum(p * p for p in own)
        alone = int(nanoseconds(case.model, own_prefill([real], [sum(own)], [squares], [longest]))[0])
        total["dummy_rows"] += prefill_ns(case, computed, longest) - prefill_ns(case, real, longest)
        total["prefill_padding"] += prefill_ns(case, real, longest) - alone
        total["useful_prefill"] += alone
        for k in range(1, max(outputs[i] for i in batch)):
            running = [i for i in batch if outputs[i] > k]
            as_run = padded_ns(case, computed, longest + k)
            no_dummies = padded_ns(case, real, longest + k)
            unfinished = padded_ns(case, len(running), longest + k)
            useful = own_ns(case, [prompts[i] + k for i in running])
            all_rows = own_ns(case, [prompts[i] + k for i in batch])
            total["dummy_rows"] += as_run - no_dummies
            total["idle_rows"] += no_dummies - unfinished
            total["padded_context"] += unfinished - useful
            total["useful_decode"] += useful
            reverse["padded_context"] += no_dummies - all_rows
            reverse["idle_rows"] += all_rows - useful
    return total, reverse


@settings(max_examples=200, deadline=None)
@given(ANY_POLICY)
def test_the_ledger_against_every_step_of_every_row(case: Case) -> None:
    record = case.record()
    found = ledger(record, prices_of(case))
    total, reverse = slow_ledger(case, record)
    steps = int(record.longest_output_tokens.sum())

    def same(got: int, wanted: float) -> bool:
        """Equal to rounding, or both nothing but rounding."""
        return abs(got - wanted) <= 2 + 1e-9 * abs(wanted) or (got == 0 and -steps <= wanted <= 0)

    for name in ("prefill_padding", "padded_context", "idle_rows", "dummy_rows"):
        assert same(found.lines_ns[name], total[name]), name
    for name, value in reverse.items():
        assert same(found.reverse_ns[name], value), name
    for name in ("useful_prefill", "useful_decode"):
        assert abs(found.lines_ns[name] - total[name]) <= steps + 4, name
    assert set(found.negative) == {name for name, value in found.lines_ns.items() if value < 0}
    for name in ("prefill_padding", "padded_context", "idle_rows", "dummy_rows"):
        if total[name] < -steps - 2:
            assert name in found.negative


def test_a_negative_line_is_forgiven_a_nanosecond_a_pass_and_no_more() -> None:
    """One row costs more than two, by what rounding could or could not explain: two passes a batch."""
    trace = trace_of([0] * 2000, 1, [1, 2] * 1000)
    for excess_ns, shown in ((1, 0), (3, -3000)):
        model = Toy("odd", lambda s, e=excess_ns: 1e-6 + 1e-9 * e * (s.decode_rows == 1))  # type: ignore[misc]
        record = run(trace, 2, model=model)
        found = ledger(record, Prices.for_trace(trace, model))
        assert found.lines_ns["idle_rows"] == shown
        assert found.negative == (("idle_rows",) if shown else ())
        assert found.total_ns == record.makespan_ns


@MANY
@given(ANY_POLICY)
def test_idle_time_from_the_edges_of_what_waits_and_what_runs(case: Case) -> None:
    record = case.record()
    found = ledger(record, prices_of(case)).lines_ns
    spans = list(zip(record.batches.start_ns.tolist(), record.end_ns.tolist(), strict=True))
    waits = [
        (int(case.trace.arrival_ns[i]), start)
        for i, start in zip(
            record.rows.request.tolist(), record.spread(record.batches.start_ns).tolist(), strict=True
        )
    ]
    begin = int(case.trace.arrival_ns[0])
    edges = sorted({begin, *(edge for span in [*spans, *waits] for edge in span)}) if spans else []
    forming = no_work = 0
    for low, high in pairwise(edges):
        if any(start <= low and high <= end for start, end in spans):
            continue
        if any(since <= low and high <= until for since, until in waits):
            forming += high - low
        else:
            no_work += high - low
    assert (found["forming"], found["no_work"]) == (forming, no_work)
    overhead = sum(round(part * 1e9) for part in case.model.batch_overhead_s)
    assert found["batch_overhead"] == overhead * len(spans)


@MANY
@given(ANY_POLICY)
def test_kv_reserved_and_used_slot_by_slot(case: Case) -> None:
    record = case.record()
    reserved, used, seconds = 0, 0, [0.0, 0.0]
    largest = 0
    for batch, start, end in zip(
        members(record), record.batches.start_ns.tolist(), record.end_ns.tolist(), strict=True
    ):
        p, n = case.trace.prompt_tokens[batch], case.trace.output_tokens[batch]
        held = len(batch) * int(p.max() + n.max())
        filled = int(p.sum() + n.sum())
        computed = int(case.rounding.rows(len(batch)))
        assert case.max_kv_tokens is None or computed * int(p.max() + n.max()) <= case.max_kv_tokens
        reserved, used, largest = reserved + held, used + filled, max(largest, held)
        seconds[0] += held * (end - start) / 1e9
        seconds[1] += filled * (end - start) / 1e9
    kv = waste(record).kv
    assert (kv.reserved_tokens, kv.used_tokens, kv.largest_batch_tokens) == (reserved, used, largest)
    assert [kv.reserved_token_s, kv.used_token_s] == pytest.approx(seconds, rel=1e-12)


small = st.integers(0, 40)
LINES = st.lists(
    st.tuples(st.integers(1, 9), small, small, st.integers(1, 30), st.integers(0, 60)), min_size=1
)


@MANY
@given(LINES, MODELS)
def test_sums_along_lines_are_those_of_their_steps(rows: list[tuple[int, ...]], model: Any) -> None:
    lines = Lines(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    explicit = [
        sum(float(model.seconds(own_decode([b], [kv + b * k], [c + k]))[0]) for k in range(first, last + 1))
        * 1e9
        for b, kv, c, first, last in rows
    ]
    assert line_sums_ns(model, lines) == pytest.approx(explicit, rel=1e-8)


def test_a_line_that_bends_is_summed_exactly() -> None:
    """A floor under the line, left in the middle of a long run of steps."""
    bent = Toy("bent", lambda s: np.maximum(5e-3, 1e-6 * s.decode_kv_tokens))
    lines = Lines(*(np.array([value], np.int64) for value in (4, 400, 100, 1, 3000)))
    explicit = sum(max(5e-3, 1e-6 * (400 + 4 * k)) for k in range(1, 3001)) * 1e9
    assert line_sums_ns(bent, lines).tolist() == pytest.approx([explicit], rel=1e-9)


VALUES = st.lists(st.integers(0, 10**15), max_size=60)


@MANY
@given(VALUES)
def test_summary_is_numpy_s(values: list[int]) -> None:
    assert same_as_numpy(summary(np.array(values, np.int64)), values)


@MANY
@given(st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 5)), max_size=30))
def test_weighted_summary_is_that_of_the_column_written_out(pairs: list[tuple[int, int]]) -> None:
    values, counts = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    assert same_as_numpy(weighted_summary(values, counts), np.repeat(values, counts).tolist())


def test_sums_of_a_million_saturated_requests_do_not_overflow() -> None:
    days = np.full(2_000_000, 60 * 86_400 * 10**9, np.int64)
    assert summary(days)["mean"] == 60 * 86_400
    assert weighted_summary(days[:1], np.array([2_000_000]))["mean"] == 60 * 86_400


def test_percentiles_are_linear() -> None:
    found = summary(np.arange(1, 101) * 10**9)
    assert [found[name] for name in ("mean", "p50", "p99")] == [50.5, 50.5, 99.01]


@pytest.mark.parametrize("rows", [3, 70_000])
def test_blocks_of_the_ledger_join_without_a_seam(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    n = 400
    trace: Trace = trace_of([0] * n, rng.integers(1, 30, n).tolist(), rng.integers(1, 30, n).tolist())
    record = run(trace, 7, model=FLOOR)
    prices = Prices.for_trace(trace, FLOOR)
    whole = ledger(record, prices)
    monkeypatch.setattr("sim.record.BLOCK_ROWS", rows)
    assert ledger(record, prices).lines_ns == pytest.approx(whole.lines_ns, abs=2)
