"""``compare.py`` as a user meets it: two records, and the whole job on an engine whose times follow a formula."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import compare
from compare import Options, app, measure
from real import trial
from real.trial import Lab
from sim import costs, store
from sim.batching import Batching
from sim.ledger import LINES
from sim.models import MODELS
from sim.record import RunRecord
from tests.real.conftest import TINY
from tests.real.fake import FakeEngine, fake
from tests.sim.beside import measured, simulated
from tests.sim.worked import MS, ROOFLINE, trace_of
from traces.load import BUILT_IN, load
from traces.terminal import exit_code
from traces.trace import Trace

ROOT = Path(__file__).resolve().parents[1]
TRACE = trace_of([0, 0, 5 * MS, 9 * MS, 9 * MS, 400 * MS], [3, 2, 4, 1, 2, 2], [2, 5, 3, 1, 4, 2])
HOW = Batching(2, 10e-3)
RECIPE = "poisson:rate=200,n=6,prompt=lognormal:12:0.3,output=lognormal:5:0.3,seed=1"


def run(*argv: str) -> int:
    return exit_code(app, "compare.py", list(argv))


def process(*argv: str, before: str = "", **env: str) -> subprocess.CompletedProcess[bytes]:
    """In a process of its own, with the output redirected."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    code = f"import sys; {before}\nfrom traces.terminal import run_app\nimport compare\nrun_app(compare.app, 'x')"
    return subprocess.run(
        [sys.executable, "-c", code, *argv],
        cwd=ROOT,
        env={**inherited, **env},
        capture_output=True,
        check=False,
    )


# Two saved records.


@pytest.fixture
def records(tmp_path: Path) -> tuple[str, str]:
    """Folders of a simulated run and of a measured one that took a quarter longer for every pass."""
    store.save(simulated(TRACE, HOW, ROOFLINE), tmp_path / "sim[ulated]")
    store.save(measured(TRACE, HOW, ROOFLINE, lambda batch: 1.25), tmp_path / "mea[/sured]")
    return str(tmp_path / "sim[ulated]"), str(tmp_path / "mea[/sured]")


