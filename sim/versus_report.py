"""Tables of simulated against measured. An error that is no larger than the repeats differ is marked ``in noise``."""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from sim.errors import Pair, Score
from sim.ledger import LINES
from sim.record import RunRecord
from sim.report import LATENCY_NAMES
from sim.speedup import PAYS, CurvePoint, EngineRun, stops_paying
from sim.tables import add, bar, count, percent, seconds, slot_bar, table
from sim.versus import BatchScore, StepScore, Versus
from traces.slots import Slots

SHOWN = ("mean", "p50", "p95", "p99")
"""Which statistics of each latency the table shows; the JSON has all."""


def inside(within: bool | None) -> str:
    """How an error inside the noise is marked."""
    return "in noise" if within else ""


def textbook_bars(record: RunRecord) -> Table:
    """The first batch of a record, row by row: slots of both phases, used and wasted."""
    rows = int(record.batch_rows[0])
    prompts, outputs = record.row_prompt_tokens[:rows].tolist(), record.row_output_tokens[:rows].tolist()
    parts = [(sum(tokens), rows * max(tokens)) for tokens in (prompts, outputs)]
    titles = []
    for name, (useful, slots) in zip(("prefill padding", "decode idle"), parts, strict=True):
        wasted = Slots(slots, useful)
        titles.append(f"{name} {wasted.wasted}/{slots} = {100 * wasted.fraction:.0f} %")
    t = table("The textbook batch, slot by slot", "request", *titles, left=3)
    prompt_bars, output_bars = slot_bar(prompts, max(prompts), 30), slot_bar(outputs, max(outputs), 30)
    for i, (left, right) in enumerate(zip(prompt_bars, output_bars, strict=True)):
        add(t, f"{prompts[i]} + {outputs[i]}", left, right)
    return t


def waste_table(versus: Versus) -> Table:
    """Slots of both sides; exact integers, equal where the batches are."""
    t = table("Waste in slots", "", "simulated", "measured", "error")
    for name, pair in versus.waste.items():
        cells = (count(pair.simulated), count(pair.measured))
        add(
            t, name.replace("_", " "), *(cell.removesuffix(".0") for cell in cells), percent(pair.error, True)
        )
    for phase in ("prefill", "decode"):
        shares = [getattr(side.waste, phase).fraction for side in (versus.simulated, versus.measured[0])]
        add(t, f"{phase} waste", *(percent(share) for share in shares), "")
    add(t, "batches formed identically", "yes" if versus.identical else "no", "", "", style="bold")
    return t


def engines_table(runs: Sequence[EngineRun]) -> Table:
    """The chapter's claim: batched against one by one, on the same requests."""
    t = table(
        "Batching against one by one, same requests",
        "engine",
        "seconds",
        "tokens/s",
        "speed-up",
        "tokens as alone",
    )
    for run in runs:
        gain = runs[0].seconds / run.seconds
        same = "yes" if run.same_tokens else "no"
        add(t, run.engine, seconds(run.seconds), count(run.tokens_per_s), f"{gain:.2f} x", same)
    return t


def curve_table(points: Sequence[CurvePoint]) -> Table:
    """Tokens per second by batch size, equal lengths, nothing wasted."""
    t = table(
        "Tokens/s by batch size, equal lengths",
        "batch",
        "",
        "simulated",
        "measured",
        "error",
        "spread",
        "",
        left=2,
    )
    most = max((point.tokens_per_s.measured or 0.0 for point in points), default=1.0) or 1.0
    for point in points:
        rate = point.tokens_per_s
        cells = (count(rate.simulated), count(rate.measured), percent(rate.error, True), percent(rate.spread))
        add(t, str(point.rows), bar((rate.measured or 0.0) / most, 16), *cells, inside(rate.inside))
    return t


def curve_note(points: Sequence[CurvePoint]) -> str:
    """Where a bigger batch stops paying."""
    knee = stops_paying(points)
    if knee is None:
        return f"Every doubling up to {points[-1].rows} rows gave at least {PAYS:.0%} more tokens/s."
    return (
        f"A bigger batch stops paying at {knee} rows: the next size gave less than {PAYS:.0%} more tokens/s."
    )


def steps_table(scores: Sequence[StepScore]) -> Table:
    """Passes by phase and rows."""
    t = table(
        "Steps by batch size", "", "rows", "passes", "simulated", "measured", "mean", "p95", "bias", "noise"
    )
    for one in scores:
        score = one.score
        errors = (percent(score.mean), percent(score.p95), percent(score.bias, True), percent(one.noise.p95))
        cells = (str(one.rows), count(score.count), seconds(one.simulated_s), seconds(one.measured_s))
        add(t, one.phase, *cells, *errors)
    return t


