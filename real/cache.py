"""The key-value cache: one slab of memory per batch, written in place and read only as far as it is filled.

A cache that grows by concatenation copies everything at every step, and one that attends over its whole
capacity makes a step cost what the longest answer needs. Here a step writes one slot and reads the context
there is.
"""

from typing import Any

import torch
from torch import Tensor


class Slab:
    """Keys and values [layers, B, Hkv, capacity, D], of which the first ``length`` slots are filled.

    Has the methods that transformers' attention layers call; every layer writes its new slots in a pass, then
    whoever ran the pass calls :meth:`advance`.
    """

    is_compileable = False

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys = keys
        self.values = values
        self.length = 0

    @property
    def capacity(self) -> int:
        """Slots a row can hold, tokens."""
        return self.keys.shape[3]

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write one layer's new slots [B, Hkv, Q, D]; views of all its filled slots, the new included."""
        end = self.length + key.shape[2]
        self.keys[layer][:, :, self.length : end] = key
        self.values[layer][:, :, self.length : end] = value
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, slots: int) -> None:
        """Count ``slots`` as filled, after every layer has written them."""
        self.length += slots

    def row(self, index: int) -> "Slab":
        """An empty cache over the memory of one row: what it is filled with is there in this slab too."""
        return Slab(self.keys[:, index : index + 1], self.values[:, index : index + 1])

    def get_seq_length(self, layer: int = 0) -> int:
        """Slots filled before the pass, tokens."""
        return self.length


class SlabMemory:
    """Where slabs come from.

    On a CPU one block is kept and cut anew for each batch: fresh memory costs page faults, which would land
    in the first steps that touch it. On a GPU the allocator keeps blocks itself, and a block of our own would
    count in the peak memory of batches that do not need it.
    """

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._layers, self._kv_heads, self._head_dim = layers, kv_heads, head_dim
        self._dtype, self._device = dtype, device
        self._kept: Tensor | None = None

    def reserve(self, rows: int, capacity: int) -> None:
        """Make sure, outside of any timing, that a slab of this size needs no new memory (on a CPU)."""
        values = self._values(rows, capacity)
        if self._device.type == "cpu" and (self._kept is None or len(self._kept) < values):
            self._kept = None  # the old block goes before the new one comes
            # Written, not only asked for: untouched memory has no pages yet.
            self._kept = torch.empty(values, dtype=self._dtype).zero_()

    def slab(self, rows: int, capacity: int) -> Slab:
        """An empty slab, ``rows`` rows of ``capacity`` tokens; on a CPU the one before dies with it."""
        self.reserve(rows, capacity)
        values = self._values(rows, capacity)
        flat = (
            torch.empty(values, dtype=self._dtype, device=self._device) if self._kept is None else self._kept
        )
        shape = (2, self._layers, rows, self._kv_heads, capacity, self._head_dim)
        keys, vals = flat[:values].view(shape)
        return Slab(keys, vals)

    def release(self) -> None:
        """Give the kept block back."""
        self._kept = None

    def _values(self, rows: int, capacity: int) -> int:
        return 2 * self._layers * rows * self._kv_heads * capacity * self._head_dim
