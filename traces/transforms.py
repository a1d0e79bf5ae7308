"""Named changes of a trace, each a pure function that writes itself into the trace's history.

A transform is written like a recipe, ``window:from_s=60,until_s=120``. Every result starts at time 0 again, and rows
that a transform leaves out are counted under its name, so rows read = rows kept + rows dropped stays true.
The history names each transform with its parameters; :func:`rerun` applies it to a fresh copy of the source.
"""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traces.errors import InputError, choices
from traces.load import load
from traces.recipe import options
from traces.trace import Ints, Trace


def window(trace: Trace, *, from_s: float, until_s: float) -> Trace:
    """Keep arrivals from ``from_s`` to ``until_s`` seconds after the first, both ends included."""
    at = trace.arrival_ns
    keep = np.flatnonzero((at >= _ns("from_s", from_s)) & (at <= _ns("until_s", until_s)))
    return _keep(trace, keep, "window")


def head(trace: Trace, *, n: int) -> Trace:
    """Keep the first ``n`` requests."""
    return _keep(trace, np.arange(min(_whole("n", n, 1), len(trace))), "head")


def sample(trace: Trace, *, fraction: float, seed: int = 0) -> Trace:
    """Keep each request with chance ``fraction``, independently: the rate falls, the process stays of its kind."""
    if not 0 < _positive("fraction", fraction) <= 1:
        raise InputError(f"sample: fraction={fraction} lies outside 0 to 1")
    drawn = np.random.default_rng(_whole("seed", seed, 0)).random(len(trace))
    return _keep(trace, np.flatnonzero(drawn < float(fraction)), "sample")


def scale_rate(trace: Trace, *, factor: float) -> Trace:
    """Make requests come ``factor`` times as often: 2 halves every gap."""
    return _stretch(trace, 1 / _positive("factor", factor))


def scale_time(trace: Trace, *, factor: float) -> Trace:
    """Make everything take ``factor`` times as long: 2 doubles every gap."""
    return _stretch(trace, _positive("factor", factor))


def repeat(trace: Trace, *, n: int) -> Trace:
    """Play the trace again and again until there are ``n`` requests; a mean gap lies between two rounds.

    A request keeps its ``source_row``, and so its prompt, in every round.
    """
    count = _whole("n", n, 1)
    span_ns = int(trace.arrival_ns[-1])
    round_ns = span_ns + (round(span_ns / (len(trace) - 1)) if len(trace) > 1 else 0)
    index = np.arange(count)
    if round_ns * (count // len(trace) + 1) > np.iinfo(np.int64).max:
        raise InputError(f"repeat: {count} requests of this trace last more than 292 years")
    arrival_ns = trace.arrival_ns[index % len(trace)] + index // len(trace) * round_ns
    return replace(_rows(trace, index % len(trace)), arrival_ns=arrival_ns)


def drop_longer(trace: Trace, *, context_tokens: int) -> Trace:
    """Drop requests whose prompt and output together exceed ``context_tokens``."""
    total = trace.prompt_tokens + trace.output_tokens
    return _keep(trace, np.flatnonzero(total <= _whole("context_tokens", context_tokens, 2)), "drop_longer")


def clip_output(trace: Trace, *, most_tokens: int) -> Trace:
    """Cut outputs off at ``most_tokens``, as a server's limit does."""
    return replace(
        trace, output_tokens=np.minimum(trace.output_tokens, _whole("most_tokens", most_tokens, 1))
    )


def cap_gap(trace: Trace, *, most_s: float) -> Trace:
    """Shorten gaps between arrivals to at most ``most_s`` seconds of the source's own time: whatever
    scale_rate and scale_time did before, they do to the cap, too."""
    cap_ns = _positive("most_s", most_s) * 1e9
    for step in trace.history:
        if step["name"] == "scale_rate":
            cap_ns /= float(step["factor"])
        elif step["name"] == "scale_time":
            cap_ns *= float(step["factor"])
    gaps = np.minimum(np.diff(trace.arrival_ns), max(round(cap_ns), 1))
    return replace(trace, arrival_ns=np.concatenate([np.zeros(1, np.int64), np.cumsum(gaps)]))


def merge(trace: Trace, *, sources: str) -> Trace:
    """Play other traces at the same time: first arrivals coincide, ties keep the order of the traces.

    ``sources`` are what :func:`traces.load.load` takes, joined by ``+``. The rows of each trace are numbered on from
    the largest ``source_row`` of the one before, so that no two requests share a prompt.
    """
    parts = [trace, *map(load, filter(None, sources.split("+")))]
    names = ", ".join(part.name for part in parts)
    for column in ("predicted_output_tokens", "prompt_ids"):
        if len({getattr(part, column) is None for part in parts}) > 1:
            raise InputError(f"merge: not all of {names} have {column}")
    if any(part.closed_loop is not None for part in parts):
        raise InputError(f"merge: one of {names} is a closed loop, whose requests come when others return")
    if any(part.timed != trace.timed for part in parts):
        raise InputError(f"merge: some of {names} have arrival times, some have none")
    dropped: Counter[str] = Counter()
    rows: list[Ints] = []
    after = 0
    for part in parts:
        dropped.update(part.dropped)
        rows.append(part.source_row + after)
        after = int(rows[-1].max()) + 1
    together = Trace(
        name=trace.name,
        arrival_ns=np.zeros(sum(map(len, parts)), np.int64),
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts]),
        output_tokens=np.concatenate([part.output_tokens for part in parts]),
        source_row=np.concatenate(rows),
        dropped=dict(dropped),
        moved_rows=sum(part.moved_rows for part in parts),
        timed=trace.timed,
        history=trace.history,
        predicted_output_tokens=_joined([part.predicted_output_tokens for part in parts]),
        prompt_ids=_joined([part.prompt_ids for part in parts]),
    )
    arrival_ns = np.concatenate([part.arrival_ns for part in parts])
    order = np.argsort(arrival_ns, kind="stable")
    return replace(_rows(together, order), arrival_ns=arrival_ns[order])


