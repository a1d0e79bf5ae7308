import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from sim.cost import nanoseconds
from sim.fitted import Fitted, features, fit
from sim.grid import fit_grid
from sim.hardware import hardware
from sim.models import model_shape
from sim.profile import Profile
from sim.roofline import Roofline
from sim.solve import non_negative, summary
from sim.step import Step, concat, own_prefill, padded_decode, padded_prefill
from tests.sim.synthetic import CONDITIONS, FIELDS, falls, passes, profile, steps
from traces.errors import InputError
from traces.trace import Floats

GPU = Roofline(model_shape("Qwen3-8B"), hardware("H200"))
CPU = Roofline(model_shape("toy"), hardware("cpu"), "float32")


def host_bound(some: Step) -> Floats:
    work = 1e-3 + 1e-4 * some.decode_rows + 1e-6 * some.decode_kv_tokens + 1e-6 * some.prefill_tokens
    return np.asarray(np.maximum(9e-3, work), np.float64)


TRUTHS = [GPU.seconds, CPU.seconds, host_bound]
MODELS = [fit(profile(truth, noise)) for truth in TRUTHS for noise in (0.0, 0.1)]


def error(model: Fitted, truth: object, rows: tuple[int, ...], lengths: tuple[int, ...]) -> dict[str, float]:
    unseen = passes(rows, lengths)
    measured = truth(unseen)  # type: ignore[operator]
    return summary(np.abs(model.seconds(unseen) - measured) / measured)


@settings(deadline=None)
@given(st.sampled_from(MODELS), steps, st.sampled_from(FIELDS), st.integers(1, 2**20))
def test_law_7_positive_and_never_falling(model: Fitted, some: Step, field: str, more: int) -> None:
    assert not falls(model, some, field, more)
    assert np.all(nanoseconds(model, some) >= 1)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-3, 1e-2), min_size=36, max_size=36), steps, st.sampled_from(FIELDS))
def test_law_7_holds_whatever_was_measured(times: list[float], some: Step, field: str) -> None:
    try:
        model = fit(Profile(passes(), np.array(times), CONDITIONS))
    except InputError:
        reject()  # times so wild that they look like mixed units
    assert not falls(model, some, field, 1000)


def test_intercept_and_slope_of_known_measurements_are_recovered_within_a_percent() -> None:
    rows = padded_decode(np.repeat([1, 2, 4, 8, 16, 32, 64], 3), np.tile([100, 200, 400], 7))
    model = fit(profile(lambda some: 5e-3 + 0.02e-3 * some.decode_rows, noise=0.002, repeats=20, steps=rows))
    none, one, many = (float(model.seconds(padded_decode([b], [0]))[0]) for b in (0, 1, 101))
    assert none == pytest.approx(5e-3, rel=0.01)
    assert (many - one) / 100 == pytest.approx(0.02e-3, rel=0.01)


def test_a_floor_under_a_line_is_recovered() -> None:
    model = fit(profile(host_bound))
    assert model.floor_s == pytest.approx(9e-3, rel=1e-6)
    assert model.decode_kv_s == pytest.approx(1e-6, rel=0.01)
    assert error(model, host_bound, (3, 24, 48), (100, 3000))["p95"] < 1e-3


def test_unseen_shapes_of_a_roofline_come_out_close() -> None:
    assert error(fit(profile(GPU.seconds)), GPU.seconds, (1, 3, 6, 12, 24), (100, 500, 900))["mean"] < 0.01


def test_noise_is_reported_and_does_not_carry_over() -> None:
    model = fit(profile(GPU.seconds, noise=0.1, repeats=60))
    # The median of |deviation| at 10 % is 0.0674, a little less about the repeats' own median.
    assert model.evidence.noise["median"] == pytest.approx(0.0674, rel=0.1)
    assert error(model, GPU.seconds, (1, 3, 6, 12, 24), (100, 500, 900))["mean"] < 0.03


def test_one_repeat_in_five_gone_wrong_changes_nothing() -> None:
    clean = profile(GPU.seconds, repeats=5)
    seconds = clean.seconds.copy()
    seconds[: len(passes())] *= 18
    assert fit(Profile(clean.steps, seconds, CONDITIONS)).seconds(passes()) == pytest.approx(
        fit(clean).seconds(passes()), rel=1e-9
    )


