"""Left padding, positions and masks, by hand."""

import numpy as np
import pytest
import torch

from real.padding import decode_mask, left_padded, prefill_mask, prompt_positions

PADS = torch.tensor([2, 0])


def test_prompts_go_to_the_right_edge() -> None:
    ids, pads = left_padded([np.array([7, 8]), np.array([1, 2, 3, 4])], pad_id=9)
    assert ids.tolist() == [[9, 9, 7, 8], [1, 2, 3, 4]]
    assert pads.tolist() == [2, 0]


def test_a_pad_token_inside_a_prompt_stays_a_token() -> None:
    """Qwen3's pad id is also its first control token: the mask comes from lengths, never from ids."""
    ids, pads = left_padded([np.array([9, 9]), np.array([9])], pad_id=9)
    assert ids.tolist() == [[9, 9], [9, 9]]
    assert pads.tolist() == [0, 1]


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at least one token are needed, not of \[0, 3\]"):
        left_padded([np.empty(0, np.int64), np.arange(3)], 0)


def test_positions_are_the_running_count_of_tokens_less_one_and_never_negative() -> None:
    assert prompt_positions(PADS, 4).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]


def test_prefill_sees_earlier_tokens_of_its_own_row_and_a_pad_sees_itself() -> None:
    mask = prefill_mask(PADS, 4)
    assert mask.shape == (2, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert mask[1, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert mask.any(dim=-1).all()


def test_decode_sees_everything_but_pads() -> None:
    mask = decode_mask(PADS, 6)
    assert mask.shape == (2, 1, 1, 6)
    assert mask[:, 0, 0].int().tolist() == [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]
