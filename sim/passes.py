"""When the passes inside a batch end: by prefix sums in a simulated run, by the stored steps in a measured one."""

import numpy as np

from sim.pricing import Prices, by_value
from sim.record import RunRecord
from traces.trace import Ints


def token_gaps(record: RunRecord, prices: Prices | None) -> tuple[Ints, Ints]:
    """All gaps between a request's successive tokens, pooled: distinct durations in ns, and how often each occurs.

    Exact without enumerating tokens: a row of output o in a batch padded to P has one gap at each context
    P+1 .. P+o-1, so +1 at the first and -1 after the last, summed up, counts the gaps at every context.
    """
    if record.measured is not None:
        done = record.row_completed
        steps = driving_steps(record)
        first = record.spread(record.measured.first_step)[done]
        opened = _opened(first + 1, first + record.row_output_tokens[done], len(steps))
        return steps, np.cumsum(opened)[:-1]
    if prices is None:
        raise ValueError("gaps of a simulated run need its prices")
    computed = record.batch_rows + record.batches.dummy_rows
    length = prices.max_context_tokens + 1
    opened_by_rows: dict[int, Ints] = {}
    for batches, block in record.blocks():
        done, each = record.row_completed[block], record.batch_rows[batches]
        context = np.repeat(record.padded_prompt_tokens[batches], each)[done]
        output = record.row_output_tokens[block][done]
        for rows, index in by_value(np.repeat(computed[batches], each)[done]):
            opened = _opened(context[index] + 1, context[index] + output[index], length)
            opened_by_rows[rows] = opened + opened_by_rows.get(rows, 0)
    values, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for rows, opened in opened_by_rows.items():
        covering = np.cumsum(opened)[:-1]
        occurring = np.flatnonzero(covering)
        values.append(prices.step_ns(rows)[occurring])
        counts.append(covering[occurring])
    return np.concatenate(values), np.concatenate(counts)


def _opened(first: Ints, stop: Ints, length: int) -> Ints:
    """+1 where one of the intervals [first, stop) begins and -1 where one has ended, at places 0 .. length; summed
    up, how many of them cover each place."""
    opened, closed = (np.bincount(place, minlength=length + 1) for place in (first, stop))
    return opened - closed


def driving_steps(record: RunRecord) -> Ints:
    """Durations of all passes of a measured run, by the clock that drove it."""
    measured = record.measured
    if measured is None:
        raise ValueError("a simulated run stores no steps")
    if record.setup.get("clock") == "cpu" and measured.step_cpu_ns is not None:
        return measured.step_cpu_ns
    return measured.step_wall_ns


def passes_done(record: RunRecord, prices: Prices | None, since_prefill_start_ns: Ints) -> Ints:
    """How many passes of each batch have ended so long after its prefill began (one value a batch)."""
    elapsed = since_prefill_start_ns
    in_decode = elapsed - record.batches.prefill_ns
    if record.measured is not None:
        steps = driving_steps(record)
        ends = np.cumsum(steps)
        first = record.measured.first_step
        began = np.concatenate([[0], ends])[first]
        total = np.diff(first, append=len(steps))
        ended: Ints = np.searchsorted(ends, began + elapsed, side="right") - first
        return np.clip(ended, 0, total)
    if prices is None:
        raise ValueError("passes of a simulated run need its prices")
    done = np.zeros(len(elapsed), np.int64)
    context = record.padded_prompt_tokens
    started = in_decode >= 0
    for rows, index in by_value(record.batch_rows + record.batches.dummy_rows):
        prefix = prices.prefix(rows)
        target = prefix[context[index]] + in_decode[index]
        done[index] = np.searchsorted(prefix, target, side="right") - context[index]
    return np.where(started, np.minimum(done, record.longest_output_tokens), 0)
