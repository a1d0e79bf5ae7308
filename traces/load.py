"""One way in: a trace by file path, built-in name or recipe."""

from pathlib import Path

import numpy as np

from traces.errors import InputError, choices
from traces.fetch import REMOTE, fetched
from traces.mapping import parse_map
from traces.read import read
from traces.synthetic import BEGINNINGS, is_recipe, synthesise
from traces.tokenizer import tokenizer as cutter
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


def load(
    source: str,
    *,
    seed: int | None = None,
    format_name: str | None = None,
    columns: str | None = None,
    skip_bad: bool = False,
    tokenizer: str | None = None,
) -> Trace:
    """The trace that ``source`` names.

    Args:
        source: a built-in name, a recipe (see :mod:`traces.synthetic`), the name of a fetched trace (see
            :mod:`traces.fetch`), or the path of a file. A file called like a built-in is reached as ``./NAME``.
        seed: for a recipe that names no seed of its own; None: 0. A file has nothing random.
        format_name: format of the file, a key of :data:`traces.formats.FORMATS`; None: recognised from the content.
        columns: which columns of the file to read instead of a format's, see :func:`traces.mapping.parse_map`.
        skip_bad: drop unusable rows of the file and count them by reason, instead of refusing it.
        tokenizer: name or file of a tokenizer, for files that hold text.

    Raises:
        InputError: nothing of that name, or it cannot be used; one line with the place.
    """
    reading = {"--format": format_name, "--map": columns, "--skip-bad": skip_bad, "--tokenizer": tokenizer}
    for option, value in reading.items():
        if value and (source in BUILT_IN or is_recipe(source)):
            raise InputError(f"{option} is for files, {source!r} is none")
    if source in BUILT_IN:
        return BUILT_IN[source]()
    if is_recipe(source):
        return synthesise(source, seed, load)
    if format_name and columns:
        raise InputError("--format and --map exclude each other")
    path = fetched(source) or Path(source)
    if not path.exists() and (":" in source or "=" in source or not path.suffix):
        raise InputError(
            f"{source!r}: no such file; built in: {choices(BUILT_IN)}; "
            f"a recipe begins with {choices(BEGINNINGS)}; to be fetched: {choices(REMOTE)}"
        )
    return read(
        path,
        format_name=format_name,
        layout=parse_map(columns) if columns else None,
        skip_bad=skip_bad,
        cut=(lambda texts: cutter(tokenizer)(texts)) if tokenizer else None,
    )
