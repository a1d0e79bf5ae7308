"""Where a measured cost model is valid: the rows, prompts and contexts that were profiled."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.step import Step
from traces.errors import InputError
from traces.trace import Floats, Ints

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
        """Which of these passes lies furthest outside, in words with how far; None if all lie inside."""
        prefill, decode = np.ravel(steps.prefill_tokens) > 0, np.ravel(steps.decode_rows) > 0
        context, rows = np.ravel(steps.max_context_tokens), np.ravel(steps.decode_rows)
        prompts = np.ravel(steps.logit_rows)
        furthest: tuple[float, str] | None = None
        for phase, name, where, values, count, limits in (
            ("prefill", "rows", prefill & ~decode, prompts, prompts, self.prefill_rows),
            ("prefill", "prompt tokens", prefill & ~decode, context, prompts, self.prompt_tokens),
            ("decode", "rows", decode, rows, rows, self.decode_rows),
            ("decode", "context tokens", decode, context, rows, self.context_tokens),
        ):
            far = np.where(where, _factor(values, limits), 0.0)
            i = int(np.argmax(far)) if far.size else 0
            if far.size and far[i] > 1 and (furthest is None or far[i] > furthest[0]):
                shape = f"{int(count[i])} rows x {int(context[i])} tokens"
                line = f"{phase} with {_how_far(int(values[i]), name, limits)}, at {shape}"
                furthest = (float(far[i]), line)
        return furthest[1] if furthest else None

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


def _factor(values: Ints, limits: Range | None) -> Floats:
    """How many times each value is beyond its limits, above or below; at most 1 inside, infinite without limits."""
    if limits is None:
        return np.full(len(values), np.inf)
    low, high = limits
    return np.maximum(values / max(high, 1), low / np.maximum(values, 1))


def _how_far(value: int, name: str, limits: Range | None) -> str:
    if limits is None:
        return f"{value} {name}, a phase that was not profiled"
    low, high = limits
    if value > high:
        return f"{value} {name}, {value / max(high, 1):.2f} times the largest profiled ({high})"
    return f"{value} {name}, {value / max(low, 1):.2f} times the smallest profiled ({low})"
