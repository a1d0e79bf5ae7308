"""A cost model from the datasheet alone: each operation takes the longer of its arithmetic and its traffic.

    linear layers   max(2 x weights x tokens / FLOP rate, weight bytes / byte rate), weights read once a pass
    experts         arithmetic of each token's own experts, or reading the expected number of distinct ones
    attention       4 x query heads x head_dim FLOP a query-key pair; keys and values read once
    norms and such  hidden and intermediate values read and written, but no less than one kernel start each
    output head     at logit_rows only

Rates are the datasheet's peaks times what measured kernels reach of them. The device's seconds are the sum of
its operations. The host that queues the kernels runs ahead of a GPU, so a pass takes the longer of the two.
Every term is a straight line in KV tokens for fixed rows, or the maximum of two, and never falls.
(Roofline: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.)
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sim.blocks import price_in_blocks
from sim.hardware import Hardware, hardware
from sim.models import DTYPE_BYTES, ModelShape, model_shape
from sim.step import Step
from traces.errors import InputError, choices
from traces.trace import Floats

COLUMNS = (
    "prefill_tokens",
    "decode_rows",
    "prefill_pairs",
    "prefill_kv_tokens",
    "decode_kv_tokens",
    "logit_rows",
)
"""What a pass is priced by."""


@dataclass(frozen=True)
class Efficiency:
    """Share of the datasheet's peak that kernels reach, dimensionless; and where it was measured."""

    gemm_flop: float
    attention_flop: float
    """Of query-key pairs really computed; a masked kernel computes them all."""
    gemm_bytes: float
    attention_bytes: float
    source: str


# Medians over AIConfigurator's tables of bf16 kernels (aiconfigurator-core 0.12.0, vLLM 0.24.0 and 0.14.0):
# gemm_flop at m >= 4096, n and k >= 2048; gemm_bytes at m <= 16, n x k >= 64e6; attention_bytes for more than
# 0.5 GB of keys and values; attention_flop for prompts from 2048 above 1 TFLOP, half of the pairs computed.
H200_KERNELS = Efficiency(0.77, 0.58, 0.82, 0.82, "AIConfigurator 0.12.0, h200_sxm")
A100_KERNELS = Efficiency(0.86, 0.55, 0.73, 0.74, "AIConfigurator 0.12.0, a100_sxm")
MEASURED_EFFICIENCY = {"H200": H200_KERNELS, "A100-80GB": A100_KERNELS}
"""Devices whose kernels were measured; all others are taken to reach what the H200 reaches."""

KERNELS_PER_LAYER = 82
"""Kernels that eager transformers 5.24 starts a layer of Qwen3 (75 to 90 counted)."""
LAYER_HOST_S = 0.31e-3
"""Host seconds a layer in eager mode: 8.1 to 9.3 ms for 28 layers of little arithmetic, transformers 5.24."""
HOSTS = ("eager", "graph")
"""Who starts the kernels: Python one by one, or a CUDA graph, which costs the host next to nothing."""

NORM_PASSES = 10
"""Hidden-sized values read or written a token and layer: two norms (1 + 1), two additions (2 + 1)."""
MLP_PASSES = 5
"""Intermediate-sized values a token and MLP: activation (read, write), product (2 + 1)."""
ROPE_PASSES = 6
"""Head-sized values a token and head: norm of q and k (read, write), rotation (2 + 1), cache write."""


