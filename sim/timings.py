"""Measured times as fits and scores take them: settings, each one pass or all passes of a batch, and its seconds.

A profile, a measured record and a published table all come down to this. Repeats of a setting are reduced to their
median; how far they lie from it is the noise of the data.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel
from sim.mixed_units import UNITS_APART
from sim.profile import STEP_COLUMNS, Profile
from sim.step import Step, padded_decode, padded_prefill
from traces.errors import InputError
from traces.trace import Floats, Ints

PHASES = ("prefill", "decode", "batch", "mixed")
PREFILL, DECODE, BATCH, MIXED = range(4)
"""What a setting is: one prefill, one decode step, a whole batch (prefill and all its decode steps), or a pass that
holds both."""
NEIGHBOURS = 1.25
"""Lengths within this factor, at the same phase and rows, are the same thing measured twice: no split parts them,
except where lengths follow one another so closely that all would hang together."""


@dataclass(frozen=True, eq=False)
class Timings:
    """Settings in columns; the passes of all settings stand one after the other in ``steps``."""

    source: str
    """Where the times come from, for error lines and tables."""
    steps: Step
    first: Ints
    """Where the passes of each setting begin in ``steps``."""
    phase: Ints
    """Index into :data:`PHASES`."""
    rows: Ints
    tokens: Ints
    """Padded prompt of a prefill or batch, context of a decode step."""
    output_tokens: Ints
    """Of a batch; 0 for a single pass."""
    seconds: Floats
    """Median over the repeats of each setting."""
    measurements: int
    """Times that were measured, repeats included."""
    deviation: Floats
    """|seconds - setting's median| / that median, of each measurement that has repeats; fractions."""
    group: Ints
    """Index into ``groups``."""
    groups: tuple[Mapping[str, str], ...]
    """What was measured on what: ``model``, ``hardware``, ``dtype``, as far as the source says."""
    conditions: Mapping[str, Any]
    overhead_s: tuple[float, float]
    """Median seconds of a batch before its prefill and after its last step; 0 where nobody measured them."""
    data_sha256: str
    apart: tuple[str, ...] = ()
    """Columns of a table that vary and play no part."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def noise(self) -> dict[str, float | None]:
        """Median and 95th percentile (numpy's linear) of the deviation, as fractions; None without repeats."""
        if not len(self.deviation):
            return {"median": None, "p95": None}
        median, p95 = np.percentile(self.deviation, [50, 95]).tolist()
        return {"median": median, "p95": p95}

    @property
    def whole_batches(self) -> bool:
        """Whether some of the times are of whole batches: they tell a sum over passes, not a pass."""
        return bool(np.any(self.phase == BATCH))

    @cached_property
    def cell(self) -> Ints:
        """Which settings are neighbours (:data:`NEIGHBOURS`): an index, the same for those of one cell.

        Lengths with no gap wider than that between them make a run. A run is cut, from its shortest length on, only
        where it is longer than that itself.
        """
        length = np.maximum(self.tokens + self.output_tokens, 1)
        order = np.lexsort((length, self.rows, self.phase, self.group))
        keys = np.stack([self.group, self.phase, self.rows], axis=1)[order]
        rising = np.log(length[order]) / np.log(NEIGHBOURS)
        begins = np.any(np.diff(keys, axis=0, prepend=-1) != 0, axis=1) | (np.diff(rising, prepend=0) > 1)
        run = np.cumsum(begins)
        piece = np.floor(rising - rising[begins][run - 1]).astype(np.int64)
        found = np.empty(len(order), np.int64)
        found[order] = np.unique(np.stack([run, piece], axis=1), axis=0, return_inverse=True)[1].ravel()
        return found

    def sums(self, per_pass: NDArray[np.float64]) -> Floats:
        """Sums over the passes of each setting, of one value or one row of values a pass."""
        total: Floats = np.add.reduceat(per_pass, self.first, axis=0)
        return total

    def predicted(self, model: CostModel) -> Floats:
        """Seconds that a model gives each setting; a batch's overheads included."""
        total = self.sums(model.seconds(self.steps))
        return np.where(self.phase == BATCH, total + sum(model.batch_overhead_s), total)

    def describe(self, i: int) -> str:
        """One setting in words."""
        rows, tokens, about = int(self.rows[i]), int(self.tokens[i]), ""
        if len(self.groups) > 1:
            about = f" ({self.group_name(int(self.group[i]))})"
        if self.phase[i] == BATCH:
            return f"batch of {rows} x ({tokens} + {int(self.output_tokens[i])}){about}"
        if self.phase[i] == MIXED:
            return self.steps.describe(int(self.first[i]))
        return f"{PHASES[self.phase[i]]} of {rows} x {tokens}{about}"

    def group_name(self, group: int) -> str:
        """The labels of a group in words."""
        return ", ".join(self.groups[group].values()) or self.source

    def take(self, index: Ints) -> "Timings":
        """Some of the settings; noise and hash remain those of the whole."""
        count = np.diff(self.first, append=len(self.steps))[index]
        first = np.cumsum(count) - count
        passes = np.repeat(self.first[index] - first, count) + np.arange(int(count.sum()))
        columns = ("phase", "rows", "tokens", "output_tokens", "seconds", "group")
        return replace(
            self,
            steps=self.steps.take(passes),
            first=first,
            **{name: getattr(self, name)[index] for name in columns},
        )

    def of_group(self, group: int) -> "Timings":
        """The settings of one group, with its labels as conditions."""
        one = self.take(np.flatnonzero(self.group == group))
        labels = self.groups[group]
        return replace(
            one,
            group=np.zeros(len(one), np.int64),
            groups=(labels,),
            conditions={**self.conditions, **labels},
        )

    def profile(self) -> Profile:
        """The settings as single passes, for a fit of passes.

        Raises:
            InputError: some are whole batches.
        """
        if self.whole_batches:
            i = int(np.argmax(self.phase == BATCH))
            raise InputError(
                f"{self.source}: the time of a whole batch ({self.describe(i)}) does not say what a single pass takes"
            )
        before, after = (np.array([overhead]) for overhead in self.overhead_s)
        return Profile(self.steps, self.seconds, self.conditions, before, after)


def of_profile(profile: Profile, source: str) -> Timings:
    """The passes of a profile, each shape a setting."""
    shapes, steps = profile.shapes, profile.shapes.steps
    prefill, decode = steps.prefill_tokens > 0, steps.decode_rows > 0
    about = profile.conditions
    nothing = np.zeros(len(shapes), np.int64)
    return Timings(
        source=source,
        steps=steps,
        first=np.arange(len(shapes)),
        phase=np.where(prefill & decode, MIXED, np.where(prefill, PREFILL, DECODE)),
        rows=np.where(decode & ~prefill, steps.decode_rows, steps.logit_rows),
        tokens=steps.max_context_tokens,
        output_tokens=nothing,
        seconds=shapes.seconds,
        measurements=len(profile),
        deviation=shapes.deviation,
        group=nothing,
        groups=({name: str(about[name]) for name in ("model", "hardware", "dtype")},),
        conditions=about,
        overhead_s=profile.overhead_s,
        data_sha256=profile.sha256,
    )


@dataclass(frozen=True, eq=False)
class TimedRows:
    """Rows of a table: what was timed, and the seconds. All columns of one length."""

    phase: Ints
    rows: Ints
    tokens: Ints
    output_tokens: Ints
    seconds: Floats
    group: Ints
    source_row: Ints
    """For error lines."""

    def __len__(self) -> int:
        return len(self.seconds)


def of_rows(
    rows: TimedRows,
    source: str,
    groups: Sequence[Mapping[str, str]],
    conditions: Mapping[str, Any],
    place: Any = None,
    apart: tuple[str, ...] = (),
) -> Timings:
    """The rows of a table, repeats reduced to medians.

    Args:
        rows: at least one.
        source: where they come from.
        groups: labels of each group.
        conditions: as a profile needs them.
        place: names a source row in an error line.
        apart: columns that vary and play no part.

    Raises:
        InputError: a repeat is so far off the others that its unit must be another.
    """
    table = np.stack([rows.group, rows.phase, rows.rows, rows.tokens, rows.output_tokens], axis=1)
    distinct, setting, repeats = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    setting = setting.ravel()
    ordered = rows.seconds[np.lexsort((rows.seconds, setting))]
    start = np.cumsum(repeats) - repeats
    median = (ordered[start + (repeats - 1) // 2] + ordered[start + repeats // 2]) / 2
    ratio = rows.seconds / median[setting]
    far = np.maximum(ratio, 1 / ratio)
    if far.max() > UNITS_APART:
        i = int(np.argmax(far))
        where = source if place is None else place(int(rows.source_row[i]))
        raise InputError(
            f"{where}: {rows.seconds[i]:g} s, {far[i]:.0f} times off the repeats of the same shape; are units mixed?"
        )
    digest = hashlib.sha256()
    for column in (*table.T, rows.seconds):
        digest.update(np.ascontiguousarray(column, dtype="<f8").data)
    group, phase, count, tokens, output = (np.ascontiguousarray(column) for column in distinct.T)
    steps, first = _passes(phase, count, tokens, output)
    return Timings(
        source=source,
        steps=steps,
        first=first,
        phase=phase,
        rows=count,
        tokens=tokens,
        output_tokens=output,
        seconds=median,
        measurements=len(rows),
        deviation=np.abs(ratio - 1)[repeats[setting] > 1],
        group=group,
        groups=tuple(groups),
        conditions=conditions,
        overhead_s=(0.0, 0.0),
        data_sha256=digest.hexdigest(),
        apart=apart,
    )


def _passes(phase: Ints, rows: Ints, tokens: Ints, output: Ints) -> tuple[Step, Ints]:
    """Every pass of each setting: one, or a prefill and output - 1 decode steps; and where each setting begins."""
    count = np.where(phase == BATCH, output, 1)
    first = np.cumsum(count) - count
    setting = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(setting)) - first[setting]
    prefill = padded_prefill(rows[setting], tokens[setting])
    decode = padded_decode(rows[setting], tokens[setting] + place)
    is_prefill = (place == 0) & (phase[setting] != DECODE)
    columns = (np.where(is_prefill, getattr(prefill, n), getattr(decode, n)) for n in STEP_COLUMNS)
    return Step(*columns), first
