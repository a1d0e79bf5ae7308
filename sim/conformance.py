"""Does a cost model keep its contract? A small grid of passes says which law it breaks, and at which shape.

The laws are those of :class:`sim.cost.CostModel`. Costs that fall are apart from the others: a model that returns
what was measured may fall, if it says so with ``monotone = False``.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sim.step import Step, concat, padded_decode, padded_prefill
from traces.trace import Floats

CONTRACT = ("name", "batch_overhead_s", "seconds", "outside", "to_json")
"""What a cost model must have."""
ROWS = (1, 2, 3, 4, 8, 17, 64)
LENGTHS = (1, 16, 100, 1024)
"""Of the passes that are tried: padded prefills and decode steps, and each of them with a row that decodes."""
GROWTH = (1, 16, 1024)
"""By how much each field is raised, one at a time."""
ROUNDING = 1e-9
"""A relative fall of less is floating point, not the model."""


def tried() -> Step:
    """The passes that a model is tried on."""
    rows, lengths = (grid.ravel() for grid in np.meshgrid(ROWS, LENGTHS))
    prefill, decode = padded_prefill(rows, lengths), padded_decode(rows, lengths)
    mixed = {name: column + vars(decode)[name][:1] for name, column in vars(prefill).items()}
    mixed["max_context_tokens"] = np.maximum(prefill.max_context_tokens, decode.max_context_tokens[0])
    return concat(prefill, decode, Step(**mixed))


def broken_contract(model: Any) -> str | None:
    """The first law that a model breaks, in words that follow its name; None for a sound one. Falling costs apart."""
    missing = [name for name in CONTRACT if not hasattr(model, name)]
    if missing:
        return f"lacks {', '.join(missing)}; see sim.cost.CostModel"
    if not isinstance(model.name, str):
        return f"has a name that is no text: {model.name!r}"
    overheads = model.batch_overhead_s
    if not (isinstance(overheads, (tuple, list)) and len(overheads) == 2 and all(map(_is_time, overheads))):
        return f"has a batch_overhead_s that is not two numbers of at least 0: {overheads!r}"
    for check in (_broken_seconds, _not_vectorised, _broken_words):
        broken = _checked(check, model)
        if broken is not None:
            return broken
    return None


def fall(model: Any) -> str | None:
    """Where the cost falls as one field of a pass grows (law 7), in words that follow the model's name; else None."""
    return _checked(_falling, model)


def may_fall(model: Any) -> bool:
    """Whether a model is exempt from law 7: it says ``monotone = False``."""
    return getattr(model, "monotone", True) is False


def _checked(check: Callable[[Any, Step], str | None], model: Any) -> str | None:
    """What a check says; whatever foreign code raises meanwhile is its own fault, said in one line."""
    try:
        with np.errstate(all="ignore"):
            return check(model, tried())
    except Exception as error:
        return f"raises {type(error).__name__}: {' '.join(str(error).split())}"


def _falling(model: Any, steps: Step) -> str | None:
    before = model.seconds(steps)
    for field, column in vars(steps).items():
        for more in GROWTH:
            after = model.seconds(Step(**{**vars(steps), field: column + more}))
            falling = np.flatnonzero(after < before * (1 - ROUNDING))
            if len(falling):
                i = int(falling[0])
                return (
                    f"falls from {before[i]:g} to {after[i]:g} s as {field} grows from {column[i]} to "
                    f"{column[i] + more} at {steps.describe(i)}"
                )
    return None


def _broken_seconds(model: Any, steps: Step) -> str | None:
    """Shape and values of the costs of many passes, and of none."""
    for some in (steps, steps.take(slice(0))):
        found, asked = model.seconds(some), np.shape(some.prefill_tokens)
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
            kind = f"an array of {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__
            return f"gives {kind}, not a numpy array of numbers"
        if found.shape != asked:
            return f"gives {found.shape} costs for columns of the shape {asked}"
    found = np.asarray(model.seconds(steps))
    for wrong, what in ((~np.isfinite(found), "finite"), (~(found > 0), "above 0")):
        if wrong.any():
            i = int(np.argmax(wrong))
            return f"gives {found[i]} s, which is not {what}, for a pass of {steps.describe(i)}"
    return None


def _not_vectorised(model: Any, steps: Step) -> str | None:
    """Whether a pass costs the same alone as among others."""
    together: Floats = model.seconds(steps)
    for i in range(0, len(steps), 5):
        alone = float(model.seconds(steps.take(slice(i, i + 1)))[0])
        if not math.isclose(alone, float(together[i]), rel_tol=ROUNDING):
            return f"is not vectorised: {steps.describe(i)} costs {together[i]:g} s among others, {alone:g} s alone"
    return None


def _broken_words(model: Any, steps: Step) -> str | None:
    """What it says of its domain and of itself."""
    said = model.outside(steps)
    if not (said is None or isinstance(said, str)):
        return f"answers outside(steps) with {type(said).__name__}, not with text or None"
    document = model.to_json()
    if not isinstance(document, dict):
        return f"answers to_json() with {type(document).__name__}, not with a dict"
    json.dumps(document, allow_nan=False)
    return None


def _is_time(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
    )
