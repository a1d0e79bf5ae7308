"""The same request has the same prompt in every run, whatever else the trace holds."""

from hypothesis import given
from hypothesis import strategies as st

from real.prompts import ORDINARY_TOKENS, prompt_ids

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
