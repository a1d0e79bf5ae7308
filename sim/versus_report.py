"""Tables of simulated against measured. An error that is no larger than the repeats differ is marked ``in noise``.

Noise and spread are of the measured repeats: noise the 95th percentile of the distance of a time from the median of its
repeats, spread the largest distance of a repeat from the value shown; both as a part of it.
"""

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from sim.errors import Pair, Times
from sim.ledger import LINES
from sim.record import RunRecord
from sim.report import LATENCY_NAMES
from sim.speedup import PAYS, CurvePoint, EngineRun, stops_paying
from sim.versus import BatchScore, StepScore, Versus
from traces.slots import Slots
from traces.tables import add, bar, count, percent, seconds, slot_bar, table

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
    t = table("Waste in slots", "", "simulated", "measured", "error", "spread", "")
    for name, pair in versus.waste.items():
        shown = percent if name.endswith("_fraction") else _slots
        cells = (shown(value) for value in (pair.simulated, pair.measured))
        errors = (percent(pair.error, True), percent(pair.spread), inside(pair.inside))
        add(t, name.replace("_fraction", " waste").replace("_", " "), *cells, *errors)
    identical = "yes" if versus.identical else "no"
    add(t, "batches formed identically", identical, "", "", "", "", style="bold")
    return t


def _slots(value: float | None) -> str:
    return count(value).removesuffix(".0")


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
        gain = run.speed_up(runs[0])
        same = {True: "yes", False: "no", None: None}[run.same_tokens]
        times = None if gain is None else f"{gain:.2f} x"
        add(t, run.engine, seconds(run.seconds), count(run.tokens_per_s), times, same)
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
    knee, gain = stops_paying(points), f"{100 * PAYS:.0f} % more tokens/s"
    if knee is None:
        return f"Up to the largest batch measured, bigger ones paid: at least {gain} than any smaller one."
    return f"A bigger batch stops paying at {knee} rows: no larger one gave {gain}."


def steps_table(scores: Sequence[StepScore]) -> Table:
    """Passes by phase and rows; a pass repeated counts once."""
    t = table(
        "Steps by batch size", "", "rows", "n", "simulated", "measured", "mean", "p95", "bias", "noise", ""
    )
    for one in scores:
        score, noise, both = one.times.score, one.times.noise, one.times.mean
        cells = (str(one.rows), count(score.count), seconds(both.simulated), seconds(both.measured))
        errors = (percent(score.mean), percent(score.p95), percent(score.bias, True), percent(noise.p95))
        add(t, one.phase, *cells, *errors, inside(noise.covers(score.mean)))
    return t


def batches_table(scores: Mapping[str, BatchScore | None]) -> Table:
    """Whole batches: error beside the noise of their repeats (95th percentile)."""
    t = table("Whole batches", "", "n", "median", "p95", "worst", "its shape", "bias", "noise", "")
    for name, scored in scores.items():
        if scored is None or not scored.times.score.count:
            continue
        score, noise = scored.times.score, scored.times.noise
        shape = "" if scored.worst is None else scored.worst.shape
        errors = (percent(score.median), percent(score.p95), percent(score.worst))
        rest = (shape, percent(score.bias, True), percent(noise.p95), inside(noise.covers(score.median)))
        add(t, name, str(score.count), *errors, *rest)
    return t


def _pair_cells(pair: Pair) -> tuple[str, ...]:
    cells = (seconds(pair.simulated), seconds(pair.measured), percent(pair.error, True), percent(pair.spread))
    return (*cells, inside(pair.inside))


def latency_table(versus: Versus) -> Table:
    """Latencies of both sides."""
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
    t = table("Where the time went", "line", "simulated", "share", "measured", "share", "error", "spread", "")
    pairs = versus.ledger.values()
    whole = [sum(getattr(pair, side) or 0.0 for pair in pairs) for side in ("simulated", "measured")]
    for line in LINES:
        pair = versus.ledger[line]
        cells = []
        for value, total in zip((pair.simulated, pair.measured), whole, strict=True):
            cells += [seconds(value), percent((value or 0.0) / total if total else None)]
        errors = (percent(pair.error, True), percent(pair.spread), inside(pair.inside))
        add(t, line.replace("_", " "), *cells, *errors)
    return t


def models_table(models: Mapping[str, Mapping[str, Times]]) -> Table:
    """Cost models against the same measurements."""
    t = table(
        "Cost models, same measurements",
        "model",
        "",
        "n",
        "median",
        "mean",
        "p95",
        "bias",
        "noise",
        "",
        left=2,
    )
    for name, parts in models.items():
        for i, (part, times) in enumerate(parts.items()):
            score, noise = times.score, times.noise
            errors = (
                percent(score.median),
                percent(score.mean),
                percent(score.p95),
                percent(score.bias, True),
            )
            beside = (percent(noise.p95), inside(noise.covers(score.median)))
            add(t, name if i == 0 else "", part, count(score.count), *errors, *beside)
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
