"""A cost model from the datasheet alone: each operation takes the longer of its arithmetic and its traffic.

    linear layers   max(2 x weights x tokens / FLOP rate, weight bytes / byte rate), weights read once a pass
    experts         arithmetic of each token's own experts, or reading the expected number of distinct ones
    attention       4 x query heads x head_dim FLOP a query-key pair computed; keys and values read once
    norms and such  hidden and intermediate values read and written, but no less than one kernel start each
    output head     at logit_rows only; weights read, logits written in float32

Rates are the datasheet's peaks times what measured kernels reach of them. The device's seconds are the sum of
its operations. The host that queues the kernels runs ahead of a GPU, so a pass takes the longer of the two.
Every term is a straight line in KV tokens for fixed rows, or the maximum of two, and never falls.
(Roofline: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sim import hardware, models
from sim.blocks import price_in_blocks
from sim.hardware import HARDWARE, Hardware
from sim.memory import LOGIT_BYTES
from sim.models import DTYPE_BYTES, MODELS, ModelShape, model_shape
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


KERNELS_PER_LAYER = 82
"""Kernels that eager transformers 5.24 starts a layer of Qwen3 (75 to 90 counted)."""
LAYER_HOST_S = 0.31e-3
"""Host seconds a layer in eager mode: 8.1 to 9.3 ms for 28 layers of little arithmetic, transformers 5.24."""


@dataclass(frozen=True)
class Host:
    """Who starts the kernels, how many there are, and what those between the matrix products read and write."""

    layer_s: float
    """Host seconds a layer and pass."""
    kernels_per_layer: int
    norm_passes: int
    """Hidden-sized values read or written a token and layer."""
    mlp_passes: int
    """Intermediate-sized values a token and MLP."""
    rope_passes: int
    """Head-sized values a token and head."""
    pair_share: float
    """Share of a prefill's query-key pairs that attention computes: all behind a mask, half in a causal kernel."""
    source: str


HOSTS: dict[str, Host] = {
    # Two norms (1 + 1), two additions (2 + 1); activation (1 + 1), product (2 + 1); norm of q and k (1 + 1),
    # rotation (2 + 1), cache write.
    "eager": Host(
        LAYER_HOST_S, KERNELS_PER_LAYER, 10, 5, 6, 1.0, "transformers 5.24, kernels counted, host timed"
    ),
    "graph": Host(0.0, KERNELS_PER_LAYER, 10, 5, 6, 1.0, "the same kernels, started by the device itself"),
    # Two additions with norm (2 + 2), SiLU with product (2 + 1), q and k: norm, rotation, k and v: cache write (each
    # 1 + 1; over q, k and v heads that is 4 a head). Four matrix products and attention make 12 kernels; experts
    # replace three of them by seven: router, top k, alignment, two products, SiLU with product, sum.
    "fused": Host(
        0.0, 12, 8, 3, 4, 0.5, "vLLM's Qwen3 layer in a CUDA graph: vllm/model_executor/models/qwen3.py"
    ),
}
"""Eager transformers, Python starting kernels one by one; a CUDA graph of it, which costs the host next to nothing;
an engine with fused kernels in a CUDA graph. Nothing here is fitted: on 120 whole batches of vLLM (LLM-Inference-Bench,
A100 and GH200) the last is 21 % off on average, too fast where the host was slow, and the others 35 %."""
FUSED_EXPERT_KERNELS = 4
"""Kernels a layer with experts has more, where they are fused."""


