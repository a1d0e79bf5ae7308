"""One record against another: simulated against measured, in tables.

Without arguments the main job: calibrate a cost model on this machine, replay two traces in the simulator and on the
engine, and say how wrong the prediction is, beside how much the measurement itself varies.
"""

if __name__ == "__main__":
    # Until the command runs, Ctrl-C ends the process: there is nothing to say, and no traceback of imports.
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from sim import costs, store, versus_report
from sim.batching import Batching
from sim.comparison import Comparison, compare_records, model_scores
from sim.cost import CostModel
from sim.fitted import fit
from sim.grid import fit_grid
from sim.options import Json, MaxBatch, MaxWait, NoColor, Seed
from sim.record import RunRecord
from sim.roofline import Roofline
from sim.run import simulate
from sim.versus import (
    Batch,
    BatchScore,
    formed_identically,
    measured_batches,
    step_scores,
    versus,
)
from traces.errors import InputError
from traces.load import load
from traces.tables import percent, show
from traces.terminal import (
    command_app,
    file_to_write,
    number,
    out,
    run_app,
    warn,
    whole,
    write_json,
    write_text,
)
from traces.trace import Trace

if TYPE_CHECKING:
    from real.trial import Lab, Together

DEFAULT_TRACE = "poisson:rate=4,n=60,prompt=lognormal:24:0.5,output=lognormal:10:0.5,seed=1"
"""Sixty requests that a small model on a CPU serves in seconds."""
DEFAULT_WAIT_S = 0.3
HELD_OUT_BATCHES = 24
"""Batches, at least, whose row counts were profiled and whose lengths were not."""
UNPROFILED_ROWS, UNPROFILED_BATCHES = 3, 6
"""How many row counts that were not profiled are tried, in how many batches."""
ENGINE_REQUESTS = 16
"""Requests of the trace that the three engines are compared on."""
MEASURING = (
    "model",
    "weights",
    "device",
    "cost",
    "max_batch",
    "max_wait",
    "repeats",
    "seconds",
    "seed",
    "save",
)
"""Options that mean nothing where two saved records are compared."""

app = command_app("Lay simulated and measured static batching side by side.")


