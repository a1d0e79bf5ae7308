"""The contract of a cost model, and the one place where its seconds become nanoseconds.

Ten lines suffice for a model of your own::

    class MyModel:
        name = "mine"
        batch_overhead_s = (0.0, 0.0)

        def seconds(self, steps):
            return 2e-3 + 1e-6 * (steps.prefill_tokens + steps.decode_rows) + 1e-9 * steps.decode_kv_tokens

        def outside(self, steps):
            return None

        def to_json(self):
            return {"kind": "mine"}

``--cost package.module:MyModel`` tries it on a few passes and names the first law it breaks (:mod:`sim.conformance`).
"""

from typing import Any, Protocol

import numpy as np

from sim.step import Step
from traces.errors import InputError
from traces.trace import Floats, Ints


class CostModel(Protocol):
    """What a forward pass costs.

    Pre: any :class:`~sim.step.Step` with non-negative columns. Post: one finite, positive number of seconds
    per pass, which never falls as any column grows. A model that breaks this breaks the ledger: lines that should
    be waste turn negative, and are shown as such. A model that returns what was measured may fall; it then says
    ``monotone = False``.
    """

    @property
    def name(self) -> str:
        """Short name for tables."""

    @property
    def batch_overhead_s(self) -> tuple[float, float]:
        """Seconds a batch costs outside its passes: before the prefill, after the last step."""

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns of ``steps``."""

    def outside(self, steps: Step) -> str | None:
        """Why some of these passes lie outside what the model is valid for, with the shape; None if all inside."""

    def to_json(self) -> dict[str, Any]:
        """Everything :func:`sim.costs.from_json` needs to make this very model again."""


LONGEST_NS = 1 << 62
"""146 years: sums that stay below never leave 64 bits."""


def nanoseconds(model: CostModel, steps: Step) -> Ints:
    """Cost of each pass, rounded once to whole nanoseconds, at least 1.

    Raises:
        InputError: a cost is negative, zero, not a number or above a century; the line names model and pass.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is said below
        seconds = model.seconds(steps)
    bad = ~((seconds > 0) & (seconds < LONGEST_NS / 1e9))
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise InputError(f"cost model {model.name} gives {seconds[i]} s for a pass of {steps.describe(i)}")
    return np.maximum(np.rint(seconds * 1e9), 1).astype(np.int64)


def batch_overhead_ns(model: CostModel) -> tuple[int, int]:
    """A batch's time before its prefill and after its last pass, in whole nanoseconds.

    Raises:
        InputError: a part is negative, not a number or above a century; the line names the model.
    """
    before_s, after_s = model.batch_overhead_s
    for part_s in (before_s, after_s):
        if not 0 <= part_s < LONGEST_NS / 1e9:
            raise InputError(f"cost model {model.name} has a batch overhead of {part_s} s")
    return round(before_s * 1e9), round(after_s * 1e9)
