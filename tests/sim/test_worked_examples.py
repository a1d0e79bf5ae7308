"""Batches small enough to do on paper, and faults that people reported of similar tools."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sim.batching import Batching
from sim.executor import Simulated
from sim.ledger import ledger
from sim.metrics import batches, latency, latency_columns, requests, throughput, tokens_while_waiting
from sim.policy import StaticBatching, Take, Wait
from sim.pricing import Prices
from sim.queue import Waiting
from sim.record import FULL, RunRecord
from sim.run import capacity, results, simulate
from sim.server import serve
from sim.step import Rounding, batch_steps
from sim.waste import waste
from tests.sim.worked import AFFINE, K1, MS, TEXTBOOK, S, Scripted, Toy, members, run, trace_of
from traces.trace import Trace


def k1_prices(trace: Trace) -> Prices:
    return Prices.for_trace(trace, K1)


def test_the_textbook_batch() -> None:
    record = run(TEXTBOOK, 4)
    wasted = waste(record)
    assert (wasted.prefill.slots, wasted.prefill.wasted) == (120, 55)
    assert (wasted.decode.slots, wasted.decode.wasted) == (80, 23)
    assert f"{wasted.prefill.fraction:.0%} {wasted.decode.fraction:.0%}" == "46% 29%"
    assert len(batch_steps(4, 30, 20)) == 1 + 19
    # 120 ms of prefill, of which 55 pad; 19 steps of 10 ms, one row or four alike.
    lines = ledger(record, k1_prices(TEXTBOOK)).lines_ns
    assert {name: value for name, value in lines.items() if value} == {
        "useful_prefill": 65 * MS,
        "prefill_padding": 55 * MS,
        "useful_decode": 190 * MS,
    }
    # 4 rows of up to 30 + 20 tokens reserved; 65 + 57 of the 200 used.
    kv = wasted.kv
    assert (kv.reserved_tokens, kv.used_tokens, kv.largest_batch_tokens) == (200, 122, 200)
    assert kv.reserved_token_s == pytest.approx(200 * 0.31)


def test_the_textbook_batch_where_rows_and_context_cost() -> None:
    """1 ms a decoding row and 1 us a key-value slot: every line of the ledger by hand."""
    model = Toy("rows", lambda s: 1e-3 * (s.prefill_tokens + s.decode_rows) + 1e-6 * s.decode_kv_tokens)
    found = ledger(run(TEXTBOOK, 4, model=model), Prices.for_trace(TEXTBOOK, model))
    # Contexts 30 + k, k = 1..19, sum 760. Rows still running: 4 for k < 10, 3 below 12, 2 below 15, then 1.
    running = [4] * 9 + [3] * 2 + [2] * 3 + [1] * 5
    padded = sum(rows * (30 + k) for k, rows in enumerate(running, start=1))
    own = sum(10 + k for k in range(1, 15)) + sum(30 + k for k in range(1, 10))
    own += sum(5 + k for k in range(1, 20)) + sum(20 + k for k in range(1, 12))
    assert (sum(running), padded, own) == (53, 1996, 1131)
    assert found.lines_ns["idle_rows"] == (4 * 19 - 53) * MS + (4 * 760 - padded) * 1000
    assert found.lines_ns["padded_context"] == (padded - own) * 1000
    assert found.lines_ns["useful_decode"] == 53 * MS + own * 1000
    all_rows = 19 * (10 + 30 + 5 + 20) + 4 * 190
    assert found.reverse_ns == {
        "padded_context": (4 * 760 - all_rows) * 1000,
        "idle_rows": (4 * 19 - 53) * MS + (all_rows - own) * 1000,
    }


def test_k1() -> None:
    trace = trace_of([0] * 4, 10, [2, 2, 2, 100])
    record = run(trace, 4)
    assert record.makespan_ns == 1030 * MS
    assert (record.batches.prefill_ns.tolist(), record.batches.decode_ns.tolist()) == ([40 * MS], [990 * MS])
    decode = waste(record).decode
    assert (decode.wasted, decode.slots) == (294, 400)
    rates = throughput(record, k1_prices(trace))
    assert rates["output_tokens_per_s"] == pytest.approx(102.9, abs=0.05)
    assert rates["computed_output_slots_per_s"] == pytest.approx(388.3, abs=0.05)
    # A finished row is still computed: the longest alone decodes just as long.
    assert run(trace_of([0], 10, 100), 1).batches.decode_ns.tolist() == [990 * MS]
    padding = waste(run(trace_of([0] * 4, [10, 10, 10, 100]), 4)).prefill
    assert (padding.slots, padding.useful, padding.wasted) == (400, 130, 270)


def test_a_short_row_is_done_at_its_own_token_and_when_its_batch_returns() -> None:
    trace = trace_of([0] * 4, 10, [2, 2, 2, 100])
    columns = latency_columns(run(trace, 4))
    assert columns["e2e"].tolist() == [50 * MS] * 3 + [1030 * MS]
    assert columns["e2e_batch"].tolist() == [1030 * MS] * 4


def test_the_first_token_s_time_is_no_gap() -> None:
    trace = trace_of([0], 500, 3)
    record = run(trace, 1)
    found = latency(record, k1_prices(trace))
    assert found["ttft"]["mean"] == 0.5
    assert list(found["itl"].values()) == [0.01] * 5


def step_table(**seconds: float) -> Toy:
    """A decode step's seconds by its longest context: c11=0.1 says 100 ms at context 11."""

    def price(steps: Any) -> Any:
        found = np.full(np.shape(steps.decode_rows), 1e-3)
        for name, value in seconds.items():
            found = np.where(steps.max_context_tokens == int(name[1:]), value, found)
        return found

    return Toy("table", price)


