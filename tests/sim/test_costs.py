import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.batching import Batching
from sim.cost import CostModel, batch_overhead_ns, nanoseconds
from sim.costs import KINDS, from_json, load, of_another, to_json
from sim.fitted import fit
from sim.grid import fit_grid
from sim.hardware import hardware
from sim.models import model_shape
from sim.replay import replay
from sim.residual import Residual, Tree
from sim.roofline import Roofline
from sim.run import simulate
from sim.step import Step, padded_decode
from tests.sim.synthetic import passes, profile
from tests.sim.worked import trace_of
from traces.errors import InputError
from traces.trace import Floats

TOY = Roofline(model_shape("toy"), hardware("cpu"), "float32")
PROFILE = profile(TOY.seconds, noise=0.05)
FITTED = fit(PROFILE)
GRID = fit_grid(PROFILE)
TREE = Tree((1, 0, 0), (4.0, 0.0, 0.0), (1, 1, 2), (2, 1, 2), (0.0, 0.1, -0.1))
ALL: list[CostModel] = [
    TOY,
    FITTED,
    GRID,
    Residual(FITTED, 0.0, (TREE,), 1.5, None),
    replay(PROFILE, FITTED),
]


class Constant:
    """A model of one's own, as a user would write it."""

    name = "constant"
    batch_overhead_s = (0.0, 0.0)

    def __init__(self, seconds: float = 1e-3) -> None:
        self.each = seconds

    def seconds(self, steps: Step) -> Floats:
        return np.full(len(steps), self.each) * (1 - steps.decode_rows / 4)

    def outside(self, steps: Step) -> str | None:
        return None

    def to_json(self) -> dict[str, Any]:
        return {"kind": "constant"}


class Own(Constant):
    """The same, but sound."""

    def seconds(self, steps: Step) -> Floats:
        return np.full(len(steps), self.each)


NEGATIVE = Constant()
OWN = Own()
NOT_A_MODEL = 7


def broken_maker() -> Constant:
    raise RuntimeError("no such GPU")


def test_every_kind_comes_back_from_json_the_same_model() -> None:
    assert [to_json(model)["kind"] for model in ALL] == list(KINDS)
    for model in ALL:
        again = from_json(json.loads(json.dumps(to_json(model), allow_nan=False)))
        assert again == model
        assert again.name == model.name
        assert again.seconds(passes()).tolist() == model.seconds(passes()).tolist()
        assert again.batch_overhead_s == model.batch_overhead_s


@pytest.mark.parametrize("parts_s", [(1e308, 0.0), (0.0, -1.0), (float("nan"), 0.0)])
def test_a_batch_overhead_that_is_no_time_is_refused(parts_s: tuple[float, float]) -> None:
    own = Own()
    own.batch_overhead_s = (0.25, 1e-9)
    assert batch_overhead_ns(own) == (250_000_000, 1)
    own.batch_overhead_s = parts_s
    with pytest.raises(InputError, match="constant has a batch overhead of"):
        batch_overhead_ns(own)


def load_toy(cost: str) -> Any:
    return load(cost, model_shape("toy"), hardware("cpu"), "float32")


def test_models_are_loaded_by_name_by_file_and_by_import(tmp_path: Path) -> None:
    assert load_toy("roofline") == TOY
    path = tmp_path / "model.json"
    path.write_text(json.dumps(to_json(ALL[1])))
    assert load_toy(str(path)) == ALL[1]
    assert load_toy("tests.sim.test_costs:OWN") is OWN
    assert isinstance(load_toy("tests.sim.test_costs:Own"), Own)


@pytest.mark.parametrize(
    ("about", "model", "gpu", "measured_on"),
    [
        ({"model": "toy", "hardware": "EPYC", "device": "cpu"}, "toy", "cpu", None),
        ({"model": "toy", "hardware": "EPYC", "device": "cpu"}, "toy", "H200", "toy on EPYC"),
        ({"model": "toy", "hardware": "EPYC", "device": "cpu"}, "Qwen3-8B", "cpu", "toy on EPYC"),
        ({"model": "Qwen/Qwen3-8B", "hardware": "NVIDIA H200"}, "Qwen3-8B", "H200", None),
        ({"model": "Qwen3-8B", "hardware": "NVIDIA H200"}, "Qwen3-8B", "L4", "Qwen3-8B on NVIDIA H200"),
        ({"model": "not stated", "hardware": "not stated"}, "Qwen3-8B", "L4", None),
    ],
)
def test_a_model_of_another_device_or_model_is_told(
    about: dict[str, Any], model: str, gpu: str, measured_on: str | None
) -> None:
    told = replace(
        FITTED, evidence=replace(FITTED.evidence, conditions={**FITTED.evidence.conditions, **about})
    )
    for one in (
        told,
        replace(GRID, fitted=told),
        replay(replace(PROFILE, conditions=told.evidence.conditions), told),
    ):
        assert of_another(one, model_shape(model), hardware(gpu)) == measured_on
    assert of_another(TOY, model_shape(model), hardware(gpu)) is None
    assert of_another(Own(), model_shape(model), hardware(gpu)) is None


