"""A model's shape from the ``config.json`` that Hugging Face transformers writes beside its weights.

Builds that cost what :class:`~sim.models.ModelShape` says are read: grouped-query attention over the whole context and
gated MLPs, dense or with experts in every layer. Everything else is refused by name. (Keys: transformers'
configuration classes of the model types below.)
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.models import ModelShape, sane
from traces.errors import InputError, choices

DENSE = ("llama", "mistral", "qwen2", "qwen3")
WITH_EXPERTS = ("mixtral", "qwen3_moe")


def shape_of_config(path: Path) -> ModelShape:
    """The shape that a ``config.json`` (or the one in a folder) describes, named after its folder.

    Raises:
        InputError: no such file, not JSON, a key that is missing or no number, or a build that is not supported.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"model {str(path)!r}: {file.name}: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{file}: not JSON") from None
    if not isinstance(document, dict):
        raise InputError(f"{file}: expected a JSON object, not {type(document).__name__}")
    name = file.resolve().parent.name if file.name == "config.json" else file.stem
    return _shape(document, name, str(file))


def _shape(config: Mapping[str, Any], name: str, place: str) -> ModelShape:
    kind = config.get("model_type")
    if kind not in (*DENSE, *WITH_EXPERTS):
        raise InputError(
            f"{place}: model_type {kind!r} is not supported; these are: {choices((*DENSE, *WITH_EXPERTS))}"
        )
    _refuse_other_builds(config, place)

    def count(*keys: str) -> int:
        found = [key for key in keys if config.get(key) is not None]
        if not found:
            raise InputError(f"{place}: a {kind} model needs the key {keys[0]!r}")
        value = config[found[0]]
        if type(value) is not int or value < 1:
            raise InputError(f"{place}: {found[0]} = {value!r} is not a whole number of at least 1")
        return value

    hidden, heads = count("hidden_size"), count("num_attention_heads")
    if config.get("head_dim") is None and kind != "qwen3":
        if hidden % heads:
            raise InputError(f"{place}: no head_dim, and {heads} heads do not divide hidden_size {hidden}")
        head_dim = hidden // heads
    else:
        head_dim = count("head_dim")
    experts = count("num_experts", "num_local_experts") if kind in WITH_EXPERTS else 0
    tied = config.get("tie_word_embeddings", False)
    if not isinstance(tied, bool):
        raise InputError(f"{place}: tie_word_embeddings = {tied!r} is not true or false")
    shape = ModelShape(
        name,
        hidden,
        count("moe_intermediate_size" if kind == "qwen3_moe" else "intermediate_size"),
        count("num_hidden_layers"),
        heads,
        heads if kind == "llama" and "num_key_value_heads" not in config else count("num_key_value_heads"),
        head_dim,
        count("vocab_size"),
        tied,
        experts,
        count("num_experts_per_tok") if experts else 0,
    )
    return sane(shape, place)


def _refuse_other_builds(config: Mapping[str, Any], place: str) -> None:
    """What would cost otherwise than a :class:`ModelShape` of the same dimensions."""
    layers = set(config.get("layer_types") or ["full_attention"]) - {"full_attention"}
    if layers:
        raise InputError(f"{place}: layer_types {choices(layers)} is not supported; only full_attention is")
    # Qwen writes the window and a switch, which is off; Mistral has no switch.
    if config.get("sliding_window") is not None and config.get("use_sliding_window", True):
        raise InputError(
            f"{place}: sliding_window = {config['sliding_window']!r} is not supported; only full attention is"
        )
    if config.get("quantization_config") is not None:
        raise InputError(f"{place}: quantization_config is not supported; only unquantised weights are")
    if config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1:
        raise InputError(
            f"{place}: layers without experts among those with (mlp_only_layers, "
            "decoder_sparse_step) are not supported"
        )
