"""What batching gives, and where it stops giving."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import Pair
from sim.speedup import PAYS, CurvePoint, EngineRun, stops_paying


def curve(*rates: float | None) -> list[CurvePoint]:
    return [CurvePoint(2**i, Pair(None, rate)) for i, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("rates", "knee"),
    [
        ((100, 200, 400), None),
        ((100, 200, 219), 2),
        ((100, 200, 220.1), None),
        ((100, 102, 300, 310, 320), 4),  # one step that gives little is not the end of it
        ((300, 325, 350, 375), 4),  # each step gives little, two of them together do
        ((400, 300, 200), 1),
        ((100,), None),
        ((), None),
        ((100, 200, None, None), None),  # what memory did not suffice for is no evidence
        ((100, None, 105), 1),
    ],
)
def test_where_a_bigger_batch_stops_paying(rates: tuple[float | None, ...], knee: int | None) -> None:
    assert stops_paying(curve(*rates)) == knee


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=6))
def test_no_batch_beyond_that_point_pays_and_every_smaller_one_is_beaten(rates: list[float]) -> None:
    points = curve(*rates)
    knee = stops_paying(points)
    at = len(rates) - 1 if knee is None else [point.rows for point in points].index(knee)
    assert all(rate < (1 + PAYS) * rates[at] for rate in rates[at + 1 :])
    for i in range(at):
        assert max(rates[i + 1 :]) >= (1 + PAYS) * rates[i]


def test_the_gain_is_over_each_request_alone() -> None:
    alone, padded = EngineRun("serial", 6.0, 10.0, True), EngineRun("padded", 2.0, 30.0, False)
    assert padded.to_json(alone) == {
        "engine": "padded",
        "seconds": 2.0,
        "tokens_per_s": 30.0,
        "same_tokens": False,
        "speed_up": 3.0,
    }
    assert alone.speed_up(alone) == 1.0


def test_an_engine_that_ran_out_of_memory_has_no_gain() -> None:
    alone, failed = EngineRun("serial", 6.0, 10.0, True), EngineRun("padded", None, None, None)
    assert failed.to_json(alone)["speed_up"] is None
    assert alone.speed_up(failed) is None
