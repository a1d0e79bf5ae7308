from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import InputError
from traces.load import load
from traces.trace import Trace
from traces.transforms import TRANSFORMS, apply, rerun, transform

S = 10**9


def trace(times_s: list[float], prompts: list[int] | None = None, outputs: list[int] | None = None) -> Trace:
    n = len(times_s)
    return Trace(
        name="worked",
        arrival_ns=np.array([round(t * S) for t in times_s], np.int64),
        prompt_tokens=np.array(prompts or range(1, n + 1), np.int64),
        output_tokens=np.array(outputs or range(11, n + 11), np.int64),
        source_row=np.arange(n, dtype=np.int64),
    )


def test_window_includes_both_ends_and_starts_at_0() -> None:
    cut = transform(trace([0, 1, 2.5, 4, 4, 5]), "window:from_s=1,until_s=4")
    assert cut.source_row.tolist() == [1, 2, 3, 4]
    assert cut.arrival_ns.tolist() == [0, 1.5 * S, 3 * S, 3 * S]
    assert cut.dropped == {"window": 2}
    assert cut.rows_read == 6


def test_a_window_end_is_exact_to_the_nanosecond() -> None:
    at = trace([0, 1_234_567.890123456])
    assert len(transform(at, "window:from_s=0,until_s=1234567.890123456")) == 2
    assert len(transform(at, "window:from_s=0,until_s=1234567.890123455")) == 1


def test_head_drop_longer_and_clip_output() -> None:
    start = trace([0, 1, 2, 3], prompts=[5, 6, 7, 8], outputs=[10, 4, 9, 3])
    assert transform(start, "head:n=2").source_row.tolist() == [0, 1]
    assert transform(start, "head:n=99").dropped == {}
    kept = transform(start, "drop_longer:context_tokens=11")
    assert kept.source_row.tolist() == [1, 3]
    assert kept.arrival_ns.tolist() == [0, 2 * S]
    assert transform(start, "clip_output:most_tokens=4").output_tokens.tolist() == [4, 4, 4, 3]


def test_at_once_goes_back_to_the_order_of_the_source() -> None:
    moved = replace(trace([0, 5, 9], [7, 8, 9], [1, 2, 3]), source_row=np.array([2, 0, 1]), moved_rows=2)
    offline = transform(moved, "at_once")
    assert offline.source_row.tolist() == [0, 1, 2]
    assert offline.prompt_tokens.tolist() == [8, 9, 7]
    assert offline.output_tokens.tolist() == [2, 3, 1]
    assert offline.arrival_ns.tolist() == [0, 0, 0]
    assert not offline.timed


def test_at_once_plays_the_rounds_of_a_repeated_trace_one_after_the_other() -> None:
    start = trace([0, 5, 9], [7, 8, 9], [1, 2, 3])
    again = transform(start, "repeat:n=8")
    assert transform(again, "at_once").source_row.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    moved = replace(start, source_row=np.array([2, 0, 1]), moved_rows=2)
    offline = transform(transform(moved, "repeat:n=6"), "at_once")
    assert offline.source_row.tolist() == [0, 1, 2, 0, 1, 2]
    assert offline.prompt_tokens.tolist() == [8, 9, 7, 8, 9, 7]


def test_each_scale_goes_the_way_it_says() -> None:
    start = trace([0, 2, 6])
    assert transform(start, "scale_rate:factor=2").arrival_ns.tolist() == [0, S, 3 * S]
    assert transform(start, "scale_time:factor=2").arrival_ns.tolist() == [0, 4 * S, 12 * S]


