"""An engine without a model: its passes take what a formula says, so a whole comparison runs in a moment."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch

from real.engine import Engine, Generated
from real.timing import PassTimes, Timeline
from tests.real.conftest import CPU, TINY
from traces.trace import Ints

BEFORE_NS, AFTER_NS = 300_000, 200_000
"""Overheads of every batch."""


def prefill_ns(rows: int, prompt: int) -> int:
    """Straight in rows and in slots."""
    return 1_000_000 + 200_000 * rows + 10_000 * rows * prompt


def decode_ns(rows: int, context: int) -> int:
    """Straight in rows and in slots read."""
    return 2_000_000 + 50_000 * rows + 1_000 * rows * context


class FakeEngine:
    """Stands where :class:`real.engine.Engine` does.

    ``most_rows`` is what memory suffices for, ``slower`` a factor for the n-th batch that is run or timed, and
    ``interrupt_at`` the number of the batch in which Ctrl-C is pressed.
    """

    def __init__(
        self,
        model: Any = None,
        name: str = "padded",
        most_rows: int | None = None,
        slower: Callable[[int], float] = lambda batch: 1.0,
        interrupt_at: int | None = None,
    ) -> None:
        self.model = model
        self.name = name
        self.device = CPU
        self.dtype = torch.float32
        self.vocab_size = TINY.vocab_size
        self.max_rows = 1 if name == "serial" else None
        self.most_rows = most_rows
        self.slower = slower
        self.interrupt_at = interrupt_at
        self.batches = 0
        self.shapes: list[tuple[int, int, int]] = []
        """Rows, padded prompt and output tokens of every batch run."""

    def run(self, prompts: Sequence[Ints], output_tokens: int) -> Generated:
        rows, prompt = len(prompts), max(map(len, prompts))
        self.shapes.append((rows, prompt, output_tokens))
        steps = [prefill_ns(rows, prompt)] + [decode_ns(rows, prompt + k) for k in range(1, output_tokens)]
        # An answer that depends on the prompt alone, as it should.
        tokens = np.array([int(row.sum()) + np.arange(output_tokens) for row in prompts], np.int64)
        return Generated(tokens, self._times(steps, BEFORE_NS, AFTER_NS))

    def time_decode(self, rows: int, context_tokens: int, steps: int) -> PassTimes:
        return self._times([decode_ns(rows, context_tokens + k) for k in range(1, steps + 1)], 0, 0)

    def reserve(self, rows: int, capacity: int) -> None:
        if self.most_rows is not None and rows > self.most_rows:
            raise MemoryError

    def release(self) -> None:
        pass

    def _times(self, steps_ns: list[int], before_ns: int, after_ns: int) -> PassTimes:
        batch, self.batches = self.batches, self.batches + 1
        if batch == self.interrupt_at:
            raise KeyboardInterrupt
        steps = np.rint(np.array(steps_ns) * self.slower(batch)).astype(np.int64)
        timeline = Timeline(before_ns, steps, after_ns)
        return PassTimes(timeline, timeline)


def fake(**how: Any) -> Engine:
    return cast(Engine, FakeEngine(**how))
