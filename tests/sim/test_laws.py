"""The laws of a run, over random traces, policies and cost models. Monotone costs and the engine's tokens are
held elsewhere."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.executor import Simulated
from sim.ledger import ledger
from sim.metrics import latency, latency_columns, throughput
from sim.policy import StaticBatching, Take, Wait
from sim.pricing import Prices
from sim.queue import Waiting
from sim.record import COMPLETED, FULL, STATUSES, TIMER, RunRecord, broken_laws
from sim.server import serve
from sim.step import EXACT
from sim.store import save
from sim.waste import waste
from tests.sim.worked import (
    AFFINE,
    ANY_POLICY,
    CASES,
    K1,
    MODELS,
    MS,
    Case,
    Choosy,
    S,
    members,
    run,
    trace_of,
    traces,
)
from traces.load import load
from traces.trace import Ints, Trace
from traces.write import write

ROOT = Path(__file__).resolve().parents[2]
LAW = settings(max_examples=150, deadline=None)


@dataclass(frozen=True)
class ShortestFirst:
    """Takes the shortest prompts that wait: looks at every length it may see."""

    size: int
    wait_ns: int

    def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
        due = queue.oldest_arrival_ns + self.wait_ns
        if len(queue) < self.size and now_ns < due:
            return Wait(due, self.size)
        shortest = np.argsort(queue.prompt_tokens(), kind="stable")[: self.size]
        return Take(sorted(shortest.tolist()), FULL if len(shortest) == self.size else TIMER)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "shortest first"}


def sound(record: RunRecord, trace: Trace) -> None:
    """Laws 1 and 2, spelled out beside the check that records carry with them."""
    assert broken_laws(record) == []
    assert len(record.requests.status) == len(trace)
    assert sum(record.count(status) for status in range(len(STATUSES))) == len(trace)
    assert len(set(record.rows.request.tolist())) == len(record.rows.request) == record.count(COMPLETED)
    last = iter(record.rows.last_token_ns.tolist())
    free = -1
    for i, batch in enumerate(members(record)):
        start, first, returned = (
            int(column[i]) for column in (record.batches.start_ns, record.prefill_end_ns, record.end_ns)
        )
        assert free <= start < first
        free = returned
        for request in batch:
            assert int(trace.arrival_ns[request]) <= start
            assert first <= next(last) <= returned
        assert batch == sorted(batch)


@LAW
@given(ANY_POLICY)
def test_laws_1_and_2_every_request_once_and_in_order(case: Case) -> None:
    sound(case.record(), case.trace)


def sums_up(record: RunRecord, prices: Prices) -> None:
    found = ledger(record, prices)
    arrival = record.requests.arrival_ns.tolist()
    makespan = max(record.end_ns.tolist(), default=arrival[0]) - arrival[0]
    assert sum(found.lines_ns.values()) == found.total_ns == makespan
    assert len(found.lines_ns) == 9
    assert all(type(value) is int for value in found.lines_ns.values())
    prompts, outputs = record.requests.prompt_tokens.tolist(), record.requests.output_tokens.tolist()
    batches = members(record)
    wasted = waste(record)
    assert wasted.prefill.slots == sum(len(batch) * max(prompts[i] for i in batch) for batch in batches)
    assert wasted.prefill.wasted == wasted.prefill.slots - sum(prompts[i] for b in batches for i in b)
    assert wasted.decode.slots == sum(len(batch) * max(outputs[i] for i in batch) for batch in batches)
    assert wasted.decode.wasted == wasted.decode.slots - sum(outputs[i] for b in batches for i in b)


@LAW
@given(ANY_POLICY)
def test_law_3_ledger_and_slots_sum_up_exactly(case: Case) -> None:
    sums_up(case.record(), Prices.for_trace(case.trace, case.model, case.rounding))


def token_ns_in_system(arrival: Sequence[int], left: Sequence[int]) -> int:
    """The number in system, integrated over time: one event at a time, in Python's integers."""
    events = sorted([(t, 1) for t in arrival] + [(t, -1) for t in left])
    total = inside = 0
    before = events[0][0]
    for now, change in events:
        total += inside * (now - before)
        before, inside = now, inside + change
    assert inside == 0
    return total


