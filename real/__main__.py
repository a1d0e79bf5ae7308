"""``python -m real``: run the model itself, to measure a trace or to profile a device."""

if __name__ == "__main__":
    # Until the command runs, Ctrl-C ends the process: there is nothing to say, and no traceback of imports.
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from real.conditions import conditions, gpu_state
from real.options import Device, Dtype, EngineName, Model, Threads, TimedBy, Weights, whole_list
from real.profiler import measure
from real.progress import Meter
from real.replay import replay
from real.setup import choose_clock, datasheet, load_engine
from real.shapes import DEFAULT, Shapes, for_trace
from real.weights import RANDOM, shape_of
from sim import costs, store
from sim.batching import Batching
from sim.memory import kv_budget_bytes
from sim.models import DTYPE_BYTES
from sim.options import (
    AtOnce,
    Json,
    MaxBatch,
    MaxWait,
    Memory,
    NoColor,
    Save,
    Seed,
    TraceArg,
    batching_of,
    kv_tokens,
    memory_setup,
)
from sim.report import print_run
from sim.roofline import Roofline
from sim.run import capacity, prices_of, results
from traces.errors import InputError
from traces.load import load
from traces.terminal import command_app, err, file_to_write, number, out, run_app, warn, whole, write_json

app = command_app(
    "Run Qwen3 itself in static batches: measure a trace, or profile a device for the simulator."
)


@app.callback()
def main() -> None:
    """Run Qwen3 itself in static batches: measure a trace, or profile a device for the simulator."""


@app.command()
def run(
    trace: TraceArg,
    max_batch: MaxBatch = 8,
    max_wait: MaxWait = None,
    at_once: AtOnce = False,
    model: Model = "Qwen3-0.6B",
    weights: Weights = RANDOM,
    device: Device = "cpu",
    dtype: Dtype = None,
    engine: EngineName = "padded",
    clock: Annotated[
        str,
        typer.Option(metavar="skip-idle|wall", help="Skip the trace's idle time, or live through it."),
    ] = "skip-idle",
    timed_by: TimedBy = None,
    threads: Threads = 1,
    cost: Annotated[
        str, typer.Option(metavar="roofline|FILE", help="Cost model that splits batches in the time ledger.")
    ] = "roofline",
    memory: Memory = "off",
    seed: Seed = 0,
    json: Json = None,
    save: Save = None,
    no_color: NoColor = False,
) -> None:
    """Serve TRACE in static batches on the model itself, and print what it wastes and how long it takes."""
    if clock not in ("skip-idle", "wall"):
        raise InputError(f"unknown --clock {clock!r}; known are skip-idle or wall")
    batching = batching_of(max_batch, max_wait, at_once)
    loaded = load(trace, seed=seed)
    runner = load_engine(model, weights, device, dtype, engine, threads, seed)
    driving = choose_clock(timed_by, runner, wall_clock=clock == "wall")
    name = model if weights == RANDOM else weights
    shape, about = shape_of(runner.model, name), conditions(runner, name, weights, driving)
    known = datasheet(about["hardware"], runner)
    cost_model = costs.load(cost, shape, known, about["dtype"])
    bytes_per_token = shape.kv_bytes_per_token(DTYPE_BYTES[about["dtype"]])
    budget = kv_budget_bytes(memory, shape, known, about["dtype"])
    about |= {
        "gpu": about["hardware"],
        "at_once": at_once,
        "memory": memory_setup(memory, budget),
        "cost": costs.to_json(cost_model),
    }
    with Meter("running", len(loaded)) as meter:
        record = replay(
            loaded,
            batching,
            runner,
            about=about,
            clock=driving,
            wall_clock=clock == "wall",
            seed=seed,
            max_kv_tokens=kv_tokens(budget, bytes_per_token),
            progress=meter.at,
        )
    with ExitStack() as afterwards:
        # Last, but whatever happens to the output: neither a closed pipe nor a full disk takes the other along.
        if save is not None:
            afterwards.callback(store.save, record, Path(save))
        # Only a run at once shows what the server can do at most; no model is asked about it here.
        most = capacity(record, loaded, batching, cost_model, None) if at_once else None
        found = results(record, prices_of(record, cost_model), most, bytes_per_token)
        for batch, why in record.measured.failed.items() if record.measured else ():
            warn(f"batch {batch} gave no answer, {why}")
        if json is not None:
            write_json(found.to_json(), json)
        if json != "-":
            print_run(found, out(no_color))
            line = (
                f"measured on {about['hardware']}, {runner.name} engine, {clock}, passes timed by {driving}; "
                f"{record.setup['warm_ups']} warm-up batches left out"
            )
            out(no_color).print(line, style="dim", markup=False, highlight=False)
    if "interrupted" in record.setup:
        raise typer.Exit(130)


