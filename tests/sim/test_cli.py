"""``python -m sim run`` as a user meets it: what it prints, where, and what it says about mistakes."""

import csv
import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sim.__main__ import app
from sim.executor import Simulated
from sim.ledger import LINES, Ledger
from sim.pricing import Prices
from sim.record import COMPLETED, UNFINISHED
from sim.report import print_run
from sim.run import results
from sim.store import load
from sim.waste import KvUse, Waste
from tests.sim.worked import K1, TEXTBOOK, run
from traces.slots import Slots
from traces.tables import LEAST_COLUMNS
from traces.terminal import exit_code

ROOT = Path(__file__).resolve().parents[2]
RECIPE = "poisson:rate=20,n=60,prompt=lognormal:64:1.0,output=lognormal:32:0.8"


def sim(*argv: str) -> int:
    return exit_code(app, "python -m sim", list(argv))


def process(*argv: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "sim", *argv],
        cwd=ROOT,
        env={**inherited, **env},
        capture_output=True,
        check=False,
    )


def one_line(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The line that a mistake ends in: on stderr, exit code 2, nothing on stdout, no traceback."""
    assert sim(*argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    return said.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-batch", "0"], "'0'"),
        (["--max-batch", "eight"], "'eight'"),
        (["--max-batch", "2.5"], "'2.5'"),
        (["--max-batch"], "--max-batch"),
        (["--max-wait", "soon"], "'soon'"),
        (["--max-wait", "-1"], "'-1'"),
        (["--max-wait", "nan"], "'nan'"),
        (["--max-wait", "inf"], "'inf'"),
        (["--max-wait", "1e300"], "max_wait 1e+300 s"),
        (["--model", "Qwen3-0.7B"], "Qwen3-0.6B"),
        (["--gpu", "H2000"], "H200"),
        (["--cost", "roofnile"], "roofnile"),
        (["--cost", "sim"], "is a folder"),
        (["--cost", "pyproject.toml"], "not JSON"),
        (["--memory", "lots"], "'lots'"),
        (["--memory", "-1"], "'-1'"),
        (["--seed", "x"], "'x'"),
        (["--seed", "-1"], "'-1'"),
        (["--max-btch", "4"], "--max-btch"),
        (["--sav", "x"], "--sav"),
        (["extra"], "extra"),
    ],
)
def test_a_slip_in_an_option_is_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert said in one_line(capsys, "run", "textbook", *options)


@pytest.mark.parametrize(
    "kind", ["empty", "folder", "binary", "missing", "header only", "bad cell", "no trace"]
)
def test_a_trace_that_cannot_be_used_is_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    header = b"arrival_s,prompt_tokens,output_tokens\n"
    content = {
        "empty": b"",
        "binary": bytes(range(256)) * 9,
        "header only": header,
        "bad cell": header + b"0,1,x\n",
    }
    if kind == "folder":
        path.mkdir()
    elif kind in content:
        path.write_bytes(content[kind])
    if kind == "no trace":
        assert "trace" in one_line(capsys, "run").lower()
    else:
        assert str(path) in one_line(capsys, "run", str(path))


def test_a_context_that_no_model_reads_is_one_line_and_not_all_the_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,2000000000,4\n")
    assert "2,000,000,004 tokens" in one_line(capsys, "run", str(path))


def test_no_command_or_an_unknown_one_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    one_line(capsys)
    assert "rum" in one_line(capsys, "rum", "textbook")


def test_places_that_cannot_be_written_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert str(tmp_path) in one_line(capsys, "run", "textbook", "--save", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert "absent" in one_line(capsys, "run", "textbook", "--json", str(tmp_path / "absent" / "x.json"))
    one_line(capsys, "run", "textbook", "--json", str(tmp_path))
    assert "notes.txt" in one_line(capsys, "run", "textbook", "--save", str(tmp_path / "notes.txt" / "r"))


def test_at_once_switches_a_timer_off_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("run", "textbook", "--max-wait", "1", "--at-once", "--json", "-") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["batches"]["closed_by"]["end"] == 1
    assert "--max-wait 1 has no effect" in said.err


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert sim("run", *argv, "--json", "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_json_on_stdout_is_one_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, RECIPE, "--max-wait", "0.2", "--seed", "3")
    keys = ("setup", "requests", "batches", "waste", "ledger_s", "latency_s", "throughput")
    assert set(keys) <= set(found)
    assert list(found["ledger_s"]) == [
        "useful_prefill",
        "prefill_padding",
        "useful_decode",
        "padded_context",
        "idle_rows",
        "dummy_rows",
        "batch_overhead",
        "forming",
        "no_work",
    ]
    assert sum(found["ledger_s"].values()) == pytest.approx(found["throughput"]["makespan_s"], abs=1e-8)
    assert all(value >= 0 for value in found["ledger_s"].values())
    assert found["requests"]["in"] == found["requests"]["completed"] == 60
    assert sum(found["batches"]["closed_by"].values()) == found["batches"]["count"]
    assert set(found["latency_s"]["ttft"]) == {"mean", "p50", "p90", "p95", "p99"}
    assert found["setup"]["percentiles"] == "linear (numpy)"


def test_what_was_asked_for_is_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-batch", "3", "--max-wait", "0.25", "--model", "Qwen3-8B", "--gpu", "A100-80GB"]
    found = document(capsys, RECIPE, *options, "--memory", "40GB", "--seed", "9")["setup"]
    assert found["policy"] == {"kind": "static", "max_batch": 3, "max_wait_s": 0.25}
    assert (found["model"], found["gpu"], found["seed"]) == ("Qwen3-8B", "A100-80GB", 9)
    assert found["cost"]["model"] == "Qwen3-8B"
    assert found["memory"]["kv_budget_bytes"] == 40_000_000_000
    assert found["max_kv_tokens"] == 40_000_000_000 // 147_456
    assert "seed=9" in found["trace"]["name"]
    default = document(capsys, "textbook")["setup"]
    assert default["policy"]["max_wait_s"] is None
    assert default["max_kv_tokens"] is None


def test_each_option_changes_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    base = document(capsys, RECIPE)
    for options in (
        ["--max-batch", "3"],
        ["--max-wait", "0.1"],
        ["--at-once"],
        ["--model", "Qwen3-8B"],
        ["--gpu", "A100-80GB"],
        ["--memory", "30MB"],
        ["--seed", "1"],
    ):
        changed = document(capsys, RECIPE, *options)
        assert changed["latency_s"] != base["latency_s"], options


def test_memory_too_small_for_anything_is_a_result_not_a_crash(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "textbook", "--memory", "1")
    assert found["requests"]["rejected"] == 4
    assert found["latency_s"]["ttft"]["mean"] is None
    assert found["throughput"]["capacity_requests_per_s"] is None
    assert sim("run", "textbook", "--memory", "1") == 0
    assert "4 rejected" in capsys.readouterr().out


def test_the_textbook_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("run", "textbook", "--max-batch", "4", "--at-once") == 0
    said = capsys.readouterr()
    text = re.sub(r"[ #.]+", " ", said.out)
    assert "prefill padding 120 65 55 45 8 %" in text
    assert "decode idle 80 57 23 28 7 %" in text
    assert "prefill padding 0 s 0 0 %" in text
    for line in (
        "useful prefill",
        "padded context",
        "idle rows",
        "dummy rows",
        "no work",
        "makespan x servers",
    ):
        assert f" {line} " in text
    assert said.err == ""


def large(cls: type[Any], value: int) -> Any:
    """A frozen result whose every number is ``value``."""
    return cls(**{field.name: value for field in dataclasses.fields(cls)})


@pytest.mark.parametrize("columns", [40, 80, 100, 120])
def test_numbers_are_whole_at_any_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fourteen digits, more than any trace brings about: no cut number, no line beyond the terminal, or 80 columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    found = results(run(TEXTBOOK, 4), Prices.for_trace(TEXTBOOK, K1))
    slots, tokens = 98_765_432_123_456, 12_345_678_987_654
    waste = Waste(Slots(slots, tokens), Slots(slots, tokens), tokens, large(KvUse, tokens))
    lines = dict.fromkeys(LINES, tokens * 10**9)
    worst = dataclasses.replace(
        found,
        waste=waste,
        ledger=Ledger(lines, dict.fromkeys(("padded_context", "idle_rows"), tokens), (), "k1"),
        latency={name: dict.fromkeys(summary, 9_876_543.21) for name, summary in found.latency.items()},
        throughput=dict.fromkeys(found.throughput, 98765432.1),
    )
    console = Console(file=io.StringIO(), width=columns)
    print_run(worst, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= max(columns, LEAST_COLUMNS)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    for number, times in ((f"{slots:,}", 2), (f"{tokens:,}", 2 + 2), (f"{slots - tokens:,}", 2)):
        assert text.count(number) >= times, number
    assert text.count("9,876,543 s") == 8 * 5
    assert text.count("12,345,678,987,654 s") == 9  # a line of the ledger each


@pytest.mark.parametrize("name", ["trace[run-1].csv", "x [/decode].csv", "[bold]b[red].csv", "a→b.csv"])
def test_names_with_brackets_are_printed_as_they_are(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,3,4\n")
    monkeypatch.setenv("COLUMNS", "400")
    assert sim("run", str(path)) == 0
    assert path.name in capsys.readouterr().out
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,3,x\n")
    assert name in one_line(capsys, "run", str(path))


@pytest.mark.parametrize(
    "env", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"COLUMNS": "80"}]
)
def test_piped_output_has_no_escape_codes(env: dict[str, str]) -> None:
    done = process("run", "textbook", **env)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"prefill padding" in done.stdout


def test_forced_colour_is_switched_off_by_the_option() -> None:
    assert b"\x1b" in process("run", "textbook", FORCE_COLOR="1").stdout
    assert b"\x1b" not in process("run", "textbook", "--no-color", FORCE_COLOR="1").stdout


def test_a_terminal_of_another_code_page_is_no_reason_to_crash(tmp_path: Path) -> None:
    path = tmp_path / "a→b.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,3,4\n")
    for encoding in ("cp1252", "ascii"):
        done = process("run", str(path), PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""
        assert b"prefill padding" in done.stdout
    done = process("run", str(tmp_path / "absent→.csv"), PYTHONIOENCODING="cp1252")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)


def test_a_mistake_in_a_process_of_its_own() -> None:
    done = process("run", "textbook", "--gpu", "H2000")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"error: ")
    assert b"Traceback" not in done.stderr
    done = process("run", "textbook", "--json", "-")
    assert (done.returncode, done.stderr) == (0, b"")
    json.loads(done.stdout)


def test_a_saved_record_and_a_json_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("run", RECIPE, "--save", str(tmp_path / "r"), "--json", str(tmp_path / "x.json")) == 0
    assert len(load(tmp_path / "r").requests.status) == 60
    written = json.loads((tmp_path / "x.json").read_text())
    assert written == document(capsys_drained(capsys), RECIPE)


def capsys_drained(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    capsys.readouterr()
    return capsys


def test_ctrl_c_gives_what_is_finished_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, calls = Simulated.run, []

    def third_is_interrupted(executor: Simulated, requests: Any) -> Any:
        calls.append(requests)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return ask(executor, requests)

    monkeypatch.setattr(Simulated, "run", third_is_interrupted)
    assert sim("run", RECIPE, "--save", str(tmp_path / "r"), "--max-batch", "8") == 130
    said = capsys.readouterr()
    assert "16 completed, 44 unfinished" in said.out
    assert "interrupted: requests not served yet count as unfinished" in said.out
    assert said.err == "error: interrupted\n"
    assert len(calls) == 3
    saved = load(tmp_path / "r")
    assert saved.requests.status.tolist() == [COMPLETED] * 16 + [UNFINISHED] * 44


@pytest.mark.parametrize("name", ["code", "conv"])
def test_slots_of_the_azure_traces_to_the_last_one(
    name: str, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (shared_data / "traces" / "expected-waste.csv").open(newline="") as file:
        rows = [
            {key: int(value) for key, value in row.items() if value.isdecimal()}
            for row in csv.DictReader(file)
            if (row["trace"], row["policy"]) == (f"azure_{name}_2023", "arrival")
        ]
    assert [row["batch_size"] for row in rows] == [4, 8, 16, 32, 64]
    path = shared_data / "traces" / "azure" / f"AzureLLMInferenceTrace_{name}.csv"
    for row in rows:
        found = document(capsys, str(path), "--max-batch", str(row["batch_size"]), "--at-once")
        waste = found["waste"]
        assert found["batches"]["count"] == row["batches"]
        assert (waste["prefill"]["slots"], waste["prefill"]["padding"]) == (
            row["prefill_slots"],
            row["prefill_padding"],
        )
        assert (waste["decode"]["slots"], waste["decode"]["idle"]) == (
            row["decode_slots"],
            row["decode_idle"],
        )


def test_a_disk_that_is_full_takes_only_the_record_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "requests.parquet")

    monkeypatch.setattr("sim.store._write", full)
    assert sim("run", "textbook", "--save", str(tmp_path / "record")) == 2
    said = capsys.readouterr()
    assert "prefill padding" in said.out
    assert "No space left" in said.err
    assert list(tmp_path.iterdir()) == []


def test_waste_of_no_batch_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    waste = document(capsys, "textbook", "--memory", "1000")["waste"]
    assert waste["prefill"]["fraction"] is None
    assert waste["decode"]["fraction"] is None
    assert waste["kv"]["unused_fraction"] is None
