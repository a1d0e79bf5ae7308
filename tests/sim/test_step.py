"""The one builder of steps: what each pass of a batch holds, and how engines round it up."""

import numpy as np
import pytest

from sim.cost import nanoseconds
from sim.pricing import by_value
from sim.step import (
    Rounding,
    Step,
    batch_steps,
    concat,
    own_decode,
    own_prefill,
    padded_decode,
    padded_prefill,
)
from tests.sim.worked import K1, Toy
from traces.errors import InputError


def rows_of(step: Step) -> dict[str, list[int]]:
    return {name: column.tolist() for name, column in vars(step).items()}


def test_every_pass_of_a_batch() -> None:
    """Two rows, prompt 3, output 4: a prefill of 2 x 3 slots, then contexts 4, 5, 6."""
    assert rows_of(batch_steps(2, 3, 4)) == {
        "prefill_tokens": [6, 0, 0, 0],
        "decode_rows": [0, 2, 2, 2],
        "prefill_pairs": [18, 0, 0, 0],
        "prefill_kv_tokens": [6, 0, 0, 0],
        "decode_kv_tokens": [0, 8, 10, 12],
        "max_context_tokens": [3, 4, 5, 6],
        "logit_rows": [2, 2, 2, 2],
    }
    assert len(batch_steps(2, 3, 1)) == 1


def test_dummy_rows_and_buckets_are_applied_there() -> None:
    found = batch_steps(3, 3, 4, Rounding((2, 4), 4))
    assert found.decode_rows.tolist() == [0, 4, 4, 4]
    assert found.prefill_tokens.tolist() == [12, 0, 0, 0]
    assert found.max_context_tokens.tolist() == [3, 4, 8, 8]
    assert found.decode_kv_tokens.tolist() == [0, 16, 32, 32]


def test_rounding_goes_up_to_what_is_allowed_and_no_further() -> None:
    allowed = Rounding((2, 8, 32))
    assert allowed.rows(np.arange(1, 12)).tolist() == [2, 2, 8, 8, 8, 8, 8, 8, 32, 32, 32]
    assert int(allowed.rows(32)) == 32
    with pytest.raises(InputError, match="a batch of 33 rows is above the largest allowed, 32"):
        allowed.rows([1, 33])
    assert Rounding().rows([5, 1]).tolist() == [5, 1]
    assert Rounding((), 16).context([1, 15, 16, 17, 32]).tolist() == [16, 16, 16, 32, 32]
    assert Rounding().context([7]).tolist() == [7]


@pytest.mark.parametrize(("rows", "context"), [((2, 2), 1), ((8, 2), 1), ((0, 2), 1), ((), 0), ((-1,), 1)])
def test_roundings_that_are_none(rows: tuple[int, ...], context: int) -> None:
    with pytest.raises(InputError):
        Rounding(rows, context)


def test_rows_at_their_own_length() -> None:
    """Prompts 3 and 5: 8 slots, 9 + 25 pairs; decoding at contexts 4 and 6: 10 slots."""
    prefill, decode = own_prefill([2], [8], [34], [5]), own_decode([2], [10], [6])
    assert rows_of(concat(prefill, decode)) == {
        "prefill_tokens": [8, 0],
        "decode_rows": [0, 2],
        "prefill_pairs": [34, 0],
        "prefill_kv_tokens": [8, 0],
        "decode_kv_tokens": [0, 10],
        "max_context_tokens": [5, 6],
        "logit_rows": [2, 2],
    }
    # Rows of one length cost what they cost padded.
    assert rows_of(own_prefill([3], [15], [75], [5])) == rows_of(padded_prefill([3], [5]))
    assert rows_of(own_decode([3], [18], [6])) == rows_of(padded_decode([3], [6]))
    assert rows_of(batch_steps(2, 3, 4).take(np.array([3, 0])))["max_context_tokens"] == [6, 3]


def test_seconds_are_rounded_once_to_whole_nanoseconds_and_at_least_one() -> None:
    model = Toy("tiny", lambda s: np.asarray(s.decode_rows * 0.4e-9, np.float64))
    assert nanoseconds(model, padded_decode([1, 4, 10], [1, 1, 1])).tolist() == [1, 2, 4]
    assert nanoseconds(K1, padded_decode([1], [1])).dtype == np.int64


@pytest.mark.parametrize("values", [[], [3, 3, 3], [2, 0, 70_000, 2, 5, 0], list(range(9, 0, -1))])
def test_positions_by_value(values: list[int]) -> None:
    column = np.array(values, np.int64)
    found = {value: np.arange(len(column))[index].tolist() for value, index in by_value(column)}
    assert found == {v: [i for i, other in enumerate(values) if other == v] for v in sorted(set(values))}
