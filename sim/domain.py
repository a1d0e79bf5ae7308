"""Where a measured cost model is valid: the rows, prompts and contexts that were profiled."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.step import Step
from traces.errors import InputError
from traces.trace import Ints

Range = tuple[int, int]
"""Smallest and largest, both included."""


@dataclass(frozen=True)
class Domain:
    """Profiled ranges by phase; None for a phase that nobody measured."""

    prefill_rows: Range | None
    prompt_tokens: Range | None
    decode_rows: Range | None
    context_tokens: Range | None

    @classmethod
    def of(cls, steps: Step) -> "Domain":
        """The ranges that measured passes span. Prefill rows are those that reach the output head."""
        prefill, decode = steps.prefill_tokens > 0, steps.decode_rows > 0
        return cls(
            _range(steps.logit_rows[prefill & ~decode]),
            _range(steps.max_context_tokens[prefill]),
            _range(steps.decode_rows[decode]),
            _range(steps.max_context_tokens[decode]),
        )

    def outside(self, steps: Step) -> str | None:
        """The first of these passes that lies outside, in words with how far; None if all lie inside."""
        prefill, decode = np.ravel(steps.prefill_tokens) > 0, np.ravel(steps.decode_rows) > 0
        first: tuple[int, str] | None = None
        for phase, name, where, column, limits in (
            ("prefill", "rows", prefill & ~decode, steps.logit_rows, self.prefill_rows),
            ("prefill", "prompt tokens", prefill & ~decode, steps.max_context_tokens, self.prompt_tokens),
            ("decode", "rows", decode, steps.decode_rows, self.decode_rows),
            ("decode", "context tokens", decode, steps.max_context_tokens, self.context_tokens),
        ):
            values = np.ravel(column)
            low, high = limits or (1, 0)
            beyond = where & ((values < low) | (values > high))
            if beyond.any():
                i = int(np.argmax(beyond))
                if first is None or i < first[0]:
                    first = (i, f"{phase} with {_how_far(int(values[i]), name, limits)}")
        return first[1] if first else None

    def to_json(self) -> dict[str, Any]:
        """Each range as two numbers."""
        return {name: list(limits) if limits else None for name, limits in vars(self).items()}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Domain":
        """The domain that :meth:`to_json` wrote down."""
        names = ("prefill_rows", "prompt_tokens", "decode_rows", "context_tokens")
        return cls(*(_read_range(document[name], name) for name in names))


def _range(values: Ints) -> Range | None:
    return (int(values.min()), int(values.max())) if len(values) else None


def _read_range(value: Any, name: str) -> Range | None:
    if value is None:
        return None
    if not (isinstance(value, list) and len(value) == 2 and all(type(limit) is int for limit in value)):
        raise InputError(f"domain {name} must be null or two whole numbers, not {value!r}")
    return value[0], value[1]


def _how_far(value: int, name: str, limits: Range | None) -> str:
    if limits is None:
        return f"{value} {name}, a phase that was not profiled"
    low, high = limits
    if value > high:
        return f"{value} {name}, {value / max(high, 1):.2f} times the largest profiled ({high})"
    return f"{value} {name}, below the smallest profiled ({low})"