def test_gaps_are_pooled_over_gaps_and_tpot_over_requests() -> None:
    trace = trace_of([0, S], [10, 20], [2, 11])
    model = step_table(c11=0.1, **{f"c{c}": 0.01 for c in range(21, 31)})
    found = latency(run(trace, 1, model=model), Prices.for_trace(trace, model))
    assert found["tpot"]["mean"] == 0.055
    assert found["itl"]["mean"] == pytest.approx(0.2 / 11, abs=1e-9)


def test_tpot_divides_by_the_gaps_there_were() -> None:
    trace = trace_of([0], 10, 11)
    found = latency(run(trace, 1), k1_prices(trace))
    assert found["tpot"]["mean"] == 0.01
    one_token = trace_of([0], 10, 1)
    assert set(latency(run(one_token, 1), k1_prices(one_token))["tpot"].values()) == {None}
    assert len(latency_columns(run(trace_of([0, 0], 10, [1, 3]), 2))["tpot"]) == 1


def test_two_rates_that_are_easily_taken_for_each_other() -> None:
    """190 tokens in 4409.816 ms, 3751.546 ms of it after the first: 43.09 per second, and 50.38 decoding."""
    trace = trace_of([0], 10, 190)
    step_s = 3.751546 / 189
    model = Toy("whole", lambda s: np.where(s.decode_rows > 0, step_s, 0.65827))
    record = run(trace, 1, model=model)
    prices = Prices.for_trace(trace, model)
    assert throughput(record, prices)["output_tokens_per_s"] == pytest.approx(43.09, abs=0.005)
    tpot = latency(record, prices)["tpot"]["mean"]
    assert tpot is not None
    assert 1 / tpot == pytest.approx(50.38, abs=0.005)


def test_a_long_tail_alone_does_not_hide_the_rate_while_requests_waited() -> None:
    """Two full batches of short answers, then one long one with nobody waiting."""
    trace = trace_of([0] * 5, 1, [2, 2, 2, 2, 101])
    prices = k1_prices(trace)
    record = run(trace, 2)
    # 12 ms a batch of two: 24 ms in which the queue was not empty, and 1001 ms of tail.
    rates = throughput(record, prices)
    assert tokens_while_waiting(record, prices) == (8, 24 * MS)
    assert rates["output_tokens_per_s_while_waiting"] == pytest.approx(8 / 0.024)
    assert rates["output_tokens_per_s"] == pytest.approx(109 / 1.025)
    assert rates["makespan_s"] == 1.025