def test_cap_gap_counts_in_the_sources_time() -> None:
    start = trace([0, 1, 11, 12])
    assert transform(start, "cap_gap:most_s=3").arrival_ns.tolist() == [0, S, 4 * S, 5 * S]
    faster = transform(start, "scale_rate:factor=2")
    assert transform(faster, "cap_gap:most_s=3").arrival_ns.tolist() == [0, S // 2, 2 * S, 5 * S // 2]
    slower = transform(start, "scale_time:factor=2")
    assert transform(slower, "cap_gap:most_s=3").arrival_ns.tolist() == [0, 2 * S, 8 * S, 10 * S]


def test_repeat_leaves_a_mean_gap_between_rounds() -> None:
    again = transform(trace([0, 1, 4]), "repeat:n=7")
    assert again.arrival_ns.tolist() == [0, S, 4 * S, 6 * S, 7 * S, 10 * S, 12 * S]
    assert again.source_row.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert transform(trace([0]), "repeat:n=3").arrival_ns.tolist() == [0, 0, 0]
    assert transform(trace([0, 1, 4]), "repeat:n=2").arrival_ns.tolist() == [0, S]


def test_sampling_a_poisson_process_leaves_one() -> None:
    full = load("poisson:rate=8,n=200000,prompt=uniform:1:9,output=1")
    thin = transform(full, "sample:fraction=0.25,seed=3")
    gaps = np.diff(thin.arrival_ns) / S
    assert gaps.mean() == pytest.approx(0.5, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert len(transform(full, "sample:fraction=1")) == len(full)
    assert thin.fingerprint != transform(full, "sample:fraction=0.25,seed=4").fingerprint


def test_shuffling_lengths_keeps_arrivals_and_lengths_and_breaks_correlation() -> None:
    n = 5000
    start = trace(list(range(n)), prompts=list(range(1, n + 1)), outputs=list(range(1, n + 1)))
    dealt = transform(start, "shuffle_lengths")
    assert np.array_equal(dealt.arrival_ns, start.arrival_ns)
    for column in ("prompt_tokens", "output_tokens"):
        assert np.array_equal(np.sort(getattr(dealt, column)), getattr(start, column))
        assert abs(np.corrcoef(getattr(dealt, column), np.arange(n))[0, 1]) < 0.06
    assert abs(np.corrcoef(dealt.prompt_tokens, dealt.output_tokens)[0, 1]) < 0.06
    assert np.array_equal(dealt.source_row + 1, dealt.prompt_tokens)  # a prompt goes with its own row


def test_merge_keeps_every_row_once_and_gives_no_two_the_same_prompt(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("arrival_s,prompt_tokens,output_tokens\n100,7,1\n101,8,1\n103,9,1\n")
    both = apply(trace([0, 1, 2]), "merge", sources=f"{tmp_path / 'b.csv'}+textbook")
    assert both.prompt_tokens.tolist() == [1, 7, 10, 30, 5, 20, 2, 8, 3, 9]
    assert both.arrival_ns.tolist() == [0] * 6 + [S, S, 2 * S, 3 * S]
    assert sorted(both.source_row.tolist()) == list(range(10))


def test_ids_and_guesses_go_with_their_rows() -> None:
    start = trace([0, 1, 2], prompts=[1, 2, 3])
    full = Trace(
        **{
            name: getattr(start, name)
            for name in ("name", "arrival_ns", "prompt_tokens", "output_tokens", "source_row")
        },
        prompt_ids=np.array([10, 20, 21, 30, 31, 32], np.int32),
        predicted_output_tokens=np.array([5, 6, 7], np.int64),
    )
    cut = transform(full, "window:from_s=1,until_s=2")
    assert cut.prompt_ids is not None
    assert cut.predicted_output_tokens is not None
    assert cut.prompt_ids.tolist() == [20, 21, 30, 31, 32]
    assert cut.predicted_output_tokens.tolist() == [6, 7]
    again = transform(full, "repeat:n=4")
    assert again.prompt_ids is not None
    assert again.prompt_ids.tolist() == [10, 20, 21, 30, 31, 32, 10]


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("window", {"from_s": 0, "until_s": 1e6}),
    ("head", {"n": 40}),
    ("sample", {"fraction": 0.9, "seed": 4}),
    ("scale_rate", {"factor": 1.5}),
    ("scale_time", {"factor": 0.3}),
    ("repeat", {"n": 60}),
    ("drop_longer", {"context_tokens": 5000}),
    ("clip_output", {"most_tokens": 50}),
    ("cap_gap", {"most_s": 0.5}),
    ("merge", {"sources": "textbook"}),
    ("shuffle_lengths", {"seed": 2}),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), max_size=5), st.integers(0, 5))
def test_history_runs_again_to_the_same_bytes(steps: list[tuple[str, dict[str, Any]]], seed: int) -> None:
    source = f"gamma:rate=4,cv=2,n=50,prompt=lognormal:100:1,output=zipf:1.1:99,seed={seed}"
    changed = load(source)
    for name, parameters in steps:
        changed = apply(changed, name, **parameters)
    again = rerun(load(changed.name), changed.history)
    assert again.fingerprint == changed.fingerprint
    assert np.array_equal(again.source_row, changed.source_row)
    assert [step["name"] for step in changed.history] == [name for name, _ in steps]
    assert changed.arrival_ns[0] == 0


def test_every_transform_is_tried_above() -> None:
    assert {name for name, _ in STEPS} | {"at_once"} == set(TRANSFORMS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("windw:from_s=1", "'windw' is not known; choose at_once"),
        ("window:from_s=1", "until_s missing"),
        ("head:n=0", "n=0"),
        ("head:m=1", "'m' is not known; choose n"),
        ("head:n", "not key=value"),
        ("sample:fraction=1.5", "fraction=1.5"),
        ("sample:fraction=0", "fraction=0"),
        ("scale_rate:factor=nan", "factor=nan"),
        ("scale_time:factor=1e300", "292 years"),
        ("repeat:n=9000000000000000000000", "not a whole number"),
        ("window:from_s=9,until_s=10", "leaves none of 3 requests"),
        ("window:from_s=x,until_s=10", "from_s=x"),
        ("drop_longer:context_tokens=2", "leaves none"),
        ("merge:sources=none.csv", "none.csv: no such file"),
    ],
)
def test_what_cannot_be_done_is_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        transform(trace([0, 1, 2]), text)
    assert said in str(error.value)
