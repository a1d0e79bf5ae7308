"""Decode steps on A100 and H100 servers (splitwise-sim): 30 % of each group's settings fitted, the rest predicted.

One line for all groups, constant + rows + KV tokens with non-negative coefficients, times one factor a group.
The power-capped H100 groups hold the very numbers of the uncapped ones, so they are left out: a row fitted in
one would be scored in the other.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np

from benchmarks.scores.score import FIT_SHARE, SEEDS, Score, of_errors, read, relative_errors
from sim.fitted import features
from sim.solve import non_negative
from sim.step import padded_decode
from traces.trace import Floats

TERMS = [0, 3, 5]
"""Of sim.fitted.features: the constant, decode rows, decode KV tokens."""
ROUNDS = 8


def scores(data: Path) -> list[Score]:
    """Averaged over five draws."""
    times: dict[tuple[str, ...], dict[tuple[int, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in read(data / "measured" / "splitwise-sim" / "perf_model.csv"):
        group = (row["model"], row["hardware"], row["tensor_parallel"])
        setting = (int(row["batch_size"]), int(row["prompt_size"]), int(row["token_size"]))
        if not row["hardware"].endswith("pcap"):
            times[group][setting].append(float(row["token_time"]) / 1e3)
    columns, seconds = [], []
    for settings in times.values():
        batch, prompt, output = np.array(list(settings)).T
        columns.append(features(padded_decode(batch, prompt + output // 2))[:, TERMS])
        seconds.append(np.array([np.median(repeats) for repeats in settings.values()]))
    errors = [_held_out(columns, seconds, seed) for seed in SEEDS]
    return [
        of_errors("decode step, splitwise-sim, pooled", errors, (3.3, 9.0), "8 groups, duplicates left out")
    ]


def _held_out(columns: list[Floats], seconds: list[Floats], seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    inside = [rng.permutation(len(y)) < round(FIT_SHARE * len(y)) for y in seconds]
    factor = [float(np.median(y[fit])) for y, fit in zip(seconds, inside, strict=True)]
    groups = list(zip(columns, seconds, inside, strict=True))
    for _ in range(ROUNDS):
        line = non_negative(
            np.concatenate([x[fit] for x, _, fit in groups]),
            np.concatenate([y[fit] / scale for (_, y, fit), scale in zip(groups, factor, strict=True)]),
        )
        factor = [float(np.median(y[fit] / (x[fit] @ line))) for x, y, fit in groups]
    return np.concatenate(
        [
            relative_errors(scale * (x @ line), y)[~fit]
            for (x, y, fit), scale in zip(groups, factor, strict=True)
        ]
    )
