"""The same request has the same prompt in every run, whatever else the trace holds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from real.prompts import ORDINARY_TOKENS, Prompts, prompt_ids
from traces.errors import InputError
from traces.load import load

SEED = st.integers(0, 2**32 - 1)


@given(SEED, st.integers(0, 30_000_000), st.integers(1, 200), st.sampled_from([2, 512, 151_936]))
def test_seed_and_source_row_fix_the_prompt(seed: int, row: int, tokens: int, vocab_size: int) -> None:
    ids = prompt_ids(seed, row, tokens, vocab_size)
    assert len(ids) == tokens
    assert ids.tolist() == prompt_ids(seed, row, tokens, vocab_size).tolist()
    assert ids.min() >= 0
    assert ids.max() < min(vocab_size, ORDINARY_TOKENS)


def test_another_seed_or_row_is_another_prompt() -> None:
    prompts = {tuple(prompt_ids(seed, row, 20, 151_936)) for seed in range(20) for row in range(20)}
    assert len(prompts) == 400


def test_ids_are_uniform_over_the_vocabulary() -> None:
    ids = prompt_ids(0, 0, 80_000, 8)
    counts = [(ids == i).sum() for i in range(8)]
    assert max(abs(count - 10_000) for count in counts) < 500  # five standard deviations of a count


def test_a_trace_of_text_is_served_with_its_own_ids() -> None:
    textbook = load("textbook")
    own = replace(textbook, prompt_ids=np.arange(65, dtype=np.int32))
    prompts = Prompts(own, seed=0, vocab_size=65)
    assert [prompts.of(i).tolist() for i in range(4)] == [
        list(range(10)),
        list(range(10, 40)),
        list(range(40, 45)),
        list(range(45, 65)),
    ]


def test_a_trace_of_lengths_gets_the_prompts_of_its_source_rows() -> None:
    textbook = load("textbook")
    moved = replace(textbook, source_row=np.array([7, 0, 1, 2]))
    assert Prompts(moved, 3, 512).of(0).tolist() == prompt_ids(3, 7, 10, 512).tolist()


def test_ids_of_another_vocabulary_are_refused() -> None:
    own = replace(load("textbook"), prompt_ids=np.arange(65, dtype=np.int32))
    with pytest.raises(InputError, match="token id 64 is not in the model's vocabulary of 64"):
        Prompts(own, 0, 64)
