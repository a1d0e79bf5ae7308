"""What a trace is like: facts as plain data for JSON, and the same as tables."""

from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from traces.slots import Slots, consecutive, padded_slots
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
    """The facts as tables: what there is, lengths, waste by batch size, histograms."""
    return [_overview(found), _lengths(found), *_histograms(trace), _waste(found["waste"])]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=Text(title), title_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _number(value: float | None, digits: int = 6) -> str:
    if value is None:
        return "n/a"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"


def _overview(found: dict[str, Any]) -> Table:
    table = _table("Trace", "", found["trace"])
    table.columns[1].header = Text(found["trace"])
    table.columns[1].no_wrap = False
    table.add_row("rows", _number(found["rows"]))
    for reason, count in found["dropped"].items():
        table.add_row(Text(f"dropped: {reason}"), _number(count))
    if found["moved_rows"]:
        table.add_row("rows sorted into place", _number(found["moved_rows"]))
    for step in found["history"]:
        said = ", ".join(f"{key}={value}" for key, value in step.items() if key != "name")
        table.add_row(Text(f"transform {step['name']}"), Text(said))
    times = found["arrivals"]
    if found["clients"] is not None:
        table.add_row("arrival times", f"a closed loop of {_number(found['clients'])} clients")
    elif times is None:
        table.add_row("arrival times", "none: offline work")
    else:
        table.add_row("span (s)", f"{times['span_s']:.9f}".rstrip("0").rstrip("."))
        table.add_row("requests per second", _number(times["rate_per_s"]))
        table.add_row("CV of the gaps", _number(times["gap_cv"], 4))
        table.add_row(
            "smallest, largest gap (s)", f"{_number(times['min_gap_s'])}, {_number(times['max_gap_s'])}"
        )
        table.add_row("arrivals at the same time", _number(times["ties"]))
    table.add_row("correlation of prompt and output", _number(found["prompt_output_correlation"], 3))
    if "context" in found:
        within, context = found["context"]["rows_within"], found["context"]["context_tokens"]
        share = within / found["rows"]
        table.add_row(f"prompt + output within {context:,} tokens", f"{within:,} ({share:.1%})")
    return table


def _lengths(found: dict[str, Any]) -> Table:
    table = _table("Lengths (tokens, linear quantiles)", "", "min", *QUANTILES, "max", "mean")
    for name in ("prompt", "output", "total"):
        row = found[f"{name}_tokens"]
        table.add_row(name, *(_number(row[key]) for key in ("min", *QUANTILES, "max")), f"{row['mean']:,.1f}")
    return table


def _waste(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title="Slots wasted when requests always wait, as they come or sorted by prompt in windows",
        title_justify="left",
    )
    table.add_column("batch size", justify="right")
    for order in ("as they come", f"sorted ({WINDOW_BATCHES} batches)"):
        table.add_column(f"prefill padding\n{order}", justify="right")
        table.add_column(f"idle decode\n{order}", justify="right")
    half = len(rows) // 2
    for plain, by_length in zip(rows[:half], rows[half:], strict=True):
        shares = [row[key] for row in (plain, by_length) for key in ("prefill_waste", "decode_waste")]
        table.add_row(str(plain["batch_size"]), *(f"{share:.1%}" for share in shares))
    return table


def _histograms(trace: Trace) -> list[Table]:
    """Requests by power of two of their length, as bars of ``#``: any terminal can show those."""
    made = []
    for name, tokens in (("prompt", trace.prompt_tokens), ("output", trace.output_tokens)):
        table = Table(title=f"Requests by {name} length", title_justify="left")
        table.add_column("tokens", justify="right", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
        table.add_column("", no_wrap=True)
        counts = np.bincount(np.frexp(tokens)[1] - 1)
        low = int(np.flatnonzero(counts)[0])
        for power in range(low, len(counts)):
            bar = "#" * round(BAR_COLUMNS * int(counts[power]) / int(counts.max()))
            table.add_row(f"{2**power:,} - {2 ** (power + 1) - 1:,}", f"{counts[power]:,}", bar)
        made.append(table)
    return made