def little(record: RunRecord) -> None:
    found, rates = latency(record, PRICED), throughput(record, PRICED)
    arrival = record.per_row(record.requests.arrival_ns).tolist()
    columns = latency_columns(record)
    for name, left in (("e2e", record.rows.last_token_ns), ("e2e_batch", record.spread(record.end_ns))):
        area = token_ns_in_system(arrival, left.tolist())
        assert area == sum(columns[name].tolist())
        # The two sides share nothing but the record: mean number in system = rate x mean time in it.
        mean_in_system = area / record.makespan_ns
        mean_s = found[name]["mean"]
        assert mean_s is not None
        rate = len(arrival) / (record.makespan_ns / 1e9)
        assert mean_in_system == pytest.approx(rate * mean_s, rel=1e-9, abs=rate * 1e-9)
        assert rates["completed_requests_per_s"] == pytest.approx(rate, rel=1e-9, abs=1e-9)


PRICED = Prices(K1, 10, 20)
"""Little's law does not depend on prices; gaps between tokens do, and are tested elsewhere."""


@LAW
@given(ANY_POLICY.filter(lambda case: case.max_kv_tokens is None))
def test_law_4_little(case: Case) -> None:
    little(case.record())


def test_law_5_same_seed_same_bytes_across_processes(tmp_path: Path) -> None:
    recipe = "gamma:rate=20,n=300,cv=2,prompt=lognormal:64:1.0,output=lognormal:32:0.8"
    said = []
    for i in (0, 1):
        folder = tmp_path / str(i)
        options = [
            "--max-batch",
            "8",
            "--max-wait",
            "0.3",
            "--seed",
            "5",
            "--json",
            "-",
            "--save",
            str(folder),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "sim", "run", recipe, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(i)},
            capture_output=True,
            check=True,
        )
        files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
        said.append((done.stdout, files))
    assert said[0] == said[1]
    assert json.loads(said[0][0])["requests"]["completed"] == 300


def test_law_5_a_change_of_policy_leaves_the_requests_as_they_were() -> None:
    trace = load("poisson:rate=20,n=200,prompt=lognormal:64:1.0,output=lognormal:32:0.8", seed=3)
    records = [run(trace, size, wait) for size, wait in ((1, 0), (8, None), (4, 10 * MS))]
    for record in records:
        for name, column in vars(record.requests).items():
            assert np.array_equal(column, getattr(records[0].requests, name))


def columns_of(record: RunRecord, shift_ns: int = 0) -> dict[str, list[Any]]:
    """Everything a record holds, with its clock set back."""
    parts = {**vars(record.requests), **vars(record.rows), **vars(record.batches)}
    shifted = ("arrival_ns", "last_token_ns", "start_ns")
    return {
        name: (column - shift_ns if name in shifted else column).tolist()
        for name, column in parts.items()
        if isinstance(column, np.ndarray)
    }


