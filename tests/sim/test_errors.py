"""Errors, scores, noise and pairs, by hand and against numpy."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import Noise, Pair, Score, Times, error, errors

TIMES = st.floats(1e-6, 1e3)
GROUPS = st.lists(st.lists(TIMES, min_size=1, max_size=5).map(np.array), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("simulated", "measured", "expected"),
    [(2, 1, 1.0), (1, 2, -0.5), (0, 4, -1.0), (3, 0, None), (0, 0, None), (None, 1, None), (1, None, None)],
)
def test_an_error_is_relative_to_what_was_measured(
    simulated: float | None, measured: float | None, expected: float | None
) -> None:
    assert error(simulated, measured) == expected
    assert Pair(simulated, measured).error == expected


def test_what_was_measured_as_zero_is_counted_and_in_no_mean() -> None:
    signed = errors(np.array([2.0, 3.0, 0.5]), np.array([1.0, 0.0, 1.0]))
    assert signed.tolist()[::2] == [1.0, -0.5]
    assert math.isnan(signed[1])
    score = Score.of(signed)
    assert (score.count, score.not_applicable) == (2, 1)
    assert (score.mean, score.median, score.worst, score.bias) == (0.75, 0.75, 1.0, 0.25)
    assert score.p95 == pytest.approx(0.5 + 0.95 * 0.5)
    nothing = Score.of(np.array([np.nan, np.nan]))
    assert (nothing.count, nothing.not_applicable, nothing.mean) == (0, 2, None)


@given(st.lists(st.floats(-1, 50), max_size=30))
def test_a_score_is_what_numpy_says(signed: list[float]) -> None:
    score = Score.of(np.array(signed))
    assert score.count == len(signed)
    if not signed:
        assert score == Score(0)
        return
    size = np.abs(signed)
    assert score.median == pytest.approx(np.median(size))
    assert score.p95 == pytest.approx(np.percentile(size, 95))
    assert score.mean == pytest.approx(np.mean(size))
    assert score.worst == np.max(size)
    assert score.bias == pytest.approx(np.mean(signed))


def test_noise_is_the_distance_from_the_median_of_the_repeats() -> None:
    noise = Noise.of([np.array([10.0, 11.0, 13.0]), np.array([5.0]), np.array([2.0, 4.0])])
    # 1/11, 0, 2/11 of the first; the second has no repeat; 1/3 twice of the last.
    assert noise.count == 5
    assert noise.median == pytest.approx(2 / 11)
    assert noise.p95 == pytest.approx(1 / 3)
    assert noise.covers(1 / 3 - 1e-9)
    assert noise.covers(-0.3)
    assert noise.covers(0.34) is False
    assert noise.covers(None) is None


def test_without_repeats_there_is_no_noise_and_no_verdict() -> None:
    noise = Noise.of([np.array([1.0]), np.array([2.0])])
    assert noise == Noise(0)
    assert noise.covers(0.0) is None
    assert Noise.of([np.zeros(3)]) == Noise(0)


@given(GROUPS)
def test_noise_pools_all_groups_that_were_repeated(groups: list[np.ndarray]) -> None:
    spread = [abs(t - np.median(g)) / np.median(g) for g in groups if len(g) > 1 for t in g]
    noise = Noise.of(groups)
    assert noise.count == len(spread)
    if spread:
        assert noise.median == pytest.approx(np.median(spread))
        assert noise.p95 == pytest.approx(np.percentile(spread, 95))


def test_a_pair_stands_at_the_median_of_its_repeats() -> None:
    pair = Pair.of(12.0, [10.0, 8.0, 11.0])
    assert pair.measured == 10.0
    assert pair.error == pytest.approx(0.2)
    assert pair.spread == pytest.approx(0.2)
    assert pair.inside is True
    assert Pair.of(12.1, [10.0, 8.0, 11.0]).inside is False
    assert Pair.of(8.0, [10.0, 8.0, 11.0]).inside is True
    assert Pair.of(12.0, [10.0, 8.0, 11.0], middle=11.0).spread == pytest.approx(3 / 11)


def test_what_a_pair_does_not_know_is_none() -> None:
    assert Pair.of(1.0, [None, None]) == Pair(1.0, None)
    assert Pair.of(1.0, [2.0]) == Pair(1.0, 2.0, None)
    assert Pair.of(1.0, [None, 2.0]).spread is None
    assert Pair.of(None, [2.0, 2.0]).inside is None
    zero = Pair.of(1.0, [0.0, 0.0])
    assert (zero.error, zero.spread, zero.inside) == (None, None, None)
    assert zero.to_json() == {
        "simulated": 1.0,
        "measured": 0.0,
        "error": None,
        "spread": None,
        "inside_spread": None,
    }


def test_times_score_each_thing_and_weigh_the_mean_by_its_length() -> None:
    # Errors +10 % of 1 s and -50 % of 4 s; on average 1.55 s for 2.5 s.
    times = Times(np.array([1.1, 2.0]), [np.array([0.9, 1.0, 1.1]), np.array([4.0])])
    assert times.measured_s.tolist() == [1.0, 4.0]
    document = times.to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["simulated"] == pytest.approx(1.55)
    assert document["measured"] == pytest.approx(2.5)
    assert document["error"] == pytest.approx(-0.38)
    assert document["median_error"] == pytest.approx(0.3)
    assert document["p95_error"] == pytest.approx(0.48)
    assert document["worst_error"] == pytest.approx(0.5)
    assert document["bias"] == pytest.approx(-0.2)
    assert (document["count"], document["not_applicable"]) == (2, 0)
    assert document["noise"] == pytest.approx(0.1)
    assert document["inside_noise"] is False


def test_pooled_times_are_all_of_them() -> None:
    one = Times(np.array([1.0]), [np.array([2.0])])
    two = Times(np.array([3.0, 0.0]), [np.array([3.0, 3.0]), np.array([0.0])])
    both = Times.pooled([one, two])
    assert both.simulated_s.tolist() == [1.0, 3.0, 0.0]
    assert both.measured_s.tolist() == [2.0, 3.0, 0.0]
    assert (both.score.count, both.score.not_applicable) == (2, 1)
    nothing = Times.pooled([]).to_json()
    assert nothing["count"] == 0
    assert {nothing[name] for name in ("simulated", "measured", "error", "median_error", "noise")} == {None}
