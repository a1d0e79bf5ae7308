"""A measured run: the server of the simulator, with the engine running its batches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from real.engine import Engine
from real.executor import Clock, Measured
from sim.batching import Batching
from sim.record import RunRecord
from sim.run import trace_json
from sim.server import Progress, serve
from sim.step import EXACT, Rounding
from traces.errors import InputError
from traces.trace import Trace


def replay(
    trace: Trace,
    batching: Batching,
    engine: Engine,
    *,
    about: Mapping[str, Any],
    clock: Clock,
    wall_clock: bool = False,
    seed: int = 0,
    max_kv_tokens: int | None = None,
    rounding: Rounding = EXACT,
    warmed: set[tuple[int, int]] | None = None,
    progress: Progress | None = None,
) -> RunRecord:
    """Serve a trace on the engine.

    Args:
        trace: the requests; their lengths are forced.
        batching: when batches close.
        engine: runs them. ``serial`` takes batches of one.
        about: the conditions of the measurement (:func:`real.conditions.conditions`), for the record.
        clock: which time a batch took: process CPU time, or the wall (CUDA: events inside the wall).
        wall_clock: let the trace's time pass in real time; otherwise idle time is skipped.
        seed: of the prompts.
        max_kv_tokens: cap on a batch's padded KV cache, tokens.
        rounding: allowed row counts.
        warmed: shapes that earlier runs have warmed up, if several share that.
        progress: told the number of requests served after each batch.

    Raises:
        InputError: batches larger than the engine takes.
    """
    if engine.max_rows is not None and batching.max_batch > engine.max_rows:
        raise InputError(
            f"engine {engine.name} takes batches of {engine.max_rows} row, not of {batching.max_batch};"
            f" give --max-batch {engine.max_rows}"
        )
    served, policy = batching.apply(trace), batching.policy()
    executor = Measured(served, engine, seed, clock, rounding, warmed=warmed)
    resolved = {
        "kind": "measured",
        "timeline": "wall clock" if wall_clock else "skip-idle",
        "servers": 1,
        "trace": trace_json(served),
        "policy": policy.to_json(),
        "max_kv_tokens": max_kv_tokens,
        "rounding": {"row_counts": list(rounding.row_counts), "context_tokens": rounding.context_tokens},
        "seed": seed,
        **about,
        "clock": clock,
    }
    if wall_clock:
        # Time passes for the requests that wait while a shape is warmed up, so all shapes go first.
        prompts = np.unique(served.prompt_tokens)
        for rows in range(1, min(policy.max_batch, len(served)) + 1):
            computed = int(rounding.rows(rows))
            fit = prompts
            if max_kv_tokens is not None:
                fit = prompts[computed * (prompts + 1) <= max_kv_tokens]  # the shortest answer is one token
            for prompt in {prompt.bit_length(): prompt for prompt in fit.tolist()}.values():
                executor.warm(computed, prompt)
    record = serve(
        served,
        policy,
        executor,
        max_kv_tokens=max_kv_tokens,
        setup=resolved,
        wall_clock=wall_clock,
        progress=progress,
    )
    return replace(record, setup={**record.setup, "warm_ups": executor.warm_ups})