def batches_table(scores: Mapping[str, BatchScore | None]) -> Table:
    """Whole batches: error beside the noise of their repeats (95th percentile)."""
    t = table("Whole batches", "", "n", "median", "p95", "worst", "its shape", "bias", "noise", "")
    for name, scored in scores.items():
        if scored is None or not scored.score.count:
            continue
        score = scored.score
        shape = "" if scored.worst is None else scored.worst.shape
        cells = (
            percent(score.median),
            percent(score.p95),
            percent(score.worst),
            shape,
            percent(score.bias, True),
        )
        within = inside(scored.noise.covers(score.median))
        add(t, name, str(score.count), *cells, percent(scored.noise.p95), within)
    return t


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    cells = (seconds(pair.simulated), seconds(pair.measured), percent(pair.error, True), percent(pair.spread))
    return (*cells, inside(pair.inside))


def latency_table(versus: Versus) -> Table:
    """Latencies of both sides; spread is the largest distance of a repeat from the median one."""
    t = table("Latency", "", "", "simulated", "measured", "error", "spread", "", left=2)
    for name, label in LATENCY_NAMES.items():
        for stat in SHOWN:
            add(t, label if stat == "mean" else "", stat, *_pair_cells(versus.latency[name][stat]))
    return t


def throughput_table(versus: Versus) -> Table:
    """Rates and times of the whole run."""
    t = table("Throughput", "", "simulated", "measured", "error", "spread", "")
    for name, pair in versus.throughput.items():
        label = name.replace("_per_s", "/s").replace("_s", ", s").replace("_", " ")
        rates = (count(pair.simulated), count(pair.measured), percent(pair.error, True), percent(pair.spread))
        add(t, label, *rates, inside(pair.inside))
    return t


def ledger_table(versus: Versus) -> Table:
    """Where the time went on both sides; both split by the same model."""
    t = table("Where the time went", "line", "simulated", "share", "measured", "share", "error", "")
    whole = [
        sum(getattr(pair, side) or 0.0 for pair in versus.ledger.values())
        for side in ("simulated", "measured")
    ]
    for line in LINES:
        pair = versus.ledger[line]
        shares = [
            percent((value or 0.0) / total if total else None)
            for value, total in zip((pair.simulated, pair.measured), whole, strict=True)
        ]
        cells = (
            seconds(pair.simulated),
            shares[0],
            seconds(pair.measured),
            shares[1],
            percent(pair.error, True),
        )
        add(t, line.replace("_", " "), *cells, inside(pair.inside))
    return t


def models_table(models: Mapping[str, Mapping[str, Score]]) -> Table:
    """Cost models against the same measurements."""
    t = table(
        "Cost models, same measurements", "model", "", "n", "median", "mean", "p95", "worst", "bias", left=2
    )
    for name, parts in models.items():
        for i, (part, score) in enumerate(parts.items()):
            cells = (percent(score.median), percent(score.mean), percent(score.p95), percent(score.worst))
            add(t, name if i == 0 else "", part, count(score.count), *cells, percent(score.bias, True))
    return t


def split_table(versus: Versus) -> Table:
    """Where the error of the mean waiting times comes from."""
    t = table(
        "Error of mean times = cost + queueing + formation",
        "",
        "measured",
        "cost",
        "queueing",
        "formation",
        "simulated",
    )
    for name, split in versus.split.items():
        terms = (split.cost_s, split.queueing_s, split.formation_s)
        signed = (("+" if term > 0 else "") + seconds(term) for term in terms)
        add(t, LATENCY_NAMES[name], seconds(split.measured_s), *signed, seconds(split.simulated_s))
    return t


def facts_table(facts: Mapping[str, object]) -> Table:
    """What ran, under which conditions."""
    t = table("What ran", "", "", left=2)
    for name, value in facts.items():
        add(t, name, Text(str(value)))
    return t


def markdown(tables: Sequence[Table | str]) -> str:
    """The same tables and lines as Markdown."""
    parts = []
    for part in tables:
        if isinstance(part, str):
            parts.append(part)
            continue
        head = [_plain(column.header) for column in part.columns]
        rows = zip(*([_plain(cell) for cell in column.cells] for column in part.columns), strict=True)
        rule = ["---:" if column.justify == "right" else "---" for column in part.columns]
        lines = ["| " + " | ".join(row) + " |" for row in (head, rule, *rows)]
        parts.append(f"## {part.title}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _plain(cell: object) -> str:
    return str(cell).strip().replace("|", "\\|")
