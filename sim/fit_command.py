"""``python -m sim fit``: a cost model from measured times, with what it is worth."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from sim import costs
from sim.cost import CostModel
from sim.domain import Domain
from sim.fitting import FITS, Learnt, base, coefficients, with_all_evidence
from sim.grid import Grid
from sim.options import Json, NoColor
from sim.replay import replay
from sim.residual import Residual
from sim.timings import Timings
from sim.timings_source import About, Map, Measured, Where, read
from traces.errors import InputError, choices
from traces.tables import add, count, percent, show, table
from traces.terminal import file_to_write, out, warn, whole, write_json

REPLAY, NONE = "replay", "none"
LARGE_SPREAD = 0.5
"""Repeats further off their median than this are hardly repeats."""


def fit(
    steps: Annotated[
        Path, typer.Argument(help="A profile (Parquet), a measured record (folder), or a table with --map.")
    ],
    to: Annotated[
        Path,
        typer.Option("--out", parser=file_to_write, metavar="MODEL.json", help="Where the model goes."),
    ],
    kind: Annotated[
        str, typer.Option(metavar="fitted|grid|residual|replay", help="What kind of model to make.")
    ] = "fitted",
    fallback: Annotated[
        str | None,
        typer.Option(
            metavar="KIND|FILE|none", help="Prices what a replay has no record of; if not given, fitted."
        ),
    ] = None,
    mapped: Map = None,
    where: Where = None,
    about: About = None,
    seed: Annotated[
        int,
        typer.Option(parser=whole(0), metavar="N", help="Seed of the held-out draw and of the resampling."),
    ] = 0,
    json: Json = None,
    no_color: NoColor = False,
) -> None:
    """Fit a cost model to measured times, and print its coefficients, errors, noise and domain."""
    if kind not in (*FITS, REPLAY):
        raise InputError(f"unknown --kind {kind!r}; known are {choices((*FITS, REPLAY))}")
    if fallback is not None and kind != REPLAY:
        raise InputError(f"--fallback {fallback!r}: only a replay falls back, not {kind}")
    measured = read(steps, mapped, where or [], about or [])
    timings = measured.timings
    if len(timings.deviation) and timings.deviation.max() > LARGE_SPREAD and timings.apart:
        warn(
            f"repeats of a shape differ by up to {percent(float(timings.deviation.max()))}; are they the same thing? "
            f"Columns that vary and play no part: {', '.join(timings.apart)}"
        )
    model = (
        _replayed(measured, fallback or "fitted", seed)
        if kind == REPLAY
        else with_all_evidence(kind, timings, seed)
    )
    document = costs.to_json(model)
    write_json(document, str(to))
    if json is not None:
        write_json(document, json)
    if json != "-":
        print_fit(model, timings, to, out(no_color))


def _replayed(measured: Measured, fallback: str, seed: int) -> CostModel:
    if measured.profile is None:
        raise InputError(
            f"{measured.timings.source}: a replay needs recorded passes; give a profile or a record"
        )
    rest: CostModel | None = None
    if fallback in FITS:
        rest = with_all_evidence(fallback, measured.timings, seed)
    elif fallback != NONE:
        rest = costs.from_file(Path(fallback))
    return replay(measured.profile, rest)


def print_fit(model: CostModel, timings: Timings, to: Path, console: Console) -> None:
    """Coefficients, errors, domain and conditions of a model that was just made."""
    learnt: Any = getattr(model, "fallback", model)
    if isinstance(learnt, Learnt):
        fitted = base(learnt)
        show(console, _coefficients(learnt))
        show(console, _errors(learnt, timings))
        show(console, _domain(fitted.domain))
    for line in _notes(model, timings, to):
        console.print(Text(line), soft_wrap=True)


def _coefficients(model: Learnt) -> Any:
    fitted = base(model)
    evidence = fitted.evidence
    ranges = (evidence.spread or {}).get("p5_p95", {})
    t = table("Coefficients", "seconds", "value", "p5", "p95")
    for name, value in coefficients(fitted).items():
        low, high = ranges.get(name, (None, None))
        if value or high:
            add(t, name, *(None if x is None else f"{x:.4g}" for x in (value, low, high)))
    for name, overhead in zip(("before", "after"), fitted.batch_overhead_s, strict=True):
        if overhead:
            add(t, f"batch_overhead_s, {name}", f"{overhead:.4g}", None, None)
    return t


def _errors(model: Learnt, timings: Timings) -> Any:
    evidence = base(model).evidence
    held_out = evidence.held_out
    t = table("Relative errors, one a shape", "", "n", "median", "mean", "p95", "bias")
    if held_out is not None:
        phases = held_out["phases"]
        for name, found in {"held out": held_out, **(phases if len(phases) > 1 else {})}.items():
            figures = (percent(found[n]) for n in ("median", "mean", "p95"))
            label = name if found is held_out else f"  {name}"
            add(t, label, count(found["shapes"]), *figures, percent(found["bias"], signed=True))
    crossed = model.cross_validated if isinstance(model, Residual) else evidence.cross_validated
    for name, found in (("left out in turn", crossed), ("fitted (formula)", evidence.residual)):
        if found is not None:
            add(
                t, name, count(evidence.shapes), *(percent(found[n]) for n in ("median", "mean", "p95")), None
            )
    noise = timings.noise
    if noise["median"] is not None:
        add(
            t,
            "noise of repeats",
            count(len(timings.deviation)),
            percent(noise["median"]),
            None,
            percent(noise["p95"]),
            None,
        )
    return t


def _domain(domain: Domain) -> Any:
    t = table("Valid for", "", "from", "to")
    for name, limits in vars(domain).items():
        low, high = limits or (None, None)
        add(t, name.replace("_", " "), count(low), count(high))
    return t


def _notes(model: CostModel, timings: Timings, to: Path) -> list[str]:
    learnt: Any = getattr(model, "fallback", model)
    notes = [model.name]
    if isinstance(learnt, Learnt):
        evidence = base(learnt).evidence
        spread, held_out = evidence.spread or {}, evidence.held_out
        notes.append(
            f"coefficients are from all {evidence.shapes:,} shapes ({evidence.passes:,} measurements); p5 and p95 are "
            f"of {spread['refits']} refits to resampled shapes, seed {spread['seed']}"
        )
        if held_out is None:
            notes.append("no shapes held out: too few of them")
        else:
            notes.append(
                f"held out: {held_out['share']:.0%} of the shapes drawn with seed {held_out['seed']}, neighbours in "
                f"length together, predicted by a fit to the other {held_out['fitted_shapes']:,}; worst "
                f"{percent(held_out['worst'])} at {held_out['worst_shape']}"
            )
        if evidence.cross_validated is not None:
            notes.append(
                "left out in turn: five random parts, each predicted by a fit to the others, neighbours and all"
            )
        if timings.noise["median"] is None:
            notes.append("no repeats in the data: its noise is unknown")
    if isinstance(learnt, Grid):
        curves = f"{len(learnt.prefill)} row counts of prefill, {len(learnt.decode)} of decode"
        notes.append(f"grid: measured curves at {curves}, the formula above elsewhere")
    if isinstance(learnt, Residual):
        notes.append(
            f"residual: {len(learnt.trees)} trees, up to a factor of {learnt.largest_factor:g} on the formula"
        )
    if learnt is not model:
        rest = "are refused" if learnt is None else f"by {learnt.name}"
        notes.append(f"replay: {len(timings):,} recorded passes exactly; other passes {rest}")
    about = timings.conditions
    stated = ", ".join(
        f"{key} {_short(about[key])}" for key in ("model", "hardware", "dtype", "engine", "software", "clock")
    )
    return [*notes, f"data {timings.source}, sha256 {timings.data_sha256[:16]}; {stated}", f"written to {to}"]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name} {version}" for name, version in value.items() if version is not None)
    return str(value)
