"""``python -m sim run``: what static batching does to a trace, predicted."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from sim import costs, store
from sim.hardware import hardware
from sim.memory import kv_budget_bytes
from sim.models import DTYPE_BYTES, model_shape
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
from sim.run import capacity, outside_domain, prices_of, results, simulate
from traces.load import load
from traces.progress import Progress
from traces.terminal import out, warn, write_json


def run(
    trace: TraceArg,
    max_batch: MaxBatch = 8,
    max_wait: MaxWait = None,
    at_once: AtOnce = False,
    model: Annotated[str, typer.Option(metavar="NAME", help="Model, e.g. Qwen3-8B.")] = "Qwen3-0.6B",
    gpu: Annotated[str, typer.Option(metavar="NAME", help="Device, e.g. H200, A100-80GB or cpu.")] = "H200",
    cost: Annotated[
        str,
        typer.Option(metavar="roofline|FILE", help="Cost model: the datasheet's, or a fitted model file."),
    ] = "roofline",
    memory: Memory = "off",
    seed: Seed = 0,
    json: Json = None,
    save: Save = None,
    no_color: NoColor = False,
) -> None:
    """Serve TRACE in static batches with modelled step costs, and print what it wastes and how long it takes."""
    shape, device = model_shape(model), hardware(gpu)
    dtype = "float32" if device.name == "cpu" else "bfloat16"
    cost_model = costs.load(cost, shape, device, dtype)
    bytes_per_token = shape.kv_bytes_per_token(DTYPE_BYTES[dtype])
    budget = kv_budget_bytes(memory, shape, device, dtype)
    batching = batching_of(max_batch, max_wait, at_once)
    loaded = load(trace, seed=seed)
    limit = kv_tokens(budget, bytes_per_token)
    setup = {
        "model": shape.name,
        "gpu": device.name,
        "dtype": dtype,
        "at_once": at_once,
        "seed": seed,
        "memory": memory_setup(memory, budget),
    }
    with Progress("simulating", len(loaded)) as bar:
        record = simulate(loaded, batching, cost_model, max_kv_tokens=limit, setup=setup, progress=bar.at)
    with ExitStack() as afterwards:
        # Last, but whatever happens to the output: neither a closed pipe nor a full disk takes the other along.
        if save is not None:
            afterwards.callback(store.save, record, Path(save))
        interrupted = "interrupted" in record.setup
        # Whoever pressed Ctrl-C gets what is finished, not another run.
        most = None if interrupted else capacity(record, loaded, batching, cost_model, limit)
        found = results(record, prices_of(record, cost_model), most, bytes_per_token)
        measured_on = costs.of_another(cost_model, shape, device)
        if measured_on is not None:
            warn(
                f"cost model {cost!r} was measured with {measured_on}; {shape.name} on {device.name} only says "
                "how large weights and KV cache are"
            )
        outside = outside_domain(record, cost_model)
        if outside is not None:
            warn(f"outside what {cost_model.name} was calibrated for: {outside}")
        if json is not None:
            write_json(found.to_json(), json)
        if json != "-":
            print_run(found, out(no_color))
    if interrupted:
        raise typer.Exit(130)