@pytest.mark.parametrize(
    ("since_ms", "tokens"), [(0, 5), (9, 5), (10, 4), (11, 4), (20, 3), (49, 1), (50, 0)]
)
def test_a_token_that_comes_out_as_the_wait_begins_came_before_it(since_ms: int, tokens: int) -> None:
    """Tokens at 10, 20, ... 50 ms; a request waits from some moment, not included, until 50 ms, included."""
    trace = trace_of([0, since_ms * MS], [10, 1], [5, 1])
    found = tokens_while_waiting(run(trace, 1), k1_prices(trace))
    assert found == (tokens, (50 - since_ms) * MS)


def test_queue_ttft_and_e2e_are_in_one_unit_and_order() -> None:
    trace = trace_of([0, MS, 2 * MS], [3, 9, 4], [5, 1, 7])
    columns = latency_columns(run(trace, 2, 5 * MS, AFFINE))
    for name, next_name in (("queue", "ttft"), ("ttft", "e2e"), ("e2e", "e2e_batch")):
        assert np.all(columns[name] <= columns[next_name])
    assert np.array_equal(columns["queue"], columns["forming"] + columns["backlog"])


def test_a_replay_serves_exactly_the_rows_of_the_file() -> None:
    rng = np.random.default_rng(0)
    trace = trace_of(np.sort(rng.integers(0, S, 500)).tolist(), rng.integers(1, 9, 500).tolist(), 3)
    record = run(trace, 7, 10 * MS)
    assert record.rows.request.tolist() == list(range(500))
    assert np.array_equal(record.requests.source_row, np.arange(500))


class LongestFirst:
    """Two of like length together: the longest prompts that wait."""

    def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
        longest = np.argsort(-queue.prompt_tokens(), kind="stable")[:2]
        return Take(sorted(longest.tolist()), FULL)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "longest first"}


