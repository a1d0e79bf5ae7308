import pytest

from sim.models import MODELS, model_shape
from traces.errors import InputError

# Bytes per token in bfloat16, from each model's config with its explicit head_dim (public cases, LMCache #688).
KV_BYTES = {
    "Qwen3-0.6B": 114_688,
    "Qwen3-1.7B": 114_688,
    "Qwen3-4B": 147_456,
    "Qwen3-8B": 147_456,
    "Qwen3-14B": 163_840,
    "Qwen3-32B": 262_144,
    "Qwen3-30B-A3B": 98_304,
}
# Parameters as counted on the instantiated models, billions.
PARAMETERS = {
    "Qwen3-0.6B": 0.596,
    "Qwen3-1.7B": 1.721,
    "Qwen3-4B": 4.022,
    "Qwen3-8B": 8.191,
    "Qwen3-14B": 14.768,
    "Qwen3-32B": 32.762,
    "Qwen3-30B-A3B": 30.532,
}


@pytest.mark.parametrize(("name", "expected"), KV_BYTES.items())
def test_kv_bytes_use_explicit_head_dim_and_kv_heads(name: str, expected: int) -> None:
    assert model_shape(name).kv_bytes_per_token() == expected
    assert model_shape(name).kv_bytes_per_token(4) == 2 * expected


@pytest.mark.parametrize(
    ("name", "from_hidden_size", "from_query_heads"),
    [
        ("Qwen3-0.6B", 57_344, 2 * 114_688),
        ("Qwen3-4B", 92_160, 4 * 147_456),
        ("Qwen3-32B", 163_840, 8 * 262_144),
    ],
)
def test_the_two_usual_mistakes_give_other_numbers(
    name: str, from_hidden_size: int, from_query_heads: int
) -> None:
    shape = model_shape(name)
    assert 4 * shape.layers * shape.kv_heads * (shape.hidden_size // shape.query_heads) == from_hidden_size
    assert 4 * shape.layers * shape.query_heads * shape.head_dim == from_query_heads
    assert shape.kv_bytes_per_token() not in (from_hidden_size, from_query_heads)


@pytest.mark.parametrize(("name", "billions"), PARAMETERS.items())
def test_parameters_match_the_instantiated_models(name: str, billions: float) -> None:
    assert model_shape(name).parameters / 1e9 == pytest.approx(billions, abs=0.0006)


def test_names_are_looked_up_with_or_without_the_owner_and_unknown_ones_listed() -> None:
    assert model_shape("Qwen/Qwen3-8B") is MODELS["Qwen3-8B"]
    with pytest.raises(InputError, match=r"unknown model 'Qwen9'; known are .*Qwen3-8B.* or toy"):
        model_shape("Qwen9")