def test_one_shape_gone_wrong_is_held_down() -> None:
    clean = profile(GPU.seconds, repeats=1)
    seconds = clean.seconds.copy()
    seconds[4] *= 5
    wrong = non_negative(features(clean.steps), seconds)
    right = non_negative(features(clean.steps), clean.seconds)
    # Plain least squares would be pulled 3.6 % off.
    assert features(clean.steps) @ wrong == pytest.approx(features(clean.steps) @ right, rel=0.005)
    model = fit(Profile(clean.steps, seconds, CONDITIONS))
    assert error(model, GPU.seconds, (1, 3, 6, 12, 24), (100, 500, 900))["median"] < 0.02


def test_overheads_are_medians_of_measured_batches() -> None:
    measured = profile(GPU.seconds)
    with_batches = Profile(
        measured.steps,
        measured.seconds,
        CONDITIONS,
        np.array([1e-3, 2e-3, 9.0]),
        np.array([5e-4, 5e-4, 6e-4]),
    )
    assert fit(with_batches).batch_overhead_s == (2e-3, 5e-4)
    assert fit(measured).batch_overhead_s == (0.0, 0.0)


def test_what_lies_outside_is_named_with_how_far() -> None:
    model = fit(profile(GPU.seconds))
    assert model.outside(passes((1, 5, 32), (64, 1024))) is None
    assert model.outside(padded_decode([8, 64], [64, 64])) == (
        "decode with 64 rows, 2.00 times the largest profiled (32), at 64 rows x 64 tokens"
    )
    assert model.outside(padded_prefill([8], [4096])) == (
        "prefill with 4096 prompt tokens, 4.00 times the largest profiled (1024), at 8 rows x 4096 tokens"
    )
    assert (
        model.outside(padded_decode([8], [3]))
        == "decode with 3 context tokens, 0.05 times the smallest profiled (64), at 8 rows x 3 tokens"
    )
    several = concat(padded_decode([8, 64, 8, 8], [64, 64, 4096, 2048]), padded_prefill([96], [64]))
    assert model.outside(several) == (
        "decode with 4096 context tokens, 4.00 times the largest profiled (1024), at 8 rows x 4096 tokens"
    )
    only_decode = fit(profile(GPU.seconds, steps=padded_decode([1, 2, 4, 8], [64, 64, 128, 128])))
    assert (
        only_decode.outside(padded_prefill([1], [64]))
        == "prefill with 1 rows, a phase that was not profiled, at 1 rows x 64 tokens"
    )


def test_evidence_says_what_the_fit_rests_on() -> None:
    measured = profile(CPU.seconds, noise=0.02)
    evidence = fit(measured).evidence
    assert (evidence.passes, evidence.shapes) == (108, 36)
    assert evidence.data_sha256 == measured.sha256
    assert evidence.cross_validated is not None
    assert evidence.residual["mean"] < evidence.cross_validated["mean"]


def test_fitting_twice_gives_the_same_model() -> None:
    measured = profile(CPU.seconds, noise=0.05)
    assert fit(measured).to_json() == fit(measured).to_json()


# Bad measurements: one clear line each.


def refused(some: Step, seconds: list[float] | Floats) -> str:
    with pytest.raises(InputError) as caught:
        fit(Profile(some, np.asarray(seconds, np.float64), CONDITIONS))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1e-3, 1e5])
def test_a_time_that_is_none_is_named_with_row_and_shape(bad: float) -> None:
    line = refused(padded_decode([1, 2, 3], [64, 64, 64]), [1e-3, bad, 1e-3])
    assert line.startswith(f"profile row 1: {bad} s for a pass of prefill_tokens=0 decode_rows=2")


def test_one_row_or_one_shape_is_too_little() -> None:
    assert "1 distinct shape(s) in 1 passes, a fit needs at least 3" in refused(
        padded_decode([4], [64]), [1e-3]
    )
    same = padded_decode(np.full(50, 4), np.full(50, 64))
    assert "1 distinct shape(s) in 50 passes" in refused(same, np.full(50, 1e-3))


def test_mixed_units_are_named() -> None:
    seconds = GPU.seconds(passes())
    seconds[7] *= 1000
    assert "times off what the other shapes say; are units mixed?" in refused(passes(), seconds)


