"""The check of a cost model of one's own: each law broken once, and named."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sim.cost
from sim.conformance import broken_contract, fall, may_fall
from sim.costs import load
from sim.fitted import fit
from sim.grid import fit_grid
from sim.hardware import hardware
from sim.models import model_shape
from sim.roofline import Roofline
from sim.step import Step
from tests.sim.synthetic import passes, profile
from traces.errors import InputError
from traces.trace import Floats

TOY = Roofline(model_shape("toy"), hardware("cpu"), "float32")


class Good:
    """Sound; every broken model below differs from it in one thing."""

    name: Any = "good"
    batch_overhead_s: Any = (0.0, 0.0)

    def seconds(self, steps: Step) -> Any:
        return 1e-3 + 1e-6 * (steps.prefill_tokens + steps.decode_rows) + 1e-9 * steps.decode_kv_tokens

    def outside(self, steps: Step) -> Any:
        return None

    def to_json(self) -> Any:
        return {"kind": "good"}


class Falling(Good):
    def seconds(self, steps: Step) -> Floats:
        return np.asarray(np.where(steps.decode_rows == 3, 0.5, 0.25), np.float64)


class FallingBySay(Falling):
    monotone = False


class Scalar(Good):
    def seconds(self, steps: Step) -> Any:
        return 1e-3


class OneForAll(Good):
    def seconds(self, steps: Step) -> Any:
        return np.array([1e-3])


class List(Good):
    def seconds(self, steps: Step) -> Any:
        return [1e-3] * len(steps)


class Objects(Good):
    def seconds(self, steps: Step) -> Any:
        return np.array(["1"] * len(steps))


class Division(Good):
    def seconds(self, steps: Step) -> Any:
        return 1e-3 * steps.decode_kv_tokens / steps.decode_rows


class Negative(Good):
    def seconds(self, steps: Step) -> Any:
        return 1e-3 - 1e-3 * steps.decode_rows


class Sorted(Good):
    def seconds(self, steps: Step) -> Any:
        return np.sort(super().seconds(steps))


class LoopOnly(Good):
    def seconds(self, steps: Step) -> Any:
        return float(steps.prefill_tokens) * 1e-3


class NoName(Good):
    name = 7


class Overhead(Good):
    batch_overhead_s = (0.0, -1.0)


class OneOverhead(Good):
    batch_overhead_s = 0.0


class Outside(Good):
    def outside(self, steps: Step) -> Any:
        return False


class Document(Good):
    def to_json(self) -> Any:
        return {"kind": "good", "at": float("nan")}


class Text(Good):
    def to_json(self) -> Any:
        return "good"


@dataclass
class Half:
    name: str = "half"


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (Half(), "lacks batch_overhead_s, seconds, outside, to_json; see sim.cost.CostModel"),
        (Scalar(), "gives float, not a numpy array of numbers"),
        (OneForAll(), "gives (1,) costs for columns of the shape (84,)"),
        (List(), "gives list, not a numpy array of numbers"),
        (Objects(), "gives an array of <U1, not a numpy array of numbers"),
        (Division(), "gives nan s, which is not finite, for a pass of prefill_tokens=1 decode_rows=0"),
        (Negative(), "gives 0.0 s, which is not above 0, for a pass of prefill_tokens=0 decode_rows=1"),
        (Sorted(), "is not vectorised: prefill_tokens="),
        (LoopOnly(), "raises TypeError: only "),
        (NoName(), "has a name that is no text: 7"),
        (Overhead(), "has a batch_overhead_s that is not two numbers of at least 0: (0.0, -1.0)"),
        (OneOverhead(), "has a batch_overhead_s that is not two numbers of at least 0: 0.0"),
        (Outside(), "answers outside(steps) with bool, not with text or None"),
        (Document(), "raises ValueError: Out of range float values are not JSON compliant"),
        (Text(), "answers to_json() with str, not with a dict"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, (Good, Half)) else "",
)
def test_the_broken_law_is_named(model: Any, line: str) -> None:
    said = broken_contract(model)
    assert said is not None
    assert said.startswith(line)
    assert "\n" not in said


def test_a_fall_is_named_with_field_values_and_shape() -> None:
    assert broken_contract(Falling()) is None
    assert fall(Falling()) == (
        "falls from 0.5 to 0.25 s as decode_rows grows from 3 to 4 at prefill_tokens=0 decode_rows=3 "
        "prefill_pairs=0 prefill_kv_tokens=0 decode_kv_tokens=3 max_context_tokens=1 logit_rows=3"
    )
    assert (may_fall(Falling()), may_fall(FallingBySay()), may_fall(Good())) == (False, True, False)


def test_the_kinds_of_the_project_conform() -> None:
    measured = profile(TOY.seconds, noise=0.05)
    fitted, grid = fit(measured), fit_grid(measured)
    for model in (TOY, fitted, grid, Good()):
        assert broken_contract(model) is None
    for monotone in (TOY, fitted, Good()):
        assert fall(monotone) is None
        assert not may_fall(monotone)
    assert may_fall(grid)


def load_own(name: str) -> Any:
    return load(f"tests.sim.test_conformance:{name}", model_shape("toy"), hardware("cpu"), "float32")


def test_a_model_of_ones_own_is_checked_when_it_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert load_own("Good").name == "good"
    with pytest.raises(InputError, match=r"test_conformance:OneForAll' gives \(1,\) costs for columns"):
        load_own("OneForAll")
    with pytest.raises(InputError, match=r"Falling' falls from 0\.5 to 0\.25 s as decode_rows .*monotone"):
        load_own("Falling")
    assert capsys.readouterr().err == ""
    assert load_own("FallingBySay").seconds(passes())[0] == 0.25
    said = capsys.readouterr().err
    assert said.startswith("warning: cost model 'tests.sim.test_conformance:FallingBySay' falls from 0.5")
    assert said.count("\n") == 1


def test_the_ten_lines_of_the_documentation_are_a_sound_model() -> None:
    text = sim.cost.__doc__ or ""
    lines = re.findall(r"^    .*$|^$", text[text.index("::") + 2 :].partition("\n``")[0], re.MULTILINE)
    code = "\n".join(line[4:] for line in lines)
    assert 5 <= len([line for line in code.splitlines() if line.strip()]) <= 10
    space: dict[str, Any] = {}
    exec(code, space)
    mine = space["MyModel"]()
    assert broken_contract(mine) is None
    assert fall(mine) is None
