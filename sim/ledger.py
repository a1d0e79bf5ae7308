"""The time ledger: every nanosecond of makespan x servers in exactly one line.

A batch's passes are peeled in a fixed order, and a line is the difference of two successive costs:

    as run -> without dummy rows -> without finished rows -> each row at its own context; useful remains.

In prefill the last two are one: each row at its own length, pad attention gone too. Idle rows and padded context
overlap, so the reverse order (own context first, then without finished rows) is given beside as the other end of a
range. A measured batch's prefill and decode time is split in the shares a cost model gives for that batch and phase.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.cost import nanoseconds
from sim.lines import Lines, line_sums_ns
from sim.pricing import Prices
from sim.record import UNFINISHED, RunRecord
from sim.step import own_prefill
from traces.slots import batch_sum
from traces.trace import Floats, Ints

LINES = (
    "useful_prefill",
    "prefill_padding",
    "useful_decode",
    "padded_context",
    "idle_rows",
    "dummy_rows",
    "batch_overhead",
    "forming",
    "no_work",
)


@dataclass(frozen=True)
class Ledger:
    """Nanoseconds of each line; they sum to makespan x servers exactly."""

    lines_ns: dict[str, int]
    reverse_ns: dict[str, int]
    """``padded_context`` and ``idle_rows`` when peeled in the reverse order."""
    negative: tuple[str, ...]
    """Lines below zero: the cost model is not monotone there."""
    split_by: str
    """The cost model whose prices made the split."""

    @property
    def total_ns(self) -> int:
        """Makespan x servers."""
        return sum(self.lines_ns.values())

    def seconds(self) -> dict[str, float]:
        """Each line in seconds, to 9 decimals."""
        return {name: round(value / 1e9, 9) for name, value in self.lines_ns.items()}

    def detail(self) -> dict[str, Any]:
        """What stands beside the lines in the JSON of a run."""
        return {
            "total_s": round(self.total_ns / 1e9, 9),
            "reverse_order_s": {name: round(value / 1e9, 9) for name, value in self.reverse_ns.items()},
            "negative_lines": list(self.negative),
            "split_by": self.split_by,
        }


def ledger(record: RunRecord, prices: Prices) -> Ledger:
    """Split a run's time. ``prices`` are those the run was simulated with, or, for a measured run, those of the
    model that splits each batch's time."""
    b = record.batches
    peeled: Counter[str] = Counter()
    for batches, rows in record.blocks():
        peeled.update(_peel(record, prices, batches, rows))
    dummy_prefill = round(peeled["dummy_prefill"])
    lines = {name: round(peeled[name]) for name in ("prefill_padding", "padded_context", "idle_rows")}
    lines["dummy_rows"] = dummy_prefill + round(peeled["dummy_decode"])
    reverse = {name: round(peeled[f"reverse_{name}"]) for name in ("padded_context", "idle_rows")}
    passes = _total(record.longest_output_tokens)  # a prefill and N - 1 decode steps a batch
    lines = {name: 0 if -passes <= value < 0 else value for name, value in lines.items()}
    reverse = {name: 0 if -passes <= value < 0 else value for name, value in reverse.items()}
    forming, no_work = idle_time(record)
    lines["useful_prefill"] = _total(b.prefill_ns) - lines["prefill_padding"] - dummy_prefill
    lines["useful_decode"] = (
        _total(b.decode_ns)
        - lines["padded_context"]
        - lines["idle_rows"]
        - (lines["dummy_rows"] - dummy_prefill)
    )
    lines["batch_overhead"] = _total(b.before_ns) + _total(b.after_ns)
    lines["forming"], lines["no_work"] = forming, no_work
    return Ledger(
        lines_ns={name: lines[name] for name in LINES},
        reverse_ns=reverse,
        negative=tuple(name for name in LINES if lines[name] < 0),
        split_by=prices.model.name,
    )


def _total(column: Ints) -> int:
    return int(column.sum())


def _scale(took_ns: Ints, priced_ns: Ints) -> Floats | None:
    """Measured by modelled time of each batch; None where they are the same, as in every simulated run."""
    return None if np.array_equal(took_ns, priced_ns) else took_ns / np.maximum(priced_ns, 1)


def _dot(column: Ints | Floats, scale: Floats | None) -> float:
    return column.sum().item() if scale is None else float(np.dot(column, scale))


