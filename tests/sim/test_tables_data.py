"""Hardware and models as rows of TOML: those that come along, the user's own, and a model's config.json."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sim import rows
from sim.__main__ import app
from sim.costs import from_json, to_json
from sim.hardware import HARDWARE, HARDWARE_KEYS, KERNELS, OPTIONAL_KEYS, hardware, known_hardware
from sim.models import MODELS, model_shape
from sim.roofline import Roofline
from sim.step import padded_decode
from traces.errors import InputError
from traces.terminal import exit_code

ROOT = Path(__file__).resolve().parents[2]
MINE = """
[kernels.mine]
gemm_flop_share = 0.5
attention_flop_share = 0.5
gemm_bytes_share = 0.5
attention_bytes_share = 0.5
source = "measured at home"

[hardware.Mine]
memory_bytes = 10_000_000_000
memory_bytes_per_s = 1e12
bfloat16_flop_per_s = 100e12
launch_s = 2e-6
kernels = "mine"
source = "printed on the box"

[hardware.L4]
memory_bytes_per_s = 0.25e12
bfloat16_flop_per_s = 60e12
launch_s = 0
source = "a slower one"

[models.Small]
hidden_size = 128
intermediate_size = 256
layers = 2
query_heads = 4
kv_heads = 2
head_dim = 32
vocab_size = 1000
tied_embeddings = false
source = "made up"
"""
QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 36,
}
A3B = {
    **QWEN3_4B,
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(MINE)
    monkeypatch.setenv(rows.ENVIRONMENT, str(path))
    return path


def config(folder: Path, document: dict[str, Any], name: str = "config.json") -> str:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(document))
    return str(folder)


def test_every_number_has_its_unit_in_its_key_and_every_row_a_source() -> None:
    counts = ("_size", "_heads", "layers", "head_dim", "experts", "experts_per_token")
    for file in ("hardware.toml", "models.toml"):
        document = tomllib.loads((rows.BUILT_IN / file).read_text())
        for section, table in document.items():
            assert section in rows.SECTIONS
            for row in table.values():
                assert len(row["source"]) > 10
                if row.get("launch_s"):
                    assert "AIConfigurator" in row["launch_source"]
                for key, value in row.items():
                    if type(value) in (int, float):
                        units = counts if section == "models" else ("_bytes", "_per_s", "_s", "_share")
                        assert key.endswith(units), key


def test_reading_the_tables_takes_milliseconds_of_one_import() -> None:
    code = (
        "import time, sim.rows as r; start = time.process_time()\n"
        "r.built_in('hardware.toml', 'hardware'); r.built_in('models.toml', 'models')\n"
        "print(time.process_time() - start)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.25  # a few ms on a quiet machine


def test_own_rows_are_found_and_take_precedence(mine: Path) -> None:
    device = hardware("mine")
    assert (device.name, device.memory_bytes, device.flop_per_s) == ("Mine", 10**10, {"bfloat16": 100e12})
    assert device.kernels.gemm_flop == 0.5
    assert hardware("L4").memory_bytes_per_s == 0.25e12
    assert hardware("L4").kernels == KERNELS["H200"]
    assert HARDWARE["L4"].memory_bytes_per_s == 0.3e12
    assert set(known_hardware()) == {*HARDWARE, "Mine"}
    assert (
        model_shape("Small").parameters
        == 2 * (2 * 128 * 32 * 6 + 3 * 128 * 256) + 2 * 2 * 160 + 128 + 256_000
    )
    with pytest.raises(InputError, match=r"unknown hardware 'H900'; known are .*Mine.* or cpu"):
        hardware("H900")
    with pytest.raises(InputError, match=r"unknown model 'Smaller'; known are .*Small.* or toy"):
        model_shape("Smaller")


def test_a_run_on_own_rows_is_priced_again_without_them(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Roofline(model_shape("Small"), hardware("Mine"), host="graph")
    document = json.loads(json.dumps(to_json(model)))
    monkeypatch.delenv(rows.ENVIRONMENT)
    assert from_json(document) == model
    step = padded_decode([3], [100])
    assert from_json(document).seconds(step) == model.seconds(step)
    # Rows that come with the program stay names.
    plain = to_json(Roofline(MODELS["toy"], HARDWARE["H200"]))
    assert "tables" not in plain


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"launch_s": "soon"}, ["[hardware.Mine]", "launch_s = 'soon'"]),
        ({"memory_bytes_per_s": 0}, ["[hardware.Mine]", "memory_bytes_per_s = 0"]),
        ({"price": 1}, ["[hardware.Mine]", "'price'"]),
        (None, ["roofline"]),
    ],
)
def test_rows_saved_with_a_model_are_checked_as_any_others(
    change: dict[str, Any] | None, words: list[str], mine: Path
) -> None:
    document = json.loads(json.dumps(to_json(Roofline(model_shape("Small"), hardware("Mine")))))
    if change is None:
        document["tables"]["hardware"] = []
    else:
        document["tables"]["hardware"]["Mine"] |= change
    with pytest.raises(InputError) as error:
        from_json(document, "cost.json")
    assert all(word in str(error.value) for word in ["cost.json", *words]), error.value


def test_commands_use_own_rows(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(app, "sim", ["run", "textbook", "--model", "Small", "--gpu", "mine", "--json", "-"]) == 0
    setup = json.loads(capsys.readouterr().out)["setup"]
    assert (setup["model"], setup["gpu"]) == ("Small", "Mine")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("launch_s = 2e-6", ""), ["[hardware.Mine]", "'launch_s'", "a number of at least 0"]),
        (("launch_s = 2e-6", "launch_us = 2"), ["[hardware.Mine]", "'launch_us'", "launch_s"]),
        (("= 1e12", "= -1e12"), ["[hardware.Mine]", "memory_bytes_per_s = -1000000000000.0", "above 0"]),
        (("= 1e12", "= nan"), ["[hardware.Mine]", "memory_bytes_per_s = nan"]),
        (("= 1e12", '= "fast"'), ["[hardware.Mine]", "memory_bytes_per_s = 'fast'"]),
        (("= 1e12", "= "), ["not TOML", "line 11"]),
        (("bfloat16_flop_per_s = 100e12", ""), ["[hardware.Mine]", "bfloat16_flop_per_s"]),
        (('kernels = "mine"', 'kernels = "yours"'), ["[hardware.Mine]", "'yours'", "mine"]),
        (("gemm_flop_share = 0.5", "gemm_flop_share = 50"), ["[kernels.mine]", "gemm_flop_share = 50"]),
        (('source = "printed on the box"', 'source = ""'), ["[hardware.Mine]", "source = ''"]),
        (("layers = 2", "layers = 2.5"), ["[models.Small]", "layers = 2.5"]),
        (("layers = 2", "layers = true"), ["[models.Small]", "layers = True"]),
        (("kv_heads = 2", "kv_heads = 3"), ["[models.Small]", "kv_heads = 3"]),
        (("head_dim = 32", "head_dim = 32\nexperts = 8"), ["[models.Small]", "experts_per_token = 0"]),
        (("[models.Small]", "[model.Small]"), ["[model]", "models"]),
        (("[models.Small]", "[models]"), ["[models]", "hidden_size"]),
    ],
)
def test_a_bad_row_is_one_line_with_file_table_and_key(
    change: tuple[str, str],
    words: list[str],
    mine: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mine.with_name("bad.toml").write_text(MINE.replace(*change, 1))
    monkeypatch.setenv(rows.ENVIRONMENT, str(mine.with_name("bad.toml")))
    for model, gpu in (("toy", "L4"), ("Small", "Mine")):
        if exit_code(app, "sim", ["run", "textbook", "--model", model, "--gpu", gpu]) == 2:
            break
    else:
        pytest.fail("no complaint")
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert "bad.toml" in line
    assert all(word in line for word in words), line


def test_a_file_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rows.ENVIRONMENT, str(tmp_path / "gone.toml"))
    with pytest.raises(InputError, match=r"gone\.toml' \(STATIC_BATCHING_TABLES\): No such file"):
        hardware("H200")


@pytest.mark.parametrize(("document", "name"), [(QWEN3_4B, "Qwen3-4B"), (A3B, "Qwen3-30B-A3B")])
def test_a_config_json_gives_the_tables_shape(document: dict[str, Any], name: str, tmp_path: Path) -> None:
    folder = config(tmp_path / name, document)
    assert model_shape(folder) == MODELS[name]
    assert model_shape(f"{folder}/config.json") == MODELS[name]


def test_a_config_without_head_dim_or_kv_heads_has_the_builds_own(tmp_path: Path) -> None:
    shape = model_shape(config(tmp_path / "llama", LLAMA_2_7B))
    assert (shape.head_dim, shape.kv_heads, shape.tied_embeddings) == (128, 32, False)
    assert shape.kv_bytes_per_token() == 524_288
    # transformers 5 writes the experts of qwen3_moe under another key.
    renamed = {k: v for k, v in A3B.items() if k != "num_experts"} | {"num_local_experts": 128}
    assert model_shape(config(tmp_path / "Qwen3-30B-A3B", renamed)) == MODELS["Qwen3-30B-A3B"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "gemma3"}, ["'gemma3'", "qwen3_moe"]),
        ({"model_type": None}, ["model_type None"]),
        ({"head_dim": None}, ["'head_dim'"]),
        ({"hidden_size": "wide"}, ["hidden_size = 'wide'"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers = 0"]),
        ({"num_key_value_heads": 5}, ["kv_heads = 5"]),
        ({"sliding_window": 4096, "use_sliding_window": True}, ["sliding_window = 4096"]),
        ({"layer_types": ["full_attention", "sliding_attention"]}, ["sliding_attention", "full_attention"]),
        ({"quantization_config": {"quant_method": "awq"}}, ["quantization_config"]),
        ({"model_type": "qwen3_moe"}, ["num_experts"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings = 'yes'"]),
        ({**A3B, "mlp_only_layers": [0]}, ["mlp_only_layers"]),
        ({**A3B, "num_experts_per_tok": 129}, ["experts_per_token = 129"]),
    ],
)
def test_what_costs_otherwise_is_refused_by_name(
    change: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    folder = config(tmp_path / "other", {**QWEN3_4B, **change})
    with pytest.raises(InputError) as error:
        model_shape(folder)
    line = str(error.value)
    assert "config.json" in line
    assert "\n" not in line
    assert all(word in line for word in words), line


def test_mistrals_window_has_no_switch(tmp_path: Path) -> None:
    mistral = {**LLAMA_2_7B, "model_type": "mistral", "num_key_value_heads": 8}
    assert model_shape(config(tmp_path / "open", {**mistral, "sliding_window": None})).kv_heads == 8
    with pytest.raises(InputError, match="sliding_window = 4096 is not supported"):
        model_shape(config(tmp_path / "windowed", {**mistral, "sliding_window": 4096}))


def test_a_path_without_a_config_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: No such file"):
        model_shape(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        model_shape(str(tmp_path))


def test_no_key_is_both_required_and_optional() -> None:
    assert not set(HARDWARE_KEYS) & set(OPTIONAL_KEYS)
