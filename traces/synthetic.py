"""Synthetic traces from a recipe: one line of text that says everything, the seed included.

    poisson:rate=4,n=1000,prompt=lognormal:512:1.0,output=lognormal:128:0.8,seed=1

First the arrival process (see :mod:`traces.arrivals`), then its options: ``rate`` in requests per second
(``inf``: all at once), ``n`` requests, ``prompt`` and ``output`` laws (see :mod:`traces.lengths`) or
``pairs=SOURCE``, which draws prompt and output together from another trace, ``predicted=SIGMA`` for guesses
of the output that are off by a log-normal factor, ``seed``, and what the process itself takes. Arrivals,
prompts, outputs and guesses have a random stream each, so changing one leaves the others as they were.
"""

import inspect
import math
from collections.abc import Callable

import numpy as np

from traces.arrivals import ARRIVALS
from traces.errors import InputError, choices
from traces.lengths import draw, whole_tokens
from traces.recipe import options
from traces.trace import Floats, Ints, Trace

COMMON = ("rate", "n", "prompt", "output", "pairs", "predicted", "seed")
"""Options that every process takes."""
MAX_REQUESTS = 100_000_000
"""The longest trace that is made; more is a slip of the finger."""
CLOSED = "closed"
"""The name that says why there is no closed loop here."""


def is_recipe(source: str) -> bool:
    """Whether a source names an arrival process."""
    return source.partition(":")[0] in (*ARRIVALS, CLOSED)


def synthesise(recipe: str, seed: int | None, load: Callable[[str], Trace]) -> Trace:
    """The trace of a recipe; ``load`` reads the traces it names.

    Raises:
        InputError: an unknown option, a missing one, or a value it cannot have.
    """
    name, given = options(recipe)
    if name == CLOSED:
        raise InputError(
            "closed: a closed loop sends a client's next request when its last one returns, "
            "which only the server knows; it is not made here yet"
        )
    process = ARRIVALS[name]
    own = [p for p in inspect.signature(process).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = (*COMMON, *(parameter.name for parameter in own))
    for key in given:
        if key not in known:
            raise InputError(f"recipe {recipe!r}: option {key!r} is not known; choose {choices(known)}")
    lengths = ("pairs",) if "pairs" in given else ("prompt", "output")
    required = ["rate", "n", *lengths, *(p.name for p in own if p.default is p.empty)]
    missing = [key for key in required if key not in given]
    if missing:
        raise InputError(f"recipe {recipe!r}: {', '.join(missing)} missing")
    if "pairs" in given and ("prompt" in given or "output" in given):
        raise InputError(f"recipe {recipe!r}: pairs gives both lengths; leave prompt and output out")
    n = _whole(recipe, "n", given["n"], 1, MAX_REQUESTS)
    start = _whole(recipe, "seed", given["seed"], 0, 2**63) if "seed" in given else (seed or 0)
    rate = _number(recipe, "rate", given["rate"], may_be_infinite=True)
    arguments = {p.name: _number(recipe, p.name, given[p.name]) for p in own if p.name in given}
    arrivals, prompts, outputs, guesses = map(np.random.default_rng, np.random.SeedSequence(start).spawn(4))

    arrival_s = np.zeros(n) if math.isinf(rate) else process(arrivals, n, rate, **arguments)
    if "pairs" in given:
        pairs = load(given["pairs"])
        drawn = prompts.integers(0, len(pairs), n)
        prompt_tokens, output_tokens = pairs.prompt_tokens[drawn], pairs.output_tokens[drawn]
    else:
        prompt_tokens = draw(given["prompt"], prompts, n, load, "prompt_tokens")
        output_tokens = draw(given["output"], outputs, n, load, "output_tokens")
    predicted = None
    if "predicted" in given:
        sigma = _number(recipe, "predicted", given["predicted"], above_zero=False)
        with np.errstate(over="ignore"):
            guess = output_tokens * np.exp(sigma * guesses.standard_normal(n))
        predicted = whole_tokens(np.asarray(guess, np.float64), f"recipe {recipe!r}: predicted")
    return Trace(
        name=recipe if "seed" in given else f"{recipe}{',' if given else ':'}seed={start}",
        arrival_ns=_to_ns(arrival_s, recipe),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        source_row=np.arange(n, dtype=np.int64),
        predicted_output_tokens=predicted,
    )


def _to_ns(arrival_s: Floats, recipe: str) -> Ints:
    if not np.isfinite(arrival_s[-1]) or arrival_s[-1] > 2**62 / 1e9:
        raise InputError(
            f"recipe {recipe!r}: the last request comes after more than a century; a higher rate?"
        )
    return np.rint(arrival_s * 1e9).astype(np.int64)


def _whole(recipe: str, key: str, text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not text.isascii() or not least <= int(text[:25]) <= most:
        raise InputError(f"recipe {recipe!r}: {key}={text} is not a whole number from {least} to {most}")
    return int(text)


def _number(
    recipe: str, key: str, text: str, *, may_be_infinite: bool = False, above_zero: bool = True
) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if value > 0 and (math.isfinite(value) or may_be_infinite):
        return value
    if value == 0 and not above_zero:
        return value
    raise InputError(f"recipe {recipe!r}: {key}={text} is not a number {'above' if above_zero else 'from'} 0")
