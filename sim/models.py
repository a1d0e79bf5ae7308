"""Shapes of the models: a model is one row of a table.

Dimensions from each model's public ``config.json``; what is derived (parameters, KV bytes) is computed from them.
"""

from dataclasses import dataclass

from traces.errors import InputError, choices

DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True)
class ModelShape:
    """Dimensions of a decoder-only transformer with grouped-query attention and gated MLPs (Qwen3's build)."""

    name: str
    hidden_size: int
    intermediate_size: int
    """Width of the dense MLP; of one expert where there are experts."""
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    """Explicit: in Qwen3 it is not hidden_size / query_heads."""
    vocab_size: int
    tied_embeddings: bool
    experts: int = 0
    """Experts a layer; 0 for a dense MLP."""
    experts_per_token: int = 0

    @property
    def attention_parameters(self) -> int:
        """Weights of the q, k, v and output projections of one layer."""
        return 2 * self.hidden_size * self.head_dim * (self.query_heads + self.kv_heads)

    @property
    def mlp_parameters(self) -> int:
        """Weights of one MLP, or of one expert: gate, up and down."""
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def router_parameters(self) -> int:
        """Weights of one layer's router; 0 without experts."""
        return self.hidden_size * self.experts

    @property
    def norm_parameters(self) -> int:
        """Weights of all RMS norms: two of the hidden size and two of the head size a layer, and the last one."""
        return self.layers * 2 * (self.hidden_size + self.head_dim) + self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Weights of the output head (shared with the embedding where they are tied)."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """All weights, tied ones counted once."""
        mlps = max(self.experts, 1) * self.mlp_parameters + self.router_parameters
        embeddings = self.head_parameters * (1 if self.tied_embeddings else 2)
        return self.layers * (self.attention_parameters + mlps) + self.norm_parameters + embeddings

    def kv_bytes_per_token(self, bytes_per_value: int = 2) -> int:
        """Bytes of keys and values one token keeps: 2 x layers x KV heads x head_dim x bytes."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value


MODELS: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        ModelShape("Qwen3-0.6B", 1024, 3072, 28, 16, 8, 128, 151_936, True),
        ModelShape("Qwen3-1.7B", 2048, 6144, 28, 16, 8, 128, 151_936, True),
        ModelShape("Qwen3-4B", 2560, 9728, 36, 32, 8, 128, 151_936, True),
        ModelShape("Qwen3-8B", 4096, 12288, 36, 32, 8, 128, 151_936, False),
        ModelShape("Qwen3-14B", 5120, 17408, 40, 40, 8, 128, 151_936, False),
        ModelShape("Qwen3-32B", 5120, 25600, 64, 64, 8, 128, 151_936, False),
        ModelShape("Qwen3-30B-A3B", 2048, 768, 48, 32, 4, 128, 151_936, False, 128, 8),
        # Not a released model: Qwen3's build at a size that a CPU runs in milliseconds a step.
        ModelShape("toy", 512, 1536, 4, 8, 4, 64, 8_192, False),
    )
}


def model_shape(name: str) -> ModelShape:
    """The shape of a model by its name; a leading ``Qwen/`` is accepted."""
    shape = MODELS.get(name.removeprefix("Qwen/"))
    if shape is None:
        raise InputError(f"unknown model {name!r}; known are {choices(MODELS)}")
    return shape