@app.command()
def main(
    context: typer.Context,
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
        Path | None, typer.Option(parser=file_to_write, metavar="FILE", help="Write the tables as Markdown.")
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
    given = [name for name in MEASURING if _is_given(context, name)]
    if len(names) == 2:
        if given:
            option = given[0].replace("_", "-")
            raise InputError(f"--{option} is for measuring; two saved records are compared as they are")
        comparison = compare_records(*(store.load(Path(name)) for name in names))
    else:
        if cost is not None and "seconds" in given:
            raise InputError(f"--seconds {seconds:g} has no meaning with --cost, which needs no calibration")
        if model is not None and weights != "random":
            raise InputError(
                f"--model {model} has no meaning with --weights {weights}, which say what model they are"
            )
        batching = Batching(max_batch, DEFAULT_WAIT_S if max_wait is None and not names else max_wait)
        trace = load(names[0] if names else DEFAULT_TRACE, seed=seed)
        options = Options(model, weights, device, cost, batching, repeats, seconds, seed, save)
        comparison = measure(trace, options)
    # Tables first: whatever happens to a file, they have been seen.
    if json != "-":
        console = out(no_color)
        for part in comparison.tables():
            if isinstance(part, str):
                console.print(Text(part))
            else:
                show(console, part)
    if markdown is not None:
        write_text(markdown, versus_report.markdown(comparison.tables()))
    if json is not None:
        write_json(comparison.to_json(), json)
    median = comparison.run.batches.times.score.median
    return int(fail_over is not None and (median is None or 100 * median > fail_over))


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


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
    except ImportError as error:
        raise InputError(
            f"measuring needs {error.name or error}: install the extra 'real', or give two records"
        ) from error

    batching, textbook = options.batching, load("textbook")
    save = None if options.save is None else _save_folder(options.save, options.repeats)
    lab = trial.open_lab(options.model, options.weights, options.device, options.seed)
    datasheet = Roofline(lab.shape, lab.datasheet, lab.about["dtype"])
    given = costs.load(options.cost, lab.shape, lab.datasheet, lab.about["dtype"]) if options.cost else None
    rows = sorted({*trial.rows_to_profile(trace, batching, datasheet), len(textbook)})
    prompts = trial.prompts_to_profile([trace, textbook])
    gaps = [count for count in range(1, batching.max_batch) if count not in rows][:UNPROFILED_ROWS]
    longest = int(max(trace.output_tokens.max(), textbook.output_tokens.max()))
    known = trial.held_out(rows, prompts, longest, HELD_OUT_BATCHES, options.seed)
    unknown = trial.held_out(gaps, prompts, longest, UNPROFILED_BATCHES, options.seed)
    apart = [
        (one, Batching(count, at_once=True)) for one, count in zip(known + unknown, rows + gaps, strict=True)
    ]
    runs = [(trace, batching), (textbook, Batching(len(textbook))), *apart]
    points = [] if given else trial.points_to_profile(rows, prompts, longest)
    with Meter("calibrating and replaying", 1.0) as meter:
        found = trial.measure_together(lab, points, options.seconds, runs, options.repeats, meter.at)
    records = found.records
    if save is not None:
        _save_measured(save, found)
    if found.interrupted and not records[0]:
        raise KeyboardInterrupt
    cost_model: CostModel
    split_by: CostModel
    models: dict[str, CostModel]
    if found.profile is not None:
        # The grid predicts; the monotone fit splits the ledgers, where a line below zero would mean nothing.
        cost_model, split_by = fit_grid(found.profile), fit(found.profile)
        models = {"grid": cost_model, "fitted": split_by}
    elif given is not None:
        cost_model = split_by = given
        models = {"given": given}
    about = {name: lab.about[name] for name in ("model", "hardware", "dtype")}
    simulated = [simulate(of, how, cost_model, setup=about) for of, how in runs]
    if save is not None:
        store.save(simulated[0], save / "simulated")
        write_json(costs.to_json(cost_model), str(save / "cost.json"))
    if found.interrupted:
        if save is not None:
            warn(f"{len(records[0])} finished repeats are in {save}")
        raise KeyboardInterrupt
    with Meter("comparing engines", 1.0):
        few = trial.first_requests(trace, ENGINE_REQUESTS)
        engines = trial.engines(lab, few, batching.max_batch, options.repeats)
        curve = trial.curve(lab, cost_model, options.repeats)

    def batches(groups: Sequence[Sequence[RunRecord]], priced_by: CostModel) -> list[Batch]:
        return [batch for group in groups for batch in measured_batches(group, priced_by)]

    everything = [record for group in records for record in group]
    first_unknown = 2 + len(known)
    return Comparison(
        facts=_conditions(lab, trace, options, cost_model, found),
        setup={
            **lab.about,
            "trace": simulated[0].setup["trace"],
            "batching": vars(batching),
            "repeats": options.repeats,
            "seed": options.seed,
            "calibration_s": None if given else options.seconds,
            "cost": costs.to_json(cost_model),
        },
        run=versus(simulated[0], records[0], cost_model, split_by),
        steps=step_scores(everything, cost_model),
        textbook=versus(simulated[1], records[1], cost_model, split_by),
        held_out=BatchScore.of(batches(records[2:first_unknown], cost_model)),
        unprofiled=BatchScore.of(batches(records[first_unknown:], cost_model)),
        apart_identical=all(
            formed_identically([free, *group]) for free, group in zip(simulated[2:], records[2:], strict=True)
        ),
        models={
            name: model_scores(batches(records, one), step_scores(everything, one))
            for name, one in {**models, "datasheet roofline": datasheet}.items()
        },
        engines=engines,
        curve=curve,
    )


def _conditions(
    lab: "Lab", trace: Trace, options: Options, cost_model: CostModel, found: "Together"
) -> dict[str, object]:
    about, how = lab.about, options.batching
    wait = "until full" if how.max_wait_s is None else f"{how.max_wait_s:g} s"
    on_cpu = about["device"] == "cpu"
    warm_ups = sum(record.setup["warm_ups"] for group in found.records for record in group)
    facts: dict[str, object] = {
        "device": f"{about['hardware']}, {about['threads']} thread" if on_cpu else about["hardware"],
        "model": f"{about['model']}, {about['weights']} weights, {about['dtype']}",
        "software": ", ".join(f"{name} {version}" for name, version in about["software"].items() if version),
        "engine": f"{about['engine']}, greedy, lengths forced by the trace",
        "clock": {"cpu": "process CPU time, idle time skipped"}.get(lab.clock, "wall, idle time skipped"),
        "trace": f"{trace.name}, {len(trace):,} requests",
        "batching": f"up to {how.max_batch} rows, wait {wait}",
        "cost model": cost_model.name,
        "measured": f"{options.repeats} repeats, {warm_ups} warm-up batches left out; seed {options.seed}",
    }
    if found.profile is not None:
        noise = found.profile.shapes.noise
        facts["calibration"] = (
            f"{len(found.profile):,} passes of {len(found.profile.shapes):,} shapes in {found.calibration_s:.3g} s, "
            f"repeats differ by {percent(noise['median'])} (p95 {percent(noise['p95'])})"
        )
    if options.model is None and options.weights == "random" and on_cpu:
        facts["note"] = "on a CPU and without weights: a small random model of Qwen3's build"
    return facts


def _save_folder(name: str, repeats: int) -> Path:
    """A folder that holds nothing but what will be replaced; refused before anything is measured, not after."""
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    ours = {"simulated", "cost.json", "profile.parquet", *(f"measured-{i + 1}" for i in range(repeats))}
    others = sorted({path.name for path in folder.iterdir()} - ours)
    if others:
        raise InputError(f"--save {name!r}: holds {others[0]!r}, which is not replaced; name a new folder")
    return folder


def _save_measured(folder: Path, found: "Together") -> None:
    for i, record in enumerate(found.records[0]):
        store.save(record, folder / f"measured-{i + 1}")
    if found.profile is not None:
        found.profile.save(folder / "profile.parquet")


if __name__ == "__main__":
    run_app(app, "python compare.py")
