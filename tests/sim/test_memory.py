import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.__main__ import app
from sim.hardware import hardware
from sim.memory import (
    FRAMEWORK_BYTES,
    activation_bytes,
    batch_kv_bytes,
    footprint,
    kv_budget_bytes,
    largest_batch,
    logits_bytes,
    parse_bytes,
    weight_bytes,
)
from sim.models import ModelShape, model_shape
from traces.errors import InputError
from traces.terminal import exit_code

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


def test_a_footprint_is_a_sum_of_parts_worked_by_hand() -> None:
    found = footprint(SMALL, hardware("H200"), "bfloat16", 4, 30, 20)
    assert found.weights_bytes == 2 * SMALL.parameters
    assert found.kv_bytes == 4 * 50 * 114_688
    assert found.kv_needed_bytes == 4 * 49 * 114_688
    assert found.activations_bytes == 4 * 30 * (2048 + 4096 + 9216) * 2 + 4 * 30 * 30
    assert found.logits_bytes == 4 * 151_936 * 4
    assert found.framework_bytes == FRAMEWORK_BYTES
    parts = (
        found.weights_bytes,
        found.kv_bytes,
        found.activations_bytes,
        found.logits_bytes,
        FRAMEWORK_BYTES,
    )
    assert found.total_bytes == sum(parts)
    assert footprint(SMALL, hardware("cpu"), "float32", 4, 30, 20).framework_bytes == 0


@given(
    st.sampled_from(["Qwen3-0.6B", "Qwen3-8B", "Qwen3-30B-A3B", "toy"]),
    st.sampled_from(["H200", "A100-80GB", "L4"]),
    st.integers(1, 40_000),
    st.integers(1, 40_000),
)
def test_the_largest_batch_fits_and_one_row_more_does_not(
    name: str, device: str, prompt: int, output: int
) -> None:
    shape, where = model_shape(name), hardware(device)
    most = largest_batch(shape, where, "bfloat16", prompt, output)
    assert most is not None
    assert where.memory_bytes is not None
    if most:
        assert footprint(shape, where, "bfloat16", most, prompt, output).total_bytes <= where.memory_bytes
    assert footprint(shape, where, "bfloat16", most + 1, prompt, output).total_bytes > where.memory_bytes


def test_a_measured_capacity_overrides_every_allowance() -> None:
    # 41,408 tokens were measured for Llama-3.1-8B on a 24 GB card; at 1000 + 24 tokens a row that is 40 rows.
    capacity = 41_408 * LLAMA.kv_bytes_per_token()
    assert largest_batch(LLAMA, hardware("RTX-4090"), "bfloat16", 1000, 24, capacity) == 40
    assert largest_batch(LLAMA, hardware("L4"), "bfloat16", 1000, 24, capacity) == 40
    formula = largest_batch(LLAMA, hardware("RTX-4090"), "bfloat16", 1000, 24)
    assert formula is not None
    assert formula < 40


def test_where_nothing_limits_a_batch_or_nothing_fits() -> None:
    assert largest_batch(SMALL, hardware("cpu"), "float32", 100, 100) is None
    assert largest_batch(model_shape("Qwen3-32B"), hardware("L4"), "bfloat16", 1, 1) == 0


CAPACITY_800 = 800 * 114_688


def test_a_request_that_can_never_fit_is_rejected_with_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,900,1\n0,700,200\n0,100,10\n")
    options = ["run", str(trace)]
    assert exit_code(app, "sim", [*options, "--at-once", "--memory", f"{CAPACITY_800}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 of 3 requests rejected at submission" in said
    assert "row 0, needs 900 + 1 = 901 tokens of KV cache, and there are 800" in said
    assert exit_code(app, "sim", [*options, "--at-once", "--memory", f"{CAPACITY_800}", "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = found["requests"]
    assert (counts["in"], counts["completed"], counts["rejected"], counts["unfinished"]) == (3, 1, 2, 0)
    # Input and output both count: with 901 tokens both of the long ones fit, alone.
    enough = str(901 * 114_688)
    assert exit_code(app, "sim", [*options, "--at-once", "--memory", enough, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"]["completed"] == 3
    assert found["batches"]["count"] == 3


def test_two_rows_reserve_both_longest_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Prompts 400 and 50, outputs 100 and 10: together 2 x (400 + 100) = 1000 tokens.
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,400,100\n0,50,10\n")
    for tokens, batches in ((1000, 1), (999, 2)):
        options = ["run", str(trace), "--at-once", "--memory", str(tokens * 114_688), "--json", "-"]
        assert exit_code(app, "sim", options) == 0
        assert json.loads(capsys.readouterr().out)["batches"]["count"] == batches
