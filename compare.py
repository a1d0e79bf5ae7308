"""One record against another: simulated against measured, in tables.

Without arguments the main job: calibrate a cost model on this machine, replay two traces in the simulator and on the
engine, and say how wrong the prediction is, beside how much the measurement itself varies.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from sim import costs, store, versus_report
from sim.batching import Batching
from sim.cost import CostModel
from sim.errors import Score
from sim.fitted import fit
from sim.grid import fit_grid
from sim.options import Json, MaxBatch, MaxWait, NoColor, Seed
from sim.record import RunRecord
from sim.roofline import Roofline
from sim.run import simulate
from sim.speedup import CurvePoint, EngineRun, stops_paying
from sim.tables import percent
from sim.versus import Batch, BatchScore, StepScore, Versus, measured_batches, step_scores, versus
from traces.errors import InputError
from traces.load import load
from traces.terminal import command_app, number, out, run_app, whole, write_json, write_text
from traces.trace import Trace

if TYPE_CHECKING:
    from real.trial import Lab
    from sim.profile import Profile

DEFAULT_TRACE = "poisson:rate=4,n=60,prompt=lognormal:24:0.5,output=lognormal:10:0.5,seed=1"
"""Sixty requests that a small model on a CPU serves in seconds."""
DEFAULT_WAIT_S = 0.3
HELD_OUT_BATCHES = 24
"""Batches, at least, whose row counts were profiled and whose lengths were not."""
UNPROFILED_ROWS, UNPROFILED_BATCHES = 3, 6
"""How many row counts that were not profiled are tried, in how many batches."""
ENGINE_REQUESTS = 16
"""Requests of the trace that the three engines are compared on."""

app = command_app("Lay simulated and measured static batching side by side.")


@dataclass(frozen=True)
class Comparison:
    """Everything compared. What a comparison of two saved records cannot know is None or empty."""

    facts: dict[str, object]
    setup: dict[str, Any]
    run: Versus
    steps: Sequence[StepScore]
    textbook: Versus | None = None
    held_out: BatchScore | None = None
    unprofiled: BatchScore | None = None
    models: dict[str, dict[str, Score]] = field(default_factory=dict)
    engines: Sequence[EngineRun] = ()
    curve: Sequence[CurvePoint] = ()

    def tables(self) -> list[Table | str]:
        """Results first, conditions last."""
        parts: list[Table | str] = [self.headline()]
        if self.textbook is not None:
            parts.append(versus_report.textbook_bars(self.textbook.measured[0].record))
        parts.append(versus_report.waste_table(self.run))
        if self.engines:
            parts.append(versus_report.engines_table(self.engines))
        if self.curve:
            parts += [versus_report.curve_table(self.curve), versus_report.curve_note(self.curve)]
        scored = {
            "this trace": self.run.batches,
            "held out": self.held_out,
            "rows not profiled": self.unprofiled,
        }
        parts.append(versus_report.batches_table(scored))
        if self.steps:
            parts.append(versus_report.steps_table(self.steps))
        if self.models:
            parts.append(versus_report.models_table(self.models))
        parts += [
            versus_report.latency_table(self.run),
            versus_report.throughput_table(self.run),
            versus_report.ledger_table(self.run),
            f"Ledger: batches split by {self.run.simulated.ledger.split_by}.",
            versus_report.split_table(self.run),
            versus_report.facts_table(self.facts),
        ]
        return parts

    def headline(self) -> str:
        """The result in a sentence."""
        name, scored = (
            ("held-out", self.held_out) if self.held_out is not None else ("whole", self.run.batches)
        )
        noise = scored.noise.p95
        beside = (
            "no repeats, so the noise is unknown" if noise is None else f"repeats differ by {percent(noise)}"
        )
        return (
            f"{scored.score.count} {name} batches: median error {percent(scored.score.median)}, "
            f"p95 {percent(scored.score.p95)} ({beside} at p95)."
        )

    def to_json(self) -> dict[str, Any]:
        """One document; errors and noise are fractions."""
        waste = {name: pair.to_json() for name, pair in self.run.waste.items()}
        return {
            "setup": self.setup,
            "batches": {
                **self.run.batches.to_json(),
                "formed_identically": self.run.identical,
                "held_out": None if self.held_out is None else self.held_out.to_json(),
                "unprofiled_rows": None if self.unprofiled is None else self.unprofiled.to_json(),
            },
            "steps": [
                {
                    "phase": step.phase,
                    "rows": step.rows,
                    "simulated": step.simulated_s,
                    "measured": step.measured_s,
                    "error": step.score.to_json(),
                    "noise": step.noise.median,
                    "noise_p95": step.noise.p95,
                }
                for step in self.steps
            ],
            "latency": {
                name: {stat: pair.to_json() for stat, pair in stats.items()}
                for name, stats in self.run.latency.items()
            },
            "throughput": {name: pair.to_json() for name, pair in self.run.throughput.items()},
            "ledger_s": {name: pair.to_json() for name, pair in self.run.ledger.items()},
            "waste": waste,
            "textbook": None if self.textbook is None else _textbook_json(self.textbook),
            "models": {
                name: {part: score.to_json() for part, score in parts.items()}
                for name, parts in self.models.items()
            },
            "error_split_s": {name: split.to_json() for name, split in self.run.split.items()},
            "engines": [run.to_json(self.engines[0]) for run in self.engines],
            "batch_sizes": [point.to_json() for point in self.curve],
            "stops_paying_at_rows": stops_paying(self.curve) if self.curve else None,
        }


def _textbook_json(run: Versus) -> dict[str, Any]:
    return {
        "waste": {name: pair.to_json() for name, pair in run.waste.items()},
        "formed_identically": run.identical,
        "batch": run.batches.to_json(),
    }


def model_scores(batches: Sequence[Batch], steps: Sequence[StepScore]) -> dict[str, Score]:
    """A model's errors on whole batches, and on prefill and decode passes pooled over rows."""
    signed = {
        "batches": np.array([batch.error for batch in batches]),
        **{
            phase: np.concatenate([np.empty(0), *(step.errors for step in steps if step.phase == phase)])
            for phase in ("prefill", "decode")
        },
    }
    return {part: Score.of(values) for part, values in signed.items()}


