"""What a trace is like: facts as plain data for JSON, and the same as tables."""

from typing import Any

import numpy as np
from rich.table import Table

from traces.slots import Slots, consecutive, padded_slots
from traces.tables import add, percent, table
from traces.trace import Ints, Trace

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
WINDOW_BATCHES = 16
"""Batches in a window that is sorted by prompt."""
WINDOW_POLICY = f"window{WINDOW_BATCHES}_prompt_sorted"
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
BAR_COLUMNS = 40


def facts(trace: Trace, context_tokens: int | None = None) -> dict[str, Any]:
    """Everything that ``describe`` says, with null for what does not exist. Times in seconds, quantiles linear."""
    total = trace.prompt_tokens + trace.output_tokens
    found = {
        "trace": trace.name,
        "fingerprint": trace.fingerprint,
        "rows": len(trace),
        "rows_read": trace.rows_read,
        "dropped": dict(trace.dropped),
        "moved_rows": trace.moved_rows,
        "timed": trace.timed,
        "clients": None if trace.closed_loop is None else trace.closed_loop.clients,
        "history": [dict(step) for step in trace.history],
        "arrivals": arrivals(trace) if trace.timed else None,
        "prompt_tokens": lengths(trace.prompt_tokens),
        "output_tokens": lengths(trace.output_tokens),
        "total_tokens": lengths(total),
        "prompt_output_correlation": correlation(trace),
        "waste": waste(trace),
    }
    if context_tokens is not None:
        found["context"] = {
            "context_tokens": context_tokens,
            "rows_within": int((total <= context_tokens).sum()),
        }
    return found


def lengths(tokens: Ints) -> dict[str, float]:
    """Smallest, quantiles by linear interpolation, largest and mean of a column of token counts."""
    quantiles = np.quantile(tokens, list(QUANTILES.values()))
    return {
        "min": int(tokens.min()),
        **{name: float(value) for name, value in zip(QUANTILES, quantiles, strict=True)},
        "max": int(tokens.max()),
        "mean": int(tokens.sum()) / len(tokens),
    }


def arrivals(trace: Trace) -> dict[str, Any]:
    """Span, rate, and the gaps between arrivals: mean, coefficient of variation, extremes, ties."""
    span_s = round(int(trace.arrival_ns[-1]) / 1e9, 9)
    if len(trace) == 1:
        return {
            "span_s": span_s,
            "rate_per_s": None,
            "gap_cv": None,
            "min_gap_s": None,
            "max_gap_s": None,
            "ties": 0,
        }
    gaps = np.diff(trace.arrival_ns)
    mean = float(gaps.mean())
    return {
        "span_s": span_s,
        "rate_per_s": (len(trace) - 1) / span_s if span_s else None,
        "gap_cv": float(gaps.std()) / mean if mean else None,
        "min_gap_s": int(gaps.min()) / 1e9,
        "max_gap_s": int(gaps.max()) / 1e9,
        "ties": int((gaps == 0).sum()),
    }


def correlation(trace: Trace) -> float | None:
    """Pearson's correlation of prompt and output lengths; None where one of them never changes."""
    if np.ptp(trace.prompt_tokens) == 0 or np.ptp(trace.output_tokens) == 0:
        return None
    return float(np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1])


def waste(trace: Trace) -> list[dict[str, Any]]:
    """Slots wasted when the server never waits for requests: batches full but for the last, cut in order of
    arrival, or after sorting each window of 16 batches by prompt (stably)."""
    rows = []
    for policy in ("arrival", WINDOW_POLICY):
        for size in BATCH_SIZES:
            order = (
                by_prompt(trace.prompt_tokens, WINDOW_BATCHES * size) if policy != "arrival" else slice(None)
            )
            first = consecutive(len(trace), size)
            prefill = padded_slots(trace.prompt_tokens[order], first)
            decode = padded_slots(trace.output_tokens[order], first)
            rows.append(_waste_row(trace.name, policy, size, len(first), prefill, decode))
    return rows


