"""Measured runs for comparisons: an executor whose passes take what a cost model says, times what a test says."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from sim.batching import Batching
from sim.executor import BatchTimes, MeasuredBatch, measured_row_decode_ns
from sim.record import RunRecord
from sim.run import simulate, trace_json
from sim.server import serve
from sim.step import EXACT, Rounding
from tests.sim.worked import Toy, batch_ns
from traces.trace import Ints, Trace

LINE = Toy(
    "line",
    lambda s: (
        1e-3 + 1e-6 * (s.prefill_tokens + s.decode_rows) + 3e-8 * s.prefill_pairs + 2e-7 * s.decode_kv_tokens
    ),
    (2e-3, 1e-3),
)
"""1 ms a pass, 1 us a token, 30 ns a pair, 200 ns a slot that decode reads; 3 ms around a batch."""


class Device:
    """Takes ``factor(batch number)`` times what a model says of each pass; batches in ``failing`` run out of memory."""

    def __init__(
        self,
        trace: Trace,
        model: Any,
        factor: Callable[[int], float] = lambda batch: 1.0,
        failing: Collection[int] = (),
        rounding: Rounding = EXACT,
    ) -> None:
        self.trace = trace
        self.model = model
        self.factor = factor
        self.failing = failing
        self.rounding = rounding
        self.batches = 0

    def run(self, requests: Sequence[int]) -> BatchTimes:
        batch, self.batches = self.batches, self.batches + 1
        if batch in self.failing:
            failed = MeasuredBatch(np.empty(0, np.int64), None, None, "out of memory: too many rows")
            return BatchTimes(1000, 0, 0, 0, failed)
        before_s, after_s = self.model.batch_overhead_s
        steps = batch_ns(self.model, self.trace, requests, self.rounding)
        steps = np.maximum(np.rint(steps * self.factor(batch)), 1).astype(np.int64)
        overhead = round(before_s * 1e9), round(after_s * 1e9)
        kept = MeasuredBatch(steps, None, None)
        return BatchTimes(overhead[0], int(steps[0]), int(steps[1:].sum()), overhead[1], kept)

    def row_decode_ns(self, record: RunRecord) -> Ints:
        return measured_row_decode_ns(record, "wall")


def measured(
    trace: Trace,
    batching: Batching,
    model: Any,
    factor: Callable[[int], float] = lambda batch: 1.0,
    failing: Collection[int] = (),
    max_kv_tokens: int | None = None,
) -> RunRecord:
    """What such a device makes of a trace, as a measured record."""
    served, policy = batching.apply(trace), batching.policy()
    setup = {
        "kind": "measured",
        "clock": "wall",
        "trace": trace_json(served),
        "policy": policy.to_json(),
        "model": "none[at all]",
        "cost": model.to_json(),
        "software": {"python": "3", "cuda": None},
    }
    device = Device(served, model, factor, failing)
    return serve(served, policy, device, setup=setup, max_kv_tokens=max_kv_tokens)


def simulated(trace: Trace, batching: Batching, model: Any, max_kv_tokens: int | None = None) -> RunRecord:
    """The same trace by the model."""
    return simulate(trace, batching, model, max_kv_tokens=max_kv_tokens)
