"""Operations of a pass: they add up, are bound by what they should be, and count what can be counted by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scores.score import read
from benchmarks.scores.whole_batches import GROUPS, SHAPES, capacity_blocks, passes
from sim.cost import nanoseconds
from sim.hardware import HARDWARE, hardware
from sim.models import MODELS, model_shape
from sim.ops import BOUNDS, HOST, STARTS, apportion, ops, together, totals
from sim.roofline import HOSTS, LAYER_HOST_S, Roofline
from sim.step import Step, batch_steps, padded_decode, padded_prefill
from tests.sim.synthetic import steps

rooflines = st.builds(
    Roofline,
    st.sampled_from(list(MODELS.values())),
    st.sampled_from(list(HARDWARE.values())),
    st.sampled_from(["bfloat16", "float32"]),
    st.sampled_from(list(HOSTS)),
)
GRAPH = Roofline(model_shape("Qwen3-8B"), hardware("H200"), host="graph")


@settings(deadline=None)
@given(rooflines, steps)
def test_operations_add_up_to_the_pass(model: Roofline, some: Step) -> None:
    each = ops(model, some)
    assert np.allclose(sum(op.seconds for op in each), model.seconds(some), rtol=1e-12, atol=0)
    for op in each:
        assert np.all(op.seconds >= 0), op.name
        assert np.all(op.flop >= 0), op.name
        assert np.all(op.byte >= 0), op.name
        peak, bandwidth = model.hardware.flop_per_s[model.dtype], model.hardware.memory_bytes_per_s
        # Nothing is faster than light.
        least = np.maximum(op.flop / peak, op.byte / bandwidth)
        assert np.all(op.seconds >= least * (1 - 1e-12)), op.name


@given(st.integers(0, 10**15), st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=12))
def test_whole_nanoseconds_add_up_exactly(total: int, seconds: list[float]) -> None:
    parts = apportion(total, seconds)
    assert sum(parts) == total
    for part, second in zip(parts, seconds, strict=True):
        assert abs(part - total * second / sum(seconds)) <= 1 + 1e-9 * total


def test_a_batch_in_nanoseconds_is_its_operations_exactly() -> None:
    batch = batch_steps(4, 30, 20)
    total = int(nanoseconds(GRAPH, batch).sum())
    assert sum(apportion(total, [op.seconds for op in totals(GRAPH, batch)])) == total


def test_the_projections_are_read_in_proportion_to_their_heads() -> None:
    by_name = {op.name: op for op in ops(GRAPH, padded_decode([1], [100]))}
    # 36 layers x 4096 x (32 heads x 128) weights of two bytes, at 82 % of 4.8 TB/s.
    q_bytes = 36 * 4096 * 32 * 128 * 2
    assert by_name["q projection"].byte[0] == pytest.approx(q_bytes, rel=1e-12)
    assert by_name["q projection"].seconds[0] == pytest.approx(q_bytes / (4.8e12 * 0.82), rel=1e-12)
    assert by_name["k projection"].byte[0] == by_name["v projection"].byte[0]
    assert by_name["q projection"].byte[0] == pytest.approx(4 * by_name["k projection"].byte[0])
    assert by_name["output projection"].flop[0] == pytest.approx(2 * 36 * 4096 * 32 * 128)


def test_flop_of_a_pass_are_two_a_weight_and_token_and_four_a_pair() -> None:
    rows, prompt = 3, 100
    shape = GRAPH.shape
    weights = shape.layers * (shape.attention_parameters + shape.mlp_parameters)
    pairs = 4 * shape.layers * 32 * 128 * rows * prompt**2
    expected = 2 * weights * rows * prompt + pairs + 2 * shape.head_parameters * rows
    flop = sum(op.flop[0] for op in ops(GRAPH, padded_prefill([rows], [prompt])))
    assert flop == pytest.approx(expected, rel=1e-12)


def test_decode_is_bound_by_memory_prefill_by_arithmetic_and_small_kernels_by_their_start() -> None:
    decode = {op.name: op for op in totals(GRAPH, padded_decode([1], [100]))}
    assert decode["MLP"].bound == "memory"
    assert decode["MLP"].byte_use == pytest.approx(0.82)
    assert decode["MLP"].light == decode["MLP"].byte_use
    assert decode["norms, elementwise"].bound == "memory"
    assert decode[STARTS].bound == "launch"
    assert decode[STARTS].light == 0
    starts = 36 * 82 * 3.25e-6
    assert decode[STARTS].seconds + decode["norms, elementwise"].seconds == pytest.approx(starts)
    assert "attention, prefill" not in decode
    assert HOST not in decode
    prefill = {op.name: op for op in totals(GRAPH, padded_prefill([16], [2048]))}
    assert prefill["MLP"].bound == "compute"
    assert prefill["MLP"].flop_use == pytest.approx(0.77)
    assert prefill["attention, prefill"].flop_use == pytest.approx(0.58)
    assert STARTS not in prefill


def test_what_the_device_does_not_hide_is_the_hosts() -> None:
    eager = Roofline(model_shape("Qwen3-0.6B"), hardware("H200"))
    one = padded_decode([1], [64])
    host = ops(eager, one)[-1]
    device = Roofline(eager.shape, eager.hardware, host="graph").seconds(one)
    assert host.name == HOST
    assert host.seconds[0] == pytest.approx(28 * LAYER_HOST_S - device[0])
    assert BOUNDS[host.bound[0]] == "launch"
    # A long prefill hides the host whole; on a CPU nothing does.
    assert ops(eager, padded_prefill([16], [2048]))[-1].seconds[0] == 0
    cpu = Roofline(model_shape("toy"), hardware("cpu"), "float32")
    assert ops(cpu, padded_prefill([16], [2048]))[-1].seconds[0] == pytest.approx(4 * LAYER_HOST_S)


def test_a_fused_engine_starts_fewer_kernels_and_moves_less() -> None:
    one = padded_decode([1], [64])
    for host, kernels in (("graph", 82), ("fused", 12)):
        by_name = {op.name: op for op in totals(Roofline(GRAPH.shape, GRAPH.hardware, host=host), one)}
        starts = by_name[STARTS].seconds + by_name["norms, elementwise"].seconds
        assert starts == pytest.approx(36 * kernels * 3.25e-6)
    graph, fused = (
        Roofline(GRAPH.shape, GRAPH.hardware, host=host).seconds(padded_prefill([16], [2048]))[0]
        for host in ("graph", "fused")
    )
    assert fused < graph
    experts = Roofline(model_shape("Qwen3-30B-A3B"), hardware("H200"), host="fused")
    by_name = {op.name: op for op in totals(experts, one)}
    starts = by_name[STARTS].seconds + by_name["norms, elementwise"].seconds
    assert starts == pytest.approx(48 * 16 * 3.25e-6)
    assert by_name["experts"].byte == pytest.approx(48 * 8 * 3 * 2048 * 768 * 2)
    assert by_name["router"].flop == pytest.approx(48 * 2 * 2048 * 128)


def test_a_fused_engine_s_attention_is_causal(shared_data: Path) -> None:
    """Long prompts against measured causal kernels: a masked kernel computes twice as many pairs."""
    table = read(shared_data / "measured" / "aiconfigurator-ops" / "h200_context_attention_bf16_hd128.csv")
    ratios: dict[str, list[float]] = {host: [] for host in HOSTS}
    for row in table:
        batch, prompt, heads = (int(row[name]) for name in ("batch_size", "isl", "num_heads"))
        if prompt < 2048 or 4 * batch * prompt**2 * heads * 128 < 2e12:
            continue
        for host, found in ratios.items():
            shape = replace(GRAPH.shape, query_heads=heads, kv_heads=heads, layers=1)
            by_name = {
                op.name: op
                for op in totals(
                    Roofline(shape, GRAPH.hardware, host=host), padded_prefill([batch], [prompt])
                )
            }
            found.append(1e3 * by_name["attention, prefill"].seconds / float(row["latency_ms"]))
    assert len(ratios["fused"]) == 831
    assert np.median(ratios["fused"]) == pytest.approx(1, abs=0.02)
    assert np.median(ratios["graph"]) == pytest.approx(2, abs=0.04)


def test_several_operations_as_one() -> None:
    each = totals(GRAPH, padded_decode([8, 8], [100, 200]))
    assert {op.bound for op in each} == {"memory", "launch"}
    whole = together(GRAPH, "decode", each)
    assert whole.seconds == pytest.approx(GRAPH.seconds(padded_decode([8, 8], [100, 200])).sum())
    assert whole.share == pytest.approx(1.0)
    slow = {b: sum(op.seconds for op in each if op.bound == b) for b in BOUNDS}
    assert whole.bound == max(slow, key=lambda b: slow[b])
    assert whole.byte == pytest.approx(sum(op.byte for op in each))
    assert 0.1 < whole.byte_use < 0.82


def test_the_ridge_of_the_roofline() -> None:
    # 989.5e12 x 0.77 FLOP/s by 4.8e12 x 0.82 B/s, two bytes and two FLOP a weight.
    assert GRAPH.ridge_tokens == pytest.approx(193.57, abs=0.01)
    # Each token goes through 8 of 128 experts, so it takes 16 times as many.
    experts = Roofline(model_shape("Qwen3-30B-A3B"), hardware("H200"))
    assert experts.ridge_tokens == pytest.approx(16 * GRAPH.ridge_tokens)
    rows = np.array([193, 194])
    mlp = next(op for op in ops(GRAPH, padded_decode(rows, [1, 1])) if op.name == "MLP")
    assert [BOUNDS[i] for i in mlp.bound] == ["memory", "compute"]


def test_fused_kernels_come_nearer_to_vllm_than_eager_ones(shared_data: Path) -> None:
    """Whole batches on one GPU, nothing fitted: host and kernels are counted, rates are of other measurements."""
    devices = {
        # The file's A100 has 40 GB, whose datasheet says 1,555 GB/s.
        "Nvidia A100 GPU": replace(hardware("A100-80GB"), memory_bytes_per_s=1.555e12),
        "Nvidia GH200 GPU": hardware("GH200"),
    }
    errors: dict[str, list[float]] = {host: [] for host in HOSTS}
    seen = set()
    for row in read(shared_data / "measured" / "llm-inference-bench" / "All_results.csv"):
        group, key = (
            (row["Hardware"], row["Model"]),
            (int(row["Batch Size"]), int(row["Input Output Length"])),
        )
        alone = row["Framework"] == "vLLM" and row["Num of Hardware"] == "1" and group in GROUPS
        if not alone or (group, key) in seen:
            continue
        seen.add((group, key))
        took_s = float(row["Latency"])
        for host in HOSTS:
            model = Roofline(SHAPES[row["Model"]], devices[row["Hardware"]], "float16", host)
            steps = passes(*key, capacity_blocks(*group))
            errors[host].append(abs(float(model.seconds(steps).sum()) - took_s) / took_s)
    assert len(seen) == 120
    mean = {host: float(np.mean(found)) for host, found in errors.items()}
    assert mean["fused"] < 0.22 < 0.33 < mean["graph"]
