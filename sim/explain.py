"""Where a batch's time goes, and how far a larger one would help: everything ``python -m sim explain`` says.

The cost model prices the batch; the roofline of model and device says which operations stand behind such a pass, and
is the cost model itself unless another one is given. Seconds are whole nanoseconds, as everywhere.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.cost import CostModel, batch_overhead_ns, nanoseconds
from sim.curve import Point, curve, knee
from sim.memory import Footprint, footprint
from sim.ops import OpTotal, apportion, totals
from sim.pricing import MAX_CONTEXT_TOKENS
from sim.roofline import Roofline
from sim.step import Step, batch_steps
from traces.errors import InputError
from traces.slots import Slots
from traces.trace import Trace

LEDGER = (
    "useful_prefill",
    "prefill_padding",
    "useful_decode",
    "padded_context",
    "idle_rows",
    "batch_overhead",
)
"""Lines of the time ledger that one batch has."""


@dataclass(frozen=True)
class Phase:
    """Prefill or decode of the batch."""

    passes: int
    ns: int
    """By the cost model."""
    roofline_ns: int
    ops: list[OpTotal]
    ops_ns: list[int]
    """They add up to ``roofline_ns`` exactly."""

    def to_json(self) -> dict[str, Any]:
        """Seconds to 9 decimals, exact."""
        return {
            "passes": self.passes,
            "seconds": _seconds(self.ns),
            "roofline_s": _seconds(self.roofline_ns),
            "operations": [
                {
                    "name": op.name,
                    "seconds": _seconds(ns),
                    "share": op.share,
                    "bound": op.bound,
                    "flop": op.flop,
                    "bytes": op.byte,
                    "flop_use": op.flop_use,
                    "bandwidth_use": op.byte_use,
                    "light": op.light,
                }
                for op, ns in zip(self.ops, self.ops_ns, strict=True)
            ],
        }


@dataclass(frozen=True)
class Alone:
    """The same requests one after the other, against all at once."""

    passes: int
    prefill_ns: int
    decode_ns: int
    overhead_ns: int

    @property
    def ns(self) -> int:
        """Everything."""
        return self.prefill_ns + self.decode_ns + self.overhead_ns

    def to_json(self, start_s: float) -> dict[str, Any]:
        """Seconds to 9 decimals; ``start_s`` is what starting the kernels of one pass takes."""
        return {
            "passes": self.passes,
            "prefill_s": _seconds(self.prefill_ns),
            "decode_s": _seconds(self.decode_ns),
            "overhead_s": _seconds(self.overhead_ns),
            "total_s": _seconds(self.ns),
            "launch_s": round(self.passes * start_s, 9),
        }


@dataclass(frozen=True)
class Explanation:
    """All parts, each computed once; tables and JSON both read it."""

    prompts: list[int]
    outputs: list[int]
    prefill: Phase
    decode: Phase | None
    """None where every answer is one token."""
    ledger_ns: dict[str, int]
    """Lines of :data:`LEDGER`; they add up to the batch's time."""
    prefill_slots: Slots
    decode_slots: Slots
    alone: Alone
    together: Alone
    start_s: float
    memory: Footprint
    curve: list[Point]
    largest_rows: int | None
    ridge_tokens: float
    rate_per_s: float | None

    @property
    def rows(self) -> int:
        """Requests of the batch."""
        return len(self.prompts)

    def to_json(self) -> dict[str, Any]:
        """The document of ``--json``, less the set-up."""
        decode = None if self.decode is None else self.decode.to_json()
        return {
            "batch": {"rows": self.rows, "prompt_tokens": self.prompts, "output_tokens": self.outputs},
            "phases": {"prefill": self.prefill.to_json(), "decode": decode},
            "ledger_s": {name: _seconds(ns) for name, ns in self.ledger_ns.items()},
            "slots": {
                "prefill": {"slots": self.prefill_slots.slots, "padding": self.prefill_slots.wasted},
                "decode": {"slots": self.decode_slots.slots, "idle": self.decode_slots.wasted},
            },
            "alone": self.alone.to_json(self.start_s),
            "together": self.together.to_json(self.start_s),
            "launch_s_per_pass": self.start_s,
            "memory_bytes": {**vars(self.memory), "total_bytes": self.memory.total_bytes},
            "curve": [point.to_json(self.rate_per_s) for point in self.curve],
            "limits": self.limits(),
        }

    def limits(self) -> dict[str, Any]:
        """Why not ever larger: rows at which each limit of the batch size is met; None where it is not.

        ``latency_rows``: most rows of the curve that together take at most twice as long as one request alone.
        ``saturation_rows``: fewest rows that no larger batch of the curve beats by :data:`sim.curve.PAYS`.
        ``keeps_up_rows``: fewest rows of the curve that are served as fast as they come.
        """
        fitting = [point for point in self.curve if point.fits]
        quick = [point.rows for point in fitting if point.ns <= 2 * self.curve[0].ns]
        rate = self.rate_per_s
        keeping = [p.rows for p in fitting if rate is not None and p.rows / p.ns * 1e9 >= rate]
        return {
            "memory_rows": self.largest_rows,
            "latency_rows": max(quick, default=None),
            "saturation_rows": knee(fitting),
            "compute_bound_tokens": self.ridge_tokens,
            "rate_per_s": rate,
            "keeps_up_rows": min(keeping, default=None),
        }


