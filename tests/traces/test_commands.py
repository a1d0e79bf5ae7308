import csv
import json
from pathlib import Path

import pytest

from traces.__main__ import app
from traces.load import load
from traces.terminal import exit_code


def run(*argv: str) -> int:
    return exit_code(app, "python -m traces", list(argv))


def test_describe_as_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe", "textbook", "--json", "-", "--context", "40") == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["rows"] == 4
    assert found["prompt_tokens"] == pytest.approx(
        {"min": 5, "p50": 15, "p90": 27, "p99": 29.7, "max": 30, "mean": 16.25}
    )
    assert found["context"] == {"context_tokens": 40, "rows_within": 4}
    whole = next(row for row in found["waste"] if (row["policy"], row["batch_size"]) == ("arrival", 4))
    assert (whole["prefill_slots"], whole["prefill_padding"]) == (120, 55)
    assert (whole["decode_slots"], whole["decode_idle"]) == (80, 23)
    assert [row["batch_size"] for row in found["waste"]] == [1, 2, 4, 8, 16, 32, 64, 128] * 2


def test_waste_of_a_file_from_the_command(shared_data: Path, tmp_path: Path) -> None:
    file = shared_data / "traces/burstgpt/burstgpt3-head-206.csv"
    assert run("describe", str(file), "--json", str(tmp_path / "facts.json")) == 0
    rows = json.loads((tmp_path / "facts.json").read_text())["waste"]
    found = {(row["policy"], str(row["batch_size"])): row for row in rows}
    with (shared_data / "traces/expected-waste.csv").open(newline="") as expected:
        wanted = [row for row in csv.DictReader(expected) if row["trace"] == "burstgpt3_head_206"]
    assert len(wanted) == 10
    for row in wanted:
        mine = found[row["policy"], row["batch_size"]]
        assert {
            key: str(mine[key]) for key in row if key.endswith(("slots", "padding", "idle", "batches"))
        } == {
            key: value for key, value in row.items() if key.endswith(("slots", "padding", "idle", "batches"))
        }


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_tables_hold_whole_numbers_and_plain_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    path = tmp_path / "trace[run-1].csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1234567,1\n0.5,3,2\n")
    assert run("describe", str(path)) == 0
    text = capsys.readouterr().out
    assert "1,234,567" in text
    assert "\x1b" not in text
    assert "…" not in text
    assert "trace[run-1].csv" in text


def test_drops_and_moves_are_said_on_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n5,1,1\n2,1,1\n3,0,1\n")
    assert run("describe", str(path)) == 2
    assert "line 4, column prompt_tokens: zero" in capsys.readouterr().err
    assert run("describe", str(path), "--skip-bad", "--json", "-") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["dropped"] == {"prompt_tokens: zero": 1}
    assert "1 of 3 rows dropped: prompt_tokens: zero" in said.err
    assert "1 rows stood before an earlier arrival" in said.err


def test_make_convert_and_apply(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recipe = "poisson:rate=4,n=100,prompt=uniform:1:9,output=5"
    made, cut = tmp_path / "made.parquet", tmp_path / "cut.jsonl"
    assert run("make", recipe, str(made), "--seed", "3") == 0
    assert load(str(made)).fingerprint == load(recipe, seed=3).fingerprint
    assert run("convert", str(made), str(cut), "--apply", "head:n=7", "--apply", "scale_rate:factor=2") == 0
    assert len(load(str(cut))) == 7
    assert "does not hold the history: head, scale_rate" in capsys.readouterr().err.replace("\n", " ")
    mapped = tmp_path / "x.csv"
    mapped.write_text("t,a,b\n1000,2,3\n3000,4,5\n")
    columns = "arrival_s=t:ms,prompt_tokens=a,output_tokens=b"
    assert run("convert", str(mapped), str(tmp_path / "y"), "--to", "mooncake", "--map", columns) == 0
    assert load(str(tmp_path / "y")).arrival_ns.tolist() == [0, 2 * 10**9]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["describe", "none.csv"], "none.csv: no such file"),
        (["describe", "textbook", "--context", "0"], "not a whole number"),
        (["describe", "textbook", "--skip-bad"], "--skip-bad is for files"),
        (["describe", "textbook", "--apply", "tail:n=3"], "'tail' is not known"),
        (["convert", "textbook", "out.txt"], "cannot write format 'txt'"),
        (["convert", "textbook", "no/such/folder/out.csv"], "no/such/folder"),
        (["make", "textbook", "out.csv"], "is no recipe"),
        (["fetch", "nothing"], "'nothing' is not known; choose apex-creation"),
        (["descibe", "textbook"], "descibe"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    assert run(*argv) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_list_names_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    text = capsys.readouterr().out
    for name in (
        "textbook",
        "poisson",
        "lognormal",
        "cap_gap:most_s=",
        "gamma:cv=",
        "mooncake",
        "burstgpt-1",
    ):
        assert name in text
