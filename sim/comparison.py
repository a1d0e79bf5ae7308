"""Everything that is laid side by side, as tables and as one JSON document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.table import Table

from sim import costs, versus_report
from sim.errors import Pair, Times
from sim.record import RunRecord
from sim.speedup import CurvePoint, EngineRun, stops_paying
from sim.versus import Batch, BatchScore, StepScore, Versus, step_scores, versus
from traces.errors import InputError
from traces.tables import percent


@dataclass(frozen=True)
class Comparison:
    """Everything compared. What a comparison of two saved records cannot know is None or empty."""

    facts: dict[str, object]
    setup: dict[str, Any]
    run: Versus
    steps: Sequence[StepScore]
    textbook: Versus | None = None
    held_out: BatchScore | None = None
    unprofiled: BatchScore | None = None
    """Batches of row counts that were not profiled."""
    apart_identical: bool = True
    """Whether all of those batches were formed as simulated."""
    models: dict[str, dict[str, Times]] = field(default_factory=dict)
    engines: Sequence[EngineRun] = ()
    curve: Sequence[CurvePoint] = ()

    def tables(self) -> list[Table | str]:
        """Results first, conditions last."""
        parts: list[Table | str] = [self.headline(), *(f"Note: {note}." for note in self.run.notes)]
        if self.textbook is not None:
            parts.append(versus_report.textbook_bars(self.textbook.measured[0].record))
        parts.append(versus_report.waste_table(self.run))
        if self.engines:
            parts.append(versus_report.engines_table(self.engines))
        if self.curve:
            parts += [versus_report.curve_table(self.curve), versus_report.curve_note(self.curve)]
        scored = {
            "this trace": self.run.batches,
            "held out": self.held_out,
            "rows not profiled": self.unprofiled,
        }
        parts.append(versus_report.batches_table(scored))
        if self.steps:
            parts.append(versus_report.steps_table(self.steps))
        if self.models:
            parts.append(versus_report.models_table(self.models))
        parts += [
            versus_report.latency_table(self.run),
            versus_report.throughput_table(self.run),
            versus_report.ledger_table(self.run),
            f"Ledger: batches split by {self.run.simulated.ledger.split_by}.",
        ]
        if self.run.split:
            parts.append(versus_report.split_table(self.run))
        return [*parts, versus_report.facts_table(self.facts)]

    def headline(self) -> str:
        """The result in a sentence."""
        name, scored = (
            ("held-out", self.held_out) if self.held_out is not None else ("whole", self.run.batches)
        )
        score, noise = scored.times.score, scored.times.noise.p95
        beside = (
            "no repeats, so the noise is unknown"
            if noise is None
            else f"repeats differ by {percent(noise)} at p95"
        )
        return (
            f"{score.count} {name} batches: median error {percent(score.median)}, "
            f"p95 {percent(score.p95)} ({beside})."
        )

    def to_json(self) -> dict[str, Any]:
        """One document; errors and noise are fractions."""
        return {
            "setup": self.setup,
            "batches": {
                **self.run.batches.to_json(),
                "formed_identically": self.run.identical,
                "held_out": self._apart_json(self.held_out),
                "unprofiled_rows": self._apart_json(self.unprofiled),
            },
            "steps": [step.to_json() for step in self.steps],
            "latency": {name: _pairs_json(stats) for name, stats in self.run.latency.items()},
            "throughput": _pairs_json(self.run.throughput),
            "ledger_s": _pairs_json(self.run.ledger),
            "waste": _pairs_json(self.run.waste),
            "requests": _pairs_json(self.run.requests),
            "textbook": None if self.textbook is None else _textbook_json(self.textbook),
            "models": {
                name: {part: times.to_json() for part, times in parts.items()}
                for name, parts in self.models.items()
            },
            "error_split_s": {name: split.to_json() for name, split in self.run.split.items()},
            "engines": [run.to_json(self.engines[0]) for run in self.engines],
            "batch_sizes": [point.to_json() for point in self.curve],
            "stops_paying_at_rows": stops_paying(self.curve) if self.curve else None,
            "notes": list(self.run.notes),
        }

    def _apart_json(self, scored: BatchScore | None) -> dict[str, Any] | None:
        return None if scored is None else {**scored.to_json(), "formed_identically": self.apart_identical}


def _pairs_json(pairs: Mapping[str, Pair]) -> dict[str, Any]:
    return {name: pair.to_json() for name, pair in pairs.items()}


def _textbook_json(run: Versus) -> dict[str, Any]:
    return {
        "waste": _pairs_json(run.waste),
        "formed_identically": run.identical,
        "batch": run.batches.to_json(),
    }


def model_scores(batches: Sequence[Batch], steps: Sequence[StepScore]) -> dict[str, Times]:
    """A model on whole batches, and on prefill and decode passes pooled over rows."""
    phases = ("prefill", "decode")
    pooled = {name: Times.pooled([step.times for step in steps if step.phase == name]) for name in phases}
    return {"batches": BatchScore.of(batches).times, **pooled}


def compare_records(simulated: RunRecord, measured: RunRecord) -> Comparison:
    """Two saved records of the same requests; the second may be simulated too.

    Raises:
        InputError: the first one was measured, or they served different requests.
    """
    if simulated.measured is not None or "cost" not in simulated.setup:
        raise InputError("the first record must be a simulated one, the second what was measured")
    if not _same_requests(simulated, measured):
        names = " and ".join(
            f"{_trace_name(r)!r} ({len(r.requests.status):,})" for r in (simulated, measured)
        )
        raise InputError(f"the two records served different requests: {names}")
    cost_model = costs.from_json(simulated.setup["cost"], "cost model of the first record")
    return Comparison(
        facts={
            "trace": f"{_trace_name(simulated)}, {len(simulated.requests.status):,} requests",
            "first record": _ran(simulated),
            "second record": _ran(measured),
            "cost model": cost_model.name,
        },
        setup={"simulated": dict(simulated.setup), "measured": dict(measured.setup)},
        run=versus(simulated, [measured], cost_model),
        steps=step_scores([measured], cost_model),
    )


def _same_requests(one: RunRecord, other: RunRecord) -> bool:
    """What was asked and when, counted from the first arrival; in a closed loop, when depends on the server."""
    columns = [
        (one.requests.prompt_tokens, other.requests.prompt_tokens),
        (one.requests.output_tokens, other.requests.output_tokens),
    ]
    traces = [record.setup.get("trace", {}) for record in (one, other)]
    if all(trace.get("clients") is not None for trace in traces):
        if traces[0].get("fingerprint") != traces[1].get("fingerprint"):
            return False
    else:
        columns.append((np.diff(one.requests.arrival_ns), np.diff(other.requests.arrival_ns)))
    return all(np.array_equal(a, b) for a, b in columns)


def _trace_name(record: RunRecord) -> str:
    return str(record.setup.get("trace", {}).get("name"))


def _ran(record: RunRecord) -> str:
    """The conditions of a run, as far as its set-up tells."""
    setup, policy = record.setup, record.setup.get("policy", {})
    wait = policy.get("max_wait_s")
    software = {**setup.get("versions", {}), **setup.get("software", {})}
    parts = (
        setup.get("kind"),
        setup.get("model"),
        setup.get("hardware") or setup.get("gpu"),
        setup.get("dtype"),
        f"up to {policy.get('max_batch')} rows",
        "wait until full" if wait is None else f"wait {wait:g} s",
        f"clock {setup.get('clock')}",
        *(f"{name} {version}" for name, version in software.items() if version),
    )
    return ", ".join(str(part) for part in parts if part)
