"""Tables of one run: results first, conditions last."""

from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from sim.ledger import LINES
from sim.metrics import batches, requests
from sim.record import REJECTED, RunRecord
from sim.run import Results
from sim.stats import METHOD
from traces.tables import add, bar, count, gigabytes, percent, seconds, show, table

LATENCY_NAMES = {
    "queue": "queue (start - arrival)",
    "forming": "  forming, server free",
    "backlog": "  backlog, server busy",
    "ttft": "TTFT (end of prefill)",
    "tpot": "TPOT, per request",
    "itl": "ITL, all gaps pooled",
    "e2e": "E2E, own last token",
    "e2e_batch": "E2E, batch returns",
}


def print_run(results: Results, console: Console) -> None:
    """Waste, ledger, latency, throughput, batches, set-up."""
    for part in (_waste, _ledger, _latency, _throughput, _batches):
        show(console, part(results))
    for line in notes(results):
        console.print(Text(line, style="yellow"))
    console.print(Text(setup_line(results.record.setup), style="dim"))


def _waste(results: Results) -> Any:
    waste, kv = results.waste, results.waste.kv
    t = table("Waste in slots", "phase", "", "slots", "useful", "wasted", "share", left=2)
    for name, slots in (("prefill padding", waste.prefill), ("decode idle", waste.decode)):
        cells = (count(slots.slots), count(slots.useful), count(slots.wasted))
        add(t, name, bar(slots.fraction, 12), *cells, percent(slots.fraction))
    if kv.reserved_tokens:
        unused = 1 - kv.used_tokens / kv.reserved_tokens
        cells = (count(kv.reserved_tokens), count(kv.used_tokens), count(kv.reserved_tokens - kv.used_tokens))
        add(t, "KV reserved", bar(unused, 12), *cells, percent(unused))
    return t


def _ledger(results: Results) -> Any:
    ledger = results.ledger
    t = table("Where the time went", "line", "", "seconds", "share", "reverse order", left=2)
    total = max(ledger.total_ns, 1)
    for name in LINES:
        value = ledger.lines_ns[name]
        reverse = ledger.reverse_ns.get(name)
        cells = seconds(value / 1e9), percent(value / total)
        add(
            t,
            name.replace("_", " "),
            bar(value / total),
            *cells,
            "" if reverse is None else seconds(reverse / 1e9),
        )
    add(t, "makespan x servers", "", seconds(ledger.total_ns / 1e9), percent(1.0), "", style="bold")
    return t


def _latency(results: Results) -> Any:
    t = table("Latency", "", "mean", "p50", "p90", "p95", "p99")
    for name, label in LATENCY_NAMES.items():
        add(t, label, *(seconds(value) for value in results.latency[name].values()))
    return t


def _throughput(results: Results) -> Any:
    rates, limit = results.throughput, results.capacity
    t = table("Throughput", "", "")
    add(t, "useful output tokens/s, over the makespan", count(rates["output_tokens_per_s"]))
    add(t, "useful output tokens/s, while requests waited", count(rates["output_tokens_per_s_while_waiting"]))
    add(t, "computed output slots/s, idle rows included", count(rates["computed_output_slots_per_s"]))
    add(t, "completed requests/s", count(rates["completed_requests_per_s"]))
    add(t, "offered requests/s", count(rates["offered_requests_per_s"]))
    add(t, "capacity, requests per busy second", count(None if limit is None else limit.requests_per_s))
    add(t, "server busy", percent(rates["utilisation"]))
    return t


def _batches(results: Results) -> Any:
    counts, ended = batches(results.record), requests(results.record)
    t = table("Requests and batches", "", "", left=2)
    outcome = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in ended.items() if n and name != "in")
    add(t, f"requests: {ended['in']:,} in", outcome or "-")
    closed = ", ".join(f"{n:,} {name}" for name, n in counts["closed_by"].items() if n)
    add(t, f"batches: {counts['count']:,}, closed by", closed or "-")
    sizes = sorted(counts["size_histogram"].items(), key=lambda item: -item[1])
    shown = ", ".join(f"{n:,} of {size}" for size, n in sizes[:5])
    add(t, "most frequent sizes", shown + (", ..." if len(sizes) > 5 else "") or "-")
    if results.waste.dummy_rows:
        add(t, "dummy rows, added to reach an allowed size", count(results.waste.dummy_rows))
    if results.kv_bytes_per_token is not None:
        largest = results.waste.kv.largest_batch_tokens * results.kv_bytes_per_token
        add(t, "largest batch's KV cache, padded", gigabytes(largest))
    return t


def notes(results: Results) -> list[str]:
    """What a reader must know before using the numbers."""
    found = []
    if results.capacity is not None and results.capacity.saturated:
        found.append(
            "saturated: requests come faster than the server completes them, so waiting times and their "
            "percentiles depend on the length of the run"
        )
    clients = results.record.setup.get("trace", {}).get("clients")
    most = results.record.setup.get("policy", {}).get("max_batch")
    if clients is not None and most is not None and clients < most:
        found.append(
            f"concurrency below the largest batch: {clients:,} clients never fill {most:,} rows, so every batch "
            "waits out the timer"
        )
    if results.ledger.negative:
        found.append(
            f"negative ledger lines ({', '.join(results.ledger.negative)}): the cost model is not monotone here"
        )
    if results.record.setup.get("interrupted"):
        found.append("interrupted: requests not served yet count as unfinished")
    found += rejected(results.record)
    dropped = results.record.setup.get("trace", {}).get("dropped", {})
    found += [f"{n:,} rows of the trace dropped: {why}" for why, n in dropped.items()]
    moved = results.record.setup.get("trace", {}).get("moved_rows", 0)
    return found + ([f"{moved:,} rows of the trace were out of order and sorted by arrival"] if moved else [])


def rejected(record: RunRecord) -> list[str]:
    """Why requests were turned away at submission, with the numbers of the first; nothing where none was."""
    turned_away = np.flatnonzero(record.requests.status == REJECTED)
    if not len(turned_away):
        return []
    prompt, output, row = (
        int(column[turned_away[0]])
        for column in (
            record.requests.prompt_tokens,
            record.requests.output_tokens,
            record.requests.source_row,
        )
    )
    return [
        f"{len(turned_away):,} of {len(record.requests.status):,} requests rejected at submission, since alone they "
        f"never fit: the first, row {row}, needs {prompt:,} + {output:,} = {prompt + output:,} tokens of KV cache, "
        f"and there are {count(record.setup.get('max_kv_tokens'))}"
    ]


def setup_line(setup: Any) -> str:
    """Conditions of a run in one line."""
    policy, cost = setup.get("policy", {}), setup.get("cost", {})
    wait = policy.get("max_wait_s")
    about = f"{setup.get('model', '')} {setup.get('gpu', '')} {setup.get('dtype', '')}"
    # A roofline is of the model and device of the run; any other model is of what it was made from.
    priced_by = (
        f"roofline {about}" if cost.get("kind") == "roofline" else setup.get("cost_model", cost.get("kind"))
    )
    return (
        f"trace {setup.get('trace', {}).get('name')}; up to {policy.get('max_batch')} rows, "
        f"wait {'until full' if wait is None else f'{wait:g} s'}; cost {priced_by}; percentiles {METHOD}"
    )
