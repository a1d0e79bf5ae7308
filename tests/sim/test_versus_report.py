"""Tables of simulated against measured: what stands in them, and that no number is ever cut."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from sim.batching import Batching
from sim.errors import Noise, Pair, Times
from sim.ledger import LINES
from sim.report import LATENCY_NAMES
from sim.speedup import CurvePoint, EngineRun
from sim.versus import Batch, BatchScore, StepScore, Versus, step_scores, versus
from sim.versus_report import (
    batches_table,
    curve_note,
    curve_table,
    engines_table,
    facts_table,
    inside,
    latency_table,
    ledger_table,
    markdown,
    models_table,
    split_table,
    steps_table,
    textbook_bars,
    throughput_table,
    waste_table,
)
from tests.sim.beside import LINE, measured, simulated
from tests.sim.worked import MS, TEXTBOOK, trace_of
from traces.tables import percent
from traces.trace import Trace

TRACE = trace_of([0, 0, 5 * MS, 9 * MS, 9 * MS, 400 * MS], [3, 2, 4, 1, 2, 2], [2, 5, 3, 1, 4, 2])
HOW = Batching(2, 10e-3)


def found(*factors: float) -> Versus:
    repeats = [measured(TRACE, HOW, LINE, lambda batch, f=f: f) for f in factors]  # type: ignore[misc]
    return versus(simulated(TRACE, HOW, LINE), repeats, LINE)


def cells(table: Table) -> list[list[str]]:
    """The table as plain text, row by row, as it was made."""
    return [list(row) for row in zip(*([str(cell) for cell in c.cells] for c in table.columns), strict=True)]


def printed(*parts: Any, width: int = 80, encoding: str | None = None) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding) if encoding else io.StringIO()
    console = Console(file=stream, width=width)
    for part in parts:
        console.print(part)
    if isinstance(stream, io.StringIO):
        return stream.getvalue()
    stream.flush()
    return stream.buffer.getvalue().decode(encoding or "")


def titles(trace: Trace, rows: int) -> list[str]:
    record = simulated(trace, Batching(rows, at_once=True), LINE)
    return [str(column.header) for column in textbook_bars(record).columns]


def test_the_textbook_percentages() -> None:
    assert titles(TEXTBOOK, 4) == ["request", "prefill padding 55/120 = 46 %", "decode idle 23/80 = 29 %"]


def test_the_percentages_are_computed_from_the_batch() -> None:
    """Another prompt and another answer: 4 x 40 - 75 of 160, and 4 x 20 - 62 of 80."""
    other = trace_of([0, 0, 0, 0], [10, 40, 5, 20], [20, 10, 20, 12])
    assert titles(other, 4)[1:] == ["prefill padding 85/160 = 53 %", "decode idle 18/80 = 22 %"]
    # In twos, the first batch alone: 60 - 40 of 60, 30 - 25 of 30.
    assert titles(TEXTBOOK, 2)[1:] == ["prefill padding 20/60 = 33 %", "decode idle 5/30 = 17 %"]


def test_the_bars_are_the_slots() -> None:
    record = simulated(TEXTBOOK, Batching(4, at_once=True), LINE)
    rows = cells(textbook_bars(record))
    assert [row[0] for row in rows] == ["10 + 15", "30 + 10", "5 + 20", "20 + 12"]
    assert [(row[1].count("#"), len(row[1])) for row in rows] == [(10, 30), (30, 30), (5, 30), (20, 30)]
    assert [(row[2].count("#"), len(row[2])) for row in rows] == [(15, 20), (10, 20), (20, 20), (12, 20)]


def test_waste_is_exact_on_both_sides() -> None:
    both = [simulated(TEXTBOOK, Batching(4, at_once=True), LINE)]
    repeat = measured(TEXTBOOK, Batching(4, at_once=True), LINE)
    rows = {row[0]: row[1:3] for row in cells(waste_table(versus(both[0], [repeat], LINE)))}
    assert rows == {
        "prefill slots": ["120", "120"],
        "prefill padding": ["55", "55"],
        "decode slots": ["80", "80"],
        "decode idle": ["23", "23"],
        "prefill waste": ["45.8 %", "45.8 %"],
        "decode waste": ["28.7 %", "28.7 %"],
        "batches formed identically": ["yes", ""],
    }
    other = measured(TEXTBOOK, Batching(2, at_once=True), LINE)
    rows = {row[0]: row[1:3] for row in cells(waste_table(versus(both[0], [other], LINE)))}
    assert rows["batches formed identically"] == ["no", ""]
    assert rows["prefill padding"] == ["55", "35"]


def test_every_latency_has_its_statistics_with_error_and_spread() -> None:
    comparison = found(1.0, 1.1, 1.3)
    rows = cells(latency_table(comparison))
    assert [row[0] for row in rows if row[0]] == list(LATENCY_NAMES.values())
    assert len(rows) == 4 * len(LATENCY_NAMES)
    ttft = next(row for row in rows if row[0] == LATENCY_NAMES["ttft"])
    pair = comparison.latency["ttft"]["mean"]
    assert ttft[4:] == [percent(pair.error, True), percent(pair.spread), inside(pair.inside)]
    assert ttft[4].startswith("-")


def test_an_error_inside_the_spread_is_marked_in_every_table() -> None:
    near, far = found(0.9, 1.0, 1.2), found(2.0, 2.0001)
    for make in (latency_table, throughput_table, ledger_table):
        assert "in noise" in {row[-1] for row in cells(make(near))}
    throughput = {row[0]: row for row in cells(throughput_table(far))}
    assert throughput["busy, s"][-1] == ""
    assert throughput["busy, s"][3].startswith("-")
    assert (inside(True), inside(False), inside(None)) == ("in noise", "", "")


def test_without_repeats_nothing_is_marked_and_the_spread_is_na() -> None:
    single = found(1.0)
    for make in (latency_table, throughput_table, ledger_table, waste_table):
        assert "in noise" not in {row[-1] for row in cells(make(single))}
    assert {row[-2] for row in cells(latency_table(single))} == {"n/a"}


def test_the_shares_of_the_ledger_add_up() -> None:
    rows = cells(ledger_table(found(1.0, 1.2, 1.5)))
    assert [row[0] for row in rows] == [line.replace("_", " ") for line in LINES]
    for side in (2, 4):
        assert sum(float(row[side].removesuffix(" %")) for row in rows) == pytest.approx(100, abs=0.5)


def test_the_terms_of_the_split_are_signed() -> None:
    rows = cells(split_table(found(3.0)))
    assert [row[0] for row in rows] == [LATENCY_NAMES[name] for name in ("queue", "ttft", "e2e_batch")]
    assert rows[0][2] == "0 s"
    assert rows[1][2].startswith("-")
    faster = cells(split_table(found(0.5)))
    assert faster[1][2].startswith("+")


def times(simulated_s: float, *repeats_s: float) -> Times:
    return Times(np.array([simulated_s]), [np.array(repeats_s)])


def test_steps_and_models_stand_beside_their_noise() -> None:
    steps = [
        StepScore("decode", 4, times(0.0105, 0.010, 0.0101, 0.009)),
        StepScore("decode", 8, times(0.02, 0.01)),
    ]
    near, far = cells(steps_table(steps))
    assert near == [
        "decode",
        "4",
        "1",
        "10.5 ms",
        "10 ms",
        "5.0 %",
        "5.0 %",
        "+5.0 %",
        percent(Noise.of([np.array([0.010, 0.0101, 0.009])]).p95),
        "in noise",
    ]
    assert far[5:] == ["100.0 %", "100.0 %", "+100.0 %", "n/a", ""]
    one, two = cells(models_table({"grid": {"batches": times(1.1, 1, 1), "decode": times(0.5, 1, 1.001)}}))
    assert one == ["grid", "batches", "1", "10.0 %", "10.0 %", "10.0 %", "+10.0 %", "0.0 %", ""]
    assert two[:2] == ["", "decode"]


def test_whole_batches_name_the_worst_shape() -> None:
    scored = BatchScore.of(
        [
            Batch(4, 30, 20, np.array([1.0, 1.1, 0.9]), 1.01),
            Batch(2, 7, 5, np.array([1.0]), 1.5),
        ]
    )
    rows = cells(batches_table({"this trace": scored, "held out": None, "none": BatchScore.of([])}))
    assert len(rows) == 1
    assert rows[0][:2] == ["this trace", "2"]
    assert rows[0][2] == "25.5 %"
    assert rows[0][4:6] == ["50.0 %", "2 x (7 + 5)"]
    assert rows[0][-2:] == ["10.0 %", ""]


def test_engines_against_one_by_one() -> None:
    runs = [
        EngineRun("serial", 6.0, 10.0, True),
        EngineRun("padded", 2.0, 30.0, False),
        EngineRun("big", None, None, None),
    ]
    assert cells(engines_table(runs)) == [
        ["serial", "6 s", "10", "1.00 x", "yes"],
        ["padded", "2 s", "30", "3.00 x", "no"],
        ["big", "-", "-", "-", "-"],
    ]


def points(*rates: float | None) -> list[CurvePoint]:
    return [CurvePoint(2**i, Pair(100.0, rate, 0.01)) for i, rate in enumerate(rates)]


def test_the_curve_and_where_it_stops_paying() -> None:
    rows = cells(curve_table(points(50, 100, 101, None)))
    assert [row[0] for row in rows] == ["1", "2", "4", "8"]
    assert [row[1].count("#") for row in rows] == [8, 16, 16, 0]
    assert rows[1][2:] == ["100", "100", "+0.0 %", "1.0 %", "in noise"]
    assert rows[3][3:5] == ["-", "n/a"]
    assert curve_note(points(50, 100, 101)) == (
        "A bigger batch stops paying at 2 rows: no larger one gave 10 % more tokens/s."
    )
    assert "bigger ones paid" in curve_note(points(50, 100))
    assert curve_table(points(None)).row_count == 1


def wide(comparison: Versus) -> Sequence[Table]:
    """Every table with the largest numbers that may be met: saturated hours, 7-digit counts, 4-digit errors."""
    hours = Pair(123456.7, 9876.5, 0.98765)
    latency = {name: dict.fromkeys(stats, hours) for name, stats in comparison.latency.items()}
    big = replace(
        comparison,
        latency=latency,
        ledger=dict.fromkeys(comparison.ledger, hours),
        throughput=dict.fromkeys(comparison.throughput, Pair(1234567.8, 123456.7, 0.98765)),
        waste=dict.fromkeys(comparison.waste, Pair(1234567890, 123456789.0, 0.5)),
    )
    batch = BatchScore.of([Batch(16, 32768, 16384, np.array([1.0, 1.2]), 12.0)])
    step = [StepScore("prefill", 128, Times(np.full(9, 12.0), [np.array([1.111, 1.3])] * 9))]
    return [
        waste_table(big),
        latency_table(big),
        throughput_table(big),
        ledger_table(big),
        split_table(big),
        batches_table({"row counts that were not profiled": batch}),
        steps_table(step),
        models_table({"datasheet roofline": {"batches": step[0].times}}),
        engines_table([EngineRun("rowwise", 0.01234, 123456.7, True)]),
        curve_table(points(123456.7, 234567.8)),
    ]


NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?: (?:%|ns|us|ms|s|x))?")


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut_and_no_line_is_longer_than_the_terminal(width: int) -> None:
    for table in wide(found(1.0, 1.2)):
        text = printed(table, width=width)
        assert "\N{HORIZONTAL ELLIPSIS}" not in text
        assert max(len(line.rstrip()) for line in text.splitlines()) <= width, table.title
        shown = NUMBER.findall(text)
        for row in cells(table):
            for cell in row[1:]:
                if NUMBER.fullmatch(cell):
                    assert cell in shown, (table.title, cell)


def test_tables_of_plain_letters_go_through_any_encoding() -> None:
    comparison = found(1.0, 1.2)
    tables = [*wide(comparison), facts_table({"trace": "run[-1] [/decode]"})]
    for encoding in ("cp1252", "ascii"):
        text = printed(*tables, encoding=encoding)
        assert "run[-1] [/decode]" in text


def test_markdown_holds_the_same_numbers() -> None:
    comparison = found(1.0, 1.2, 1.3)
    tables: list[Table | str] = [
        "24 batches: median error 1.0 %.",
        waste_table(comparison),
        latency_table(comparison),
        steps_table(step_scores([comparison.measured[0].record], LINE)),
        facts_table({"trace": "a|b[c]"}),
    ]
    text = markdown(tables)
    assert text.startswith("24 batches: median error 1.0 %.\n\n## Waste in slots\n\n| ")
    lines = text.splitlines()
    for table in tables:
        if isinstance(table, str):
            continue
        heading = lines.index(f"## {table.title}")
        head, rule, *rows = lines[heading + 2 :][: 2 + table.row_count]
        assert head.count("|") == rule.count("|") == len(table.columns) + 1
        plain = [[cell.strip().replace("|", "\\|") for cell in row] for row in cells(table)]
        assert rows == ["| " + " | ".join(row) + " |" for row in plain]
    assert "a\\|b[c]" in text
