"""Shapes of the models: a model is one row of a table.

Dimensions stand in ``sim/data/models.toml``, in tables of the user's own or in a model's ``config.json``; what is
derived (parameters, KV bytes) is computed from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.rows import COUNT, FLAG, WORDS, Kind, built_in, checked, own, own_place
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


MODEL_KEYS: dict[str, Kind] = {
    "hidden_size": COUNT,
    "intermediate_size": COUNT,
    "layers": COUNT,
    "query_heads": COUNT,
    "kv_heads": COUNT,
    "head_dim": COUNT,
    "vocab_size": COUNT,
    "tied_embeddings": FLAG,
    "source": WORDS,
}
EXPERT_KEYS: dict[str, Kind] = {"experts": COUNT, "experts_per_token": COUNT}


def _shapes(rows: Mapping[str, Mapping[str, Any]], file: str) -> dict[str, ModelShape]:
    found = {}
    for name, row in rows.items():
        place = f"{file}: [models.{name}]"
        values = checked(row, place, MODEL_KEYS, EXPERT_KEYS)
        del values["source"]
        found[name] = sane(ModelShape(name, **values), place)
    return found


def sane(shape: ModelShape, place: str) -> ModelShape:
    """The shape, if its heads and experts can be.

    Raises:
        InputError: query heads that the KV heads do not divide, or experts that do not fit together.
    """
    if shape.query_heads % shape.kv_heads:
        raise InputError(
            f"{place}: kv_heads = {shape.kv_heads} does not divide query_heads = {shape.query_heads}"
        )
    if not (shape.experts == shape.experts_per_token == 0 or 0 < shape.experts_per_token < shape.experts):
        raise InputError(
            f"{place}: experts_per_token = {shape.experts_per_token} does not fit experts = {shape.experts}"
        )
    return shape


def to_rows(shape: ModelShape) -> dict[str, Any]:
    """The table that :func:`of_rows` makes this very shape from."""
    experts = EXPERT_KEYS if shape.experts else {}
    row = {key: getattr(shape, key) for key in (*MODEL_KEYS, *experts) if key != "source"}
    return {"models": {shape.name: {**row, "source": "saved with a cost model"}}}


def of_rows(tables: Mapping[str, Any], place: str) -> ModelShape:
    """The one shape of some tables, as :func:`to_rows` wrote them.

    Raises:
        InputError: the row is wrong.
    """
    (shape,) = _shapes(tables["models"], place).values()
    return shape


MODELS: dict[str, ModelShape] = _shapes(built_in("models.toml", "models"), "models.toml")
"""The rows that come with the program."""


def model_shape(name: str) -> ModelShape:
    """The shape of a model by its name, or of a Hugging Face ``config.json`` by its path or its folder's.

    A leading ``Qwen/`` is accepted. Own rows (see :mod:`sim.rows`) take precedence.

    Raises:
        InputError: no such name or file, or a model of another build than these.
    """
    rows = MODELS | _shapes(own("models"), own_place())
    shape = rows.get(name.removeprefix("Qwen/"))
    if shape is not None:
        return shape
    path = Path(name)
    if not path.exists():
        raise InputError(f"unknown model {name!r}; known are {choices(rows)}, and the path of a config.json")
    from sim.config import shape_of_config  # imports this module

    return shape_of_config(path)
