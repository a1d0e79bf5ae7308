"""Static batches on the real model: pad to the longest prompt, decode in step until the longest answer ends.

Three engines share one model, one cache and one timing path, and differ only in prefill:

- ``padded``: one pass over the whole padded matrix [B, P], as static batching is meant;
- ``rowwise``: the padded matrix taken apart and prefilled row by row [1, P], then decoded together;
- ``serial``: one request at a time, the control.

A batch of B prompts, the longest of P tokens, whose longest answer has N, runs one prefill, which yields the
first token of every row, and N - 1 decode steps. Lengths are forced: a row that has its answer is computed
on, fed with its own newest token, and what it then says is idle work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from real.attention import pinned_kernels
from real.cache import Slab, SlabMemory
from real.memory import refuse_beyond_host_memory
from real.padding import decode_mask, left_padded, prefill_mask, prompt_positions
from real.timing import PassTimes, stopwatch
from traces.errors import InputError, choices
from traces.trace import Ints

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """A batch as it lies on the device when its prefill starts."""

    ids: Tensor
    """Padded prompts [B, P]."""
    positions: Tensor
    """Position of each slot [B, P]."""
    prefill_mask: Tensor
    """[B, 1, P, P], boolean."""
    decode_mask: Tensor
    """[B, 1, 1, P + N - 1], boolean; a step reads as much of it as there is context."""
    slab: Slab
    """Room for P + N - 1 tokens a row: the keys of the last token are never written."""
    out: Tensor
    """Generated tokens [B, N], filled column by column."""


@dataclass(frozen=True, eq=False)
class Generated:
    """What a batch gave."""

    tokens: Ints
    """[B, N], everything computed; the answer of row i is its first output_tokens[i]."""
    times: PassTimes


class Engine:
    """Runs padded batches on one model. Not for two threads at once: batches share memory."""

    def __init__(self, model: "PreTrainedModel", name: str = "padded", pad_id: int = 0) -> None:
        """An engine of :data:`ENGINES` on a model; ``pad_id`` fills the padding and changes nothing."""
        if name not in ENGINES:
            raise InputError(f"unknown engine {name!r}; known are {choices(ENGINES)}")
        config = model.config
        self.model = model
        self.name = name
        self.device: torch.device = next(model.parameters()).device
        self.dtype: torch.dtype = next(model.parameters()).dtype
        self.vocab_size: int = config.vocab_size
        self.max_rows = 1 if name == "serial" else None
        """Most rows in a batch; None where only memory limits it."""
        self._pad_id = pad_id
        self._prefill = ENGINES[name]
        self._memory = SlabMemory(
            config.num_hidden_layers, config.num_key_value_heads, config.head_dim, self.dtype, self.device
        )
        self._watch = stopwatch(self.device)

    @torch.inference_mode()
    def run(self, prompts: Sequence[Ints], output_tokens: int) -> Generated:
        """Prefill the prompts together and decode until every row has ``output_tokens`` tokens.

        Raises:
            InputError: more rows than this engine takes at once.
            ValueError: no prompt, an empty one, or no token asked for.
            torch.OutOfMemoryError, MemoryError, RuntimeError: no memory (see :mod:`real.memory`).
        """
        if self.max_rows is not None and len(prompts) > self.max_rows:
            raise InputError(
                f"engine {self.name} takes batches of {self.max_rows} row, not of {len(prompts)}"
            )
        if output_tokens < 1:
            raise ValueError(f"a batch generates at least one token, not {output_tokens}")
        with pinned_kernels(self.device):
            self._watch.start(passes=output_tokens)
            batch = self._upload(prompts, output_tokens)
            self.generate(batch)
            # The one wait for the device.
            tokens: Ints = batch.out.cpu().numpy()
            return Generated(tokens, self._watch.finish())

    @torch.inference_mode()
    def time_decode(self, rows: int, context_tokens: int, steps: int) -> PassTimes:
        """Times of ``steps`` decode steps after ``context_tokens`` slots that no prefill has filled.

        For profiling long contexts: the cache holds noise, which costs what keys and values cost, and the steps
        run as in any batch. The first step reads ``context_tokens`` + 1 slots.
        """
        with pinned_kernels(self.device):
            pads = torch.zeros(rows, dtype=torch.long, device=self.device)
            slab = self._memory.slab(rows, context_tokens + steps)
            slab.keys.normal_()
            slab.values.normal_()
            slab.advance(context_tokens)
            positions = torch.full((rows, 1), context_tokens - 1, device=self.device)
            out = torch.zeros((rows, steps + 1), dtype=torch.long, device=self.device)
            mask = decode_mask(pads, slab.capacity)
            self._watch.start(passes=steps)
            self._watch.begin()
            self._decode(positions, mask, slab, out)
            out.cpu()
            return self._watch.finish()

    @torch.inference_mode()
    def reserve(self, rows: int, capacity: int) -> None:
        """Have the memory of such a batch ready, so that getting it is not timed."""
        self._memory.reserve(rows, capacity)

    def release(self) -> None:
        """Give memory back that no batch uses."""
        self._memory.release()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _upload(self, prompts: Sequence[Ints], output_tokens: int) -> DeviceBatch:
        padded, pad_counts = left_padded(prompts, self._pad_id)
        rows, prompt = padded.shape
        if self.device.type == "cpu":
            refuse_beyond_host_memory(rows, prompt, 1 if self.name == "rowwise" else rows, self.dtype)
        capacity = prompt + output_tokens - 1
        pads = torch.from_numpy(pad_counts).to(self.device)
        return DeviceBatch(
            ids=torch.from_numpy(padded).to(self.device),
            positions=prompt_positions(pads, prompt),
            prefill_mask=prefill_mask(pads, prompt),
            decode_mask=decode_mask(pads, capacity),
            slab=self._memory.slab(rows, capacity),
            out=torch.empty((rows, output_tokens), dtype=torch.long, device=self.device),
        )

    def generate(self, batch: DeviceBatch) -> None:
        """All passes of a batch, tokens into ``batch.out``. Never waits for the device."""
        self._watch.begin()
        self._prefill(self.model, batch)
        self._watch.lap()
        self._decode(batch.positions[:, -1:].clone(), batch.decode_mask, batch.slab, batch.out)

    def _decode(self, positions: Tensor, mask: Tensor, slab: Slab, out: Tensor) -> None:
        """Fill ``out`` [B, N] from its second column on; ``positions`` [B, 1] are those of the last slots."""
        for step in range(1, out.shape[1]):
            positions += 1
            seen = mask[..., : slab.length + 1]
            out[:, step] = forward(self.model, out[:, step - 1 : step], positions, seen, slab)
            self._watch.lap()


def forward(model: "PreTrainedModel", ids: Tensor, positions: Tensor, mask: Tensor, slab: Slab) -> Tensor:
    """One pass: slots ``ids`` [B, Q] at ``positions`` [B, Q] go into the slab; the likeliest next tokens [B].

    ``mask`` is [B, 1, Q, slots filled after the pass]. Only the last position goes through the output head:
    logits of all of them would need B x Q x vocabulary values.
    """
    # By position: the fourth parameter has two names over the versions, and a wrong one is silently lost.
    hidden = model.model(ids, mask, positions, slab, use_cache=True)[0]
    slab.advance(ids.shape[1])
    next_ids: Tensor = model.lm_head(hidden[:, -1]).argmax(dim=-1)
    return next_ids


def prefill_together(model: "PreTrainedModel", batch: DeviceBatch) -> None:
    """The whole padded matrix in one pass."""
    batch.out[:, 0] = forward(model, batch.ids, batch.positions, batch.prefill_mask, batch.slab)


def prefill_by_row(model: "PreTrainedModel", batch: DeviceBatch) -> None:
    """Row after row, each padded to the longest prompt, into its own part of the slab."""
    for row in range(len(batch.ids)):
        one = slice(row, row + 1)
        batch.out[one, 0] = forward(
            model, batch.ids[one], batch.positions[one], batch.prefill_mask[one], batch.slab.row(row)
        )
    batch.slab.advance(batch.ids.shape[1])


ENGINES: dict[str, Callable[["PreTrainedModel", DeviceBatch], None]] = {
    "padded": prefill_together,
    "rowwise": prefill_by_row,
    "serial": prefill_together,
}
