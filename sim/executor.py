"""Running one batch: the seam between the server and what really takes the time.

A static batch never changes once it has started, so one call per batch is exact. There are two executors:
:class:`Simulated` asks a cost model, ``real.executor.Measured`` runs the model and holds the clock to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from sim.cost import CostModel, batch_overhead_ns
from sim.pricing import Prices
from sim.record import RunRecord
from sim.step import EXACT, Rounding
from traces.trace import Ints, Trace


@dataclass(frozen=True, eq=False)
class MeasuredBatch:
    """What only a measurement knows of a batch."""

    step_wall_ns: Ints
    """Duration of every pass by the wall clock or by device events: the prefill, then each decode step."""
    step_cpu_ns: Ints | None
    """The same by the process's CPU time; None on a GPU."""
    peak_memory_bytes: int | None
    """Most device memory allocated during the batch; None where the device does not say."""
    failed: str | None = None
    """Why the batch gave no answer (``out of memory``), or None."""


class BatchTimes(NamedTuple):
    """Where the time of one batch went, integer nanoseconds, one part after the other."""

    before_ns: int
    """Overhead before the prefill."""
    prefill_ns: int
    """The prefill; every row's first token is there at its end."""
    decode_ns: int
    """All decode steps."""
    after_ns: int
    """Overhead after the last step; then the batch returns."""
    measured: MeasuredBatch | None = None


class Executor(Protocol):
    """Runs one batch.

    Pre: ``requests`` are indices into the executor's trace, rising, none served before. Post: whole nanoseconds;
    parts are never negative, and the whole takes at least one. Must not raise for a batch that fails on the
    device: it says so in ``measured.failed``.
    """

    @property
    def rounding(self) -> Rounding:
        """Row counts and contexts it rounds up to."""

    def run(self, requests: Sequence[int]) -> BatchTimes:
        """Serve these requests together and say how long it took."""

    def row_decode_ns(self, record: RunRecord) -> Ints:
        """Time from the end of its batch's prefill to each row's own last token; asked once, after the run."""


class Simulated:
    """The executor that asks a cost model. Looks every batch up in prefix sums: O(1) a batch."""

    def __init__(self, trace: Trace, model: CostModel, rounding: Rounding = EXACT) -> None:
        self.model = model
        self.rounding = rounding
        self.prices = Prices.for_trace(trace, model, rounding)
        self._prompt = trace.prompt_tokens.data
        self._output = trace.output_tokens.data
        self._before_ns, self._after_ns = batch_overhead_ns(model)
        self._prefill: dict[int, memoryview] = {}
        self._decode: dict[int, memoryview] = {}

    def run(self, requests: Sequence[int]) -> BatchTimes:
        """Price the batch: one look-up for the prefill, two in the prefix sums of its row count."""
        if isinstance(requests, range):
            prompt = max(self._prompt[requests.start : requests.stop])
            output = max(self._output[requests.start : requests.stop])
        else:
            prompt = max(map(self._prompt.__getitem__, requests))
            output = max(map(self._output.__getitem__, requests))
        rows = len(requests)
        if rows not in self._decode:
            computed = int(self.rounding.rows(rows))
            self._prefill[rows] = self.prices.prefill_ns(computed).data
            self._decode[rows] = self.prices.prefix(computed).data
        decode = self._decode[rows]
        return BatchTimes(
            self._before_ns,
            self._prefill[rows][prompt],
            decode[prompt + output - 1] - decode[prompt],
            self._after_ns,
        )

    def row_decode_ns(self, record: RunRecord) -> Ints:
        """Two look-ups a row in the prefix sums of its batch's row count."""
        result = np.empty(len(record.rows.request), np.int64)
        computed = record.batch_rows + record.batches.dummy_rows
        for batches, rows in record.blocks():
            each = record.batch_rows[batches]
            padded = np.repeat(record.padded_prompt_tokens[batches], each)
            last = padded + record.row_output_tokens[rows] - 1
            result[rows] = self.prices.decodes_ns(np.repeat(computed[batches], each), padded, last)
        return result


def measured_row_decode_ns(record: RunRecord, clock: Literal["wall", "cpu"]) -> Ints:
    """:meth:`Executor.row_decode_ns` of a measured run, from the steps of the clock that drove it.

    Rows of a batch that failed get the whole of its decode time.
    """
    if not len(record.rows.request):
        return np.empty(0, np.int64)  # nothing was served, so nothing was measured
    measured = record.measured
    steps = None if measured is None else measured.step_cpu_ns if clock == "cpu" else measured.step_wall_ns
    if measured is None or steps is None:
        raise ValueError(f"no steps by the {clock} clock in this record")
    ends = np.concatenate([[0], np.cumsum(steps)])
    first = record.spread(measured.first_step)
    failed = np.isin(record.spread(np.arange(len(record.batch_rows))), list(measured.failed))
    last = np.where(failed, first, first + record.row_output_tokens - 1)
    whole = record.spread(record.batches.decode_ns)
    # A batch that failed has no passes, and may stand after the last one that there is.
    until, since = (ends[np.minimum(index + 1, len(steps))] for index in (last, first))
    return np.where(failed, whole, until - since)