class Term(NamedTuple):
    """One operation of a pass, summed over layers: seconds, each [passes] or one number for all."""

    op: str
    kind: str
    """Whose rates it runs at: ``gemm`` or ``attention``."""
    compute_s: Floats | float
    memory_s: Floats | float
    launch_s: float = 0.0

    @property
    def seconds(self) -> Floats | float:
        """The longest of the three."""
        longest: Floats | float = np.maximum(self.compute_s, self.memory_s)
        return np.maximum(longest, self.launch_s) if self.launch_s else longest


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

    @cached_property
    def _scalars(self) -> "_Scalars":
        return _Scalars.of(self)

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns."""
        return price_in_blocks(steps, COLUMNS, self._price)

    def _price(
        self, prefill: Floats, rows: Floats, pairs: Floats, prefill_kv: Floats, kv: Floats, logits: Floats
    ) -> Floats:
        device: Floats = np.zeros_like(prefill)
        for term in self.terms(prefill, rows, pairs, prefill_kv, kv, logits):
            device += term.seconds
        host_s = self._scalars.host_s
        return np.maximum(device, host_s) if self.hardware.asynchronous else device + host_s

    def terms(
        self, prefill: Floats, rows: Floats, pairs: Floats, prefill_kv: Floats, kv: Floats, logits: Floats
    ) -> Iterator[Term]:
        """What the device does in some passes, given the columns :data:`COLUMNS` of them."""
        s, shape = self._scalars, self.shape
        tokens = prefill + rows
        yield Term("projections", "gemm", s.attention_token_s * tokens, s.attention_weights_s)
        if shape.experts:
            # Each token picks k of E experts: E x (1 - (1 - k/E)^tokens) distinct ones are read on average.
            untouched = np.exp(tokens * np.log1p(-shape.experts_per_token / shape.experts))
            read_s = s.mlp_weights_s * shape.experts * (1.0 - untouched)
            yield Term("experts", "gemm", s.mlp_token_s * tokens, read_s)
            yield Term("router", "gemm", s.router_token_s * tokens, s.router_weights_s)
        else:
            yield Term("MLP", "gemm", s.mlp_token_s * tokens, s.mlp_weights_s)
        yield Term("norms, elementwise", "gemm", 0.0, s.pointwise_token_s * tokens, s.pointwise_floor_s)
        yield Term("attention, prefill", "attention", s.prefill_pair_s * pairs, s.kv_read_s * prefill_kv)
        yield Term("attention, decode", "attention", s.pair_s * kv, s.kv_read_s * kv)
        yield Term(
            "lm_head",
            "gemm",
            s.head_row_s * logits,
            s.head_weights_s * np.minimum(logits, 1.0) + s.logits_written_s * logits,
        )

    @property
    def host_s(self) -> float:
        """Seconds of the host a pass."""
        return self._scalars.host_s

    @property
    def start_s(self) -> float:
        """Seconds a pass needs to start its kernels, however little they do."""
        floor_s = self._scalars.pointwise_floor_s
        return max(self.host_s, floor_s) if self.hardware.asynchronous else self.host_s + floor_s

    @property
    def ridge_tokens(self) -> float:
        """Tokens a pass from which on MLP or experts (once all are read) are bound by arithmetic, not reading."""
        s = self._scalars
        return s.mlp_weights_s * max(self.shape.experts, 1) / s.mlp_token_s

    def outside(self, steps: Step) -> str | None:
        """A roofline has no measured range to leave."""
        return None

    def to_json(self) -> dict[str, Any]:
        """Names of model and device, whose rows live in the tables; rows that do not come with the program, whole."""
        document: dict[str, Any] = {
            "kind": "roofline",
            "model": self.shape.name,
            "hardware": self.hardware.name,
            "dtype": self.dtype,
            "host": self.host,
        }
        tables: dict[str, Any] = {}
        if MODELS.get(self.shape.name) != self.shape:
            tables |= models.to_rows(self.shape)
        if HARDWARE.get(self.hardware.name) != self.hardware:
            tables |= self.hardware.to_rows()
        if tables:
            document["tables"] = tables
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Roofline":
        """The model that :meth:`to_json` wrote down."""
        tables = document.get("tables", {})
        own_shape, own_device = "models" in tables, "hardware" in tables
        return cls(
            models.of_rows(tables, "tables") if own_shape else model_shape(document["model"]),
            hardware.of_rows(tables, "tables") if own_device else hardware.hardware(document["hardware"]),
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
    router_token_s: float
    router_weights_s: float
    pointwise_token_s: float
    pointwise_floor_s: float
    pair_s: float
    prefill_pair_s: float
    """Of all pairs, those that are not computed included."""
    kv_read_s: float
    head_row_s: float
    logits_written_s: float
    head_weights_s: float

    @classmethod
    def of(cls, model: Roofline) -> "_Scalars":
        shape, device, host = model.shape, model.hardware, HOSTS[model.host]
        reached = device.kernels
        value_bytes = DTYPE_BYTES[model.dtype]
        flop_s = 1.0 / (device.flop_per_s[model.dtype] * reached.gemm_flop)
        byte_s = 1.0 / (device.memory_bytes_per_s * reached.gemm_bytes)
        attention_flop_s = 1.0 / (device.flop_per_s[model.dtype] * reached.attention_flop)
        attention_byte_s = 1.0 / (device.memory_bytes_per_s * reached.attention_bytes)
        layers, experts_used = shape.layers, max(shape.experts_per_token, 1)
        pointwise_values = (
            host.norm_passes * shape.hidden_size
            + host.mlp_passes * shape.intermediate_size * experts_used
            + host.rope_passes * (shape.query_heads + 2 * shape.kv_heads) * shape.head_dim
        )
        kernels = host.kernels_per_layer
        if shape.experts and model.host == "fused":
            kernels += FUSED_EXPERT_KERNELS
        pair_s = layers * 4 * shape.query_heads * shape.head_dim * attention_flop_s
        return cls(
            host_s=layers * host.layer_s,
            attention_token_s=layers * 2 * shape.attention_parameters * flop_s,
            attention_weights_s=layers * shape.attention_parameters * value_bytes * byte_s,
            mlp_token_s=layers * 2 * shape.mlp_parameters * experts_used * flop_s,
            mlp_weights_s=layers * shape.mlp_parameters * value_bytes * byte_s,
            router_token_s=layers * 2 * shape.router_parameters * flop_s,
            router_weights_s=layers * shape.router_parameters * value_bytes * byte_s,
            pointwise_token_s=layers * pointwise_values * value_bytes * byte_s,
            pointwise_floor_s=layers * kernels * device.launch_s,
            pair_s=pair_s,
            prefill_pair_s=host.pair_share * pair_s,
            kv_read_s=shape.kv_bytes_per_token(value_bytes) * attention_byte_s,
            head_row_s=2 * shape.head_parameters * flop_s,
            logits_written_s=shape.vocab_size * LOGIT_BYTES * byte_s,
            head_weights_s=shape.head_parameters * value_bytes * byte_s,
        )
