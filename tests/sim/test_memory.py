import numpy as np
import pytest

from sim.hardware import hardware
from sim.memory import (
    FRAMEWORK_BYTES,
    activation_bytes,
    batch_kv_bytes,
    kv_budget_bytes,
    logits_bytes,
    parse_bytes,
    weight_bytes,
)
from sim.models import ModelShape, model_shape
from traces.errors import InputError

SMALL = model_shape("Qwen3-0.6B")
LLAMA = ModelShape("Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128, 128_256, False)


def test_the_chapters_kv_cache() -> None:
    request = int(batch_kv_bytes(SMALL, "bfloat16", 1, 500, 12))
    assert request == 58_720_256 == 56 * 2**20
    assert 80_000_000_000 // request == 1362


def test_a_static_batch_reserves_its_rows_times_longest_prompt_plus_longest_output() -> None:
    prompts, outputs = np.array([400, 50]), np.array([100, 10])
    reserved = batch_kv_bytes(SMALL, "bfloat16", 2, prompts.max(), outputs.max())
    assert int(reserved) == 1000 * 114_688
    assert int(reserved) > (prompts + outputs).sum() * 114_688


def test_logits_of_the_last_position_only() -> None:
    assert logits_bytes(SMALL, 32) == 19_447_808
    assert logits_bytes(SMALL, 32) / 2**20 == pytest.approx(18.5, abs=0.05)
    # At all 2048 positions they would be 39.8 GB.
    assert 2048 * logits_bytes(SMALL, 32) / 1e9 == pytest.approx(39.8, abs=0.05)


def test_auto_is_memory_less_weights_and_allowances() -> None:
    left = kv_budget_bytes("auto", SMALL, hardware("H200"), "bfloat16")
    allowances = FRAMEWORK_BYTES + activation_bytes(SMALL, "bfloat16", 8192) + logits_bytes(SMALL, 64)
    assert left == 141_000_000_000 - weight_bytes(SMALL, "bfloat16") - allowances
    # One layer of 8192 tokens: residual and normed 2 x 1024, q k v 32 x 128, MLP 3 x 3072; two bytes each.
    assert activation_bytes(SMALL, "bfloat16", 8192) == 8192 * (2048 + 4096 + 9216) * 2


def test_auto_stays_below_a_measured_capacity_that_a_bare_formula_overshoots() -> None:
    # vLLM on a 24 GB RTX 4090 had 41,408 tokens for Llama-3.1-8B; memory x 0.9 - weights promised 54,400.
    token = LLAMA.kv_bytes_per_token()
    bare = 0.9 * 24 * 2**30 - weight_bytes(LLAMA, "bfloat16")
    assert bare / token == pytest.approx(54_400, rel=0.01)
    left = kv_budget_bytes("auto", LLAMA, hardware("RTX-4090"), "bfloat16")
    assert left is not None
    assert 0.9 * 41_408 < left / token <= 41_408


def test_off_and_a_number_override_every_formula() -> None:
    assert kv_budget_bytes("off", SMALL, hardware("H200"), "bfloat16") is None
    assert kv_budget_bytes("auto", SMALL, hardware("cpu"), "float32") is None
    assert kv_budget_bytes("40GB", SMALL, hardware("cpu"), "float32") == 40_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1000000", 1_000_000), ("40GB", 40 * 10**9), ("512MiB", 2**29), ("1.5 gib", 3 * 2**29), ("7B", 7)],
)
def test_bytes_with_units(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "lots", "-1GB", "0", "40XB", "nan", "1e9", "40 GB free"])
def test_what_is_no_number_of_bytes_is_said_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="is not auto, off or a number of bytes") as error:
        kv_budget_bytes(text, SMALL, hardware("H200"), "bfloat16")
    assert "\n" not in str(error.value)


def test_a_model_that_does_not_fit_is_named_with_its_size() -> None:
    with pytest.raises(InputError, match=r"Qwen3-32B in bfloat16 does not fit on L4: 65\.5 GB of weights"):
        kv_budget_bytes("auto", model_shape("Qwen3-32B"), hardware("L4"), "bfloat16")
