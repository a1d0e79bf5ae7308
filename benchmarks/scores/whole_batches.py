"""Whole batches of equal requests in vLLM on one GPU (LLM-Inference-Bench): fitted on few, predicted for the rest.

vLLM keeps only as many requests running as its cache blocks hold, so a batch too large for them runs in waves.
The passes of a batch are therefore those of its scheduler (first come first served, prompts first, the youngest
put back and computed anew when blocks run out), with the blocks that memory leaves after the weights. A pass
costs a constant, a time a token, and a time a cached token read: the straight form of sim.fitted, three constants
a group, fitted to sums over the passes of each fitted batch.

That the A100 has 40 GB, not 80, shows in the file itself (Llama-2-7B slows down where 40 GB run out) and was taken
from looking at it; it is no fitted constant, but it is not blind either.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.scores.score import Score, of_errors, read, relative_errors
from sim.fitted import features
from sim.memory import activation_bytes, weight_bytes
from sim.models import ModelShape
from sim.solve import non_negative
from sim.step import Step
from traces.trace import Floats

SHAPES = {
    "meta-llama/Llama-2-7b-hf": ModelShape("Llama-2-7B", 4096, 11008, 32, 32, 32, 128, 32_000, False),
    "meta-llama/Meta-Llama-3-8B": ModelShape("Llama-3-8B", 4096, 14336, 32, 32, 8, 128, 128_256, False),
    "mistralai/Mistral-7B-v0.1": ModelShape("Mistral-7B", 4096, 14336, 32, 32, 8, 128, 32_000, False),
    "Qwen/Qwen2-7B": ModelShape("Qwen2-7B", 3584, 18944, 28, 28, 4, 128, 152_064, False),
}
GROUPS = (
    ("Nvidia A100 GPU", "meta-llama/Llama-2-7b-hf"),
    ("Nvidia A100 GPU", "meta-llama/Meta-Llama-3-8B"),
    ("Nvidia A100 GPU", "mistralai/Mistral-7B-v0.1"),
    ("Nvidia GH200 GPU", "meta-llama/Llama-2-7b-hf"),
    ("Nvidia GH200 GPU", "meta-llama/Meta-Llama-3-8B"),
    ("Nvidia GH200 GPU", "Qwen/Qwen2-7B"),
)
# As the devices report them: the 40 GB A100 (the file does not say which; see note) and the 96 GB GH200.
MEMORY_BYTES = {"Nvidia A100 GPU": 39.59 * 2**30, "Nvidia GH200 GPU": 94.5 * 2**30}
# Defaults of vLLM in 2024.
MEMORY_SHARE, BLOCK_TOKENS, WATERMARK, PREFILL_TOKENS = 0.9, 16, 0.99, 4096
TERMS = [0, 5, 7]
"""Of sim.fitted.features: the constant, decode KV tokens, tokens through the linear layers."""
SPLITS: dict[str, Callable[[int, int], bool]] = {
    "batch 1 and 32, length 128, 512 and 2048": lambda b, n: b in (1, 32) and n in (128, 512, 2048),
    "batch up to 16, length up to 512": lambda b, n: b <= 16 and n <= 512,
}
"""Which (batch, length) each split fits; the rest is predicted."""
APART = (64, 2048)
"""Batch and length that are reported apart."""


def capacity_blocks(device: str, model: str) -> int:
    """Cache blocks that fit beside weights and activations."""
    shape = SHAPES[model]
    taken = weight_bytes(shape, "float16") + activation_bytes(shape, "float16", 2 * PREFILL_TOKENS)
    left = MEMORY_SHARE * MEMORY_BYTES[device] - taken
    return int(left / shape.kv_bytes_per_token() / BLOCK_TOKENS)


@cache
def passes(batch: int, length: int, capacity: int) -> Step:
    """Every pass that vLLM's scheduler makes of ``batch`` requests of ``length`` prompt and output tokens."""
    made = np.zeros(batch, np.int64)
    waiting = list(range(batch))
    running: list[int] = []
    rows: list[tuple[int, ...]] = []

    def blocks(tokens: int) -> int:
        return -(-tokens // BLOCK_TOKENS)

    while waiting or running:
        used = sum(blocks(length + int(made[r])) for r in running)
        admitted: list[int] = []
        tokens = pairs = 0
        while waiting:
            now = length + int(made[waiting[0]])
            if used + blocks(now) > WATERMARK * capacity or (admitted and tokens + now > PREFILL_TOKENS):
                break
            admitted.append(waiting.pop(0))
            used, tokens, pairs = used + blocks(now), tokens + now, pairs + now * now
        if admitted:
            rows.append((tokens, 0, pairs, tokens, 0, length, len(admitted)))
            running += admitted
            made[admitted] += 1
        else:
            while sum(blocks(length + int(made[r])) for r in running) > capacity:
                waiting.insert(0, running.pop())
            context = length + made[running]
            rows.append((0, len(running), 0, 0, int(context.sum()), int(context.max()), len(running)))
            made[running] += 1
        running = [r for r in running if made[r] < length]
    columns = np.array(rows, np.int64)
    return Step(*(columns[:, i] for i in range(columns.shape[1])))


def group_errors(data: Path, fitted_on: str) -> tuple[Floats, Floats]:
    """Errors of the held-out rows of all groups, and of the rows that stand apart."""
    held_out, apart = [], []
    measured: dict[tuple[str, str], dict[tuple[int, int], float]] = {group: {} for group in GROUPS}
    for row in read(data / "measured" / "llm-inference-bench" / "All_results.csv"):
        group = (row["Hardware"], row["Model"])
        if row["Framework"] == "vLLM" and row["Num of Hardware"] == "1" and group in measured:
            key = (int(row["Batch Size"]), int(row["Input Output Length"]))
            measured[group].setdefault(key, float(row["Latency"]))  # of repeated keys the first
    for (device, model), times in measured.items():
        capacity = capacity_blocks(device, model)
        keys = list(times)
        columns = np.stack([features(passes(*key, capacity)).sum(axis=0)[TERMS] for key in keys])
        seconds = np.array([times[key] for key in keys])
        inside = np.array([SPLITS[fitted_on](*key) for key in keys])
        last = np.array([key == APART for key in keys])
        errors = relative_errors(columns @ non_negative(columns[inside], seconds[inside]), seconds)
        held_out.append(errors[~inside & ~last])
        apart.append(errors[last])
    return np.concatenate(held_out), np.concatenate(apart)


def scores(data: Path) -> list[Score]:
    """Both splits."""
    out = []
    for fitted_on, asked in zip(SPLITS, ((2.5, 7.0), (5.0, 15.0)), strict=True):
        held_out, apart = group_errors(data, fitted_on)
        note = f"batch 64 x 2048 apart: {100 * apart.mean():.1f} / worst {100 * apart.max():.1f} %; A100 taken as 40 GB"
        out.append(of_errors(f"whole batch, vLLM, fitted on {fitted_on}", [held_out], asked, note))
    return out
