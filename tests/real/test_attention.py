"""The engine's attention against the textbook formula."""

import math

import pytest
import torch

from real.attention import attend
from real.padding import decode_mask, prefill_mask


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("queries", [1, 5])
def test_it_is_the_softmax_over_what_the_mask_lets_through(kv_heads: int, queries: int) -> None:
    rows, heads, slots, dim = 3, 4, 5, 8
    pads = torch.tensor([0, 3, 4])
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(rows, heads, queries, dim, generator=generator)
    key, value = torch.randn(2, rows, kv_heads, slots, dim, generator=generator)
    mask = decode_mask(pads, slots) if queries == 1 else prefill_mask(pads, slots)
    scaling = 1 / math.sqrt(dim)

    mixed, _ = attend(torch.nn.Module(), query, key, value, mask, scaling)

    assert mixed.shape == (rows, queries, heads, dim)
    for head in range(heads):
        shared = head // (heads // kv_heads)
        scores = query[:, head] @ key[:, shared].transpose(1, 2) * scaling
        weights = scores.masked_fill(~mask[:, 0], -math.inf).softmax(dim=-1)
        torch.testing.assert_close(mixed[:, :, head], weights @ value[:, shared])
