"""Least squares for costs: non-negative coefficients, relative errors, outliers held down.

Non-negative coefficients on columns that never fall give a cost that never falls: fitted models keep the law
of monotone costs by construction, wherever they are asked.
"""

import numpy as np

from traces.trace import Floats

HUBER = 1.5
"""Robust standard deviations beyond which a residual counts linearly (Huber, doi:10.1214/aoms/1177703732)."""
NO_OUTLIER = 0.01
"""A relative residual below this is never an outlier, however exact the rest."""
ROUNDS = 8
"""Reweightings; more change coefficients by less than the noise of any clock."""
FLOOR_STARTS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""Quantiles of the times that are tried as a floor."""
FLOOR_MARGIN = 0.05
"""A pass this much above the floor is not at the floor."""
MIN_ABOVE = 4
"""Passes that a line needs."""


def relative_errors(predicted: Floats, seconds: Floats) -> Floats:
    """|predicted - measured| / measured."""
    return np.abs(predicted - seconds) / seconds


def summary(errors: Floats) -> dict[str, float]:
    """Median, mean and 95th percentile (numpy's linear) of relative errors."""
    return {
        "median": float(np.median(errors)),
        "mean": float(np.mean(errors)),
        "p95": float(np.percentile(errors, 95)),
    }


def non_negative(columns: Floats, seconds: Floats) -> Floats:
    """Coefficients c >= 0 that minimise the Huber loss of (columns @ c - seconds) / seconds.

    Args:
        columns: [passes, terms], each term non-negative.
        seconds: [passes], positive.

    Returns:
        [terms] coefficients, in seconds per unit of their column; 0 for a column that is 0 everywhere.
    """
    from scipy.optimize import nnls  # only a fit needs it, and it takes longer to load than a run to simulate

    relative = columns / seconds[:, None]
    scale = np.linalg.norm(relative, axis=0)
    scale[scale == 0] = 1.0
    relative = relative / scale
    weight = np.ones(len(seconds))
    for _ in range(ROUNDS):
        coefficients, _ = nnls(relative * weight[:, None], weight, maxiter=50 * relative.shape[1])
        residual = np.abs(relative @ coefficients - 1.0)
        limit = max(HUBER * 1.4826 * float(np.median(residual)), NO_OUTLIER)
        weight = np.sqrt(np.minimum(1.0, limit / np.maximum(residual, 1e-12)))
    return np.asarray(coefficients / scale, np.float64)


def floor_and_line(columns: Floats, seconds: Floats) -> tuple[float, Floats]:
    """Floor and coefficients of seconds = max(floor, columns @ c), c >= 0.

    For each candidate floor the line is fitted to the passes above it and to those that a line would lift
    above it; what remains sets the floor anew (its median). The best candidate by mean relative error wins;
    the floor is 0 when none helps.
    """
    best_floor, best = 0.0, non_negative(columns, seconds)
    best_error = float(relative_errors(columns @ best, seconds).mean())
    for floor in np.quantile(seconds, FLOOR_STARTS):
        above = seconds > (1 + FLOOR_MARGIN) * floor
        for _ in range(ROUNDS):
            if above.sum() < MIN_ABOVE or above.all():
                break
            line = non_negative(columns[above], seconds[above])
            predicted = columns @ line
            for candidate in (floor, float(np.median(seconds[~above]))):
                error = float(relative_errors(np.maximum(predicted, candidate), seconds).mean())
                if error < best_error:
                    best_floor, best, best_error = float(candidate), line, error
            lifted = above | (predicted > (1 + FLOOR_MARGIN) * floor)
            if np.array_equal(lifted, above):
                break
            above = lifted
    return best_floor, best
