"""Traces, cost models, executors and records small enough to work out by hand or by brute force."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sim.cost import nanoseconds
from sim.executor import BatchTimes, Simulated
from sim.hardware import hardware
from sim.models import model_shape
from sim.policy import StaticBatching, Take, Wait
from sim.queue import Waiting
from sim.record import FULL, RunRecord
from sim.roofline import Roofline
from sim.server import serve
from sim.step import EXACT, Rounding, Step, batch_steps
from traces.trace import Floats, Ints, Trace

MS = 1_000_000
"""Nanoseconds of a millisecond."""
S = 1_000_000_000
"""Nanoseconds of a second."""


@dataclass(frozen=True)
class Toy:
    """A cost model from a formula."""

    name: str
    price: Callable[[Step], Floats]
    batch_overhead_s: tuple[float, float] = (0.0, 0.0)

    def seconds(self, steps: Step) -> Floats:
        return self.price(steps)

    def outside(self, steps: Step) -> str | None:
        return None

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.name}


def _line(steps: Step) -> Floats:
    tokens = steps.prefill_tokens + steps.decode_rows
    seconds: Floats = 1e-3 + 1e-6 * tokens + 3e-8 * steps.prefill_pairs + 2e-7 * steps.decode_kv_tokens
    return seconds + 5e-8 * steps.max_context_tokens


def _table(steps: Step) -> Floats:
    by_rows = np.array([1.0, 5.0, 9.0, 14.0, 7.0, 20.0, 8.0, 3.0, 30.0]) * 1e-3
    rows = np.maximum(steps.decode_rows, steps.logit_rows)
    seconds: Floats = by_rows[np.minimum(rows, 8)] + 1e-6 * (steps.prefill_tokens + steps.decode_kv_tokens)
    return seconds


K1 = Toy("k1", lambda s: 1e-3 * s.prefill_tokens + 10e-3 * (s.decode_rows > 0))
"""Prefill 1 ms a padded slot, a decode step 10 ms whatever it holds."""
AFFINE = Toy("affine", _line, (2e-3, 1e-3))
FLOOR = Toy("floor", lambda s: np.maximum(1.002e-3, _line(s)), (0.0, 5e-4))
"""max(floor, line): bent in the middle of most batches."""
ROOFLINE = Roofline(model_shape("toy"), hardware("cpu"), "float32")
TABLE = Toy("table", _table)
"""Four rows are quicker than three, six than five: what a real grid may hold."""


def trace_of(
    arrival_ns: Sequence[int], prompts: Sequence[int] | int = 1, outputs: Sequence[int] | int = 1
) -> Trace:
    """A trace from plain numbers; one number stands for all."""
    n = len(arrival_ns)
    arrival, prompt, output = (
        np.array([column] * n if isinstance(column, int) else column, np.int64)
        for column in (arrival_ns, prompts, outputs)
    )
    return Trace("worked", arrival, prompt, output, source_row=np.arange(n, dtype=np.int64))


TEXTBOOK = trace_of([0, 0, 0, 0], [10, 30, 5, 20], [15, 10, 20, 12])


class Scripted:
    """An executor that takes the time it is told to, all of it in prefill."""

    def __init__(self, took_ns: Callable[[Sequence[int]], int], rounding: Rounding = EXACT) -> None:
        self.took_ns = took_ns
        self.rounding = rounding

    def run(self, requests: Sequence[int]) -> BatchTimes:
        return BatchTimes(0, self.took_ns(requests), 0, 0)

    def row_decode_ns(self, record: RunRecord) -> Ints:
        return np.zeros(len(record.rows.request), np.int64)


def run(
    trace: Trace,
    max_batch: int,
    max_wait_ns: int | None = None,
    model: Any = K1,
    *,
    rounding: Rounding = EXACT,
    max_kv_tokens: int | None = None,
) -> RunRecord:
    """Simulate a trace as given, at its own arrival times."""
    executor = Simulated(trace, model, rounding)
    return serve(trace, StaticBatching(max_batch, max_wait_ns), executor, max_kv_tokens=max_kv_tokens)


def members(record: RunRecord) -> list[list[int]]:
    """Requests of each batch."""
    cuts = record.batches.first_row[1:].tolist()
    return [part.tolist() for part in np.split(record.rows.request, cuts)] if len(record.batch_rows) else []


def batch_ns(model: Any, trace: Trace, batch: Sequence[int], rounding: Rounding = EXACT) -> Ints:
    """Every pass of a batch, one by one: the slow way to price it."""
    prompt, output = trace.prompt_tokens[list(batch)].max(), trace.output_tokens[list(batch)].max()
    return nanoseconds(model, batch_steps(len(batch), int(prompt), int(output), rounding))


@dataclass(frozen=True)
class Choosy:
    """Takes some of what waits and passes over the rest, as its seed and what it may see decide."""

    seed: int
    most: int
    patience_ns: int = 3 * MS

    def decide(self, queue: Waiting, now_ns: int, ended: bool) -> Take | Wait:
        if len(queue) < self.most and not ended and now_ns < queue.oldest_arrival_ns + self.patience_ns:
            return Wait(queue.oldest_arrival_ns + self.patience_ns, self.most)
        prompts = queue.prompt_tokens()
        assert len(prompts) == len(queue)
        rng = np.random.default_rng([self.seed, now_ns, *prompts])
        size = int(rng.integers(1, min(self.most, len(prompts)) + 1))
        return Take(sorted(rng.choice(len(prompts), size, replace=False).tolist()), FULL)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "choosy"}


GAPS_NS = st.sampled_from([0, 0, 0, 1, 2, MS, 7 * MS, 10 * MS, 50 * MS, 10 * S])
ORIGINS_NS = st.sampled_from([0, 0, 5, 1_787_000_000 * S])
WAITS_NS = st.sampled_from([None, 0, 1, MS, 10 * MS, 50 * MS, 10 * S])


@st.composite
def traces(draw: st.DrawFn, most: int = 14, longest: int = 9) -> Trace:
    """Requests with ties, gaps of every size, and now and then a clock that began in 1970."""
    n = draw(st.integers(1, most))
    gaps = (
        [0] * (n - 1)
        if draw(st.integers(0, 4)) == 0
        else draw(st.lists(GAPS_NS, min_size=n - 1, max_size=n - 1))
    )
    arrival = np.cumsum([draw(ORIGINS_NS), *gaps])
    lengths = st.lists(st.integers(1, longest), min_size=n, max_size=n)
    return trace_of(arrival.tolist(), draw(lengths), draw(lengths))


MODELS = st.sampled_from([K1, AFFINE, FLOOR, ROOFLINE, TABLE])
ROUNDINGS = st.sampled_from(
    [EXACT, Rounding((1, 2, 4, 8, 16)), Rounding((3, 20)), Rounding((), 4), Rounding((2, 16), 8)]
)
CAPS = st.sampled_from([None, None, 18, 30, 60])


@dataclass(frozen=True)
class Case:
    """One run with everything it was made from."""

    trace: Trace
    model: Any
    max_batch: int
    max_wait_ns: int | None
    rounding: Rounding
    max_kv_tokens: int | None
    choosy: int | None = None
    """Seed of a policy that passes over older requests, and knows neither timer nor memory; None: StaticBatching."""

    def record(self) -> RunRecord:
        if self.choosy is not None:
            executor = Simulated(self.trace, self.model, self.rounding)
            return serve(self.trace, Choosy(self.choosy, self.max_batch), executor)
        return run(
            self.trace,
            self.max_batch,
            self.max_wait_ns,
            self.model,
            rounding=self.rounding,
            max_kv_tokens=self.max_kv_tokens,
        )


CASES = st.builds(Case, traces(), MODELS, st.integers(1, 6), WAITS_NS, ROUNDINGS, CAPS)

ANY_POLICY = st.one_of(
    CASES,
    st.builds(Case, traces(), MODELS, st.integers(1, 6), st.none(), ROUNDINGS, st.none(), st.integers(0, 99)),
)
"""Runs of StaticBatching, and of a policy that passes over older requests."""
