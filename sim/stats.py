"""Mean and percentiles of integer nanoseconds, as seconds. Percentiles are numpy's linear ones."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.trace import Floats, Ints

PERCENTILES = (50, 90, 95, 99)
METHOD = "linear (numpy)"

Summary = dict[str, float | None]
"""``mean``, ``p50``, ``p90``, ``p95``, ``p99`` in seconds to 9 decimals; all None where there is nothing."""

NOTHING: Summary = dict.fromkeys(("mean", *(f"p{q}" for q in PERCENTILES)))


def summary(values_ns: Ints | Floats) -> Summary:
    """Summary of a column of nanoseconds, which it reorders: a copy of a long column would cost more than the rest.

    Sums are floats: a million saturated requests overflow int64.
    """
    if not len(values_ns):
        return dict(NOTHING)
    position = (len(values_ns) - 1) * np.array(PERCENTILES) / 100
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, len(values_ns) - 1)
    mean = values_ns.mean(dtype=np.float64)
    values_ns.partition(np.union1d(below, above))  # in order at these places, which is all we read
    return _named(mean, values_ns[below], values_ns[above], position - below)


def weighted_summary(values_ns: Ints, counts: Ints) -> Summary:
    """Summary of the column in which each value stands ``counts`` times, without writing it out."""
    held = counts > 0
    values_ns, counts = values_ns[held], counts[held]
    if not len(values_ns):
        return dict(NOTHING)
    order = np.argsort(values_ns)
    ordered, until = values_ns[order], np.cumsum(counts[order])
    total = int(until[-1])
    position = (total - 1) * np.array(PERCENTILES) / 100
    below = np.floor(position).astype(np.int64)
    above = np.minimum(below + 1, total - 1)
    low, high = (ordered[np.searchsorted(until, rank, side="right")] for rank in (below, above))
    return _named(np.dot(values_ns.astype(np.float64), counts) / total, low, high, position - below)


def _named(mean_ns: float, low: NDArray[Any], high: NDArray[Any], share: Floats) -> Summary:
    points = low + (high - low) * share
    values = [float(mean_ns), *points.tolist()]
    return {name: round(value / 1e9, 9) for name, value in zip(NOTHING, values, strict=True)}
