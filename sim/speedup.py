"""What batching gives: the chapter's engines on the same requests, and tokens per second by batch size."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sim.errors import Pair

PAYS = 0.10
"""A doubled batch pays while it gives at least this much more tokens per second."""


@dataclass(frozen=True)
class EngineRun:
    """One engine's time for the same requests, all at once."""

    engine: str
    seconds: float
    """Median over the repeats of the busy time."""
    tokens_per_s: float
    """Useful output tokens."""
    same_tokens: bool
    """Every request got the tokens that it got alone."""

    def to_json(self, alone: "EngineRun") -> dict[str, Any]:
        """With the gain over serving each request alone."""
        return {**vars(self), "speed_up": alone.seconds / self.seconds}


@dataclass(frozen=True)
class CurvePoint:
    """Tokens per second of full batches of equal lengths: what a batch size gives when nothing is wasted."""

    rows: int
    tokens_per_s: Pair

    def to_json(self) -> dict[str, Any]:
        """Rows, and the rate simulated and measured."""
        return {"rows": self.rows, **self.tokens_per_s.to_json()}


def stops_paying(points: Sequence[CurvePoint]) -> int | None:
    """The batch size after which the next one measured gives less than :data:`PAYS` more; None if all of them pay."""
    for point, bigger in pairwise(points):
        if (bigger.tokens_per_s.measured or 0.0) < (1 + PAYS) * (point.tokens_per_s.measured or 0.0):
            return point.rows
    return None
