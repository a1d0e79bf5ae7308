import math

import numpy as np
import pytest
from hypothesis import given, settings

from sim.cost import nanoseconds
from sim.costs import from_json, to_json
from sim.fitted import fit
from sim.hardware import hardware
from sim.models import model_shape
from sim.profile import Profile
from sim.residual import LARGEST_FACTOR, SIGNS, Residual, Tree, fit_residual
from sim.roofline import Roofline
from sim.step import Step, padded_decode
from tests.sim.synthetic import CONDITIONS, passes, profile, steps
from traces.errors import InputError
from traces.trace import Floats

TOY = Roofline(model_shape("toy"), hardware("cpu"), "float32")
BASE = fit(profile(TOY.seconds))
ROWS = SIGNS.index("decode_rows")
# Up to 4 rows: 10 % more. Above: a factor far beyond any limit, downwards.
STUMP = Tree((ROWS, 0, 0), (4.0, 0.0, 0.0), (1, 1, 2), (2, 1, 2), (0.0, math.log(1.1), -9.0))


def test_trees_correct_the_fit_and_no_further_than_the_stated_factor() -> None:
    model = Residual(BASE, 0.0, (STUMP,), 1.5, None)
    some = padded_decode([1, 4, 5, 32], [64, 64, 64, 64])
    factor = model.seconds(some) / BASE.seconds(some)
    assert factor == pytest.approx([1.1, 1.1, 1 / 1.5, 1 / 1.5])
    assert model.batch_overhead_s == BASE.batch_overhead_s
    assert model.outside(padded_decode([64], [64])) == BASE.outside(padded_decode([64], [64]))


@settings(deadline=None)
@given(steps)
def test_cost_is_positive_and_within_the_factor_everywhere(some: Step) -> None:
    model = Residual(BASE, 0.2, (STUMP, STUMP), LARGEST_FACTOR, None)
    assert np.all(nanoseconds(model, some) >= 1)
    factor = model.seconds(some) / BASE.seconds(some)
    assert np.all((factor <= LARGEST_FACTOR * (1 + 1e-12)) & (factor >= (1 - 1e-12) / LARGEST_FACTOR))


def test_it_comes_back_from_json() -> None:
    model = Residual(BASE, 0.1, (STUMP,), 1.5, {"median": 0.1, "mean": 0.1, "p95": 0.2})
    assert from_json(to_json(model)) == model
    assert model.name == "residual toy none float32"


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("left", [1, 1, 7], "a tree's left must be whole numbers from 0 to 2"),
        ("sign", [99, 0, 0], "a tree's sign must be whole numbers from 0 to 5"),
        ("value", [0.0, math.nan, 0.0], "a tree holds a threshold or value that is not a finite number"),
        ("value", [0.0], "a tree needs five columns of one length"),
    ],
)
def test_bad_trees_are_said_in_one_line(key: str, value: list[float], line: str) -> None:
    document = to_json(Residual(BASE, 0.0, (STUMP,), 1.5, None))
    document["trees"][0][key] = value
    with pytest.raises(InputError, match=line):
        from_json(document)


def test_a_factor_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="largest_factor must be at least 1"):
        Residual(BASE, 0.0, (), 0.5, None)


def tiles(some: Step) -> Floats:
    """Rows that are no multiple of 4 cost a fifth more."""
    slow = np.where(some.logit_rows % 4 == 0, 1.0, 1.2)
    return np.asarray(TOY.seconds(some) * slow, np.float64)


def test_what_no_sum_of_terms_can_say_is_learnt() -> None:
    pytest.importorskip("sklearn")
    measured = profile(tiles, steps=passes((1, 2, 3, 4, 5, 6, 7, 8, 12, 16), (32, 64, 128, 256, 512)))
    model = fit_residual(measured)
    unseen = passes((1, 2, 3, 4, 5, 6, 7, 8), (48, 100, 400))
    learnt, base = (np.abs(m.seconds(unseen) / tiles(unseen) - 1).mean() for m in (model, model.fitted))
    assert learnt < 0.5 * base
    assert model.cross_validated is not None
    assert model.fitted.evidence.cross_validated is not None
    assert model.cross_validated["mean"] < model.fitted.evidence.cross_validated["mean"]


def test_saved_trees_say_what_scikit_learn_says() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    measured = profile(tiles, noise=0.05)
    shapes = measured.shapes
    model = fit_residual(measured, largest_factor=100.0)
    signs = np.stack([getattr(shapes.steps, name) for name in SIGNS], axis=1)
    same = ensemble.GradientBoostingRegressor(
        loss="huber", n_estimators=100, max_depth=3, learning_rate=0.1, min_samples_leaf=2, random_state=0
    ).fit(signs, np.log(shapes.seconds / model.fitted.seconds(shapes.steps)))
    expected = model.fitted.seconds(shapes.steps) * np.exp(same.predict(signs))
    assert model.seconds(shapes.steps) == pytest.approx(expected, rel=1e-6)


def test_without_scikit_learn_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.ensemble", None)
    with pytest.raises(InputError, match="install the extra 'learn'"):
        fit_residual(Profile(passes(), TOY.seconds(passes()), CONDITIONS))