def test_columns_that_do_not_belong_together_are_refused() -> None:
    assert "2 times for columns of 3 passes" in refused(padded_decode([1, 2, 3], [4, 4, 4]), [1e-3, 1e-3])
    assert "decode_rows is -2; counts are at least 0" in refused(
        padded_decode([1, -2, 3], [4, 4, 4]), [1e-3] * 3
    )
    with pytest.raises(InputError, match="profile lacks the conditions dtype, clock"):
        Profile(
            padded_decode([1], [1]),
            np.array([1.0]),
            {key: value for key, value in CONDITIONS.items() if key not in ("dtype", "clock")},
        )


# Profiles on disk.


def test_profiles_come_back_from_disk_and_are_the_same_bytes(tmp_path: Path) -> None:
    measured = profile(CPU.seconds, noise=0.1)
    with_batches = Profile(measured.steps, measured.seconds, CONDITIONS, np.array([1e-3]), np.array([2e-3]))
    with_batches.save(tmp_path / "a.parquet")
    Profile.load(tmp_path / "a.parquet").save(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    again = Profile.load(tmp_path / "b.parquet")
    assert again.sha256 == with_batches.sha256
    assert again.conditions == CONDITIONS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_files_that_are_no_profiles_are_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    for path, reason in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "folder"),
        (tmp_path / "text", "text"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            Profile.load(path)
        assert "\n" not in str(caught.value)


# The grid.


def test_a_grid_returns_what_was_measured_even_if_three_rows_are_slower_than_four() -> None:
    # Decode milliseconds of a small model on one core at 1 to 10 rows, as measured: matrix tiles show.
    by_rows = np.array([14.7, 21.7, 28.1, 20.8, 24.1, 24.1, 27.8, 25.3, 28.0, 32.0])

    def tiles(some: Step) -> Floats:
        decode = 1e-3 * by_rows[np.clip(some.decode_rows, 1, 10) - 1] + 1e-7 * some.decode_kv_tokens
        return np.where(some.decode_rows > 0, decode, 1e-2 + 1e-5 * some.prefill_tokens)

    rows = tuple(range(1, 11))
    measured = profile(tiles, steps=passes(rows, (64, 256, 1024)))
    grid, unseen = fit_grid(measured), passes(rows, (100, 600, 1024))
    assert grid.seconds(unseen) == pytest.approx(tiles(unseen), rel=1e-9)
    three, four = grid.seconds(padded_decode([3, 4], [64, 64]))
    assert three > four
    assert not falls(grid.fitted, unseen, "decode_rows", 1)


def test_a_grid_interpolates_between_row_counts_and_goes_on_like_the_fit_outside() -> None:
    grid = fit_grid(profile(GPU.seconds))
    edge, beyond = grid.seconds(padded_decode([32, 64], [1024, 4096]))
    fitted_edge, fitted_beyond = grid.fitted.seconds(padded_decode([32, 64], [1024, 4096]))
    assert beyond / edge == pytest.approx(fitted_beyond / fitted_edge, rel=1e-9)
    low, between, high = grid.seconds(padded_decode([16, 24, 32], [256, 256, 256]))
    assert between == pytest.approx((low + high) / 2, rel=1e-9)


def test_a_grid_prices_uneven_and_mixed_passes_too() -> None:
    grid = fit_grid(profile(GPU.seconds))
    even, uneven = padded_prefill([8], [256]), own_prefill([8], [8 * 256], [2 * 8 * 256**2], [512])
    more_pairs = grid.fitted.pair_s * 8 * 256**2
    assert grid.seconds(uneven)[0] - grid.seconds(even)[0] == pytest.approx(more_pairs, rel=1e-9)
    mixed = Step(
        *(a + b for a, b in zip(vars(even).values(), vars(padded_decode([8], [9])).values(), strict=True))
    )
    assert grid.seconds(mixed)[0] == grid.fitted.seconds(mixed)[0]
    assert grid.seconds(concat(even, uneven, mixed)).shape == (3,)


@settings(deadline=None)
@given(steps)
def test_a_grid_is_positive_everywhere(some: Step) -> None:
    assert np.all(nanoseconds(GRID, some) >= 1)


GRID = fit_grid(profile(CPU.seconds, noise=0.1))
