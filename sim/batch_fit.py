"""A fitted model from the times of whole batches, where nobody timed single passes.

A batch's time is the sum over its passes, so the columns of the fit are sums of :func:`sim.fitted.features`; the
coefficients then price single passes. What a table never varies apart (prompt and output of one length) it cannot
tell apart either: coefficients share the time between them, and only their sum is known.
"""

import numpy as np

from sim.domain import Domain
from sim.fitted import FOLDS, TERMS, Evidence, Fitted, features
from sim.mixed_units import refuse_mixed_units
from sim.solve import non_negative, relative_errors, summary
from sim.timings import Timings
from traces.trace import Floats

SIMPLE = (0, TERMS.index("decode_kv_s"), len(TERMS))
"""Columns of the simplest form: a constant a pass, KV tokens read, tokens through the linear layers."""
ALL = tuple(range(len(TERMS) + 1))
"""Every column of the straight form."""
FORMS = (SIMPLE, ALL)
CLEARLY = 0.95
"""The fuller form is taken when its cross-validated error is below this part of the simple one's."""


def fit_batches(timings: Timings) -> Fitted:
    """Fit whole batches, alone or beside single passes.

    Raises:
        InputError: a shape is so far off that its unit must be another.
    """
    columns, seconds = timings.sums(features(timings.steps)), timings.seconds
    form, cross_validated = _choose(columns, seconds)
    coefficients = np.zeros(columns.shape[1])
    coefficients[list(form)] = non_negative(columns[:, form], seconds)
    predicted = columns @ coefficients
    refuse_mixed_units(columns, seconds, predicted, timings.describe)
    *terms, token_s = coefficients.tolist()
    passes = columns[:, 0]
    return Fitted(
        # Without any constant the data still show no pass cheaper than their cheapest: half of it is safe.
        floor_s=0.0 if terms[0] else float((seconds / passes).min()) / 2,
        **dict(zip(TERMS, terms, strict=True)),
        knots_tokens=(0.0,),
        token_s=(token_s,),
        batch_overhead_s=timings.overhead_s,
        domain=Domain.of(timings.steps),
        evidence=Evidence(
            data_sha256=timings.data_sha256,
            conditions=dict(timings.conditions),
            passes=timings.measurements,
            shapes=len(timings),
            noise=timings.noise,
            residual=summary(relative_errors(predicted, seconds)),
            cross_validated=cross_validated,
        ),
    )


def _choose(columns: Floats, seconds: Floats) -> tuple[tuple[int, ...], dict[str, float] | None]:
    """The form and its error on shapes left out in turn; the simple one where there are too few to say."""
    if len(seconds) < FOLDS + 1:
        return SIMPLE, None
    fold = np.random.default_rng(0).permutation(len(seconds)) % FOLDS
    found = []
    for form in FORMS:
        errors = np.empty(len(seconds))
        for k in range(FOLDS):
            inside, left_out = fold != k, fold == k
            line = non_negative(columns[np.ix_(inside, form)], seconds[inside])
            errors[left_out] = relative_errors(columns[np.ix_(left_out, form)] @ line, seconds[left_out])
        found.append(summary(errors))
    chosen = 1 if found[1]["mean"] < CLEARLY * found[0]["mean"] else 0
    return FORMS[chosen], found[chosen]
