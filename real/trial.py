"""The measurements that a comparison rests on: calibration, held-out batches, the three engines, batch sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from real.engine import Engine
from real.executor import Clock, Measured
from real.profiler import grid, measure
from real.replay import replay
from sim.batching import Batching
from sim.cost import CostModel
from sim.errors import Pair
from sim.executor import Simulated
from sim.profile import Profile
from sim.record import RunRecord
from sim.run import simulate
from sim.speedup import CurvePoint, EngineRun
from traces.trace import Ints, Trace

CURVE_ROWS = (1, 2, 4, 8, 16)
"""Batch sizes of the throughput curve."""
LENGTHS = 3
"""Prompt lengths that a calibration profiles."""

Progress = Callable[[float], None]
"""Told what part of a phase is done."""


@dataclass(frozen=True)
class Lab:
    """Where everything is measured: one engine, one clock, one set of conditions."""

    engine: Engine
    clock: Clock
    about: dict[str, Any]
    seed: int

    def replay(self, trace: Trace, batching: Batching, **options: Any) -> RunRecord:
        """One measured run."""
        return replay(
            trace, batching, self.engine, about=self.about, clock=self.clock, seed=self.seed, **options
        )


def profiled_prompts(traces: Sequence[Trace]) -> list[int]:
    """Prompt lengths to profile: the shortest, the longest, and their geometric middle."""
    low = min(int(trace.prompt_tokens.min()) for trace in traces)
    high = max(int(trace.prompt_tokens.max()) for trace in traces)
    return sorted({round(length) for length in np.geomspace(max(low, 2), max(high, 2), LENGTHS).tolist()})


def calibrate(
    lab: Lab, traces: Sequence[Trace], rows: Sequence[int], budget_s: float, progress: Progress | None = None
) -> Profile:
    """Measure passes that span what these traces need, at these row counts, for about so many seconds."""
    longest = max(int(trace.output_tokens.max()) for trace in traces)
    points = grid(rows, profiled_prompts(traces), longest)
    return measure(lab.engine, points, budget_s, lab.seed, progress).profile(lab.clock, lab.about)


def held_out_traces(
    rows: Sequence[int], prompts: Sequence[int], outputs: int, each: int, seed: int
) -> list[Trace]:
    """For each row count, ``each`` full batches of random lengths, none of whose longest prompts was profiled.

    Lengths are drawn between the profiled ones, so the batches lie inside what was calibrated.
    """
    random = np.random.default_rng(seed)
    allowed = np.setdiff1d(np.arange(min(prompts), max(prompts) + 1), prompts)
    traces = []
    for count in rows:
        requests = count * each
        traces.append(
            Trace(
                name=f"held out, {count} rows",
                arrival_ns=np.zeros(requests, np.int64),
                prompt_tokens=random.choice(allowed, requests),
                output_tokens=random.integers(2, outputs, requests, endpoint=True),
                source_row=np.arange(requests, dtype=np.int64),
                timed=False,
            )
        )
    return traces


def repeats(
    lab: Lab, runs: Sequence[tuple[Trace, Batching]], times: int, progress: Progress | None = None
) -> list[list[RunRecord]]:
    """Measure each run ``times`` times, round after round, so that whatever changes meanwhile falls on all alike."""
    records: list[list[RunRecord]] = [[] for _ in runs]
    total, done = times * sum(len(trace) for trace, _ in runs), 0
    for _ in range(times):
        for mine, (trace, batching) in zip(records, runs, strict=True):
            before = done

            def told(served: int, before: int = before) -> None:
                if progress is not None:
                    progress((before + served) / total)

            mine.append(lab.replay(trace, batching, progress=told))
            done += len(trace)
    return records


def engines(lab: Lab, trace: Trace, max_batch: int, times: int) -> list[EngineRun]:
    """Serial, row by row, and padded, on the same requests all at once; serial first."""
    runs = []
    reference: dict[int, Ints] = {}
    for name in ("serial", "rowwise", "padded"):
        engine = Engine(lab.engine.model, name)
        executor = Measured(trace, engine, lab.seed, lab.clock, keep_tokens=True)
        size = 1 if name == "serial" else max_batch
        batches = [range(i, min(i + size, len(trace))) for i in range(0, len(trace), size)]
        seconds = [sum(sum(executor.run(batch)[:4]) for batch in batches) / 1e9 for _ in range(times)]
        tokens = executor.tokens or {}
        reference = reference or tokens
        same = all(np.array_equal(tokens[i], reference[i]) for i in range(len(trace)))
        middle = float(np.median(seconds))
        runs.append(EngineRun(name, middle, int(trace.output_tokens.sum()) / middle, same))
    return runs


def curve(lab: Lab, model: CostModel, prompt: int, output: int, times: int) -> list[CurvePoint]:
    """Useful tokens per second of full batches of equal lengths; none for a size that memory does not suffice for."""
    points = []
    for rows in CURVE_ROWS:
        trace = Trace(
            name=f"{rows} equal requests",
            arrival_ns=np.zeros(rows, np.int64),
            prompt_tokens=np.full(rows, prompt, np.int64),
            output_tokens=np.full(rows, output, np.int64),
            source_row=np.arange(rows, dtype=np.int64),
            timed=False,
        )
        executor = Measured(trace, lab.engine, lab.seed, lab.clock)
        tokens = rows * output
        runs = [executor.run(range(rows)) for _ in range(times)]
        answered = [run for run in runs if run.measured is not None and run.measured.failed is None]
        measured = [tokens * 1e9 / sum(run[:4]) for run in answered]
        predicted = tokens * 1e9 / sum(Simulated(trace, model).run(range(rows))[:4])
        points.append(CurvePoint(rows, Pair.of(predicted, measured)))
    return points


def occurring_rows(trace: Trace, batching: Batching, model: CostModel) -> list[int]:
    """Row counts of the batches a simulation forms: those worth profiling."""
    return [int(rows) for rows in np.unique(simulate(trace, batching, model).batch_rows)]
