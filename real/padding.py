"""Left padding, positions and masks of a batch: pure functions of its prompts.

Padding goes to the left so that every row's last prompt token stands in the last column, where its first new
token comes from. The engine pads for itself; which side a tokenizer would choose plays no part.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from traces.trace import Ints


def left_padded(prompts: Sequence[Ints], pad_id: int) -> tuple[Ints, Ints]:
    """Token ids [B, P], each prompt at the right edge of its row, and the number of pads of each row [B].

    Raises:
        ValueError: no prompt, or an empty one: a row without a token to attend to has no answer.
    """
    lengths = np.array([len(prompt) for prompt in prompts], np.int64)
    if not lengths.size or lengths.min() < 1:
        raise ValueError(f"prompts of at least one token are needed, not of {lengths.tolist()}")
    ids = np.full((len(prompts), int(lengths.max())), pad_id, np.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[len(row) - len(prompt) :] = prompt
    return ids, ids.shape[1] - lengths


def filled(pads: Tensor, slots: int) -> Tensor:
    """Which of the first ``slots`` slots hold a token, not a pad, boolean [B, slots]; ``pads`` is [B]."""
    return torch.arange(slots, device=pads.device) >= pads[:, None]


def prompt_positions(pads: Tensor, prompt: int) -> Tensor:
    """Position of each prompt slot, counted from the row's own first token, [B, P]; pads get 0."""
    return (filled(pads, prompt).long().cumsum(dim=1) - 1).clamp_(min=0)


def prefill_mask(pads: Tensor, prompt: int) -> Tensor:
    """Who sees whom in prefill, boolean [B, 1, P, P]: earlier tokens of the same row, never its pads.

    A pad sees itself, so that no row of the softmax is empty, which some kernels answer with not-a-number.
    """
    causal = torch.ones(prompt, prompt, dtype=torch.bool, device=pads.device).tril_()
    mask = filled(pads, prompt)[:, None, :] & causal
    mask.diagonal(dim1=1, dim2=2).fill_(True)
    return mask[:, None]


def decode_mask(pads: Tensor, capacity: int) -> Tensor:
    """What each row's newest token may see, boolean [B, 1, 1, capacity]; a step cuts it to its context."""
    return filled(pads, capacity)[:, None, None, :]
