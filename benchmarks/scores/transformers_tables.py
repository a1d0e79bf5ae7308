"""One request, or one batch, in eager transformers: the Qwen tables on H20 and A100, Llama-2-7B on A100.

    decode step = max(host, device)      host = layers x H
    device = layers x (D + (A x query heads + K x KV heads) x context x rows x head_dim / 128) + weight bytes / rate
    prefill = max(host, FLOP / rate)

H: host seconds a layer. D: device seconds of a layer's small kernels. A and K: copying and reading keys and values,
which these releases repeat for every query head and append by copying. The two rates are shares of the datasheet's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from benchmarks.scores.score import Score, read, relative_errors, worst
from sim.hardware import KERNELS, Hardware, hardware
from sim.models import MODELS, ModelShape
from sim.roofline import KERNELS_PER_LAYER
from traces.trace import Floats

QWEN25 = {
    shape.name: shape
    for shape in (
        ModelShape("Qwen2.5-0.5B", 896, 4864, 24, 14, 2, 64, 151_936, True),
        ModelShape("Qwen2.5-1.5B", 1536, 8960, 28, 12, 2, 128, 151_936, True),
        ModelShape("Qwen2.5-3B", 2048, 11008, 36, 16, 2, 128, 151_936, True),
        ModelShape("Qwen2.5-7B", 3584, 18944, 28, 28, 4, 128, 152_064, False),
        ModelShape("Qwen2.5-14B", 5120, 13824, 48, 40, 8, 128, 152_064, False),
        ModelShape("Qwen2.5-32B", 5120, 27648, 64, 40, 8, 128, 152_064, False),
    )
}
LLAMA2 = ModelShape("Llama-2-7B", 4096, 11008, 32, 32, 32, 128, 32_000, False)
QWEN_OUTPUT_TOKENS = 2048


@dataclass(frozen=True)
class Run:
    """One published time of a whole run."""

    shape: ModelShape
    device: Hardware
    rows: int
    prompt: int
    output: int
    seconds: float


@dataclass(frozen=True)
class Constants:
    """The formula's constants; the order is that of :meth:`array`."""

    host_layer_s: float = 6e-4
    device_layer_s: float = 1e-4
    query_head_s: float = 1.4e-9
    kv_head_s: float = 1e-9
    byte_share: float = 0.8
    flop_share: float = 0.6

    def array(self) -> Floats:
        """Logarithms, so that no constant turns negative."""
        return np.log(list(vars(self).values()))


def predict(run: Run, c: Constants) -> float:
    """Seconds of the prefill and of all decode steps."""
    shape = run.shape
    context = run.prompt + np.arange(1, run.output)
    heads = c.query_head_s * shape.query_heads + c.kv_head_s * shape.kv_heads
    # Reading the embedding table costs one row a token; the output head is read whole.
    read_parameters = shape.parameters - (0 if shape.tied_embeddings else shape.head_parameters)
    weights_s = 2 * read_parameters / (run.device.memory_bytes_per_s * c.byte_share)
    attention_s = heads * context * run.rows * shape.head_dim / 128
    device_s = shape.layers * (c.device_layer_s + attention_s) + weights_s
    host_s = shape.layers * c.host_layer_s
    linear = 2 * shape.layers * (shape.attention_parameters + shape.mlp_parameters) * run.rows * run.prompt
    # A causal kernel computes half of the pairs: 4 / 2 FLOP a pair, head and dimension.
    pairs = 2 * shape.layers * shape.query_heads * shape.head_dim * run.rows * run.prompt**2
    prefill_s = (linear + pairs) / (run.device.flop_per_s["bfloat16"] * c.flop_share)
    return float(np.maximum(host_s, device_s).sum() + max(host_s, prefill_s))


def fit(runs: Sequence[Run], start: Constants, free: Sequence[str] = tuple(vars(Constants()))) -> Constants:
    """Constants that fit ``runs`` by relative error; those not in ``free`` stay as in ``start``."""
    chosen = [i for i, name in enumerate(vars(start)) if name in free]
    measured = np.log([run.seconds for run in runs])

    def constants(x: Floats) -> Constants:
        array = start.array()
        array[chosen] = x
        return Constants(*np.exp(array).tolist())

    def residual(x: Floats) -> Floats:
        predicted = np.log([predict(run, constants(x)) for run in runs])
        # The faint second part holds a constant where it started when the runs say nothing about it.
        return np.concatenate([predicted - measured, 0.01 * (x - start.array()[chosen])])

    return constants(least_squares(residual, start.array()[chosen], loss="soft_l1", f_scale=0.02).x)


