"""One simulation against the measured repeats of the same requests: every number simulated, measured, and its error."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.cost import CostModel
from sim.errors import Pair, Times
from sim.ledger import LINES
from sim.metrics import requests
from sim.passes import driving_steps
from sim.pricing import Prices
from sim.record import COMPLETED, RunRecord
from sim.run import Results, outside_domain, prices_of, results
from sim.split import QUANTITIES, Split, batch_parts_ns, mean_split, split
from traces.trace import Floats, Ints


@dataclass(frozen=True)
class Batch:
    """One batch as it was measured, once or several times: the same requests together."""

    rows: int
    prompt_tokens: int
    output_tokens: int
    measured_s: Floats
    """Duration in each repeat that formed it."""
    simulated_s: float
    """The modelled duration of this very batch."""

    @property
    def error(self) -> float:
        """Against the median of the repeats."""
        middle = float(np.median(self.measured_s))
        return (self.simulated_s - middle) / middle

    @property
    def shape(self) -> str:
        """Rows x (longest prompt + longest output)."""
        return f"{self.rows} x ({self.prompt_tokens} + {self.output_tokens})"


@dataclass(frozen=True)
class BatchScore:
    """Times of whole batches: errors beside the noise of their repeats."""

    times: Times
    worst: Batch | None

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> "BatchScore":
        """Score some batches."""
        simulated = np.array([batch.simulated_s for batch in batches], np.float64)
        worst = max(batches, key=lambda batch: abs(batch.error)) if batches else None
        return cls(Times(simulated, [batch.measured_s for batch in batches]), worst)

    def to_json(self) -> dict[str, Any]:
        """As :class:`~sim.errors.Times`, with the shape of the worst."""
        return {**self.times.to_json(), "worst_shape": None if self.worst is None else self.worst.shape}


def measured_batches(records: Sequence[RunRecord], model: CostModel) -> list[Batch]:
    """All batches of some measured runs of the same trace, repeats of the same requests together, priced by a model.
    Batches that failed are left out."""
    durations: dict[tuple[int, ...], list[float]] = {}
    priced: dict[tuple[int, ...], tuple[int, int, int, float]] = {}
    for record in records:
        first, rest = batch_parts_ns(record, prices_of(record, model))
        took = (record.end_ns - record.batches.start_ns) / 1e9
        bounds = np.append(record.batches.first_row, len(record.rows.request)).tolist()
        shapes = (record.batch_rows, record.padded_prompt_tokens, record.longest_output_tokens)
        for i in range(len(took)):
            if record.measured is not None and i in record.measured.failed:
                continue
            members = tuple(record.rows.request[bounds[i] : bounds[i + 1]].tolist())
            durations.setdefault(members, []).append(float(took[i]))
            rows, prompt, output = (int(column[i]) for column in shapes)
            priced[members] = (rows, prompt, output, int(first[i] + rest[i]) / 1e9)
    return [Batch(*priced[m][:3], np.array(durations[m]), priced[m][3]) for m in durations]


@dataclass(frozen=True)
class StepScore:
    """Passes of one phase at one number of rows: errors beside the noise of their repeats."""

    phase: str
    rows: int
    times: Times
    """One entry for each distinct context."""

    def to_json(self) -> dict[str, Any]:
        """As :class:`~sim.errors.Times`, with phase and rows."""
        return {"phase": self.phase, "rows": self.rows, **self.times.to_json()}


def step_scores(records: Sequence[RunRecord], model: CostModel) -> list[StepScore]:
    """Passes of measured runs against a model, by phase and rows. A pass that was repeated counts once, at the median
    of its repeats."""
    passes: dict[tuple[str, int, int], list[float]] = {}
    price: dict[tuple[str, int, int], float] = {}
    for record in records:
        if record.measured is None:
            continue
        prices = prices_of(record, model)
        steps = driving_steps(record) / 1e9
        for i, first in enumerate(record.measured.first_step.tolist()):
            if i in record.measured.failed:
                continue
            rows, prompt = int(record.batch_rows[i]), int(record.padded_prompt_tokens[i])
            output = int(record.longest_output_tokens[i])
            computed = rows + int(record.batches.dummy_rows[i])
            passes.setdefault(("prefill", rows, prompt), []).append(float(steps[first]))
            price["prefill", rows, prompt] = _prefill_s(prices, computed, prompt)
            each = np.diff(prices.prefix(computed)[prompt : prompt + output]) / 1e9
            for k in range(1, output):
                key = ("decode", rows, prompt + k)
                passes.setdefault(key, []).append(float(steps[first + k]))
                price[key] = float(each[k - 1])
    found = []
    for phase, rows in sorted({key[:2] for key in passes}, key=lambda key: (key[0] != "prefill", key[1])):
        keys = [key for key in passes if key[:2] == (phase, rows)]
        simulated = np.array([price[key] for key in keys])
        found.append(StepScore(phase, rows, Times(simulated, [np.array(passes[key]) for key in keys])))
    return found


def _prefill_s(prices: Prices, rows: int, prompt: int) -> float:
    return int(prices.prefills_ns(np.array([rows]), np.array([prompt]))[0]) / 1e9


def formed_identically(records: Iterable[RunRecord]) -> bool:
    """Whether all runs put the same requests together in the same order of batches."""

    def batches(record: RunRecord) -> tuple[Ints, Ints]:
        return record.batches.first_row, record.rows.request

    first, *others = [batches(record) for record in records]
    return all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@dataclass(frozen=True)
class Versus:
    """A simulated run beside the measured repeats of the same trace."""

    simulated: Results
    measured: Sequence[Results]
    identical: bool
    """All of them formed the same batches."""
    batches: BatchScore
    latency: dict[str, dict[str, Pair]]
    throughput: dict[str, Pair]
    ledger: dict[str, Pair]
    """Measured: the repeat with the middle makespan, so that its lines add up."""
    waste: dict[str, Pair]
    requests: dict[str, Pair]
    """How many came in and how each ended."""
    split: dict[str, Split]
    """Empty when no request completed on both sides."""
    notes: Sequence[str]
    """What a reader must know before using the numbers."""


def versus(
    simulated: RunRecord, measured: Sequence[RunRecord], model: CostModel, split_by: CostModel | None = None
) -> Versus:
    """Lay a simulation beside measured repeats.

    Args:
        simulated: the free simulation.
        measured: repeats of the same requests.
        model: priced the simulation, and prices the measured batches.
        split_by: splits the ledger's batches on both sides into shares; a monotone model, by default ``model``.
    """

    def results_of(record: RunRecord) -> Results:
        return results(record, prices_of(record, model), split_by=prices_of(record, split_by or model))

    sim, real = results_of(simulated), [results_of(record) for record in measured]
    middle = sorted(real, key=lambda one: one.record.makespan_ns)[(len(real) - 1) // 2]

    def pair(pick: Any) -> Pair:
        return Pair.of(pick(sim), [pick(one) for one in real])

    def line(name: str) -> Pair:
        seconds = [one.ledger.lines_ns[name] / 1e9 for one in real]
        return Pair.of(sim.ledger.lines_ns[name] / 1e9, seconds, middle.ledger.lines_ns[name] / 1e9)

    return Versus(
        simulated=sim,
        measured=real,
        identical=formed_identically([simulated, *measured]),
        batches=BatchScore.of(measured_batches(measured, model)),
        latency={
            name: {stat: pair(lambda r, n=name, s=stat: r.latency[n][s]) for stat in sim.latency[name]}
            for name in sim.latency
        },
        throughput={
            name: pair(lambda r, n=name: r.throughput[n])
            for name in sim.throughput
            if name != "offered_requests_per_s"
        },
        ledger={name: line(name) for name in LINES},
        waste={
            "prefill_slots": pair(lambda r: r.waste.prefill.slots),
            "prefill_padding": pair(lambda r: r.waste.prefill.wasted),
            "decode_slots": pair(lambda r: r.waste.decode.slots),
            "decode_idle": pair(lambda r: r.waste.decode.wasted),
            "prefill_fraction": pair(lambda r: r.waste.prefill.fraction),
            "decode_fraction": pair(lambda r: r.waste.decode.fraction),
        },
        requests={name: pair(lambda r, n=name: requests(r.record)[n]) for name in requests(simulated)},
        split=_split(simulated, measured, model),
        notes=_notes(simulated, measured, model),
    )


def _split(simulated: RunRecord, measured: Sequence[RunRecord], model: CostModel) -> dict[str, Split]:
    each = [split(record, simulated, prices_of(record, model)) for record in measured]
    each = [one for one in each if one]
    return {name: mean_split([one[name] for one in each]) for name in QUANTITIES} if each else {}


def _notes(simulated: RunRecord, measured: Sequence[RunRecord], model: CostModel) -> list[str]:
    found = []
    outside = outside_domain(simulated, model) if len(simulated.batch_rows) else None
    if outside is not None:
        found.append(f"outside what {model.name} was calibrated for: {outside}")
    answered = simulated.requests.status == COMPLETED
    for i, record in enumerate(measured, start=1):
        if record.measured is not None:
            found += [
                f"measured run {i}: batch {batch} gave no answer, {why}"
                for batch, why in record.measured.failed.items()
            ]
        apart = int(np.count_nonzero((record.requests.status == COMPLETED) != answered))
        if apart:
            found.append(
                f"measured run {i}: {apart:,} of {len(answered):,} requests completed on one side only; "
                "they are not in the error split, and each side's latencies are of what it completed"
            )
    if simulated.setup.get("trace", {}).get("clients") is not None:
        found.append(
            "a closed loop: the error split keeps the measured arrivals until its last term, so that queueing holds "
            "waiting that no client would have seen, and formation takes it back"
        )
    for name, records in (("simulated", [simulated]), ("measured", measured)):
        if any(record.setup.get("interrupted") for record in records):
            found.append(f"the {name} run was interrupted: requests not served yet count as unfinished")
    return found
