"""The measurements that a comparison rests on: calibration, held-out batches, the three engines, batch sizes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from real.conditions import conditions
from real.engine import Engine
from real.executor import Clock, Measured
from real.profiler import Point, grid, measure
from real.replay import replay
from real.setup import choose_clock, datasheet, load_engine
from real.weights import RANDOM, shape_of
from sim.batching import Batching
from sim.cost import CostModel
from sim.errors import Pair
from sim.executor import Simulated
from sim.hardware import Hardware
from sim.models import ModelShape
from sim.profile import Profile, joined
from sim.record import RunRecord
from sim.run import simulate
from sim.speedup import CurvePoint, EngineRun
from traces.trace import Ints, Trace

CURVE_ROWS = (1, 2, 4, 8, 16)
"""Batch sizes of the throughput curve."""
CURVE_PROMPT_TOKENS, CURVE_OUTPUT_TOKENS = 16, 16
"""Lengths of every request of the curve."""
LENGTHS = 3
"""Prompt lengths that a calibration profiles."""

Progress = Callable[[float], None]
"""Told what part of everything is done."""


@dataclass(frozen=True)
class Lab:
    """Where everything is measured: one engine, one clock, one set of conditions."""

    engine: Engine
    shape: ModelShape
    datasheet: Hardware
    clock: Clock
    about: dict[str, Any]
    seed: int
    warmed: set[tuple[int, int]] = field(default_factory=set)
    """Shapes that have been warmed up, by any run."""

    def replay(self, trace: Trace, batching: Batching) -> RunRecord:
        """One measured run."""
        return replay(
            trace,
            batching,
            self.engine,
            about=self.about,
            clock=self.clock,
            seed=self.seed,
            warmed=self.warmed,
        )

    def executor(self, trace: Trace, engine: Engine, keep_tokens: bool = False) -> Measured:
        """Runs single batches of a trace on an engine of this lab's model."""
        return Measured(trace, engine, self.seed, self.clock, keep_tokens=keep_tokens)


