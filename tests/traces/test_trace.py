from dataclasses import replace

import numpy as np
import pytest

from traces.load import load


def test_fingerprint_is_of_what_was_asked_and_not_of_the_name() -> None:
    start = load("textbook")
    assert (
        replace(start, name="other", source_row=start.source_row[::-1].copy()).fingerprint
        == start.fingerprint
    )
    assert replace(start, arrival_ns=start.arrival_ns + 10**9).fingerprint == start.fingerprint
    guess = replace(start, predicted_output_tokens=start.output_tokens)
    ids = replace(start, prompt_ids=np.zeros(65, np.int32))
    longer = replace(start, output_tokens=start.output_tokens + 1)
    assert len({trace.fingerprint for trace in (start, guess, ids, longer)}) == 4


def test_columns_that_do_not_fit_are_refused() -> None:
    start = load("textbook")
    for change in (
        {"prompt_ids": np.zeros(64, np.int32)},
        {"predicted_output_tokens": np.ones(3, np.int64)},
        {"predicted_output_tokens": np.zeros(4, np.int64)},
        {"arrival_ns": np.array([0, 2, 1, 3])},
        {"prompt_tokens": np.array([1, 0, 1, 1])},
    ):
        with pytest.raises(ValueError, match=r"length|ids|fall|less than one"):
            replace(start, **change)


def test_columns_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        load("textbook").prompt_tokens[0] = 1
