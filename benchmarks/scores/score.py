"""One row of the table of scores, and reading of the published files."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sim.solve import relative_errors
from traces.trace import Floats

SEEDS = range(5)
FIT_SHARE = 0.3
"""Share of the rows that is fitted where rows are drawn at random; the rest is scored."""


@dataclass(frozen=True)
class Score:
    """Mean and tail of relative errors on rows that were not fitted, in percent; and what was asked for."""

    what: str
    mean: float
    tail: float
    tail_name: str
    asked_mean: float
    asked_tail: float | None
    rows: int
    note: str = ""

    @property
    def reached(self) -> bool:
        """Whether both figures are at most what was asked."""
        return self.mean <= self.asked_mean and (self.asked_tail is None or self.tail <= self.asked_tail)


def of_errors(what: str, errors: Sequence[Floats], asked: tuple[float, float], note: str = "") -> Score:
    """Mean and 95th percentile, each averaged over the given draws of held-out rows."""
    means = [100 * float(np.mean(e)) for e in errors]
    tails = [100 * float(np.percentile(e, 95)) for e in errors]
    rows = len(errors[0])
    return Score(what, float(np.mean(means)), float(np.mean(tails)), "p95", *asked, rows, note)


def worst(what: str, errors: Floats, asked: tuple[float, float | None], note: str = "") -> Score:
    """Mean and largest error."""
    return Score(
        what, 100 * float(errors.mean()), 100 * float(errors.max()), "worst", *asked, len(errors), note
    )


def drawn(rows: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which rows are fitted: :data:`FIT_SHARE` of them, drawn from ``seed``."""
    return np.random.default_rng(seed).permutation(rows) < round(FIT_SHARE * rows)


def read(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


__all__ = ["FIT_SHARE", "SEEDS", "Score", "drawn", "of_errors", "read", "relative_errors", "worst"]