def by_prompt(prompt_tokens: Ints, window: int) -> Ints:
    """Order that sorts each run of ``window`` requests by prompt, shortest first, ties as they came."""
    return np.lexsort((prompt_tokens, np.arange(len(prompt_tokens)) // window))


def _waste_row(
    name: str, policy: str, size: int, batches: int, prefill: Slots, decode: Slots
) -> dict[str, Any]:
    return {
        "trace": name,
        "policy": policy,
        "batch_size": size,
        "batches": batches,
        "prefill_slots": prefill.slots,
        "prefill_padding": prefill.wasted,
        "prefill_waste": round(prefill.fraction, 6),
        "decode_slots": decode.slots,
        "decode_idle": decode.wasted,
        "decode_waste": round(decode.fraction, 6),
    }


def tables(trace: Trace, found: dict[str, Any]) -> list[Table]:
    """The facts as tables: what there is, waste by batch size, lengths and their histograms."""
    return [_overview(found), _waste(found["waste"]), _lengths(found), *_histograms(trace)]


def _number(value: float | None, digits: int = 6) -> str:
    if value is None:
        return "n/a"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"


def _overview(found: dict[str, Any]) -> Table:
    t = table("Trace", "", "", left=2)
    add(t, "name", found["trace"])
    add(t, "rows", _number(found["rows"]))
    for reason, count in found["dropped"].items():
        add(t, f"dropped: {reason}", _number(count))
    if found["moved_rows"]:
        add(t, "rows sorted into place", _number(found["moved_rows"]))
    for step in found["history"]:
        said = ", ".join(f"{key}={value}" for key, value in step.items() if key != "name")
        add(t, f"transform {step['name']}", said)
    times = found["arrivals"]
    if found["clients"] is not None:
        add(t, "arrival times", f"a closed loop of {_number(found['clients'])} clients")
    elif times is None:
        add(t, "arrival times", "none: offline work")
    else:
        add(t, "span (s)", f"{times['span_s']:.9f}".rstrip("0").rstrip("."))
        add(t, "requests per second", _number(times["rate_per_s"]))
        add(t, "CV of the gaps", _number(times["gap_cv"], 4))
        add(t, "smallest, largest gap (s)", f"{_number(times['min_gap_s'])}, {_number(times['max_gap_s'])}")
        add(t, "arrivals at the same time", _number(times["ties"]))
    add(t, "correlation of prompt and output", _number(found["prompt_output_correlation"], 3))
    if "context" in found:
        within, context = found["context"]["rows_within"], found["context"]["context_tokens"]
        share = within / found["rows"]
        add(t, f"prompt + output within {context:,} tokens", f"{within:,} ({share:.1%})")
    return t


def _lengths(found: dict[str, Any]) -> Table:
    t = table("Lengths, tokens (linear quantiles)", "", "min", *QUANTILES, "max", "mean")
    for name in ("prompt", "output", "total"):
        row = found[f"{name}_tokens"]
        add(t, name, *(_number(row[key]) for key in ("min", *QUANTILES, "max")), f"{row['mean']:,.1f}")
    return t


def _waste(rows: list[dict[str, Any]]) -> Table:
    order = ("as they come", f"sorted, {WINDOW_BATCHES} batches")
    heads = [f"{phase}\n{how}" for how in order for phase in ("prefill padding", "idle decode")]
    t = table("Slots wasted by full batches, in order of arrival or sorted by prompt", "batch", *heads)
    half = len(rows) // 2
    for plain, by_length in zip(rows[:half], rows[half:], strict=True):
        shares = [row[key] for row in (plain, by_length) for key in ("prefill_waste", "decode_waste")]
        add(t, str(plain["batch_size"]), *map(percent, shares))
    return t


def _histograms(trace: Trace) -> list[Table]:
    """Requests by power of two of their length, as bars of ``#``: any terminal can show those."""
    made = []
    for name, tokens in (("prompt", trace.prompt_tokens), ("output", trace.output_tokens)):
        t = table(f"Requests by {name} length", "tokens", "rows", "", left=0)
        t.columns[-1].justify = "left"
        counts = np.bincount(np.frexp(tokens)[1] - 1)
        low = int(np.flatnonzero(counts)[0])
        for power in range(low, len(counts)):
            bar = "#" * round(BAR_COLUMNS * int(counts[power]) / int(counts.max()))
            add(t, f"{2**power:,} - {2 ** (power + 1) - 1:,}", f"{counts[power]:,}", bar)
        made.append(t)
    return made