@LAW
@given(CASES, st.sampled_from([1, 1_787_000_000 * S, 9 * S + 1]))
def test_law_6_a_shift_of_the_clock_changes_nothing(case: Case, shift_ns: int) -> None:
    later = replace(case, trace=replace(case.trace, arrival_ns=case.trace.arrival_ns + shift_ns))
    before, after = case.record(), later.record()
    assert columns_of(before) == columns_of(after, shift_ns)
    prices = Prices.for_trace(case.trace, case.model, case.rounding)
    assert ledger(before, prices) == ledger(after, prices)
    assert latency(before, prices) == latency(after, prices)
    assert throughput(before, prices) == throughput(after, prices)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_law_6_an_exported_trace_gives_the_same_record(suffix: str, tmp_path: Path) -> None:
    trace = load("poisson:rate=20,n=200,prompt=uniform:1:50,output=uniform:1:20", seed=1)
    path = tmp_path / f"exported.{suffix}"
    write(trace, path)
    again = load(str(path))
    assert again.fingerprint == trace.fingerprint
    shift = int(trace.arrival_ns[0] - again.arrival_ns[0])
    first, second = run(trace, 8, 50 * MS, AFFINE), run(again, 8, 50 * MS, AFFINE)
    assert columns_of(first, shift) == columns_of(second)
    save(second, tmp_path / "a")
    save(run(load(str(path)), 8, 50 * MS, AFFINE), tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


@dataclass(frozen=True)
class Fixed:
    """Executor with a time for each batch size, whatever is asked of it: outputs then cannot move the clock."""

    rounding: Any = EXACT

    def run(self, requests: Sequence[int]) -> Any:
        return (0, 3 * MS + len(requests), 0, 0, None)

    def row_decode_ns(self, record: RunRecord) -> Ints:
        return np.zeros(len(record.rows.request), np.int64)


POLICIES = st.one_of(
    st.builds(StaticBatching, st.integers(1, 5), st.sampled_from([None, 0, MS, 10 * MS])),
    st.builds(ShortestFirst, st.integers(1, 5), st.sampled_from([0, MS, 10 * MS])),
    st.builds(Choosy, st.integers(0, 9), st.integers(1, 5)),
)


@LAW
@given(traces(), POLICIES, st.randoms(use_true_random=False))
def test_law_10_output_lengths_are_out_of_reach(trace: Trace, policy: Any, random: Any) -> None:
    other = replace(trace, output_tokens=np.array([random.randint(1, 99) for _ in range(len(trace))]))
    first, second = (serve(t, policy, Fixed()) for t in (trace, other))
    assert members(first) == members(second)
    assert first.batches.start_ns.tolist() == second.batches.start_ns.tolist()
    assert first.batches.closed_by.tolist() == second.batches.closed_by.tolist()


@LAW
@given(traces(), MODELS, POLICIES, st.data())
def test_law_10_the_future_is_out_of_reach(
    trace: Trace, model: Any, policy: Any, data: st.DataObject
) -> None:
    """Requests that come after a moment, whatever they are, change no batch that started before it."""
    keep = data.draw(st.integers(1, len(trace)))
    known_until = int(trace.arrival_ns[keep - 1])
    later = data.draw(traces(most=5))
    arrival = np.concatenate(
        [trace.arrival_ns[:keep], known_until + 1 + later.arrival_ns - later.arrival_ns[0]]
    )
    changed = trace_of(
        arrival.tolist(),
        np.concatenate([trace.prompt_tokens[:keep], later.prompt_tokens]).tolist(),
        np.concatenate([trace.output_tokens[:keep], later.output_tokens]).tolist(),
    )
    # What both share ends with the first arrival that only one of them has.
    shared = min(
        int(trace.arrival_ns[keep]) if keep < len(trace) else known_until, int(changed.arrival_ns[keep])
    )
    if keep == len(trace):
        shared = known_until  # from here on one of the two streams has ended
    records = [serve(t, policy, Simulated(t, model)) for t in (trace, changed)]
    decided = [
        [
            (start, batch, why)
            for start, batch, why in zip(
                record.batches.start_ns.tolist(),
                members(record),
                record.batches.closed_by.tolist(),
                strict=True,
            )
            if start < shared
        ]
        for record in records
    ]
    assert decided[0] == decided[1]


def test_a_policy_is_told_neither_outputs_nor_what_comes_later() -> None:
    seen: list[set[str]] = []

    class Curious(StaticBatching):
        def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
            seen.append({name for name in dir(queue) if not name.startswith("_")})
            assert [len(queue), queue.oldest_arrival_ns, queue.fitting(9)] == [2, 5, 2]
            assert queue.prompt_tokens().tolist() == [7, 8]
            queue.prompt_tokens()[:] = 0
            assert queue.prompt_tokens().tolist() == [7, 8]
            return Take(len(queue), FULL)

    serve(trace_of([5, 5], [7, 8], [3, 9]), Curious(), Fixed())
    assert seen == [{"fitting", "oldest_arrival_ns", "prompt_tokens"}]
