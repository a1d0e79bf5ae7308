"""Tables of hardware, kernels and models: TOML, one row a table, and every mistake in one line.

The rows that come with the program lie in ``sim/data``. Your own go into one file, named by the environment
variable ``STATIC_BATCHING_TABLES``, that may hold ``[hardware.NAME]``, ``[kernels.NAME]`` and ``[models.NAME]``; a
row of a name that exists takes its place.
"""

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from traces.errors import InputError, choices

ENVIRONMENT = "STATIC_BATCHING_TABLES"
SECTIONS = ("hardware", "kernels", "models")
BUILT_IN = Path(__file__).parent / "data"


class Kind(NamedTuple):
    """What a key may hold."""

    words: str
    fits: Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


COUNT = Kind("a whole number of at least 1", lambda v: type(v) is int and v >= 1)
POSITIVE = Kind("a number above 0", lambda v: _number(v) and v > 0)
NOT_NEGATIVE = Kind("a number of at least 0", lambda v: _number(v) and v >= 0)
SHARE = Kind("a share above 0 and at most 1", lambda v: _number(v) and 0 < v <= 1)
FLAG = Kind("true or false", lambda v: isinstance(v, bool))
WORDS = Kind("a text that is not empty", lambda v: isinstance(v, str) and bool(v.strip()))


def built_in(file: str, section: str) -> dict[str, dict[str, Any]]:
    """Rows of one section of a file that comes with the program, by name."""
    return _read(str(BUILT_IN / file)).get(section, {})


def own(section: str) -> dict[str, dict[str, Any]]:
    """Rows of one section of the user's file, by name; none without a file.

    Raises:
        InputError: the file cannot be read, is not TOML, or holds anything but the sections there are.
    """
    path = os.environ.get(ENVIRONMENT)
    return _read(path).get(section, {}) if path else {}


def own_place() -> str:
    """How error lines name the user's file."""
    return os.environ.get(ENVIRONMENT, ENVIRONMENT)


@cache
def _read(path: str) -> dict[str, dict[str, dict[str, Any]]]:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"tables {path!r} ({ENVIRONMENT}): {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    for section, rows in document.items():
        if section not in SECTIONS:
            raise InputError(
                f"{path}: unknown table [{section}]; known are {choices(SECTIONS)}, each [x.NAME]"
            )
        for name, row in rows.items() if isinstance(rows, dict) else [("", rows)]:
            if not isinstance(row, dict):
                raise InputError(f"{path}: [{section}] holds {name or rows!r} outside a row [{section}.NAME]")
    return document


def checked(
    row: Mapping[str, Any], place: str, required: Mapping[str, Kind], optional: Mapping[str, Kind]
) -> dict[str, Any]:
    """The row, once every key of it is known and fits and none is missing.

    Args:
        row: keys and values as they stand in the file.
        place: file and table, for error lines.
        required: keys that must be there, and what they hold.
        optional: keys that may be there.

    Raises:
        InputError: the first mistake, with place, key, value and what belongs there.
    """
    known = {**required, **optional}
    for key, value in row.items():
        if key not in known:
            raise InputError(f"{place}: unknown key {key!r}; known are {choices(known)}")
        if not known[key].fits(value):
            raise InputError(f"{place}: {key} = {value!r} is not {known[key].words}")
    missing = [key for key in required if key not in row]
    if missing:
        raise InputError(f"{place}: needs the key {missing[0]!r}, {required[missing[0]].words}")
    return dict(row)
