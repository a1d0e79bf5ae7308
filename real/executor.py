"""The executor that really runs each batch, and holds the server's clock to what it took."""

import time
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from real.engine import Engine, Generated
from real.memory import is_out_of_memory
from real.prompts import Prompts
from real.timing import Timeline
from sim.executor import BatchTimes, MeasuredBatch, measured_row_decode_ns
from sim.record import RunRecord
from sim.step import EXACT, Rounding
from traces.errors import InputError, choices
from traces.trace import Ints, Trace

Clock = Literal["wall", "cpu"]
"""What a measured batch can be timed by: the wall, or the process's CPU time (on a CPU only)."""
CLOCKS: tuple[Clock, ...] = ("wall", "cpu")
WARM_UP_TOKENS = 3
"""Answer length of a warm-up batch: the prefill and two decode steps."""


class Measured:
    """Runs batches of a trace on an engine.

    ``clock`` says which time the four parts of :class:`~sim.executor.BatchTimes` hold. Before a batch of a
    shape (rows, power of two of the prompt) that has not run yet, the same shape is run once and thrown away,
    unless ``warm_up`` is off; ``warm_ups`` counts these. Runs that share ``warmed`` warm each shape up once.
    Prompts and memory are made ready outside the timing too. Dummy rows, where ``rounding`` asks for them, are
    prompts of one token whose answer nobody reads.
    """

    def __init__(
        self,
        trace: Trace,
        engine: Engine,
        seed: int = 0,
        clock: Clock = "wall",
        rounding: Rounding = EXACT,
        warm_up: bool = True,
        keep_tokens: bool = False,
        warmed: set[tuple[int, int]] | None = None,
    ) -> None:
        if clock not in CLOCKS:
            raise InputError(f"unknown clock {clock!r}; known are {choices(CLOCKS)}")
        if clock == "cpu" and engine.device.type != "cpu":
            raise InputError(f"clock 'cpu' cannot time work on {engine.device}; use 'wall'")
        if rounding.context_tokens != 1:
            raise InputError(
                f"the engine reads exact contexts; it cannot round to {rounding.context_tokens} tokens"
            )
        self.trace = trace
        self.engine = engine
        self.seed = seed
        self.clock = clock
        self.rounding = rounding
        self.warm_ups = 0
        """Batches run to warm up, in no time that is reported."""
        self.tokens: dict[int, Ints] | None = {} if keep_tokens else None
        """The answer of each request served, by its index in the trace; None unless asked for."""
        self._prompts = Prompts(trace, seed, engine.vocab_size)
        self._warm_up = warm_up
        self._warm = set() if warmed is None else warmed

    def run(self, requests: Sequence[int]) -> BatchTimes:
        """Serve these requests together on the device.

        Running out of memory is an outcome, not an error: ``measured.failed`` says so with the shape, the
        time until then is overhead, and the next batch finds the memory free.

        Raises:
            InputError: more requests than this engine takes at once.
        """
        index = np.asarray(requests, np.int64)
        outputs = self.trace.output_tokens[index]
        rows = int(self.rounding.rows(len(index)))
        prompt, output = int(self.trace.prompt_tokens[index].max()), int(outputs.max())
        prompts = [self._prompts.of(request) for request in index.tolist()] + [np.zeros(1, np.int64)] * (
            rows - len(index)
        )
        if self._warm_up:
            self.warm(rows, prompt)
        result = self._attempt(prompts, rows, prompt, output)
        peak = _peak_memory(self.engine.device)
        if isinstance(result, int):
            failed = f"out of memory: {rows} rows x ({prompt} + {output}) tokens"
            nothing = np.empty(0, np.int64)
            cpu = nothing if self.engine.device.type == "cpu" else None
            return BatchTimes(max(result, 1), 0, 0, 0, MeasuredBatch(nothing, cpu, peak, failed))
        if self.tokens is not None:
            for request, row, length in zip(index.tolist(), result.tokens, outputs, strict=False):
                self.tokens[request] = row[:length]
        times = result.times
        measured = MeasuredBatch(times.wall.step_ns, times.cpu.step_ns if times.cpu else None, peak)
        return batch_times(times.cpu if self.clock == "cpu" and times.cpu else times.wall, measured)

    def row_decode_ns(self, record: RunRecord) -> Ints:
        """Time from the end of its batch's prefill to each row's own last token, from the measured steps."""
        return measured_row_decode_ns(record, self.clock)

    def warm(self, rows: int, prompt: int) -> None:
        """Run a batch of this shape and throw it away, if none of its kind has run yet."""
        shape = (rows, prompt.bit_length())
        if shape in self._warm:
            return
        self._warm.add(shape)
        self.warm_ups += 1
        ids = np.zeros(prompt, np.int64)
        self._attempt([ids] * rows, rows, prompt, WARM_UP_TOKENS)

    def _attempt(self, prompts: list[Ints], rows: int, prompt: int, output: int) -> "Generated | int":
        """What the batch gave, or the nanoseconds until memory ran out, on the driving clock."""
        clock_ns = time.process_time_ns if self.clock == "cpu" else time.perf_counter_ns
        start_ns = clock_ns()
        try:
            self.engine.reserve(rows, prompt + output - 1)
            _reset_peak_memory(self.engine.device)
            return self.engine.run(prompts, output)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        # Only here is the traceback gone, and with it the last hold on the tensors of the failed batch.
        elapsed_ns = clock_ns() - start_ns
        self.engine.release()
        return elapsed_ns


def batch_times(timeline: Timeline, measured: MeasuredBatch | None = None) -> BatchTimes:
    """The four parts of a batch as the server wants them; a batch too quick for its clock takes 1 ns."""
    steps_ns = timeline.step_ns
    after_ns = timeline.after_ns if timeline.total_ns else 1
    return BatchTimes(timeline.before_ns, int(steps_ns[0]), int(steps_ns[1:].sum()), after_ns, measured)


def _reset_peak_memory(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak_memory(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