@app.command()
def profile(
    to: Annotated[
        Path,
        typer.Option("--out", parser=file_to_write, metavar="FILE", help="Where the profile goes (Parquet)."),
    ],
    model: Model = "Qwen3-0.6B",
    weights: Weights = RANDOM,
    device: Device = "cpu",
    dtype: Dtype = None,
    engine: EngineName = "padded",
    trace: Annotated[
        str | None,
        typer.Option(metavar="TRACE", help="Choose the shapes that serving this trace would run through."),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            parser=whole(1), metavar="ROWS", help="Of --trace: most requests in a batch; 8 if not given."
        ),
    ] = None,
    max_wait: Annotated[
        float | None,
        typer.Option(parser=number(zero=True), metavar="SECONDS", help="Of --trace: the timer of a batch."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,...", help="Batch sizes, best all that will occur; 1,2,4,8 without --trace."
        ),
    ] = None,
    prompt_tokens: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Padded prompt lengths; 16,64,256 without --trace."),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(
            parser=whole(1),
            metavar="N",
            help="Longest answer: decode is timed up to there; 128 without --trace.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(parser=number(), metavar="BUDGET", help="How long to measure, warm-up included.")
    ] = 40.0,
    timed_by: TimedBy = None,
    threads: Threads = 1,
    seed: Seed = 0,
) -> None:
    """Time prefill and decode passes over a grid of shapes, for the simulator's cost models."""
    given = Shapes(
        None if rows is None else whole_list("--rows", rows),
        None if prompt_tokens is None else whole_list("--prompt-tokens", prompt_tokens),
        output_tokens,
    )
    if trace is None and (max_batch is not None or max_wait is not None):
        raise InputError("--max-batch and --max-wait say how --trace is served; give --trace too")
    batching = Batching(8 if max_batch is None else max_batch, max_wait)
    loaded = None if trace is None else load(trace, seed=seed)
    runner = load_engine(model, weights, device, dtype, engine, threads, seed)
    driving = choose_clock(timed_by, runner)
    about = conditions(runner, model if weights == RANDOM else weights, weights, driving)
    if loaded is None:
        chosen = given.or_else(DEFAULT)
    else:
        known = datasheet(about["hardware"], runner)
        guess = Roofline(shape_of(runner.model, about["model"]), known, about["dtype"])
        chosen = for_trace(loaded, batching, guess, seconds, given)
        err().print(chosen.describe(), markup=False, highlight=False, soft_wrap=True)
    most = max(chosen.rows or [1])
    if runner.max_rows is not None and most > runner.max_rows:
        raise InputError(f"a batch of {most} rows: engine {engine} takes batches of {runner.max_rows} row")
    points = chosen.points()
    with Meter(f"profiling {len(points)} shapes", 1.0) as meter:
        samples = measure(runner, points, seconds, seed, meter.at)
    about = {**about, "seed": seed, "gpu_state_after": gpu_state(runner.device)}
    found = samples.profile(driving, about)
    found.save(to)
    for shape in samples.failed:
        warn(f"left out, out of memory: {shape}")
    noise = found.shapes.noise["median"]
    spread = "no repeats" if noise is None else f"repeats differ by {noise:.1%} (median)"
    line = (
        f"{to}: {len(found):,} passes of {len(found.shapes):,} shapes in {samples.rounds} rounds, "
        f"{samples.warm_ups} warm-up batches left out, timed by {driving}, {spread}"
    )
    err().print(line, markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    run_app(app, "python -m real")
