"""Arrival processes: when requests come, in seconds from the first one, which comes at 0.

Renewal processes draw independent gaps of mean 1/rate. The others are Poisson processes whose rate changes
with time: arrivals of a unit Poisson process, each moved to where the summed-up rate reaches it
(Lewis and Shedler 1979; Devroye, Non-Uniform Random Variate Generation, VI.1.3).
"""

import math
from collections.abc import Callable

import numpy as np

from traces.errors import InputError
from traces.trace import Floats

Rng = np.random.Generator


def constant(rng: Rng, n: int, rate: float) -> Floats:
    """One request every 1/rate seconds, placed on an absolute schedule: no error adds up."""
    del rng
    return np.arange(n) / rate


def poisson(rng: Rng, n: int, rate: float) -> Floats:
    """Exponential gaps: CV 1."""
    return _summed(rng.exponential(1 / rate, n - 1))


def gamma(rng: Rng, n: int, rate: float, *, cv: float) -> Floats:
    """Gamma gaps of shape 1/cv**2 and scale cv**2/rate: the mean stays 1/rate whatever the CV."""
    return _summed(rng.gamma(1 / cv**2, cv**2 / rate, n - 1))


def weibull(rng: Rng, n: int, rate: float, *, cv: float) -> Floats:
    """Weibull gaps of the shape that has this CV; the mean stays 1/rate."""
    shape = weibull_shape(cv)
    return _summed(rng.weibull(shape, n - 1) / (rate * math.gamma(1 + 1 / shape)))


def weibull_shape(cv: float) -> float:
    """Shape k with CV**2 = gamma(1 + 2/k) / gamma(1 + 1/k)**2 - 1.

    Raises:
        InputError: the CV lies outside 0.01 to 100, where the shape cannot be told.
    """
    if not 0.01 <= cv <= 100:
        raise InputError(f"cv={cv:g} of Weibull gaps lies outside 0.01 to 100")
    low, high = 0.01, 200.0
    for _ in range(100):
        shape = math.sqrt(low * high)
        # The CV falls as the shape grows; logarithms, since gamma itself overflows at small shapes.
        if math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape) > math.log1p(cv**2):
            low = shape
        else:
            high = shape
    return shape


def onoff(rng: Rng, n: int, rate: float, *, on_s: float, off_s: float) -> Floats:
    """Poisson at ``rate`` for on_s seconds, silence for off_s, and so on; ``rate`` is that of the on time."""
    busy = _unit(rng, n) / rate
    return busy + np.floor(busy / on_s) * off_s


def diurnal(rng: Rng, n: int, rate: float, *, period_s: float = 86_400.0, amplitude: float = 0.5) -> Floats:
    """Rate times 1 + amplitude x sin(2 pi t / period_s), from the mean rate upwards."""
    if amplitude > 1:
        raise InputError(f"amplitude={amplitude:g} lies outside 0 to 1: the rate would turn negative")
    turn = 2 * np.pi / period_s
    wanted = _unit(rng, n) / rate
    # The sum strays from t by at most amplitude x period / pi, so this brackets it.
    low, high = wanted - amplitude * period_s / np.pi, wanted.copy()
    for _ in range(64):
        middle = (low + high) / 2
        short = middle + amplitude / turn * (1 - np.cos(turn * middle)) < wanted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    found: Floats = np.maximum.accumulate(np.maximum((low + high) / 2, 0.0))
    found[0] = 0.0
    return found


def ramp(rng: Rng, n: int, rate: float, *, to_rate: float, over_s: float) -> Floats:
    """From ``rate`` in a straight line to ``to_rate`` within over_s seconds, then on at ``to_rate``."""
    wanted = _unit(rng, n)
    slope = (to_rate - rate) / over_s
    in_ramp = (rate + to_rate) / 2 * over_s
    # Root of rate t + slope t**2 / 2 = wanted, in the form that stands slope 0.
    inside = 2 * wanted / (rate + np.sqrt(np.maximum(rate**2 + 2 * slope * wanted, 0.0)))
    return np.where(wanted < in_ramp, inside, over_s + (wanted - in_ramp) / to_rate)


def spike(rng: Rng, n: int, rate: float, *, at_s: float, for_s: float, times: float) -> Floats:
    """Poisson at ``rate``, but at ``times`` that from at_s on for for_s seconds."""
    sums = np.cumsum([0.0, rate * at_s, rate * times * for_s])
    wanted = _unit(rng, n)
    until = np.interp(wanted, sums, [0.0, at_s, at_s + for_s])
    return np.where(wanted > sums[-1], at_s + for_s + (wanted - sums[-1]) / rate, until)


ARRIVALS: dict[str, Callable[..., Floats]] = {
    "constant": constant,
    "poisson": poisson,
    "gamma": gamma,
    "weibull": weibull,
    "onoff": onoff,
    "diurnal": diurnal,
    "ramp": ramp,
    "spike": spike,
}
"""Processes by their name in a recipe; keyword-only arguments are the recipe's options, numbers above 0."""


def _summed(gaps: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(gaps)])


def _unit(rng: Rng, n: int) -> Floats:
    """Arrivals of a Poisson process of rate 1, the first at 0."""
    return _summed(rng.exponential(1.0, n - 1))
