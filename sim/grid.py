"""A cost model that returns what was measured: medians at the profiled row counts, interpolated between.

Matrix tiles make some batch sizes slower than larger ones (3 rows slower than 4), which no cost that never
falls can say. This one can, and is exempt from that law: the ledger may show negative lines, named as such.

Along the context (decode) or the prompt (prefill), seconds are interpolated linearly at each profiled row
count, smoothed so that a longer context is never cheaper. Between two profiled row counts the two are
interpolated. Beyond the profiled range, the nearest value is carried on in proportion to a fitted model;
passes that mix prompts and decoding are priced by that fitted model alone.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.blocks import price_in_blocks
from sim.fitted import COLUMNS, Fitted, fit
from sim.numbers import number_list
from sim.profile import Profile
from sim.step import Step
from traces.errors import InputError
from traces.trace import Floats

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """Measured seconds at one row count, over rising lengths."""

    rows: int
    tokens: tuple[float, ...]
    """Context of a decode step, or padded prompt of a prefill."""
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        number_list(self.tokens, "tokens", rising=True)
        if (
            not self.tokens
            or len(self.tokens) != len(self.seconds)
            or type(self.rows) is not int
            or self.rows < 1
        ):
            raise InputError(f"a curve needs rows and as many seconds as tokens, not {self}")
        if min(number_list(self.seconds, "seconds")) <= 0:
            raise InputError(f"seconds of {self.rows} rows must be above 0, not {list(self.seconds)}")


@dataclass(frozen=True)
class Grid:
    """Measured curves by row count, over a fitted model that says how costs grow elsewhere."""

    monotone: ClassVar[bool] = False
    """Exempt from the law of costs that never fall."""
    fitted: Fitted
    prefill: tuple[Curve, ...]
    decode: tuple[Curve, ...]

    def __post_init__(self) -> None:
        for curves in (self.prefill, self.decode):
            number_list([curve.rows for curve in curves], "rows of the curves", rising=True)

    @property
    def name(self) -> str:
        """Kind, model, device and dtype."""
        return self.fitted.name.replace("fitted", "grid", 1)

    @property
    def batch_overhead_s(self) -> tuple[float, float]:
        """As fitted: medians of measured batches."""
        return self.fitted.batch_overhead_s

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns."""
        return price_in_blocks(steps, COLUMNS, self._price)

    def _price(self, prefill: Floats, rows: Floats, pairs: Floats, kv: Floats, logits: Floats) -> Floats:
        out = self.fitted.price(prefill, rows, pairs, kv, logits)
        decoding = (rows > 0) & (prefill == 0)
        if self.decode and decoding.any():
            out[decoding] = self._decode(rows[decoding], kv[decoding])
        prefilling = (prefill > 0) & (rows == 0) & (logits > 0)
        if self.prefill and prefilling.any():
            out[prefilling] = self._prefill(logits[prefilling], prefill[prefilling], pairs[prefilling])
        return out

    def _decode(self, rows: Floats, kv: Floats) -> Floats:
        return _between(self.decode, rows, kv / rows, self._fitted_decode)

    def _prefill(self, rows: Floats, tokens: Floats, pairs: Floats) -> Floats:
        even = _between(self.prefill, rows, tokens / rows, self._fitted_prefill)
        # Prompts of unequal lengths have more pairs than equal ones of the same sum; fewer there cannot be.
        return even + self.fitted.pair_s * np.maximum(pairs - tokens * tokens / rows, 0.0)

    def _fitted_decode(self, rows: Floats, context: Floats) -> Floats:
        zero = np.zeros_like(rows)
        return self.fitted.price(zero, rows, zero, rows * context, rows)

    def _fitted_prefill(self, rows: Floats, prompt: Floats) -> Floats:
        tokens = rows * prompt
        return self.fitted.price(tokens, np.zeros_like(rows), tokens * prompt, np.zeros_like(rows), rows)

    def outside(self, steps: Step) -> str | None:
        """The first pass outside the profiled ranges, and how far; None if all lie inside."""
        return self.fitted.outside(steps)

    def to_json(self) -> dict[str, Any]:
        """The curves and the fitted model below them."""
        return {
            "kind": "grid",
            "fitted": self.fitted.to_json(),
            "prefill": [_curve_json(curve) for curve in self.prefill],
            "decode": [_curve_json(curve) for curve in self.decode],
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Grid":
        """The model that :meth:`to_json` wrote down."""
        curves = (
            tuple(
                Curve(c["rows"], number_list(c["tokens"], "tokens"), number_list(c["seconds"], "seconds"))
                for c in document[phase]
            )
            for phase in ("prefill", "decode")
        )
        return cls(Fitted.from_json(document["fitted"]), *curves)


def _curve_json(curve: Curve) -> dict[str, Any]:
    return {"rows": curve.rows, "tokens": list(curve.tokens), "seconds": list(curve.seconds)}


def _between(curves: tuple[Curve, ...], rows: Floats, length: Floats, fitted: Any) -> Floats:
    """Seconds at (rows, length): linear between the two profiled row counts around, in proportion outside."""
    counts = np.array([curve.rows for curve in curves], np.float64)
    inside = np.clip(rows, counts[0], counts[-1])
    upper = np.searchsorted(counts, inside)
    lower = np.where(counts[upper] == inside, upper, upper - 1)
    share = np.where(
        upper == lower, 0.0, (inside - counts[lower]) / np.maximum(counts[upper] - counts[lower], 1)
    )
    out = np.zeros(len(rows))
    for i in np.union1d(lower, upper):
        curve = curves[i]
        for side, weight in ((lower == i, 1.0 - share), ((upper == i) & (upper != lower), share)):
            if side.any():
                out[side] += weight[side] * _along(curve, length[side], fitted)
    beyond = rows != inside
    if beyond.any():
        out[beyond] *= fitted(rows[beyond], length[beyond]) / fitted(inside[beyond], length[beyond])
    return out


def _along(curve: Curve, length: Floats, fitted: Any) -> Floats:
    """Seconds of one curve at each length; outside its range in proportion to the fitted model."""
    seconds = np.interp(length, curve.tokens, curve.seconds)
    clipped = np.clip(length, curve.tokens[0], curve.tokens[-1])
    beyond = clipped != length
    if beyond.any():
        rows = np.full(int(beyond.sum()), float(curve.rows))
        seconds[beyond] *= fitted(rows, length[beyond]) / fitted(rows, clipped[beyond])
    return seconds


def fit_grid(profile: Profile) -> Grid:
    """The grid of a profile's padded passes, over :func:`sim.fitted.fit` of the same profile.

    Raises:
        InputError: as :func:`sim.fitted.fit`.
    """
    shapes = profile.shapes
    steps = shapes.steps
    decoding = (steps.decode_rows > 0) & (steps.prefill_tokens == 0)
    prefilling = (steps.prefill_tokens > 0) & (steps.decode_rows == 0)
    # Only passes whose rows are all of one length lie on a curve.
    decoding &= steps.decode_kv_tokens == steps.decode_rows * steps.max_context_tokens
    prefilling &= steps.prefill_tokens == steps.logit_rows * steps.max_context_tokens
    return Grid(
        fit(profile),
        _curves(steps, shapes.seconds, prefilling, steps.logit_rows),
        _curves(steps, shapes.seconds, decoding, steps.decode_rows),
    )


def _curves(steps: Step, seconds: Floats, where: Bools, rows: NDArray[np.int64]) -> tuple[Curve, ...]:
    from scipy.optimize import isotonic_regression  # loaded by those who fit, not by every command

    curves = []
    for count in np.unique(rows[where]):
        chosen = np.flatnonzero(where & (rows == count))
        chosen = chosen[np.argsort(steps.max_context_tokens[chosen])]
        lengths = steps.max_context_tokens[chosen].astype(np.float64)
        smooth = isotonic_regression(seconds[chosen], weights=1.0 / seconds[chosen] ** 2).x
        curves.append(Curve(int(count), tuple(lengths.tolist()), tuple(smooth.tolist())))
    return tuple(curves)
