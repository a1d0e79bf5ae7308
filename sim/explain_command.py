"""``python -m sim explain``: where a batch's time goes, operation by operation, and how large it should be."""

from typing import Annotated

import typer

from sim.cost import CostModel
from sim.explain import explain as explained
from sim.explain_report import print_explanation
from sim.hardware import hardware
from sim.memory import kv_budget_bytes, largest_batch
from sim.models import model_shape
from sim.options import Json, Memory, NoColor
from sim.roofline import HOSTS, Roofline
from sim.step import batch_steps
from traces.errors import InputError
from traces.terminal import number, out, warn, whole, write_json


def lengths(option: str, text: str) -> list[int]:
    """Tokens of each request from ``512`` or ``10,30,5,20``, in the order given.

    Raises:
        InputError: a part is no whole number of at least 1; the line names option and part.
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 19 and int(part) > 0):
            raise InputError(f"{option} {text!r}: {part!r} is not a whole number of at least 1")
    return [int(part) for part in parts]


def requests(batch: int | None, prompt: str, output: str) -> tuple[list[int], list[int]]:
    """Prompt and output tokens of each request; what is given once holds for all.

    Raises:
        InputError: lists of different lengths, or not as many as the batch has rows.
    """
    prompts, outputs = lengths("--prompt", prompt), lengths("--output", output)
    rows = max(len(prompts), len(outputs))
    if rows == 1:
        rows = DEFAULT_ROWS if batch is None else batch
    for option, given in (("--prompt", prompts), ("--output", outputs)):
        if len(given) not in (1, rows):
            raise InputError(
                f"{option} has {len(given)} lengths for {rows} requests; give one, or one for each"
            )
    if batch is not None and batch != rows:
        raise InputError(f"--batch {batch} does not fit the {rows} lengths given; leave it out")
    if rows > MOST_ROWS:
        raise InputError(f"--batch {rows} is above {MOST_ROWS:,}")
    return prompts * (rows // len(prompts)), outputs * (rows // len(outputs))


DEFAULT_ROWS = 8
MOST_ROWS = 1 << 20
"""Rows that no memory holds."""


def explain(
    model: Annotated[
        str, typer.Option(metavar="NAME|PATH", help="Model, e.g. Qwen3-8B, or a folder with a config.json.")
    ] = "Qwen3-0.6B",
    gpu: Annotated[str, typer.Option(metavar="NAME", help="Device, e.g. H200, A100-80GB or cpu.")] = "H200",
    batch: Annotated[
        int | None,
        typer.Option(parser=whole(1), metavar="ROWS", help="Requests in the batch; 8 if not given."),
    ] = None,
    prompt: Annotated[
        str, typer.Option(metavar="P|P1,P2,...", help="Prompt tokens of all requests, or of each.")
    ] = "512",
    output: Annotated[
        str, typer.Option(metavar="N|N1,N2,...", help="Output tokens of all requests, or of each.")
    ] = "128",
    cost: Annotated[
        str,
        typer.Option(metavar="roofline|FILE", help="Cost model: the datasheet's, or a fitted model file."),
    ] = "roofline",
    host: Annotated[
        str,
        typer.Option(
            metavar="|".join(HOSTS),
            help="Who starts the roofline's kernels: transformers one by one, a CUDA graph of it, a fused engine.",
        ),
    ] = "eager",
    memory: Memory = "auto",
    rate: Annotated[
        float | None,
        typer.Option(
            parser=number(), metavar="PER_SECOND", help="Requests that come a second: what filling takes."
        ),
    ] = None,
    json: Json = None,
    no_color: NoColor = False,
) -> None:
    """Explain one batch: its time by operation and what binds it, its padding, its memory, and other batch sizes."""
    prompts, outputs = requests(batch, prompt, output)
    shape, device = model_shape(model), hardware(gpu)
    dtype = "float32" if device.name == "cpu" else "bfloat16"
    roofline = Roofline(shape, device, dtype, host)
    cost_model: CostModel = roofline
    if cost != "roofline":
        from sim import costs  # loads all kinds of cost model, and what they are fitted with

        cost_model = costs.load(cost, shape, device, dtype, host)
    longest = max(prompts), max(outputs)
    budget = (
        None if memory.strip().lower() in ("auto", "off") else kv_budget_bytes(memory, shape, device, dtype)
    )
    most = None
    if memory.strip().lower() != "off":
        most = largest_batch(shape, device, dtype, *longest, capacity_bytes=budget)
    found = explained(cost_model, roofline, prompts, outputs, most, rate)
    outside = cost_model.outside(batch_steps(len(prompts), *longest))
    if outside is not None:
        warn(f"outside what {cost_model.name} was calibrated for: {outside}")
    if most is not None and len(prompts) > most:
        size = device.memory_bytes if budget is None else budget
        warn(
            f"a batch of {len(prompts):,} does not fit: at most {most:,} rows of {longest[0]:,} + {longest[1]:,} "
            f"tokens do in {size:,} bytes of {'memory' if budget is None else 'KV cache'}"
        )
    setup = {
        "model": shape.name,
        "gpu": device.name,
        "dtype": dtype,
        "host": host,
        "cost": cost_model.to_json(),
        "cost_model": cost_model.name,
        "memory": {"setting": memory, "kv_budget_bytes": budget, "device_bytes": device.memory_bytes},
    }
    if json is not None:
        write_json({"setup": setup, **found.to_json()}, json)
    if json != "-":
        print_explanation(found, setup, out(no_color))