def test_grouping_by_length_saves_padding_and_results_stay_in_the_trace_s_order() -> None:
    trace = trace_of([0] * 4, [100, 10, 90, 20], [1, 2, 3, 4])
    assert waste(run(trace, 2)).prefill.wasted == 160
    record = serve(trace, LongestFirst(), Simulated(trace, K1))
    assert members(record) == [[0, 2], [1, 3]]
    assert waste(record).prefill.wasted == 20
    assert record.requests.source_row.tolist() == [0, 1, 2, 3]
    assert record.requests.prompt_tokens.tolist() == [100, 10, 90, 20]
    # Each row's own last token: 200 ms of prefill, 10 ms a step; then 40 ms and 10 ms a step.
    ends = dict(zip(record.rows.request.tolist(), (record.rows.last_token_ns // MS).tolist(), strict=True))
    assert ends == {0: 200, 2: 220, 1: 270, 3: 290}


def per_second(rate: float) -> Trace:
    return trace_of([round(i * S / rate) for i in range(round(300 * rate))])


def served_at_ten_a_second(trace: Trace) -> tuple[RunRecord, Any]:
    """Batches of up to 4 in 400 ms: capacity 10 a second."""
    model = Toy("400 ms", lambda s: np.full(np.shape(s.decode_rows), 0.4))
    batching = Batching(4, 0.0)
    record = serve(trace, batching.policy(), Scripted(lambda batch: 400 * MS))
    return record, capacity(record, trace, batching, model, None)


def test_a_server_asked_for_more_than_it_can_says_so() -> None:
    record, limit = served_at_ten_a_second(per_second(12))
    assert limit.requests_per_s == pytest.approx(10)
    assert limit.saturated
    # The queue grows by two a second: some 600 wait when the last one comes.
    last = int(record.requests.arrival_ns[-1])
    waiting = int((record.spread(record.batches.start_ns) > last).sum())
    assert 590 <= waiting <= 610
    record, limit = served_at_ten_a_second(per_second(8))
    assert not limit.saturated
    assert latency_columns(record)["queue"].max() <= 400 * MS


def test_what_is_rejected_is_not_asked_of_the_server() -> None:
    """Twelve come a second, every other one too long for memory: six a second are no load for ten."""
    trace = trace_of(per_second(12).arrival_ns.tolist(), [1, 99] * 1800)
    model = Toy("400 ms", lambda s: np.full(np.shape(s.decode_rows), 0.4))
    batching = Batching(4, 0.0)
    record = simulate(trace, batching, model, max_kv_tokens=50)
    limit = capacity(record, trace, batching, model, 50)
    assert limit is not None
    assert limit.requests_per_s == pytest.approx(10)
    assert not limit.saturated


def test_capacity_is_of_the_batches_that_are_served() -> None:
    """Short and long take turns: K1 needs 2 x 9 ms of prefill for each two of them, whatever order rows had."""
    trace = replace(
        trace_of([i * S for i in range(4)], [1, 9, 1, 9], 1), source_row=np.array([0, 2, 1, 3]), moved_rows=1
    )
    record = run(trace, 2)
    limit = capacity(record, trace, Batching(2), K1, None)
    assert limit is not None
    assert limit.requests_per_s == pytest.approx(4 / 36e-3)


def test_capacity_is_of_the_run_s_own_rounding() -> None:
    trace = trace_of([i * S for i in range(8)], 1, 1)
    batching = Batching(4, 0.0)
    record = simulate(trace, batching, K1, rounding=Rounding((8,)))
    limit = capacity(record, trace, batching, K1, None)
    assert limit is not None
    assert limit.requests_per_s == pytest.approx(4 / 8e-3)


def test_dummy_rows_are_a_line_of_their_own() -> None:
    trace = trace_of([0] * 9, 10, 3)
    rounding = Rounding((2, 8, 32))
    record = run(trace, 9, rounding=rounding)
    found = ledger(record, Prices.for_trace(trace, K1, rounding))
    assert found.lines_ns["dummy_rows"] == 23 * 10 * MS
    assert waste(record).dummy_rows == 23
    assert waste(record).prefill.slots == 90
    assert batches(record)["size_histogram"] == {"9": 1}


def test_dummy_rows_take_memory_like_any_other() -> None:
    """Ten tokens a row, room for forty: three rows would be eight with their dummies, and one of 25 is two."""
    trace = trace_of([0] * 5, [5, 5, 5, 5, 20], 5)
    record = run(trace, 8, max_kv_tokens=40, rounding=Rounding((2, 8)))
    assert members(record) == [[0, 1], [2, 3]]
    assert requests(record)["rejected"] == 1
    assert batches(record)["closed_by"]["memory"] == 1
    record = run(trace, 8, max_kv_tokens=50, rounding=Rounding((4, 8)))
    assert members(record) == [[0, 1, 2, 3]]


def test_why_batches_closed_is_counted() -> None:
    record = serve(
        trace_of([0, 0, 0, S, S, S], [1, 1, 1, 1, 1, 40]),
        StaticBatching(2, MS),
        Scripted(lambda b: 9 * MS),
        max_kv_tokens=45,
    )
    assert members(record) == [[0, 1], [2], [3, 4], [5]]
    assert batches(record) == {
        "count": 4,
        "closed_by": {"full": 2, "timer": 2, "end": 0, "memory": 0},
        "size_histogram": {"1": 2, "2": 2},
    }


def test_the_document_is_json_that_sums_up() -> None:
    trace = trace_of([0, 0, 5 * MS, S], [3, 9, 4, 2], [5, 1, 7, 2])
    batching = Batching(2, 0.01)
    record = simulate(trace, batching, AFFINE)
    document = results(
        record, Prices.for_trace(trace, AFFINE), capacity(record, trace, batching, AFFINE, None)
    )
    text = json.dumps(document.to_json(), allow_nan=False)
    again = json.loads(text)
    keys = ("setup", "requests", "batches", "waste", "ledger_s", "latency_s", "throughput")
    assert set(keys) <= set(again)
    assert len(again["ledger_s"]) == 9
    assert sum(again["ledger_s"].values()) == pytest.approx(again["throughput"]["makespan_s"], abs=1e-8)
    assert again["throughput"]["makespan_s"] == record.makespan_ns / 1e9
