"""Cost models by name or file: the one place that knows all kinds.

A new kind is one class and one line in ``KINDS``.
"""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sim.cost import CostModel
from sim.fitted import Fitted
from sim.grid import Grid
from sim.hardware import Hardware, named_in
from sim.models import ModelShape
from sim.replay import Replay
from sim.residual import Residual
from sim.roofline import Roofline
from traces.errors import InputError, choices
from traces.terminal import warn

KINDS: dict[str, Callable[[dict[str, Any]], CostModel]] = {
    "roofline": Roofline.from_json,
    "fitted": Fitted.from_json,
    "grid": Grid.from_json,
    "residual": Residual.from_json,
    "replay": lambda document: Replay.from_json(document, from_json),
}
"""How each kind of model is made from its JSON document."""


def to_json(model: CostModel) -> dict[str, Any]:
    """The document that :func:`from_json` makes this very model from."""
    return model.to_json()


def from_json(document: Any, place: str = "cost model") -> CostModel:
    """The model that a JSON document describes.

    Args:
        document: what :func:`to_json` gave.
        place: where the document stands, for error lines.

    Raises:
        InputError: unknown kind, missing key, wrong type, or a number that is none.
    """
    if not isinstance(document, dict):
        raise InputError(f"{place}: expected a JSON object with a kind, not {type(document).__name__}")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"{place}: unknown kind {kind!r}; known are {choices(KINDS)}")
    try:
        return KINDS[kind](document)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except KeyError as error:
        raise InputError(f"{place}: a {kind} model needs the key {error.args[0]!r}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{place}: a {kind} model cannot be made of this: {error}") from None


def of_another(model: CostModel, shape: ModelShape, hardware: Hardware) -> str | None:
    """What a model was measured on, in words, where that is another model or device than these; None if it is not."""
    document = model.to_json()
    evidence = document.get("fitted", document).get("evidence", document)
    about = evidence.get("conditions") if isinstance(evidence, dict) else None
    if not isinstance(about, dict):
        return None  # nobody measured it, or it does not say
    known = named_in(str(about.get("hardware", "")))
    on_cpu = str(about.get("device", "")).startswith("cpu")
    same_device = hardware.name == "cpu" if on_cpu else known is None or known.name == hardware.name
    name = str(about.get("model")).rstrip("/").rpartition("/")[2]
    if same_device and name in (shape.name, "not stated"):
        return None
    return f"{about.get('model')} on {about.get('hardware')}"


def load(cost: str, shape: ModelShape, hardware: Hardware, dtype: str, host: str = "eager") -> CostModel:
    """The model that ``--cost`` names.

    Args:
        cost: ``roofline``, the path of a model file (JSON), or ``package.module:object`` with an object that
            keeps the contract of :class:`~sim.cost.CostModel` (it is tried on a few passes), or a function of no
            argument that makes one.
        shape: the model that a roofline prices.
        hardware: the device that a roofline prices on.
        dtype: the dtype that a roofline prices in.
        host: who starts a roofline's kernels, ``eager`` or ``graph``.

    Raises:
        InputError: nothing of that name, or it breaks the contract; one line with the reason.
    """
    if cost == "roofline":
        return Roofline(shape, hardware, dtype, host)
    return found(cost)


def found(cost: str) -> CostModel:
    """The model in a file, or the object that ``package.module:object`` names.

    Raises:
        InputError: as :func:`load`.
    """
    path = Path(cost)
    if path.is_dir():
        raise InputError(
            f"cost model {cost!r} is a folder; give a model file, roofline or package.module:object"
        )
    if not path.exists() and ":" in cost:
        return _imported(cost)
    return from_file(path)


def from_file(path: Path) -> CostModel:
    """The model in a file.

    Raises:
        InputError: no such file, or it holds no model; one line with the reason.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"cost model {str(path)!r}: {error.strerror}; give roofline, a file or package.module:object"
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not JSON (not even text)") from None
    try:
        document = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: not JSON: {error.msg} in line {error.lineno}") from None
    except _NotANumber as error:
        raise InputError(f"{path}: holds {error}, which is no cost") from None
    return from_json(document, str(path))


class _NotANumber(Exception):
    """NaN or an infinity in a file that may hold neither."""


def _no_number(word: str) -> float:
    raise _NotANumber(word)


def _imported(cost: str) -> CostModel:
    module_name, _, attribute = cost.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (
        Exception
    ) as error:  # whatever foreign code raises while it is imported or made is said in one line
        raise InputError(f"cost model {cost!r}: cannot import {module_name!r}: {_said(error)}") from None
    if not hasattr(module, attribute):
        raise InputError(f"cost model {cost!r}: module {module_name!r} has no {attribute!r}")
    model = getattr(module, attribute)
    if isinstance(model, type) or (callable(model) and not hasattr(model, "seconds")):
        try:
            model = model()
        except Exception as error:
            raise InputError(f"cost model {cost!r}: {attribute}() cannot be made: {_said(error)}") from None
    # Only here: it simulates, and so loads what nothing else of this module needs.
    from sim.conformance import broken_contract, fall, may_fall

    broken, falling = broken_contract(model), None
    if broken is None:
        falling = fall(model)
    if falling is not None and not may_fall(model):
        broken = f"{falling}; set monotone = False if that is how it was measured"
    if broken is not None:
        raise InputError(f"cost model {cost!r} {broken}")
    if falling is not None:
        warn(f"cost model {cost!r} {falling}; ledger lines may turn negative")
    return model  # type: ignore[no-any-return]


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
