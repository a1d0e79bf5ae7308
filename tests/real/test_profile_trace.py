"""``real profile --trace``: the shapes that serving a trace would run through, as far as the time goes."""

from pathlib import Path

import numpy as np
import pytest

from real.__main__ import app
from real.shapes import DEFAULT, ROUNDS, Shapes, for_trace, seconds_of
from real.trial import prompts_to_profile, rows_formed
from sim.batching import Batching
from sim.hardware import hardware
from sim.models import MODELS
from sim.profile import Profile
from sim.roofline import Roofline
from sim.step import padded_decode, padded_prefill
from tests.real.conftest import TINY
from tests.sim.worked import MS, Toy, trace_of
from traces.terminal import exit_code

MODEL = Roofline(TINY, hardware("cpu"), "float32")
# A burst of three, two bursts of two, and a single request, half a second apart.
BURSTS = trace_of([0, 0, 0, 500 * MS, 500 * MS, 1000 * MS, 1000 * MS, 1500 * MS], 40, 6)
TIMER = Batching(8, 10e-3)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, TINY.name, TINY)


def real(*arguments: str) -> int:
    return exit_code(app, "python -m real", list(arguments))


def test_rows_that_occur_and_how_often() -> None:
    assert rows_formed(BURSTS, TIMER, MODEL) == {1: 1, 2: 2, 3: 1}


def test_with_time_enough_all_rows_that_occur_are_profiled_and_no_others() -> None:
    chosen = for_trace(BURSTS, TIMER, MODEL, budget_s=60.0)
    assert chosen == Shapes([1, 2, 3], prompts_to_profile([BURSTS]), 6)
    assert {point.rows for point in chosen.points()} == {1, 2, 3}
    assert "left out" not in chosen.describe()


def test_without_it_the_rarest_are_left_out_and_named() -> None:
    # Every pass takes a second: rows 1 and 3 (smallest, largest) stay whatever it takes.
    second = Toy("second", lambda steps: np.full(len(steps), 1.0))
    chosen = for_trace(BURSTS, TIMER, second, budget_s=1e-3)
    smallest, largest = min(rows_formed(BURSTS, TIMER, second)), max(rows_formed(BURSTS, TIMER, second))
    assert chosen.rows == sorted({smallest, largest})
    spread = trace_of(
        [0] * 1 + [9000 * MS] * 2 + [19_000 * MS] * 2 + [29_000 * MS] * 3 + [49_000 * MS] * 4, 40, 2
    )
    tenth = Toy("tenth", lambda steps: np.full(len(steps), 0.1))
    assert rows_formed(spread, TIMER, tenth) == {1: 1, 2: 2, 3: 1, 4: 1}
    enough_for_three = seconds_of(Shapes([1, 2, 4], prompts_to_profile([spread]), 2).points(), tenth)
    chosen = for_trace(spread, TIMER, tenth, budget_s=enough_for_three + 1e-6)
    assert chosen.rows == [1, 2, 4]
    assert chosen.left_out == (3,)
    assert chosen.describe().endswith("left out for want of time, rows 3: raise --seconds")


def test_the_least_time_of_a_profile_is_two_rounds_of_its_passes() -> None:
    points = Shapes((2,), (10,), 1).points()
    assert [(p.rows, p.context_tokens, p.prefill) for p in points] == [(2, 10, True)]
    each = Toy(
        "each", lambda steps: 1.0 * (steps.prefill_tokens > 0) + 0.25 * (steps.decode_rows > 0), (0.5, 0.5)
    )
    assert seconds_of(points, each) == ROUNDS * (1.0 + 4 * 0.25 + 1.0)
    assert each.seconds(padded_prefill([2], [10]))[0] == 4 * each.seconds(padded_decode([2], [11]))[0]


def test_what_is_given_wins() -> None:
    assert for_trace(BURSTS, TIMER, MODEL, 60.0, Shapes(rows=[7])).rows == [7]
    given = for_trace(BURSTS, TIMER, MODEL, 60.0, Shapes(prompt_tokens=[5], output_tokens=9))
    assert given == Shapes([1, 2, 3], [5], 9)
    assert Shapes(rows=[3]).or_else(DEFAULT) == Shapes([3], (16, 64, 256), 128)


def test_the_command_profiles_what_a_trace_runs_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.parquet"
    options = ["--model", "tiny", "--trace", "textbook", "--max-batch", "3", "--seconds", "1"]
    assert real("profile", *options, "--out", str(path)) == 0
    said = capsys.readouterr().err
    # Four requests at once in batches of up to three: one of three, and the rest.
    assert "rows 1, 3; prompts of 5, 12, 30 tokens; answers up to 20" in said
    profile = Profile.load(path)
    assert set(profile.steps.logit_rows.tolist()) == {1, 3}
    prefills = profile.steps.prefill_tokens // profile.steps.logit_rows
    assert set(prefills.tolist()) - {0} == {5, 12, 30}
    # Decode is timed up to the longest context that is read: 30 + 19 slots.
    assert profile.steps.max_context_tokens.max() == 49


def test_rows_and_lengths_given_beside_a_trace_win(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profile.parquet"
    options = ["--model", "tiny", "--trace", "textbook", "--rows", "2", "--prompt-tokens", "4,8"]
    assert real("profile", *options, "--seconds", "0.2", "--out", str(path)) == 0
    assert "rows 2; prompts of 4, 8 tokens; answers up to 20" in capsys.readouterr().err
    assert set(Profile.load(path).steps.logit_rows.tolist()) == {2}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-batch", "4"], ["--max-batch", "--trace"]),
        (["--max-wait", "1"], ["--max-wait", "--trace"]),
        (["--trace", "no-such-trace"], ["no-such-trace"]),
        (["--trace", "textbook", "--max-batch", "0"], ["'0'"]),
        (["--trace", "textbook", "--engine", "serial"], ["4 rows", "serial", "1 row"]),
    ],
)
def test_bad_input_is_one_line(
    options: list[str], words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert real("profile", "--model", "tiny", *options, "--out", str(tmp_path / "x")) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ")
    assert all(word in line for word in words), line
