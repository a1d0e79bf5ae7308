"""Synthetic traces from a recipe: one line of text that says everything, the seed included.

    poisson:rate=4,n=1000,prompt=lognormal:512:1.0,output=lognormal:128:0.8,seed=1

First the arrival process (see :mod:`traces.arrivals`), then its options: ``rate`` in requests per second
(``inf``: all at once), ``n`` requests, ``prompt`` and ``output`` laws (see :mod:`traces.lengths`) or
``pairs=SOURCE``, which draws prompt and output together from another trace, ``predicted=SIGMA`` for guesses
of the output that are off by a log-normal factor, ``seed``, and what the process itself takes. Arrivals,
prompts, outputs and guesses have a random stream each, so changing one leaves the others as they were.

A closed loop has clients instead of a rate: ``closed:clients=8,think=2,n=1000,prompt=...,output=...``. Each sends its
next request when its last one has returned and it has thought for a while (exponential, ``think`` seconds on average,
0 if not given); the first requests come at 0.
"""

import inspect
import math
from collections.abc import Callable

import numpy as np

from traces.arrivals import ARRIVALS
from traces.errors import InputError, choices
from traces.lengths import draw, whole_tokens
from traces.recipe import options
from traces.trace import ClosedLoop, Floats, Ints, Trace

MAX_THINK_S = 366 * 86400.0
"""A longer mean think time is a slip of the finger."""
MAX_REQUESTS = 100_000_000
"""The longest trace that is made; more is a slip of the finger."""
CLOSED = "closed"
"""Not an arrival process: requests come when earlier ones return."""
BEGINNINGS = (*ARRIVALS, CLOSED)
"""What a recipe begins with."""


def is_recipe(source: str) -> bool:
    """Whether a source names an arrival process."""
    return source.partition(":")[0] in BEGINNINGS


def synthesise(recipe: str, seed: int | None, load: Callable[[str], Trace]) -> Trace:
    """The trace of a recipe; ``load`` reads the traces it names.

    Raises:
        InputError: an unknown option, a missing one, or a value it cannot have.
    """
    name, given = options(recipe)
    closed = name == CLOSED
    process = ARRIVALS["constant" if closed else name]
    own = [p for p in inspect.signature(process).parameters.values() if p.kind is p.KEYWORD_ONLY]
    when = ("clients", "think") if closed else ("rate", *(parameter.name for parameter in own))
    known = ("n", *when, "prompt", "output", "pairs", "predicted", "seed")
    for key in given:
        if key not in known:
            raise InputError(f"recipe {recipe!r}: option {key!r} is not known; choose {choices(known)}")
    lengths = ("pairs",) if "pairs" in given else ("prompt", "output")
    by_itself = ("clients",) if closed else ("rate", *(p.name for p in own if p.default is p.empty))
    missing = [key for key in ("n", *by_itself, *lengths) if key not in given]
    if missing:
        raise InputError(f"recipe {recipe!r}: {', '.join(missing)} missing")
    if "pairs" in given and ("prompt" in given or "output" in given):
        raise InputError(f"recipe {recipe!r}: pairs gives both lengths; leave prompt and output out")
    n = _whole(recipe, "n", given["n"], 1, MAX_REQUESTS)
    start = _whole(recipe, "seed", given["seed"], 0, 2**63) if "seed" in given else (seed or 0)
    rate = math.inf if closed else _number(recipe, "rate", given["rate"], may_be_infinite=True)
    arguments = {p.name: _number(recipe, p.name, given[p.name]) for p in own if p.name in given}
    loop = _closed_loop(recipe, given, start) if closed else None
    arrivals, prompts, outputs, guesses = map(np.random.default_rng, np.random.SeedSequence(start).spawn(4))

    try:
        with np.errstate(all="ignore"):
            arrival_s = np.zeros(n) if math.isinf(rate) else process(arrivals, n, rate, **arguments)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        said = ", ".join(f"{key}={given[key]}" for key in given if key == "rate" or key in arguments)
        raise InputError(f"recipe {recipe!r}: {said} is beyond what floating point can do") from None
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
        timed=not closed,
        predicted_output_tokens=predicted,
        closed_loop=loop,
    )


def _closed_loop(recipe: str, given: dict[str, str], seed: int) -> ClosedLoop:
    clients = _whole(recipe, "clients", given["clients"], 1, MAX_REQUESTS)
    think_s = _number(recipe, "think", given.get("think", "0"), above_zero=False)
    if think_s > MAX_THINK_S:
        raise InputError(f"recipe {recipe!r}: think={think_s:g} s is more than a year")
    return ClosedLoop(clients, think_s, seed)


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
