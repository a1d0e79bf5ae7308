"""Checks of the numbers in a model file: one line that names the field and what it holds."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from traces.errors import InputError


def non_negative_number(value: Any, name: str) -> float:
    """``value`` as a finite float of at least 0.

    Raises:
        InputError: it is something else.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < 0
    ):
        raise InputError(f"{name} must be a finite number of at least 0, not {value!r}")
    return float(value)


def number_list(value: Any, name: str, rising: bool = False) -> tuple[float, ...]:
    """``value`` as a tuple of finite floats of at least 0, each larger than the one before if ``rising``.

    Raises:
        InputError: it is something else.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} must be a list of numbers, not {value!r}")
    numbers = tuple(non_negative_number(entry, f"{name}[{i}]") for i, entry in enumerate(value))
    if rising and any(a >= b for a, b in pairwise(numbers)):
        raise InputError(f"{name} must rise, not {list(numbers)}")
    return numbers
