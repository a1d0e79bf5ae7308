"""A fitted model times what boosted trees learn of its errors, within a stated factor.

The trees may say what no sum of terms can (a matrix size that falls badly on the tiles), so the cost may fall as a
field grows; it is clipped to at most ``largest_factor`` times or one such part of the fitted cost. Learning needs
scikit-learn (the extra ``learn``); a saved model holds its trees as plain numbers and needs only numpy.
"""

from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.blocks import price_in_blocks
from sim.fitted import COLUMNS, FOLDS, Fitted, fit
from sim.numbers import non_negative_number
from sim.profile import Profile
from sim.solve import relative_errors, summary
from sim.step import Step
from traces.errors import InputError
from traces.trace import Floats

LARGEST_FACTOR = 1.5
"""How far trees may correct a fit, either way."""
TREES, DEPTH, LEARNING_RATE, MIN_LEAF = 100, 3, 0.1, 2
"""Boosting as in Friedman 2001 (doi:10.1214/aos/1013203451), small enough for a few hundred shapes."""
SIGNS = (*COLUMNS, "max_context_tokens")
"""What trees may split on."""


@dataclass(frozen=True)
class Tree:
    """A regression tree as parallel columns, the root first; a leaf is its own child."""

    sign: tuple[int, ...]
    """Which of :data:`SIGNS` a node looks at."""
    threshold: tuple[float, ...]
    """Up to and including this, go left."""
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]
    """What the node adds to the logarithm of the factor, if it is a leaf."""

    def __post_init__(self) -> None:
        columns = (self.sign, self.threshold, self.left, self.right, self.value)
        nodes = len(self.sign)
        if not nodes or any(len(a) != len(b) for a, b in pairwise(columns)):
            raise InputError("a tree needs five columns of one length")
        for name, whole, limit in (
            ("sign", self.sign, len(SIGNS)),
            ("left", self.left, nodes),
            ("right", self.right, nodes),
        ):
            if any(type(x) is not int or not 0 <= x < limit for x in whole):
                raise InputError(f"a tree's {name} must be whole numbers from 0 to {limit - 1}")
        if not np.all(np.isfinite([*self.threshold, *self.value])):
            raise InputError("a tree holds a threshold or value that is not a finite number")

    def leaves(self, signs: NDArray[np.float32]) -> Floats:
        """Value of the leaf that each row of ``signs`` [passes, signs] (single precision) falls into."""
        sign, left, right = (np.asarray(x) for x in (self.sign, self.left, self.right))
        threshold = np.asarray(self.threshold)
        node, passes = np.zeros(len(signs), np.int64), np.arange(len(signs))
        # A tree is at most as deep as it has nodes; a pass that stands in a leaf stays there.
        for _ in range(len(sign)):
            moved = np.where(signs[passes, sign[node]] <= threshold[node], left[node], right[node])
            if np.array_equal(moved, node):
                break
            node = moved
        return np.asarray(self.value, np.float64)[node]


