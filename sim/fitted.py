"""A cost model fitted to measured passes: the larger of a floor and a sum of few physical terms.

    seconds = max(floor, constant + curve(tokens) + prefill + a x prefill tokens + b x decode rows
                  + c x query-key pairs + d x decode KV tokens + e x rows at the output head)

`tokens` are all that go through the linear layers: prompt slots and decoding rows. `curve` is a broken line,
since a matrix product is bound by its weights for few tokens and by arithmetic for many; its knots lie at the
row counts that were profiled. `prefill` is paid once by a pass that has a prompt. The floor is the host's: a
GPU that waits for Python takes the same time whatever the batch. No coefficient is negative: no cost falls.
How many of these terms the data can carry is decided by cross-validation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sim.blocks import price_in_blocks
from sim.domain import Domain
from sim.mixed_units import refuse_mixed_units
from sim.numbers import non_negative_number, number_list
from sim.profile import CONDITIONS, Profile
from sim.solve import floor_and_line, non_negative, relative_errors, summary
from sim.step import Step
from traces.errors import InputError
from traces.trace import Floats

TERMS = ("constant_s", "prefill_s", "prefill_token_s", "decode_row_s", "pair_s", "decode_kv_s", "logit_row_s")
"""Linear terms beside the curve, in the order of the columns of :func:`features`."""
COLUMNS = ("prefill_tokens", "decode_rows", "prefill_pairs", "decode_kv_tokens", "logit_rows")
"""What a pass is priced by, in the order of :meth:`Fitted.price`."""
FOLDS = 5
MIN_SHAPES = 3
"""Distinct shapes below which there is nothing to fit."""
MAX_PREFILL_KNOTS = 6
GOOD_ENOUGH = 1e-3
"""A simpler form wins when its cross-validated error is within this, or 5 %, of the best."""


@dataclass(frozen=True)
class Evidence:
    """What a fit rests on. Errors are relative, as fractions, each a median, mean and 95th percentile."""

    data_sha256: str
    conditions: Mapping[str, Any]
    passes: int
    shapes: int
    noise: Mapping[str, float | None]
    """Spread of repeats: median and 95th percentile of |time - shape median| / shape median."""
    residual: Mapping[str, float]
    """Error on the shapes that were fitted."""
    cross_validated: Mapping[str, float] | None
    """Error on shapes left out in turn; None below six shapes."""
    held_out: Mapping[str, Any] | None = None
    """Error on measurements that the fit never saw, if someone has scored them."""
    spread: Mapping[str, Any] | None = None
    """Coefficients of fits to resampled shapes, if someone has made them: 5th and 95th percentile of each."""
    versions: Mapping[str, str] | None = None
    """Versions of what did the fitting, where it is known."""

    def __post_init__(self) -> None:
        missing = [key for key in CONDITIONS if key not in self.conditions]
        if missing:
            raise InputError(f"the evidence's conditions lack {', '.join(missing)}")

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Evidence":
        """The evidence as written in a model file."""
        return cls(
            document["data_sha256"],
            document["conditions"],
            document["passes"],
            document["shapes"],
            document["noise"],
            document["residual"],
            document["cross_validated"],
            document.get("held_out"),
            document.get("spread"),
            document.get("versions"),
        )


@dataclass(frozen=True)
class Fitted:
    """Coefficients of the formula above, all in seconds (per unit of their column) and never negative."""

    floor_s: float
    constant_s: float
    prefill_s: float
    prefill_token_s: float
    decode_row_s: float
    pair_s: float
    decode_kv_s: float
    logit_row_s: float
    knots_tokens: tuple[float, ...]
    """Where segments of the curve begin; the first is 0, the last segment has no end."""
    token_s: tuple[float, ...]
    """Slope of each segment, seconds a token."""
    batch_overhead_s: tuple[float, float]
    """Seconds a batch costs before its prefill and after its last step: medians of measured batches."""
    domain: Domain
    evidence: Evidence

    def __post_init__(self) -> None:
        for name in ("floor_s", *TERMS):
            non_negative_number(getattr(self, name), name)
        number_list(self.knots_tokens, "knots_tokens", rising=True)
        number_list(self.token_s, "token_s")
        number_list(self.batch_overhead_s, "batch_overhead_s")
        if len(self.knots_tokens) != len(self.token_s) or not self.knots_tokens or self.knots_tokens[0] != 0:
            raise InputError("knots_tokens must start at 0 and be as many as token_s")
        if len(self.batch_overhead_s) != 2:
            raise InputError(f"batch_overhead_s must be two numbers, not {len(self.batch_overhead_s)}")
        if self.floor_s == 0 and self.constant_s == 0:
            raise InputError("floor_s and constant_s are both 0: an empty pass would cost nothing")

    @property
    def name(self) -> str:
        """Kind, model, device and dtype."""
        conditions = self.evidence.conditions
        return f"fitted {conditions['model']} {conditions['hardware']} {conditions['dtype']}"

    @cached_property
    def _curve(self) -> Floats:
        """Seconds of the curve at each knot."""
        return np.concatenate([[0.0], np.cumsum(np.diff(self.knots_tokens) * np.asarray(self.token_s[:-1]))])

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns."""
        return price_in_blocks(steps, COLUMNS, self.price)

    def price(self, prefill: Floats, rows: Floats, pairs: Floats, kv: Floats, logits: Floats) -> Floats:
        """Seconds from the bare columns, which may be fractions (a mean context)."""
        tokens = prefill + rows
        last = self.knots_tokens[-1]
        total = self.constant_s + self.token_s[-1] * np.maximum(tokens - last, 0.0)
        if last:
            total += np.interp(tokens, self.knots_tokens, self._curve)
        total += self.prefill_s * (prefill > 0)
        total += self.prefill_token_s * prefill
        total += self.decode_row_s * rows
        total += self.pair_s * pairs
        total += self.decode_kv_s * kv
        total += self.logit_row_s * logits
        return np.maximum(total, self.floor_s, out=total)

    def outside(self, steps: Step) -> str | None:
        """The first pass outside the profiled ranges, and how far; None if all lie inside."""
        return self.domain.outside(steps)

    def to_json(self) -> dict[str, Any]:
        """Coefficients, evidence and domain."""
        return {
            "kind": "fitted",
            "coefficients": {
                "floor_s": self.floor_s,
                **{term: getattr(self, term) for term in TERMS},
                "knots_tokens": list(self.knots_tokens),
                "token_s": list(self.token_s),
            },
            "batch_overhead_s": list(self.batch_overhead_s),
            "domain": self.domain.to_json(),
            "evidence": {name: _plain(value) for name, value in vars(self.evidence).items()},
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Fitted":
        """The model that :meth:`to_json` wrote down."""
        coefficients = document["coefficients"]
        return cls(
            **{name: coefficients[name] for name in ("floor_s", *TERMS)},
            knots_tokens=number_list(coefficients["knots_tokens"], "knots_tokens"),
            token_s=number_list(coefficients["token_s"], "token_s"),
            batch_overhead_s=number_list(document["batch_overhead_s"], "batch_overhead_s"),  # type: ignore[arg-type]
            domain=Domain.from_json(document["domain"]),
            evidence=Evidence.from_json(document["evidence"]),
        )


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def features(steps: Step, knots_tokens: tuple[float, ...] = (0.0,)) -> Floats:
    """Columns [passes, terms] whose non-negative sum is the cost: :data:`TERMS`, then one ramp a segment."""
    tokens = (steps.prefill_tokens + steps.decode_rows).astype(np.float64)
    ends = (*knots_tokens[1:], np.inf)
    ramps = [np.clip(tokens, low, high) - low for low, high in zip(knots_tokens, ends, strict=True)]
    return np.stack(
        [
            np.ones_like(tokens),
            steps.prefill_tokens > 0,
            steps.prefill_tokens,
            steps.decode_rows,
            steps.prefill_pairs,
            steps.decode_kv_tokens,
            steps.logit_rows,
            *ramps,
        ],
        axis=1,
    ).astype(np.float64)


def fit(profile: Profile) -> Fitted:
    """Fit the formula to a profile: repeats reduced to medians, relative errors, outliers held down.

    Raises:
        InputError: too few distinct shapes, or a shape so far off that its unit must be another.
    """
    shapes = profile.shapes
    if len(shapes) < MIN_SHAPES:
        raise InputError(
            f"profile: {len(shapes)} distinct shape(s) in {len(profile)} passes, a fit needs at least"
            f" {MIN_SHAPES}; the first is {shapes.steps.describe(0)}"
        )
    knots, with_floor, cross_validated = _choose_form(shapes.steps, shapes.seconds)
    floor_s, coefficients = _solve(features(shapes.steps, knots), shapes.seconds, with_floor)
    predicted = np.maximum(features(shapes.steps, knots) @ coefficients, floor_s)
    refuse_mixed_units(features(shapes.steps, knots), shapes.seconds, predicted, shapes.steps.describe)
    terms = dict(zip(TERMS, coefficients.tolist(), strict=False))
    if floor_s == 0 and terms["constant_s"] == 0:
        # Without any constant the data still show no pass cheaper than their cheapest: half of it is safe.
        floor_s = float(shapes.seconds.min()) / 2
    return Fitted(
        floor_s=floor_s,
        **terms,
        knots_tokens=knots,
        token_s=tuple(coefficients[len(TERMS) :].tolist()),
        batch_overhead_s=profile.overhead_s,
        domain=Domain.of(profile.steps),
        evidence=Evidence(
            data_sha256=profile.sha256,
            conditions=dict(profile.conditions),
            passes=len(profile),
            shapes=len(shapes),
            noise=shapes.noise,
            residual=summary(relative_errors(predicted, shapes.seconds)),
            cross_validated=cross_validated,
        ),
    )


def _solve(columns: Floats, seconds: Floats, with_floor: bool) -> tuple[float, Floats]:
    return floor_and_line(columns, seconds) if with_floor else (0.0, non_negative(columns, seconds))


def _knots(steps: Step) -> tuple[float, ...]:
    """Every profiled row count but the smallest, then a few token counts of the prefills above them."""
    rows = np.unique(steps.decode_rows[steps.decode_rows > 0])[1:-1]
    prompts = np.unique(steps.prefill_tokens[steps.prefill_tokens > (rows[-1] if len(rows) else 0)])
    if len(prompts) > MAX_PREFILL_KNOTS:
        prompts = np.unique(np.quantile(prompts, np.linspace(0, 1, MAX_PREFILL_KNOTS + 1), method="nearest"))
    return (0.0, *rows.astype(float).tolist(), *prompts[:-1].astype(float).tolist())


def _choose_form(steps: Step, seconds: Floats) -> tuple[tuple[float, ...], bool, dict[str, float] | None]:
    """Knots, whether there is a floor, and the cross-validated error of that choice.

    The simplest form wins unless another is clearly better on shapes left out in turn.
    """
    straight, broken = (0.0,), _knots(steps)
    if len(seconds) < FOLDS + 1:
        return straight, False, None
    forms = [(straight, False), (straight, True), (broken, False), (broken, True)]
    fold = np.random.default_rng(0).permutation(len(seconds)) % FOLDS
    scores = []
    for knots, with_floor in forms:
        columns = features(steps, knots)
        errors = np.empty(len(seconds))
        for k in range(FOLDS):
            inside = fold != k
            floor_s, coefficients = _solve(columns[inside], seconds[inside], with_floor)
            predicted = np.maximum(columns[~inside] @ coefficients, floor_s)
            errors[~inside] = relative_errors(predicted, seconds[~inside])
        scores.append(summary(errors))
    best = min(score["mean"] for score in scores)
    chosen = next(
        i for i, score in enumerate(scores) if score["mean"] <= max(1.05 * best, best + GOOD_ENOUGH)
    )
    return (*forms[chosen], scores[chosen])
