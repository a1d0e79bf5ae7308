"""Marks become parts that add up to the whole, on hand-set clocks."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from real.timing import CudaStopwatch, HostStopwatch, stopwatch


def ticks(*values: int) -> Any:
    source: Iterator[int] = iter(values)
    return lambda: next(source)


def test_host_marks_on_both_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("real.timing.time.perf_counter_ns", ticks(100, 130, 230, 250, 275, 280))
    monkeypatch.setattr("real.timing.time.process_time_ns", ticks(10, 15, 65, 75, 86, 90))
    watch = HostStopwatch()
    watch.start(passes=3)
    watch.begin()
    for _ in range(3):
        watch.lap()
    times = watch.finish()
    wall, cpu = times.wall, times.cpu
    assert cpu is not None
    assert (wall.before_ns, wall.step_ns.tolist(), wall.after_ns) == (30, [100, 20, 25], 5)
    assert (cpu.before_ns, cpu.step_ns.tolist(), cpu.after_ns) == (5, [50, 10, 11], 4)
    assert (wall.total_ns, cpu.total_ns) == (180, 80)


class FakeEvent:
    """An event whose time is set by hand, in milliseconds as CUDA has it."""

    at_ms: Iterator[float]

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.ms = float("nan")

    def record(self, stream: object) -> None:
        self.ms = next(self.at_ms)

    def elapsed_time(self, later: "FakeEvent") -> float:
        return later.ms - self.ms


@pytest.mark.parametrize(
    ("host_ns", "event_ms", "parts"),
    [
        # The host starts at 0, hands over the prefill at 40 us, has the tokens at 500 us; passes are 300 us.
        ((0, 40_000, 500_000), (7.0, 7.2, 7.25, 7.3), (40_000, [200_000, 50_000, 50_000], 160_000)),
        # Events that claim more than the host saw leave no overhead, never a negative one.
        ((0, 40_000, 310_000), (7.0, 7.2, 7.25, 7.3), (10_000, [200_000, 50_000, 50_000], 0)),
    ],
)
def test_cuda_events_time_the_passes_and_the_host_the_whole(
    monkeypatch: pytest.MonkeyPatch,
    host_ns: tuple[int, ...],
    event_ms: tuple[float, ...],
    parts: tuple[int, list[int], int],
) -> None:
    FakeEvent.at_ms = iter(event_ms)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    waits: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    monkeypatch.setattr("real.timing.time.perf_counter_ns", ticks(*host_ns))
    watch = CudaStopwatch(torch.device("cuda", 0))
    watch.start(passes=3)
    # What the device still had to do is not in the batch, and no lap waits.
    assert waits == [torch.device("cuda", 0)]
    watch.begin()
    for _ in range(3):
        watch.lap()
    times = watch.finish()
    assert len(waits) == 1
    assert (times.wall.before_ns, times.wall.step_ns.tolist(), times.wall.after_ns) == parts
    assert times.wall.total_ns == host_ns[-1]
    assert times.cpu is None


def test_cuda_events_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeEvent.at_ms = iter(float(i) for i in range(100))
    made: list[FakeEvent] = []

    def event(enable_timing: bool) -> FakeEvent:
        made.append(FakeEvent(enable_timing))
        return made[-1]

    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    watch = CudaStopwatch(torch.device("cuda", 0))
    for passes in (5, 2, 5):
        watch.start(passes)
        watch.begin()
        for _ in range(passes):
            watch.lap()
        assert len(watch.finish().wall.step_ns) == passes
    assert len(made) == 6


def test_each_device_has_its_stopwatch() -> None:
    assert isinstance(stopwatch(torch.device("cpu")), HostStopwatch)
    assert isinstance(stopwatch(torch.device("cuda", 0)), CudaStopwatch)
