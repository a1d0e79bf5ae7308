"""What only a CUDA device can show; skipped without one."""

from typing import Any

import numpy as np
import pytest
import torch

from real.engine import Engine
from real.executor import Measured
from real.weights import load_model, random_model
from tests.real.conftest import STD, TINY, prompts_of, trace_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", 0)


@pytest.mark.parametrize("engine", ["padded", "rowwise"])
def test_rows_equal_their_rows_alone_in_float32(device: torch.device, engine: str) -> None:
    model = random_model(TINY, device, torch.float32, 0, STD)
    prompts = prompts_of([10, 30, 5, 20, 1])
    serial = Engine(model, "serial")
    tokens = Engine(model, engine).run(prompts, 16).tokens
    assert tokens.tolist() == [serial.run([prompt], 16).tokens[0].tolist() for prompt in prompts]


@pytest.mark.parametrize("engine", ["padded", "rowwise"])
def test_no_pass_waits_for_the_device(
    device: torch.device, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Engine(random_model(TINY, device, torch.bfloat16, 0, STD), engine)
    prompts = prompts_of([10, 30, 5, 20])
    runner.run(prompts, 8)
    generate = runner.generate

    def watched(batch: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            generate(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(runner, "generate", watched)
    assert runner.run(prompts, 8).tokens.shape == (4, 8)


def test_passes_take_no_longer_than_their_batch(device: torch.device) -> None:
    executor = Measured(
        trace_of([100] * 8, [20] * 8), Engine(load_model("toy", "random", device, torch.bfloat16))
    )
    times = executor.run(range(8))
    assert times.measured is not None
    assert len(times.measured.step_wall_ns) == 20
    assert times.measured.step_cpu_ns is None
    assert (times.measured.step_wall_ns > 0).all()
    assert times.measured.peak_memory_bytes is not None
    assert min(times[:4]) >= 0


def test_peak_memory_is_each_batchs_own(device: torch.device) -> None:
    executor = Measured(
        trace_of([1000] * 9, [50] * 9), Engine(load_model("toy", "random", device, torch.bfloat16))
    )
    peaks = []
    for requests in (range(8), [8]):
        measured = executor.run(requests).measured
        assert measured is not None
        peaks.append(measured.peak_memory_bytes or 0)
    assert peaks[1] < peaks[0]


def test_running_out_of_memory_leaves_the_device_usable(device: torch.device) -> None:
    trace = trace_of([64, 64], [10**9, 3])
    executor = Measured(trace, Engine(random_model(TINY, device, torch.bfloat16, 0, STD)), keep_tokens=True)
    measured = executor.run([0]).measured
    assert measured is not None
    assert measured.failed == "out of memory: 1 rows x (64 + 1000000000) tokens"
    after = executor.run([1]).measured
    assert after is not None
    assert after.failed is None
    assert executor.tokens is not None
    assert np.isin(executor.tokens[1], np.arange(TINY.vocab_size)).all()