@dataclass(frozen=True)
class Roofline:
    """Cost of a pass on ``hardware`` without any measurement of it.

    Seconds = max(host, device) on a GPU, host + device on a CPU; see the module for the device's terms.
    """

    shape: ModelShape
    hardware: Hardware
    dtype: str = "bfloat16"
    host: str = "eager"

    def __post_init__(self) -> None:
        if self.dtype not in self.hardware.flop_per_s:
            raise InputError(f"unknown dtype {self.dtype!r}; known are {choices(self.hardware.flop_per_s)}")
        if self.host not in HOSTS:
            raise InputError(f"unknown host {self.host!r}; known are {choices(HOSTS)}")

    @property
    def name(self) -> str:
        """Model, device, dtype and host mode."""
        return f"roofline {self.shape.name} {self.hardware.name} {self.dtype} {self.host}"

    @property
    def batch_overhead_s(self) -> tuple[float, float]:
        """No datasheet knows it: 0."""
        return 0.0, 0.0

    @property
    def efficiency(self) -> Efficiency:
        """What kernels reach on this device, or on the H200 where nobody has measured."""
        return MEASURED_EFFICIENCY.get(self.hardware.name, H200_KERNELS)

    @cached_property
    def _scalars(self) -> "_Scalars":
        return _Scalars.of(self)

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns."""
        return price_in_blocks(steps, COLUMNS, self._price)

    def _price(
        self, prefill: Floats, rows: Floats, pairs: Floats, prefill_kv: Floats, kv: Floats, logits: Floats
    ) -> Floats:
        s, shape = self._scalars, self.shape
        tokens = prefill + rows
        device = np.maximum(s.attention_token_s * tokens, s.attention_weights_s)
        if shape.experts:
            # Each token picks k of E experts: E x (1 - (1 - k/E)^tokens) distinct ones are read on average.
            untouched = np.exp(tokens * np.log1p(-shape.experts_per_token / shape.experts))
            read = s.mlp_weights_s * shape.experts * (1.0 - untouched)
            device += np.maximum(s.mlp_token_s * tokens, read) + s.router_weights_s
        else:
            device += np.maximum(s.mlp_token_s * tokens, s.mlp_weights_s)
        device += np.maximum(s.pointwise_token_s * tokens, s.pointwise_floor_s)
        device += np.maximum(s.pair_s * pairs, s.kv_read_s * prefill_kv)
        device += s.decode_kv_s * kv
        device += np.maximum(s.logit_row_s * logits, s.head_weights_s * np.minimum(logits, 1.0))
        if self.hardware.asynchronous:
            return np.maximum(device, s.host_s)
        return device + s.host_s

    def outside(self, steps: Step) -> str | None:
        """A roofline has no measured range to leave."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Names of model and device; the rows themselves live in the tables."""
        return {
            "kind": "roofline",
            "model": self.shape.name,
            "hardware": self.hardware.name,
            "dtype": self.dtype,
            "host": self.host,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Roofline":
        """The model that :meth:`to_json` wrote down."""
        return cls(
            model_shape(document["model"]),
            hardware(document["hardware"]),
            document["dtype"],
            document["host"],
        )


@dataclass(frozen=True)
class _Scalars:
    """Seconds per unit of each column, summed over layers; everything that does not depend on the pass."""

    host_s: float
    attention_token_s: float
    attention_weights_s: float
    mlp_token_s: float
    mlp_weights_s: float
    """Of all layers' dense MLPs, or of one expert in every layer."""
    router_weights_s: float
    pointwise_token_s: float
    pointwise_floor_s: float
    pair_s: float
    kv_read_s: float
    decode_kv_s: float
    logit_row_s: float
    head_weights_s: float

    @classmethod
    def of(cls, model: Roofline) -> "_Scalars":
        shape, device, reached = model.shape, model.hardware, model.efficiency
        value_bytes = DTYPE_BYTES[model.dtype]
        flop_s = 1.0 / (device.flop_per_s[model.dtype] * reached.gemm_flop)
        byte_s = 1.0 / (device.memory_bytes_per_s * reached.gemm_bytes)
        attention_flop_s = 1.0 / (device.flop_per_s[model.dtype] * reached.attention_flop)
        attention_byte_s = 1.0 / (device.memory_bytes_per_s * reached.attention_bytes)
        layers, experts_used = shape.layers, max(shape.experts_per_token, 1)
        pair_s = layers * 4 * shape.query_heads * shape.head_dim * attention_flop_s
        kv_read_s = shape.kv_bytes_per_token(value_bytes) * attention_byte_s
        pointwise_values = (
            NORM_PASSES * shape.hidden_size
            + MLP_PASSES * shape.intermediate_size * experts_used
            + ROPE_PASSES * (shape.query_heads + 2 * shape.kv_heads) * shape.head_dim
        )
        router_s = layers * shape.router_parameters * value_bytes * byte_s
        return cls(
            host_s=layers * LAYER_HOST_S if model.host == "eager" else 0.0,
            attention_token_s=layers * 2 * shape.attention_parameters * flop_s,
            attention_weights_s=layers * shape.attention_parameters * value_bytes * byte_s,
            mlp_token_s=layers * 2 * shape.mlp_parameters * experts_used * flop_s,
            mlp_weights_s=layers * shape.mlp_parameters * value_bytes * byte_s,
            router_weights_s=router_s,
            pointwise_token_s=layers * pointwise_values * value_bytes * byte_s,
            pointwise_floor_s=layers * KERNELS_PER_LAYER * device.launch_s,
            pair_s=pair_s,
            kv_read_s=kv_read_s,
            decode_kv_s=max(pair_s, kv_read_s),
            logit_row_s=2 * shape.head_parameters * flop_s + shape.vocab_size * 4 * byte_s,
            head_weights_s=shape.head_parameters * value_bytes * byte_s,
        )