def idle_time(record: RunRecord) -> tuple[int, int]:
    """Nanoseconds the one server was free: while a request waited (forming), and while none did (no work)."""
    start, end = record.batches.start_ns, record.end_ns
    if not len(start):
        return 0, 0
    arrival = record.requests.arrival_ns
    free_from = np.concatenate([[arrival[0]], end[:-1]])
    oldest = np.minimum.reduceat(record.per_row(arrival), record.batches.first_row)
    # What waits at a start is whatever is served then or later, and what is never served.
    oldest = np.minimum.accumulate(oldest[::-1])[::-1]
    # Those of a batch that failed are unfinished too, but wait no more.
    waiting = np.flatnonzero(record.requests.status == UNFINISHED)
    waiting = np.setdiff1d(waiting, record.rows.request, assume_unique=True)
    if len(waiting):
        oldest = np.minimum(oldest, arrival[waiting[0]])
    forming = start - np.clip(oldest, free_from, start)
    return _total(forming), _total(start - free_from - forming)


def _peel(record: RunRecord, prices: Prices, block: slice, span: slice) -> dict[str, float]:
    """What each stage of peeling takes off the batches of a block, nanoseconds."""
    model = prices.model
    rows = record.batch_rows[block]
    first = record.batches.first_row[block] - span.start
    prompt, output = record.row_prompt_tokens[span], record.row_output_tokens[span]
    longest, longest_output = record.padded_prompt_tokens[block], record.longest_output_tokens[block]
    computed = rows + record.batches.dummy_rows[block]

    sums, squares = batch_sum(prompt, first), batch_sum(prompt * prompt, first)
    no_dummies = np.array_equal(computed, rows)
    prefill_real = prices.prefills_ns(rows, longest)
    prefill = prefill_real if no_dummies else prices.prefills_ns(computed, longest)
    prefill_own = nanoseconds(model, own_prefill(rows, sums, squares, longest))

    last_context = longest + longest_output - 1
    decode_real = prices.decodes_ns(rows, longest, last_context)
    decode = (
        decode_real if np.array_equal(computed, rows) else prices.decodes_ns(computed, longest, last_context)
    )

    # Rows by falling output inside each batch: row number j of a batch is the last of the j rows still running.
    order = _by_falling_output(first, rows, output)
    prompt, output = prompt[order], output[order]
    batch = np.repeat(np.arange(len(rows)), rows)
    running = np.arange(1, len(output) + 1) - np.repeat(first, rows)
    next_output = np.append(output[1:], 1)
    next_output[first[1:] - 1] = 1
    padded = longest[batch]
    unfinished = prices.decodes_ns(running, padded + next_output - 1, padded + output - 1)
    lines = Lines(
        rows=running,
        kv_tokens=_running_sum(prompt, first, rows),
        context=_running_max(prompt, batch),
        first=next_output,
        last=output - 1,
    )
    own = line_sums_ns(model, lines)
    all_rows = Lines(rows, sums, longest, np.ones_like(rows), longest_output - 1)
    decode_unfinished = batch_sum(unfinished, first)
    decode_own = np.add.reduceat(own, first)
    decode_own_all_rows = line_sums_ns(model, all_rows)

    b = record.batches
    prefill_scale, decode_scale = _scale(b.prefill_ns[block], prefill), _scale(b.decode_ns[block], decode)
    return {
        "dummy_prefill": _dot(prefill - prefill_real, prefill_scale),
        "prefill_padding": _dot(prefill_real - prefill_own, prefill_scale),
        "dummy_decode": _dot(decode - decode_real, decode_scale),
        "idle_rows": _dot(decode_real - decode_unfinished, decode_scale),
        "padded_context": _dot(decode_unfinished - decode_own, decode_scale),
        "reverse_padded_context": _dot(decode_real - decode_own_all_rows, decode_scale),
        "reverse_idle_rows": _dot(decode_own_all_rows - decode_own, decode_scale),
    }


def _by_falling_output(first: Ints, rows: Ints, output: Ints) -> Ints:
    """Order of rows: batch after batch, longest output first. One sort of packed integers."""
    batch = np.repeat(np.arange(len(rows)), rows)
    place = np.arange(len(output))
    top, bits = int(output.max()), int(len(output) - 1).bit_length()
    packed = ((batch * (top + 1) + (top - output)) << bits) | place
    return np.sort(packed) & ((1 << bits) - 1)


def _running_sum(values: Ints, first: Ints, rows: Ints) -> Ints:
    total = np.cumsum(values)
    return total - np.repeat(total[first] - values[first], rows)


def _running_max(values: Ints, batch: Ints) -> Ints:
    lift = batch * (int(values.max()) + 1)
    return np.maximum.accumulate(values + lift) - lift
