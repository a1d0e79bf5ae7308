"""Forward passes by what they cost, and the one builder of them that simulator and engine share.

A static batch of B rows, longest prompt P and longest output N runs one prefill over B x P slots, which
yields the first token of every row, and then decode steps k = 1 .. N-1, each reading B x (P + k) slots.
Dummy rows and bucket rounding are applied here and nowhere else, so a cost model never sees a staircase.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from traces.errors import InputError
from traces.trace import Ints


@dataclass(frozen=True, eq=False)
class Step:
    """Forward passes as columns of one length (or one shape). Prefill, decode, padded, ragged and mixed
    passes are one type, so every counterfactual can be priced."""

    prefill_tokens: Ints
    """Prompt slots computed, padding included."""
    decode_rows: Ints
    """Rows that decode one token each, finished and dummy rows included."""
    prefill_pairs: Ints
    """Query-key pairs of prefill: rows x P x P padded, the sum of squares at own lengths. What a causal
    kernel saves of them is the model's efficiency, not this count's."""
    prefill_kv_tokens: Ints
    """Key-value slots that prefill attention reads, tokens."""
    decode_kv_tokens: Ints
    """Key-value slots that decode attention reads, own token included, after any rounding."""
    max_context_tokens: Ints
    """Longest context in the pass, tokens."""
    logit_rows: Ints
    """Positions that go through the output head."""

    def __len__(self) -> int:
        return len(self.prefill_tokens)

    def take(self, index: "slice | Ints") -> "Step":
        """Some of the passes, as numpy indexing picks them."""
        return Step(*(getattr(self, column.name)[index] for column in fields(self)))

    def describe(self, i: int) -> str:
        """One pass in words, for error lines."""
        parts = (f"{column.name}={int(getattr(self, column.name)[i])}" for column in fields(self))
        return " ".join(parts)


def concat(*steps: Step) -> Step:
    """The passes of several steps, one after the other."""
    return Step(*(np.concatenate([getattr(s, column.name) for s in steps]) for column in fields(Step)))


@dataclass(frozen=True)
class Rounding:
    """How an engine rounds a batch up: to an allowed number of rows, to a multiple of context slots."""

    row_counts: tuple[int, ...] = ()
    """Allowed row counts, rising; empty: any. What is missing is filled with dummy rows."""
    context_tokens: int = 1
    """Decode attention reads contexts rounded up to a multiple of this (CUDA-graph buckets)."""

    def __post_init__(self) -> None:
        if self.context_tokens < 1 or any(rows < 1 for rows in self.row_counts):
            raise InputError(f"rounding needs positive sizes, not {self}")
        if list(self.row_counts) != sorted(set(self.row_counts)):
            raise InputError(f"allowed row counts must rise: {self.row_counts}")

    def rows(self, rows: ArrayLike) -> Ints:
        """Rows computed for ``rows`` real ones."""
        wanted = np.asarray(rows, np.int64)
        if not self.row_counts:
            return wanted
        allowed = np.asarray(self.row_counts, np.int64)
        if wanted.size and wanted.max() > allowed[-1]:
            raise InputError(f"a batch of {wanted.max()} rows is above the largest allowed, {allowed[-1]}")
        return allowed[np.searchsorted(allowed, wanted)]

    def context(self, context: ArrayLike) -> Ints:
        """Context slots read for a context of ``context`` tokens."""
        wanted = np.asarray(context, np.int64)
        return -(-wanted // self.context_tokens) * self.context_tokens


EXACT = Rounding()
"""No dummy rows, no buckets."""


def padded_prefill(rows: ArrayLike, prompt: ArrayLike) -> Step:
    """Prefill of ``rows`` (already rounded) prompts, each padded to ``prompt`` tokens."""
    b, p = np.broadcast_arrays(np.asarray(rows, np.int64), np.asarray(prompt, np.int64))
    zero = np.zeros_like(b)
    return Step(b * p, zero, b * p * p, b * p, zero, p, b)


def own_prefill(rows: ArrayLike, prompt_sum: ArrayLike, square_sum: ArrayLike, longest: ArrayLike) -> Step:
    """The same prefill with each row at its own length: sums of prompts and of their squares."""
    b, s, q, m = np.broadcast_arrays(
        *(np.asarray(x, np.int64) for x in (rows, prompt_sum, square_sum, longest))
    )
    zero = np.zeros_like(b)
    return Step(s, zero, q, s, zero, m, b)


def padded_decode(rows: ArrayLike, context: ArrayLike) -> Step:
    """Decode steps of ``rows`` rows at padded context P + k (both already rounded)."""
    b, c = np.broadcast_arrays(np.asarray(rows, np.int64), np.asarray(context, np.int64))
    zero = np.zeros_like(b)
    return Step(zero, b, zero, zero, b * c, c, b)


def own_decode(rows: ArrayLike, kv_tokens: ArrayLike, longest: ArrayLike) -> Step:
    """Decode steps with each row at its own context: ``kv_tokens`` slots in all, the longest row's context."""
    b, s, m = np.broadcast_arrays(*(np.asarray(x, np.int64) for x in (rows, kv_tokens, longest)))
    zero = np.zeros_like(b)
    return Step(zero, b, zero, zero, s, m, b)


def batch_steps(rows: int, prompt: int, output: int, rounding: Rounding = EXACT) -> Step:
    """Every pass of one padded batch in order: the prefill, then its ``output`` - 1 decode steps."""
    computed = rounding.rows(rows)
    context = rounding.context(np.arange(prompt + 1, prompt + output, dtype=np.int64))
    return concat(
        padded_prefill(np.atleast_1d(computed), np.atleast_1d(np.int64(prompt))),
        padded_decode(np.full_like(context, computed), context),
    )
