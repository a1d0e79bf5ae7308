"""The slab: written in place, read as far as it is filled, cut from memory that is kept."""

import torch

from real.cache import SlabMemory

CPU = torch.device("cpu")


def memory() -> SlabMemory:
    return SlabMemory(layers=2, kv_heads=3, head_dim=4, dtype=torch.float32, device=CPU)


def test_a_pass_writes_its_slots_and_reads_all_filled_ones() -> None:
    slab = memory().slab(rows=2, capacity=5)
    assert (slab.keys.shape, slab.capacity, slab.get_seq_length()) == ((2, 2, 3, 5, 4), 5, 0)
    prompt = torch.randn(2, 2, 3, 4, 4)
    for layer in range(2):
        keys, values = slab.update(prompt[0], prompt[1], layer)
        assert keys.shape == values.shape == (2, 3, 4, 4)
        assert torch.equal(keys, prompt[0])
        assert torch.equal(values, prompt[1])
    slab.advance(4)
    token = torch.randn(2, 2, 3, 1, 4)
    keys, values = slab.update(token[0], token[1], 1)
    assert torch.equal(keys, torch.cat([prompt[0], token[0]], dim=2))
    assert torch.equal(values, torch.cat([prompt[1], token[1]], dim=2))
    assert keys.data_ptr() == slab.keys[1].data_ptr()  # a view, not a copy


def test_a_row_shares_the_memory_of_its_slab() -> None:
    slab = memory().slab(rows=2, capacity=3)
    new = torch.randn(2, 1, 3, 3, 4)
    slab.row(1).update(new[0], new[1], 0)
    assert torch.equal(slab.keys[0][1:], new[0])
    assert torch.equal(slab.values[0][1:], new[1])
    assert slab.length == 0


def test_memory_is_kept_from_batch_to_batch_and_given_back_on_request() -> None:
    kept = memory()
    kept.reserve(4, 10)
    large = kept.slab(4, 10).keys.data_ptr()
    assert kept.slab(2, 3).keys.data_ptr() == large
    assert kept.slab(4, 11).keys.numel() == 2 * 4 * 3 * 11 * 4
    kept.release()
    assert kept._kept is None