@dataclass(frozen=True)
class Residual:
    """Seconds = fitted seconds x exp(offset + sum of trees), the factor clipped."""

    monotone: ClassVar[bool] = False
    """Exempt from the law of costs that never fall."""
    fitted: Fitted
    offset: float
    trees: tuple[Tree, ...]
    largest_factor: float
    cross_validated: dict[str, float] | None
    """Error on shapes left out in turn, base and trees both learnt without them; None below six shapes."""

    def __post_init__(self) -> None:
        if non_negative_number(self.largest_factor, "largest_factor") < 1:
            raise InputError(f"largest_factor must be at least 1, not {self.largest_factor!r}")
        if not isinstance(self.offset, (int, float)) or not np.isfinite(self.offset):
            raise InputError(f"offset must be a finite number, not {self.offset!r}")

    @property
    def name(self) -> str:
        """Kind, model, device and dtype."""
        return self.fitted.name.replace("fitted", "residual", 1)

    @property
    def batch_overhead_s(self) -> tuple[float, float]:
        """As fitted: medians of measured batches."""
        return self.fitted.batch_overhead_s

    def seconds(self, steps: Step) -> Floats:
        """Seconds of each pass, in the shape of the columns."""
        return price_in_blocks(steps, SIGNS, self._price)

    def _price(self, *columns: Floats) -> Floats:
        # scikit-learn compares in single precision; so must we, to land in the same leaves.
        signs = np.stack(columns, axis=1).astype(np.float32)
        total = np.full(len(signs), self.offset, np.float64)
        for tree in self.trees:
            total += tree.leaves(signs)
        limit = np.log(self.largest_factor)
        seconds = self.fitted.price(*columns[: len(COLUMNS)])
        seconds *= np.exp(np.clip(total, -limit, limit))
        return seconds

    def outside(self, steps: Step) -> str | None:
        """The first pass outside the profiled ranges, and how far; None if all lie inside."""
        return self.fitted.outside(steps)

    def to_json(self) -> dict[str, Any]:
        """The fitted model below, and the trees as numbers."""
        return {
            "kind": "residual",
            "fitted": self.fitted.to_json(),
            "offset": self.offset,
            "trees": [{name: list(column) for name, column in vars(tree).items()} for tree in self.trees],
            "largest_factor": self.largest_factor,
            "cross_validated": self.cross_validated,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Residual":
        """The model that :meth:`to_json` wrote down."""
        names = ("sign", "threshold", "left", "right", "value")
        return cls(
            Fitted.from_json(document["fitted"]),
            document["offset"],
            tuple(Tree(*(tuple(tree[name]) for name in names)) for tree in document["trees"]),
            document["largest_factor"],
            document["cross_validated"],
        )


def fit_residual(profile: Profile, largest_factor: float = LARGEST_FACTOR) -> Residual:
    """Learn what :func:`sim.fitted.fit` leaves over on the same profile.

    Raises:
        InputError: scikit-learn is not installed, or as :func:`sim.fitted.fit`.
    """
    model = _learn(profile, largest_factor)
    shapes = profile.shapes
    if len(shapes) < FOLDS + 1:
        return model
    fold = np.random.default_rng(0).permutation(len(shapes)) % FOLDS
    errors = np.empty(len(shapes))
    for k in range(FOLDS):
        inside, left_out = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        part = Profile(shapes.steps.take(inside), shapes.seconds[inside], profile.conditions)
        predicted = _learn(part, largest_factor).seconds(shapes.steps.take(left_out))
        errors[left_out] = relative_errors(predicted, shapes.seconds[left_out])
    return Residual(model.fitted, model.offset, model.trees, largest_factor, summary(errors))


def _learn(profile: Profile, largest_factor: float) -> Residual:
    try:
        ensemble = import_module("sklearn.ensemble")
    except ImportError:
        raise InputError("a residual needs scikit-learn to be learnt: install the extra 'learn'") from None
    base, shapes = fit(profile), profile.shapes
    signs = np.stack([getattr(shapes.steps, name) for name in SIGNS], axis=1)
    boosted = ensemble.GradientBoostingRegressor(
        loss="huber",
        n_estimators=TREES,
        max_depth=DEPTH,
        learning_rate=LEARNING_RATE,
        min_samples_leaf=MIN_LEAF,
        random_state=0,
    ).fit(signs, np.log(shapes.seconds / base.seconds(shapes.steps)))
    trees = tuple(_tree(estimator.tree_) for estimator in boosted.estimators_[:, 0])
    return Residual(base, float(np.ravel(boosted.init_.constant_)[0]), trees, largest_factor, None)


def _tree(learnt: Any) -> Tree:
    itself = np.arange(learnt.node_count)
    leaf = learnt.children_left == learnt.children_right
    return Tree(
        tuple(np.where(leaf, 0, learnt.feature).tolist()),
        tuple(np.where(leaf, 0.0, learnt.threshold).tolist()),
        tuple(np.where(leaf, itself, learnt.children_left).tolist()),
        tuple(np.where(leaf, itself, learnt.children_right).tolist()),
        tuple((LEARNING_RATE * learnt.value[:, 0, 0]).tolist()),
    )
