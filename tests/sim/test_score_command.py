"""``python -m sim score``: what is fitted is never scored, splits and seeds are printed, errors are as by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.__main__ import app
from sim.errors import errors
from sim.fitted import fit
from sim.hardware import hardware
from sim.models import model_shape
from sim.profile import Profile
from sim.roofline import Roofline
from sim.scoring import Sizes, roofline, scored
from sim.splits import draws, extrapolation, interpolation
from sim.step import padded_decode
from sim.timings import Timings, of_profile
from tests.sim.synthetic import CONDITIONS, passes, profile
from tests.sim.test_fit_command import csv, exact, line, one_line
from traces.errors import InputError
from traces.terminal import exit_code

TOY = Roofline(model_shape("toy"), hardware("cpu"), "float32")
SEEDS = [0, 1, 2]


def sim(*argv: object) -> int:
    return exit_code(app, "python -m sim", [str(word) for word in argv])


def scores(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    assert sim("score", *argv, "--json", "-") == 0
    return dict(json.loads(capsys.readouterr().out))


def of(profiled: Profile) -> Timings:
    return of_profile(profiled, "p")


# Splits.


def test_interpolation_fits_thirty_percent_and_tests_the_rest_for_each_seed() -> None:
    timings = of(exact())
    parted = interpolation(timings, SEEDS)
    assert [draw.name for draw in parted] == ["seed 0", "seed 1", "seed 2"]
    for draw in parted:
        assert sorted([*draw.fitted, *draw.tested]) == list(range(len(timings)))
        assert len(draw.fitted) == round(0.3 * len(timings))
    assert len({tuple(draw.fitted) for draw in parted}) == 3
    again = interpolation(timings, SEEDS)
    assert all(np.array_equal(a.fitted, b.fitted) for a, b in zip(parted, again, strict=True))


def test_extrapolation_fits_the_lower_half_of_rows_and_lengths_and_tests_all_larger() -> None:
    timings = of(exact(rows=(1, 2, 4, 8)))
    (draw,) = extrapolation(timings, [])
    assert draw.name == "fitted prefill up to 2 rows and 64 tokens; decode up to 2 rows and 64 tokens"
    assert (timings.rows[draw.fitted].max(), timings.tokens[draw.fitted].max()) == (2, 64)
    assert len(draw.fitted) == 2 * 2 * 2
    assert np.all((timings.rows[draw.tested] > 2) | (timings.tokens[draw.tested] > 64))
    assert len(draw.fitted) + len(draw.tested) == len(timings)


@pytest.mark.parametrize("split", ["interpolation", "extrapolation"])
def test_no_shape_is_tested_on_its_neighbours(split: str) -> None:
    # The middle of these lengths, 402, has neighbours above it.
    contexts = np.concatenate([start + np.arange(5) for start in (100, 400, 1600)] * 4)
    steps = padded_decode(np.repeat([1, 2, 4, 8], 15), contexts)
    timings = of(Profile(steps, line(steps), CONDITIONS))
    for draw in draws(timings, split, SEEDS):
        assert not set(timings.cell[draw.tested]) & set(timings.cell[draw.fitted])
        assert len(draw.tested) > 0


@pytest.mark.parametrize("split", ["interpolation", "extrapolation"])
def test_what_is_scored_was_never_fitted(split: str) -> None:
    """Tested times made a quarter longer: the fit, which never saw them, is 1/5 short on each of them, exactly."""
    steps = padded_decode(np.repeat([1, 2, 3, 4, 6, 8, 12, 16], 4), np.tile([8, 64, 256, 1000], 8))
    timings = of(Profile(steps, line(steps), CONDITIONS))
    draw = draws(timings, split, [4])[0]
    seconds = timings.seconds.copy()
    seconds[draw.tested] *= 1.25
    changed = of(Profile(timings.steps, seconds, CONDITIONS))
    found = scored("fitted", None, changed, [draw], Sizes())
    assert found.note is None
    assert found.signed[0] == pytest.approx(np.full(len(draw.tested), -0.2), abs=1e-6)


# Scores.


def test_figures_are_those_of_the_errors_by_hand() -> None:
    steps = padded_decode([1, 2, 4, 8], [100, 100, 100, 100])
    timings = of(Profile(steps, line(steps), CONDITIONS))

    class Off:
        name, batch_overhead_s = "off", (0.0, 0.0)

        def seconds(self, some: Any) -> Any:
            return line(some) * np.select([some.decode_rows == r for r in (1, 2, 4)], [1.1, 0.8, 1.0], 1.4)

        def outside(self, some: Any) -> None:
            return None

        def to_json(self) -> dict[str, Any]:
            return {"kind": "off"}

    (draw,) = interpolation(timings, [0])
    everything = type(draw)("all", draw.fitted, np.arange(4))
    found = scored("off", Off(), timings, [everything], Sizes())
    # Errors +10, -20, 0 and +40 %.
    assert found.mean("mean") == pytest.approx(0.175)
    assert found.mean("median") == pytest.approx(0.15)
    assert found.mean("p95") == pytest.approx(0.2 + 0.85 * 0.2)
    assert found.mean("bias") == pytest.approx(0.075)
    worst = found.worst
    assert worst is not None
    assert worst[0] == pytest.approx(0.4)
    assert worst[1] == "decode of 8 x 100"


def table(path: Path, devices: tuple[str, ...], models: tuple[str, ...]) -> Path:
    """Times as the roofline of each model and device gives them, doubled."""
    rows, some = [], passes((1, 4, 16, 64), (128, 1024, 8192))
    decode = some.take(np.flatnonzero(some.decode_rows > 0))
    for model in models:
        for device in devices:
            seconds = 2 * Roofline(model_shape(model), hardware(device)).seconds(decode)
            for b, c, t in zip(decode.decode_rows, decode.max_context_tokens, seconds, strict=True):
                rows.append(f"Qwen/{model},NVIDIA {device},{b},{c},{t * 1e3:.9f}")
    return csv(path, "model,gpu,b,c,t", *rows)


MAP = ("--map", "rows=b,context_tokens=c,seconds=t:ms,model=model,hardware=gpu")


@pytest.mark.parametrize(
    ("split", "devices", "models"),
    [
        ("leave-one-gpu-out", ("H200", "L4", "A100-80GB"), ("Qwen3-8B",)),
        ("leave-one-model-out", ("H200",), ("Qwen3-4B", "Qwen3-8B", "Qwen3-32B")),
    ],
)
def test_what_was_learnt_elsewhere_is_carried_over_by_the_roofline(
    split: str,
    devices: tuple[str, ...],
    models: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = scores(capsys, table(tmp_path / "t.csv", devices, models), *MAP, "--split", split)
    datasheet, fitted = found["scores"]
    assert len(found["split"]["draws"]) == 3
    # The datasheet is half of what was measured; the fits have seen that elsewhere.
    assert datasheet["bias"] == pytest.approx(-0.5, abs=1e-6)
    assert fitted["mean_error"] < 0.03
    assert fitted["note"] is None
    assert fitted["tested_shapes"] == [12, 12, 12]
    assert fitted["fitted_shapes"] == [24, 24, 24]


def test_without_sizes_the_others_times_are_taken_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        f"{who},{b},{c},{(2 if who == 'slow' else 1) * (1 + b * c)}"
        for who in ("fast", "slow")
        for b in (1, 2, 4)
        for c in (8, 64)
    ]
    found = scores(
        capsys,
        csv(tmp_path / "t.csv", "model,b,c,t", *rows),
        *("--map", "rows=b,context_tokens=c,seconds=t,model=model"),
        *("--split", "leave-one-model-out", "--models", "fitted,roofline"),
    )
    fitted, datasheet = found["scores"]
    # Twice too long on one, half on the other.
    assert fitted["mean_errors"] == pytest.approx([1.0, 0.5], abs=1e-5)
    assert "not carried over by the roofline: unknown" in fitted["note"]
    assert datasheet["mean_error"] is None
    assert "unknown hardware 'not stated'" in datasheet["note"]


def test_groups_are_fitted_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = table(tmp_path / "t.csv", ("H200",), ("Qwen3-4B", "Qwen3-32B"))
    apart = scores(capsys, where, *MAP, "--split", "extrapolation", "--models", "fitted")["scores"][0]
    assert apart["mean_error"] < 0.05
    assert apart["worst_shape"].endswith(
        (", NVIDIA H200)", "Qwen3-32B, NVIDIA H200)", "Qwen3-4B, NVIDIA H200)")
    )


def test_sizes_given_by_hand_are_taken() -> None:
    about = {"hardware": "some card", "model": "some model", "dtype": "bf16"}
    assert roofline({}, about, Sizes("Qwen3-8B", "L4")) == Roofline(model_shape("Qwen3-8B"), hardware("L4"))
    with pytest.raises(InputError, match="unknown dtype 'fp8'; known are bfloat16"):
        roofline({}, {**about, "dtype": "FP8"}, Sizes("Qwen3-8B", "L4"))
    named = {**about, "hardware": "NVIDIA H200 NVL", "model": "Qwen/Qwen3-4B", "dtype": "float32"}
    assert roofline({}, named, Sizes()) == Roofline(model_shape("Qwen3-4B"), hardware("H200"), "float32")
    smaller = {**named, "hardware": "NVIDIA H20 96GB"}
    assert roofline({}, smaller, Sizes()).hardware.name == "H20"
    own = {**named, "hardware": "AMD EPYC", "device": "cpu", "model": "toy"}
    assert roofline({}, own, Sizes()).hardware.name == "cpu"
    with pytest.raises(InputError, match="unknown model 'some model'"):
        roofline({}, {**about, "hardware": "H200"}, Sizes())


# The command.


def test_one_table_with_splits_and_seeds_that_anyone_can_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = profile(TOY.seconds, noise=0.05, steps=passes((1, 2, 3, 4, 8, 16), (32, 64, 128, 256, 512)))
    measured.save(tmp_path / "p.parquet")
    (tmp_path / "seen.json").write_text(json.dumps(fit(measured).to_json()))
    (tmp_path / "other.json").write_text(json.dumps(TOY.to_json()))
    models = f"roofline,fitted,grid,{tmp_path}/seen.json,{tmp_path}/other.json,tests.sim.test_costs:OWN"
    argv = (tmp_path / "p.parquet", "--models", models, "--seeds", "3,5", "--model", "toy", "--gpu", "cpu")
    found = scores(capsys, *argv)
    assert scores(capsys, *argv) == found
    assert found["split"] == {
        "name": "interpolation",
        "draws": ["seed 3", "seed 5"],
        "seeds": [3, 5],
        "fit_share": 0.3,
    }
    datasheet, fitted, grid, seen, other, own = found["scores"]
    assert {key: value for key, value in datasheet.items() if key != "model"} == {
        key: value for key, value in other.items() if key != "model"
    }
    assert seen["note"] == "was fitted to these very data"
    assert (fitted["note"], grid["note"], other["note"], own["note"]) == (None, None, None, None)
    assert fitted["tested_shapes"] == [42, 42]
    assert fitted["fitted_shapes"] == [18, 18]
    assert own["mean_error"] > 0.5

    assert sim("score", *argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "interpolation: 30% of the shapes fitted, drawn with seed 3, seed 5; the others tested" in said
    assert "mean, median, p95 and bias are means over these draws; worst is of all of them" in said
    assert "seen.json: was fitted to these very data" in said
    assert f"180 measurements of 60 shapes, sha256 {measured.sha256[:16]}" in said


def test_roofline_scores_are_plain_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = profile(TOY.seconds, noise=0.3, repeats=1)
    measured.save(tmp_path / "p.parquet")
    argv = (tmp_path / "p.parquet", "--models", "roofline", "--seeds", "0", "--model", "toy", "--gpu", "cpu")
    (found,) = scores(capsys, *argv)["scores"]
    timings = of(measured)
    tested = timings.take(interpolation(timings, [0])[0].tested)
    expected = np.abs(errors(TOY.seconds(tested.steps), tested.seconds))
    assert found["mean_error"] == pytest.approx(expected.mean(), abs=1e-6)
    assert abs(found["worst_error"]) == pytest.approx(expected.max(), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--seeds", "1,1"], "--seeds '1,1': give different whole numbers"),
        (["--seeds", "x"], "--seeds 'x': give different whole numbers"),
        (["--seeds", "1", "--split", "extrapolation"], "--seeds 1: only interpolation draws at random"),
        (
            ["--gpu", "L4", "--models", "fitted"],
            "--gpu L4: it sizes the roofline, which is not among --models",
        ),
        (["--models", ","], "--models ',' names none; choose fitted, grid, residual or roofline or a file"),
        (["--models", "fited"], "cost model 'fited': No such file"),
        (
            ["--split", "random"],
            "unknown split 'random'; known are extrapolation, interpolation, leave-one-gpu-out",
        ),
        (["--split", "leave-one-model-out"], "leaving one model out needs at least two; it holds only toy"),
        (["--models", "roofline"], "unknown hardware 'none'"),
    ],
)
def test_mistakes(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact().save(tmp_path / "p.parquet")
    assert said in one_line(capsys, "score", tmp_path / "p.parquet", *options)


def test_too_little_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mapped = ("--map", "rows=b,context_tokens=c,seconds=t")
    few = csv(tmp_path / "t.csv", "b,c,t", "1,8,1", "2,8,1", "4,8,1")
    said = one_line(capsys, "score", few, *mapped, "--models", "fitted")
    assert said.startswith("t.csv: 1 distinct shape(s) in 3 measurements, a fit needs at least 3")
    one = csv(tmp_path / "t.csv", "b,c,t", "1,8,1")
    assert "nothing left to test" in one_line(capsys, "score", one, *mapped, "--models", "fitted")
    no_label = one_line(capsys, "score", few, *mapped, "--split", "leave-one-gpu-out")
    assert no_label.endswith("needs at least two; name its column by --map hardware=COLUMN")


def test_decode_steps_of_a_published_table(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = shared_data / "measured" / "splitwise-sim" / "perf_model.csv"
    mapped = "rows=batch_size,prompt_tokens=prompt_size,output_tokens=token_size,decode_seconds=token_time:ms"
    argv = (data, "--map", f"{mapped},model=model,hardware=hardware", "--where", "tensor_parallel=8")
    group = ("--where", "model=llama2-70b", "--where", "hardware=a100-80gb", "--where", "hardware=h100-80gb")
    (fitted,) = scores(capsys, *argv, *group, "--models", "fitted")["scores"]
    assert 0 < fitted["mean_error"] < 0.08
    parts = zip(fitted["fitted_shapes"], fitted["tested_shapes"], strict=True)
    assert [sum(part) for part in parts] == [38] * 5
