"""Records of measured runs: stored steps, two clocks, and batches that gave no answer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sim.executor import BatchTimes, MeasuredBatch, measured_row_decode_ns
from sim.ledger import ledger
from sim.metrics import latency, requests, throughput, tokens_while_waiting
from sim.passes import token_gaps
from sim.policy import StaticBatching
from sim.pricing import Prices
from sim.record import COMPLETED, UNFINISHED, RunRecord, broken_laws
from sim.server import serve
from sim.step import EXACT
from sim.store import load, save
from sim.waste import waste
from tests.sim.worked import K1, MS, batch_ns, members, run, trace_of
from traces.errors import InputError
from traces.trace import Ints, Trace

Clock = Literal["wall", "cpu"]


class Replay:
    """An executor that brings home steps as an engine does: K1's, each one slower than the last; some fail."""

    rounding = EXACT

    def __init__(self, trace: Trace, failing: Sequence[int] = (), clock: Clock = "wall") -> None:
        self.trace = trace
        self.failing = failing
        self.clock = clock
        self.batches = 0

    def run(self, batch: Sequence[int]) -> BatchTimes:
        self.batches += 1
        if self.batches - 1 in self.failing:
            nothing = np.empty(0, np.int64)
            failed = MeasuredBatch(nothing, nothing, 1 << 20, "out of memory: 2 rows")
            return BatchTimes(7 * MS, 0, 0, 0, failed)
        wall = batch_ns(K1, self.trace, batch)
        wall = wall + np.arange(len(wall))
        steps = wall if self.clock == "wall" else wall // 2
        measured = MeasuredBatch(wall, wall // 2, 1 << 20)
        return BatchTimes(MS, int(steps[0]), int(steps[1:].sum()), 2 * MS, measured)

    def row_decode_ns(self, record: RunRecord) -> Ints:
        return measured_row_decode_ns(record, self.clock)


TRACE = trace_of([0, 0, 5 * MS, 9 * MS, 9 * MS, 400 * MS], [3, 2, 4, 1, 2, 2], [2, 5, 3, 1, 4, 2])


def measured(failing: Sequence[int] = (), clock: Clock = "wall") -> RunRecord:
    setup = {"kind": "measured", "clock": clock}
    return serve(TRACE, StaticBatching(2, 10 * MS), Replay(TRACE, failing, clock), setup=setup)


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_tokens_and_gaps_come_from_the_stored_steps(clock: Clock) -> None:
    record = measured(clock=clock)
    assert broken_laws(record) == []
    gaps = []
    for batch, first in zip(members(record), record.prefill_end_ns.tolist(), strict=True):
        steps = batch_ns(K1, TRACE, batch)
        steps = steps + np.arange(len(steps))
        ends = np.concatenate([[0], np.cumsum(steps[1:] if clock == "wall" else steps[1:] // 2)])
        for request in batch:
            own = ends[: TRACE.output_tokens[request]]
            place = record.rows.request.tolist().index(request)
            assert record.rows.last_token_ns[place] == first + own[-1]
            gaps += np.diff(own).tolist()
    values, counts = token_gaps(record, None)
    assert sorted(np.repeat(values, counts).tolist()) == sorted(gaps)


def test_a_measured_run_of_modelled_steps_has_the_ledger_of_the_simulated_one() -> None:
    trace = trace_of([0, 0, 5 * MS, 9 * MS], [3, 2, 4, 1], [2, 5, 3, 1])

    class Exact(Replay):
        def run(self, batch: Sequence[int]) -> BatchTimes:
            steps = batch_ns(K1, self.trace, batch)
            kept = MeasuredBatch(steps, None, None)
            return BatchTimes(0, int(steps[0]), int(steps[1:].sum()), 0, kept)

    simulated = run(trace, 2, 10 * MS)
    replayed = serve(trace, StaticBatching(2, 10 * MS), Exact(trace), setup={"clock": "wall"})
    prices = Prices.for_trace(trace, K1)
    assert replayed.end_ns.tolist() == simulated.end_ns.tolist()
    assert replayed.rows.last_token_ns.tolist() == simulated.rows.last_token_ns.tolist()
    assert ledger(replayed, prices) == ledger(simulated, prices)
    assert latency(replayed, None) == latency(simulated, prices)
    assert throughput(replayed, None) == throughput(simulated, prices)


def test_a_measured_batch_is_split_in_the_shares_of_the_model() -> None:
    record = measured()
    prices = Prices.for_trace(TRACE, K1)
    found = ledger(record, prices)
    assert found.total_ns == record.makespan_ns
    modelled = ledger(run(TRACE, 2, 10 * MS), prices)
    # All prefills take what K1 says; decodes a few ns more, which every line shares.
    assert found.lines_ns["prefill_padding"] == modelled.lines_ns["prefill_padding"]
    assert found.lines_ns["useful_decode"] == record.batches.decode_ns.sum()
    assert found.lines_ns["batch_overhead"] == 3 * MS * len(record.batch_rows)


def test_a_failed_batch_gives_no_answer_and_the_run_goes_on() -> None:
    record = measured(failing=[1])
    assert broken_laws(record) == []
    assert members(record) == [[0, 1], [2, 3], [4], [5]]
    assert record.requests.status.tolist() == [
        COMPLETED,
        COMPLETED,
        UNFINISHED,
        UNFINISHED,
        COMPLETED,
        COMPLETED,
    ]
    assert requests(record) == {
        "in": 6,
        "completed": 4,
        "rejected": 0,
        "timed_out": 0,
        "unfinished": 2,
    }
    assert waste(record).prefill.slots == 2 * 3 + 2 + 2
    assert throughput(record, None)["output_tokens_per_s"] == pytest.approx(
        (2 + 5 + 4 + 2) / (record.makespan_ns / 1e9)
    )
    assert throughput(record, None)["computed_output_slots_per_s"] == pytest.approx(
        (2 * 5 + 4 + 2) / (record.makespan_ns / 1e9)
    )
    found = ledger(record, Prices.for_trace(TRACE, K1))
    assert found.total_ns == record.makespan_ns
    # Those of the failed batch wait no more: the quiet before the last arrival has no work.
    assert found.lines_ns["no_work"] == 400 * MS - int(record.end_ns[2])
    assert found.lines_ns["forming"] == 10 * MS
    assert tokens_while_waiting(record, None)[0] <= 13


def test_when_every_batch_fails_there_is_a_record_of_it() -> None:
    record = measured(failing=range(9))
    assert broken_laws(record) == []
    assert record.count(UNFINISHED) == 6
    assert latency(record, None)["ttft"]["mean"] is None
    assert latency(record, None)["itl"]["mean"] is None
    found = ledger(record, Prices.for_trace(TRACE, K1))
    assert found.total_ns == record.makespan_ns
    assert throughput(record, None)["output_tokens_per_s"] == 0


@pytest.mark.parametrize("failing", [[], [1], range(9)])
def test_measured_records_come_back_from_disk(failing: Sequence[int], tmp_path: Path) -> None:
    record = measured(failing)
    save(record, tmp_path / "a")
    again = load(tmp_path / "a")
    save(again, tmp_path / "b")
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    assert record.measured is not None
    assert again.measured is not None
    assert again.measured.failed == record.measured.failed
    assert np.array_equal(again.measured.step_wall_ns, record.measured.step_wall_ns)
    for name, column in vars(replace(again).measured).items():
        if isinstance(column, np.ndarray):
            assert np.array_equal(column, getattr(record.measured, name))


def change(folder: Path, name: str, edit: Callable[[Any], Any]) -> None:
    path = folder / name
    if name.endswith(".json"):
        path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    else:
        pq.write_table(edit(pq.read_table(path)), path)


def more_passes(table: pa.Table) -> pa.Table:
    """One pass moved from the first batch to the second."""
    passes = table.column("passes").to_pylist()
    passes[:2] = [passes[0] - 1, passes[1] + 1]
    return table.set_column(table.column_names.index("passes"), "passes", pa.array(passes))


@pytest.mark.parametrize(
    ("name", "edit", "said"),
    [
        ("steps.parquet", None, "disagree on whether this run was measured"),
        ("batches.parquet", lambda table: table.drop_columns(["passes"]), "disagree on whether"),
        ("steps.parquet", lambda table: table.slice(1), "passes"),
        ("batches.parquet", more_passes, "not as many passes as its longest output"),
        (
            "setup.json",
            lambda document: {**document, "failed": {"9": "why"}},
            "says that batch 9 failed, of 4",
        ),
        ("setup.json", lambda document: {**document, "failed": {"-1": "why"}}, "says that batch -1 failed"),
        ("setup.json", lambda document: {**document, "failed": {"x": "why"}}, "damaged record"),
        ("setup.json", lambda document: {**document, "failed": ["x"]}, "damaged record"),
    ],
)
def test_damaged_measured_records_are_one_line(name: str, edit: Any, said: str, tmp_path: Path) -> None:
    save(measured(), tmp_path / "r")
    if edit is None:
        (tmp_path / "r" / name).unlink()
    else:
        change(tmp_path / "r", name, edit)
    with pytest.raises(InputError, match=said) as error:
        load(tmp_path / "r")
    assert "\n" not in str(error.value)
