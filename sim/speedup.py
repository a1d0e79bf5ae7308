"""What batching gives: the chapter's engines on the same requests, and tokens per second by batch size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.errors import Pair

PAYS = 0.10
"""A larger batch pays if it gives at least this much more tokens per second."""


@dataclass(frozen=True)
class EngineRun:
    """One engine's time for the same requests, all at once; None where memory did not suffice."""

    engine: str
    seconds: float | None
    """Median over the repeats of the busy time."""
    tokens_per_s: float | None
    """Useful output tokens."""
    same_tokens: bool | None
    """Every request got the tokens that it got alone."""

    def speed_up(self, alone: "EngineRun") -> float | None:
        """Gain over serving each request alone."""
        return None if alone.seconds is None or self.seconds is None else alone.seconds / self.seconds

    def to_json(self, alone: "EngineRun") -> dict[str, Any]:
        """With the gain over serving each request alone."""
        return {**vars(self), "speed_up": self.speed_up(alone)}


@dataclass(frozen=True)
class CurvePoint:
    """Tokens per second of full batches of equal lengths: what a batch size gives when nothing is wasted."""

    rows: int
    tokens_per_s: Pair

    def to_json(self) -> dict[str, Any]:
        """Rows, and the rate simulated and measured."""
        return {"rows": self.rows, **self.tokens_per_s.to_json()}


def stops_paying(points: Sequence[CurvePoint]) -> int | None:
    """The smallest batch size that no larger one beats by :data:`PAYS`; None if that is the largest measured."""
    known = [(point.rows, point.tokens_per_s.measured) for point in points]
    rates = [(rows, rate) for rows, rate in known if rate is not None]
    for i, (rows, rate) in enumerate(rates[:-1]):
        if all(larger < (1 + PAYS) * rate for _, larger in rates[i + 1 :]):
            return rows
    return None
