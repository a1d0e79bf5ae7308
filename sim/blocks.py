"""Pricing in blocks: the working columns of a cost model stay in the cache of a core."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sim.step import Step
from traces.trace import Floats

BLOCK = 1 << 15
"""Passes priced at a time."""


def price_in_blocks(
    steps: Step, columns: tuple[str, ...], price: Callable[..., NDArray[np.float64]]
) -> Floats:
    """``price`` of some columns of ``steps``, as floats, in their shape.

    Args:
        steps: columns of any one shape.
        columns: names of those that ``price`` takes, in its order.
        price: seconds of one block from its columns, each a flat array of floats.
    """
    flat = [np.ravel(getattr(steps, name)) for name in columns]
    out = np.empty(flat[0].size)
    for start in range(0, out.size, BLOCK):
        block = slice(start, start + BLOCK)
        out[block] = price(*(column[block].astype(np.float64) for column in flat))
    return out.reshape(np.shape(steps.prefill_tokens))