@app.command()
def main(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TRACE | RECORD RECORD]", help="A trace, or two saved records: simulated, measured."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model. Default: toy on a CPU, Qwen3-0.6B on a GPU.")
    ] = None,
    weights: Annotated[str, typer.Option(metavar="random|DIR|HUB", help="Weights to run.")] = "random",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to measure.")] = "auto",
    cost: Annotated[
        str | None, typer.Option(metavar="FILE", help="Cost model to test. Default: calibrate one here.")
    ] = None,
    max_batch: MaxBatch = 8,
    max_wait: MaxWait = None,
    repeats: Annotated[
        int, typer.Option(parser=whole(1), metavar="N", help="Measured repeats of every run.")
    ] = 3,
    seconds: Annotated[
        float, typer.Option(parser=number(), metavar="SECONDS", help="Time for the calibration.")
    ] = 30.0,
    seed: Seed = 0,
    json: Json = None,
    markdown: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the tables as Markdown.")
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="DIR", help="Save the records and the cost model here.")
    ] = None,
    fail_over: Annotated[
        float | None,
        typer.Option(
            parser=number(zero=True), metavar="PERCENT", help="Exit 1 if the median batch error is larger."
        ),
    ] = None,
    no_color: NoColor = False,
) -> int:
    """Calibrate, replay a trace in the simulator and on the engine, and lay the two side by side."""
    names = sources or []
    if len(names) > 2:
        raise InputError(f"{len(names)} arguments; give one trace, or two records (simulated, measured)")
    if len(names) == 2:
        comparison = compare_records(*(store.load(Path(name)) for name in names))
    else:
        batching = Batching(max_batch, DEFAULT_WAIT_S if max_wait is None and not names else max_wait)
        trace = load(names[0] if names else DEFAULT_TRACE, seed=seed)
        options = Options(model, weights, device, cost, batching, repeats, seconds, seed, save)
        comparison = measure(trace, options)
    if markdown is not None:
        write_text(Path(markdown), versus_report.markdown(comparison.tables()))
    if json is not None:
        write_json(comparison.to_json(), json)
    if json != "-":
        console = out(no_color)
        for part in comparison.tables():
            console.print(Text(part) if isinstance(part, str) else part)
    median = comparison.run.batches.score.median
    return int(fail_over is not None and (median is None or 100 * median > fail_over))


