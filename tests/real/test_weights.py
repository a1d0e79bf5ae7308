"""Where weights come from: made from a seed, saved and loaded, or refused in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from real.attention import ATTENTION
from real.engine import Engine
from real.weights import load_model, model_config, parse_device, parse_dtype, random_model, shape_of
from sim.models import MODELS, ModelShape
from tests.real.conftest import CPU, STD, TINY, prompts_of, tiny_model
from traces.errors import InputError

TIED = ModelShape("tied", 64, 128, 2, 4, 2, 16, 512, True)


@pytest.mark.parametrize("name", MODELS)
def test_the_table_counts_the_parameters_the_library_builds(name: str) -> None:
    shape = MODELS[name]
    config = model_config(shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == shape.parameters
    assert shape_of(model, name) == shape


def test_the_seed_fixes_the_weights() -> None:
    one, again, other = (tiny_model(seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_random_weights_have_the_deviation_asked_for_and_norms_of_one() -> None:
    model = random_model(MODELS["toy"], CPU, torch.float32, 0)
    for name, weight in model.named_parameters():
        if "norm" in name:
            assert torch.equal(weight, torch.ones_like(weight))
        else:
            assert weight.std().item() == pytest.approx(0.02, rel=0.02)
            assert weight.mean().item() == pytest.approx(0.0, abs=1e-3)
        assert not weight.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotary_frequencies_are_exact_in_any_dtype(dtype: torch.dtype) -> None:
    """Built without memory they would be garbage; cast to bfloat16 they would turn by wrong angles."""
    model = random_model(TINY, CPU, dtype, 0)
    expected = 1.0 / 1e6 ** (torch.arange(0, 16, 2, dtype=torch.float32) / 16)
    for buffer in (model.model.rotary_emb.inv_freq, model.model.rotary_emb.original_inv_freq):
        assert buffer.dtype == torch.float32
        torch.testing.assert_close(buffer, expected)
    assert model.dtype == dtype


def test_tied_embeddings_are_one_tensor_in_the_end() -> None:
    model = random_model(TIED, CPU, torch.float32, 0)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert sum(parameter.numel() for parameter in model.parameters()) == TIED.parameters


@pytest.mark.parametrize("shape", [TINY, TIED], ids=["untied", "tied"])
def test_a_saved_and_reloaded_model_gives_equal_tokens(tmp_path: Path, shape: ModelShape) -> None:
    model = random_model(shape, CPU, torch.float32, 5, STD)
    model.save_pretrained(tmp_path)
    loaded = load_model("ignored", str(tmp_path), CPU, torch.float32)
    assert loaded.config._attn_implementation == ATTENTION
    prompts = prompts_of([3, 40, 17])
    saved, reloaded = (Engine(one).run(prompts, 10).tokens for one in (model, loaded))
    assert np.array_equal(saved, reloaded)
    assert shape_of(loaded, shape.name) == shape
    assert load_model("ignored", str(tmp_path), CPU, torch.bfloat16).dtype == torch.bfloat16


def test_random_is_the_named_shape() -> None:
    model = load_model("toy", "random", CPU, torch.float32)
    assert shape_of(model, "toy") == MODELS["toy"]


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_model("toy", str(tmp_path), CPU, torch.float32)
    assert str(tmp_path) in one_line(caught)
    assert "save_pretrained" in one_line(caught)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header")
    with pytest.raises(InputError) as caught:
        load_model("toy", str(tmp_path), CPU, torch.float32)
    assert "cannot be loaded" in one_line(caught)


def test_weights_that_are_not_all_there_are_refused(tmp_path: Path) -> None:
    """The library would draw what is missing at random and go on."""
    model = tiny_model()
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        InputError, match=r"1 tensors are missing, first model\.layers\.1\.mlp\.up_proj\.weight"
    ):
        load_model("toy", str(tmp_path), CPU, torch.float32)


def test_a_model_too_large_for_the_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("real.weights.random_model", full)
    with pytest.raises(InputError, match=r"no memory on cpu for model 'Qwen3-32B' in torch.float32"):
        load_model("Qwen3-32B", "random", CPU, torch.float32)


def test_a_hub_name_is_looked_for_here_first_and_says_what_to_do_if_it_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    def unreachable(source: str, *, local_files_only: bool, **_: Any) -> None:
        asked.append(local_files_only)
        raise OSError(f"We couldn't connect to the hub to load {source}.\nCheck your connection.")

    monkeypatch.setattr("real.weights.AutoModelForCausalLM.from_pretrained", unreachable)
    with pytest.raises(InputError) as caught:
        load_model("toy", "someone/some-model", CPU, torch.float32)
    assert asked == [True, False]
    assert "'someone/some-model' cannot be loaded" in one_line(caught)
    assert "'random'" in one_line(caught)


def test_a_model_of_another_build_is_refused(tmp_path: Path) -> None:
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=32,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="of a llama model"):
        load_model("toy", str(tmp_path), CPU, torch.float32)


def test_sliding_windows_are_refused(tmp_path: Path) -> None:
    config = model_config(TINY)
    config.layer_types = ["full_attention", "sliding_attention"]
    config.sliding_window = 8
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="full_attention, sliding_attention"):
        load_model("toy", str(tmp_path), CPU, torch.float32)


def test_an_unknown_model_device_or_dtype_is_refused_with_the_choices() -> None:
    with pytest.raises(InputError, match=r"unknown model 'Qwen9'.*Qwen3-0\.6B"):
        load_model("Qwen9", "random", CPU, torch.float32)
    with pytest.raises(InputError, match=r"no device 'abacus' here; there is .*cpu"):
        parse_device("abacus")
    with pytest.raises(InputError, match="no device 'cuda:97' here"):
        parse_device("cuda:97")
    with pytest.raises(InputError, match=r"unknown dtype 'int3'; known are bfloat16, float16 or float32"):
        parse_dtype("int3", CPU)


def test_the_default_dtype_follows_the_device() -> None:
    assert parse_device("cpu") == CPU
    assert parse_dtype(None, CPU) is torch.float32
    assert parse_dtype(None, torch.device("cuda")) is torch.bfloat16
    assert parse_dtype("float16", CPU) is torch.float16
