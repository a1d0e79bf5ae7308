"""Laws of prompt and output lengths: how many tokens, as whole numbers of at least 1.

A law is written ``NAME:NUMBER:NUMBER``, a bare number is that constant:

    constant:N              always N
    uniform:LOW:HIGH        every whole number from LOW to HIGH, both included, equally often
    lognormal:MEDIAN:SIGMA  exp of a normal; MEDIAN is in tokens, SIGMA that of the logarithm
    zipf:ALPHA:MAX          k = 1 .. MAX with a chance in proportion to k**-ALPHA
    hist:SOURCE             drawn, with replacement, from that column of another trace
"""

import math
from collections.abc import Callable

import numpy as np

from traces.errors import InputError, choices
from traces.numbers import MAX_TOKENS
from traces.trace import Floats, Ints, Trace

LAWS = {"constant": 1, "uniform": 2, "lognormal": 2, "zipf": 2, "hist": 1}
"""How many parameters each law takes."""
MAX_ZIPF = 10_000_000
"""The longest length of a Zipf law: its chances are a table of this many numbers."""


def draw(text: str, rng: np.random.Generator, n: int, load: Callable[[str], Trace], column: str) -> Ints:
    """``n`` lengths by the law ``text``; ``column`` is the option's name and the column that ``hist`` draws
    from.

    Raises:
        InputError: an unknown law, or parameters it cannot have; the line names option and value.
    """
    name, *parameters = text.split(":")
    if name == "hist":
        values: Ints = getattr(load(":".join(parameters)), column)
        return rng.choice(values, n)
    if not parameters and _is_number(name):
        name, parameters = "constant", [name]
    if name not in LAWS:
        raise InputError(
            f"{column}: law {name!r} of {text!r} is not known; choose {choices(LAWS)} or a number"
        )
    if len(parameters) != LAWS[name] or not all(map(_is_number, parameters)):
        raise InputError(
            f"{column}: {text!r} needs {LAWS[name]} numbers after {name}, such as {_EXAMPLES[name]}"
        )
    numbers = [float(p) for p in parameters]
    if not _possible(name, numbers):
        raise InputError(f"{column}: {text!r} is impossible; {_EXAMPLES[name]} would do")
    return _drawn(name, numbers, rng, n, f"{column}: {text!r}")


_EXAMPLES = {
    "constant": "constant:512",
    "uniform": "uniform:1:1024 (whole, from 1, rising)",
    "lognormal": "lognormal:512:1.0 (median from 1, sigma from 0)",
    "zipf": f"zipf:1.2:4096 (alpha from 0, longest from 1 to {MAX_ZIPF})",
}


def _possible(name: str, numbers: list[float]) -> bool:
    whole = all(number == int(number) for number in numbers)
    if name == "constant":
        return whole and 1 <= numbers[0] <= MAX_TOKENS
    if name == "uniform":
        return whole and 1 <= numbers[0] <= numbers[1] <= MAX_TOKENS
    if name == "lognormal":
        return 1 <= numbers[0] <= MAX_TOKENS and numbers[1] >= 0
    return numbers[0] >= 0 and numbers[1] == int(numbers[1]) and 1 <= numbers[1] <= MAX_ZIPF


def _drawn(name: str, numbers: list[float], rng: np.random.Generator, n: int, said: str) -> Ints:
    if name == "constant":
        return np.full(n, int(numbers[0]), np.int64)
    if name == "uniform":
        return rng.integers(int(numbers[0]), int(numbers[1]), n, endpoint=True)
    if name == "lognormal":
        with np.errstate(over="ignore"):
            lengths = numbers[0] * np.exp(numbers[1] * rng.standard_normal(n))
        return whole_tokens(lengths, said)
    chances = np.arange(1.0, numbers[1] + 1) ** -numbers[0]
    below = np.cumsum(chances)
    found: Ints = np.searchsorted(below, rng.random(n) * below[-1], side="right").astype(np.int64)
    return found + 1


def whole_tokens(lengths: Floats, said: str) -> Ints:
    """Lengths rounded to whole tokens, at least 1.

    Raises:
        InputError: a length above :data:`~traces.numbers.MAX_TOKENS`, after the words ``said``.
    """
    if lengths.max() > MAX_TOKENS:
        raise InputError(f"{said} gives a length above {MAX_TOKENS} tokens")
    return np.maximum(np.rint(lengths), 1).astype(np.int64)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
