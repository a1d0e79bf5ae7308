"""Which shapes to profile: those that a user names, or those that serving a trace would run through.

Cost is not smooth in the batch size, so a profile is dense in the row counts that occur; it is nearly straight in
lengths, so a few of those do. Where the time budget does not suffice for all row counts, the rarest are left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from real.profiler import Point, grid
from real.trial import prompts_to_profile, rows_formed
from sim.batching import Batching
from sim.cost import CostModel
from traces.trace import Trace

ROUNDS = 2
"""Times that every shape runs at least: unrecorded, and once recorded."""


@dataclass(frozen=True)
class Shapes:
    """What a profile covers; None: not said."""

    rows: Sequence[int] | None = None
    prompt_tokens: Sequence[int] | None = None
    output_tokens: int | None = None
    """The longest answer: decode is timed up to there."""
    left_out: tuple[int, ...] = ()
    """Row counts that occur but that the budget does not suffice for."""

    def or_else(self, other: "Shapes") -> "Shapes":
        """What is not said here, from ``other``."""
        return Shapes(
            other.rows if self.rows is None else self.rows,
            other.prompt_tokens if self.prompt_tokens is None else self.prompt_tokens,
            other.output_tokens if self.output_tokens is None else self.output_tokens,
            other.left_out if self.rows is None else (),
        )

    def points(self) -> list[Point]:
        """The batches of the profile.

        Raises:
            ValueError: something is not said.
        """
        if self.rows is None or self.prompt_tokens is None or self.output_tokens is None:
            raise ValueError(f"a profile needs rows, prompts and outputs, not {self}")
        return grid(self.rows, self.prompt_tokens, self.output_tokens)

    def describe(self) -> str:
        """One line of what was chosen."""
        line = (
            f"rows {_list(self.rows)}; prompts of {_list(self.prompt_tokens)} tokens; answers up to "
            f"{self.output_tokens}"
        )
        if self.left_out:
            line += f"; left out for want of time, rows {_list(self.left_out)}: raise --seconds"
        return line


DEFAULT = Shapes((1, 2, 4, 8), (16, 64, 256), 128)
"""What is profiled where nothing is said."""


def for_trace(
    trace: Trace, batching: Batching, model: CostModel, budget_s: float, given: Shapes | None = None
) -> Shapes:
    """The shapes that serving a trace would run through, as far as the budget goes; what is given stays.

    Row counts are those of the batches that a simulated run forms, the most frequent first; the largest and the
    smallest are always there.

    Args:
        trace: what will be served.
        batching: how.
        model: a guess at the costs: forms the batches, and says how long the profile takes.
        budget_s: seconds for warm-up and measurement.
        given: shapes that win over those of the trace.
    """
    given = given or Shapes()
    formed = rows_formed(batching.apply(trace), batching, model) if given.rows is None else {}
    lengths = given.or_else(Shapes((), prompts_to_profile([trace]), int(trace.output_tokens.max())))
    if given.rows is not None:
        return lengths
    kept = {min(formed), max(formed)}
    for rows in sorted(formed, key=lambda rows: (-formed[rows], rows)):
        wider = Shapes(sorted({*kept, rows}), lengths.prompt_tokens, lengths.output_tokens)
        if seconds_of(wider.points(), model) <= budget_s:
            kept.add(rows)
    left_out = tuple(rows for rows in formed if rows not in kept)
    return Shapes(sorted(kept), lengths.prompt_tokens, lengths.output_tokens, left_out)


def seconds_of(points: Sequence[Point], model: CostModel) -> float:
    """How long the least profile of these points takes, by a guess at the costs."""
    before_s, after_s = model.batch_overhead_s
    passes_s = sum(float(model.seconds(point.steps).sum()) for point in points)
    return ROUNDS * (passes_s + len(points) * (before_s + after_s))


def _list(values: Sequence[int] | None) -> str:
    return ", ".join(map(str, values or ()))
