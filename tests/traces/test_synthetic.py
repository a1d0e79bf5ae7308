import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from traces.arrivals import weibull_shape
from traces.errors import InputError
from traces.load import load
from traces.trace import Floats

N = 200_001
LENGTHS = "prompt=1,output=1"


def gaps(recipe: str) -> Floats:
    return np.diff(load(f"{recipe},n={N},{LENGTHS}").arrival_ns) / 1e9


@pytest.mark.parametrize(
    ("recipe", "cv"),
    [
        ("constant:rate=4", 0.0),
        ("poisson:rate=4", 1.0),
        ("gamma:rate=4,cv=0.5", 0.5),
        ("gamma:rate=4,cv=2", 2.0),
        ("weibull:rate=4,cv=0.5", 0.5),
        ("weibull:rate=4,cv=2", 2.0),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_mean_and_cv_of_the_gaps(recipe: str, cv: float, seed: int) -> None:
    found = gaps(f"{recipe},seed={seed}")
    assert found.mean() == pytest.approx(0.25, rel=0.02)
    assert found.std() / found.mean() == pytest.approx(cv, rel=0.02, abs=1e-8)


def test_shape_of_gamma_gaps_is_one_over_cv_squared() -> None:
    # Shape 4 (CV 0.5) has skewness 2 / sqrt(4) = 1; the other convention, shape = CV, would have 2.83.
    found = gaps("gamma:rate=4,cv=0.5")
    assert ((found - found.mean()) ** 3).mean() / found.std() ** 3 == pytest.approx(1.0, abs=0.05)


def test_weibull_shapes() -> None:
    assert weibull_shape(1.0) == pytest.approx(1.0)  # exponential
    assert weibull_shape(np.sqrt(5.0)) == pytest.approx(0.5)  # gamma(5) / gamma(3)**2 - 1 = 24 / 4 - 1


def test_a_constant_rate_keeps_its_schedule() -> None:
    at = load(f"constant:rate=3,n=1000001,{LENGTHS}").arrival_ns
    assert at[:4].tolist() == [0, 333_333_333, 666_666_667, 10**9]
    assert at[-1] == 333_333_333_333_333  # a million thirds of a second, with no error added up


def counted(recipe: str, edges_s: list[float]) -> list[int]:
    at = load(recipe).arrival_ns / 1e9
    counts: list[int] = np.histogram(at, edges_s)[0].tolist()
    return counts


def within(found: int, expected: float) -> bool:
    return abs(found - expected) < 5 * math.sqrt(expected) + 2


def test_rates_that_change_with_time_are_where_they_should_be() -> None:
    on, off, again = counted(f"onoff:rate=100,on_s=10,off_s=50,n=5000,{LENGTHS}", [0, 10, 60, 70])
    assert off == 0
    assert within(on, 1000)
    assert within(again, 1000)
    first, second, after = counted(f"ramp:rate=10,to_rate=90,over_s=100,n=20000,{LENGTHS}", [0, 50, 100, 150])
    assert within(first, 50 * (10 + 50) / 2)
    assert within(second, 50 * (50 + 90) / 2)
    assert within(after, 50 * 90)
    before, during, after = counted(
        f"spike:rate=50,at_s=20,for_s=5,times=10,n=9000,{LENGTHS}", [0, 20, 25, 45]
    )
    assert within(before, 1000)
    assert within(during, 2500)
    assert within(after, 1000)
    up, down = counted(f"diurnal:rate=50,period_s=100,amplitude=1,n=20000,{LENGTHS}", [0, 50, 100])
    assert within(up, 50 * (50 + 100 / np.pi))  # rate 50 (1 + sin) over half a turn
    assert within(down, 50 * (50 - 100 / np.pi))


def column(law: str, name: str = "prompt", n: int = 100_000) -> list[int]:
    other = "output" if name == "prompt" else "prompt"
    trace = load(f"constant:rate=1,n={n},{name}={law},{other}=1")
    values: list[int] = getattr(trace, f"{name}_tokens").tolist()
    return values


def test_laws_of_lengths() -> None:
    assert set(column("7", n=10)) == {7}
    assert set(column("uniform:3:5")) == {3, 4, 5}
    normal = np.log(column("lognormal:512:0.5"))
    assert np.exp(np.median(normal)) == pytest.approx(512, rel=0.01)
    assert normal.std() == pytest.approx(0.5, rel=0.01)
    assert min(column("lognormal:1:3")) == 1
    counts = np.bincount(column("zipf:2:3"))[1:]
    assert counts / counts.sum() == pytest.approx(np.array([36, 9, 4]) / 49, abs=0.01)
    assert np.bincount(column("hist:textbook"))[[5, 10, 20, 30]] == pytest.approx(25_000, rel=0.05)
    assert set(column("hist:textbook", "output")) == {10, 12, 15, 20}


def test_pairs_are_drawn_together() -> None:
    trace = load("poisson:rate=1,n=1000,pairs=textbook")
    pairs = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert pairs == {(10, 15), (30, 10), (5, 20), (20, 12)}


def test_guesses_have_the_chosen_error() -> None:
    base = f"constant:rate=1,n={N},prompt=1,output=10000"
    perfect, off = load(f"{base},predicted=0"), load(f"{base},predicted=0.3")
    assert perfect.predicted_output_tokens is not None
    assert off.predicted_output_tokens is not None
    assert np.array_equal(perfect.predicted_output_tokens, perfect.output_tokens)
    assert np.log(off.predicted_output_tokens / off.output_tokens).std() == pytest.approx(0.3, rel=0.02)
    assert load(base).predicted_output_tokens is None


def test_same_seed_same_bytes_in_every_process() -> None:
    recipe = "weibull:rate=4,cv=2,n=5000,prompt=lognormal:512:1.0,output=zipf:1.1:400,predicted=0.5,seed=5"
    code = f"from traces.load import load; print(load({recipe!r}).fingerprint)"
    root = Path(__file__).resolve().parents[2]
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
        found = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
        ).stdout.strip()
        assert found == load(recipe).fingerprint


@pytest.mark.parametrize("process", ["gamma:cv=1e-200", "gamma:cv=1e200", "ramp:to_rate=1e-200,over_s=1e300"])
def test_what_floating_point_cannot_do_is_said_in_one_line(process: str) -> None:
    with pytest.raises(InputError, match=r"rate=1e200.* is beyond what floating point can do"):
        load(f"{process},rate=1e200,n=10,prompt=3,output=3")
