"""The model that returns recorded times, and the passes of a measured record."""

import json
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.batching import Batching
from sim.conformance import broken_contract, fall, may_fall
from sim.costs import from_json
from sim.fitted import fit
from sim.hardware import hardware
from sim.models import model_shape
from sim.profile import Profile
from sim.recorded import recorded_passes
from sim.replay import Replay, replay
from sim.roofline import Roofline
from sim.run import simulate
from sim.step import Step, batch_steps, concat, padded_decode, padded_prefill
from sim.store import load, save
from tests.sim.synthetic import CONDITIONS, passes, profile
from tests.sim.test_measured import TRACE, measured
from tests.sim.worked import K1, batch_ns, members
from traces.errors import InputError

TOY = Roofline(model_shape("toy"), hardware("cpu"), "float32")
NOISY = profile(TOY.seconds, noise=0.3)
STRICT, FALLING_BACK = replay(NOISY, None), replay(NOISY, TOY)


def test_recorded_passes_are_returned_exactly_in_any_order() -> None:
    shapes = NOISY.shapes
    order = np.random.default_rng(0).permutation(len(shapes))
    assert STRICT.seconds(shapes.steps.take(order)).tolist() == shapes.seconds[order].tolist()
    assert STRICT.outside(shapes.steps) is None
    assert STRICT.monotone is False


def test_the_median_of_repeats_is_returned() -> None:
    three = Profile(padded_decode([4, 4, 4, 2], [9, 9, 9, 9]), np.array([3.0, 1.0, 7.0, 2.0]), CONDITIONS)
    assert replay(three, None).seconds(padded_decode([2, 4], [9, 9])).tolist() == [2.0, 3.0]


def test_elsewhere_another_model_answers_or_the_shape_is_named() -> None:
    some = concat(passes((8,), (64,)), padded_decode([8, 9], [65, 64]), passes((16,), (256,)))
    known = [0, 1, 4, 5]
    priced = FALLING_BACK.seconds(some)
    assert priced[[2, 3]].tolist() == TOY.seconds(some)[[2, 3]].tolist()
    assert priced[known].tolist() == STRICT.seconds(some.take(np.array(known))).tolist()
    missing = "prefill_tokens=0 decode_rows=8 .* decode_kv_tokens=520 max_context_tokens=65"
    with pytest.raises(InputError, match=rf"no recorded pass of {missing} .*, and no fallback"):
        STRICT.seconds(some)
    outside = FALLING_BACK.outside(some)
    assert outside is not None
    assert outside.startswith("2 of 6 passes not recorded, the first is prefill_tokens=0 decode_rows=8")
    assert outside.endswith("roofline toy cpu float32 eager prices them")
    far = replay(NOISY, fit(NOISY)).outside(padded_decode([64], [64]))
    assert far is not None
    assert far.endswith(
        "itself outside: decode with 64 rows, 2.00 times the largest profiled (32), at 64 rows x 64 tokens"
    )


few = st.lists(st.tuples(*[st.integers(0, 2)] * 7), min_size=1, max_size=30).map(
    lambda rows: Step(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
)
"""Passes of so few values that every value was recorded, but not every combination."""


@settings(deadline=None)
@given(few, st.lists(st.integers(0, 29), max_size=12))
def test_whatever_was_recorded_comes_back_and_nothing_else(some: Step, taken: list[int]) -> None:
    recorded = some.take(np.unique(np.array([*taken, 0]) % len(some)))
    seconds = np.arange(1, 1 + len(recorded), dtype=np.float64)
    model = replay(Profile(recorded, seconds, CONDITIONS), TOY)
    table: dict[tuple[int, ...], list[float]] = {}
    for i, key in enumerate(zip(*(column.tolist() for column in vars(recorded).values()), strict=True)):
        table.setdefault(key, []).append(float(seconds[i]))
    expected = [
        float(np.median(table[key])) if key in table else float(TOY.seconds(some)[i])
        for i, key in enumerate(zip(*(column.tolist() for column in vars(some).values()), strict=True))
    ]
    assert model.seconds(some).tolist() == expected


def test_it_conforms_and_may_fall() -> None:
    assert broken_contract(FALLING_BACK) is None
    assert may_fall(FALLING_BACK)
    slow_three = profile(lambda some: np.where(some.decode_rows == 3, 9.0, 8.0), steps=passes((3, 4), (16,)))
    assert fall(replay(slow_three, TOY)) is not None


@pytest.mark.parametrize("model", [STRICT, FALLING_BACK])
def test_it_comes_back_from_json(model: Replay) -> None:
    again = from_json(json.loads(json.dumps(model.to_json(), allow_nan=False)))
    assert again == model
    assert again.name == model.name


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"shapes": [[1, 2]]}, "36 seconds for 1 recorded passes"),
        ({"shapes": [[1, 2]], "seconds": [1.0]}, r"shapes\[0\] must be 7 counts of at least 0, not \(1, 2\)"),
        ({"shapes": [[0] * 7] * 2, "seconds": [1.0, 2.0]}, "shapes must be distinct and rise"),
        ({"shapes": [[0] * 7], "seconds": [0.0]}, "shape_seconds must be above 0"),
        ({"batch_overhead_s": [1.0]}, "batch_overhead_s must be two numbers, not 1"),
        ({"fallback": {"kind": "magic"}}, "unknown kind 'magic'"),
        ({"conditions": {}}, "the conditions lack hardware, model"),
    ],
)
def test_bad_documents_are_said_in_one_line(change: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=line) as caught:
        from_json({**STRICT.to_json(), **change}, "m.json")
    assert str(caught.value).startswith("m.json: ")


