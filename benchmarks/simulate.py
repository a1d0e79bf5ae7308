"""How fast and in how much memory the simulator serves a long trace: ``python benchmarks/simulate.py``.

One core, each run in a process of its own. A run's budget is the time of 10 bare SimPy timeouts a batch and 1.5 a
request, taken in the same process, for simulating and for every metric, the ledger and the gaps between tokens.
"""

import multiprocessing
import os
import resource
import time
from dataclasses import dataclass

import numpy as np
import simpy
import typer

from sim.batching import Batching
from sim.hardware import hardware
from sim.models import model_shape
from sim.roofline import Roofline
from sim.run import prices_of, results, simulate
from traces.tables import add, count, percent, seconds, table
from traces.terminal import command_app, out, run_app, whole
from traces.trace import Trace

app = command_app("Requests per second and peak memory of simulating a long trace.")

BUDGET_A_BATCH, BUDGET_A_REQUEST = 10, 1.5
"""Bare timeouts that a batch and a request may cost."""
TIMEOUTS = 300_000
MAX_MEMORY_BYTES = 500_000_000
MAX_GROWTH = 11.0
"""What ten times as many requests may cost at most, in times."""
ARRIVALS = {
    "batch 32, at once": (None, 32),
    "mean batch 2": (0.72, 32),
}
"""Requests a batch that come in the time it takes alone (None: all at once), and the most rows."""


@dataclass(frozen=True)
class Cost:
    """What one run took of one core, CPU seconds, and of memory."""

    requests: int
    batches: int
    timeout_s: float
    """One bare SimPy timeout in this process."""
    simulate_s: float
    metrics_s: float
    peak_bytes: int

    @property
    def total_s(self) -> float:
        return self.simulate_s + self.metrics_s

    @property
    def budget_s(self) -> float:
        return self.timeout_s * (BUDGET_A_BATCH * self.batches + BUDGET_A_REQUEST * self.requests)


def lengths(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-normal prompts and outputs, cut at 4096 and 1024 tokens."""
    rng = np.random.default_rng(0)
    prompt = np.clip(np.rint(rng.lognormal(np.log(256), 1.0, n)), 1, 4096).astype(np.int64)
    output = np.clip(np.rint(rng.lognormal(np.log(64), 1.0, n)), 1, 1024).astype(np.int64)
    return prompt, output


def synthetic(n: int, requests_a_batch: float | None, model: Roofline) -> Trace:
    """A trace at a load: Poisson arrivals, so many in the time that a request of mean length takes alone."""
    prompt, output = lengths(n)
    arrival = np.zeros(n, np.int64)
    if requests_a_batch is not None:
        one = Trace("one", arrival[:1], prompt[:1] * 0 + 256, output[:1] * 0 + 64, arrival[:1])
        alone_ns = simulate(one, Batching(1), model).makespan_ns
        gaps = np.random.default_rng(1).exponential(alone_ns / requests_a_batch, n)
        arrival = np.cumsum(np.rint(gaps).astype(np.int64))
    return Trace("synthetic", arrival, prompt, output, np.arange(n, dtype=np.int64))


def bare_timeout_s() -> float:
    """CPU seconds of one timeout of a process that does nothing else; the best of three."""

    def idle(env: simpy.Environment) -> simpy.events.ProcessGenerator:
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    took = []
    for _ in range(3):
        env = simpy.Environment()
        env.process(idle(env))
        start_s = time.process_time()
        env.run()
        took.append((time.process_time() - start_s) / TIMEOUTS)
    return min(took)


def measure(requests: int, load: str) -> Cost:
    """Simulate a trace in this process and compute everything that ``sim run`` prints."""
    model = Roofline(model_shape("Qwen3-0.6B"), hardware("H200"))
    requests_a_batch, max_batch = ARRIVALS[load]
    trace = synthetic(requests, requests_a_batch, model)
    batching = Batching(max_batch, None if requests_a_batch is None else 0.0, requests_a_batch is None)
    timeout_s = bare_timeout_s()
    start_s = time.process_time()
    record = simulate(trace, batching, model)
    middle_s = time.process_time()
    results(record, prices_of(record, model)).to_json()
    return Cost(
        requests=requests,
        batches=len(record.batch_rows),
        timeout_s=timeout_s,
        simulate_s=middle_s - start_s,
        metrics_s=time.process_time() - middle_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def apart(requests: int, load: str) -> Cost:
    """The same in a fresh process, so that nothing else is in the peak."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (requests, load))


@app.command()
def main(
    requests: int = typer.Option("1000000", parser=whole(), metavar="N", help="Requests in the trace."),
    ten: bool = typer.Option(True, help="Run ten times as many as well."),
) -> None:
    """Print one line a run, and exit with 1 where a bound is broken."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    t = table(
        "Simulating", "run", "requests", "batches", "requests/s", "simulate", "metrics", "of budget", "peak"
    )
    broken = []
    for load in ARRIVALS:
        few = apart(requests, load)
        runs = [few, apart(10 * requests, load)] if ten else [few]
        for cost in runs:
            add(
                t,
                load,
                count(cost.requests),
                count(cost.batches),
                count(round(cost.requests / cost.total_s)),
                seconds(cost.simulate_s),
                seconds(cost.metrics_s),
                percent(cost.total_s / cost.budget_s),
                f"{cost.peak_bytes / 1e6:.0f} MB",
            )
            if cost.total_s > cost.budget_s:
                broken.append(
                    f"{load}, {cost.requests:,} requests: {cost.total_s / cost.budget_s:.2f} of the budget"
                )
        if few.peak_bytes > MAX_MEMORY_BYTES:
            broken.append(f"{load}: {few.peak_bytes / 1e6:.0f} MB for {requests:,} requests")
        if ten and runs[1].total_s > MAX_GROWTH * few.total_s:
            broken.append(
                f"{load}: ten times the requests took {runs[1].total_s / few.total_s:.1f} times as long"
            )
    console = out()
    console.print(t)
    for line in broken:
        console.print(f"broken: {line}", markup=False)
    raise typer.Exit(1 if broken else 0)


if __name__ == "__main__":
    run_app(app, "simulate")
