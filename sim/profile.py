"""Measured passes, as a profiler leaves them and a fit takes them.

One row a pass: its step, as columns, and its seconds. Beside them, the overheads of whole batches and the
conditions of the measurement. Saved as one Parquet file; the same measurements give the same bytes.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sim.step import Step, concat
from traces.errors import InputError
from traces.output import whole_file
from traces.trace import Floats, Ints

STEP_COLUMNS = tuple(column.name for column in fields(Step))
CONDITIONS = ("hardware", "model", "dtype", "engine", "software", "clock")
"""What every profile must say of itself: device, model, dtype, how the engine ran, versions, which clock."""
METADATA_KEY = b"profile"
LONGEST_PASS_S = 3600.0
"""A single pass longer than an hour is a wrong unit, not a measurement."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """The distinct steps of a profile with the median of their repeats."""

    steps: Step
    seconds: Floats
    """Median over the repeats of each shape."""
    repeats: Ints
    deviation: Floats
    """|seconds - shape median| / shape median, of each pass that has repeats."""

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def noise(self) -> dict[str, float | None]:
        """Median and 95th percentile (numpy's linear) of the deviation, as fractions; None without repeats."""
        if not len(self.deviation):
            return {"median": None, "p95": None}
        return {
            "median": float(np.median(self.deviation)),
            "p95": float(np.percentile(self.deviation, 95)),
        }


def joined(profiles: Sequence["Profile"]) -> "Profile":
    """Profiles of the same thing taken one after the other, as one; the conditions are the first one's."""
    first = profiles[0]
    return Profile(
        concat(*(one.steps for one in profiles)),
        np.concatenate([one.seconds for one in profiles]),
        first.conditions,
        np.concatenate([one.before_s for one in profiles]),
        np.concatenate([one.after_s for one in profiles]),
    )


@dataclass(frozen=True, eq=False)
class Profile:
    """Measured passes of one model on one device.

    Raises:
        InputError: no pass, columns of different lengths, a negative count, seconds that are not positive and
            finite or above an hour, or a missing condition; the line names row and shape.
    """

    steps: Step
    seconds: Floats
    """Seconds of each pass."""
    conditions: Mapping[str, Any]
    """JSON values; the keys of :data:`CONDITIONS` must be there."""
    before_s: Floats = field(default_factory=lambda: np.empty(0))
    """Overhead of measured batches before the prefill, seconds; one entry a batch."""
    after_s: Floats = field(default_factory=lambda: np.empty(0))
    """Overhead of the same batches after the last step, seconds."""

    def __post_init__(self) -> None:
        missing = [key for key in CONDITIONS if key not in self.conditions]
        if missing:
            raise InputError(f"profile lacks the conditions {', '.join(missing)}")
        columns = [getattr(self.steps, name) for name in STEP_COLUMNS]
        if {len(column) for column in columns} != {len(self.seconds)}:
            raise InputError(f"profile: {len(self.seconds)} times for columns of {len(self.steps)} passes")
        if len(self.seconds) == 0:
            raise InputError("profile: no measured pass")
        bad = ~((self.seconds > 0) & (self.seconds <= LONGEST_PASS_S))
        if bad.any():
            i = int(np.flatnonzero(bad)[0])
            raise InputError(
                f"profile row {i}: {self.seconds[i]} s for a pass of {self.steps.describe(i)};"
                f" a pass takes more than 0 and at most {LONGEST_PASS_S:.0f} seconds"
            )
        for name, column in zip(STEP_COLUMNS, columns, strict=True):
            if column.min() < 0:
                i = int(np.argmin(column))
                raise InputError(f"profile row {i}: {name} is {column[i]}; counts are at least 0")
        if len(self.before_s) != len(self.after_s):
            raise InputError(f"profile: {len(self.before_s)} overheads before but {len(self.after_s)} after")
        for name, overhead in (("before_s", self.before_s), ("after_s", self.after_s)):
            if not np.all((overhead >= 0) & np.isfinite(overhead)):
                raise InputError(f"profile: {name} holds an overhead that is negative or not a number")

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def sha256(self) -> str:
        """Hash of the measurements; the conditions play no part."""
        digest = hashlib.sha256()
        for name in STEP_COLUMNS:
            digest.update(np.ascontiguousarray(getattr(self.steps, name), dtype="<i8").data)
        for column in (self.seconds, self.before_s, self.after_s):
            digest.update(np.ascontiguousarray(column, dtype="<f8").data)
        return digest.hexdigest()

    @property
    def overhead_s(self) -> tuple[float, float]:
        """Medians of the batches' overheads before and after their passes; 0 where no batch was timed."""
        before, after = (
            float(np.median(column)) if len(column) else 0.0 for column in (self.before_s, self.after_s)
        )
        return before, after

    @cached_property
    def shapes(self) -> Shapes:
        """Repeats reduced to their median, in the order of the columns."""
        table = np.stack([getattr(self.steps, name) for name in STEP_COLUMNS], axis=1)
        distinct, shape_of, repeats = np.unique(table, axis=0, return_inverse=True, return_counts=True)
        shape_of = shape_of.ravel()
        ordered = self.seconds[np.lexsort((self.seconds, shape_of))]
        first = np.cumsum(repeats) - repeats
        medians = (ordered[first + (repeats - 1) // 2] + ordered[first + repeats // 2]) / 2
        deviation = np.abs(self.seconds - medians[shape_of]) / medians[shape_of]
        steps = Step(*(np.ascontiguousarray(column) for column in distinct.T))
        return Shapes(steps, medians, repeats.astype(np.int64), deviation[repeats[shape_of] > 1])

    def save(self, path: Path) -> None:
        """Write one Parquet file, whole or not at all."""
        # Loaded here and in load(): every cost model knows profiles, few commands read one, and Arrow is slow to load.
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table(
            {**{name: getattr(self.steps, name) for name in STEP_COLUMNS}, "seconds": self.seconds}
        )
        about = {
            "conditions": dict(self.conditions),
            "before_s": self.before_s.tolist(),
            "after_s": self.after_s.tolist(),
        }
        text = json.dumps(about, sort_keys=True, allow_nan=False)
        with whole_file(path) as file:
            pq.write_table(table.replace_schema_metadata({METADATA_KEY: text.encode()}), file)

    @classmethod
    def load(cls, path: Path) -> "Profile":
        """Read what :meth:`save` wrote.

        Raises:
            InputError: no such file, not a profile, or a column is missing; one line with the path.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if path.is_dir():
            raise InputError(f"profile {str(path)!r} is a folder; give the Parquet file in it")
        if not path.exists():
            raise InputError(f"profile {str(path)!r}: no such file")
        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[METADATA_KEY])
            columns = [table[name].to_numpy().astype(np.int64, casting="safe") for name in STEP_COLUMNS]
            seconds = table["seconds"].to_numpy().astype(np.float64)
            overheads = [np.asarray(about[name], np.float64) for name in ("before_s", "after_s")]
            return cls(Step(*columns), seconds, about["conditions"], *overheads)
        except OSError as error:
            raise InputError(f"profile {str(path)!r}: {error.strerror or error}") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: not a profile: {error}") from None
