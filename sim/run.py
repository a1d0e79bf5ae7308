"""A simulated run from options to record, and any record to the document that ``--json`` prints."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from sim import costs
from sim.batching import Batching
from sim.cost import CostModel
from sim.executor import Simulated
from sim.ledger import Ledger, ledger
from sim.metrics import batches, latency, requests, throughput
from sim.pricing import Prices
from sim.record import COMPLETED, REJECTED, RunRecord
from sim.server import Progress, serve
from sim.stats import METHOD, Summary
from sim.step import EXACT, Rounding, concat, padded_decode, padded_prefill
from sim.waste import Waste, waste
from traces.trace import Trace


def trace_json(trace: Trace) -> dict[str, Any]:
    """What a record says about the trace it served."""
    return {
        "name": trace.name,
        "fingerprint": trace.fingerprint,
        "requests": len(trace),
        "clients": None if trace.closed_loop is None else trace.closed_loop.clients,
        "rows_read": trace.rows_read,
        "dropped": dict(trace.dropped),
        "moved_rows": trace.moved_rows,
        "history": [dict(step) for step in trace.history],
    }


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of the packages a result depends on."""
    found = {}
    for package in ("numpy", "simpy", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def simulate(
    trace: Trace,
    batching: Batching,
    model: CostModel,
    *,
    max_kv_tokens: int | None = None,
    rounding: Rounding = EXACT,
    setup: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> RunRecord:
    """Serve a trace with a cost model. The record's set-up holds all that is needed to price its steps again."""
    served = batching.apply(trace)
    policy = batching.policy()
    resolved = {
        "kind": "simulated",
        "clock": "virtual",
        "servers": 1,
        "trace": trace_json(served),
        "policy": policy.to_json(),
        "max_kv_tokens": max_kv_tokens,
        "cost": costs.to_json(model),
        "cost_model": model.name,
        "rounding": {"row_counts": list(rounding.row_counts), "context_tokens": rounding.context_tokens},
        "versions": versions(),
        **(setup or {}),
    }
    executor = Simulated(served, model, rounding)
    return serve(served, policy, executor, max_kv_tokens=max_kv_tokens, setup=resolved, progress=progress)


def rounding_of(record: RunRecord) -> Rounding:
    """What the batches of a record were rounded up to."""
    rounding = record.setup.get("rounding", {})
    return Rounding(tuple(rounding.get("row_counts", ())), rounding.get("context_tokens", 1))


def prices_of(record: RunRecord, model: CostModel | None = None) -> Prices:
    """Prices of a record's steps: by the model in its set-up, or by another one."""
    longest = int(record.requests.prompt_tokens.max())
    return Prices(
        model or costs.from_json(record.setup["cost"]),
        longest,
        longest + int(record.requests.output_tokens.max()),
        rounding_of(record),
    )


def outside_domain(record: RunRecord, model: CostModel) -> str | None:
    """Why some batches lie outside what the model was calibrated for; None if all lie inside.

    A batch's prefill, first and last decode step (as rounded) are asked about: its other steps lie between them.
    """
    rows, rounded = record.batch_rows + record.batches.dummy_rows, rounding_of(record).context
    prompt, output = record.padded_prompt_tokens, record.longest_output_tokens
    decodes = output > 1
    steps = concat(
        padded_prefill(rows, prompt),
        padded_decode(rows[decodes], rounded(prompt[decodes] + 1)),
        padded_decode(rows[decodes], rounded((prompt + output - 1)[decodes])),
    )
    return model.outside(steps)


@dataclass(frozen=True)
class Capacity:
    """What the server could do at most, and whether it was asked for more."""

    requests_per_s: float
    """Completions per busy second when the same trace and policy run all at once."""
    saturated: bool
    """The offered rate is above it: waiting times then grow with the length of the run."""


def capacity(
    record: RunRecord, trace: Trace, batching: Batching, model: CostModel, max_kv_tokens: int | None
) -> Capacity | None:
    """Capacity of a policy on a trace that was served as ``record`` says; None where nothing was served.

    A run at once is its own answer. Any other is run once more with everything there from the start, in the order in
    which it was served: another order would make other batches.
    """
    if not batching.at_once:
        waiting = replace(trace, arrival_ns=np.zeros(len(trace), np.int64), closed_loop=None)
        record = simulate(
            waiting,
            Batching(batching.max_batch),
            model,
            max_kv_tokens=max_kv_tokens,
            rounding=rounding_of(record),
        )
    busy_s = int((record.end_ns - record.batches.start_ns).sum()) / 1e9
    if not busy_s:
        return None
    rate = record.count(COMPLETED) / busy_s
    span_s = int(trace.arrival_ns[-1] - trace.arrival_ns[0]) / 1e9
    asked = len(trace) - record.count(REJECTED)  # what is rejected costs the server nothing
    offered_above = span_s > 0 and (asked - 1) / span_s > rate
    return Capacity(rate, offered_above and not batching.at_once)


@dataclass(frozen=True)
class Results:
    """Everything computed from one record, each part once; tables and JSON both read it."""

    record: RunRecord
    waste: Waste
    ledger: Ledger
    latency: dict[str, Summary]
    throughput: dict[str, Any]
    capacity: Capacity | None
    kv_bytes_per_token: int | None

    def to_json(self) -> dict[str, Any]:
        """The document of ``--json``; what does not exist is null."""
        limit = self.capacity
        return {
            "setup": {**self.record.setup, "percentiles": METHOD},
            "requests": requests(self.record),
            "batches": batches(self.record),
            "waste": self.waste.to_json(self.kv_bytes_per_token),
            "ledger_s": self.ledger.seconds(),
            "ledger_detail": self.ledger.detail(),
            "latency_s": self.latency,
            "throughput": {
                **self.throughput,
                "capacity_requests_per_s": None if limit is None else round(limit.requests_per_s, 9),
                "saturated": None if limit is None else limit.saturated,
            },
        }


def results(
    record: RunRecord,
    prices: Prices,
    capacity: Capacity | None = None,
    kv_bytes_per_token: int | None = None,
    split_by: Prices | None = None,
) -> Results:
    """Compute every result of a record.

    Args:
        record: of a simulated or measured run.
        prices: those of the run; they give a simulated run's gaps.
        capacity: what the server could do at most, if it is known.
        kv_bytes_per_token: of the model, if it is known.
        split_by: prices that split the ledger, if not the run's own.
    """
    return Results(
        record=record,
        waste=waste(record),
        ledger=ledger(record, split_by or prices),
        latency=latency(record, prices),
        throughput=throughput(record, prices),
        capacity=capacity,
        kv_bytes_per_token=kv_bytes_per_token,
    )
