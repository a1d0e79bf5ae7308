"""Throughput over batch size: full batches of equal lengths, which waste nothing, and the knee of the curve."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.cost import CostModel, batch_overhead_ns, nanoseconds
from sim.memory import footprint
from sim.ops import totals
from sim.roofline import Roofline
from sim.speedup import PAYS
from sim.step import batch_steps

MOST_ROWS = 4096
"""Rows up to which the curve is drawn where memory allows."""


@dataclass(frozen=True)
class Point:
    """One batch size."""

    rows: int
    prefill_ns: int
    """Until every request has its first token."""
    decode_ns: int
    overhead_ns: int
    output_tokens: int
    """Of each request."""
    flop_use: float
    """Of the datasheet's peak, over the whole batch: MFU."""
    bandwidth_use: float
    memory_bytes: int
    fits: bool

    @property
    def ns(self) -> int:
        """The whole batch."""
        return self.prefill_ns + self.decode_ns + self.overhead_ns

    @property
    def tokens_per_s(self) -> float:
        """Output tokens."""
        return self.rows * self.output_tokens / self.ns * 1e9

    @property
    def step_s(self) -> float | None:
        """Mean decode step, seconds; None where every answer is one token."""
        steps = self.output_tokens - 1
        return self.decode_ns / steps / 1e9 if steps else None

    def filling_s(self, rate_per_s: float) -> float:
        """How long the first request waits for the last, on average."""
        return (self.rows - 1) / rate_per_s

    def to_json(self, rate_per_s: float | None) -> dict[str, Any]:
        """Seconds to 9 decimals."""
        step_s = self.step_s
        return {
            "rows": self.rows,
            "output_tokens_per_s": self.tokens_per_s,
            "prefill_s": round(self.prefill_ns / 1e9, 9),
            "step_s": None if step_s is None else round(step_s, 9),
            "total_s": round(self.ns / 1e9, 9),
            "filling_s": None if rate_per_s is None else round(self.filling_s(rate_per_s), 9),
            "flop_use": self.flop_use,
            "bandwidth_use": self.bandwidth_use,
            "memory_bytes": self.memory_bytes,
            "fits": self.fits,
        }


def curve(
    model: CostModel, roofline: Roofline, prompt: int, output: int, largest_rows: int | None, rows: int
) -> list[Point]:
    """Points at powers of two up to what memory holds, and at ``rows``.

    Args:
        model: prices the passes.
        roofline: of the same model and device; counts FLOP and bytes.
        prompt: tokens of every prompt.
        output: tokens of every answer.
        largest_rows: rows that memory holds; None: any.
        rows: a batch size that is shown in any case, fitting or not.
    """
    most = min(MOST_ROWS, MOST_ROWS if largest_rows is None else largest_rows)
    sizes = {1 << i for i in range(MOST_ROWS.bit_length()) if 1 << i <= most}
    return [
        _point(model, roofline, size, prompt, output, largest_rows is None or size <= largest_rows)
        for size in sorted({1, *sizes, rows})
    ]


def _point(model: CostModel, roofline: Roofline, rows: int, prompt: int, output: int, fits: bool) -> Point:
    steps = batch_steps(rows, prompt, output)
    cost = nanoseconds(model, steps)
    overhead_ns = sum(batch_overhead_ns(model))
    seconds = (int(cost.sum()) + overhead_ns) / 1e9
    each = totals(roofline, steps)
    device = roofline.hardware
    return Point(
        rows=rows,
        prefill_ns=int(cost[0]),
        decode_ns=int(cost[1:].sum()),
        overhead_ns=overhead_ns,
        output_tokens=output,
        flop_use=sum(op.flop for op in each) / device.flop_per_s[roofline.dtype] / seconds,
        bandwidth_use=sum(op.byte for op in each) / device.memory_bytes_per_s / seconds,
        memory_bytes=footprint(roofline.shape, device, roofline.dtype, rows, prompt, output).total_bytes,
        fits=fits,
    )


def knee(points: Sequence[Point]) -> int | None:
    """The smallest batch size that no larger one beats by :data:`PAYS`; None if larger ones might still."""
    for i, point in enumerate(points[:-1]):
        if all(larger.tokens_per_s < (1 + PAYS) * point.tokens_per_s for larger in points[i + 1 :]):
            return point.rows
    return None
