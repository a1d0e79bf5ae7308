"""Options that several commands share: one place for their names, their help and their checks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traces.errors import InputError
from traces.terminal import json_target, number, warn, whole

if TYPE_CHECKING:
    from sim.batching import Batching


def _record_folder(text: str) -> str:
    """Parser of ``--save``: what is no folder for a record is refused before the run, not after it."""
    from sim.store import check_folder  # loads Arrow's Parquet, which not every command needs

    if not text:
        raise typer.BadParameter("'' is no name; name a new or empty folder")
    try:
        check_folder(Path(text))
    except InputError as error:
        raise typer.BadParameter(str(error)) from None
    return text


TraceArg = Annotated[
    str, typer.Argument(help="A trace: file, built-in name (textbook) or recipe (poisson:rate=4,n=1000,...).")
]
MaxBatch = Annotated[
    int, typer.Option(parser=whole(1), metavar="ROWS", help="Most requests in a batch.", show_default=True)
]
MaxWait = Annotated[
    float | None,
    typer.Option(
        parser=number(zero=True),
        metavar="SECONDS",
        help="Start a batch that is not full so long after its oldest request came. Not given: wait until full.",
    ),
]
AtOnce = Annotated[
    bool,
    typer.Option("--at-once", help="Ignore arrival times: offline work in file order, no timer."),
]
Memory = Annotated[
    str, typer.Option(metavar="off|auto|BYTES", help="Cap the padded KV cache of a batch, e.g. auto or 40GB.")
]
Seed = Annotated[int, typer.Option(parser=whole(0), metavar="N", help="Seed of recipes and random prompts.")]
Json = Annotated[
    str | None,
    typer.Option(
        "--json", parser=json_target, metavar="FILE|-", help="Write one JSON document; - is stdout."
    ),
]
Save = Annotated[
    str | None,
    typer.Option(
        parser=_record_folder, metavar="DIR", help="Save the record (Parquet and JSON) in a folder."
    ),
]
NoColor = Annotated[bool, typer.Option("--no-color", help="Plain text, no escape codes.")]


def batching_of(max_batch: int, max_wait: float | None, at_once: bool) -> "Batching":
    """The three batching options as one; says so where ``--at-once`` switches a given timer off."""
    from sim.batching import Batching  # loads the readers of traces, which not every command needs

    if at_once and max_wait is not None:
        warn(f"--max-wait {max_wait:g} has no effect: --at-once switches the timer off")
    return Batching(max_batch, max_wait, at_once)


def kv_tokens(budget_bytes: int | None, bytes_per_token: int) -> int | None:
    """Tokens of KV cache that a budget holds."""
    return None if budget_bytes is None else budget_bytes // bytes_per_token


def memory_setup(setting: str, budget_bytes: int | None) -> dict[str, Any]:
    """What the record says of the memory cap: as given, and as resolved."""
    return {"setting": setting, "kv_budget_bytes": budget_bytes}
