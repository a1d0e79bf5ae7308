"""Where the error of a free simulation comes from: cost, queueing, formation. Three terms that add up exactly.

    cost       the measured batches at their measured starts with modelled durations, minus measured
    queueing   the same batches one after the other with modelled durations, minus that
    formation  the free simulation, minus that

In the first stage batches may overlap, so the split is of mean waiting times, never of ledger or throughput. Queueing
and formation may be large and cancel.
"""

from dataclasses import dataclass

import numpy as np

from sim.cost import batch_overhead_ns
from sim.pricing import Prices
from sim.record import COMPLETED, END, MEMORY, REJECTED, TIMER, RunRecord
from traces.trace import Floats, Ints

QUANTITIES = ("queue", "ttft", "e2e_batch")


@dataclass(frozen=True)
class Split:
    """Mean over requests of one latency, seconds; cost + queueing + formation = simulated - measured."""

    measured_s: float
    cost_s: float
    queueing_s: float
    formation_s: float
    simulated_s: float

    def to_json(self) -> dict[str, float]:
        """Seconds to 9 decimals."""
        return {name: round(value, 9) for name, value in vars(self).items()}


def mean_split(splits: list[Split]) -> Split:
    """Mean of each term over repeats; the sum still holds."""
    return Split(*(float(np.mean([getattr(s, name) for s in splits])) for name in vars(splits[0])))


def batch_parts_ns(record: RunRecord, prices: Prices) -> tuple[Ints, Ints]:
    """Modelled time of each batch of a record from its start to its first tokens, and from there to its return."""
    before_ns, after_ns = batch_overhead_ns(prices.model)
    rows = record.batch_rows + record.batches.dummy_rows
    prompt, output = record.padded_prompt_tokens, record.longest_output_tokens
    first = before_ns + prices.prefills_ns(rows, prompt)
    return first, prices.decodes_ns(rows, prompt, prompt + output - 1) + after_ns


def split(measured: RunRecord, simulated: RunRecord, prices: Prices) -> dict[str, Split]:
    """The split of each quantity, for one measured run against a free simulation of the same requests.

    Requests that did not complete on both sides are left out on both; empty when none did.

    Args:
        measured: what happened.
        simulated: the free simulation.
        prices: of the model that the simulation ran with.
    """
    shown = measured.row_completed & (simulated.requests.status[measured.rows.request] == COMPLETED)
    if not shown.any():
        return {}
    first, rest = batch_parts_ns(measured, prices)
    start = measured.batches.start_ns
    chained = _chain(_ready_ns(measured), first + rest)
    arrival = measured.per_row(measured.requests.arrival_ns)

    def means(
        start_ns: Ints, first_ns: Ints, end_ns: Ints, of: RunRecord, who: Floats | Ints
    ) -> dict[str, float]:
        parts = {"queue": start_ns, "ttft": first_ns, "e2e_batch": end_ns}
        return {name: float((of.spread(when)[who] - came).mean() / 1e9) for name, when in parts.items()}

    came = arrival[shown]
    stages = [
        means(start, measured.prefill_end_ns, measured.end_ns, measured, shown),
        means(start, start + first, start + first + rest, measured, shown),
        means(chained, chained + first, chained + first + rest, measured, shown),
    ]
    place = np.zeros(len(simulated.requests.status), np.int64)
    place[simulated.rows.request] = np.arange(len(simulated.rows.request))
    same = place[measured.rows.request[shown]]
    came = simulated.requests.arrival_ns[simulated.rows.request][same]
    free = means(simulated.batches.start_ns, simulated.prefill_end_ns, simulated.end_ns, simulated, same)
    return {
        name: Split(
            measured_s=stages[0][name],
            cost_s=stages[1][name] - stages[0][name],
            queueing_s=stages[2][name] - stages[1][name],
            formation_s=free[name] - stages[2][name],
            simulated_s=free[name],
        )
        for name in QUANTITIES
    }


def _ready_ns(record: RunRecord) -> Ints:
    """When each batch could have started, had the server been free: its last member's arrival; closed by timer, the
    later of that and the oldest arrival plus the wait; closed by memory, when the request came that no longer fitted;
    closed by the end of the stream, not before that end."""
    arrival = record.per_row(record.requests.arrival_ns)
    first, closed = record.batches.first_row, record.batches.closed_by
    oldest, newest = np.minimum.reduceat(arrival, first), np.maximum.reduceat(arrival, first)
    wait_s = record.setup.get("policy", {}).get("max_wait_s") or 0.0
    ended = record.requests.arrival_ns[record.requests.status != REJECTED][-1]
    # In order of arrival, what no longer fits is the oldest of the next batch.
    because = {TIMER: oldest + round(wait_s * 1e9), MEMORY: np.append(oldest[1:], ended), END: ended}
    ready: Ints = np.select([closed == why for why in because], list(because.values()), newest)
    return np.maximum(newest, ready)


def _chain(ready_ns: Ints, took_ns: Ints) -> Ints:
    """Starts of batches that run one after the other, each when it is ready and the one before has ended."""
    before = np.cumsum(took_ns) - took_ns
    return before + np.maximum.accumulate(ready_ns - before)
