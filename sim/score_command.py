"""``python -m sim score``: cost models against measured times, each error with the split that it was found on."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from sim import costs
from sim.fitting import FITS
from sim.options import Json, NoColor
from sim.scoring import ROOFLINE, Scored, Sizes, is_kind, scored
from sim.splits import FIT_SHARE, SPLITS, draws
from sim.timings import Timings
from sim.timings_source import About, Map, Where, read
from traces.errors import InputError, choices
from traces.tables import add, percent, show, table
from traces.terminal import out, write_json

SEEDS = "0,1,2,3,4"
"""Draws of interpolation where none are given."""


def score(
    data: Annotated[
        Path, typer.Argument(help="A profile (Parquet), a measured record (folder), or a table with --map.")
    ],
    models: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help=f"{ROOFLINE}, {', '.join(FITS)}, model files, package.module:object."
        ),
    ] = f"{ROOFLINE},fitted",
    split: Annotated[
        str, typer.Option(metavar="SPLIT", help=f"What is fitted and what is tested: {', '.join(SPLITS)}.")
    ] = "interpolation",
    seeds: Annotated[
        str | None,
        typer.Option(metavar="0,1,...", help=f"Seeds of interpolation, one a draw; if not given, {SEEDS}."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model of the roofline, if not as the data names it.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(metavar="NAME", help="Device of the roofline, if not as the data names it.")
    ] = None,
    mapped: Map = None,
    where: Where = None,
    about: About = None,
    json: Json = None,
    no_color: NoColor = False,
) -> None:
    """Score cost models on measured times that they were not fitted to."""
    if seeds is not None and split != "interpolation":
        raise InputError(f"--seeds {seeds}: only interpolation draws at random, {split} does not")
    numbers = _whole_numbers(SEEDS if seeds is None else seeds)
    names = [name.strip() for name in models.split(",") if name.strip()]
    if not names:
        raise InputError(f"--models {models!r} names none; choose {choices((ROOFLINE, *FITS))} or a file")
    for option, size in (("--model", model), ("--gpu", gpu)):
        if size is not None and ROOFLINE not in names and not split.startswith("leave-one"):
            raise InputError(
                f"{option} {size}: it sizes the {ROOFLINE}, which is not among --models {models}"
            )
    files = {name: None if is_kind(name) else costs.found(name) for name in names}
    timings = read(data, mapped, where or [], about or []).timings
    parted = draws(timings, split, numbers)
    found = [scored(name, file, timings, parted, Sizes(model, gpu)) for name, file in files.items()]
    if not any(one.tested for one in found):
        raise InputError(str(found[0].note))
    lines = _notes(found, timings, split, [draw.name for draw in parted])
    if json is not None:
        write_json(_document(found, timings, split, [draw.name for draw in parted], numbers), json)
    if json != "-":
        print_scores(found, timings, lines, out(no_color))


def _whole_numbers(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise InputError(f"--seeds {text!r}: give different whole numbers of at least 0, such as 0,1,2")
    return numbers


def print_scores(found: list[Scored], timings: Timings, lines: list[str], console: Console) -> None:
    """One row a model, then what it was asked on."""
    t = table(
        "Errors on shapes not fitted",
        "model",
        "worst shape",
        "fitted",
        "tested",
        "mean",
        "median",
        "p95",
        "bias",
        "worst",
        left=2,
    )
    for one in found:
        worst = one.worst
        tested = f"{round(sum(map(len, one.tested)) / len(one.tested))}" if one.tested else None
        fitted = f"{round(sum(one.fitted_shapes) / len(one.fitted_shapes))}" if one.fitted_shapes else None
        if worst is None:
            add(t, one.name, "-", *[None] * 7)
            continue
        figures = [percent(one.mean(name)) for name in ("mean", "median", "p95")]
        bias, largest = (percent(value, signed=True) for value in (one.mean("bias"), worst[0]))
        add(t, one.name, worst[1], fitted, tested, *figures, bias, largest)
    show(console, t)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _notes(found: list[Scored], timings: Timings, split: str, names: list[str]) -> list[str]:
    about = {
        "interpolation": f"{FIT_SHARE:.0%} of the shapes fitted, drawn with {', '.join(names)}; the others tested",
        "extrapolation": f"{'; '.join(names)}; all larger tested",
    }.get(split, f"{'; '.join(names)}: fitted to the others, tested on it")
    notes = [f"{split}: {about}; no shape is tested on a fit to its neighbours in length"]
    if len(names) > 1:
        notes.append("mean, median, p95 and bias are means over these draws; worst is of all of them")
    noise = timings.noise["p95"]
    notes.append(
        "no repeats: the noise of the data is unknown"
        if noise is None
        else f"repeats differ by {percent(noise)} (p95)"
    )
    notes += [f"{one.name}: {one.note}" for one in found if one.note is not None]
    notes.append(
        f"data {timings.source}, {timings.measurements:,} measurements of {len(timings):,} shapes, "
        f"sha256 {timings.data_sha256[:16]}"
    )
    return notes


def _document(
    found: list[Scored], timings: Timings, split: str, names: list[str], seeds: list[int]
) -> dict[str, Any]:
    return {
        "data": {
            "source": timings.source,
            "sha256": timings.data_sha256,
            "measurements": timings.measurements,
            "shapes": len(timings),
            "noise": timings.noise,
            "groups": [dict(group) for group in timings.groups],
        },
        "split": {
            "name": split,
            "draws": names,
            "seeds": seeds if split == "interpolation" else None,
            "fit_share": FIT_SHARE if split == "interpolation" else None,
        },
        "scores": [one.to_json() for one in found],
    }
