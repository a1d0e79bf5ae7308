"""Where the time of a pass goes, operation by operation, and how near each comes to the speed of light.

The roofline prices a pass as a sum of terms; here the very same terms are kept apart. Light is what the datasheet
allows: the longer of FLOP by the peak rate and bytes by the peak bandwidth. A kernel that a roofline calls bound by
memory reaches the measured share of it, and one that is over before it has started reaches next to nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.roofline import COLUMNS, Roofline, Term
from sim.step import Step
from traces.trace import Floats

BOUNDS = ("compute", "memory", "launch")
"""What an operation can be bound by: arithmetic, traffic, or the start of its kernels."""
STARTS = "kernel starts"
"""The op that stands for what the kernels' starts take on the device beyond the work done meanwhile."""
HOST = "host, not hidden"
"""The op that stands for the host's time that no work of the device hides."""


@dataclass(frozen=True, eq=False)
class Op:
    """One operation of some passes, summed over layers; columns of one length."""

    name: str
    seconds: Floats
    bound: NDArray[np.int8]
    """Index into :data:`BOUNDS`, for each pass."""
    flop: Floats
    byte: Floats
    """Bytes read and written, as the roofline counts them: weights, keys and values, elementwise values, logits."""


def ops(model: Roofline, steps: Step) -> list[Op]:
    """Every operation of some passes, in the order in which the roofline adds them, the host last.

    Their seconds add up to ``model.seconds(steps)``. Projections are shown one by one, in proportion to their weights:
    they are bound alike, so the sum stays what it is.
    """
    columns = [np.asarray(getattr(steps, name), np.float64) for name in COLUMNS]
    found = []
    device: Floats = np.zeros(len(steps))
    for term in model.terms(*columns):
        device = device + term.seconds
        whole = _op(model, term, device)
        found += _projections(model, whole) if term.op == "projections" else [whole]
        if term.launch_s:
            found.append(_starts(term, whole))
    host = np.maximum(model.host_s - device, 0.0) if model.hardware.asynchronous else model.host_s
    nothing = np.zeros(len(steps))
    launch = np.full(len(steps), BOUNDS.index("launch"), np.int8)
    return [*found, Op(HOST, nothing + host, launch, nothing, nothing)]


def _op(model: Roofline, term: Term, like: Floats) -> Op:
    device, reached = model.hardware, model.hardware.kernels
    gemm = term.kind == "gemm"
    flop_per_s = device.flop_per_s[model.dtype] * (reached.gemm_flop if gemm else reached.attention_flop)
    byte_per_s = device.memory_bytes_per_s * (reached.gemm_bytes if gemm else reached.attention_bytes)
    zero = np.zeros_like(like)
    compute_s, memory_s = zero + term.compute_s, zero + term.memory_s
    bound = np.where(memory_s > compute_s, BOUNDS.index("memory"), BOUNDS.index("compute")).astype(np.int8)
    return Op(term.op, np.maximum(compute_s, memory_s), bound, compute_s * flop_per_s, memory_s * byte_per_s)


def _starts(term: Term, work: Op) -> Op:
    """What starting the kernels takes beyond the work that the term does meanwhile."""
    nothing = np.zeros_like(work.seconds)
    launch = np.full_like(work.bound, BOUNDS.index("launch"))
    return Op(STARTS, np.maximum(term.launch_s - work.seconds, 0.0), launch, nothing, nothing)


def _projections(model: Roofline, whole: Op) -> list[Op]:
    query, kv = model.shape.query_heads, model.shape.kv_heads
    parts = {"q projection": query, "k projection": kv, "v projection": kv, "output projection": query}
    shares = {name: heads / (2 * (query + kv)) for name, heads in parts.items()}
    return [
        Op(name, share * whole.seconds, whole.bound, share * whole.flop, share * whole.byte)
        for name, share in shares.items()
    ]


@dataclass(frozen=True)
class OpTotal:
    """One operation over several passes, and what of the device it used."""

    name: str
    seconds: float
    share: float
    """Of the seconds of all operations."""
    bound: str
    """By what it is bound for most of its seconds."""
    flop: float
    byte: float
    flop_use: float
    """FLOP by seconds and the datasheet's peak: MFU."""
    byte_use: float
    """Bytes by seconds and the datasheet's bandwidth."""

    @property
    def light(self) -> float:
        """Share of the speed of light: the least seconds that the datasheet allows, by the seconds taken."""
        return max(self.flop_use, self.byte_use)


def totals(model: Roofline, steps: Step) -> list[OpTotal]:
    """Operations summed over all passes; those that take no time at all are left out."""
    each = [op for op in ops(model, steps) if op.seconds.any()]
    whole = sum(float(op.seconds.sum()) for op in each)
    return [_total(model, op, whole) for op in each]


def together(model: Roofline, name: str, parts: list[OpTotal]) -> OpTotal:
    """Several operations as one; bound by what binds most of their seconds."""
    by_bound = {b: sum(part.seconds for part in parts if part.bound == b) for b in BOUNDS}
    return _used(
        model,
        name,
        sum(part.seconds for part in parts),
        sum(part.share for part in parts),
        max(by_bound, key=lambda bound: by_bound[bound]),
        sum(part.flop for part in parts),
        sum(part.byte for part in parts),
    )


def _total(model: Roofline, op: Op, whole: float) -> OpTotal:
    seconds = float(op.seconds.sum())
    most = int(np.argmax(np.bincount(op.bound, weights=op.seconds, minlength=len(BOUNDS))))
    return _used(
        model, op.name, seconds, seconds / whole, BOUNDS[most], float(op.flop.sum()), float(op.byte.sum())
    )


def _used(
    model: Roofline, name: str, seconds: float, share: float, bound: str, flop: float, byte: float
) -> OpTotal:
    peak, bandwidth = model.hardware.flop_per_s[model.dtype], model.hardware.memory_bytes_per_s
    return OpTotal(name, seconds, share, bound, flop, byte, flop / peak / seconds, byte / bandwidth / seconds)


def apportion(total_ns: int, seconds: list[float]) -> list[int]:
    """Whole nanoseconds in proportion to ``seconds`` that add up to ``total_ns`` exactly (largest remainders)."""
    whole = sum(seconds)
    exact = [total_ns * part / whole for part in seconds]
    parts = [int(part) for part in exact]
    order = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    for i in order[: total_ns - sum(parts)]:
        parts[i] += 1
    return parts
