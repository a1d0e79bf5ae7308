"""Times of prefill and decode passes over a grid of shapes, by running short batches as any batch is run.

Two kinds of batch make the grid. A *prefill batch* of B prompts of P tokens gives one prefill, a few decode steps
at contexts P+1, P+2, ... and the overheads of a batch. A *decode batch* gives a few decode steps at a longer
context, over a cache filled with noise: the prefill it saves would cost far more than the steps. Batch sizes are
given one by one, since cost is not smooth in them; a few lengths do, since it is nearly straight in those.

All shapes run once unrecorded, then round after round in random order until the time is spent, so that whatever
changes on the machine meanwhile falls on all of them alike.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from real.engine import Engine
from real.executor import Clock
from real.memory import is_out_of_memory
from real.prompts import prompt_ids
from real.timing import PassTimes, Timeline
from sim.profile import Profile
from sim.step import Step, concat, padded_decode, padded_prefill
from traces.errors import InputError
from traces.trace import Floats

DECODE_STEPS = 4
"""Decode steps of each batch of the profile."""
CONTEXTS = 3
"""Contexts at which decode is measured beside those that follow a prefill."""

Progress = Callable[[float], None]
"""Told, after each batch, what part of the time budget is spent."""


class Point(NamedTuple):
    """One batch of the grid."""

    rows: int
    context_tokens: int
    """Padded prompt, or slots of the cache filled with noise."""
    prefill: bool

    @property
    def steps(self) -> Step:
        """The passes that are recorded of it."""
        contexts = np.arange(self.context_tokens + 1, self.context_tokens + 1 + DECODE_STEPS)
        decode = padded_decode(np.full_like(contexts, self.rows), contexts)
        if not self.prefill:
            return decode
        return concat(padded_prefill([self.rows], [self.context_tokens]), decode)


@dataclass(frozen=True, eq=False)
class Samples:
    """Everything measured, on every clock there was. The i-th step took the i-th seconds."""

    steps: Step
    seconds: dict[Clock, Floats]
    before_s: dict[Clock, Floats]
    """Overheads of the prefill batches, before the prefill."""
    after_s: dict[Clock, Floats]
    warm_ups: int
    """Batches run before recording began."""
    rounds: int
    """Rounds begun; the last one may have been cut by the budget."""
    failed: tuple[str, ...]
    """Shapes that memory did not suffice for."""

    def profile(self, clock: Clock, conditions: dict[str, object]) -> Profile:
        """The samples by one clock, as a fit takes them."""
        if clock not in self.seconds:
            raise InputError(f"no samples by the {clock} clock; there are {', '.join(self.seconds)}")
        about = {
            **conditions,
            "clock": clock,
            "warm_ups": self.warm_ups,
            "rounds": self.rounds,
            "out_of_memory": list(self.failed),
        }
        return Profile(self.steps, self.seconds[clock], about, self.before_s[clock], self.after_s[clock])


def grid(rows: Sequence[int], prompt_tokens: Sequence[int], output_tokens: int) -> list[Point]:
    """The batches of a profile: each row count with each prompt, and at contexts up to the longest in use.

    The longest context of a batch is its prompt and all but the last of its output tokens. Contexts are spaced
    evenly, for decode is nearly straight in them; those that follow a prefill anyway are not measured twice.
    """
    longest = max(max(prompt_tokens) + output_tokens - 1 - DECODE_STEPS, max(prompt_tokens))
    spaced = np.linspace(min(prompt_tokens), longest, CONTEXTS).round().astype(int).tolist()
    contexts = sorted(set(spaced) - set(prompt_tokens))
    prefills = [Point(b, p, True) for b in rows for p in prompt_tokens]
    return prefills + [Point(b, c, False) for b in rows for c in contexts]


def measure(
    engine: Engine,
    points: Sequence[Point],
    budget_s: float,
    seed: int = 0,
    progress: Progress | None = None,
    warm_up: bool = True,
) -> Samples:
    """Run the points, in random order, round after round, until the budget is spent.

    The budget is wall seconds and includes the warm-up; the first round is always finished, so that every shape
    is measured at least once. A shape that does not fit in memory is left out and named. Without ``warm_up``, the
    shapes having been measured before, the budget alone says when to stop.

    Raises:
        InputError: a point has more rows than the engine takes, or none of them fits in memory.
    """
    started_s = time.monotonic()
    random = np.random.default_rng(seed)
    taken: list[tuple[Point, PassTimes]] = []
    failed: list[Point] = []

    def run(point: Point) -> PassTimes | None:
        if progress is not None:
            progress((time.monotonic() - started_s) / budget_s)
        times = _run(engine, point, seed)
        if times is None:
            failed.append(point)
        return times

    # The largest first, so that memory grows once.
    by_size = sorted(points, key=lambda point: point.rows * point.context_tokens, reverse=True)
    fitting = [point for point in by_size if not warm_up or run(point) is not None]
    rounds = 0
    while fitting and (rounds == 0 or time.monotonic() - started_s < budget_s):
        rounds += 1
        for i in random.permutation(len(fitting)).tolist():
            if (rounds > 1 or not warm_up) and taken and time.monotonic() - started_s >= budget_s:
                break
            times = run(fitting[i])
            if times is not None:
                taken.append((fitting[i], times))
        fitting = [point for point in fitting if point not in failed]
    if not taken:
        raise InputError(f"none of the {len(points)} shapes fits in the memory of {engine.device}")
    return _samples(taken, len(points) if warm_up else 0, rounds, failed)


def _run(engine: Engine, point: Point, seed: int) -> PassTimes | None:
    """Run one batch; None if memory runs out."""
    try:
        if not point.prefill:
            # One step more, not recorded: filling the cache has driven the weights out of the processor's own.
            times = engine.time_decode(point.rows, point.context_tokens - 1, 1 + DECODE_STEPS)
            return PassTimes(_less_first(times.wall), None if times.cpu is None else _less_first(times.cpu))
        prompts = [
            prompt_ids(seed, row, point.context_tokens, engine.vocab_size) for row in range(point.rows)
        ]
        engine.reserve(point.rows, point.context_tokens + DECODE_STEPS)
        return engine.run(prompts, 1 + DECODE_STEPS).times
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    engine.release()
    return None


def _less_first(timeline: Timeline) -> Timeline:
    return replace(timeline, step_ns=timeline.step_ns[1:])


def _samples(
    taken: list[tuple[Point, PassTimes]], warm_ups: int, rounds: int, failed: list[Point]
) -> Samples:
    timelines: dict[Clock, list[Timeline]] = {"wall": [times.wall for _, times in taken]}
    cpu = [times.cpu for _, times in taken if times.cpu is not None]
    if len(cpu) == len(taken):
        timelines["cpu"] = cpu
    batches = [i for i, (point, _) in enumerate(taken) if point.prefill]
    return Samples(
        concat(*(point.steps for point, _ in taken)),
        {c: np.concatenate([one.step_ns for one in lines]) / 1e9 for c, lines in timelines.items()},
        {c: np.array([lines[i].before_ns for i in batches]) / 1e9 for c, lines in timelines.items()},
        {c: np.array([lines[i].after_ns for i in batches]) / 1e9 for c, lines in timelines.items()},
        warm_ups,
        rounds,
        tuple(
            f"{p.rows} rows x {p.context_tokens} {'prompt' if p.prefill else 'cached'} tokens" for p in failed
        ),
    )