def explain(
    model: CostModel,
    roofline: Roofline,
    prompts: Sequence[int],
    outputs: Sequence[int],
    largest_rows: int | None = None,
    rate_per_s: float | None = None,
) -> Explanation:
    """Explain one batch.

    Args:
        model: prices the passes.
        roofline: of the same model and device; names the operations.
        prompts: prompt tokens of each request.
        outputs: output tokens of each.
        largest_rows: rows that memory holds at the longest of these lengths; None: any.
        rate_per_s: requests that come a second, if that is known.

    Raises:
        InputError: the batch is too large to be counted, or the model gives no cost.
    """
    rows, prompt, output = len(prompts), max(prompts), max(outputs)
    if prompt + output > MAX_CONTEXT_TOKENS or rows * (prompt + output) ** 2 >= 1 << 62:
        raise InputError(
            f"a batch of {rows:,} rows of {prompt:,} + {output:,} tokens is too large to be priced"
        )
    steps = batch_steps(rows, prompt, output)
    before_ns, after_ns = batch_overhead_ns(model)
    overhead_ns = before_ns + after_ns
    prefill = _phase(model, roofline, steps.take(slice(0, 1)))
    decode = _phase(model, roofline, steps.take(slice(1, None))) if output > 1 else None
    together = Alone(output, prefill.ns, decode.ns if decode else 0, overhead_ns)
    return Explanation(
        prompts=list(prompts),
        outputs=list(outputs),
        prefill=prefill,
        decode=decode,
        ledger_ns=_ledger_ns(model, prompts, outputs, together),
        prefill_slots=Slots(rows * prompt, sum(prompts)),
        decode_slots=Slots(rows * output, sum(outputs)),
        alone=_alone(model, prompts, outputs, overhead_ns),
        together=together,
        start_s=roofline.start_s,
        memory=footprint(roofline.shape, roofline.hardware, roofline.dtype, rows, prompt, output),
        curve=curve(model, roofline, prompt, output, largest_rows, rows),
        largest_rows=largest_rows,
        ridge_tokens=roofline.ridge_tokens,
        rate_per_s=rate_per_s,
    )


def _phase(model: CostModel, roofline: Roofline, steps: Step) -> Phase:
    each = totals(roofline, steps)
    roofline_ns = int(nanoseconds(roofline, steps).sum())
    return Phase(
        passes=len(steps),
        ns=int(nanoseconds(model, steps).sum()),
        roofline_ns=roofline_ns,
        ops=each,
        ops_ns=apportion(roofline_ns, [op.seconds for op in each]),
    )


def _alone(model: CostModel, prompts: Sequence[int], outputs: Sequence[int], overhead_ns: int) -> Alone:
    prefill_ns = decode_ns = 0
    for (prompt, output), times in Counter(zip(prompts, outputs, strict=True)).items():
        cost = nanoseconds(model, batch_steps(1, prompt, output))
        prefill_ns += times * int(cost[0])
        decode_ns += times * int(cost[1:].sum())
    return Alone(sum(outputs), prefill_ns, decode_ns, len(prompts) * overhead_ns)


def _ledger_ns(
    model: CostModel, prompts: Sequence[int], outputs: Sequence[int], together: Alone
) -> dict[str, int]:
    """The lines of one batch; equal lengths waste nothing, and need no peeling."""
    if len({*zip(prompts, outputs, strict=True)}) == 1:
        parts = (together.prefill_ns, 0, together.decode_ns, 0, 0, together.overhead_ns)
        return dict(zip(LEDGER, parts, strict=True))
    # Only unequal lengths need the simulator, which takes longer to load than all else takes to run.
    from sim.batching import Batching
    from sim.ledger import ledger
    from sim.run import prices_of, simulate

    rows = len(prompts)
    trace = Trace(
        "batch",
        np.zeros(rows, np.int64),
        np.array(prompts, np.int64),
        np.array(outputs, np.int64),
        np.arange(rows, dtype=np.int64),
        timed=False,
    )
    record = simulate(trace, Batching(rows, at_once=True), model)
    lines = ledger(record, prices_of(record, model)).lines_ns
    return {name: lines[name] for name in LEDGER}


def _seconds(ns: int) -> float:
    return round(ns / 1e9, 9)
