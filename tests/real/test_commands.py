"""``python -m real`` as a user meets it: exit codes, one-line errors, files that the simulator can read."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from real.__main__ import app
from real.engine import Engine
from real.executor import Measured
from real.setup import choose_clock, load_engine
from sim import store
from sim.fitted import fit
from sim.models import MODELS
from sim.profile import Profile
from sim.record import COMPLETED, broken_laws
from tests.real.conftest import TINY
from traces.errors import InputError
from traces.terminal import exit_code


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, TINY.name, TINY)


def real(*arguments: str) -> int:
    return exit_code(app, "python -m real", list(arguments))


def test_the_textbook_trace_on_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved, document = tmp_path / "run", tmp_path / "run.json"
    arguments = ("run", "textbook", "--model", "tiny", "--max-batch", "4")
    assert real(*arguments, "--save", str(saved), "--json", str(document)) == 0
    printed = capsys.readouterr()
    assert "45.8 %" in printed.out
    assert "28.7 %" in printed.out
    assert "1 warm-up batches left out" in printed.out
    record = store.load(saved)
    assert broken_laws(record) == []
    assert record.measured is not None
    assert len(record.measured.step_wall_ns) == 20
    setup = json.loads(document.read_text())["setup"]
    assert (setup["kind"], setup["clock"], setup["engine"], setup["warm_ups"]) == (
        "measured",
        "cpu",
        "padded",
        1,
    )
    assert setup["model"] == "tiny"


@pytest.mark.parametrize("finished", [0, 1])
def test_ctrl_c_keeps_what_is_finished_and_says_so(
    finished: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, calls = Measured.run, []

    def interrupted(executor: Measured, requests: Any) -> Any:
        calls.append(requests)
        if len(calls) > finished:
            raise KeyboardInterrupt
        return ask(executor, requests)

    monkeypatch.setattr(Measured, "run", interrupted)
    saved = tmp_path / "run"
    assert real("run", "textbook", "--model", "tiny", "--max-batch", "2", "--save", str(saved)) == 130
    said = capsys.readouterr()
    assert f"{4 - 2 * finished} unfinished" in said.out
    assert said.err == "error: interrupted\n"
    assert store.load(saved).count(COMPLETED) == 2 * finished


def test_json_on_stdout_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        real("run", "textbook", "--model", "tiny", "--engine", "serial", "--max-batch", "1", "--json", "-")
        == 0
    )
    assert json.loads(capsys.readouterr().out)["batches"]["count"] == 4


def test_a_profile_is_written_and_can_be_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.parquet"
    arguments = ("--rows", "1,2", "--prompt-tokens", "4,8", "--output-tokens", "16", "--seconds", "0.2")
    assert real("profile", "--model", "tiny", *arguments, "--out", str(path)) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "timed by cpu" in printed.err
    profile = Profile.load(path)
    assert profile.conditions["model"] == "tiny"
    assert set(profile.steps.logit_rows.tolist()) == {1, 2}
    assert fit(profile).name.startswith("fitted tiny")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "textbook", "--model", "Qwen9"], ["'Qwen9'", "toy"]),
        (["run", "textbook", "--device", "abacus"], ["'abacus'", "cpu"]),
        (["run", "textbook", "--dtype", "int3"], ["'int3'", "float32"]),
        (["run", "textbook", "--model", "tiny", "--engine", "ragged"], ["'ragged'", "rowwise"]),
        (["run", "textbook", "--model", "tiny", "--engine", "serial"], ["serial", "--max-batch 1"]),
        (["run", "textbook", "--model", "tiny", "--clock", "sundial"], ["'sundial'", "skip-idle"]),
        (["run", "textbook", "--model", "tiny", "--timed-by", "sundial"], ["'sundial'", "cpu or wall"]),
        (["run", "textbook", "--model", "tiny", "--clock", "wall", "--timed-by", "cpu"], ["real time"]),
        (["run", "textbook", "--weights", "no/such/folder/here"], ["'no/such/folder/here'"]),
        (["run", "textbook", "--model", "tiny", "--threads", "9999999"], ["'9999999' threads", "cores"]),
        (["run", "textbook", "--model", "tiny", "--save", "."], ["--save", ".: exists and is not a record"]),
        (["run", "textbook", "--model", "tiny", "--json", "no-such-folder/x"], ["'no-such-folder'"]),
        (["profile", "--model", "tiny", "--rows", "1,0", "--out", "x"], ["--rows", "'0'"]),
        (["profile", "--model", "tiny", "--rows", "1,x", "--out", "x"], ["--rows", "'x'"]),
        (["profile", "--model", "tiny", "--prompt-tokens", "9" * 5000, "--out", "x"], ["'9999", "from 1 to"]),
        (["profile", "--model", "tiny", "--prompt-tokens", "", "--out", "x"], ["--prompt-tokens", "''"]),
        (
            ["profile", "--model", "tiny", "--engine", "serial", "--rows", "1,2", "--out", "x"],
            ["serial", "1 row"],
        ),
        (["profile", "--model", "tiny", "--out", "no-such-folder/x"], ["'no-such-folder'"]),
        (["profile", "--model", "tiny", "--seconds", "-1", "--out", "x"], ["'-1'"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert real(*arguments) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ")
    assert line.count("\n") == 1
    assert all(word in line for word in words)


def test_the_clock_that_suits_a_run(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model)
    assert choose_clock(None, engine) == "cpu"
    assert choose_clock(None, engine, wall_clock=True) == "wall"
    assert choose_clock("wall", engine) == "wall"
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert choose_clock(None, engine) == "wall"
    assert choose_clock("cpu", engine) == "cpu"
    with pytest.raises(InputError, match="real time"):
        choose_clock("cpu", engine, wall_clock=True)


def test_the_same_words_give_the_same_model() -> None:
    one, two = (load_engine("tiny", seed=3).model.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
