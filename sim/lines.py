"""Sums of decode costs along straight lines, without a loop over tokens.

With each row at its own context, the steps between two rows' ends have a fixed number of rows, and key-value slots
and longest context that grow in a straight line. Where the model's cost is straight too, the sum is the number of steps
times the mean of the two ends; the midpoint tells. Where it is not, the line is halved.
"""

from dataclasses import dataclass

import numpy as np

from sim.cost import CostModel
from sim.step import own_decode
from traces.trace import Floats, Ints

TOLERANCE = 1e-9
"""Relative distance of the midpoint from the chord up to which a line counts as straight."""


@dataclass(frozen=True, eq=False)
class Lines:
    """Runs of decode steps k = first .. last (empty where last < first), each with a fixed number of rows."""

    rows: Ints
    kv_tokens: Ints
    """Key-value slots at k = 0; every step adds ``rows``."""
    context: Ints
    """Longest context at k = 0; every step adds 1."""
    first: Ints
    last: Ints

    def take(self, index: Ints) -> "Lines":
        """Some of the lines."""
        return Lines(*(column[index] for column in vars(self).values()))

    def seconds(self, model: CostModel, k: Ints) -> Floats:
        """Cost of step k of each line."""
        return model.seconds(own_decode(self.rows, self.kv_tokens + self.rows * k, self.context + k))


def line_sums_ns(model: CostModel, lines: Lines) -> Floats:
    """Cost of all steps of each line, nanoseconds, not rounded."""
    total = np.zeros(len(lines.rows))
    owner = np.flatnonzero(lines.last >= lines.first)
    lines = lines.take(owner)
    while len(owner):
        steps = lines.last - lines.first + 1
        middle = (lines.first + lines.last) // 2
        at_first = lines.seconds(model, lines.first)
        at_last, at_middle = at_first.copy(), at_first
        longer, inner = np.flatnonzero(steps > 1), np.flatnonzero(steps > 2)
        if len(longer):
            at_last[longer] = lines.take(longer).seconds(model, lines.last[longer])
        if len(inner):
            at_middle = at_last.copy()
            at_middle[inner] = lines.take(inner).seconds(model, middle[inner])
        share = (middle - lines.first) / np.maximum(steps - 1, 1)
        off = np.abs(at_middle - (at_first + (at_last - at_first) * share))
        bent = np.zeros(len(owner), np.bool_)
        bent[inner] = off[inner] > TOLERANCE * at_last[inner]
        sums = np.where(bent, 0.0, steps * (at_first + at_last) / 2)
        total += np.bincount(owner, weights=sums, minlength=len(total))
        again = np.flatnonzero(bent)
        owner, lines, middle = owner[again], lines.take(again), middle[again]
        left = Lines(lines.rows, lines.kv_tokens, lines.context, lines.first, middle)
        right = Lines(lines.rows, lines.kv_tokens, lines.context, middle + 1, lines.last)
        pairs = zip(vars(left).values(), vars(right).values(), strict=True)
        lines, owner = Lines(*(np.concatenate(pair) for pair in pairs)), np.concatenate([owner, owner])
    return total * 1e9