def compare_records(simulated: RunRecord, measured: RunRecord) -> Comparison:
    """Two saved records of the same requests."""
    fingerprints = [record.setup.get("trace", {}).get("fingerprint") for record in (simulated, measured)]
    if fingerprints[0] != fingerprints[1]:
        raise InputError(f"the two records served different traces: {fingerprints[0]} and {fingerprints[1]}")
    if "cost" not in simulated.setup:
        raise InputError("the first record must be a simulated one (its set-up names no cost model)")
    cost_model = costs.from_json(simulated.setup["cost"], "cost model of the first record")
    return Comparison(
        facts={
            "first record": _facts(simulated),
            "second record": _facts(measured),
            "cost model": cost_model.name,
        },
        setup={"simulated": dict(simulated.setup), "measured": dict(measured.setup)},
        run=versus(simulated, [measured], cost_model),
        steps=step_scores([measured], cost_model),
    )


def _facts(record: RunRecord) -> str:
    setup = record.setup
    where = setup.get("hardware") or setup.get("gpu") or ""
    return f"{setup.get('kind')}, {setup.get('model', '')} {where} {setup.get('dtype', '')}, clock {setup.get('clock')}"


@dataclass(frozen=True)
class Options:
    """What the user asked to be measured."""

    model: str | None
    weights: str
    device: str
    cost: str | None
    batching: Batching
    repeats: int
    seconds: float
    seed: int
    save: str | None


