"""Errors of a prediction, and the spread of the measurement they stand beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.trace import Floats


def error(simulated: float | None, measured: float | None) -> float | None:
    """(simulated - measured) / measured; None where either is missing or measured is 0."""
    if simulated is None or measured is None or measured == 0:
        return None
    return (simulated - measured) / measured


def errors(simulated: Floats, measured: Floats) -> Floats:
    """Relative errors of many values at once; all measured must be above 0."""
    return (simulated - measured) / measured


@dataclass(frozen=True)
class Score:
    """Absolute relative errors of some predictions, as fractions; None where there are none."""

    count: int
    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    worst: float | None = None
    bias: float | None = None
    """Mean of the signed errors."""

    @classmethod
    def of(cls, signed: Floats) -> "Score":
        """The score of signed errors."""
        if not len(signed):
            return cls(0)
        size = np.abs(signed)
        median, p95 = np.percentile(size, [50, 95]).tolist()
        return cls(len(signed), float(size.mean()), median, p95, float(size.max()), float(signed.mean()))

    def to_json(self) -> dict[str, Any]:
        """Fractions, to six decimals."""
        return {name: round(v, 6) if isinstance(v, float) else v for name, v in vars(self).items()}


@dataclass(frozen=True)
class Noise:
    """Spread of repeats of the same thing: |time - its median| / its median, pooled; fractions."""

    count: int
    """Measurements that had a repeat."""
    median: float | None = None
    p95: float | None = None

    @classmethod
    def of(cls, repeats: Sequence[Floats]) -> "Noise":
        """Noise of groups of repeated measurements; groups of one say nothing."""
        groups = [group for group in repeats if len(group) > 1]
        if not groups:
            return cls(0)
        spread = np.concatenate([np.abs(g - np.median(g)) / np.median(g) for g in groups])
        median, p95 = np.percentile(spread, [50, 95]).tolist()
        return cls(len(spread), median, p95)

    def covers(self, relative_error: float | None) -> bool | None:
        """Whether an error is inside the noise: at most its 95th percentile. None where either is unknown."""
        if relative_error is None or self.p95 is None:
            return None
        return abs(relative_error) <= self.p95


@dataclass(frozen=True)
class Pair:
    """One quantity, simulated and measured."""

    simulated: float | None
    measured: float | None
    """Median over the repeats."""
    spread: float | None = None
    """Largest distance of a repeat from that median, as a fraction of it; None for a single run."""

    @classmethod
    def of(cls, simulated: float | None, measured: Sequence[float | None]) -> "Pair":
        """A simulated value beside the repeats of the measured one."""
        known = [value for value in measured if value is not None]
        if not known:
            return cls(simulated, None)
        middle = float(np.median(known))
        if len(known) < 2 or middle == 0:
            return cls(simulated, middle)
        return cls(simulated, middle, max(abs(value - middle) for value in known) / abs(middle))

    @property
    def error(self) -> float | None:
        """Relative error; None is n/a."""
        return error(self.simulated, self.measured)

    @property
    def inside(self) -> bool | None:
        """Whether the error is no larger than the repeats differ."""
        if self.error is None or self.spread is None:
            return None
        return abs(self.error) <= self.spread

    def to_json(self) -> dict[str, Any]:
        """Both values, the error and the spread."""
        return {
            "simulated": self.simulated,
            "measured": self.measured,
            "error": None if self.error is None else round(self.error, 6),
            "spread": None if self.spread is None else round(self.spread, 6),
            "inside_spread": self.inside,
        }