def test_a_negative_cost_is_caught_with_model_and_shape_named() -> None:
    with pytest.raises(
        InputError,
        match=r"cost model constant gives -0\.001 s for a pass of .*decode_rows=8 .*decode_kv_tokens=80",
    ):
        nanoseconds(NEGATIVE, padded_decode([1, 8], [10, 10]))


def test_zero_and_not_a_number_are_caught_too() -> None:
    for bad in (0.0, np.nan, np.inf, 1e10):
        with pytest.raises(InputError, match="cost model constant gives"):
            nanoseconds(Constant(bad), padded_decode([1], [10]))


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (1e7, r"gives 8.25e\+09 s for the decode steps of 1 rows up to a context of 1,100 tokens.*seconds"),
        (1e6, "the run lasts more than a century; does the cost model give seconds"),
    ],
)
def test_a_cost_in_another_unit_is_refused_before_the_clock_overflows(seconds: float, line: str) -> None:
    trace = trace_of([0] * 20, 100, 1000)
    with pytest.raises(InputError, match=line):
        simulate(trace, Batching(1), Constant(seconds))


def broken(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(json.dumps(to_json(ALL[2])))
    change(document)
    with pytest.raises(InputError) as caught:
        from_json(document, "m.json")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda d: d.update(kind="magic"),
            "m.json: unknown kind 'magic'; known are fitted, grid, replay, residual or roofline",
        ),
        (
            lambda d: d.update(kind=["grid"]),
            "m.json: unknown kind ['grid']; known are fitted, grid, replay, residual or roofline",
        ),
        (lambda d: d.pop("decode"), "m.json: a grid model needs the key 'decode'"),
        (lambda d: d["fitted"].pop("domain"), "m.json: a grid model needs the key 'domain'"),
        (
            lambda d: d["fitted"]["coefficients"].update(constant_s="slow"),
            "m.json: constant_s must be a finite number of at least 0, not 'slow'",
        ),
        (
            lambda d: d["fitted"]["coefficients"].update(pair_s=float("nan")),
            "m.json: pair_s must be a finite number of at least 0, not nan",
        ),
        (
            lambda d: d["fitted"]["coefficients"].update(decode_kv_s=-1e-9),
            "m.json: decode_kv_s must be a finite number of at least 0, not -1e-09",
        ),
        (
            lambda d: d["fitted"]["coefficients"].update(token_s=3),
            "m.json: token_s must be a list of numbers, not 3",
        ),
        (
            lambda d: d["fitted"].update(batch_overhead_s=[1.0]),
            "m.json: batch_overhead_s must be two numbers, not 1",
        ),
        (
            lambda d: d["fitted"]["domain"].update(decode_rows=[1, "many"]),
            "m.json: domain decode_rows must be null or two whole numbers, not [1, 'many']",
        ),
        (
            lambda d: d["fitted"]["evidence"]["conditions"].pop("clock"),
            "m.json: the evidence's conditions lack clock",
        ),
        (lambda d: d.update(fitted=None), "m.json: a grid model cannot be made of this"),
    ],
)
def test_bad_documents_are_said_in_one_line(change: Callable[[dict[str, Any]], object], line: str) -> None:
    assert broken(change).startswith(line)


def test_bad_files_are_said_in_one_line(tmp_path: Path) -> None:
    files = {
        "text.json": ("not json", "not JSON: Expecting value in line 1"),
        "nan.json": ('{"kind": "fitted", "floor_s": NaN}', "holds NaN, which is no cost"),
        "list.json": ("[1, 2]", "expected a JSON object with a kind, not list"),
        "empty.json": ("{}", "unknown kind None"),
    }
    for name, (text, reason) in files.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=reason) as caught:
            load_toy(str(tmp_path / name))
        assert str(tmp_path / name) in str(caught.value)
        assert "\n" not in str(caught.value)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for cost, reason in (
        (str(tmp_path / "bytes.json"), "not even text"),
        (str(tmp_path), "is a folder"),
        ("ruofline", "No such file or directory; give roofline, a file or package.module:object"),
        ("no_such_package:model", "cannot import 'no_such_package'"),
        ("tests.sim.test_costs:ABSENT", "has no 'ABSENT'"),
        ("tests.sim.test_costs:broken_maker", r"broken_maker\(\) cannot be made: no such GPU"),
        ("tests.sim.test_costs:NOT_A_MODEL", "lacks name, batch_overhead_s, seconds, outside, to_json"),
    ):
        with pytest.raises(InputError, match=reason):
            load_toy(cost)
