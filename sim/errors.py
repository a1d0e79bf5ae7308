"""Errors of a prediction, and the spread of the measurement they stand beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from traces.trace import Floats


def error(simulated: float | None, measured: float | None) -> float | None:
    """(simulated - measured) / measured; None where either is missing or measured is 0."""
    if simulated is None or measured is None or measured == 0:
        return None
    return (simulated - measured) / measured


def errors(simulated: Floats, measured: Floats) -> Floats:
    """Relative errors of many values at once; NaN where measured is 0."""
    nothing = measured == 0
    return np.where(nothing, np.nan, (simulated - measured) / np.where(nothing, 1.0, measured))


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
    not_applicable: int = 0
    """Predictions of what was measured as 0: they have no relative error and are in no number above."""

    @classmethod
    def of(cls, signed: Floats) -> "Score":
        """The score of signed errors; those that are NaN are counted and left out."""
        known = signed[~np.isnan(signed)]
        left_out = len(signed) - len(known)
        if not len(known):
            return cls(0, not_applicable=left_out)
        size = np.abs(known)
        median, p95 = np.percentile(size, [50, 95]).tolist()
        bias = float(known.mean())
        return cls(len(known), float(size.mean()), median, p95, float(size.max()), bias, left_out)


@dataclass(frozen=True)
class Noise:
    """Spread of repeats of the same thing: |time - its median| / its median, pooled; fractions."""

    count: int
    """Measurements that had a repeat."""
    median: float | None = None
    p95: float | None = None

    @classmethod
    def of(cls, repeats: Sequence[Floats]) -> "Noise":
        """Noise of groups of repeated measurements; groups of one, and of zeros, say nothing."""
        groups = [group for group in repeats if len(group) > 1 and np.median(group) > 0]
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


@dataclass(frozen=True, eq=False)
class Times:
    """Several things, each simulated once and measured once or more."""

    simulated_s: Floats
    repeats_s: Sequence[Floats]
    """For each of them the measured repeats, seconds."""

    @cached_property
    def measured_s(self) -> Floats:
        """Median of the repeats of each."""
        return np.array([np.median(repeats) for repeats in self.repeats_s], np.float64)

    @cached_property
    def score(self) -> Score:
        """Errors, each thing against the median of its repeats."""
        return Score.of(errors(self.simulated_s, self.measured_s))

    @cached_property
    def noise(self) -> Noise:
        """How much the repeats differ."""
        return Noise.of(self.repeats_s)

    @property
    def mean(self) -> "Pair":
        """Mean over the things, simulated and measured, seconds; a thing that took longer weighs more in its error."""
        if not len(self.simulated_s):
            return Pair(None, None)
        return Pair(float(self.simulated_s.mean()), float(self.measured_s.mean()))

    @classmethod
    def pooled(cls, many: "Sequence[Times]") -> "Times":
        """Everything in several groups as one."""
        simulated = np.concatenate([np.empty(0), *(one.simulated_s for one in many)])
        return cls(simulated, [repeats for one in many for repeats in one.repeats_s])

    def to_json(self) -> dict[str, Any]:
        """Mean seconds and their error, the errors of each thing and the noise as fractions. ``noise`` is the median
        spread of the repeats; an error is inside it when it is at most ``noise_p95``."""
        score, noise = self.score, self.noise
        mean = {name: value for name, value in self.mean.to_json().items() if "spread" not in name}
        found = {
            "count": score.count,
            "median_error": score.median,
            "mean_error": score.mean,
            "p95_error": score.p95,
            "worst_error": score.worst,
            "bias": score.bias,
            "not_applicable": score.not_applicable,
            "noise": noise.median,
            "noise_p95": noise.p95,
            "inside_noise": noise.covers(score.median),
        }
        return {**mean, **{name: rounded(v) if isinstance(v, float) else v for name, v in found.items()}}


@dataclass(frozen=True)
class Pair:
    """One quantity, simulated and measured."""

    simulated: float | None
    measured: float | None
    """Of the repeats, the median or the one in the middle."""
    spread: float | None = None
    """Largest distance of a repeat from that, as a fraction of it; None for a single run."""

    @classmethod
    def of(
        cls, simulated: float | None, measured: Sequence[float | None], middle: float | None = None
    ) -> "Pair":
        """A simulated value beside the repeats of the measured one, told by ``middle`` or else by their median."""
        known = [value for value in measured if value is not None]
        if not known:
            return cls(simulated, None)
        middle = float(np.median(known)) if middle is None else middle
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
            "error": rounded(self.error),
            "spread": rounded(self.spread),
            "inside_spread": self.inside,
        }


def rounded(fraction: float | None) -> float | None:
    """To six decimals, as fractions stand in JSON."""
    return None if fraction is None else round(fraction, 6)
