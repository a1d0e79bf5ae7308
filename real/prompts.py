"""Prompts for traces that carry only lengths: ordinary token ids, the same for a request in every run."""

import numpy as np

from traces.trace import Ints

ORDINARY_TOKENS = 151_643
"""Qwen3's ids below this are ordinary text; control tokens and unused rows of the embedding follow."""


def prompt_ids(seed: int, source_row: int, tokens: int, vocab_size: int) -> Ints:
    """``tokens`` ids drawn uniformly from the ordinary ones, fixed by seed and source row."""
    generator = np.random.default_rng([seed, source_row])
    return generator.integers(min(vocab_size, ORDINARY_TOKENS), size=tokens, dtype=np.int64)
