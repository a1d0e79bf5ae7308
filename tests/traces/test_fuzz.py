"""Damaged bytes end in rows and a count, or in one clear line; never in a traceback, a hang or a silent 0."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traces.errors import InputError
from traces.load import load
from traces.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
HEADER = "arrival_s,prompt_tokens,output_tokens"
GOOD_ROW = "1.5,20,30"
CSV = f"{HEADER}\n0.5,10,20\n{GOOD_ROW}\n2.5,30,40\n".encode()
JSONL = b"".join(
    json.dumps(
        {"timestamp": 3 * i, "input_length": 600 + i, "output_length": 5, "hash_ids": [i, i + 1]}
    ).encode()
    + b"\n"
    for i in range(4)
)
RESULT = json.dumps(
    {"input_lens": [1, 2], "output_lens": [3, 4], "start_times": [0.5, 0.75]}, indent=1
).encode()

ODD = st.sampled_from(
    [
        *(
            b"\xef\xbb\xbf",
            b"\r\n",
            b"\r",
            b"\n\n",
            b"NaN",
            b"1e400",
            b"-1e400",
            b"9" * 400,
            b"\0",
            b"\xff\xfe",
        ),
        *(
            b"," * 9,
            b"x" * 5000,
            b"{",
            b"[" * 3000,
            b"}",
            b"null",
            b"true",
            b"0x1F",
            b"1_000",
            b"-0",
            b" ",
            b"\t",
        ),
        *(
            HEADER.encode() + b"\n",
            b"1e999999999",
            b"\x1f\x8b",
            "\u0665\u0666".encode(),
            b"\xe2\x80\xa8",
            b"\\u0000",
        ),
        *(b'"', b"'", b";", b":"),
    ]
)


@st.composite
def damaged(draw: st.DrawFn, source: bytes) -> bytes:
    """The bytes with pieces cut out, overwritten and put in, perhaps truncated, perhaps packed."""
    data = source
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 12)))
        data = data[:at] + draw(st.one_of(ODD, st.binary(max_size=6))) + data[until:]
    data = data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data
    if draw(st.integers(0, 9)) == 0:
        data = gzip.compress(data)[: draw(st.integers(0, 400))]
    return data


def said(path: Path, skip_bad: bool) -> Trace | str:
    try:
        return load(str(path), skip_bad=skip_bad)
    except InputError as error:
        return str(error)


def try_to_load(path: Path) -> None:
    for skip_bad in (False, True):
        trace = said(path, skip_bad)
        if isinstance(trace, str):
            assert trace.startswith(str(path))
            assert "\n" not in trace
        else:
            assert len(trace) >= 1
            assert trace.rows_read == len(trace) + sum(trace.dropped.values())
            assert trace.prompt_tokens.min() >= 1
            assert trace.output_tokens.min() >= 1
            assert trace.arrival_ns[0] == 0
            assert skip_bad or set(trace.dropped) <= {"failed request (no output)"}


FUZZ = settings(max_examples=300, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("source", [CSV, JSONL, RESULT], ids=["csv", "jsonl", "json"])
def test_damaged_text(tmp_path: Path, source: bytes) -> None:
    path = tmp_path / "damaged.txt"

    @FUZZ
    @given(damaged(source))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        try_to_load(path)

    check()


def test_damaged_parquet(tmp_path: Path) -> None:
    from traces.write import write

    write(load("poisson:rate=1,n=50,prompt=zipf:1.1:50,output=9"), tmp_path / "good.parquet")
    good = (tmp_path / "good.parquet").read_bytes()
    path = tmp_path / "damaged.parquet"

    @settings(FUZZ, max_examples=150)
    @given(st.integers(4, len(good)), st.integers(0, 255), st.booleans())
    def check(at: int, value: int, cut: bool) -> None:
        path.write_bytes(good[:at] if cut else good[: at - 1] + bytes([value]) + good[at:])
        try_to_load(path)

    check()


CELL = st.one_of(
    st.integers(-(10**25), 10**25).map(str),
    st.floats().map(repr),
    st.text(
        st.characters(exclude_characters='"', codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8
    ),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.sampled_from(["", "NaN", "inf", "1e400", "0", "-0", "1e3", "0x1F", " 5", "5 ", "+5", "5.0", "05"]),
)


def test_a_cell_is_its_exact_value_or_refused(tmp_path: Path) -> None:
    """Whatever stands in a length column: a plain whole number is taken as it is, all else is named."""
    path = tmp_path / "cell.csv"

    @FUZZ
    @given(CELL)
    def check(cell: str) -> None:
        path.write_text(f'{HEADER}\n0,7,7\n1,"{cell}",7\n', encoding="utf-8", newline="")
        text = cell.strip().removeprefix("+")
        whole = text.partition(".")[0]
        usable = whole.isascii() and whole.isdigit() and not text.partition(".")[2].strip("0")
        usable = usable and 1 <= int(whole) <= 2**31 - 1
        if usable:
            assert load(str(path)).prompt_tokens.tolist() == [7, int(whole)]
        else:
            with pytest.raises(InputError, match="line 3, column prompt_tokens: "):
                load(str(path))

    check()


def test_times_are_exact_in_every_container(tmp_path: Path) -> None:
    from traces.write import write

    @settings(FUZZ, max_examples=60)
    @given(
        st.lists(st.integers(0, 10**17), min_size=1, max_size=8), st.sampled_from(["csv", "jsonl", "parquet"])
    )
    def check(times: list[int], suffix: str) -> None:
        path = tmp_path / f"times.{suffix}"
        order = sorted(times)
        rows = "".join(f"{t // 10**9}.{t % 10**9:09d},3,4\n" for t in times)
        (tmp_path / "text.csv").write_text(f"{HEADER}\n{rows}")
        trace = load(str(tmp_path / "text.csv"))
        assert trace.arrival_ns.tolist() == [t - order[0] for t in order]
        write(trace, path)
        assert np.array_equal(load(str(path)).arrival_ns, trace.arrival_ns)

    check()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("deep.jsonl", b'{"arrival_s": ' + b"[" * 200_000 + b"\n"),
        ("deep.json", b"[" * 200_000),
        ("long.csv", HEADER.encode() + b"\n" + b"1" * 40_000_000 + b",2,3\n"),
        ("long.jsonl", b'{"prompt_tokens": 1, "output_tokens": 2, "x": "' + b"y" * 40_000_000 + b'"}\n{}\n'),
        ("quote.csv", HEADER.encode() + b'\n"1,2,3\n' + b"4,5,6\n" * 1000),
        ("cut.gz", gzip.compress(CSV * 100)[:-9]),
        ("twice.csv", f"{HEADER},prompt_tokens\n1,2,3,4\n".encode()),
        ("header.csv", f"{HEADER}\n{HEADER}\n1,2,3\n".encode()),
        (
            "twice.jsonl",
            b'{"prompt_tokens": 1, "output_tokens": 2}\n{"prompt_tokens": 1, "prompt_tokens": 0, "a": 1}\n',
        ),
    ],
)
def test_hostile_files_are_one_line(tmp_path: Path, name: str, data: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        load(str(path))
    assert str(error.value).startswith(str(path))
    assert len(str(error.value)) < 2000
    try_to_load(path)


def test_giving_a_long_file_up_does_not_abort_the_process(tmp_path: Path) -> None:
    """Arrow reads ahead in a thread of its own, which must not be inside our stream when the process ends."""
    path = tmp_path / "long.csv"
    path.write_bytes(HEADER.encode() + b"\n" + b"1" * 100_000_000 + b",2,3\n")
    for _ in range(4):  # without the wait for that thread about every second run was aborted
        done = subprocess.run(
            [sys.executable, "-m", "traces", "describe", str(path)],
            cwd=ROOT,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.count(b"\n") == 1
