"""Options that the commands of ``real`` share."""

import os
from typing import Annotated

import typer

from real.engine import ENGINES
from traces.errors import InputError
from traces.terminal import whole

Model = Annotated[str, typer.Option(metavar="NAME", help="Model, e.g. Qwen3-0.6B, or toy for a quick look.")]
Weights = Annotated[
    str,
    typer.Option(
        metavar="random|DIR|HUB",
        help="Random weights of the model's dimensions, a folder written by save_pretrained, or a hub name.",
    ),
]
Device = Annotated[str, typer.Option(metavar="cpu|cuda", help="Where to run.")]
Dtype = Annotated[
    str | None, typer.Option(metavar="NAME", help="Not given: bfloat16 on CUDA, float32 on a CPU.")
]
EngineName = Annotated[str, typer.Option("--engine", metavar="|".join(ENGINES), help="How batches prefill.")]


def _threads(text: str) -> int:
    """Parser of ``--threads``: torch takes any number, and falls over when it starts them."""
    count, most = whole(1)(text), os.cpu_count() or 1
    if count > most:
        raise typer.BadParameter(f"{text!r} threads; there are {most} cores")
    return count


Threads = Annotated[
    int,
    typer.Option(parser=_threads, metavar="N", help="CPU threads; more than there are idle cores is slow."),
]
TimedBy = Annotated[
    str | None,
    typer.Option(
        metavar="cpu|wall",
        help="Which clock times the passes. Not given: the process's CPU time on a CPU with one thread, else wall.",
    ),
]


def whole_list(name: str, text: str) -> list[int]:
    """Whole numbers of at least 1 from ``1,2,4``, each once, rising.

    Raises:
        InputError: anything else, with the option and the part that is wrong.
    """
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 11 and 0 < int(part) < 2**31):
            raise InputError(f"{name} {text!r}: {part!r} is not a whole number from 1 to {2**31 - 1}")
    return sorted({int(part) for part in parts})
