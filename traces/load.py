"""One way in: a trace by file path, built-in name or recipe."""

from pathlib import Path

import numpy as np

from traces.arrivals import ARRIVALS
from traces.errors import InputError, choices
from traces.read import read
from traces.synthetic import is_recipe, synthesise
from traces.trace import Trace


def textbook() -> Trace:
    """Four requests at once, prompts 10, 30, 5, 20 and outputs 15, 10, 20, 12: 55 of 120 prefill slots are
    padding and 23 of 80 decode slots idle."""
    return Trace(
        name="textbook",
        arrival_ns=np.zeros(4, np.int64),
        prompt_tokens=np.array([10, 30, 5, 20], np.int64),
        output_tokens=np.array([15, 10, 20, 12], np.int64),
        source_row=np.arange(4, dtype=np.int64),
    )


BUILT_IN = {"textbook": textbook}
"""Traces that are part of the project, by name."""


def load(source: str, *, seed: int | None = None) -> Trace:
    """The trace that ``source`` names.

    Args:
        source: a built-in name, a recipe (see :mod:`traces.synthetic`), or the path of a file. A file called
            like a built-in is reached as ``./NAME``.
        seed: for a recipe that names no seed of its own; None: 0. A file has nothing random.

    Raises:
        InputError: nothing of that name, or it cannot be used; one line with the place.
    """
    if source in BUILT_IN:
        return BUILT_IN[source]()
    if is_recipe(source):
        return synthesise(source, seed, load)
    path = Path(source)
    if not path.exists() and (":" in source or "=" in source or not path.suffix):
        raise InputError(
            f"{source!r}: no such file; built in: {choices(BUILT_IN)}; "
            f"a recipe begins with {choices(ARRIVALS)}"
        )
    return read(path)
