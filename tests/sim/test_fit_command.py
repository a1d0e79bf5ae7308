"""``python -m sim fit``: tables, profiles and records in; a model file with its evidence out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim import costs
from sim.__main__ import app
from sim.fitted import Fitted, fit
from sim.fitting import HELD_OUT_SHARE, drawn, fit_kind, held_out, spread
from sim.hardware import hardware
from sim.measured_table import parse_map, read_table
from sim.models import model_shape
from sim.profile import Profile
from sim.replay import Replay
from sim.roofline import Roofline
from sim.step import Step, batch_steps, concat, padded_decode, padded_prefill
from sim.timings import of_profile
from tests.sim.synthetic import CONDITIONS, passes, profile
from traces.errors import InputError
from traces.terminal import exit_code
from traces.trace import Floats

TOY = Roofline(model_shape("toy"), hardware("cpu"), "float32")
MAP = "rows=b,prompt_tokens=p,output_tokens=n,context_tokens=c,seconds=t:ms"


def sim(*argv: object) -> int:
    return exit_code(app, "python -m sim", [str(word) for word in argv])


def one_line(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert sim(*argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return said.err.removeprefix("error: ").rstrip("\n")


def csv(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def line(some: Step) -> Floats:
    """Milliseconds as whole numbers, so that a table in ms holds them exactly."""
    return np.asarray(
        5e-3 + 1e-3 * some.prefill_tokens + 2e-3 * some.decode_rows + 1e-3 * some.decode_kv_tokens, np.float64
    )


BATCHES = [(b, p, n) for b in (1, 2, 5, 8) for p in (3, 10, 40) for n in (1, 4, 30)]


def batch_table(path: Path) -> Path:
    times = (float(line(batch_steps(b, p, n)).sum() * 1e3) for b, p, n in BATCHES)
    return csv(
        path, "b,p,n,t", *(f"{b},{p},{n},{t:.6f}" for (b, p, n), t in zip(BATCHES, times, strict=True))
    )


# What a table says.


def test_whole_batches_are_sums_over_passes_and_price_single_passes(tmp_path: Path) -> None:
    table = batch_table(tmp_path / "t.csv")
    timings = read_table(table, parse_map("rows=b,prompt_tokens=p,output_tokens=n,seconds=t:ms"))
    assert [timings.describe(i) for i in (0, 1)] == ["batch of 1 x (3 + 1)", "batch of 1 x (3 + 4)"]
    for name, column in vars(concat(*(batch_steps(*batch) for batch in BATCHES))).items():
        assert getattr(timings.steps, name).tolist() == column.tolist()
    model = fit_kind("fitted", timings)
    assert timings.predicted(model) == pytest.approx(timings.seconds, rel=1e-6)
    unseen = concat(padded_prefill([3], [20]), padded_decode([3], [33]))
    assert model.seconds(unseen) == pytest.approx(line(unseen), rel=1e-6)


@pytest.mark.parametrize(
    ("mapped", "setting"),
    [
        ("rows=b,prompt_tokens=p,output_tokens=n,seconds=t", "batch of 2 x (8 + 5)"),
        ("rows=b,prompt_tokens=p,seconds=t", "prefill of 2 x 8"),
        ("rows=b,context_tokens=p,seconds=t", "decode of 2 x 8"),
        ("rows=b,prompt_tokens=p,output_tokens=n,prefill_seconds=t", "prefill of 2 x 8"),
        # The mean step of prompt 8 and output 5 reads 8 + 2 tokens.
        ("rows=b,prompt_tokens=p,output_tokens=n,decode_seconds=t", "decode of 2 x 10"),
    ],
)
def test_the_lengths_say_what_the_time_is_of(tmp_path: Path, mapped: str, setting: str) -> None:
    table = csv(tmp_path / "t.csv", "b,p,n,t", "2,8,5,0.25")
    timings = read_table(table, parse_map(mapped))
    assert timings.describe(0) == setting
    assert timings.seconds.tolist() == [0.25]


def test_repeats_become_medians_units_seconds_and_the_rest_is_filtered(tmp_path: Path) -> None:
    rows = ("2,8,9,x", "2,8,3,x", "2,8,4,x", "2,8,5000,y", "4,8,7,z")
    table = csv(tmp_path / "t.csv", "b,p,t,who", *rows)
    mapped = parse_map("rows=b,prompt_tokens=p,seconds=t:us,model=who")
    timings = read_table(table, mapped, ["who=x", "who=z"], {"dtype": "bfloat16"})
    assert timings.seconds.tolist() == [4e-6, 7e-6]
    assert timings.measurements == 4
    # |9 - 4| / 4, |3 - 4| / 4, 0: the median is 0.25.
    assert timings.noise["median"] == 0.25
    assert [dict(group) for group in timings.groups] == [{"model": "x"}, {"model": "z"}]
    assert (timings.conditions["dtype"], timings.conditions["engine"]) == ("bfloat16", "not stated")


# Held out, and how sure.


def exact(rows: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)) -> Profile:
    return profile(line, repeats=1, steps=passes(rows, (8, 64, 256)))


def test_held_out_shapes_are_never_fitted() -> None:
    """The held-out times made a quarter longer: a fit that never saw them is 1/5 short on each of them, exactly."""
    timings = of_profile(exact(), "p")
    tested, fitted = drawn(timings, HELD_OUT_SHARE, 3)
    assert sorted([*tested, *fitted]) == list(range(len(timings)))
    assert len(tested) == round(0.3 * len(timings))
    seconds = timings.seconds.copy()
    seconds[tested] *= 1.25
    found = held_out("fitted", of_profile(Profile(timings.steps, seconds, CONDITIONS), "p"), 3)
    assert found is not None
    assert found["mean"] == pytest.approx(0.2, abs=1e-6)
    assert found["bias"] == pytest.approx(-0.2, abs=1e-6)
    assert found["shapes"] == len(tested)
    assert sum(phase["shapes"] for phase in found["phases"].values()) == len(tested)


def test_neighbours_in_length_are_held_out_together() -> None:
    """A profile has steps at contexts 100, 101, 102: one of them fitted would give the others away."""
    contexts = np.concatenate([start + np.arange(4) for start in (100, 200, 400, 800)] * 4)
    steps = padded_decode(np.repeat([1, 2, 4, 8], 16), contexts)
    timings = of_profile(Profile(steps, line(steps), CONDITIONS), "p")
    assert len(np.unique(timings.cell)) == 16
    # Wherever a run of four begins, no border of any grid of lengths cuts it.
    for start in range(13, 400):
        few = padded_decode(np.ones(4, np.int64), start + np.arange(4))
        assert len(np.unique(of_profile(Profile(few, line(few), CONDITIONS), "p").cell)) == 1
    tested, fitted = drawn(timings, HELD_OUT_SHARE, 0)
    assert not set(timings.cell[tested]) & set(timings.cell[fitted])
    assert len(tested) == 4 * round(0.3 * 16)


def test_lengths_without_gaps_are_cut_where_they_grow_too_long() -> None:
    steps = padded_decode(np.ones(80, np.int64), 100 + np.arange(80))
    cells = of_profile(Profile(steps, line(steps), CONDITIONS), "p").cell
    # 100 .. 124, 125 .. 156, 157 .. 179.
    assert np.bincount(cells).tolist() == [25, 32, 23]


def test_the_spread_holds_the_truth_and_grows_with_noise() -> None:
    def width(noise: float) -> float:
        measured = profile(
            TOY.seconds, noise=noise, steps=passes((1, 2, 4, 8, 16, 32), (64, 128, 256, 512, 1024))
        )
        timings = of_profile(measured, "p")
        low, high = spread(fit(measured), timings, 0)["p5_p95"]["decode_kv_s"]
        return float(high - low)

    assert width(0.05) > 3 * width(0.002)
    linear = of_profile(exact(), "p")
    ranges = spread(fit(exact()), linear, 0)["p5_p95"]
    # No noise at all: every refit finds the same line.
    assert ranges["decode_kv_s"] == pytest.approx([1e-3, 1e-3], rel=1e-6)


# The command.


def document(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_the_file_carries_its_evidence_and_the_coefficients_of_all_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = profile(TOY.seconds, noise=0.05)
    measured.save(tmp_path / "p.parquet")
    assert sim("fit", tmp_path / "p.parquet", "--out", tmp_path / "m.json", "--seed", 7) == 0
    said = capsys.readouterr().out
    model = costs.from_json(document(tmp_path / "m.json"))
    assert isinstance(model, Fitted)
    assert model.seconds(passes()).tolist() == fit(measured).seconds(passes()).tolist()
    evidence = model.evidence
    assert evidence.data_sha256 == measured.sha256
    assert dict(evidence.conditions) == CONDITIONS
    assert (evidence.passes, evidence.shapes) == (108, 36)
    assert evidence.noise == measured.shapes.noise
    assert evidence.held_out is not None
    assert (evidence.held_out["seed"], evidence.held_out["share"]) == (7, 0.3)
    assert evidence.spread is not None
    assert set(evidence.spread["p5_p95"]) >= {"constant_s", "decode_kv_s", "token_s from 0"}
    assert evidence.versions is not None
    assert set(evidence.versions) >= {"numpy", "scipy"}
    flat = " ".join(said.split())
    assert "coefficients are from all 36 shapes (108 measurements)" in flat
    assert "100 refits to resampled shapes, seed 7" in flat
    assert "30% of the shapes drawn with seed 7" in flat
    for word in (
        "constant_s",
        "held out",
        "prefill",
        "noise of repeats",
        "decode rows",
        measured.sha256[:16],
    ):
        assert word in said
    assert "\x1b" not in said


def test_the_same_seed_gives_the_same_file_and_another_seed_the_same_coefficients(tmp_path: Path) -> None:
    profile(TOY.seconds, noise=0.05).save(tmp_path / "p.parquet")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert (
            sim("fit", tmp_path / "p.parquet", "--out", tmp_path / name, "--seed", seed, "--json", "-") == 0
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    first, other = document(tmp_path / "a"), document(tmp_path / "c")
    assert first["coefficients"] == other["coefficients"]
    assert first["evidence"]["held_out"] != other["evidence"]["held_out"]


def test_intercept_and_slope_of_a_table_in_milliseconds_come_back(tmp_path: Path) -> None:
    """5 ms + 0.02 ms a row, with half a percent of noise: both within a percent."""
    random = np.random.default_rng(0)
    rows = [
        f"{b},{c},{(5 + 0.02 * b) * np.exp(0.005 * random.standard_normal()):.6f}"
        for b in (1, 8, 32, 128, 256, 512)
        for c in (64, 256, 1024)
        for _ in range(9)
    ]
    table = csv(tmp_path / "t.csv", "b,c,t", *rows)
    mapped = "rows=b,context_tokens=c,seconds=t:ms"
    assert sim("fit", table, "--map", mapped, "--out", tmp_path / "m.json", "--json", "-") == 0
    model = costs.from_json(document(tmp_path / "m.json"))
    low, high = model.seconds(padded_decode([1, 501], [64, 64]))
    assert low == pytest.approx(5.02e-3, rel=0.01)
    assert (high - low) / 500 == pytest.approx(2e-5, rel=0.01)


@pytest.mark.parametrize("kind", ["grid", "residual"])
def test_other_kinds_are_made_and_come_back(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind == "residual":
        pytest.importorskip("sklearn")
    profile(TOY.seconds, noise=0.02).save(tmp_path / "p.parquet")
    assert sim("fit", tmp_path / "p.parquet", "--kind", kind, "--out", tmp_path / "m.json") == 0
    assert f"\n{kind}: " in capsys.readouterr().out
    written = document(tmp_path / "m.json")
    assert written["kind"] == kind
    assert written["fitted"]["evidence"]["held_out"]["shapes"] > 0
    assert costs.from_json(written).outside(padded_decode([64], [64])) is not None


def test_a_replay_is_made_of_what_was_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = profile(TOY.seconds, noise=0.3)
    measured.save(tmp_path / "p.parquet")
    for fallback in ("fitted", "none", str(tmp_path / "other.json")):
        out = tmp_path / "m.json"
        if fallback.endswith("json"):
            out.rename(tmp_path / "other.json")
            (tmp_path / "other.json").write_text(json.dumps(TOY.to_json()))
        assert (
            sim("fit", tmp_path / "p.parquet", "--kind", "replay", "--fallback", fallback, "--out", out) == 0
        )
        model = costs.from_json(document(out))
        assert isinstance(model, Replay)
        assert model.seconds(measured.shapes.steps).tolist() == measured.shapes.seconds.tolist()
        assert "replay: 36 recorded passes exactly; other passes " in capsys.readouterr().out
        assert (model.fallback is None) == (fallback == "none")


# Mistakes: one clear line each.


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "t.csv: no rows"),
        (["1,8,,,2"], "t.csv: 1 distinct shape(s) in 1 measurements, a fit needs at least 3"),
        (["1,8,,,2"] * 9, "t.csv: 1 distinct shape(s) in 9 measurements, a fit needs at least 3"),
        (["1,8,,,2", "2,8,,,nan"], "t.csv, line 3, column t: not a time ('nan')"),
        (["1,8,,,2", "2,8,,,inf"], "t.csv, line 3, column t: not a time ('inf')"),
        (["1,8,,,2", "2,8,,,0"], "t.csv, line 3, column t: not above 0 ('0')"),
        (["1,8,,,2", "2,8,,,-1"], "t.csv, line 3, column t: not above 0 ('-1')"),
        (["1,8,,,2", "2,8,,,"], "t.csv, line 3, column t: missing"),
        (["1,8,,,2", "0,8,,,3"], "t.csv, line 3, column b: zero ('0')"),
        (["1,8,,,2", "2,many,,,3"], "t.csv, line 3, column p: not a number ('many')"),
        (["1,8,,,2", "2,8"], "t.csv, line 3: 2 cells where the header has 5"),
        (["1,8,,,2", "1,8,,,2", "1,8,,,2000"], "t.csv, line 4: 2 s, 1000 times off the repeats"),
    ],
)
def test_bad_tables(rows: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = csv(tmp_path / "t.csv", "b,p,n,c,t", *rows)
    options = ("--map", "rows=b,prompt_tokens=p,seconds=t:ms", "--out", tmp_path / "m.json")
    assert said in one_line(capsys, "fit", table, *options)
    assert not (tmp_path / "m.json").exists()


def test_one_shape_in_another_unit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{b},{p},{5 + b * p / 10}" for b in (1, 2, 4, 8) for p in (8, 64, 256)]
    rows[5] = "2,256,0.0562"
    table = csv(tmp_path / "t.csv", "b,p,t", *rows)
    said = one_line(
        capsys, "fit", table, "--map", "rows=b,prompt_tokens=p,seconds=t:ms", "--out", tmp_path / "m.json"
    )
    assert "5.62e-05 s for prefill_tokens=512 " in said
    assert "are units mixed?" in said


def test_an_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("")
    options = ("--map", "rows=b,prompt_tokens=p,seconds=t:ms", "--out", tmp_path / "m.json")
    assert one_line(capsys, "fit", tmp_path / "t.csv", *options).endswith("t.csv: empty")


@pytest.mark.parametrize(
    ("mapped", "said"),
    [
        ("rows", "'rows' is not ROLE=COLUMN"),
        ("batch=b", "role 'batch' is not known; choose context_tokens, decode_seconds, dtype"),
        ("rows=b,rows=c", "rows is given twice"),
        ("prompt_tokens=p,seconds=t", "no column for rows"),
        ("rows=b,prompt_tokens=p", "no time in"),
        ("rows=b,prompt_tokens=p,seconds=t:hours", "unit 'hours' of t is not known; choose ms, ns, s or us"),
        (
            "rows=b,output_tokens=n,seconds=t",
            "seconds needs prompt_tokens and output_tokens; no column for prompt",
        ),
        ("rows=b,seconds=t", "seconds needs prompt_tokens; no column for prompt_tokens"),
        ("rows=b,prompt_tokens=p,decode_seconds=t", "decode_seconds needs prompt_tokens and output_tokens"),
    ],
)
def test_bad_maps(mapped: str, said: str) -> None:
    with pytest.raises(InputError, match=r"^--map: ") as caught:
        parse_map(mapped)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--map", "rows=B,prompt_tokens=p,seconds=t"], "t.csv: no column 'B'; there are b, p, t, who"),
        (["--where", "whom=x"], "--where 'whom=x' is not COLUMN=VALUE; columns are b, p, t, who"),
        (["--where", "who=z"], "t.csv: no row with who=z; it holds x, y"),
        (
            ["--about", "gpu=H200"],
            "--about 'gpu=H200' is not KEY=VALUE with one of clock, dtype, engine, hardware",
        ),
        (["--about", "model=M"], "--about model=M: --map takes model from the column 'who'"),
        ([], "t.csv: a fit is of one model on one device, not of x; y; choose by --where"),
        (["--kind", "tree"], "unknown --kind 'tree'; known are fitted, grid, replay or residual"),
        (["--fallback", "none"], "--fallback 'none': only a replay falls back, not fitted"),
        (["--kind", "replay"], "t.csv: a replay needs recorded passes; give a profile or a record"),
        (["--seed", "-1"], "'-1'"),
    ],
)
def test_bad_options(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = csv(tmp_path / "t.csv", "b,p,t,who", *(f"{b},8,{b},{who}" for b in (1, 2, 4, 8) for who in "xy"))
    mapped = [] if "--map" in options else ["--map", "rows=b,prompt_tokens=p,seconds=t,model=who"]
    assert said in one_line(capsys, "fit", table, *mapped, *options, "--out", tmp_path / "m.json")


def test_bad_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ("--out", tmp_path / "m.json")
    assert "no such file; give a profile, a record or a table" in one_line(
        capsys, "fit", tmp_path / "x", *out
    )
    assert "not a record (no setup.json in it)" in one_line(capsys, "fit", tmp_path, *out)
    table = csv(tmp_path / "t.csv", "b", "1")
    assert "for a table, name its columns by --map" in one_line(capsys, "fit", table, *out)
    exact().save(tmp_path / "p.parquet")
    for option in (("--map", MAP), ("--where", "a=b"), ("--about", "dtype=x")):
        said = one_line(capsys, "fit", tmp_path / "p.parquet", *option, *out)
        assert said.startswith(f"{option[0]}: ")
        assert said.endswith("p.parquet is no table; it says itself what it holds")
    nowhere = ("--out", tmp_path / "no" / "m.json")
    assert "there is no folder" in one_line(capsys, "fit", tmp_path / "p.parquet", *nowhere)


def test_whole_batches_make_no_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = batch_table(tmp_path / "t.csv")
    options = ("--map", "rows=b,prompt_tokens=p,output_tokens=n,seconds=t:ms", "--out", tmp_path / "m.json")
    said = one_line(capsys, "fit", table, *options, "--kind", "grid")
    assert (
        said
        == "t.csv: the time of a whole batch (batch of 1 x (3 + 1)) does not say what a single pass takes"
    )


def test_repeats_far_apart_point_to_columns_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{b},8,{b * k},{k}" for b in (1, 2, 4, 8) for k in (1, 4)]
    table = csv(tmp_path / "t.csv", "b,p,t,gpus", *rows)
    options = ("--map", "rows=b,prompt_tokens=p,seconds=t", "--out", tmp_path / "m.json")
    assert sim("fit", table, *options) == 0
    said = capsys.readouterr().err
    assert "repeats of a shape differ by up to 60.0 %" in said
    assert "Columns that vary and play no part: gpus" in said


def test_a_published_table_of_whole_batches(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where: Callable[[str, str], tuple[str, str]] = lambda column, value: ("--where", f"{column}={value}")  # noqa: E731
    table = shared_data / "measured" / "llm-inference-bench" / "All_results.csv"
    lengths = "prompt_tokens=Input Output Length,output_tokens=Input Output Length"
    options = (
        *("--map", f"rows=Batch Size,{lengths},seconds=Latency,model=Model,hardware=Hardware"),
        *where("Hardware", "Nvidia GH200 GPU"),
        *where("Model", "meta-llama/Meta-Llama-3-8B"),
        *where("Framework", "vLLM"),
        *where("Num of Hardware", "1"),
        *("--about", "dtype=float16"),
        *("--out", tmp_path / "m.json"),
    )
    assert sim("fit", table, *options) == 0
    assert "hardware Nvidia GH200 GPU, dtype float16" in capsys.readouterr().out
    found = document(tmp_path / "m.json")["evidence"]["held_out"]
    assert 0 < found["median"] < 0.1
