"""Slot arithmetic of static batches: what padding and idle rows waste, counted in slots.

Prefill slots of a batch are rows x longest prompt, decode slots rows x longest output (in generated
tokens, the one of prefill included). Everything is an exact integer; fractions are for people.
"""

from dataclasses import dataclass

import numpy as np

from traces.trace import Ints


@dataclass(frozen=True)
class Slots:
    """Slots of some batches together: how many there are and how many of them are useful."""

    slots: int
    useful: int

    @property
    def wasted(self) -> int:
        """Padding in prefill, idle in decode."""
        return self.slots - self.useful

    @property
    def fraction(self) -> float:
        """Wasted by all slots; 0 where there is no slot."""
        return self.wasted / self.slots if self.slots else 0.0


def batch_max(values: Ints, first: Ints) -> Ints:
    """Largest value of each batch; batch i is ``values[first[i]:first[i + 1]]``, the last one runs to the
    end."""
    return np.maximum.reduceat(values, first) if len(first) else np.empty(0, np.int64)


def batch_sum(values: Ints, first: Ints) -> Ints:
    """Sum of the values of each batch, cut as in :func:`batch_max`."""
    return np.add.reduceat(values, first) if len(first) else np.empty(0, np.int64)


def padded_slots(tokens: Ints, first: Ints) -> Slots:
    """Slots of batches that pad ``tokens`` (prompts, or outputs) to the longest of each batch."""
    rows = np.diff(first, append=len(tokens))
    return Slots(slots=int(np.dot(rows, batch_max(tokens, first))), useful=int(tokens.sum()))


def consecutive(requests: int, batch_size: int) -> Ints:
    """First row of each batch when requests are cut, in order, into batches of ``batch_size``."""
    return np.arange(0, requests, batch_size, dtype=np.int64)
