import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.errors import InputError
from traces.load import load
from traces.trace import Trace
from traces.write import PLAIN, TARGETS, lost, write

SUFFIX = {"azure": "csv", "vidur": "csv", "mooncake": "jsonl"}
LENGTH = st.integers(1, 2**31 - 1)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    n = draw(st.integers(1, 30))
    timed = draw(st.booleans())
    gaps = draw(st.lists(st.integers(0, 10**15), min_size=n, max_size=n)) if timed else [0] * n
    column = st.lists(LENGTH, min_size=n, max_size=n)
    rows = draw(st.permutations(range(n)))
    predicted = draw(st.one_of(st.none(), column))
    return Trace(
        name="drawn",
        arrival_ns=np.cumsum([0, *gaps[1:]]).astype(np.int64),
        prompt_tokens=np.array(draw(column), np.int64),
        output_tokens=np.array(draw(column), np.int64),
        source_row=np.array(rows, np.int64),
        timed=timed,
        predicted_output_tokens=None if predicted is None else np.array(predicted, np.int64),
    )


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"mooncake"}))
def test_written_and_read_back_is_the_same(tmp_path: Path, target: str) -> None:
    path = tmp_path / f"trace.{SUFFIX.get(target, target)}"

    @settings(max_examples=60, deadline=None)
    @given(traces())
    def check(trace: Trace) -> None:
        write(trace, path, target)
        back = load(str(path))
        assert np.array_equal(back.arrival_ns, trace.arrival_ns)
        assert np.array_equal(back.prompt_tokens, trace.prompt_tokens)
        assert np.array_equal(back.output_tokens, trace.output_tokens)
        assert back.timed == (trace.timed or target == "azure")
        if target in PLAIN:
            assert back.fingerprint == trace.fingerprint
            assert np.array_equal(back.source_row, trace.source_row)

    check()


def test_mooncake_holds_whole_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"

    @settings(max_examples=60, deadline=None)
    @given(traces())
    def check(drawn: Trace) -> None:
        small = np.minimum(drawn.prompt_tokens, 5000)
        exact = replace(drawn, arrival_ns=drawn.arrival_ns // 10**6 * 10**6, prompt_tokens=small)
        write(exact, path, "mooncake")
        back = load(str(path))
        assert np.array_equal(back.arrival_ns, exact.arrival_ns)
        assert np.array_equal(back.prompt_tokens, exact.prompt_tokens)
        assert np.array_equal(back.output_tokens, exact.output_tokens)

    check()


def test_public_files_survive_a_round_through_every_format(shared_data: Path, tmp_path: Path) -> None:
    azure = shared_data / "traces/azure/AzureLLMInferenceTrace_code.csv"
    start = load(str(azure))
    for target in ("azure", "csv", "jsonl", "parquet", "vidur"):
        write(start, tmp_path / "out", target)
        start = replace(load(str(tmp_path / "out")), name=target)
    assert start.fingerprint == load(str(azure)).fingerprint
    write(start, tmp_path / "vidur.csv", "vidur")
    theirs = load(str(shared_data / "traces/vidur/splitwise_code.csv"))
    assert load(str(tmp_path / "vidur.csv")).fingerprint == theirs.fingerprint == start.fingerprint
    offline = shared_data / "traces/vidur/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"
    write(load(str(offline)), tmp_path / "offline.csv", "vidur")
    counts = [line.rpartition(",")[0] for line in offline.read_text().splitlines()]
    assert [line.rpartition(",")[0] for line in (tmp_path / "offline.csv").read_text().splitlines()] == counts
    mooncake = shared_data / "traces/mooncake/synthetic_trace.jsonl"
    write(load(str(mooncake)), tmp_path / "m.jsonl", "mooncake")
    assert load(str(tmp_path / "m.jsonl")).fingerprint == load(str(mooncake)).fingerprint


def test_bytes_that_are_written(tmp_path: Path) -> None:
    trace = replace(load("textbook"), arrival_ns=np.array([0, 1, 1_500_000_000, 3_000_000_000]))
    write(trace, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == (
        "arrival_s,prompt_tokens,output_tokens\n0,10,15\n0.000000001,30,10\n1.5,5,20\n3,20,12\n"
    )
    write(trace, tmp_path / "t.jsonl")
    assert (tmp_path / "t.jsonl").read_text().splitlines()[2] == (
        '{"arrival_s": 1.5, "prompt_tokens": 5, "output_tokens": 20}'
    )
    trace = replace(trace, arrival_ns=trace.arrival_ns // 100 * 100, prompt_tokens=trace.prompt_tokens + 1000)
    write(trace, tmp_path / "a.csv", "azure")
    assert (tmp_path / "a.csv").read_bytes().split(b"\r\n")[3] == b"2023-11-16 00:00:01.5000000,1005,20"
    write(trace, tmp_path / "m.jsonl", "mooncake")
    assert (tmp_path / "m.jsonl").read_text().splitlines()[2] == (
        '{"timestamp": 1500, "input_length": 1005, "output_length": 20, "hash_ids": [5, 6]}'
    )


def test_what_a_target_cannot_hold_is_said() -> None:
    plain = load("poisson:rate=1,n=9,prompt=1,output=1,predicted=0.1")
    assert lost(plain, "parquet") == []
    assert any("predicted" in line for line in lost(plain, "vidur"))
    assert any("millisecond" in line for line in lost(plain, "mooncake"))
    assert any("no arrival times" in line for line in lost(replace(plain, timed=False), "azure"))
    assert any("3 rows were dropped" in line for line in lost(replace(plain, dropped={"x": 3}), "csv"))


def test_targets_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write format 'txt'; choose azure"):
        write(load("textbook"), tmp_path / "a.txt")
    with pytest.raises(InputError, match="is a folder"):
        write(load("textbook"), tmp_path, "csv")
    assert list(tmp_path.iterdir()) == []


def test_gzip_is_read_whatever_its_name(tmp_path: Path) -> None:
    write(load("textbook"), tmp_path / "t.jsonl")
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    assert load(str(tmp_path / "packed.jsonl")).fingerprint == load("textbook").fingerprint
