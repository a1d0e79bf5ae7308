"""Prices of decode without a loop over tokens: prefix sums over context, and sums along straight lines.

A decode step of a padded batch depends only on its rows and its context, so the steps P+1 .. P+N-1 of a batch
cost T[P+N-1] - T[P], T being the running sum of whole nanoseconds over contexts for that row count.
"""

from collections.abc import Iterator
from functools import cache

import numpy as np

from sim.cost import LONGEST_NS, CostModel, nanoseconds
from sim.step import EXACT, Rounding, padded_decode, padded_prefill
from traces.errors import InputError
from traces.trace import Ints, Trace

MAX_CONTEXT_TOKENS = 1 << 22
"""Longest context in the tables, which take 8 bytes a token for every row count; no model reads as much."""


class Prices:
    """Whole-nanosecond costs of padded passes by row count; running sums of decode are kept once made."""

    def __init__(
        self, model: CostModel, max_prompt_tokens: int, max_context_tokens: int, rounding: Rounding = EXACT
    ) -> None:
        if max_context_tokens > MAX_CONTEXT_TOKENS:
            raise InputError(
                f"longest prompt and longest output make a context of {max_context_tokens:,} tokens, above the "
                f"{MAX_CONTEXT_TOKENS:,} that are priced; leave the longer requests out"
            )
        self.model = model
        self.max_prompt_tokens = max_prompt_tokens
        self.max_context_tokens = max_context_tokens
        self.rounding = rounding
        self.prefix = cache(self._prefix)

    @classmethod
    def for_trace(cls, trace: Trace, model: CostModel, rounding: Rounding = EXACT) -> "Prices":
        """Long enough for any batch of this trace."""
        longest = int(trace.prompt_tokens.max())
        return cls(model, longest, longest + int(trace.output_tokens.max()), rounding)

    def prefill_ns(self, rows: int) -> Ints:
        """Cost of a prefill of ``rows`` computed rows padded to 0, 1, ... tokens; entry 0 does not occur and is 0."""
        prompt = np.arange(1, self.max_prompt_tokens + 1, dtype=np.int64)
        cost = np.zeros(self.max_prompt_tokens + 1, np.int64)
        cost[1:] = nanoseconds(self.model, padded_prefill(np.full_like(prompt, rows), prompt))
        return cost

    def prefills_ns(self, rows: Ints, prompt: Ints) -> Ints:
        """Cost of each padded prefill of ``rows`` computed rows."""
        return nanoseconds(self.model, padded_prefill(rows, prompt))

    def decodes_ns(self, rows: Ints, after_context: Ints, last_context: Ints) -> Ints:
        """Cost of all decode steps of ``rows`` computed rows above one context up to another, for each triple."""
        cost = np.empty(len(rows), np.int64)
        for count, index in by_value(rows):
            prefix = self.prefix(count)
            cost[index] = prefix[last_context[index]] - prefix[after_context[index]]
        return cost

    def step_ns(self, rows: int) -> Ints:
        """Cost of one decode step of ``rows`` computed rows at context 0, 1, ..., whole nanoseconds.

        Context 0 does not occur; its entry is 0, so that a running sum starts at 0.
        """
        context = self.rounding.context(np.arange(1, self.max_context_tokens + 1, dtype=np.int64))
        cost = np.zeros(self.max_context_tokens + 1, np.int64)
        cost[1:] = nanoseconds(self.model, padded_decode(np.full_like(context, rows), context))
        return cost

    def _prefix(self, rows: int) -> Ints:
        steps = self.step_ns(rows)
        if (most_s := steps.sum(dtype=np.float64) / 1e9) > LONGEST_NS / 1e9:
            raise InputError(
                f"cost model {self.model.name} gives {most_s:.3g} s for the decode steps of {rows} rows up to a "
                f"context of {self.max_context_tokens:,} tokens, more than a century; does it give seconds?"
            )
        total = np.cumsum(steps)
        total.setflags(write=False)
        return total


def by_value(values: Ints) -> Iterator[tuple[int, Ints | slice]]:
    """Each distinct value, rising, with the positions that hold it. Values are small non-negative counts."""
    if not len(values):
        return
    low, high = int(values.min()), int(values.max())
    if low == high:
        yield low, slice(None)
        return
    # A stable sort of 16-bit integers is a radix sort: linear, and positions come out rising.
    order = np.argsort(values.astype(np.uint16) if high < 2**16 else values, kind="stable")
    cuts = np.flatnonzero(np.diff(values[order])) + 1
    starts = np.concatenate([[0], cuts])
    for start, stop in zip(starts, np.append(cuts, len(values)), strict=True):
        yield int(values[order[start]]), order[start:stop]
