import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from traces.errors import InputError
from traces.load import load


def write(tmp_path: Path, text: str | bytes, name: str = "trace.csv") -> str:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


HEADER = "arrival_s,prompt_tokens,output_tokens\n"


def test_rows_come_in_order_of_arrival_and_ties_keep_file_order(tmp_path: Path) -> None:
    trace = load(write(tmp_path, HEADER + "5,10,1\n3,20,2\n5,30,3\n4,40,4\n9,50,5\n"))
    assert trace.prompt_tokens.tolist() == [20, 40, 10, 30, 50]
    assert trace.arrival_ns.tolist() == [0, 10**9, 2 * 10**9, 2 * 10**9, 6 * 10**9]
    assert trace.source_row.tolist() == [1, 3, 0, 2, 4]
    assert trace.moved_rows == 2  # rows 0 and 2 stood before the arrival at 4 s


def test_moved_rows_are_all_that_stood_before_an_earlier_arrival(tmp_path: Path) -> None:
    assert load(write(tmp_path, HEADER + "5,1,1\n6,1,1\n3,1,1\n9,1,1\n")).moved_rows == 2
    assert load(write(tmp_path, HEADER + "5,1,1\n5,1,1\n6,1,1\n9,1,1\n")).moved_rows == 0


def test_many_ties_keep_file_order(tmp_path: Path) -> None:
    at = np.random.default_rng(0).integers(0, 20, 2000).tolist()
    trace = load(write(tmp_path, HEADER + "".join(f"{t},{i + 1},1\n" for i, t in enumerate(at))))
    assert trace.source_row.tolist() == sorted(range(2000), key=lambda i: at[i])


@pytest.mark.parametrize("digits", [7, 9])
def test_epoch_stamps_keep_every_digit(tmp_path: Path, digits: int) -> None:
    ticks = [0, 1, 3, 10**digits, 10**digits + 7]
    base = 1_777_142_984 * 10**digits + 9_876_543
    stamps = [f"{(base + t) // 10**digits}.{(base + t) % 10**digits:0{digits}d}" for t in ticks]
    rows = "".join(f"{stamp},5,6\n" for stamp in stamps)
    lines = "".join(f'{{"arrival_s": {s}, "prompt_tokens": 5, "output_tokens": 6}}\n' for s in stamps)
    expected = [t * 10 ** (9 - digits) for t in ticks]
    assert load(write(tmp_path, HEADER + rows)).arrival_ns.tolist() == expected
    assert load(write(tmp_path, lines, "trace.jsonl")).arrival_ns.tolist() == expected


@pytest.mark.parametrize("shift", ["1787000000", "-1787000000", "0.000000001", "86400"])
def test_shifting_the_clock_changes_nothing(tmp_path: Path, shift: str) -> None:
    from decimal import Decimal

    stamps = [Decimal(s) for s in ("0.1", "0.30000000000000004", "2", "1e1")]
    plain = load(write(tmp_path, HEADER + "".join(f"{s},5,6\n" for s in stamps)))
    moved = load(write(tmp_path, HEADER + "".join(f"{s + Decimal(shift)},5,6\n" for s in stamps), "b.csv"))
    assert (
        plain.arrival_ns.tolist()
        == moved.arrival_ns.tolist()
        == [0, 200_000_000, 1_900_000_000, 9_900_000_000]
    )
    assert plain.fingerprint == moved.fingerprint


BAD_CELLS = [
    ("abc", "not a number"),
    ("", "missing"),
    ("-1", "negative"),
    ("0", "zero"),
    ("1e3", "not in plain digits"),
    ("NaN", "not a number"),
    ("0x1F", "not a number"),
    ("1_0", "not a number"),
    ("1.5", "not whole"),
    ("1e400", "too large"),
    ("99999999999999999999999", "too large"),
    ("2147483648", "too large"),
]


@pytest.mark.parametrize(("cell", "reason"), BAD_CELLS)
@pytest.mark.parametrize("column", ["prompt_tokens", "output_tokens"])
def test_a_bad_length_names_line_column_and_value(
    tmp_path: Path, cell: str, reason: str, column: str
) -> None:
    row = f"1,{cell},5\n" if column == "prompt_tokens" else f"1,5,{cell}\n"
    path = write(tmp_path, HEADER + "0,5,5\n\n" + row + "2,5,5\n")
    with pytest.raises(InputError) as error:
        load(path)
    shown = f" ('{cell}')" if cell else ""
    assert str(error.value) == f"{path}, line 4, column {column}: {reason}{shown}"


@pytest.mark.parametrize("cell", ["abc", "", "NaN", "inf", "1e400", "12:30"])
def test_a_bad_time_names_line_column_and_value(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, HEADER + f"0,5,5\n{cell},5,5\n")
    with pytest.raises(InputError, match=r"trace\.csv, line 3, column arrival_s: "):
        load(path)


