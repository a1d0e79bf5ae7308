"""``python -m sim explain``: a batch by operation, its padding, its memory, other batch sizes."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import costs
from sim.__main__ import app
from sim.batching import Batching
from sim.cost import CostModel
from sim.curve import Point, knee
from sim.explain import Explanation, explain
from sim.explain_command import lengths, requests
from sim.fitted import fit
from sim.hardware import HARDWARE, hardware
from sim.ledger import ledger
from sim.memory import largest_batch
from sim.models import MODELS, model_shape
from sim.ops import HOST
from sim.roofline import HOSTS, LAYER_HOST_S, Roofline
from sim.run import prices_of, simulate
from tests.sim.synthetic import profile
from tests.sim.worked import K1
from traces.errors import InputError
from traces.terminal import exit_code
from traces.trace import Trace

EAGER = Roofline(model_shape("Qwen3-0.6B"), hardware("H200"))
GRAPH = replace(EAGER, host="graph")
TEXTBOOK = ([10, 30, 5, 20], [15, 10, 20, 12])


def sim(*argv: str) -> int:
    return exit_code(app, "python -m sim", ["explain", *argv])


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert sim(*argv, "--json", "-") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def batch_of(prompts: list[int], outputs: list[int]) -> Trace:
    rows = len(prompts)
    at, row = np.zeros(rows, np.int64), np.arange(rows, dtype=np.int64)
    return Trace("batch", at, np.array(prompts, np.int64), np.array(outputs, np.int64), row, timed=False)


def test_the_textbook_batch_in_slots_and_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys, "--prompt", "10,30,5,20", "--output", "15,10,20,12", "--host", "graph", "--model", "Qwen3-8B"
    )
    assert found["slots"] == {
        "prefill": {"slots": 120, "padding": 55},
        "decode": {"slots": 80, "idle": 23},
    }
    phases = found["phases"]
    assert (phases["prefill"]["passes"], phases["decode"]["passes"]) == (1, 19)
    # Exact: operations are their phase, the ledger's lines the batch, in whole nanoseconds.
    for phase in phases.values():
        assert sum(ns(op["seconds"]) for op in phase["operations"]) == ns(phase["seconds"])
        assert phase["seconds"] == phase["roofline_s"]
        assert sum(op["share"] for op in phase["operations"]) == pytest.approx(1.0)
    total = sum(ns(phase["seconds"]) for phase in phases.values())
    assert sum(ns(line) for line in found["ledger_s"].values()) == total == ns(found["together"]["total_s"])
    # 46 % of prefill's slots and 29 % of decode's are wasted, but hardly any of the seconds.
    assert 0 < found["ledger_s"]["prefill_padding"] < 0.2 * phases["prefill"]["seconds"]
    assert 0 <= found["ledger_s"]["idle_rows"] < 0.02 * phases["decode"]["seconds"]
    assert found["alone"]["passes"] == 57
    assert found["together"]["passes"] == 20


def test_a_batch_worked_by_hand() -> None:
    # K1: 1 ms a prompt slot, 10 ms a decode step whatever the rows.
    found = explain(K1, EAGER, [10, 10, 10, 10], [2, 2, 2, 100])
    assert found.prefill.ns == 40_000_000
    assert found.decode is not None
    assert found.decode.ns == 990_000_000
    assert found.together.ns == 1_030_000_000
    assert found.alone.prefill_ns == 4 * 10_000_000
    assert found.alone.decode_ns == (1 + 1 + 1 + 99) * 10_000_000
    assert found.decode_slots.wasted == 294
    assert found.ledger_ns["idle_rows"] == 0
    assert found.ledger_ns["useful_decode"] == 990_000_000


def test_the_chapters_launches_are_paid_once_or_four_times() -> None:
    class Launches:
        """0.05 ms a pass and nothing else."""

        name = "launches"
        batch_overhead_s = (0.0, 0.0)

        def seconds(self, steps: Any) -> Any:
            return np.full(len(steps), 0.05e-3)

        def outside(self, steps: Any) -> None:
            return None

        def to_json(self) -> dict[str, Any]:
            return {"kind": "launches"}

    found = explain(Launches(), EAGER, TEXTBOOK[0], [1, 1, 1, 1])
    assert found.alone.prefill_ns == 200_000
    assert found.together.prefill_ns == 50_000
    assert found.decode is None
    assert found.limits()["latency_rows"] == 4096


def test_eager_launches_are_the_hosts_and_are_paid_by_pass() -> None:
    found = explain(EAGER, EAGER, *TEXTBOOK)
    assert found.start_s == pytest.approx(28 * LAYER_HOST_S)
    assert found.prefill.ops[-1].name == HOST
    # The host is so slow that padding costs nothing at all.
    assert found.ledger_ns["prefill_padding"] == found.ledger_ns["idle_rows"] == 0
    sizes = found.alone.to_json(found.start_s), found.together.to_json(found.start_s)
    assert sizes[0]["launch_s"] / sizes[1]["launch_s"] == pytest.approx(57 / 20)


@settings(deadline=None, max_examples=25)
@given(
    st.builds(
        Roofline,
        st.sampled_from(list(MODELS.values())),
        st.sampled_from([row for row in HARDWARE.values() if row.name != "cpu"]),
        st.just("bfloat16"),
        st.sampled_from(list(HOSTS)),
    ),
    st.lists(st.tuples(st.integers(1, 300), st.integers(1, 60)), min_size=1, max_size=5),
)
def test_what_is_explained_is_what_is_simulated(model: Roofline, lengths: list[tuple[int, int]]) -> None:
    prompts, outputs = [p for p, _ in lengths], [n for _, n in lengths]
    found = explain(model, model, prompts, outputs)
    record = simulate(batch_of(prompts, outputs), Batching(len(prompts), at_once=True), model)
    b = record.batches
    assert found.prefill.ns == int(b.prefill_ns[0])
    assert (found.decode.ns if found.decode else 0) == int(b.decode_ns[0])
    assert sum(found.ledger_ns.values()) == found.together.ns == int(record.end_ns[0])
    lines = ledger(record, prices_of(record, model)).lines_ns
    # Peeling sums costs before they are rounded: up to a nanosecond a pass. Equal lengths need no peeling.
    for name, line in found.ledger_ns.items():
        assert abs(line - lines[name]) <= max(outputs), name
    for phase in (found.prefill, found.decode):
        assert phase is None or sum(phase.ops_ns) == phase.roofline_ns == phase.ns
    point = next(point for point in found.curve if point.rows == len(prompts))
    assert point.ns == found.together.ns


def test_alone_is_each_request_in_a_batch_of_its_own() -> None:
    found = explain(GRAPH, GRAPH, *TEXTBOOK)
    record = simulate(batch_of(*TEXTBOOK), Batching(1, at_once=True), GRAPH)
    assert found.alone.ns == int(record.end_ns[-1])


def point(rows: int, tokens_per_s: float) -> Point:
    return Point(rows, round(rows / tokens_per_s * 1e9), 0, 0, 1, 0.0, 0.0, 0, True)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({1: 10, 2: 20, 4: 40}, None),
        ({1: 10, 2: 20, 4: 21.9, 8: 21.95}, 2),
        ({1: 10, 2: 20, 4: 21, 8: 22.1}, 4),
        ({1: 10}, None),
        ({1: 10, 2: 9, 4: 10.5}, 1),
    ],
)
def test_the_knee_is_the_smallest_size_that_none_beats_by_a_tenth(
    rates: dict[int, float], expected: int | None
) -> None:
    assert knee([point(rows, rate) for rows, rate in rates.items()]) == expected


def test_the_three_limits_of_the_batch_size(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--model", "Qwen3-8B", "--gpu", "A100-80GB", "--host", "graph", "--batch", "48", "--rate", "2")
    found = document(capsys, *options)
    limits, curve = found["limits"], {p["rows"]: p for p in found["curve"]}
    shape = model_shape("Qwen3-8B")
    assert limits["memory_rows"] == largest_batch(shape, hardware("A100-80GB"), "bfloat16", 512, 128)
    assert list(curve) == sorted({*(2**i for i in range(9)), 48})
    assert all(p["fits"] for p in curve.values())
    latency = limits["latency_rows"]
    assert curve[latency]["total_s"] <= 2 * curve[1]["total_s"]
    assert all(p["total_s"] > 2 * curve[1]["total_s"] for rows, p in curve.items() if rows > latency)
    keeps_up = limits["keeps_up_rows"]
    assert keeps_up / curve[keeps_up]["total_s"] >= 2
    assert all(rows / p["total_s"] < 2 for rows, p in curve.items() if rows < keeps_up)
    assert curve[48]["filling_s"] == 23.5
    rates = [p["output_tokens_per_s"] for p in curve.values()]
    assert rates == sorted(rates)
    # Use rises with the batch: low at 1, near the limit at the knee.
    assert curve[1]["flop_use"] < 0.02 < curve[256]["flop_use"]


def test_a_measured_capacity_overrides_and_a_batch_above_it_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    capacity = 10 * 640 * 114_688
    assert sim("--batch", "12", "--memory", str(capacity), "--json", "-") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["limits"]["memory_rows"] == 10
    fits = {p["rows"]: p["fits"] for p in found["curve"]}
    assert fits == {1: True, 2: True, 4: True, 8: True, 12: False}
    assert "a batch of 12 does not fit: at most 10 rows of 512 + 128 tokens" in " ".join(said.err.split())
    off = document(capsys, "--batch", "12", "--memory", "off")
    assert off["limits"]["memory_rows"] is None


def test_experts_are_explained_too(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "--model", "Qwen3-30B-A3B", "--batch", "4", "--host", "fused")
    decode = {op["name"]: op for op in found["phases"]["decode"]["operations"]}
    assert {"experts", "router"} <= set(decode)
    assert decode["experts"]["bound"] == "memory"
    # Four tokens touch 128 x (1 - (1 - 8/128)^4) = 29.1 experts of 4.7 MB a matrix.
    distinct = 128 * (1 - (1 - 8 / 128) ** 4)
    assert decode["experts"]["bytes"] == pytest.approx(127 * 48 * distinct * 3 * 2048 * 768 * 2)


def test_another_cost_model_prices_and_the_roofline_names_the_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fit(profile(lambda s: 2e-3 + 1e-5 * s.decode_rows + 1e-6 * s.prefill_tokens))
    path = tmp_path / "fitted.json"
    path.write_text(json.dumps(costs.to_json(model)))
    options = ("--cost", str(path), "--batch", "4", "--prompt", "100", "--output", "20")
    found = document(capsys, *options)
    decode = found["phases"]["decode"]
    assert decode["seconds"] == pytest.approx(19 * (2e-3 + 4e-5), rel=0.02)
    assert sum(ns(op["seconds"]) for op in decode["operations"]) == ns(decode["roofline_s"])
    assert decode["roofline_s"] != decode["seconds"]
    assert found["setup"]["cost"]["kind"] == "fitted"
    assert sim(*options) == 0
    assert "operations: roofline" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ["--prompt", "10,30,5,20", "--output", "15,10,20,12"],
        ["--model", "Qwen3-32B", "--gpu", "H100", "--batch", "1000", "--prompt", "30000", "--output", "9999"],
        ["--model", "Qwen3-30B-A3B", "--gpu", "A100-80GB", "--batch", "64", "--rate", "0.001"],
        ["--model", "toy", "--gpu", "cpu", "--batch", "4096", "--host", "graph"],
        ["--batch", "3", "--output", "1", "--host", "fused", "--rate", "100000"],
    ],
)
def test_tables_fit_80_columns(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert sim(*options) == 0
    printed = capsys.readouterr().out
    assert printed.isascii() or "─" in printed
    for line in printed.splitlines():
        assert len(line.rstrip()) <= 80, line
    for title in ("Prefill", "What padding costs", "together", "Memory", "Throughput", "Limits"):
        assert title in printed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--prompt", "10,x"], ["--prompt", "'x'"]),
        (["--prompt", ""], ["--prompt", "''"]),
        (["--output", "0"], ["--output", "'0'"]),
        (["--prompt", "1,2,3", "--output", "1,2"], ["--output has 2 lengths for 3 requests"]),
        (["--prompt", "1,2,3", "--batch", "4"], ["--batch 4", "3 lengths"]),
        (["--batch", "0"], ["'0'"]),
        (["--batch", "9999999"], ["--batch 9999999"]),
        (["--prompt", "9999999"], ["9,999,999", "too large"]),
        (["--batch", "1000000", "--prompt", "3000000"], ["3,000,000", "too large"]),
        (["--host", "lazy"], ["'lazy'", "eager, fused or graph"]),
        (["--gpu", "H900"], ["'H900'", "H200"]),
        (["--model", "Qwen9"], ["'Qwen9'", "Qwen3-8B"]),
        (["--memory", "lots"], ["'lots'"]),
        (["--rate", "0"], ["'0'"]),
        (["--cost", "gone.json"], ["'gone.json'"]),
    ],
)
def test_bad_input_is_one_line(
    options: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert sim(*options) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words), said.err


def test_lengths_are_given_once_or_for_each() -> None:
    assert lengths("--prompt", "10, 30,5 ,20") == [10, 30, 5, 20]
    assert requests(None, "7", "3") == ([7] * 8, [3] * 8)
    assert requests(2, "7", "3") == ([7, 7], [3, 3])
    assert requests(None, "7,8", "3") == ([7, 8], [3, 3])
    assert requests(2, "7", "3,4") == ([7, 7], [3, 4])
    with pytest.raises(InputError, match="--batch 2 does not fit the 3 lengths"):
        requests(2, "1,2,3", "1")


def test_an_answer_takes_a_fraction_of_a_second() -> None:
    def took(model: CostModel, rows: int) -> float:
        start = time.process_time()
        found: Explanation = explain(model, EAGER, [2048] * rows, [512] * rows, 1000)
        assert len(found.curve) > 9
        return time.process_time() - start

    took(EAGER, 2)
    # Tens of milliseconds on a quiet machine; equal lengths never need a price for each row count.
    assert took(EAGER, 1_000_000) < 1.0


def test_the_readme_shows_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    block = readme[readme.index("$ python -m sim explain --model Qwen3-8B --gpu H200 --host") :]
    command, *shown = block[: block.index("```")].splitlines()
    assert sim(*command.split()[5:]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    lines = [line.strip() for line in shown if line.strip() not in ("", "...")]
    assert len(lines) > 10
    assert all(line in printed for line in lines)