# Measured records.

SETUP = {key: value for key, value in CONDITIONS.items() if key != "clock"}


def test_a_measured_record_gives_its_passes(tmp_path: Path) -> None:
    record = measured()
    record = changed(record, setup={**record.setup, **SETUP, "cost": "long"})
    save(record, tmp_path / "record")
    found = recorded_passes(load(tmp_path / "record"))
    assert dict(found.conditions) == {**CONDITIONS, "clock": "wall"}
    expected = [
        batch_steps(len(m), int(TRACE.prompt_tokens[m].max()), int(TRACE.output_tokens[m].max()))
        for m in members(record)
    ]
    for name, column in vars(concat(*expected)).items():
        assert getattr(found.steps, name).tolist() == column.tolist()
    took = [batch_ns(K1, TRACE, m) + np.arange(int(TRACE.output_tokens[m].max())) for m in members(record)]
    assert np.rint(found.seconds * 1e9).astype(int).tolist() == np.concatenate(took).tolist()
    assert found.overhead_s == (1e-3, 2e-3)


def test_failed_batches_are_left_out_and_the_driving_clock_is_used() -> None:
    whole, failing = measured(clock="cpu"), measured(failing=[1], clock="cpu")
    sound, fewer = (recorded_passes(changed(one, setup={**one.setup, **SETUP})) for one in (whole, failing))
    assert sound.conditions["clock"] == "cpu"
    wall = recorded_passes(changed(measured(), setup={**measured().setup, **SETUP}))
    assert np.abs(2 * sound.seconds - wall.seconds).max() < 2e-9
    assert len(fewer) < len(sound)
    assert len(fewer.before_s) == len(sound.before_s) - 1


def test_replaying_a_record_s_own_passes_gives_its_own_batches() -> None:
    record = changed(measured(), setup={**measured().setup, **SETUP})
    model = replay(recorded_passes(record), TOY)
    again = simulate(TRACE, Batching(2, 0.01), model)
    assert members(again) == members(record)
    assert again.batches.prefill_ns.tolist() == record.batches.prefill_ns.tolist()
    # A shape that occurs in two batches comes back as its median; they differ by a few nanoseconds.
    assert np.abs(again.batches.decode_ns - record.batches.decode_ns).max() <= 4
    assert set(again.batches.before_ns.tolist()) == {1_000_000}


def test_a_record_without_passes_or_conditions_is_refused() -> None:
    with pytest.raises(InputError, match="a simulated run holds no measured passes"):
        recorded_passes(simulate(TRACE, Batching(2), TOY))
    with pytest.raises(InputError, match="profile lacks the conditions hardware, model"):
        recorded_passes(measured())


def test_prefills_and_decodes_of_one_size_are_not_mixed_up() -> None:
    both = concat(padded_prefill([4], [1]), padded_decode([4], [1]))
    model = replay(Profile(both, np.array([1.0, 2.0]), CONDITIONS), None)
    assert model.seconds(both).tolist() == [1.0, 2.0]