def test_whole_numbers_written_another_way_are_whole(tmp_path: Path) -> None:
    trace = load(write(tmp_path, HEADER + "0, 7 ,8.0\n1e-05,+9,10\n"))
    assert trace.prompt_tokens.tolist() == [7, 9]
    assert trace.output_tokens.tolist() == [8, 10]
    assert trace.arrival_ns.tolist() == [0, 10_000]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\n\n\n", "empty"),
        (b"arrival_s,prompt_tokens,output_tokens\n", "no usable request (no rows)"),
        (b"\x7fELF\x00\x00\x01\x02\n", "binary"),
        ("arrival_s,prompt_tokens,output_tokens\n".encode("utf-16"), "binary"),
        (b"\xffarrival,b\n", "line 1: not UTF-8"),
        (b"a,b,c\n1,2,3\n", "columns a, b, c are of no known csv format"),
        (b"arrival_s,prompt_tokens\n1,2\n", "no known csv format"),
        (
            b"arrival_s,prompt_tokens,prompt_tokens,output_tokens\n1,2,3,4\n",
            "column prompt_tokens occurs twice",
        ),
        (b"arrival_s,prompt_tokens,output_tokens\n1,2,3\n1,2\n", "line 3: 2 cells where the header has 3"),
        (
            b"arrival_s,prompt_tokens,output_tokens\n1,2,3\n1,2,3,4\n",
            "line 3: 4 cells where the header has 3",
        ),
        (
            b"arrival_s,prompt_tokens,output_tokens\n1,2,3\n1787000000,2,3\n",
            "line 3, column arrival_s: arrivals span",
        ),
        (b'{"arrival_s": 1, "prompt\n', "not JSON"),
        (b'{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": 3}\nx\n', "line 2: not a JSON object"),
        (
            b'{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": 3}\n\n{"arrival_s": 1}\n',
            "line 3, column prompt_to",
        ),
        (
            b'{"arrival_s": 1, "prompt_tokens": 2, "output_tokens": true}\n',
            "line 1, column output_tokens: not a num",
        ),
        (b"\x1f\x8b\x08\x00garbage", "gzip"),
        (b"PAR1garbage", "parquet"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError) as error:
        load(path)
    assert str(error.value).startswith(path)
    assert said.lower() in str(error.value).lower()
    assert "\n" not in str(error.value)


def test_folders_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load(str(tmp_path))
    with pytest.raises(InputError, match="no such file"):
        load(str(tmp_path / "none.csv"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
def test_line_ends_and_marks_make_no_difference(tmp_path: Path, end: str, start: str) -> None:
    text = start + HEADER + '1,2,3\n"2",4,5'
    trace = load(write(tmp_path, text.replace("\n", end)))
    assert trace.prompt_tokens.tolist() == [2, 4]
    packed = load(write(tmp_path, gzip.compress(text.replace("\n", end).encode()), "trace.gz"))
    assert packed.fingerprint == trace.fingerprint


def test_azure_equals_vidurs_copy_to_the_microsecond(shared_data: Path) -> None:
    for name in ("code", "conv"):
        azure = load(str(shared_data / f"traces/azure/AzureLLMInferenceTrace_{name}.csv"))
        copy = (shared_data / f"traces/vidur/splitwise_{name}.csv").read_text().splitlines()[1:]
        rows = [line.split(",") for line in copy]
        assert [round(float(row[0]) * 1e6) * 1000 for row in rows] == azure.arrival_ns.tolist()
        assert [int(row[1]) for row in rows] == azure.prompt_tokens.tolist()
        assert [int(row[2]) for row in rows] == azure.output_tokens.tolist()


def test_the_two_azure_stamps(tmp_path: Path) -> None:
    rows = (
        "2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:01+00:00,5,6\n2024-05-10 02:00:01+02:00,7,8\n"
    )
    trace = load(write(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows))
    assert trace.arrival_ns.tolist() == [0, 990_070_000, 990_070_000]
    assert np.array_equal(trace.prompt_tokens, [5, 5, 7])


def test_jsonl_reads_the_same_with_and_without_an_odd_row(tmp_path: Path) -> None:
    first = {"arrival_s": 1.25, "prompt_tokens": 7, "output_tokens": 1e3}
    second = {"x": [1, {"y": 2}], "arrival_s": 2, "prompt_tokens": 5, "output_tokens": 9}
    good = f"{json.dumps(first)}\n{json.dumps(second)}\n"
    assert load(write(tmp_path, good, "a.jsonl")).output_tokens.tolist() == [1000, 9]
    odd = good + '{"arrival_s": 0.1234567890123456789, "prompt_tokens": 5, "output_tokens": 9}\n'
    assert load(write(tmp_path, odd, "b.jsonl")).output_tokens.tolist() == [9, 1000, 9]


def test_a_bad_number_of_json_is_shown_as_it_stood(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"prompt_tokens": 0, "output_tokens": 2}\n')
    with pytest.raises(InputError, match=r"line 1, column prompt_tokens: zero \('0'\)"):
        load(str(path))
    path.write_text('{"prompt_tokens": 1.5, "output_tokens": 2}\n')
    with pytest.raises(InputError, match=r"line 1, column prompt_tokens: not whole \('1.5'\)"):
        load(str(path))
