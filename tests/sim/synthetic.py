"""Synthetic measurements for tests of cost models: a known truth on a grid of padded passes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from sim.cost import CostModel
from sim.profile import Profile
from sim.step import Step, concat, padded_decode, padded_prefill

CONDITIONS = {
    "hardware": "none",
    "model": "toy",
    "dtype": "float32",
    "engine": "synthetic",
    "software": "none",
    "clock": "none",
}

counts = st.integers(0, 2**20)
steps = st.lists(st.tuples(*[counts] * 7), min_size=1, max_size=8).map(
    lambda rows: Step(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
)
"""Passes with any non-negative columns, possible or not: the contract promises a cost for each."""

FIELDS = tuple(vars(padded_decode([1], [1])))


def passes(rows: Sequence[int] = (1, 2, 4, 8, 16, 32), lengths: Sequence[int] = (64, 256, 1024)) -> Step:
    b, c = (grid.ravel() for grid in np.meshgrid(rows, lengths))
    return concat(padded_decode(b, c), padded_prefill(b, c))


def profile(
    truth: Callable[[Step], NDArray[np.floating[Any]]],
    noise: float = 0.0,
    repeats: int = 3,
    steps: Step | None = None,
) -> Profile:
    """What a profiler would bring home from hardware that takes ``truth``, give or take log-normal ``noise``."""
    repeated = concat(*[passes() if steps is None else steps] * repeats)
    jitter = np.exp(noise * np.random.default_rng(1).standard_normal(len(repeated)))
    return Profile(repeated, np.asarray(truth(repeated) * jitter, np.float64), CONDITIONS)


def falls(model: CostModel, some: Step, field: str, more: int) -> bool:
    """Whether the cost of any pass falls when one of its fields grows (by more than rounding of floats)."""
    columns = vars(some) | {field: getattr(some, field) + more}
    before, after = model.seconds(some), model.seconds(Step(**columns))
    assert np.all(before > 0)
    assert np.all(np.isfinite(after))
    return bool(np.any(after < before * (1 - 1e-12)))
