"""Measurements of which one is in another unit: told by what all the others say."""

from collections.abc import Callable

import numpy as np

from sim.solve import non_negative
from traces.errors import InputError
from traces.trace import Floats

UNITS_APART = 30.0
"""A shape this many times off what all others say, or a repeat off the other repeats, is in another unit."""
SUSPECTS = 10
"""Shapes looked at to say which one it is: the fastest and slowest, and those furthest off."""


def refuse_mixed_units(
    columns: Floats, seconds: Floats, predicted: Floats, describe: Callable[[int], str]
) -> None:
    """Refuse measurements of which one is so far off what the others say that its unit must be another.

    Raises:
        InputError: there is one; the line names the shape without which the others agree best.
    """
    apart = _apart(seconds, predicted)
    if apart.max() <= UNITS_APART:
        return
    extremes = np.argsort(np.abs(np.log(seconds / np.median(seconds))))[-SUSPECTS:]
    found = []
    for i in np.union1d(extremes, np.argsort(apart)[-SUSPECTS:]):
        rest = np.arange(len(seconds)) != i
        line = non_negative(columns[rest], seconds[rest])
        off = _apart(seconds, columns @ line)
        found.append((float(off[rest].max()), int(i), float(off[i])))
    _, i, off_by = min(found)
    raise InputError(
        f"profile: {seconds[i]:g} s for {describe(i)} is {off_by:.0f} times off"
        " what the other shapes say; are units mixed?"
    )


def _apart(seconds: Floats, predicted: Floats) -> Floats:
    """Factor between measured and predicted, either way."""
    ratio = seconds / np.maximum(predicted, 1e-300)
    return np.maximum(ratio, 1 / ratio)
