"""Where the time of one batch goes: marks at the boundaries of its passes, read after the last one.

On a CPU every mark reads two clocks, the wall and the process's own CPU time, which other programs on the
machine do not disturb. On CUDA the marks are events in the stream: reading a clock there would say when work
was handed over, not when it was done, and waiting for the device at each step would slow what is being
measured.
"""

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch

from traces.trace import Ints


@dataclass(frozen=True, eq=False)
class Timeline:
    """One batch on one clock, integer nanoseconds, one part after the other."""

    before_ns: int
    """Host work before the prefill: padding, copies, masks."""
    step_ns: Ints
    """The prefill, then each decode step."""
    after_ns: int
    """After the last step: waiting for the device, copying the tokens out."""

    @property
    def total_ns(self) -> int:
        """The whole batch."""
        return self.before_ns + int(self.step_ns.sum()) + self.after_ns


@dataclass(frozen=True)
class PassTimes:
    """One batch on each clock that there is."""

    wall: Timeline
    cpu: Timeline | None
    """Process CPU time; None on a GPU, where it says nothing about the work."""


class Stopwatch(Protocol):
    """Takes the time of one batch after another.

    Calls come in this order: ``start``, ``begin`` just before the prefill, ``lap`` after the prefill and
    after each decode step, ``finish`` once the tokens are on the host.
    """

    def start(self, passes: int) -> None:
        """The batch is there; it will run so many passes."""

    def begin(self) -> None:
        """The prefill starts now."""

    def lap(self) -> None:
        """A pass has ended."""

    def finish(self) -> PassTimes:
        """The batch is done: read everything."""


def stopwatch(device: torch.device) -> "Stopwatch":
    """The stopwatch of a device."""
    return CudaStopwatch(device) if device.type == "cuda" else HostStopwatch()


class HostStopwatch:
    """Marks read the wall clock and the process's CPU time."""

    def start(self, passes: int) -> None:
        """Read the clocks for the first time."""
        # Lists, filled by position: nothing is allocated while passes run.
        self._wall, self._cpu = [0] * (passes + 3), [0] * (passes + 3)
        self._next = 0
        self.lap()

    def begin(self) -> None:
        """Read the clocks before the prefill."""
        self.lap()

    def lap(self) -> None:
        """Read the clocks."""
        self._wall[self._next] = time.perf_counter_ns()
        self._cpu[self._next] = time.process_time_ns()
        self._next += 1

    def finish(self) -> PassTimes:
        """Read the clocks for the last time; differences of successive marks."""
        self.lap()
        return PassTimes(_timeline(self._wall), _timeline(self._cpu))


def _timeline(marks_ns: list[int]) -> Timeline:
    marks = np.array(marks_ns, np.int64)
    parts: Ints = marks[1:] - marks[:-1]
    return Timeline(int(parts[0]), parts[1:-1], int(parts[-1]))


class CudaStopwatch:
    """Marks are CUDA events; the whole batch is taken on the host's wall clock.

    The batch's one wait for the device is the copy of its tokens to the host. What the events do not cover is
    overhead: before the prefill as the host saw it, the rest after the last step.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def start(self, passes: int) -> None:
        """Wait for whatever the device still has to do, then read the wall clock; events are kept from batch to batch.

        Without the wait the host would queue passes while the device is busy with something else, and a device that
        never waits for its host then looks faster than it is.
        """
        while len(self._events) < passes + 1:
            self._events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        self._next = 0
        torch.cuda.synchronize(self._device)
        self._start_ns = time.perf_counter_ns()

    def begin(self) -> None:
        """Mark the start of the prefill on the device and on the host."""
        self.lap()
        self._begin_ns = time.perf_counter_ns()

    def lap(self) -> None:
        """Put a mark into the stream; does not wait."""
        self._events[self._next].record(torch.cuda.current_stream(self._device))
        self._next += 1

    def finish(self) -> PassTimes:
        """Read the wall clock, then the events, which have all passed by now."""
        total_ns = time.perf_counter_ns() - self._start_ns
        marks = self._events[: self._next]
        # One difference per pass: a float of milliseconds since the start would lose digits in a long batch.
        step_ns = np.array([round(a.elapsed_time(b) * 1e6) for a, b in pairwise(marks)], np.int64)
        overhead_ns = max(total_ns - int(step_ns.sum()), 0)
        before_ns = min(self._begin_ns - self._start_ns, overhead_ns)
        return PassTimes(Timeline(before_ns, step_ns, overhead_ns - before_ns), None)