def open_lab(model: str | None, weights: str, device: str, seed: int, threads: int = 1) -> Lab:
    """The engine to measure on. ``auto`` is CUDA where there is one. Without a name the model is Qwen3-0.6B on a GPU,
    and on a CPU a small one of Qwen3's build."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    name = model or ("toy" if device == "cpu" else "Qwen3-0.6B")
    engine = load_engine(name, weights, device, threads=threads, seed=seed)
    clock = choose_clock(None, engine)
    name = name if weights == RANDOM else weights
    about = conditions(engine, name, weights, clock)
    shape = shape_of(engine.model, name)
    return Lab(engine, shape, datasheet(about["hardware"], engine), clock, about, seed)


def rows_to_profile(trace: Trace, batching: Batching, model: CostModel) -> list[int]:
    """Row counts to profile: those that a first simulation forms, the full batch, and the sizes of the curve in it."""
    return sorted(
        {
            *rows_formed(trace, batching, model),
            batching.max_batch,
            *(rows for rows in CURVE_ROWS if rows <= batching.max_batch),
        }
    )


def rows_formed(trace: Trace, batching: Batching, model: CostModel) -> dict[int, int]:
    """Row counts of the batches that a first simulation forms, rising, and how many batches have each."""
    rows, batches = np.unique(simulate(trace, batching, model).batch_rows, return_counts=True)
    return dict(zip(rows.tolist(), batches.tolist(), strict=True))


def points_to_profile(rows: Sequence[int], prompts: Sequence[int], outputs: int) -> list[Point]:
    """The grid of a calibration up to the longest output, and of larger batches what the curve needs of them."""
    larger = [count for count in CURVE_ROWS if count > max(rows)]
    curve = grid(larger, [CURVE_PROMPT_TOKENS], CURVE_OUTPUT_TOKENS) if larger else []
    return grid(rows, prompts, outputs) + curve


def prompts_to_profile(traces: Sequence[Trace]) -> list[int]:
    """Prompt lengths to profile: the shortest, the longest, and their geometric middle."""
    low = min(int(trace.prompt_tokens.min()) for trace in traces)
    high = max(int(trace.prompt_tokens.max()) for trace in traces)
    return sorted({round(length) for length in np.geomspace(max(low, 2), max(high, 2), LENGTHS).tolist()})


def held_out(
    rows: Sequence[int], prompts: Sequence[int], outputs: int, batches: int, seed: int
) -> list[Trace]:
    """For each row count a trace of full batches of random lengths, none of whose prompts was profiled.

    Lengths are drawn between the profiled ones, so the batches lie inside what was calibrated.

    Args:
        rows: row counts, one trace each.
        prompts: the profiled prompt lengths; some length lies between them.
        outputs: the longest output.
        batches: how many all traces make together, at least.
        seed: of the lengths.
    """
    random = np.random.default_rng([seed, batches])
    allowed = np.setdiff1d(np.arange(min(prompts), max(prompts) + 1), prompts)
    each = -(-batches // len(rows)) if rows else 0
    traces = []
    for count in rows:
        requests = count * each
        lengths = random.choice(allowed, requests)
        answers = random.integers(2, max(outputs, 2), requests, endpoint=True)
        traces.append(offline(f"held out, {count} rows", lengths, answers))
    return traces


def offline(name: str, prompt_tokens: Ints, output_tokens: Ints) -> Trace:
    """Requests without arrival times."""
    nothing = np.zeros(len(prompt_tokens), np.int64)
    rows = np.arange(len(prompt_tokens), dtype=np.int64)
    return Trace(name, nothing, prompt_tokens, output_tokens, rows, timed=False)


def first_requests(trace: Trace, count: int) -> Trace:
    """The first requests of a trace, as offline work."""
    head = slice(count)
    return offline(f"first {count} of {trace.name}", trace.prompt_tokens[head], trace.output_tokens[head])


@dataclass(frozen=True)
class Together:
    """A calibration and the runs that took turns with it."""

    profile: Profile | None
    """None where nothing was to be profiled, or nothing has been."""
    records: Sequence[Sequence[RunRecord]]
    """For each run its repeats, whole ones only."""
    calibration_s: float
    """Wall time that the calibration took of all that."""
    interrupted: bool
    """By Ctrl-C: the rest is missing."""


def measure_together(
    lab: Lab,
    points: Sequence[Point],
    budget_s: float,
    runs: Sequence[tuple[Trace, Batching]],
    times: int,
    progress: Progress,
) -> Together:
    """Calibrate and replay in turns: a slice of the calibration, a run, a slice, the next run, and so on.

    A machine whose speed drifts then drifts for both alike; measured one after the other, the drift would look like
    an error of the model. The runs are never part of the profile. Ctrl-C ends it; what is finished by then is returned.

    Args:
        lab: where.
        points: what to profile; empty: nothing.
        budget_s: wall seconds for all slices of the calibration together; each shape is measured at least once.
        runs: traces and how they are batched.
        times: repeats of each run.
        progress: told what part of everything is done.
    """
    records: list[list[RunRecord]] = [[] for _ in runs]
    profiles: list[Profile] = []
    turns = [(i, run) for _ in range(times) for i, run in enumerate(runs)]
    spent_s = 0.0
    interrupted = False
    try:
        for turn, (i, (trace, batching)) in enumerate(turns):
            # The first slice warms up and measures all shapes, so it runs over; the others share what is left.
            slice_s = max(budget_s - spent_s, 0.0) / (len(turns) - turn)
            if points and slice_s:
                began_s = time.monotonic()
                part = measure(lab.engine, points, slice_s, lab.seed + turn, warm_up=turn == 0)
                profiles.append(part.profile(lab.clock, lab.about))
                spent_s += time.monotonic() - began_s
            record = lab.replay(trace, batching)
            # The server takes an interrupt for itself, so as to return a record of what it has served.
            if record.setup.get("interrupted"):
                interrupted = True
                break
            records[i].append(record)
            progress((turn + 1) / len(turns))
    except KeyboardInterrupt:
        interrupted = True
    return Together(joined(profiles) if profiles else None, records, spent_s, interrupted)


def engines(lab: Lab, trace: Trace, max_batch: int, times: int) -> list[EngineRun]:
    """Serial, row by row, and padded, on the same requests all at once; serial first."""
    runs = []
    alone: dict[int, Ints] = {}
    for name in ("serial", "rowwise", "padded"):
        executor = lab.executor(trace, Engine(lab.engine.model, name), keep_tokens=True)
        size = 1 if name == "serial" else max_batch
        batches = [range(i, min(i + size, len(trace))) for i in range(0, len(trace), size)]
        repeats = [[executor.run(batch) for batch in batches] for _ in range(times)]
        tokens = executor.tokens or {}
        if name == "serial":
            alone = tokens
        if any(run.measured is not None and run.measured.failed for repeat in repeats for run in repeat):
            runs.append(EngineRun(name, None, None, None))
            continue
        middle = float(np.median([sum(sum(run[:4]) for run in repeat) / 1e9 for repeat in repeats]))
        known = len(alone) == len(trace)
        same = all(np.array_equal(tokens[i], alone[i]) for i in alone) if known else None
        runs.append(EngineRun(name, middle, int(trace.output_tokens.sum()) / middle, same))
    return runs


def curve(lab: Lab, model: CostModel, times: int) -> list[CurvePoint]:
    """Useful tokens per second of full batches of equal lengths; none for a size that memory does not suffice for."""
    points = []
    for rows in CURVE_ROWS:
        trace = offline(
            f"{rows} equal requests", np.full(rows, CURVE_PROMPT_TOKENS), np.full(rows, CURVE_OUTPUT_TOKENS)
        )
        executor = lab.executor(trace, lab.engine)
        runs = [executor.run(range(rows)) for _ in range(times)]
        answered = [run for run in runs if run.measured is not None and run.measured.failed is None]
        tokens_ns = rows * CURVE_OUTPUT_TOKENS * 1e9
        predicted = tokens_ns / sum(Simulated(trace, model).run(range(rows))[:4])
        points.append(CurvePoint(rows, Pair.of(predicted, [tokens_ns / sum(run[:4]) for run in answered])))
    return points
