"""Prompts of a trace: its own token ids, or ordinary ones where it carries only lengths; the same in every run."""

import numpy as np

from traces.errors import InputError
from traces.trace import Ints, Trace

ORDINARY_TOKENS = 151_643
"""Qwen3's ids below this are ordinary text; control tokens and unused rows of the embedding follow."""


def prompt_ids(seed: int, source_row: int, tokens: int, vocab_size: int) -> Ints:
    """``tokens`` ids drawn uniformly from the ordinary ones, fixed by seed and source row."""
    generator = np.random.default_rng([seed, source_row])
    return generator.integers(min(vocab_size, ORDINARY_TOKENS), size=tokens, dtype=np.int64)


class Prompts:
    """Token ids of each request of a trace.

    Raises:
        InputError: the trace's own ids lie outside the model's vocabulary.
    """

    def __init__(self, trace: Trace, seed: int, vocab_size: int) -> None:
        self._trace, self._seed, self._vocab_size = trace, seed, vocab_size
        self._begins = np.cumsum(trace.prompt_tokens) - trace.prompt_tokens
        own = trace.prompt_ids
        if own is not None and (own.min() < 0 or own.max() >= vocab_size):
            worst = int(own.max() if own.max() >= vocab_size else own.min())
            raise InputError(
                f"{trace.name}: token id {worst} is not in the model's vocabulary of {vocab_size}; "
                "read the trace with the model's own tokenizer"
            )

    def of(self, request: int) -> Ints:
        """The prompt of a request, by its index in the trace."""
        length = int(self._trace.prompt_tokens[request])
        if self._trace.prompt_ids is None:
            return prompt_ids(self._seed, int(self._trace.source_row[request]), length, self._vocab_size)
        begin = int(self._begins[request])
        return self._trace.prompt_ids[begin : begin + length].astype(np.int64)