def shuffle_lengths(trace: Trace, *, seed: int = 0) -> Trace:
    """Deal prompts and outputs out anew, each by a shuffle of its own: arrivals and both sets of lengths stay, every
    correlation between them goes. A prompt keeps its ``source_row``, an output its guess."""
    prompts, outputs = map(np.random.default_rng, np.random.SeedSequence(_whole("seed", seed, 0)).spawn(2))
    by_prompt = _rows(trace, prompts.permutation(len(trace)))
    by_output = _rows(trace, outputs.permutation(len(trace)))
    return replace(
        by_prompt,
        arrival_ns=trace.arrival_ns,
        output_tokens=by_output.output_tokens,
        predicted_output_tokens=by_output.predicted_output_tokens,
    )


def at_once(trace: Trace) -> Trace:
    """Set arrival times aside: offline work, in the order of the source; a row that comes again (``repeat``) comes
    in a later round."""
    row = trace.source_row
    if moved := bool(np.any(row[1:] < row[:-1])):
        order = np.argsort(row, kind="stable")
        new = np.diff(row[order], prepend=-1) != 0
        place = np.arange(len(row))
        times_before = place - np.maximum.accumulate(np.where(new, place, 0))
        order = order[np.argsort(times_before, kind="stable")]
    return replace(
        trace.rows(order) if moved else trace,
        arrival_ns=np.zeros(len(trace), np.int64),
        moved_rows=0,
        timed=False,
        closed_loop=None,
    )


TRANSFORMS: dict[str, Callable[..., Trace]] = {
    transform.__name__: transform
    for transform in (
        window,
        head,
        sample,
        scale_rate,
        scale_time,
        repeat,
        drop_longer,
        clip_output,
        cap_gap,
        merge,
        shuffle_lengths,
        at_once,
    )
}
"""Transforms by name; keyword-only arguments are their parameters."""


def transform(trace: Trace, text: str) -> Trace:
    """Apply one transform written as ``name:key=value,key=value``.

    Raises:
        InputError: an unknown name or parameter, a missing one, or a value it cannot have.
    """
    name, given = options(text)
    return apply(trace, name, **given)


def apply(trace: Trace, name: str, **parameters: Any) -> Trace:
    """Apply the transform ``name`` and write it, defaults included, into the history.

    Raises:
        InputError: an unknown name or parameter, a missing one, or a value it cannot have.
    """
    if name not in TRANSFORMS:
        raise InputError(f"transform {name!r} is not known; choose {choices(TRANSFORMS)}")
    known = [p for p in inspect.signature(TRANSFORMS[name]).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for key in parameters:
        if key not in [parameter.name for parameter in known]:
            raise InputError(f"{name}: {key!r} is not known; choose {choices(p.name for p in known)}")
    missing = [p.name for p in known if p.default is p.empty and p.name not in parameters]
    if missing:
        raise InputError(f"{name}: {', '.join(missing)} missing")
    changed = TRANSFORMS[name](trace, **parameters)
    defaults = {p.name: p.default for p in known if p.default is not p.empty}
    return replace(changed, history=(*trace.history, {"name": name, **defaults, **parameters}))


def rerun(trace: Trace, history: Iterable[Mapping[str, Any]]) -> Trace:
    """The trace after every step of a history, first to last."""
    for step in history:
        trace = apply(trace, **step)
    return trace


def _keep(trace: Trace, index: NDArray[np.int64], reason: str) -> Trace:
    """Some of the rows, the rest counted as dropped, re-based to the first one kept."""
    if len(index) == 0:
        span_s = trace.arrival_ns[-1] / 1e9
        raise InputError(
            f"{reason}: leaves none of {len(trace)} requests ({trace.name}, 0 to {span_s:.9g} s)"
        )
    dropped = Counter(trace.dropped)
    if len(index) < len(trace):
        dropped[reason] += len(trace) - len(index)
    return replace(_rows(trace, index), dropped=dict(dropped))


def _rows(trace: Trace, index: NDArray[np.int64]) -> Trace:
    """Rows by number, in that order, re-based to the first."""
    picked = trace.rows(index)
    return replace(picked, arrival_ns=picked.arrival_ns - picked.arrival_ns[0])


def _stretch(trace: Trace, factor: float) -> Trace:
    if int(trace.arrival_ns[-1]) * factor >= 2.0**63:
        raise InputError(f"a trace stretched {factor:g} times lasts more than 292 years")
    return replace(trace, arrival_ns=np.rint(trace.arrival_ns * factor).astype(np.int64))


def _joined(columns: list[Any]) -> Any:
    return None if columns[0] is None else np.concatenate(columns)


def _ns(key: str, seconds: Any) -> int:
    try:
        exact = Decimal(str(seconds)) * 10**9
    except InvalidOperation:
        exact = Decimal("nan")
    if not exact.is_finite() or abs(exact) >= 2**63:
        raise InputError(f"{key}={seconds} is not a time in seconds")
    return round(exact)


def _positive(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise InputError(f"{key}={value} is not a number above 0")
    return number


def _whole(key: str, value: Any, least: int) -> int:
    text = str(value)
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) >= least):
        raise InputError(f"{key}={value} is not a whole number of at least {least}")
    return int(text)