def test_two_records_side_by_side(records: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*records, "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["batches"]["formed_identically"] is True
    assert document["batches"]["count"] == 4
    assert document["batches"]["median_error"] == pytest.approx(0.2, abs=1e-3)
    assert document["batches"]["noise"] is None
    assert document["batches"]["held_out"] is None
    assert document["throughput"]["busy_s"]["error"] == pytest.approx(-0.2, abs=1e-3)
    assert document["setup"]["measured"]["kind"] == "measured"
    for split in document["error_split_s"].values():
        terms = split["cost_s"] + split["queueing_s"] + split["formation_s"]
        assert terms == pytest.approx(split["simulated_s"] - split["measured_s"], abs=3e-9)
    for name in ("textbook", "stops_paying_at_rows"):
        assert document[name] is None
    assert document["models"] == {}


def test_a_simulated_record_against_itself_has_no_error(records: tuple[str, str], tmp_path: Path) -> None:
    assert run(records[0], records[0], "--json", str(tmp_path / "x.json"), "--fail-over", "0") == 0
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["batches"]["worst_error"] == 0
    pairs = [*document["ledger_s"].values(), *document["waste"].values(), *document["throughput"].values()]
    pairs += [pair for stats in document["latency"].values() for pair in stats.values()]
    assert {pair["error"] for pair in pairs} == {0, None}
    for split in document["error_split_s"].values():
        assert split["cost_s"] == split["queueing_s"] == split["formation_s"] == 0


@pytest.mark.parametrize(("percent", "code"), [("19.9", 1), ("20.1", 0), ("0", 1)])
def test_the_exit_code_says_whether_the_median_error_is_larger(
    percent: str, code: int, records: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*records, "--fail-over", percent) == code
    assert "20.0 %" in capsys.readouterr().out


def test_an_unknown_error_is_not_a_small_one(records: tuple[str, str], tmp_path: Path) -> None:
    store.save(measured(TRACE, HOW, ROOFLINE, failing=range(9)), tmp_path / "failed")
    arguments = (records[0], str(tmp_path / "failed"))
    assert run(*arguments) == 0
    assert run(*arguments, "--fail-over", "99") == 1


def test_markdown_and_json_hold_what_the_terminal_shows(
    records: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    markdown = tmp_path / "table.md"
    assert run(*records, "--markdown", str(markdown), "--no-color") == 0
    shown, text = capsys.readouterr().out, markdown.read_text()
    numbers = re.compile(r"[-+]?\d[\d,.]* (?:%|ns|us|ms|s)(?![\w/])")
    assert len(numbers.findall(shown)) > 100
    assert sorted(numbers.findall(shown)) == sorted(numbers.findall(text))
    assert "## Latency" in text


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (trace_of([0, 0, 5 * MS, 9 * MS, 9 * MS, 400 * MS], [3, 2, 4, 1, 2, 3], 2), "'worked' (6)"),
        (trace_of([0, 1], 2, 2), "'worked' (2)"),
        (trace_of([0, 0, 5 * MS, 9 * MS, 9 * MS, 401 * MS], [3, 2, 4, 1, 2, 2], [2, 5, 3, 1, 4, 2]), "(6)"),
    ],
)
def test_records_of_other_requests_are_refused(
    other: Trace,
    said: str,
    records: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store.save(measured(other, HOW, ROOFLINE), tmp_path / "other")
    assert run(records[0], str(tmp_path / "other")) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "different requests" in line
    assert said in line


def test_a_closed_loop_s_requests_are_the_same_whenever_they_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = load("closed:clients=2,think=0.01,n=6,prompt=uniform:1:9,output=uniform:1:9,seed=1")
    other = load("closed:clients=3,think=0.01,n=6,prompt=uniform:1:9,output=uniform:1:9,seed=1")
    store.save(simulated(loop, HOW, ROOFLINE), tmp_path / "simulated")
    for name, of in (("slower", loop), ("other", other)):
        store.save(measured(of, HOW, ROOFLINE, factor=lambda batch: 2.0), tmp_path / name)
    target = tmp_path / "x.json"
    assert run(str(tmp_path / "simulated"), str(tmp_path / "slower"), "--json", str(target)) == 0
    document = json.loads(target.read_text())
    assert document["latency"]["ttft"]["mean"]["error"] < 0
    assert "a closed loop" in document["notes"][0]
    capsys.readouterr()
    assert run(str(tmp_path / "simulated"), str(tmp_path / "other")) == 2
    assert "different requests" in capsys.readouterr().err


def test_the_clock_of_the_source_does_not_matter(records: tuple[str, str], tmp_path: Path) -> None:
    later = replace(TRACE, arrival_ns=TRACE.arrival_ns + 10**15)
    store.save(measured(later, HOW, ROOFLINE), tmp_path / "later")
    assert run(records[0], str(tmp_path / "later"), "--json", str(tmp_path / "x.json")) == 0
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["latency"]["ttft"]["mean"]["error"] == 0
    assert abs(document["error_split_s"]["ttft"]["cost_s"]) < 1e-9


def test_what_failed_or_was_rejected_on_one_side_is_said(
    records: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.save(measured(TRACE, HOW, ROOFLINE, failing=[1]), tmp_path / "failed")
    store.save(measured(TRACE, HOW, ROOFLINE, max_kv_tokens=6), tmp_path / "rejected")
    assert run(records[0], str(tmp_path / "failed")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Note: measured run 1: batch 1 gave no answer, out of memory: too many rows." in shown
    assert "Note: measured run 1: 2 of 6 requests completed on one side only" in shown
    assert run(records[0], str(tmp_path / "rejected"), "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    rejected = document["requests"]["rejected"]
    assert (rejected["simulated"], rejected["measured"]) == (0, 2)
    assert "on one side only" in document["notes"][0]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["{sim}", "{mea}", "textbook"], ["3 arguments", "two records"]),
        (["{mea}", "{sim}"], ["first record", "simulated"]),
        (["{sim}", "{sim}/setup.json"], ["setup.json", "not a record"]),
        (["{sim}", "no-such-folder"], ["no-such-folder", "not a record"]),
        (["{sim}", "textbook"], ["textbook", "not a record"]),
        (["{sim}"], ["folder", "not a trace"]),
        (["no/such/file.csv"], ["no/such/file.csv"]),
        (["{sim}", "{mea}", "--max-batch", "8"], ["--max-batch", "two saved records"]),
        (["{sim}", "{mea}", "--cost", "x.json"], ["--cost", "two saved records"]),
        (["{sim}", "{mea}", "--save", "x"], ["--save", "two saved records"]),
        (["textbook", "--cost", "roofline", "--seconds", "3"], ["--seconds", "--cost"]),
        (["textbook", "--model", "toy", "--weights", "folder"], ["--model toy", "--weights folder"]),
        (["{sim}", "{mea}", "--json", "no/such/x.json"], ["--json", "'no/such/x.json'"]),
        (["{sim}", "{mea}", "--markdown", "no/such/x.md"], ["--markdown", "'no/such/x.md'"]),
        (["{sim}", "{mea}", "--fail-over", "nan"], ["--fail-over", "'nan'"]),
        (["--repeats", "0"], ["--repeats", "'0'"]),
        (["--max-batch", "0"], ["--max-batch", "'0'"]),
        (["--max-wait", "-1"], ["--max-wait", "'-1'"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    argv: list[str],
    words: list[str],
    records: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "measure", lambda *_: pytest.fail("measured before it was checked"))
    assert run(*(word.format(sim=records[0], mea=records[1]) for word in argv)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words)


def test_a_record_with_an_unknown_cost_model_is_one_line(
    records: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    setup = Path(records[0]) / "setup.json"
    document = json.loads(setup.read_text())
    document["setup"]["cost"] = {"kind": "crystal ball"}
    setup.write_text(json.dumps(document))
    assert run(*records) == 2
    assert "'crystal ball'" in capsys.readouterr().err


@pytest.mark.parametrize("environment", [{"COLUMNS": "80"}, {}, {"PYTHONIOENCODING": "cp1252"}])
def test_redirected_output_keeps_every_number_whole(
    environment: dict[str, str], records: tuple[str, str], tmp_path: Path
) -> None:
    done = process(*records, "--markdown", str(tmp_path / "x.md"), **environment)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))
    assert "\x1b" not in text
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    assert max(map(len, text.splitlines())) <= (80 if "COLUMNS" in environment else 100)
    assert "none[at all]" in text  # the model's name, brackets and all
    for row in (tmp_path / "x.md").read_text().splitlines():
        for cell in row.strip("| ").split(" | ") if row.startswith("| ") else ():
            assert not re.fullmatch(r"[-+]?[\d,.]+ ?(%|ns|us|ms|s)?", cell.strip()) or cell.strip() in text


def test_colour_only_where_it_is_wanted(records: tuple[str, str]) -> None:
    assert b"\x1b" in process(*records, FORCE_COLOR="1").stdout
    assert b"\x1b" not in process(*records, FORCE_COLOR="1", NO_COLOR="1").stdout
    assert b"\x1b" not in process(*records, "--no-color", FORCE_COLOR="1").stdout


def test_records_are_compared_without_torch_and_measuring_says_that_it_is_missing(
    records: tuple[str, str],
) -> None:
    done = process(*records, "--json", "-", before="sys.modules['torch'] = None")
    assert (done.returncode, done.stderr) == (0, b"")
    json.loads(done.stdout)
    done = process("textbook", before="sys.modules['torch'] = None")
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode() == (
        "error: measuring needs torch: install the extra 'real', or give two records\n"
    )


# The whole job, on an engine whose times are straight in all that the grid interpolates.


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Options of the fake engine that the lab will open; a test changes them before it measures."""
    how: dict[str, Any] = {}
    monkeypatch.setattr(trial, "load_engine", lambda *_, **__: fake(**how))
    monkeypatch.setattr(trial, "shape_of", lambda *_: TINY)
    monkeypatch.setattr(
        trial, "Engine", lambda _, name: FakeEngine(name=name, most_rows=how.get("most_rows"))
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield how
    torch.set_num_threads(threads)


FAST = ("--seconds", "0.2", "--repeats", "3", "--max-batch", "3", "--max-wait", "0.05")


def test_the_whole_job_finds_the_formula(
    engine: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(RECIPE, *FAST, "--json", "-", "--markdown", str(tmp_path / "x.md")) == 0
    document = json.loads(capsys.readouterr().out)
    batches = document["batches"]
    assert batches["formed_identically"] is True
    assert batches["held_out"]["count"] == 24  # six of 1, 2, 3 and, as the textbook has, 4 rows
    for scored in (batches, batches["held_out"]):
        assert scored["formed_identically"] is True
        assert 0 <= scored["median_error"] <= scored["p95_error"] < 1e-5
        assert scored["noise"] == scored["noise_p95"] == 0
    assert {step["phase"] for step in document["steps"]} == {"prefill", "decode"}
    for step in document["steps"]:
        assert step["error"] == pytest.approx(0, abs=1e-5)
        assert step["simulated"] == pytest.approx(step["measured"], rel=1e-5)
        assert step["p95_error"] < 1e-5
    assert list(document["models"]) == ["grid", "fitted", "datasheet roofline"]
    for parts in document["models"].values():
        assert list(parts) == ["batches", "prefill", "decode"]
        for part in parts.values():
            assert part["error"] == pytest.approx(part["simulated"] / part["measured"] - 1, abs=1e-6)
    assert document["models"]["datasheet roofline"]["batches"]["median_error"] > 0.05
    assert list(document["ledger_s"]) == list(LINES)
    total = sum(line["measured"] for line in document["ledger_s"].values())
    assert total == pytest.approx(document["throughput"]["makespan_s"]["measured"], abs=1e-8)
    for group in (document["waste"], document["ledger_s"], *document["latency"].values()):
        for pair in group.values():
            assert {"simulated", "measured", "error", "spread"} <= set(pair)
    assert [run["engine"] for run in document["engines"]] == ["serial", "rowwise", "padded"]
    assert [point["rows"] for point in document["batch_sizes"]] == [1, 2, 4, 8, 16]
    assert document["setup"]["batching"]["max_batch"] == 3
    assert document["setup"]["calibration_s"] == 0.2
    text = (tmp_path / "x.md").read_text()
    assert "prefill padding 55/120 = 46 %" in text
    assert "decode idle 23/80 = 29 %" in text
    assert document["textbook"]["waste"]["prefill_padding"]["measured"] == 55
    assert document["textbook"]["waste"]["decode_idle"]["simulated"] == 23
    assert document["textbook"]["waste"]["prefill_fraction"]["measured"] == pytest.approx(55 / 120)
    assert document["textbook"]["waste"]["decode_fraction"]["simulated"] == pytest.approx(23 / 80)


def test_the_textbook_percentages_are_computed(
    engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(BUILT_IN, "textbook", lambda: trace_of([0] * 4, [10, 40, 5, 20], [20, 10, 20, 12]))
    assert run(RECIPE, *FAST) == 0
    shown = capsys.readouterr().out
    assert "prefill padding 85/160 = 53 %" in shown
    assert "decode idle 18/80 = 22 %" in shown


def test_without_arguments_it_says_what_it_runs_on(
    engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Options] = []

    def seen(trace: Trace, options: Options) -> Any:
        asked.append(options)
        assert len(trace) == 60
        return measure(load(RECIPE), replace(options, seconds=0.2, repeats=1))

    monkeypatch.setattr(compare, "measure", seen)
    assert run() == 0
    assert asked[0].repeats >= 3
    assert asked[0].batching == Batching(8, compare.DEFAULT_WAIT_S)
    shown = " ".join(capsys.readouterr().out.split())
    assert "on a CPU and without weights: a small random model of Qwen3's build" in shown
    for fact in (
        f"torch {torch.__version__}",
        "float32",
        "process CPU time",
        "cost model grid toy",
        "warm-up",
    ):
        assert fact in shown
    assert "no repeats, so the noise is unknown" in shown


def test_a_cost_model_that_is_given_is_tested_and_nothing_calibrated(
    engine: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    saved = tmp_path / "saved"
    assert run(RECIPE, *FAST, "--save", str(saved)) == 0
    assert {path.name for path in saved.iterdir()} == {
        "simulated",
        "measured-1",
        "measured-2",
        "measured-3",
        "cost.json",
        "profile.parquet",
    }
    capsys.readouterr()
    monkeypatch.setattr(trial, "measure", lambda *_, **__: pytest.fail("calibrated"))
    how = ("--repeats", "2", "--max-batch", "3", "--max-wait", "0.05")
    assert run(RECIPE, *how, "--cost", str(saved / "cost.json"), "--json", "-", "--fail-over", "0.1") == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["models"]) == ["given", "datasheet roofline"]
    assert document["setup"]["cost"] == json.loads((saved / "cost.json").read_text())
    assert document["setup"]["calibration_s"] is None
    # And the records can be compared again, to the same errors.
    assert run(str(saved / "simulated"), str(saved / "measured-2"), "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["batches"]["median_error"] < 1e-5
    assert run(RECIPE, *how, "--cost", "roofline", "--fail-over", "0.1") == 1


def test_a_bad_cost_file_is_found_before_anything_is_measured(
    engine: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(trial, "measure_together", lambda *_: pytest.fail("measured"))
    (tmp_path / "bad.json").write_text('{"kind": "abacus"}')
    assert run(RECIPE, "--cost", str(tmp_path / "bad.json")) == 2
    assert "'abacus'" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    assert run(RECIPE, "--save", str(tmp_path / "full")) == 2
    assert "'thesis.tex'" in capsys.readouterr().err


def test_ctrl_c_keeps_the_repeats_that_were_finished(
    engine: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    replayed, calls = Lab.replay, []

    def impatient(self: Lab, trace: Trace, batching: Batching) -> RunRecord:
        calls.append(trace.name)
        if calls.count("textbook") == 2:
            raise KeyboardInterrupt
        return replayed(self, trace, batching)

    monkeypatch.setattr(Lab, "replay", impatient)
    saved = tmp_path / "saved"
    assert run(RECIPE, *FAST, "--save", str(saved), "--json", str(tmp_path / "x.json")) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: interrupted" in said.err
    assert "2 finished repeats" in said.err
    assert not (tmp_path / "x.json").exists()
    assert run(str(saved / "simulated"), str(saved / "measured-2")) == 0
    assert costs.from_json(json.loads((saved / "cost.json").read_text())).name.startswith("grid")
    assert (saved / "profile.parquet").is_file()
    assert not (saved / "measured-3").exists()


def test_ctrl_c_before_anything_is_finished_just_ends(
    engine: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine["interrupt_at"] = 0
    assert run(RECIPE, *FAST, "--save", str(tmp_path / "saved")) == 130
    assert capsys.readouterr().err == "error: interrupted\n"
    assert list((tmp_path / "saved").iterdir()) == []


def test_batches_that_memory_does_not_suffice_for_are_na_and_named(
    engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    engine["most_rows"] = 2
    assert run(RECIPE, *FAST, "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    assert any("out of memory: 3 rows" in note for note in document["notes"])
    by_name = {run["engine"]: run for run in document["engines"]}
    assert by_name["serial"]["speed_up"] == 1
    assert by_name["padded"]["seconds"] is by_name["padded"]["speed_up"] is None
    assert [point["measured"] is None for point in document["batch_sizes"]] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert run(RECIPE, *FAST) == 0
    assert "n/a" in capsys.readouterr().out


def test_noise_of_the_engine_is_seen_beside_the_errors(
    engine: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    engine["slower"] = lambda batch: 1.0 + 0.1 * np.random.default_rng(batch).random()
    assert run(RECIPE, *FAST, "--json", "-") == 0
    batches = json.loads(capsys.readouterr().out)["batches"]["held_out"]
    assert 0 < batches["noise"] <= batches["noise_p95"] < 0.1
    assert batches["inside_noise"] is (batches["median_error"] <= batches["noise_p95"])


# And once with nothing faked: torch, transformers, a small Qwen3 with random weights.


def test_the_real_thing_end_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(MODELS, TINY.name, TINY)
    threads = torch.get_num_threads()
    try:
        options = Options(
            model=TINY.name,
            weights="random",
            device="cpu",
            cost=None,
            batching=Batching(2, 0.02),
            repeats=2,
            seconds=2.0,
            seed=0,
            save=str(tmp_path / "saved"),
        )
        comparison = measure(load(RECIPE), options)
    finally:
        torch.set_num_threads(threads)
    document = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert document["batches"]["held_out"]["count"] >= 20
    assert document["batches"]["held_out"]["noise"] > 0
    assert document["setup"]["model"] == "tiny"
    assert document["setup"]["threads"] == 1
    assert document["textbook"]["waste"]["prefill_slots"]["measured"] == 120
    assert {step["rows"] for step in document["steps"]} >= {1, 2, 4}
    assert all(step["measured"] > 0 for step in document["steps"])
    assert [run["same_tokens"] for run in document["engines"]] == [True] * 3
    assert all(point["measured"] > 0 for point in document["batch_sizes"])
    split = document["error_split_s"]["e2e_batch"]
    terms = split["cost_s"] + split["queueing_s"] + split["formation_s"]
    assert terms == pytest.approx(split["simulated_s"] - split["measured_s"], abs=3e-9)
    repeats = [store.load(tmp_path / "saved" / f"measured-{i}") for i in (1, 2)]
    assert [len(one.requests.status) for one in repeats] == [6, 6]
    assert {str(part.title) for part in comparison.tables() if not isinstance(part, str)} >= {
        "The textbook batch, slot by slot",
        "Waste in slots",
        "Batching against one by one, same requests",
        "Tokens/s by batch size, equal lengths",
        "Whole batches",
        "Steps by batch size",
        "Cost models, same measurements",
        "Latency",
        "Throughput",
        "Where the time went",
        "Error of mean times = cost + queueing + formation",
        "What ran",
    }