def errors(runs: Sequence[Run], c: Constants) -> Floats:
    """Relative errors of the predictions."""
    return relative_errors(
        np.array([predict(run, c) for run in runs]), np.array([run.seconds for run in runs])
    )


def one_model_left_out(runs: Sequence[Run]) -> Floats:
    """Errors of each model predicted from all others."""
    names = dict.fromkeys(run.shape.name for run in runs)
    return np.concatenate(
        [
            errors(
                [run for run in runs if run.shape.name == name],
                fit([run for run in runs if run.shape.name != name], Constants()),
            )
            for name in names
        ]
    )


def qwen3_h20(data: Path) -> list[Run]:
    """Dense bf16 rows without the 0.6B rows that the table's notes call suspect."""
    runs = []
    for row in read(data / "published" / "qwen3_h20_transformers.csv"):
        name, prompt = row["model"].removeprefix("Qwen/"), int(row["input_tokens"])
        if (
            row["dtype"] == "bf16"
            and not MODELS[name].experts
            and not (name == "Qwen3-0.6B" and prompt >= 6144)
        ):
            seconds = float(row["elapsed_s_derived"])
            runs.append(Run(MODELS[name], hardware("H20"), 1, prompt, QWEN_OUTPUT_TOKENS, seconds))
    return runs


def qwen25_a100(data: Path) -> list[Run]:
    """Qwen2.5 in bf16 on one GPU, transformers only."""
    runs = []
    for row in read(data / "published" / "qwen25_qwen2_a100.csv"):
        name = row["model"].removeprefix("Qwen/").removesuffix("-Instruct")
        one_gpu = row["gpu_count"] == "1" and row["software"].startswith("transformers")
        if name in QWEN25 and row["dtype"] == "bf16" and one_gpu:
            prompt, seconds = int(row["input_tokens"]), float(row["elapsed_s_derived"])
            runs.append(Run(QWEN25[name], hardware("A100-80GB"), 1, prompt, QWEN_OUTPUT_TOKENS, seconds))
    return runs


def llama2_a100(data: Path) -> list[Run]:
    """Llama-2-7B in plain fp16, batch 1 to 64: true static batches."""
    return [
        Run(
            LLAMA2,
            hardware("A100-80GB"),
            int(row["batch_size"]),
            int(row["input_tokens"]),
            int(row["output_tokens"]),
            float(row["prefill_latency_s"]) + float(row["decode_latency_s"]),
        )
        for row in read(data / "published" / "hf_llama2_7b_a100_static.csv")
        if row["config"] == "fp16"
    ]


def scores(data: Path) -> list[Score]:
    """One model left out; two constants from one model; nothing fitted on the table that is scored."""
    h20, a100 = qwen3_h20(data), qwen25_a100(data)
    small_kernels = Constants(
        device_layer_s=KERNELS_PER_LAYER * hardware("H20").launch_s,
        kv_head_s=1e-30,
        byte_share=KERNELS["H200"].gemm_bytes,
        flop_share=KERNELS["H200"].gemm_flop,
    )
    two = fit(
        [run for run in h20 if run.shape.name == "Qwen3-8B"], small_kernels, ("host_layer_s", "query_head_s")
    )
    others = [run for run in h20 if run.shape.name not in ("Qwen3-8B", "Qwen3-0.6B")]
    from_a100 = fit(a100, Constants())
    source = "constants from Qwen2.5 on A100, batch 1"
    return [
        worst("Qwen3 on H20, one model left out", one_model_left_out(h20), (2.0, 9.0)),
        worst("the same form, Qwen2.5 on A100, one model left out", one_model_left_out(a100), (2.0, 9.0)),
        worst("Qwen3 on H20, two constants from the 8B rows", errors(others, two), (7.0, 20.0)),
        worst(
            "Llama-2-7B on A100, batch 1 to 64, nothing fitted",
            errors(llama2_a100(data), from_a100),
            (25.0, None),
            source,
        ),
        worst("Qwen3 on H20, nothing fitted", errors(h20, from_a100), (40.0, None), source),
    ]
