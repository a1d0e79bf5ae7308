"""Outside what a model was calibrated for: said once a run, with the shape and how far."""

import json
from pathlib import Path

import pytest

from sim.__main__ import app
from sim.batching import Batching
from sim.fitted import fit
from sim.hardware import hardware
from sim.models import model_shape
from sim.roofline import Roofline
from sim.run import outside_domain, simulate
from sim.step import Rounding
from tests.sim.synthetic import profile
from tests.sim.worked import trace_of
from traces.terminal import exit_code

MODEL = fit(profile(Roofline(model_shape("toy"), hardware("cpu"), "float32").seconds))
"""Valid for 1 to 32 rows and 64 to 1024 tokens."""


def warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prompt: str, output: str, rows: int
) -> list[str]:
    (tmp_path / "m.json").write_text(json.dumps(MODEL.to_json()))
    recipe = f"poisson:rate=5,n=200,prompt={prompt},output={output}"
    argv = [
        "run",
        recipe,
        "--max-batch",
        str(rows),
        "--cost",
        str(tmp_path / "m.json"),
        "--model",
        "toy",
        "--json",
        "-",
    ]
    assert exit_code(app, "python -m sim", argv) == 0
    return [line for line in capsys.readouterr().err.split("\n") if line]


def test_inside_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Contexts 101 to 1024: prompt 100 and the last step of 925 tokens.
    assert warnings(tmp_path, capsys, "100", "925", 32) == []


def test_a_context_that_only_the_last_step_reaches_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert warnings(tmp_path, capsys, "100", "926", 8) == [
        "warning: outside what fitted toy none float32 was calibrated for: decode with 1025 context tokens, "
        "1.00 times the largest profiled (1024), at 8 rows x 1025 tokens"
    ]


def test_of_all_batches_the_furthest_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = warnings(tmp_path, capsys, "100", "2000", 40)
    assert line.endswith(
        "decode with 2099 context tokens, 2.05 times the largest profiled (1024), at 40 rows x 2099 tokens"
    )
    (line,) = warnings(tmp_path, capsys, "2", "200", 4)
    assert line.endswith(
        "prefill with 2 prompt tokens, 0.03 times the smallest profiled (64), at 4 rows x 2 tokens"
    )


def test_contexts_are_asked_about_as_they_are_rounded() -> None:
    trace = trace_of([0, 0], [900, 900], [100, 100])
    for multiple, said in ((1, None), (1000, None), (1030, "decode with 1030 context tokens, 1.01 times")):
        record = simulate(trace, Batching(2), MODEL, rounding=Rounding(context_tokens=multiple))
        outside = outside_domain(record, MODEL)
        assert (outside or "").startswith(said or "")
        assert (outside is None) == (said is None)