def measure(trace: Trace, options: Options) -> Comparison:
    """Calibrate, replay, and compare. The only place that needs torch."""
    try:
        from real import trial
        from real.progress import Meter
    except ModuleNotFoundError as error:
        raise InputError(
            f"measuring needs {error.name}: install the extra 'real', or give two records"
        ) from error

    batching, textbook = options.batching, load("textbook")
    lab = trial.open_lab(options.model, options.weights, options.device, options.seed)
    datasheet = Roofline(lab.shape, lab.datasheet, lab.about["dtype"])
    rows = trial.rows_to_profile(trace, batching, datasheet)
    prompts = trial.prompts_to_profile([trace, textbook])
    gaps = [count for count in range(1, batching.max_batch) if count not in rows][:UNPROFILED_ROWS]
    longest = int(max(trace.output_tokens.max(), textbook.output_tokens.max()))
    known = trial.held_out(rows, prompts, longest, HELD_OUT_BATCHES, options.seed)
    unknown = trial.held_out(gaps, prompts, longest, UNPROFILED_BATCHES, options.seed)
    apart = [
        (one, Batching(count, at_once=True)) for one, count in zip(known + unknown, rows + gaps, strict=True)
    ]
    whole_book = Batching(len(textbook))
    points = [] if options.cost else trial.points_to_profile(rows, prompts, longest)
    with Meter("calibrating and replaying", 1.0) as meter:
        runs = [(trace, batching), (textbook, whole_book), *apart]
        profile, records = trial.measure_together(
            lab, points, options.seconds, runs, options.repeats, meter.at
        )
    models: dict[str, CostModel]
    if profile is None:
        models = {"given": costs.load(options.cost or "", lab.shape, lab.datasheet, lab.about["dtype"])}
    else:
        # The grid predicts; the monotone fit splits the ledgers, where a line below zero would mean nothing.
        models = {"grid": fit_grid(profile), "fitted": fit(profile)}
    (cost_model, *_), (*_, split_by) = models.values(), models.values()
    models["datasheet roofline"] = datasheet
    with Meter("comparing engines", 1.0):
        few = trial.first_requests(trace, ENGINE_REQUESTS)
        engines = trial.engines(lab, few, batching.max_batch, options.repeats)
        curve = trial.curve(lab, cost_model, options.repeats)

    def laid_beside(of: Trace, how: Batching, measured: Sequence[RunRecord]) -> Versus:
        about = {name: lab.about[name] for name in ("model", "hardware", "dtype")}
        return versus(simulate(of, how, cost_model, setup=about), measured, cost_model, split_by)

    def batches(groups: Sequence[Sequence[RunRecord]], priced_by: CostModel = cost_model) -> list[Batch]:
        return [batch for group in groups for batch in measured_batches(group, priced_by)]

    everything = [record for group in records for record in group]
    run = laid_beside(trace, batching, records[0])
    if options.save is not None:
        _save(Path(options.save), run, profile, cost_model)
    return Comparison(
        facts=_conditions(lab, trace, options, cost_model, profile),
        setup={
            **lab.about,
            "trace": run.simulated.record.setup["trace"],
            "batching": vars(batching),
            "repeats": options.repeats,
            "cost": costs.to_json(cost_model),
        },
        run=run,
        steps=step_scores(everything, cost_model),
        textbook=laid_beside(textbook, whole_book, records[1]),
        held_out=BatchScore.of(batches(records[2 : 2 + len(known)])),
        unprofiled=BatchScore.of(batches(records[2 + len(known) :])),
        models={
            name: model_scores(batches(records, one), step_scores(everything, one))
            for name, one in models.items()
        },
        engines=engines,
        curve=curve,
    )


def _conditions(
    lab: "Lab", trace: Trace, options: Options, cost_model: CostModel, profile: "Profile | None"
) -> dict[str, object]:
    about, how = lab.about, options.batching
    wait = "until full" if how.max_wait_s is None else f"{how.max_wait_s:g} s"
    facts: dict[str, object] = {
        "device": f"{about['hardware']}, {about['threads']} thread"
        if about["device"] == "cpu"
        else about["hardware"],
        "model": f"{about['model']}, {about['weights']} weights, {about['dtype']}",
        "software": ", ".join(f"{name} {version}" for name, version in about["software"].items() if version),
        "engine": f"{about['engine']}, greedy, lengths forced by the trace",
        "clock": {"cpu": "process CPU time, idle time skipped"}.get(lab.clock, "wall, idle time skipped"),
        "trace": f"{trace.name}, {len(trace):,} requests",
        "batching": f"up to {how.max_batch} rows, wait {wait}",
        "cost model": cost_model.name,
        "measured": f"{options.repeats} repeats; seed {options.seed}",
    }
    if profile is not None:
        noise = profile.shapes.noise
        facts["calibration"] = (
            f"{len(profile):,} passes of {len(profile.shapes):,} shapes in {options.seconds:g} s, "
            f"repeats differ by {percent(noise['median'])} (p95 {percent(noise['p95'])})"
        )
    if about["model"] == "toy":
        facts["note"] = "no GPU or weights here: a small random model of Qwen3's build, on the CPU"
    return facts


def _save(folder: Path, run: Versus, profile: "Profile | None", cost_model: CostModel) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    store.save(run.simulated.record, folder / "simulated")
    for i, one in enumerate(run.measured):
        store.save(one.record, folder / f"measured-{i + 1}")
    write_json(costs.to_json(cost_model), str(folder / "cost.json"))
    if profile is not None:
        profile.save(folder / "profile.parquet")


if __name__ == "__main__":
    run_app(app, "python compare.py")
