"""Device memory of a static batch: weights, the padded KV cache, and what is left for it.

A static batch reserves rows x (longest prompt + longest output) tokens before it starts; :func:`footprint` adds up all
that it needs, and :func:`largest_batch` turns the sum round. The budget `auto`, for batches not known yet, is
the datasheet's memory minus the weights and three allowances, each computed or measured:

- the framework: CUDA context, library workspaces and what the allocator holds in reserve
- the widest prefill's activations, in one layer at a time
- the logits, at the last position of each row only, in float32
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sim.hardware import Hardware
from sim.models import DTYPE_BYTES, ModelShape
from traces.errors import InputError
from traces.trace import Ints

FRAMEWORK_BYTES = 1_600_000_000
"""Memory used minus memory allocated at batch 1: 15,954 - 14,356 MB, Llama-2-7B in transformers 4.35 on an
A100 (optimum-benchmark, running-llamas). A measured capacity, given in bytes, overrides every allowance."""
WIDEST_PREFILL_TOKENS = 8192
"""Prompt slots of the widest prefill that `auto` leaves room for."""
WIDEST_ROWS = 64
"""Rows of the widest batch that `auto` leaves room for."""

LOGIT_BYTES = 4
"""Logits are kept in float32."""

UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}


def weight_bytes(shape: ModelShape, dtype: str) -> int:
    """Bytes of all weights, tied ones once."""
    return shape.parameters * DTYPE_BYTES[dtype]


def batch_kv_bytes(
    shape: ModelShape, dtype: str, rows: ArrayLike, prompt: ArrayLike, output: ArrayLike
) -> Ints:
    """Bytes a batch reserves: rows x (longest prompt + longest output) x KV bytes a token."""
    b, p, n = (np.asarray(x, np.int64) for x in (rows, prompt, output))
    return b * (p + n) * shape.kv_bytes_per_token(DTYPE_BYTES[dtype])


def logits_bytes(shape: ModelShape, rows: int) -> int:
    """Bytes of the logits at the last position of ``rows`` rows, float32."""
    return rows * shape.vocab_size * LOGIT_BYTES


def activation_bytes(shape: ModelShape, dtype: str, tokens: int) -> int:
    """Bytes that one layer holds at once for ``tokens`` tokens.

    Residual stream and normed copy; q, k, v; gate, up and product of the MLP or of each token's own experts.
    """
    heads = (shape.query_heads + 2 * shape.kv_heads) * shape.head_dim
    mlp = 3 * shape.intermediate_size * max(shape.experts_per_token, 1)
    return tokens * (2 * shape.hidden_size + heads + mlp) * DTYPE_BYTES[dtype]


@dataclass(frozen=True)
class Footprint:
    """Device memory of one padded batch, bytes, part by part."""

    weights_bytes: int
    kv_bytes: int
    """Reserved: rows x (P + N) tokens, P the longest prompt, N the longest output."""
    kv_needed_bytes: int
    """Of that, what the engine's slab allocates: rows x (P + N - 1), for the last token's keys are never written."""
    activations_bytes: int
    """Of the widest step, the prefill: one layer's values of rows x P tokens, and the mask of rows x P x P flags."""
    logits_bytes: int
    framework_bytes: int
    """Context, library workspaces and what the allocator holds in reserve; 0 on a CPU."""

    @property
    def total_bytes(self) -> int:
        """All parts."""
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.activations_bytes
            + self.logits_bytes
            + self.framework_bytes
        )


def footprint(
    shape: ModelShape, hardware: Hardware, dtype: str, rows: int, prompt: int, output: int
) -> Footprint:
    """What a batch of ``rows`` rows needs, with longest prompt and longest output in tokens."""
    token = shape.kv_bytes_per_token(DTYPE_BYTES[dtype])
    return Footprint(
        weights_bytes=weight_bytes(shape, dtype),
        kv_bytes=rows * (prompt + output) * token,
        kv_needed_bytes=rows * (prompt + output - 1) * token,
        activations_bytes=activation_bytes(shape, dtype, rows * prompt) + rows * prompt * prompt,
        logits_bytes=logits_bytes(shape, rows),
        framework_bytes=FRAMEWORK_BYTES if hardware.asynchronous else 0,
    )


def largest_batch(
    shape: ModelShape,
    hardware: Hardware,
    dtype: str,
    prompt: int,
    output: int,
    capacity_bytes: int | None = None,
) -> int | None:
    """The most rows that fit with these lengths; 0 if not even one does, None where nothing limits them (CPU).

    Args:
        shape: the model.
        hardware: the device.
        dtype: of weights and cache.
        prompt: longest prompt, tokens.
        output: longest output, tokens.
        capacity_bytes: KV cache that was measured to fit; it overrides every allowance.
    """
    one = footprint(shape, hardware, dtype, 1, prompt, output)
    if capacity_bytes is not None:
        return capacity_bytes // one.kv_bytes
    if hardware.memory_bytes is None:
        return None
    always = one.weights_bytes + one.framework_bytes
    return max(hardware.memory_bytes - always, 0) // (one.total_bytes - always)


def kv_budget_bytes(setting: str, shape: ModelShape, hardware: Hardware, dtype: str) -> int | None:
    """Bytes for the KV cache of one batch; None for no limit.

    Args:
        setting: ``off``, ``auto``, or a number of bytes, as in 40GB, 512MiB or 1000000.
        shape: the model.
        hardware: the device. On a CPU, whose memory no datasheet fixes, ``auto`` sets no limit.
        dtype: of weights and cache.

    Raises:
        InputError: the setting is none of these, or ``auto`` leaves nothing.
    """
    word = setting.strip().lower()
    if word == "off":
        return None
    if word != "auto":
        return parse_bytes(setting)
    if hardware.memory_bytes is None:
        return None
    weights = weight_bytes(shape, dtype)
    reserved = (
        FRAMEWORK_BYTES
        + activation_bytes(shape, dtype, WIDEST_PREFILL_TOKENS)
        + logits_bytes(shape, WIDEST_ROWS)
    )
    left = hardware.memory_bytes - weights - reserved
    if left <= 0:
        raise InputError(
            f"{shape.name} in {dtype} does not fit on {hardware.name}: {weights / 1e9:.1f} GB of weights and"
            f" {reserved / 1e9:.1f} GB of allowances in {hardware.memory_bytes / 1e9:.0f} GB;"
            " choose other hardware, a smaller model, off, or a number of bytes"
        )
    return left


def parse_bytes(text: str) -> int:
    """A positive number of bytes, with an optional unit: KB, MB, GB, TB or KiB, MiB, GiB, TiB."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or (size := round(float(match[1]) * unit)) < 1:
        raise InputError(
            f"memory {text!r} is not auto, off or a number of bytes such as 40GB, 512MiB or 1000000"
        )
    return size
