"""Which errors are about memory."""

import pytest
import torch

from real.memory import is_out_of_memory, refuse_beyond_host_memory


def test_only_errors_about_memory_count_as_out_of_memory() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    assert is_out_of_memory(MemoryError())
    with pytest.raises(RuntimeError) as caught:
        torch.empty(10**15)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("out of memory"))


def test_masks_beyond_the_hosts_memory_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two rows of 10 tokens in one pass: 3 boolean masks and 2 copies of 4 bytes, 100 places each.
    monkeypatch.setattr("real.memory.available_bytes", lambda: 1100)
    refuse_beyond_host_memory(2, 10, 2, torch.float32)
    monkeypatch.setattr("real.memory.available_bytes", lambda: 1099)
    with pytest.raises(MemoryError, match="1,100 bytes in 1,099"):
        refuse_beyond_host_memory(2, 10, 2, torch.float32)
    refuse_beyond_host_memory(2, 10, 1, torch.float32)
    monkeypatch.setattr("real.memory.available_bytes", lambda: None)
    refuse_beyond_host_memory(2, 10**6, 2, torch.float32)
