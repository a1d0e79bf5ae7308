"""Device memory of whole runs in transformers, from formulas alone: Qwen3 on H20 and Llama-2-7B on A100.

Weights + keys and values + library workspace; Llama-2's release keeps rotary tables a layer, computes logits of the
whole prompt in half and single precision, and copies its cache at every step (twice the keys and values). The
formulas have no free number, but which terms belong in them was learnt from these very rows.
"""

from pathlib import Path

import numpy as np

from benchmarks.scores.score import Score, read, relative_errors, worst
from benchmarks.scores.transformers_tables import LLAMA2, QWEN_OUTPUT_TOKENS
from sim.memory import logits_bytes, weight_bytes
from sim.models import MODELS

# torch's default cuBLAS workspace: 32 MiB on Hopper, :4096:2:16:8 KiB before it.
HOPPER_WORKSPACE_BYTES = 32 * 2**20
AMPERE_WORKSPACE_BYTES = (2 * 4096 + 8 * 16) * 2**10
LLAMA2_POSITIONS = 4096
BELOW_WEIGHTS = ("Qwen3-1.7B", "Qwen3-14B", "Qwen3-32B")
"""Their one-token rows show less memory than weights and cache need, so they cannot be the whole."""


def scores(data: Path) -> list[Score]:
    """Both tables; rows that cannot be right are named and apart."""
    predicted, measured, apart = [], [], []
    for row in read(data / "published" / "qwen3_h20_transformers.csv"):
        name, prompt = row["model"].removeprefix("Qwen/"), int(row["input_tokens"])
        if row["dtype"] != "bf16":
            continue
        shape, shown = MODELS[name], float(row["gpu_memory_mib"]) * 2**20
        cache = shape.kv_bytes_per_token() * (prompt + QWEN_OUTPUT_TOKENS)
        needed = weight_bytes(shape, "bfloat16") + cache + HOPPER_WORKSPACE_BYTES
        if prompt == 1 and name in BELOW_WEIGHTS:
            apart.append(f"{name} {100 * (needed - shown) / shown:+.1f} %")
            continue
        predicted.append(needed)
        measured.append(shown)
    qwen = relative_errors(np.array(predicted, np.float64), np.array(measured))

    predicted, measured = [], []
    weights = weight_bytes(LLAMA2, "float16")
    rotary = 2 * LLAMA2.layers * LLAMA2_POSITIONS * LLAMA2.head_dim * 2
    always = weights + rotary + AMPERE_WORKSPACE_BYTES
    for row in read(data / "published" / "hf_llama2_7b_a100_static.csv"):
        if row["config"] != "fp16":
            continue
        rows, prompt, output = (int(row[key]) for key in ("batch_size", "input_tokens", "output_tokens"))
        token = LLAMA2.kv_bytes_per_token()
        logits = logits_bytes(LLAMA2, rows * prompt) * 3 // 2
        hidden = rows * prompt * LLAMA2.hidden_size * 2
        predicted += [always + rows * prompt * token + logits + hidden]
        predicted += [always + 2 * rows * (prompt + output) * token]
        measured += [1e6 * float(row["prefill_max_memory_allocated_mb"])]
        measured += [1e6 * float(row["generate_max_memory_allocated_mb"])]
    llama = relative_errors(np.array(predicted, np.float64), np.array(measured))
    note = "one-token rows apart: " + ", ".join(apart)
    return [
        worst("memory, Qwen3 on H20", qwen, (0.5, 2.0), note),
        worst("memory, Llama-2-7B on A100, both peaks", llama, (0.5, 2.0)),
    ]
