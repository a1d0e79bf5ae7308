"""Tables of one explained batch, none wider than 80 columns."""

from typing import Any

from rich.console import Console
from rich.text import Text

from sim.explain import Explanation, Phase
from sim.speedup import PAYS
from traces.tables import add, bar, count, gigabytes, percent, seconds, show, table


def print_explanation(found: Explanation, setup: dict[str, Any], console: Console) -> None:
    """Operations of both phases, ledger, alone against together, memory, the curve and its limits, the set-up."""
    by_other = setup["cost"]["kind"] != "roofline"
    show(console, _phase("Prefill", found.prefill, by_other))
    if found.decode is not None:
        show(console, _phase("Decode", found.decode, by_other))
    for part in (_ledger(found), _alone(found), _memory(found, setup), _curve(found), _limits(found)):
        show(console, part)
    if by_other:
        console.print(Text(f"seconds: {setup['cost_model']}; operations: roofline", style="yellow"))
    line = f"{setup['model']} on {setup['gpu']}, {setup['dtype']}, {setup['host']}; shares are of datasheet peaks"
    console.print(Text(line, style="dim"))


def _phase(name: str, phase: Phase, by_other: bool) -> Any:
    passes = "1 pass" if phase.passes == 1 else f"{phase.passes:,} passes"
    ns = phase.roofline_ns if by_other else phase.ns
    title = f"{name}, {passes}: {seconds(ns / 1e9)}"
    if by_other:
        title += f" by the roofline, {seconds(phase.ns / 1e9)} by the cost model"
    t = table(title, "operation", "bound by", "seconds", "share", "MFU", "bandwidth", "of light", left=2)
    for op, op_ns in zip(phase.ops, phase.ops_ns, strict=True):
        used = percent(op.flop_use), percent(op.byte_use), percent(op.light)
        add(t, op.name, op.bound, seconds(op_ns / 1e9), percent(op.share), *used)
    return t


def _ledger(found: Explanation) -> Any:
    t = table("What padding costs", "line", "", "seconds", "share", "slots", left=2)
    total = max(sum(found.ledger_ns.values()), 1)
    prefill, decode = found.prefill_slots, found.decode_slots
    slots = {
        "useful_prefill": prefill.useful,
        "prefill_padding": prefill.wasted,
        "useful_decode": decode.useful,
        "idle_rows": decode.wasted,
    }
    for name, ns in found.ledger_ns.items():
        share = ns / total
        cells = seconds(ns / 1e9), percent(share), count(slots.get(name))
        add(t, name.replace("_", " "), bar(share), *cells)
    add(t, "batch", "", seconds(total / 1e9), percent(1.0), "", style="bold")
    return t


def _alone(found: Explanation) -> Any:
    alone, together = found.alone, found.together
    t = table(f"One by one, or {found.rows:,} together", "", "one by one", "together", "gain")

    def line(name: str, one: float, other: float) -> None:
        add(t, name, seconds(one), seconds(other), f"{one / other:.2f} x" if other else "-")

    line("prefill", alone.prefill_ns / 1e9, together.prefill_ns / 1e9)
    line("decode", alone.decode_ns / 1e9, together.decode_ns / 1e9)
    line("everything", alone.ns / 1e9, together.ns / 1e9)
    gain = f"{alone.passes / together.passes:.2f} x"
    add(t, "passes through the model", count(alone.passes), count(together.passes), gain)
    line("  starting the kernels of a prefill", found.rows * found.start_s, found.start_s)
    line("  starting those of all passes", alone.passes * found.start_s, together.passes * found.start_s)
    return t


def _memory(found: Explanation, setup: dict[str, Any]) -> Any:
    memory = found.memory
    t = table("Memory of the batch", "", "")
    add(t, "weights", gigabytes(memory.weights_bytes))
    add(t, "KV cache, rows x (prompt + output)", gigabytes(memory.kv_bytes))
    add(t, "  of it written, rows x (prompt + output - 1)", gigabytes(memory.kv_needed_bytes))
    add(t, "activations of the prefill, one layer", gigabytes(memory.activations_bytes))
    add(t, "logits, last positions, float32", gigabytes(memory.logits_bytes))
    add(t, "context, workspaces, allocator", gigabytes(memory.framework_bytes))
    add(t, "together", gigabytes(memory.total_bytes), style="bold")
    kind, size = ("KV cache as given", setup["memory"]["kv_budget_bytes"])
    if size is None:
        kind, size = "device", setup["memory"]["device_bytes"]
    add(t, kind, gigabytes(size))
    return t


def _curve(found: Explanation) -> Any:
    rate = found.rate_per_s
    last = "memory" if rate is None else "filling"
    columns = ("rows", "tokens/s", "gain", "TTFT", "a token", "batch", "MFU", "BW", last)
    t = table("Throughput by batch size", *columns, left=0)
    best = knee_of(found)
    for point in found.curve:
        step_s = point.step_s
        add(
            t,
            count(point.rows),
            _short(point.tokens_per_s),
            f"{_short(point.tokens_per_s / found.curve[0].tokens_per_s)} x",
            seconds(point.prefill_ns / 1e9),
            "-" if step_s is None else seconds(step_s),
            seconds(point.ns / 1e9),
            _use(point.flop_use),
            _use(point.bandwidth_use),
            gigabytes(point.memory_bytes) if rate is None else seconds(point.filling_s(rate)),
            style="bold" if point.rows == best else None if point.fits else "red",
        )
    return t


def _short(value: float) -> str:
    """Three digits, or all before the point: the curve has many columns."""
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def _use(fraction: float) -> str:
    value = 100 * fraction
    return f"{value:.1f} %" if value < 9.95 else f"{value:.0f} %"


def knee_of(found: Explanation) -> int | None:
    """Rows at the knee of the curve."""
    rows: int | None = found.limits()["saturation_rows"]
    return rows


def _limits(found: Explanation) -> Any:
    limits = found.limits()
    t = table("Limits of the batch size", "limit", "what happens there", "rows", left=2)
    add(t, "memory", "more rows of these lengths do not fit", count(limits["memory_rows"]))
    add(t, "latency", "a larger batch takes over twice one request alone", count(limits["latency_rows"]))
    if found.rate_per_s is not None:
        what = f"fewest that keep up with {found.rate_per_s:g} requests/s"
        add(t, "", what, count(limits["keeps_up_rows"]))
    knee_says = f"no larger batch gives {PAYS:.0%} more tokens/s"
    add(t, "saturation", knee_says, count(limits["saturation_rows"]))
    add(
        t, "", "decode turns from reading weights to arithmetic", count(round(limits["compute_bound_tokens"]))
    )
    return t
