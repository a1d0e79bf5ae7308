import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.cost import nanoseconds
from sim.hardware import HARDWARE, hardware
from sim.models import MODELS, model_shape
from sim.roofline import HOSTS, LAYER_HOST_S, Roofline
from sim.step import Step, concat, padded_decode, padded_prefill
from tests.sim.synthetic import FIELDS, falls, steps
from traces.errors import InputError

rooflines = st.builds(
    Roofline,
    st.sampled_from(list(MODELS.values())),
    st.sampled_from(list(HARDWARE.values())),
    st.sampled_from(["bfloat16", "float32"]),
    st.sampled_from(list(HOSTS)),
)


@settings(deadline=None)
@given(rooflines, steps, st.sampled_from(FIELDS), st.integers(1, 2**20))
def test_law_7_positive_and_never_falling(model: Roofline, some: Step, field: str, more: int) -> None:
    assert not falls(model, some, field, more)
    assert np.all(nanoseconds(model, some) >= 1)


def test_decode_of_a_large_model_is_bound_by_its_weights() -> None:
    # Qwen3-32B on H200: 31.98e9 weights outside the embedding at 4.8 TB/s x 0.82 are 16.25 ms.
    shape, device = model_shape("Qwen3-32B"), hardware("H200")
    weights = shape.parameters - shape.head_parameters - shape.norm_parameters
    read_s = 2 * weights / (4.8e12 * 0.82)
    one = Roofline(shape, device, host="graph").seconds(padded_decode([1], [1]))[0]
    assert read_s == pytest.approx(16.25e-3, rel=0.002)
    launches = 64 * 82 * device.launch_s
    assert one == pytest.approx(read_s + launches, rel=0.01)


def test_kv_reads_add_their_bytes_at_bandwidth() -> None:
    model = Roofline(model_shape("Qwen3-8B"), hardware("H200"), host="graph")
    short, long = model.seconds(padded_decode([32, 32], [1000, 3000]))
    assert long - short == pytest.approx(32 * 2000 * 147_456 / (4.8e12 * 0.82), rel=1e-9)


def test_a_long_prefill_is_bound_by_arithmetic() -> None:
    shape = model_shape("Qwen3-8B")
    model = Roofline(shape, hardware("H200"))
    tokens = 16 * 2048
    linear = (
        2 * shape.layers * (shape.attention_parameters + shape.mlp_parameters) * tokens / (989.5e12 * 0.77)
    )
    pairs = 4 * shape.layers * 32 * 128 * 16 * 2048**2 / (989.5e12 * 0.58)
    total = model.seconds(padded_prefill([16], [2048]))[0]
    assert linear + pairs < total < 1.25 * (linear + pairs)


def test_eager_small_models_wait_for_the_host_whatever_the_batch() -> None:
    eager = Roofline(model_shape("Qwen3-0.6B"), hardware("H200"))
    assert np.all(eager.seconds(padded_decode([1, 8, 32], [64, 64, 64])) == 28 * LAYER_HOST_S)
    graph = Roofline(model_shape("Qwen3-0.6B"), hardware("H200"), host="graph")
    assert graph.seconds(padded_decode([1], [64]))[0] < 28 * LAYER_HOST_S


def test_a_cpu_pays_host_and_arithmetic_one_after_the_other() -> None:
    toy, cpu = model_shape("toy"), hardware("cpu")
    eager, graph = (Roofline(toy, cpu, "float32", host) for host in ("eager", "graph"))
    one = padded_decode([4], [100])
    assert eager.seconds(one)[0] - graph.seconds(one)[0] == pytest.approx(4 * LAYER_HOST_S)


def test_experts_read_are_those_that_tokens_are_expected_to_touch() -> None:
    shape = model_shape("Qwen3-30B-A3B")
    model = Roofline(shape, hardware("H200"), host="graph")
    one, two, many = model.seconds(padded_decode([1, 2, 4096], [1, 1, 1]))
    expert_s = 48 * 3 * 2048 * 768 * 2 / (4.8e12 * 0.82)
    # One token reads its 8 experts, a second 8 x (1 - 8/128) more; thousands read all 128.
    assert two - one == pytest.approx(7.5 * expert_s, rel=0.02)
    assert many > 128 * expert_s


def test_mixed_passes_go_through_the_weights_once() -> None:
    model = Roofline(model_shape("Qwen3-32B"), hardware("H200"))
    prefill, decode = padded_prefill([1], [16]), padded_decode([8], [500])
    mixed = Step(*(a + b for a, b in zip(vars(prefill).values(), vars(decode).values(), strict=True)))
    assert model.seconds(mixed)[0] < 1.2 * model.seconds(decode)[0]
    assert model.seconds(mixed)[0] > model.seconds(prefill)[0]


def test_cost_is_a_straight_line_in_kv_tokens_but_for_one_bend() -> None:
    model = Roofline(model_shape("Qwen3-8B"), hardware("H20"))
    seconds = model.seconds(padded_decode(np.full(20_000, 64), np.arange(1, 20_001)))
    bends = np.abs(np.diff(seconds, 2)) > 1e-12
    assert bends.sum() <= 2


def test_pricing_is_by_column() -> None:
    context = np.arange(3_000_000) % 30_000 + 1
    many = padded_decode(np.full_like(context, 32), context)
    model = Roofline(model_shape("Qwen3-8B"), hardware("H200"))
    start = time.process_time()
    seconds = model.seconds(many)
    # A Python loop over three million passes takes several times as long on any machine.
    assert time.process_time() - start < 3.0
    assert seconds.shape == context.shape


def test_any_shape_of_columns_comes_back() -> None:
    model = Roofline(model_shape("toy"), hardware("cpu"), "float32")
    rows, context = np.meshgrid([1, 2, 4], [16, 32])
    square = model.seconds(padded_decode(rows, context))
    assert square.shape == (2, 3)
    assert square.ravel().tolist() == model.seconds(padded_decode(rows.ravel(), context.ravel())).tolist()
    assert len(model.seconds(concat(padded_decode([], [])))) == 0


def test_what_does_not_exist_is_refused() -> None:
    with pytest.raises(InputError, match="unknown dtype 'int8'; known are bfloat16, float16 or float32"):
        Roofline(model_shape("toy"), hardware("cpu"), "int8")
    with pytest.raises(InputError, match="unknown host 'lazy'; known are eager, fused or graph"):
        Roofline(model_shape("toy"), hardware("cpu"), host="lazy")
