"""From measured times to a cost model that carries its own evidence: held-out errors, spread, noise, versions."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sim.batch_fit import ALL, SIMPLE, fit_batches
from sim.errors import Score, errors
from sim.fitted import MIN_SHAPES, TERMS, Fitted, features, fit
from sim.grid import Grid, fit_grid
from sim.profile import Profile
from sim.residual import Residual, fit_residual
from sim.run import versions
from sim.solve import floor_and_line, non_negative
from sim.timings import PHASES, Timings
from traces.errors import InputError, choices
from traces.trace import Floats, Ints

Learnt = Fitted | Grid | Residual
FITS: dict[str, Callable[[Profile], Learnt]] = {"fitted": fit, "grid": fit_grid, "residual": fit_residual}
"""Kinds that are learnt from measured passes."""
HELD_OUT_SHARE = 0.3
"""Share of the shapes that is held out to say how wrong a fit is."""
REFITS = 100
"""Fits to resampled shapes, for the spread of the coefficients."""


def fit_kind(kind: str, timings: Timings) -> Learnt:
    """A model of one kind, fitted to all settings.

    Raises:
        InputError: unknown kind, several models or devices at once, whole batches where passes are needed, or too
            little data.
    """
    if kind not in FITS:
        raise InputError(f"unknown kind {kind!r}; known are {choices(FITS)}")
    if len(timings.groups) > 1:
        names = "; ".join(timings.group_name(i) for i in range(len(timings.groups)))
        raise InputError(
            f"{timings.source}: a fit is of one model on one device, not of {names}; choose by --where"
        )
    if len(timings) < MIN_SHAPES:
        raise InputError(
            f"{timings.source}: {len(timings)} distinct shape(s) in {timings.measurements} measurements, a fit needs"
            f" at least {MIN_SHAPES}" + (f"; the first is {timings.describe(0)}" if len(timings) else "")
        )
    if timings.whole_batches and kind != "fitted":
        timings.profile()  # says why
    model = fit_batches(timings) if timings.whole_batches else FITS[kind](timings.profile())
    return with_evidence(
        model,
        data_sha256=timings.data_sha256,
        conditions=dict(timings.conditions),
        passes=timings.measurements,
        noise=timings.noise,
    )


def base(model: Learnt) -> Fitted:
    """The formula in a model: itself, or what a grid or residual stands on."""
    return model if isinstance(model, Fitted) else model.fitted


def with_evidence(model: Learnt, **changes: Any) -> Learnt:
    """The same model with some of its evidence said anew."""
    fitted = replace(base(model), evidence=replace(base(model).evidence, **changes))
    return fitted if isinstance(model, Fitted) else replace(model, fitted=fitted)


def with_all_evidence(kind: str, timings: Timings, seed: int) -> Learnt:
    """Fit one kind to all settings, and say how wrong it is on held-out ones and how sure its coefficients are."""
    model = fit_kind(kind, timings)
    return with_evidence(
        model,
        held_out=held_out(kind, timings, seed),
        spread=spread(base(model), timings, seed),
        versions=versions("scipy", *(["scikit-learn"] if kind == "residual" else [])),
    )


def drawn(timings: Timings, share: float, seed: int) -> tuple[Ints, Ints]:
    """Settings drawn at random, neighbours together: about ``share`` of each group's cells (at least one), and the
    others."""
    random, taken = np.random.default_rng(seed), []
    for group in range(len(timings.groups)):
        cells = np.unique(timings.cell[timings.group == group])
        taken.append(random.permutation(cells)[: max(1, round(share * len(cells)))])
    chosen = np.isin(timings.cell, np.concatenate(taken))
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def held_out(kind: str, timings: Timings, seed: int) -> dict[str, Any] | None:
    """Errors on a seeded draw of settings that a fit to the others never saw; None where too few remain."""
    tested, fitted = drawn(timings, HELD_OUT_SHARE, seed)
    if len(fitted) < MIN_SHAPES:
        return None
    model, unseen = fit_kind(kind, timings.take(fitted)), timings.take(tested)
    signed = errors(unseen.predicted(model), unseen.seconds)
    return {
        "seed": seed,
        "share": HELD_OUT_SHARE,
        "fitted_shapes": len(fitted),
        **_figures(signed),
        "worst_shape": unseen.describe(int(np.argmax(np.abs(signed)))),
        "phases": {
            PHASES[phase]: _figures(signed[unseen.phase == phase]) for phase in np.unique(unseen.phase)
        },
    }


def _figures(signed: Floats) -> dict[str, Any]:
    score = Score.of(signed)
    names = ("median", "mean", "p95", "bias", "worst")
    return {"shapes": score.count, **{name: getattr(score, name) for name in names}}


def coefficients(model: Fitted) -> dict[str, float]:
    """Every coefficient by name, the curve's slopes by the tokens from which they hold."""
    knots = model.knots_tokens
    slopes = zip(_slope_names(knots), model.token_s, strict=True)
    return {"floor_s": model.floor_s, **{term: getattr(model, term) for term in TERMS}, **dict(slopes)}


def _slope_names(knots: tuple[float, ...]) -> list[str]:
    return [f"token_s from {knot:.0f}" for knot in knots]


def spread(model: Fitted, timings: Timings, seed: int) -> dict[str, Any]:
    """Coefficients of fits of the same form to resampled settings (bootstrap, neighbours together): 5th and 95th
    percentile of each. (Efron 1979, doi:10.1214/aos/1176344552.)"""
    columns = timings.sums(features(timings.steps, model.knots_tokens))
    terms = _terms(model, timings)
    with_floor = model.floor_s > 0 and not timings.whole_batches
    random, cells = np.random.default_rng(seed), np.unique(timings.cell)
    members = [np.flatnonzero(timings.cell == cell) for cell in cells]
    refits = np.zeros((REFITS, 1 + columns.shape[1]))
    for refit in refits:
        index = np.concatenate([members[i] for i in random.integers(len(cells), size=len(cells))])
        refit[0], refit[1 + terms] = _solved(
            columns[np.ix_(index, terms)], timings.seconds[index], with_floor
        )
    low, high = np.percentile(refits, [5, 95], axis=0)
    names = ("floor_s", *TERMS, *_slope_names(model.knots_tokens))
    ranges = {name: [float(a), float(b)] for name, a, b in zip(names, low, high, strict=True)}
    return {"refits": REFITS, "seed": seed, "p5_p95": ranges}


def _terms(model: Fitted, timings: Timings) -> Ints:
    """Columns of :func:`sim.fitted.features` that the model's form has."""
    if not timings.whole_batches:
        return np.arange(len(TERMS) + len(model.knots_tokens))
    used = [term for i, term in enumerate(TERMS) if i not in SIMPLE and getattr(model, term) > 0]
    return np.array(ALL if used else SIMPLE)


def _solved(columns: Floats, seconds: Floats, with_floor: bool) -> tuple[float, Floats]:
    return floor_and_line(columns, seconds) if with_floor else (0.0, non_negative(columns, seconds))
