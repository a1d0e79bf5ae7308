"""The batching options a user gives, and what they mean for trace and policy. Simulator and engine share them."""

from dataclasses import dataclass

from sim.policy import LONGEST_WAIT_NS, StaticBatching
from traces.errors import InputError
from traces.trace import Trace
from traces.transforms import apply


@dataclass(frozen=True)
class Batching:
    """When a batch is closed."""

    max_batch: int = 8
    max_wait_s: float | None = None
    """Timer from the oldest waiting request's arrival; None: wait until the batch is full."""
    at_once: bool = False
    """Offline work: ignore arrival times, keep the file's order, no timer."""

    def __post_init__(self) -> None:
        most_s = LONGEST_WAIT_NS / 1e9
        if self.max_wait_s is not None and not 0 <= self.max_wait_s <= most_s:
            raise InputError(f"max_wait {self.max_wait_s:g} s must be from 0 to {most_s:g} s")

    def apply(self, trace: Trace) -> Trace:
        """The trace as it is to be served."""
        return apply(trace, "at_once") if self.at_once else trace

    def policy(self) -> StaticBatching:
        """The policy these options describe; ``at_once`` switches the timer off."""
        timed = self.max_wait_s is not None and not self.at_once
        return StaticBatching(self.max_batch, round((self.max_wait_s or 0.0) * 1e9) if timed else None)
