"""The model that the engine runs: random weights of real dimensions, a local folder, or a name on the hub."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from transformers import (
    AutoModelForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from real.attention import ATTENTION
from real.memory import is_out_of_memory
from sim.models import DTYPE_BYTES, ModelShape, model_shape
from traces.errors import InputError, choices

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RANDOM = "random"
STD = 0.02
"""Standard deviation of random weights, as these models are initialised for training."""
ROPE_THETA = 1e6
MAX_POSITIONS = 40_960


def parse_device(name: str) -> torch.device:
    """A device by its torch name.

    Raises:
        InputError: no such device here.
    """
    available = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is not None and (str(device) in available or (name == "cuda" and len(available) > 1)):
        return torch.device("cuda", 0) if name == "cuda" else device
    raise InputError(f"no device {name!r} here; there is {choices(available)}")


def parse_dtype(name: str | None, device: torch.device) -> torch.dtype:
    """A floating-point type by its name; None: bfloat16 on CUDA, float32 on a CPU."""
    if name is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in DTYPE_BYTES:
        raise InputError(f"unknown dtype {name!r}; known are {choices(DTYPE_BYTES)}")
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def load_model(
    name: str, weights: str, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> "PreTrainedModel":
    """The model ``name`` on a device, ready to answer.

    ``weights`` is ``random`` (dimensions of the table, values from the seed), a folder written by
    ``save_pretrained``, or a hub name; with the last two the weights' own configuration says what the model
    is.

    Raises:
        InputError: the weights cannot be had, or are not of a model this engine runs.
    """
    try:
        if weights == RANDOM:
            return random_model(model_shape(name), device, dtype, seed)
        try:
            return _pretrained(weights, device, dtype, local=True)
        except InputError:
            if Path(weights).exists():
                raise
            return _pretrained(weights, device, dtype, local=False)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        what = name if weights == RANDOM else weights
        raise InputError(f"no memory on {device} for model {what!r} in {dtype}") from error


def model_config(shape: ModelShape) -> "Qwen3Config | Qwen3MoeConfig":
    """The configuration of a shape, all dimensions explicit: the library's defaults are no released model."""
    common = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.query_heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "tie_word_embeddings": shape.tied_embeddings,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
    }
    if not shape.experts:
        return Qwen3Config(intermediate_size=shape.intermediate_size, **common)
    return Qwen3MoeConfig(
        moe_intermediate_size=shape.intermediate_size,
        num_experts=shape.experts,
        num_experts_per_tok=shape.experts_per_token,
        norm_topk_prob=True,
        **common,
    )


def shape_of(model: "PreTrainedModel", name: str) -> ModelShape:
    """The shape of a loaded model, read from its configuration."""
    config = model.config
    experts = getattr(config, "num_experts", 0)
    return ModelShape(
        name,
        config.hidden_size,
        config.moe_intermediate_size if experts else config.intermediate_size,
        config.num_hidden_layers,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.vocab_size,
        config.tie_word_embeddings,
        experts,
        config.num_experts_per_tok if experts else 0,
    )


def random_model(
    shape: ModelShape, device: torch.device, dtype: torch.dtype, seed: int, std: float = STD
) -> "PreTrainedModel":
    """A model with normal weights of deviation ``std`` and norms of 1, made on the device itself."""
    config = model_config(shape)
    kind = Qwen3MoeForCausalLM if shape.experts else Qwen3ForCausalLM
    # Built without memory, so that no weight is first drawn by the library and then thrown away.
    with torch.device("meta"):
        model = kind(config).to(dtype)
    model.to_empty(device=device)
    # Emptying cut the tie of the embeddings and left the rotary frequencies, which are no weights, undefined.
    if shape.tied_embeddings:
        model.lm_head.weight = model.model.embed_tokens.weight
    with torch.device(device):
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, std, generator=generator)
    return _ready(model)


def _pretrained(source: str, device: torch.device, dtype: torch.dtype, local: bool) -> "PreTrainedModel":
    # Retries of a name that cannot be fetched are noise around the one line that says so.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, local_files_only=local, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"weights {source!r} cannot be loaded ({reason}); give {RANDOM!r}, a folder "
            "written by save_pretrained, or a hub name that is in the local cache or can be fetched"
        ) from error
    # The library would draw what it does not find at random, and go on.
    if missing := sorted(report["missing_keys"]):
        raise InputError(f"weights {source!r}: {len(missing)} tensors are missing, first {missing[0]}")
    layers = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if model.config.model_type not in ("qwen3", "qwen3_moe") or layers != {"full_attention"}:
        raise InputError(
            f"weights {source!r} are of a {model.config.model_type} model ({', '.join(sorted(layers))}); "
            "the engine runs qwen3 or qwen3_moe with full attention"
        )
    return _ready(model.to(device))


def _ready(model: "PreTrainedModel") -> "PreTrainedModel":
    model.set_attn_implementation(ATTENTION)
    return model.eval().requires_grad_(False)
