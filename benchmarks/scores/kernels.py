"""Single kernels on an H200 (AIConfigurator): 30 % of the distinct shapes fitted, the rest predicted.

*Fitted*: sums and maxima of physical terms with non-negative coefficients, as in sim.fitted. A matrix product is
a broken line in tokens for each weight shape; decode attention is max(floor, line) for each row count.
*Residual*: a smooth physical fit times what boosted trees learn of the rest, at most a factor of two either way.
"""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from scipy.optimize import least_squares

from benchmarks.scores.score import SEEDS, Score, drawn, of_errors, relative_errors
from sim.solve import floor_and_line, non_negative
from traces.trace import Floats

KNOTS_TOKENS = (0, 128, 512, 2048)
SMS = 132
"""Multiprocessors of the H200."""
TILES = ((64, 64), (64, 128), (64, 256), (128, 128), (128, 256), (256, 128))
LARGEST_FACTOR = 2.0
"""How far a learnt residual may correct the fit."""
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def read_medians(path: Path, keys: tuple[str, ...]) -> tuple[Floats, Floats]:
    """Distinct shapes [shapes, keys] and the median seconds of each."""
    table = pyarrow.csv.read_csv(path)
    shapes = np.stack([table[key].to_numpy().astype(float) for key in keys], axis=1)
    distinct, shape_of = np.unique(shapes, axis=0, return_inverse=True)
    order = np.lexsort((table["latency_ms"].to_numpy(), shape_of.ravel()))
    repeats = np.bincount(shape_of.ravel())
    first = np.cumsum(repeats) - repeats
    latency = table["latency_ms"].to_numpy()[order]
    return distinct, (latency[first + (repeats - 1) // 2] + latency[first + repeats // 2]) / 2e3


def gemm_fitted(shapes: Floats, seconds: Floats, inside: Bools) -> Floats:
    """Predicted seconds: constant + broken line in tokens, for each (n, k)."""
    m = shapes[:, 0]
    ramps = [np.clip(m, a, b) - a for a, b in zip(KNOTS_TOKENS, (*KNOTS_TOKENS[1:], np.inf), strict=True)]
    columns = np.stack([np.ones_like(m), *ramps], axis=1)
    out = np.empty(len(m))
    _, weights = np.unique(shapes[:, 1:], axis=0, return_inverse=True)
    for weight in range(int(weights.max()) + 1):
        here = weights.ravel() == weight
        out[here] = columns[here] @ non_negative(columns[here & inside], seconds[here & inside])
    return out


def gemm_smooth(shapes: Floats, seconds: Floats, inside: Bools) -> Floats:
    """Predicted seconds: floor + smooth maximum of traffic, arithmetic and the serial loop over k."""
    m, n, k = shapes.T

    def log_seconds(parameters: Floats) -> Floats:
        floor, weight_byte, flop, per_k, sharpness, activation_byte = np.exp(parameters)
        traffic = weight_byte * 2 * n * k + activation_byte * 2 * (m * k + m * n)
        parts = np.stack([traffic, 2 * m * n * k * flop, per_k * k])
        largest = parts.max(axis=0)
        total = floor + largest * ((parts / largest) ** sharpness).sum(axis=0) ** (1 / sharpness)
        return np.asarray(np.log(total), np.float64)

    start = np.log([3e-6, 1 / 4e12, 1e-15, 1e-10, 3.0, 1 / 4e12])
    target = np.log(seconds)
    found = least_squares(
        lambda p: (log_seconds(p) - target)[inside], start, loss="soft_l1", f_scale=0.05, max_nfev=40
    )
    return np.exp(log_seconds(found.x))


def gemm_signs(shapes: Floats, predicted: Floats) -> Floats:
    """What a tree may split on: sizes, alignment, and how full the last wave of tiles is."""
    m, n, k = shapes.T
    columns = [np.log(x) for x in (m, n, k, m * n * k, m * n, n * k, predicted)]
    columns += [m % 8 == 0, m % 64, m % 128, m % 256, n % 256, k % 1024]
    for tile_m, tile_n in TILES:
        tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
        waves = np.ceil(tiles / SMS)
        columns += [tiles / (waves * SMS), np.log(waves), m / (np.ceil(m / tile_m) * tile_m)]
    return np.stack(columns, axis=1)


def attention_fitted(shapes: Floats, seconds: Floats, inside: Bools) -> Floats:
    """Predicted seconds: max(floor, line) for each row count."""
    rows, context, heads, kv_heads = shapes.T
    context = context + 1  # the step's own token is read too
    blocks = np.ceil(context / 128)
    terms = (
        np.ones_like(rows),
        rows * context * kv_heads,
        rows * blocks * kv_heads,
        rows * context * heads,
        rows * heads,
        rows * kv_heads,
        blocks,
        np.log2(context),
    )
    columns = np.stack(terms, axis=1)
    out = np.empty(len(rows))
    for count in np.unique(rows):
        here = rows == count
        floor, line = floor_and_line(columns[here & inside], seconds[here & inside])
        out[here] = np.maximum(columns[here] @ line, floor)
    return out


def attention_signs(shapes: Floats, predicted: Floats) -> Floats:
    """What a tree may split on."""
    rows, context, heads, kv_heads = shapes.T
    products = (rows, context + 1, heads, kv_heads, heads / kv_heads, rows * kv_heads, rows * heads)
    columns = [np.log(x) for x in (*products, rows * (context + 1) * kv_heads, predicted)]
    columns.append(rows * kv_heads / (np.ceil(rows * kv_heads / SMS) * SMS))
    return np.stack(columns, axis=1)


def with_residual(predicted: Floats, signs: Floats, seconds: Floats, inside: Bools, seed: int) -> Floats:
    """The prediction times a learnt factor, clipped: the mean of three boosted forests and one of random trees.

    That mixture was chosen on the A100's matrix products, which are not scored.
    """
    sklearn = importlib.import_module("sklearn.ensemble")
    boosted = {
        "max_iter": 800,
        "learning_rate": 0.05,
        "max_leaf_nodes": 31,
        "min_samples_leaf": 5,
        "max_features": 0.4,
    }
    learners = [
        *(sklearn.HistGradientBoostingRegressor(**boosted, random_state=10 * seed + i) for i in range(3)),
        sklearn.ExtraTreesRegressor(200, max_features=0.6, random_state=seed),
    ]
    target = np.log(seconds / predicted)[inside]
    learnt = np.mean([learner.fit(signs[inside], target).predict(signs) for learner in learners], axis=0)
    limit = np.log(LARGEST_FACTOR)
    return np.asarray(predicted * np.exp(np.clip(learnt, -limit, limit)), np.float64)


Fit = Callable[[Floats, Floats, Bools], Floats]
Signs = Callable[[Floats, Floats], Floats]


def scores(data: Path) -> list[Score]:
    """Matrix products and decode attention, fitted and with a learnt residual where scikit-learn is installed."""
    folder = data / "measured" / "aiconfigurator-ops"
    gemm = read_medians(folder / "h200_gemm_bf16.csv", ("m", "n", "k"))
    attention = read_medians(
        folder / "h200_generation_attention_bf16_hd128.csv",
        ("batch_size", "step", "num_heads", "num_key_value_heads"),
    )
    out = [
        _score("H200 GEMM, fitted", gemm, gemm_fitted, (6.0, 15.0)),
        _score("H200 decode attention, fitted", attention, attention_fitted, (6.0, 17.0)),
    ]
    if importlib.util.find_spec("sklearn") is not None:
        out += [
            _score("H200 GEMM, residual", gemm, gemm_smooth, (3.3, 9.5), gemm_signs),
            _score(
                "H200 decode attention, residual", attention, attention_fitted, (2.0, 5.0), attention_signs
            ),
        ]
    return out


def _score(
    what: str,
    measured: tuple[Floats, Floats],
    fit: Fit,
    asked: tuple[float, float],
    signs: Signs | None = None,
) -> Score:
    shapes, seconds = measured
    errors = []
    for seed in SEEDS:
        inside = drawn(len(seconds), seed)
        predicted = fit(shapes, seconds, inside)
        if signs is not None:
            predicted = with_residual(predicted, signs(shapes, predicted), seconds, inside, seed)
        errors.append(relative_errors(predicted, seconds)[~inside])
    return of_errors(what, errors, asked)
