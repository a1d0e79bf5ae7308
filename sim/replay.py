"""A cost model that returns recorded times: exactly what was measured, for exactly the passes that were measured.

Every other pass is priced by another model, the fallback, or is refused. Recorded times may fall as a field grows,
so the model is exempt from that law. A simulation needs a fallback: it prices tables of every context, and the
ledger passes that never ran.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sim.blocks import price_in_blocks
from sim.cost import CostModel
from sim.numbers import number_list
from sim.profile import CONDITIONS, STEP_COLUMNS, Profile
from sim.step import Step
from traces.errors import InputError
from traces.trace import Floats, Ints


@dataclass(frozen=True)
class Replay:
    """Median seconds of each recorded pass, and a model for all others."""

    monotone: ClassVar[bool] = False
    """Exempt from the law of costs that never fall."""
    shapes: tuple[tuple[int, ...], ...]
    """Recorded passes, each as its :data:`~sim.profile.STEP_COLUMNS`; distinct and rising."""
    shape_seconds: tuple[float, ...]
    """Median of the repeats of each."""
    batch_overhead_s: tuple[float, float]
    """Medians over the recorded batches: before the prefill, after the last step."""
    conditions: Mapping[str, Any]
    data_sha256: str
    fallback: CostModel | None

    def __post_init__(self) -> None:
        if not self.shapes or len(self.shapes) != len(self.shape_seconds):
            raise InputError(f"{len(self.shape_seconds)} seconds for {len(self.shapes)} recorded passes")
        for i, shape in enumerate(self.shapes):
            if len(shape) != len(STEP_COLUMNS) or any(type(x) is not int or x < 0 for x in shape):
                raise InputError(f"shapes[{i}] must be {len(STEP_COLUMNS)} counts of at least 0, not {shape}")
        if list(self.shapes) != sorted(set(self.shapes)):
            raise InputError("shapes must be distinct and rise")
        if min(number_list(self.shape_seconds, "shape_seconds")) <= 0:
            raise InputError("shape_seconds must be above 0")
        if len(number_list(self.batch_overhead_s, "batch_overhead_s")) != 2:
            raise InputError(f"batch_overhead_s must be two numbers, not {len(self.batch_overhead_s)}")
        missing = [key for key in CONDITIONS if key not in self.conditions]
        if missing:
            raise InputError(f"the conditions lack {', '.join(missing)}")

    @property
    def name(self) -> str:
        """Kind, model, device and dtype, and who prices the rest."""
        about = self.conditions
        rest = "" if self.fallback is None else f", else {self.fallback.name}"
        return f"replay {about['model']} {about['hardware']} {about['dtype']}{rest}"

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns.

        Raises:
            InputError: a pass was not recorded and there is no fallback; the line names it.
        """
        found = price_in_blocks(steps, STEP_COLUMNS, self._recorded)
        missing = np.isnan(found)
        if missing.any():
            if self.fallback is None:
                raise InputError(
                    f"{self.name}: no recorded pass of {_first(steps, missing)}, and no fallback"
                )
            found[missing] = self.fallback.seconds(_where(steps, missing))
        return found

    def outside(self, steps: Step) -> str | None:
        """The first pass that was not recorded; None if all were."""
        missing = np.isnan(price_in_blocks(steps, STEP_COLUMNS, self._recorded))
        if not missing.any():
            return None
        line = f"{int(missing.sum())} of {missing.size} passes not recorded, the first is {_first(steps, missing)}"
        if self.fallback is None:
            return line
        beyond = self.fallback.outside(_where(steps, missing))
        return f"{line}; {self.fallback.name} prices them" + (
            "" if beyond is None else f", itself outside: {beyond}"
        )

    @cached_property
    def _stages(self) -> list[tuple[Floats, Ints]]:
        """For each column its distinct values, and which of them follow which beginning of a shape."""
        begun, stages = np.zeros(len(self.shapes), np.int64), []
        for column in np.array(self.shapes, np.float64).T:
            values = np.unique(column)
            followed, begun = np.unique(
                begun * len(values) + np.searchsorted(values, column), return_inverse=True
            )
            stages.append((values, followed))
        return stages

    def _recorded(self, *columns: Floats) -> Floats:
        """Recorded seconds of each pass, NaN where there are none."""
        known, begun = np.ones(len(columns[0]), np.bool_), np.zeros(len(columns[0]), np.int64)
        for column, (values, followed) in zip(columns, self._stages, strict=True):
            rank = np.minimum(np.searchsorted(values, column), len(values) - 1)
            code = begun * len(values) + rank
            begun = np.minimum(np.searchsorted(followed, code), len(followed) - 1)
            known &= (values[rank] == column) & (followed[begun] == code)
        return np.where(known, np.asarray(self.shape_seconds)[begun], np.nan)

    def to_json(self) -> dict[str, Any]:
        """Everything, the fallback as its own document."""
        return {
            "kind": "replay",
            "shapes": [list(shape) for shape in self.shapes],
            "seconds": list(self.shape_seconds),
            "batch_overhead_s": list(self.batch_overhead_s),
            "conditions": dict(self.conditions),
            "data_sha256": self.data_sha256,
            "fallback": None if self.fallback is None else self.fallback.to_json(),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any], make: Callable[[Any], CostModel]) -> "Replay":
        """The model that :meth:`to_json` wrote down; ``make`` makes the fallback from its document."""
        fallback = document["fallback"]
        return cls(
            tuple(tuple(shape) for shape in document["shapes"]),
            number_list(document["seconds"], "seconds"),
            number_list(document["batch_overhead_s"], "batch_overhead_s"),  # type: ignore[arg-type]
            document["conditions"],
            document["data_sha256"],
            None if fallback is None else make(fallback),
        )


def replay(profile: Profile, fallback: CostModel | None) -> Replay:
    """The recorded times of a profile: medians over the repeats of each pass."""
    shapes = profile.shapes
    table = np.stack([getattr(shapes.steps, name) for name in STEP_COLUMNS], axis=1)
    return Replay(
        tuple(map(tuple, table.tolist())),
        tuple(shapes.seconds.tolist()),
        profile.overhead_s,
        dict(profile.conditions),
        profile.sha256,
        fallback,
    )


def _where(steps: Step, chosen: Any) -> Step:
    return Step(*(column[chosen] for column in vars(steps).values()))


def _first(steps: Step, chosen: Any) -> str:
    return _where(steps, chosen).describe(0)
