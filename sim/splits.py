"""How measured settings are parted into those that are fitted and those that are predicted.

    interpolation        30 % of the shapes drawn at random are fitted, once for each seed; the others are tested
    extrapolation        fitted up to the middle of the row counts and of the lengths, tested on all larger
    leave-one-model-out  every model in turn is tested on a fit to the others
    leave-one-gpu-out    the same with devices

A shape is never tested on a fit to its neighbours in length (:attr:`sim.timings.Timings.cell`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sim.fitting import drawn
from sim.timings import PHASES, Timings
from traces.errors import InputError, choices
from traces.trace import Ints

FIT_SHARE = 0.3
"""Share of the shapes that is fitted where they are drawn at random."""


@dataclass(frozen=True, eq=False)
class Draw:
    """One way to part the settings."""

    name: str
    fitted: Ints
    tested: Ints
    across: bool = False
    """Whether a tested group has nothing of its own among the fitted."""


def interpolation(timings: Timings, seeds: Sequence[int]) -> list[Draw]:
    """Random shapes fitted, one draw a seed."""
    return [Draw(f"seed {seed}", *drawn(timings, FIT_SHARE, seed)) for seed in seeds]


def extrapolation(timings: Timings, seeds: Sequence[int]) -> list[Draw]:
    """Small rows and lengths fitted, all larger tested but for neighbours of a fitted one; ``seeds`` play no part."""
    inside, limits = np.zeros(len(timings), np.bool_), []
    length = timings.tokens + timings.output_tokens
    for group, phase in sorted(set(zip(timings.group.tolist(), timings.phase.tolist(), strict=True))):
        here = (timings.group == group) & (timings.phase == phase)
        most_rows, longest = (_middle(column[here]) for column in (timings.rows, length))
        inside |= here & (timings.rows <= most_rows) & (length <= longest)
        limits.append(f"{PHASES[phase]} up to {most_rows} rows and {longest} tokens")
    name = "fitted " + "; ".join(dict.fromkeys(limits))
    beside = np.isin(timings.cell, timings.cell[inside])
    return [Draw(name, np.flatnonzero(inside), np.flatnonzero(~beside))]


def _middle(values: Ints) -> int:
    distinct = np.unique(values)
    return int(distinct[(len(distinct) - 1) // 2])


def _leave_out(role: str) -> Callable[[Timings, Sequence[int]], list[Draw]]:
    def draws(timings: Timings, seeds: Sequence[int]) -> list[Draw]:
        labels = [group.get(role, "") for group in timings.groups]
        if len(set(labels)) < 2:
            held = f"it holds only {labels[0]}" if labels[0] else f"name its column by --map {role}=COLUMN"
            raise InputError(f"{timings.source}: leaving one {role} out needs at least two; {held}")
        column = np.array(labels)[timings.group]
        return [
            Draw(
                f"without {label}",
                np.flatnonzero(column != label),
                np.flatnonzero(column == label),
                across=True,
            )
            for label in sorted(set(labels))
        ]

    return draws


SPLITS: dict[str, Callable[[Timings, Sequence[int]], list[Draw]]] = {
    "interpolation": interpolation,
    "extrapolation": extrapolation,
    "leave-one-model-out": _leave_out("model"),
    "leave-one-gpu-out": _leave_out("hardware"),
}


def draws(timings: Timings, split: str, seeds: Sequence[int]) -> list[Draw]:
    """The draws of a split.

    Raises:
        InputError: unknown split, a table without such a column, or nothing left to test.
    """
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}; known are {choices(SPLITS)}")
    found = SPLITS[split](timings, seeds)
    for draw in found:
        if not len(draw.tested) or not len(draw.fitted):
            raise InputError(
                f"{timings.source}: {len(timings)} shapes are too few for {split}: nothing left to test"
            )
    return found
