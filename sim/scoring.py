"""Cost models against measured times that they were not fitted to.

A learnt kind is fitted anew for each draw, to each group (model and device) apart. Where a draw leaves out a whole
group, what was learnt on the others is carried over in proportion to the roofline: predicted = roofline here x
(fit there / roofline there), the geometric mean over the groups there. Where a group's sizes are in no table, the
others' times are taken as they are.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sim.cost import CostModel
from sim.errors import Score, errors, rounded
from sim.fitting import FITS, fit_kind
from sim.hardware import Hardware, known_hardware, named_in
from sim.measured_table import NOT_STATED
from sim.models import model_shape
from sim.roofline import Roofline
from sim.splits import Draw
from sim.timings import Timings
from traces.errors import InputError, choices
from traces.trace import Floats

ROOFLINE = "roofline"
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Short names of dtypes that tables use."""


@dataclass(frozen=True)
class Sizes:
    """Which model and device to take for a roofline where the data names none that a table knows."""

    model: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, eq=False)
class Scored:
    """One model against the tested settings of every draw, or why it could not be."""

    name: str
    tested: tuple[Timings, ...] = ()
    predicted: tuple[Floats, ...] = ()
    fitted_shapes: tuple[int, ...] = ()
    """Settings fitted in each draw; empty for a model that was not fitted here."""
    note: str | None = None

    @cached_property
    def signed(self) -> list[Floats]:
        """Relative errors of each draw."""
        return [errors(p, t.seconds) for p, t in zip(self.predicted, self.tested, strict=True)]

    def mean(self, name: str) -> float | None:
        """A figure of :class:`~sim.errors.Score`, the mean over the draws."""
        values = [getattr(Score.of(signed), name) for signed in self.signed]
        return float(np.mean(values)) if values else None

    @property
    def worst(self) -> tuple[float, str] | None:
        """The largest error of all draws, signed, and its shape."""
        if not self.signed:
            return None
        draw = max(range(len(self.signed)), key=lambda i: float(np.abs(self.signed[i]).max()))
        i = int(np.argmax(np.abs(self.signed[draw])))
        return float(self.signed[draw][i]), self.tested[draw].describe(i)

    def to_json(self) -> dict[str, Any]:
        """Errors as fractions, each figure the mean over the draws, and those of every draw."""
        worst = self.worst
        figures = ("mean", "median", "p95", "bias")
        return {
            "model": self.name,
            **{f"{name}_error" if name != "bias" else name: rounded(self.mean(name)) for name in figures},
            "worst_error": None if worst is None else rounded(worst[0]),
            "worst_shape": None if worst is None else worst[1],
            "tested_shapes": [len(t) for t in self.tested],
            "fitted_shapes": list(self.fitted_shapes),
            "mean_errors": [rounded(Score.of(signed).mean) for signed in self.signed],
            "note": self.note,
        }


def scored(
    name: str, model: CostModel | None, timings: Timings, draws: Sequence[Draw], sizes: Sizes
) -> Scored:
    """Score a model on the tested settings of each draw.

    Args:
        name: ``roofline``, a kind of :data:`sim.fitting.FITS`, or what to call ``model``.
        model: one that is fitted already; None for the others.
        timings: everything that was measured.
        draws: how they are parted.
        sizes: for the roofline.
    """
    try:
        if model is not None:
            note = "was fitted to these very data" if _has_seen(model, timings) else None
            tested = [timings.take(draw.tested) for draw in draws]
            return Scored(name, tuple(tested), tuple(t.predicted(model) for t in tested), note=note)
        if name == ROOFLINE:
            tested = [timings.take(draw.tested) for draw in draws]
            return Scored(name, tuple(tested), tuple(_roofline(t, sizes) for t in tested))
        pairs = [(timings.take(draw.tested), timings.take(draw.fitted)) for draw in draws]
        found = [
            _carried(name, *pair, sizes) if d.across else (_own(name, *pair), None)
            for d, pair in zip(draws, pairs, strict=True)
        ]
        notes = [note for _, note in found if note is not None]
        return Scored(
            name,
            tuple(tested for tested, _ in pairs),
            tuple(predicted for predicted, _ in found),
            tuple(len(fitted) for _, fitted in pairs),
            notes[0] if notes else None,
        )
    except InputError as error:
        return Scored(name, note=str(error))


def _has_seen(model: CostModel, timings: Timings) -> bool:
    """Whether the evidence in a model's document names these data."""
    return timings.data_sha256 in json.dumps(model.to_json())


def _own(kind: str, tested: Timings, fitted: Timings) -> Floats:
    """Each tested group by a fit to what is fitted of the same group."""
    out = np.empty(len(tested))
    for group in np.unique(tested.group).tolist():
        model = fit_kind(kind, fitted.of_group(group))
        out[tested.group == group] = tested.of_group(group).predicted(model)
    return out


def _carried(kind: str, tested: Timings, fitted: Timings, sizes: Sizes) -> tuple[Floats, str | None]:
    """Each tested group by fits to other groups, carried over by the roofline; a note where that was not possible."""
    models = {group: fit_kind(kind, fitted.of_group(group)) for group in np.unique(fitted.group).tolist()}
    out, note = np.empty(len(tested)), None
    for group in np.unique(tested.group).tolist():
        one, here = tested.of_group(group), tested.groups[group]
        logs = []
        for source in _alike(here, [(g, fitted.groups[g]) for g in models]):
            log = np.log(one.predicted(models[source]))
            try:
                there = roofline(fitted.groups[source], fitted.conditions, sizes)
                ratio = one.predicted(roofline(here, one.conditions, sizes)) / one.predicted(there)
                log += np.log(ratio)
            except InputError as error:
                note = f"the others' times as they are, not carried over by the roofline: {error}"
            logs.append(log)
        out[tested.group == group] = np.exp(np.mean(logs, axis=0))
    return out, note


def _alike(here: Any, sources: list[tuple[int, Any]]) -> list[int]:
    """Groups that share most labels with this one: the same model on other devices, or other models on the same."""
    shared = [sum(there.get(key) == value for key, value in here.items()) for _, there in sources]
    return [group for (group, _), n in zip(sources, shared, strict=True) if n == max(shared)]


def _roofline(tested: Timings, sizes: Sizes) -> Floats:
    out = np.empty(len(tested))
    for group in np.unique(tested.group).tolist():
        one = tested.of_group(group)
        out[tested.group == group] = one.predicted(roofline(one.groups[0], one.conditions, sizes))
    return out


def roofline(labels: Any, conditions: Any, sizes: Sizes) -> Roofline:
    """The datasheet's model of a group, by its labels, else by ``sizes``.

    A dtype that nobody states is taken to be bfloat16.

    Raises:
        InputError: neither names a model and device that the tables know, or the dtype is none the device has.
    """
    about = {**conditions, **labels}
    device = _device(str(about["hardware"]), str(about.get("device", "")), sizes.gpu)
    shape = model_shape(sizes.model if sizes.model is not None else str(about["model"]))
    dtype = str(about["dtype"]).lower()
    dtype = "bfloat16" if dtype in ("", NOT_STATED) else DTYPES.get(dtype, dtype)
    return Roofline(shape, device, dtype)


def _device(name: str, device: str, given: str | None) -> Hardware:
    wanted = name if given is None else given
    if given is None and device.startswith("cpu"):
        wanted = "cpu"
    found = named_in(wanted)
    if found is None:
        raise InputError(f"unknown hardware {wanted!r}; known are {choices(known_hardware())}")
    return found


def is_kind(name: str) -> bool:
    """Whether a name is a kind that is made here, not a file."""
    return name == ROOFLINE or name in FITS
